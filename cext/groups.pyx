"""Raft groups of a server, for the control plane."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen

from jsserver.cext.bytes cimport *
from jsserver.cext.raft cimport *
from jsserver.cext.raftlog cimport *
from jsserver.cext.store cimport Committer
from jsserver.cext.stream cimport EnvBox, get_u64

import os
from collections import namedtuple

include "groups/model.pxi"
include "groups/say.pxi"
include "groups/hear.pxi"
include "groups/pump.pxi"
include "groups/own.pxi"
include "groups/life.pxi"
include "groups/face.pxi"
include "groups/faces.pxi"
