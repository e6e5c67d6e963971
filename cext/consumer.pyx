"""A consumer: delivery to those who listen or ask, acks, redelivery, and its state; and its face for the control plane."""

cimport cython
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR, O_TRUNC

from jsserver.cext.bytes cimport (
    ADV_ACK_METRIC, ADV_MAX_DELIVER, ADV_NAK, ADV_PINNED, ADV_TERM, ADV_UNPINNED, EV_ADVISORY, EV_CONSUMER_GONE, EV_LOG,
    EV_PAUSE_OVER, HEARS_REQUESTS, JSON_ARRAY, JSON_NULL, JSON_NUMBER, JSON_OBJECT, JSON_STRING, KIND_ACCOUNT, KIND_ACK,
    Bytes, Event, FileOps, JsonItem, JsonReader, List, ListNode, ListWalk, Msg, Span, Task, Timer, U64Map, U64Pair,
    array_room, bytes_add, bytes_free, bytes_reserve, compare_u64, env_held, env_random, env_token, get_bytes, get_uv,
    header_get, hh64, inbound_fn, invariant, json_at_end, json_bool, json_enter_object, json_key_is, json_next_member, json_open,
    json_text, list_empty, list_first, list_head, list_insert, list_last, list_linked, list_owner, list_pop, list_prev,
    list_push_back, list_push_front, list_remove, list_step, list_take, list_walk, put_u64, put_uv, span,
    span_c, span_eq, span_of, strmap_del, strmap_free, strmap_get, strmap_put, subject_matches, task_cancel, task_post,
    task_queued, timer_cancel, timer_set, u64map_del, u64map_each, u64map_free, u64map_get, u64map_put,
)
from jsserver.cext.store cimport (
    ST_DAMAGED, ST_NOT_FOUND, ST_NO_MEMORY, ST_OK, ST_WAIT, Filter, Log, Record, Store, StoreState, wait_cancel,
    filter_copy, filter_free, filter_init, filter_is_loose, filter_loosen, log_append, log_close, log_follows, log_open,
    log_rewrite, log_size,
    store_close, store_is_synced, store_kept_seq, store_skip_at,
    LastLook, store_remove, store_count_some, store_last_some, store_durable_ticket, store_last_per_subject, store_load_warm,
    store_next_some, store_pending_soon, sweep_free, sweep_lasts, sweep_step, sweep_take,
    store_next_seq, store_seq_at, store_subject, store_state, store_stop, store_ticket, store_forget, store_open, store_retreat,
    StoreConfig, store_withhold, store_withhold_end, store_written,
)
from jsserver.cext.stream cimport (
    FOREVER, RETENTION_INTEREST, ConfigTexts, EnvBox, IntakeFace, Stream, StreamPlace, Watcher, add_span,
    add_text, add_u64,
    get_duration, get_u64, level_too_high, put_duration, read_int, store_config, stream_activate,
    stream_answer, stream_answer_rest, stream_free, stream_give_store, stream_halt, stream_hidden, stream_keeps_all,
    stream_new, stream_purge, stream_release, stream_resume, stream_served, stream_settle, stream_shows_more, stream_stop,
    stream_unwatch, stream_watch, trimmed,
)

import os
from collections import namedtuple
from itertools import count
from threading import Lock

from jsserver.cext.stream import StoreError


STATE_NAME = b"o.dat"


cdef enum:
    SECOND = 1000000000


include "consumer/pending.pxi"
include "consumer/wake.pxi"
include "consumer/notices.pxi"
include "consumer/subjects.pxi"
include "consumer/position.pxi"
include "consumer/waits.pxi"
include "consumer/state.pxi"
include "consumer/entry.pxi"
include "consumer/log.pxi"
include "consumer/propose.pxi"
include "consumer/floor.pxi"
include "consumer/statefile.pxi"
include "consumer/dead.pxi"
include "consumer/status.pxi"
include "consumer/asked.pxi"
include "consumer/pull.pxi"
include "consumer/pull_ask.pxi"
include "consumer/flow.pxi"
include "consumer/groups.pxi"
include "consumer/idle.pxi"
include "consumer/info.pxi"
include "consumer/count.pxi"
include "consumer/rewind.pxi"
include "consumer/replay.pxi"
include "consumer/start.pxi"
include "consumer/apply.pxi"
include "consumer/redelivery.pxi"
include "consumer/deliver.pxi"
include "consumer/flights.pxi"
include "consumer/pull_request.pxi"
include "consumer/acks.pxi"
include "consumer/dead_send.pxi"
include "consumer/push.pxi"
include "consumer/notes.pxi"
include "consumer/why.pxi"
include "consumer/admin.pxi"
include "consumer/life.pxi"
include "consumer/faces.pxi"
include "consumer/streams.pxi"
