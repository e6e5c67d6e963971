"""Arrow columns of messages: filled from servers' replies and block files, and read back into publishes."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memset

from jsserver.cext.bytes cimport Bytes, Span, bytes_add, bytes_free, span, span_of

include "columns/headers.pxi"
include "columns/rows.pxi"
