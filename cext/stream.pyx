"""A stream: publishing with its checks and acks, deduplication, interest, reads; and its face for the control plane."""

from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strerror, strlen
from posix.fcntl cimport O_RDONLY

from jsserver.cext.bytes cimport (
    ANSWERED, ANSWERS, EV_BATCH_GONE, EV_INTAKE, EV_LOG, EV_STORE_ERROR, HEARS_ALL, HEARS_REQUESTS, IMPORTS, JSON_FALSE,
    JSON_NULL, JSON_OBJECT, JSON_STRING, JSON_TRUE, KIND_ACK, KIND_GATEWAY, KIND_HUB, KIND_JETSTREAM, KIND_LEAF,
    KIND_ROUTER, LEFT, LEFT_ALONE, LISTENS, S2_NO_MEMORY, SHARES, U64_DIGITS_MAX, Bytes, Draft, Env, Event, FileOps,
    JsonItem, JsonReader, ListNode, ListWalk, Msg, PatternNode, Span, SubjectTransform, Task, Timer, Transform,
    array_room, bytes_add, bytes_free, bytes_reserve, cond_free, cond_init, draft_add, draft_free, draft_number,
    draft_open, draft_span, elapsed, env_clock, env_held, env_lock, env_secret, env_unlock, env_wait, get_bytes, get_uv,
    header_get, invariant, json_at_end, json_bool, json_enter_array, json_enter_object, json_int, json_key_is,
    json_next_element, json_next_member, json_open, json_text, json_uint, list_empty, list_first, list_owner,
    list_pop, list_push_front, list_remove, list_step, list_walk, low_bit, pattern_fn, patterns_match,
    patterns_place, patterns_prune, place_text, put_base64, put_fraction, put_time, put_u64, put_uv, rune_size,
    s2_block, s2_pack_block, span, span_c, span_eq, span_of, strmap_del, strmap_free, strmap_get, strmap_put,
    subject_is_literal, subject_is_valid, subject_matches, table_hash, task_cancel, task_post, timer_cancel,
    timer_fn, timer_set, transform_copy, transform_free, transform_match, u64map_del, u64map_free, u64map_get,
    u64map_put,
)
from jsserver.cext.store cimport Damage as StoreDamage
from jsserver.cext.store cimport Lost as StoreLost
from jsserver.cext.store cimport (
    DAMAGE_ASIDE, DAMAGE_BATCH, DAMAGE_BLOCK, DAMAGE_KEY, DAMAGE_LOG, DAMAGE_MESSAGE, DAMAGE_RECORDS, DAMAGE_RESERVE,
    DAMAGE_SEQUENCES, DAMAGE_SHORT, DAMAGE_TAIL, RM_AGE, STORE_FILE, STORE_MEMORY, ST_CLOSED, ST_DAMAGED, ST_FULL,
    ST_IO, ST_NOT_FOUND, ST_NO_MEMORY, ST_OK,
    ST_ORDER, ST_TOO_LARGE, ST_UNKNOWN, ST_WAIT, Committer, Filter, LastLook, Record, Store, StoreConfig, StoreState, Sweep, Wait,
    committer_pause, filter_free, filter_init, filter_loosen, filter_matches, store_ahead, store_append_at,
    store_back, store_batch, store_batch_end, store_close, store_copy, store_count_of, store_count_some,
    store_deleted, store_durable_seq, store_durable_ticket, store_error, store_expire, store_first_time, store_fits,
    store_halt, store_hold, store_hurry, store_is_last, store_is_synced, store_last_match, store_last_of,
    store_last_per_subject, store_last_some, store_let, store_listen, store_listen_damage, store_load,
    store_load_warm, store_lost, store_next_headed, store_next_intact, store_next_seq, store_next_some, store_open,
    store_pack, store_pending, store_pending_soon, store_purge, store_purge_some, store_purge_subject,
    store_purges_at_once, store_ready, store_remove, store_seq_at, store_settle, store_size_of, store_skip_at,
    store_state, store_stop, store_subject, store_ticket, store_torn_from, store_trim, store_truncate,
    store_unhurried, store_update, store_written, sweep_free, sweep_lasts, sweep_step, sweep_subjects, sweep_take,
    store_warm, wait_cancel,
)

import os
from collections import namedtuple


include "stream/text.pxi"
include "stream/entry.pxi"
include "stream/api.pxi"
include "stream/fifo.pxi"
include "stream/headers.pxi"
include "stream/ttl.pxi"
include "stream/wheel.pxi"
include "stream/zones.pxi"
include "stream/cron.pxi"
include "stream/usage.pxi"
include "stream/send.pxi"
include "stream/acks.pxi"
include "stream/watch.pxi"
include "stream/open_batches.pxi"
include "stream/member.pxi"
include "stream/unconfirmed.pxi"
include "stream/fast_acks.pxi"
include "stream/refusals.pxi"
include "stream/dedupe.pxi"
include "stream/kept.pxi"
include "stream/timetable.pxi"
include "stream/republish.pxi"
include "stream/overlay.pxi"
include "stream/direct_request.pxi"
include "stream/direct.pxi"
include "stream/release.pxi"
include "stream/truncate.pxi"
include "stream/schedule.pxi"
include "stream/propose.pxi"
include "stream/change.pxi"
include "stream/purge.pxi"
include "stream/rollup.pxi"
include "stream/interest.pxi"
include "stream/durable.pxi"
include "stream/counter.pxi"
include "stream/counter_sources.pxi"
include "stream/schedule_check.pxi"
include "stream/checks.pxi"
include "stream/staging.pxi"
include "stream/storing.pxi"
include "stream/batch.pxi"
include "stream/batch_atomic.pxi"
include "stream/batch_fast.pxi"
include "stream/publish.pxi"
include "stream/waiting.pxi"
include "stream/schedule_fire.pxi"
include "stream/expiry.pxi"
include "stream/due.pxi"
include "stream/apply.pxi"
include "stream/caught.pxi"
include "stream/subscriptions.pxi"
include "stream/intake.pxi"
include "stream/messages.pxi"
include "stream/life.pxi"
include "stream/values.pxi"
include "stream/faces.pxi"
include "stream/intake_face.pxi"
