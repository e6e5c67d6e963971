"""Routing: sublists, permissions, clients' verbs, and the way out that the layers below are handed."""

from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset, strlen
from posix.unistd cimport write

from jsserver.cext.bytes cimport *

include "core/kinds.pxi"
include "core/inbox.pxi"
include "core/nodes.pxi"
include "core/permissions.pxi"
include "core/headers.pxi"
include "core/identity.pxi"
include "core/notes.pxi"
include "core/mappings.pxi"
include "core/match.pxi"
include "core/sublist.pxi"
include "core/pieces.pxi"
include "core/closing.pxi"
include "core/outbuf.pxi"
include "core/words.pxi"
include "core/violations.pxi"
include "core/accounts.pxi"
include "core/replies.pxi"
include "core/reserved.pxi"
include "core/interest.pxi"
include "core/shadows.pxi"
include "core/reports.pxi"
include "core/openings.pxi"
include "core/mapped.pxi"
include "core/measured.pxi"
include "core/served.pxi"
include "core/responses.pxi"
include "core/subscriptions.pxi"
include "core/deliver.pxi"
include "core/crossing.pxi"
include "core/router.pxi"
include "core/dryrun.pxi"
include "core/publish.pxi"
include "core/unheard.pxi"
include "core/imports.pxi"
include "core/clients.pxi"
include "core/engine.pxi"
