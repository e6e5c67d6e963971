"""Routing: sublists, permissions, clients' verbs, and the way out that the layers below are handed."""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset, strlen
from posix.unistd cimport write

from jsserver.cext.bytes cimport *

include "core/sublist.pxi"
include "core/match.pxi"
include "core/permissions.pxi"
include "core/mappings.pxi"
include "core/outbuf.pxi"
include "core/inbox.pxi"
include "core/notes.pxi"
include "core/kinds.pxi"
include "core/deliver.pxi"
include "core/identity.pxi"
include "core/reports.pxi"
include "core/responses.pxi"
include "core/imports.pxi"
include "core/router.pxi"
include "core/dryrun.pxi"
include "core/verbs.pxi"
include "core/accounts.pxi"
include "core/engine.pxi"
