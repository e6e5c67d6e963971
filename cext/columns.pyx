"""Arrow columns of messages: filled from servers' replies and block files, and read back into publishes."""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from jsserver.cext.bytes cimport Bytes, Span, bytes_add, bytes_free, bytes_reserve, span, span_of

include "columns/headers.pxi"
include "columns/rows.pxi"
include "columns/publish.pxi"
include "columns/acks.pxi"
include "columns/outbox.pxi"
