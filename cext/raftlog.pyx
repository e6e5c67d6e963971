"""Raft groups on disk, in nats-server's files."""

from libc.errno cimport EINVAL, EIO, ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove, memset, strcmp, strlen

from posix.fcntl cimport O_RDONLY

from jsserver.cext.bytes cimport (
    Bytes, Cond, Env, FileOps, List, ListNode, Span, Task, bytes_add, bytes_free, bytes_reserve, cond_free, cond_init,
    env_lock, env_unlock, env_wait, file_begin, file_put, hh64, invariant, list_drop, list_linked, list_owner, list_pop,
    list_push_back, span, task_cancel, task_post,
)
from jsserver.cext.raft cimport (
    ACT_CUT, ACT_INSTALL, ACT_LOST, ACT_PEERS, ACT_STORE, ACT_VOTE, ACT_WHOLE, AppendEntry, PeerState, RAFT_BUSY,
    RAFT_NO_MEMORY, RAFT_OK, RAFT_TOO_LARGE, Raft, RaftAction, RaftConfig, RaftStart, append_entry_read, peer_state_read,
    raft_failed, raft_free, raft_marked, raft_new, raft_replay, raft_snapshotted, raft_stored, raft_voted,
)
from jsserver.cext.store cimport (
    Committer, DAMAGE_ASIDE, DAMAGE_BLOCK, DAMAGE_RECORDS, Lost, Record, ST_OK, ST_WAIT, STORE_FILE, STORE_MEMORY, Store,
    StoreConfig, StoreState, Wait, committer_pause, store_append_at, store_close, store_durable_ticket, store_error, store_key,
    store_listen, store_load, store_load_warm, store_lost, store_next_seq, store_open, store_purge, store_skip_at, store_state,
    store_stop, store_ticket, store_truncate, wait_cancel,
)

include "raftlog/model.pxi"
include "raftlog/codec.pxi"
include "raftlog/disk.pxi"
include "raftlog/due.pxi"
include "raftlog/log.pxi"
include "raftlog/files.pxi"
include "raftlog/opening.pxi"
