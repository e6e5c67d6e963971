"""Arrow columns of messages: filled from servers' replies and block files, and read back into publishes."""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EINTR, errno
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, UINT32_MAX, UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from posix.unistd cimport pread

from collections import namedtuple

from .bytes cimport (
    S2_CHUNK_MAX, S2_SLACK, U64_DIGITS_MAX, Bytes, Span, Tokens, bytes_add, bytes_free, bytes_reserve, elapsed,
    get_uv, header_get, hh64, put_u64, s2_raise, s2_whole, span, span_eq, span_of, span_starts, subject_matches,
    table_hash, tokens_cut, tokens_of,
)
from .store cimport (
    CheckedBlock, Extent, Filter, IndexBlock, IndexDb, Limits, Parsed, SideBlock, checkpoint_blocks, dict_words, extent_of,
    filter_free, filter_init, filter_matches, index_db_read, is_marker, record_good, record_parse, side_view, store_key,
)

cdef extern from "<string.h>" nogil:
    void* memrchr(const void* p, int c, size_t n)

include "columns/headers.pxi"
include "columns/rows.pxi"
include "columns/replies.pxi"
include "columns/publish.pxi"
include "columns/acks.pxi"
include "columns/outbox.pxi"
include "columns/archived.pxi"
include "columns/blocks.pxi"
include "columns/survey.pxi"
include "columns/indexes.pxi"
