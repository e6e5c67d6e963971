"""Arrow columns of messages: filled from servers' replies and block files, and read back into publishes."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINTR, errno
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from posix.unistd cimport pread

from jsserver.cext.bytes cimport (
    Bytes, Span, bytes_add, bytes_free, bytes_reserve, hh64, header_get, span, span_of, table_hash,
)
from jsserver.cext.store cimport (
    CheckedBlock, Filter, Limits, Parsed, checkpoint_blocks, filter_free, filter_init, filter_matches, is_marker, limits_read,
    record_good, record_parse, side_view, store_key,
)

include "columns/headers.pxi"
include "columns/rows.pxi"
include "columns/s2.pxi"
include "columns/blocks.pxi"
include "columns/survey.pxi"
include "columns/indexes.pxi"
