"""The whole data plane of one server: accounts, what their streams hold, the commit machinery, and the control plane's view."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.errno cimport errno
from libc.stdint cimport UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.unistd cimport close, read

from jsserver.cext.bytes cimport *
from jsserver.cext.consumer cimport stream_handle
from jsserver.cext.core cimport *
from jsserver.cext.net cimport *
from jsserver.cext.links cimport (
    LINK_CONNECT, LINK_ERROR, LINK_HAILED, LINK_INFO, LINK_LOOP, LINK_OPENED, LINK_SECURED, GatewayConn, GatewayTerms, LeafConn,
    LeafTerms, LinkConn, Mesh, RouteConn, RouteTerms, gateway_open, gateways, leaf_open, leafs, link_compress, link_resume,
    link_secure, link_write, mesh_free, mesh_gate, mesh_new, mesh_pin, mesh_resize, mesh_route, mesh_unpin, route_open,
    route_restrict, route_tell, routes,
)
from jsserver.cext.store cimport (
    JournalReport, committer_ballast, committer_free, committer_has_room, committer_journal, committer_new, committer_run,
    committer_stop,
)
from jsserver.cext.stream cimport FOREVER, BatchRoom, EnvBox, StreamFace, StreamPlace

import os
from collections import namedtuple

#: Bytes that an account's streams hold.
AccountUsage = namedtuple("AccountUsage", "memory storage")
#: Requests of the API that an account's streams answered themselves, and those whose answers wait for the disk.
AnsweredRequests = namedtuple("AnsweredRequests", "total errors inflight")
#: Clients of an account, its subscriptions, and what its clients have moved: `in` is what they sent.
AccountTraffic = namedtuple("AccountTraffic", "clients subscriptions in_msgs in_bytes out_msgs out_bytes")

include "engine/items.pxi"
include "engine/finding.pxi"
include "engine/users.pxi"
include "engine/codes.pxi"
include "engine/view.pxi"
include "engine/plane.pxi"
include "engine/accounts.pxi"
include "engine/listeners.pxi"
include "engine/links.pxi"
