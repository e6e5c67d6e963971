# cython: language_level=3
"""The network's side of the data plane: reactor, connections, client protocol, and the control plane's view."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, ECONNRESET, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport INT64_MAX, UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strlen
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close, read, write

from jsserver.cext.bytes cimport *
from jsserver.cext.consumer cimport stream_handle
from jsserver.cext.core cimport *
from jsserver.cext.store cimport (
    committer_ballast, committer_free, committer_has_room, committer_new, committer_poll, committer_run,
    committer_stop,
)
from jsserver.cext.stream cimport EnvBox, StreamFace, StreamPlace

from collections import namedtuple

#: Bytes that an account's streams hold.
AccountUsage = namedtuple("AccountUsage", "memory storage")

include "net/parser.pxi"
include "net/transport.pxi"
include "net/conn.pxi"
include "net/handshake.pxi"
include "net/client.pxi"
include "net/arrivals.pxi"
include "net/reactor.pxi"
include "net/items.pxi"
include "net/users.pxi"
include "net/faces.pxi"
include "net/accounts.pxi"
