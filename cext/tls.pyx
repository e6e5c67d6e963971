"""TLS by OpenSSL: a transport for connections, and sessions for what Python serves."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.pycapsule cimport PyCapsule_New
from libc.errno cimport EAGAIN, EBUSY, ECONNRESET, EINTR, ENOMEM, EPROTO, EPROTONOSUPPORT, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset, strlen
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from jsserver.cext.bytes cimport *
from jsserver.cext.core cimport CLOSE_TLS_HANDSHAKE, NOTE_DEBUG, NOTE_LINE, client_close, note_span
from jsserver.cext.net cimport *

include "tls/openssl.pxi"
include "tls/pem.pxi"
include "tls/ocsp.pxi"
include "tls/context.pxi"
include "tls/link.pxi"
include "tls/transport.pxi"
include "tls/session.pxi"

link_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, b"jsserver")
if link_method == NULL:
    raise MemoryError
BIO_meth_set_read(link_method, link_bio_read)
BIO_meth_set_write(link_method, link_bio_write)
BIO_meth_set_ctrl(link_method, link_bio_ctrl)
