"""What every layer stands on: hashes, timers, tasks, tables, subjects, headers and files."""

cimport cython
from libc.errno cimport EINTR, EINVAL, EIO, ENOENT, ENOMEM, errno
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strcmp, strlen
from posix.types cimport off_t

import os

include "bytes/hash.pxi"
include "bytes/sha256.pxi"
include "bytes/timers.pxi"
include "bytes/tables.pxi"
include "bytes/subjects.pxi"
include "bytes/patterns.pxi"
include "bytes/overlaps.pxi"
include "bytes/transform.pxi"
include "bytes/json.pxi"
include "bytes/times.pxi"
include "bytes/files.pxi"
include "bytes/system.pxi"
include "bytes/snappy.pxi"
include "bytes/s2.pxi"
include "bytes/s2_encode.pxi"
include "bytes/faces.pxi"
