"""Raft on nats-server's wire: one group as one member has it."""

from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset

from jsserver.cext.bytes cimport (
    Bytes, Span, array_room, bytes_add, bytes_free, bytes_reserve, get_uv, invariant, put_uv, span, split_mix,
)

include "raft/model.pxi"
include "raft/codec.pxi"
include "raft/actions.pxi"
include "raft/terms.pxi"
include "raft/peers.pxi"
include "raft/catchup.pxi"
include "raft/roles.pxi"
include "raft/follow.pxi"
include "raft/rounds.pxi"
include "raft/lead.pxi"
include "raft/vote.pxi"
include "raft/tick.pxi"
include "raft/seek.pxi"
include "raft/life.pxi"
