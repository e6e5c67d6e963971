"""The network's side of the data plane: reactors, connections, and the clients' protocol."""

from libc.errno cimport (
    EAGAIN, ECONNRESET, EINTR, EIO, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPROTO, errno,
)
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strchr, strcmp, strlen
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close, read, write

from jsserver.cext.bytes cimport *
from jsserver.cext.core cimport *
from jsserver.cext.store cimport committer_hold, committer_let, committer_poll

include "net/parser.pxi"
include "net/address.pxi"
include "net/scratch.pxi"
include "net/transport.pxi"
include "net/waiting.pxi"
include "net/frame.pxi"
include "net/unframe.pxi"
include "net/resting.pxi"
include "net/proxy.pxi"
include "net/writing.pxi"
include "net/compress.pxi"
include "net/wrapping.pxi"
include "net/conn.pxi"
include "net/approach.pxi"
include "net/reading.pxi"
include "net/websocket.pxi"
include "net/arrivals.pxi"
include "net/handshake.pxi"
include "net/client.pxi"
include "net/reactor.pxi"
