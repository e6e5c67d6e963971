"""Streams and consumers of Raft groups."""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove, memset, strerror, strlen

from jsserver.cext.bytes cimport (
    EV_REPLICA, JSON_ARRAY, Bytes, Env, Event, JsonItem,
    JsonReader, List, ListNode, ListWalk, Msg, Span, Task, Timer, bytes_add, bytes_free, env_secret, env_token, get_bytes,
    get_uv, hh64, json_at_end, json_bool, json_enter_object, json_key_is, json_next_member, json_open, json_text,
    json_uint, list_drop, list_empty, list_first, list_owner, list_push_back, list_step, list_walk, put_u64, put_uv, span,
    span_c, span_of, task_cancel, task_post, timer_cancel, timer_set,
)
from jsserver.cext.consumer cimport (
    JOINS, JOINS_ANEW, OP_RESET, PROPOSE_LATER, Consumer, ConsumerEntry, ConsumerHandle, ConsumerInfo, StreamHandle,
    consumer_apply, consumer_encode_state, consumer_ends, consumer_entry_get, consumer_follow, consumer_join_serving,
    consumer_lead, consumer_lead_group, consumer_part, consumer_reset_group, consumer_restore, consumer_step,
)
from jsserver.cext.groups cimport (
    Group, GroupFace, GroupRecord, RaftGroups, found_of, group_applied, group_ask, group_close, group_deaf, group_due,
    group_given, group_hear, group_next, group_open, group_own, group_propose, group_say, group_snapshot, group_state_take,
    group_stop, peer_number,
)
from jsserver.cext.raft cimport (
    ENTRY_NORMAL, ENTRY_SNAPSHOT, RAFT_BUSY, RAFT_ELECTED, RAFT_FOLLOWER, RAFT_LEADER, RAFT_NO_MEMORY, RAFT_OK, RAFT_STOPPED,
    AppendEntry, Entry, RaftConfig, RaftPeerState, RaftState, append_entry_read, entry_next, raft_failed, raft_hand_over,
    raft_observe, raft_peer, raft_propose_state, raft_state,
)
from jsserver.cext.raftlog cimport RaftFound, raftlog_bytes, raftlog_error, raftlog_load
from jsserver.cext.store cimport (
    ST_CLOSED, ST_DAMAGED, ST_NOT_FOUND, ST_NO_MEMORY, ST_OK, ST_ORDER, ST_UNKNOWN, ST_WAIT, Record, Store, StoreState,
    Wait, store_deleted, store_durable_ticket, store_hurry, store_last_match, store_lost_from, store_next_seq, store_next_warm,
    store_state, store_ticket, store_written, wait_cancel,
)
from jsserver.cext.stream cimport (
    CHANGE_DELETE, CHANGE_MESSAGE, CHANGE_PURGE, CHANGE_SKIP, CHANGE_TRUNCATE, MEMBER_DIVERGED, STORAGE_MEMORY, Change,
    Committed, Purge, Stream, StreamEntry, StreamFace, change_get, change_put, get_u64, is_request, member_answers,
    member_applied, member_apply, member_asked, member_begins, member_caught, member_close, member_confirmed, member_ending,
    member_follow, member_installed, member_is_to_ask, member_lacks, member_lead, member_leave, member_open, member_owes,
    member_propose, member_recovered, member_refused, member_take, purge_begin, purge_free, purge_step, stream_apply,
    stream_rest,
)

import os

from jsserver.cext.groups import GroupError
from jsserver.cext.stream import StoreError

include "replicas/model.pxi"
include "replicas/codes.pxi"
include "replicas/tell.pxi"
include "replicas/state.pxi"
include "replicas/inboxes.pxi"
include "replicas/catchup.pxi"
include "replicas/serving.pxi"
include "replicas/keep.pxi"
include "replicas/stream.pxi"
include "replicas/stream_life.pxi"
include "replicas/stream_face.pxi"
include "replicas/consumer.pxi"
include "replicas/consumer_face.pxi"
