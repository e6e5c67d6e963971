"""A disk in memory, and the rest of an environment, that do what a seed says: a clock that is moved by hand, power cuts,
calls that fail, and threads that take turns."""

from libc.errno cimport EAGAIN, EBADF, EEXIST, EINVAL, EIO, EISDIR, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport fprintf, stderr
from libc.stdlib cimport abort, free, realloc
from libc.string cimport memcpy, memset, strchr, strcmp, strlen
from posix.fcntl cimport O_CREAT, O_TRUNC
from posix.types cimport off_t

from jsserver.cext.bytes cimport (
    Bytes, Cond, Env, FileOps, Mutex, Span, System, Thread, bytes_add, bytes_free, bytes_reserve, env_lock, env_unlock,
    pages_free, pages_new, pthread_mutex_unlock, span, span_of, split_mix,
    task_run,
)
from jsserver.cext.cipher cimport CIPHER_CHACHA, CipherKind, Encrypted, encrypted_files, encrypted_free, encrypted_new
from jsserver.cext.store cimport (
    ST_DAMAGED, ST_NOT_FOUND, ST_OK, Committer, JournalReport, Log, Record, Store, StoreState, commit_inline, committer_free,
    committer_journal, committer_new, committer_poll, committer_run, committer_stop, keeper_turn, log_append, log_cut_head,
    log_cut_tail, log_end, log_open,
    store_durable_seq, store_durable_ticket, store_next_warm, store_state, store_ticket,
)
from jsserver.cext.stream cimport EnvBox, StreamFace

include "../cext/texts.pxi"


include "turns.pxi"
include "inodes.pxi"
include "calls.pxi"
include "machine.pxi"
include "logs.pxi"
