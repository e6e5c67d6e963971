"""Links between servers."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from jsserver.cext.bytes cimport *
from jsserver.cext.core cimport *
from jsserver.cext.net cimport *

include "links/lines.pxi"
include "links/origins.pxi"
include "links/link.pxi"
include "links/send.pxi"
include "links/told.pxi"
include "links/route.pxi"
include "links/leaf.pxi"
include "links/gateway.pxi"
include "links/mesh.pxi"
