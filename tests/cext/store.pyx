"""Drives stores, their filters and their logs, in an environment of the system's own."""

from libc.errno cimport EIO
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.types cimport off_t

from jsserver.cext.bytes cimport (
    Bytes, Env, EnvLock, FileOps, Span, Task, bytes_free, env_clock, env_lock, env_lock_init, env_unlock, posix_files,
    posix_system, span, span_of, task_run, timer_run,
)
from jsserver.cext.cipher cimport CIPHER_AES, CIPHER_CHACHA, CipherKind, Encrypted, encrypted_files, encrypted_free, encrypted_new
from jsserver.cext.store cimport (
    Committer, Filter, Log, Lost, Record, Store, StoreConfig, StoreFigures, StoreState, Wait, DAMAGE_LOG, STORE_FILE,
    STORE_MEMORY, ST_CLOSED, ST_DAMAGED, ST_IO, ST_NOT_FOUND, ST_NO_MEMORY, ST_OK, ST_ORDER, ST_TOO_LARGE, ST_WAIT,
    LastLook, Sweep, commit_inline, committer_free, committer_hold, committer_let, committer_new, committer_poll,
    committer_run, committer_stop, filter_free, filter_init, filter_loosen, filter_matches, keeper_turn, log_append,
    log_close, log_cut_head, log_cut_tail, log_end, log_open, log_rewrite, log_size, store_append_at, store_batch,
    store_batch_end, store_close, store_count_of, store_count_some, store_deleted, store_durable_seq, store_durable_ticket,
    store_error, store_figures, store_first_time, store_last_match, store_last_of, store_last_per_subject, store_last_some,
    store_listen, store_load, store_load_warm, store_lost, store_next_seq, store_next_some, store_open, store_pending,
    store_purge, store_remove, store_seq_at, store_skip_at, store_state, store_stop, store_ticket, store_trim,
    store_truncate, store_update, sweep_free, sweep_lasts, sweep_step, sweep_subjects, sweep_take,
)

import os
import threading
import time


include "texts.pxi"
include "dead.pxi"


cdef uint64_t next_of(Store* s) noexcept nogil:
    # The sequence behind the last one.
    cdef StoreState state
    store_state(s, &state)
    return state.last_seq + 1


cdef bytes face_bytes(object s):
    if isinstance(s, str):
        return (<str>s).encode("utf-8", "surrogateescape")
    return bytes(s)


cdef object ERRORS = {
    ST_NO_MEMORY: MemoryError("no memory"),
    ST_TOO_LARGE: ValueError("the record exceeds 32 MiB, or the subject 65535 bytes"),
    ST_NOT_FOUND: KeyError("no such message"),
    ST_CLOSED: RuntimeError("the store is closed"),
    ST_ORDER: ValueError("the sequence is not behind the last one"),
}


cdef int64_t face_result(int64_t rc, int64_t number=0) except -1:
    if rc >= 0:
        return rc
    if rc == ST_IO:
        raise OSError(<int>number, f"the store's files fail: {os.strerror(<int>number)}")
    if rc == ST_DAMAGED:
        raise ValueError("the record is damaged")
    raise type(ERRORS[rc])(*ERRORS[rc].args)


cdef void note_removed(void* ctx, uint64_t seq, Span subject, int reason) noexcept nogil:
    with gil:
        (<PyStore>ctx).removed.append((seq, span_bytes(subject).decode("utf-8", "surrogateescape"), reason))


cdef void count_wake(Task* t) noexcept nogil:
    with gil:
        (<PyStore>t.owner).wakes += 1


cdef void note_durable(void* ctx, uint64_t seq, uint64_t ticket, int error) noexcept nogil:
    with gil:
        (<PyStore>ctx).durable.append((seq, ticket, error))


cdef class PyFilter:
    """A compiled set of patterns, kept so that its cache is."""
    cdef Filter f
    cdef bint made

    def __init__(self, patterns=()):
        cdef list texts = [face_bytes(p) for p in ([patterns] if isinstance(patterns, (str, bytes)) else patterns)]
        cdef Span* spans = <Span*>malloc((len(texts) + 1) * sizeof(Span))
        cdef int rc
        if spans == NULL:
            raise MemoryError
        for i, t in enumerate(texts):
            spans[i] = span_of(t)
        rc = filter_init(&self.f, spans, <uint32_t>len(texts))
        free(spans)
        face_result(rc)
        self.made = True

    def matches(self, subject) -> bool:
        cdef bytes s = face_bytes(subject)
        return filter_matches(&self.f, span_of(s))

    def __dealloc__(self):
        if self.made:
            filter_free(&self.f)


cdef PyFilter face_filter(object patterns):
    return patterns if isinstance(patterns, PyFilter) else PyFilter(patterns)


cdef class PyStore:
    """A store with an environment of its own. Times are nanoseconds; `now` is the wall clock until tick() moves it.

    commit: "thread" starts a commit thread, "manual" writes groups in commit() only.
    """
    cdef Env env
    cdef FileOps files
    cdef EnvLock mutex
    cdef Committer* com
    cdef Store* s
    cdef readonly list removed
    cdef readonly list durable
    cdef readonly uint64_t wakes
    cdef Wait cold
    cdef Task wake
    cdef object thread
    cdef dict config
    cdef bytes directory
    cdef bytes name
    cdef bint own_clock
    cdef Encrypted* encrypted

    def __init__(self, directory=None, name="S", *, max_msgs=-1, max_bytes=-1, max_age=0, max_msgs_per=-1, trim=True,
                 first_seq=0, retention=0, compress=False, commit="thread", sync_interval=0, slim_wait=0, now=None,
                 listen=True, cipher=None, secret=b"secret", before=b""):
        self.removed = []
        self.durable = []
        self.directory = b"" if directory is None else os.fsencode(directory)
        self.name = face_bytes(name)
        self.config = {"max_msgs": max_msgs, "max_bytes": max_bytes, "max_age": max_age, "max_msgs_per": max_msgs_per,
                       "trim": trim, "first_seq": first_seq, "retention": retention,
                       "compress": compress}
        env_lock_init(&self.mutex)
        self.env.lock = &self.mutex
        self.files = posix_files()[0]
        self.env.files = &self.files
        self.env.system = posix_system()
        self._encrypt(cipher, secret, before)
        self.own_clock = now is not None
        self.env.now = now if now is not None else time.time_ns()
        self.env.mono = time.monotonic_ns() if now is None else now
        self.com = committer_new(&self.env, sync_interval, slim_wait, -1)
        if self.com == NULL:
            raise MemoryError
        if commit == "thread" and self.directory:
            self.thread = threading.Thread(target=self._run, name="commit", daemon=True)
            self.thread.start()
        self._open(listen)

    def _run(self):
        with nogil:
            committer_run(self.com)

    cdef StoreConfig _config(self):
        cdef StoreConfig c
        memset(&c, 0, sizeof(c))
        c.storage = STORE_FILE if self.directory else STORE_MEMORY
        c.name = span_of(self.name)
        c.directory = span_of(self.directory)
        c.max_msgs = self.config["max_msgs"]
        c.max_bytes = self.config["max_bytes"]
        c.max_age = self.config["max_age"]
        c.max_msgs_per = self.config["max_msgs_per"]
        c.trim = self.config["trim"]
        c.first_seq = self.config["first_seq"]
        c.retention = self.config["retention"]
        c.compress = self.config["compress"]
        return c

    def _encrypt(self, cipher, bytes secret, bytes before):
        cdef CipherKind kind = CIPHER_AES if cipher == "aes" else CIPHER_CHACHA
        if cipher is not None and self.directory:
            self.encrypted = encrypted_new(&self.files, posix_system(), kind, span_of(secret), span_of(before))
            self.env.files = encrypted_files(self.encrypted)

    def _open(self, bint listen):
        cdef char err[512]
        cdef StoreConfig c = self._config()
        with nogil:
            self.s = store_open(&self.env, self.com, &c, err, sizeof(err))
        if self.s == NULL:
            raise OSError(err.decode("utf-8", "replace"))
        if listen:
            store_listen(self.s, note_removed, note_durable, <void*>self)

    cdef int _enter(self) except -1:
        # Takes the engine lock, with the clock set.
        if self.s == NULL:
            raise RuntimeError("the store is closed")
        with nogil:
            env_lock(&self.env)
        if not self.own_clock:
            self.env.now = self.env.system.wall(NULL)
            self.env.mono = env_clock(&self.env)
        return 0

    cdef void _leave(self):
        env_unlock(&self.env)

    # ---- writing ----

    def append(self, subject, data=b"", header=b"", ts=None) -> int:
        cdef bytes a = face_bytes(subject), d = face_bytes(data), h = face_bytes(header)
        cdef uint64_t seq
        cdef int rc
        self._enter()
        seq = next_of(self.s)
        rc = store_append_at(self.s, seq, self.env.now if ts is None else ts, span_of(a), span_of(h), span_of(d))
        self._leave()
        face_result(rc, store_error(self.s))
        return seq

    def append_many(self, str pattern, uint64_t count, uint64_t subjects, uint32_t size, uint64_t start=0,
                    uint64_t batch=256) -> int:
        """count messages of size bytes; "#" in the pattern becomes a number below `subjects`, walked in a scattered order.

        A load generator: the lock is let go after each batch. Returns the nanoseconds spent appending.
        """
        cdef bytes text = face_bytes(pattern)
        cdef Span p = span_of(text)
        cdef char subject[600]
        cdef int64_t spent
        cdef int rc
        if len(text) > 500 or size > 1 << 20 or subjects == 0 or batch == 0:
            raise ValueError("pattern up to 500 bytes, size up to 1 MiB, at least one subject, a batch of at least 1")
        if self.s == NULL:
            raise RuntimeError("the store is closed")
        with nogil:
            spent = load_run(&self.env, self.com, self.s, p, count, subjects, size, start, batch, subject, &rc)
        face_result(rc, store_error(self.s))
        return spent

    def append_at(self, uint64_t seq, subject, data=b"", header=b"", ts=None) -> None:
        cdef bytes a = face_bytes(subject), d = face_bytes(data), h = face_bytes(header)
        cdef int rc
        self._enter()
        rc = store_append_at(self.s, seq, self.env.now if ts is None else ts, span_of(a), span_of(h), span_of(d))
        self._leave()
        face_result(rc, store_error(self.s))

    def batch(self, rows, remove=()) -> int:
        """Appends rows of (subject, data), then removes messages, as a whole; the last sequence."""
        cdef bytes a, d
        cdef uint64_t seq = 0
        cdef int rc
        self._enter()
        rc = store_batch(self.s)
        if rc == ST_OK:
            for subject, data in rows:
                a, d, seq = face_bytes(subject), data, next_of(self.s)
                rc = rc or store_append_at(self.s, seq, self.env.now, span_of(a), span_of(b""), span_of(d))
            for other in remove:
                rc = rc or store_remove(self.s, other, False)
            store_batch_end(self.s, rc == ST_OK)
        self._leave()
        face_result(rc, store_error(self.s))
        return seq

    def truncate(self, uint64_t seq) -> None:
        cdef int rc
        self._enter()
        rc = store_truncate(self.s, seq, NULL, NULL)
        self._leave()
        face_result(rc, store_error(self.s))

    def durable_seq(self) -> int:
        self._enter()
        committer_poll(self.com)
        seq = store_durable_seq(self.s)
        self._leave()
        return seq

    def skip(self) -> int:
        cdef StoreState t
        cdef uint64_t seq
        cdef int rc
        self._enter()
        store_state(self.s, &t)
        seq = t.last_seq + 1
        rc = store_skip_at(self.s, seq, self.env.now)
        self._leave()
        face_result(rc, store_error(self.s))
        return seq

    def remove(self, uint64_t seq, bint erase=False) -> None:
        cdef int rc
        self._enter()
        rc = store_remove(self.s, seq, erase)
        self._leave()
        face_result(rc, store_error(self.s))

    def purge(self, patterns=(), uint64_t seq=0, uint64_t keep=0) -> int:
        cdef PyFilter f = face_filter(patterns)
        cdef int64_t rc
        self._enter()
        rc = store_purge(self.s, &f.f, seq, keep)
        self._leave()
        return face_result(rc, store_error(self.s))

    def update(self, *, whole=True, **limits) -> None:
        if unknown := set(limits) - set(self.config):
            raise TypeError(f"no such limit: {sorted(unknown)}")
        self.config.update(limits)
        cdef StoreConfig c = self._config()
        self._enter()
        rc = store_update(self.s, &c)
        self._leave()
        face_result(rc, store_error(self.s))
        while whole and self.trim():
            pass

    def trim(self) -> bool:
        """A piece of what update(whole=False) left to be removed; whether there is more."""
        self._enter()
        rc = store_trim(self.s)
        self._leave()
        return face_result(rc, store_error(self.s)) > 0

    def tick(self, now=None) -> None:
        """Moves the clock (both of it) and runs timers and tasks that are due."""
        self._enter()
        if now is not None:
            self.env.mono += max(0, now - self.env.now)
            self.env.now = now
        timer_run(&self.env.timers, self.env.mono, 10000)
        task_run(&self.env.tasks, 10000)
        committer_poll(self.com)
        self._leave()

    def hold(self) -> None:
        """As a turn of the server does before its changes."""
        self._enter()
        committer_hold(self.com)
        self._leave()

    def let(self) -> None:
        """And after them."""
        self._enter()
        committer_let(self.com)
        self._leave()

    def commit(self) -> None:
        """Writes what is staged, when there is no commit thread."""
        self._enter()
        self._leave()
        with nogil:
            commit_inline(self.com, 0)
        self._enter()
        committer_poll(self.com)
        self._leave()

    def upkeep(self) -> None:
        """Does now what the maintenance thread would do in its time."""
        with nogil:
            keeper_turn(self.com)
        self.tick()

    def wait_durable(self, timeout=30.0) -> None:
        """Until everything done so far is on disk. OSError when the store's files fail, TimeoutError."""
        end = time.monotonic() + timeout
        while True:
            self._enter()
            committer_poll(self.com)
            ticket, done = store_ticket(self.s), store_durable_ticket(self.s)
            number = store_error(self.s)
            self._leave()
            if number:
                face_result(ST_IO, number)
            if done >= ticket:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"ticket {ticket} is not durable, {done} is")
            time.sleep(0.0002)

    # ---- reading ----

    def load(self, uint64_t seq) -> tuple:
        """(seq, ts, subject, header, data)"""
        cdef Record r
        self._enter()
        rc = store_load(self.s, seq, &r)
        out = (r.seq, r.ts, span_bytes(r.subject), span_bytes(r.header), span_bytes(r.data)) if rc == ST_OK else None
        self._leave()
        face_result(rc, EIO)
        return (out[0], out[1], out[2].decode("utf-8", "surrogateescape"), out[3], out[4])

    def load_warm(self, uint64_t seq):
        """A message's data, or None: it is being fetched, and `wakes` counts one more when it is there."""
        cdef Record r
        self.cold.task = &self.wake
        self.wake.owner = <void*>self
        self.wake.fn = count_wake
        self._enter()
        rc = store_load_warm(self.s, seq, &r, &self.cold)
        out = span_bytes(r.data) if rc == ST_OK else None
        self._leave()
        if rc != ST_WAIT:
            face_result(rc, EIO)
        return out

    def state(self) -> dict:
        cdef StoreState t
        cdef int64_t first
        self._enter()
        store_state(self.s, &t)
        first = store_first_time(self.s)
        self._leave()
        return {"msgs": t.msgs, "bytes": t.bytes, "first_seq": t.first_seq, "first_ts": first, "last_seq": t.last_seq,
                "last_ts": t.last_ts, "num_subjects": t.num_subjects, "num_deleted": t.num_deleted}

    def lost(self) -> dict:
        """What cannot be served: sequences, bytes, damaged places met, and (kind, block, at, size, first, last, count)."""
        cdef Lost t
        cdef uint32_t i
        self._enter()
        store_lost(self.s, &t)
        out = {"msgs": [t.seqs[i] for i in range(t.n)], "bytes": t.bytes, "damage": t.damage,
               "places": [(<int>t.places[i].kind, t.places[i].block, t.places[i].at, t.places[i].size, t.places[i].first,
                           t.places[i].last, t.places[i].count) for i in range(t.n_places)]}
        self._leave()
        return out

    def next(self, patterns=(), uint64_t start=1) -> int:
        """The sequence of the first match, 0 when there is none."""
        cdef PyFilter f = face_filter(patterns)
        self._enter()
        seq = store_next_seq(self.s, &f.f, start)
        self._leave()
        return seq

    def last_of(self, subject) -> int:
        cdef bytes a = face_bytes(subject)
        self._enter()
        seq = store_last_of(self.s, span_of(a))
        self._leave()
        return seq

    def count_of(self, subject) -> int:
        cdef bytes a = face_bytes(subject)
        self._enter()
        n = store_count_of(self.s, span_of(a))
        self._leave()
        return n

    def last(self, patterns=()) -> int:
        cdef PyFilter f = face_filter(patterns)
        self._enter()
        seq = store_last_match(self.s, &f.f)
        self._leave()
        return seq

    def last_per_subject(self, patterns=(), uint64_t upto=0) -> list:
        cdef PyFilter f = face_filter(patterns)
        cdef uint64_t* seqs = NULL
        self._enter()
        n = store_last_per_subject(self.s, &f.f, upto, &seqs)
        self._leave()
        face_result(n)
        out = [seqs[i] for i in range(n)]
        free(seqs)
        return out

    def pending(self, patterns=(), uint64_t start=1) -> int:
        cdef PyFilter f = face_filter(patterns)
        self._enter()
        n = store_pending(self.s, &f.f, start)
        self._leave()
        return n

    def seq_at(self, int64_t ts) -> int:
        self._enter()
        seq = store_seq_at(self.s, ts)
        self._leave()
        return seq

    def subjects(self, patterns=()) -> dict:
        return PySweep(self, patterns).result()

    def deleted(self, uint64_t start=1, uint64_t cap=1 << 20) -> list:
        cdef uint64_t* out = <uint64_t*>malloc(cap * 8)
        if out == NULL:
            raise MemoryError
        self._enter()
        n = store_deleted(self.s, start, out, cap)
        self._leave()
        seqs = [out[i] for i in range(n)]
        free(out)
        return seqs

    def figures(self) -> dict:
        """What tests want to know of the inside."""
        cdef StoreFigures t
        cdef Lost lost
        self._enter()
        store_figures(self.s, &t)
        store_lost(self.s, &lost)
        self._leave()
        return {"used": t.used, "damage": lost.damage, "nodes": t.nodes, "index": t.index}

    def numbers(self) -> list:
        """Of the files that its blocks are in."""
        folder = os.path.join(os.fsdecode(self.directory), "msgs")
        return sorted(int(name.removesuffix(".blk")) for name in os.listdir(folder) if name.endswith(".blk"))

    # ---- end ----

    def _end(self, bint remove):
        self._enter()
        store_stop(self.s)
        self._leave()
        with nogil:
            store_close(self.s, remove)
        self.s = NULL

    def reopen(self) -> None:
        """A clean stop and a new start."""
        self._end(False)
        self._open(True)

    def close(self, bint remove=False) -> None:
        if self.s != NULL:
            self._end(remove)
        self._stop_thread()

    def _stop_thread(self):
        if self.thread is not None:
            committer_stop(self.com)
            self.thread.join()
            self.thread = None

    def abandon(self) -> None:
        """As if killed: what the commit thread has written stays, nothing else is done."""
        self._stop_thread()
        files_die(&self.files)
        if self.s != NULL:
            self._end(False)
        if self.com != NULL:
            committer_free(self.com)
        self.com = NULL

    def __dealloc__(self):
        if self.s == NULL and self.com != NULL and self.thread is None:
            committer_free(self.com)
            if self.encrypted != NULL:
                encrypted_free(self.encrypted)


cdef int64_t load_run(Env* env, Committer* com, Store* s, Span p, uint64_t count, uint64_t subjects, uint32_t size,
                      uint64_t start, uint64_t batch, char* subject, int* rc) noexcept nogil:
    cdef uint8_t* data = <uint8_t*>malloc(size + 8)
    cdef uint64_t i = 0, n, number
    cdef uint32_t at = 0, len
    cdef int64_t spent = 0, since
    cdef int put
    rc[0] = ST_OK if data != NULL else ST_NO_MEMORY
    while at < p.n and p.p[at] != c'#':
        at += 1
    while i < count and rc[0] == ST_OK:
        env_lock(env)
        env.now = env.system.wall(env.system.ctx)
        since = env_clock(env)
        n = min(count, i + batch)
        while i < n and rc[0] == ST_OK:
            len = p.n
            memcpy(subject, p.p, at)
            if at < p.n:
                put = snprintf(subject + at, 32, "%llu", <unsigned long long>((start + i) * 2654435761ULL % subjects))
                memcpy(subject + at + put, p.p + at + 1, p.n - at - 1)
                len = p.n - 1 + put
            memset(data, 97 + <int>(i % 26), size)
            number = start + i
            memcpy(data, &number, sizeof(number))
            rc[0] = store_append_at(s, next_of(s), env.now, span(subject, len), span(NULL, 0), span(data, size))
            i += 1
        spent += env_clock(env) - since
        committer_poll(com)
        env_unlock(env)
    free(data)
    return spent


include "log.pxi"


include "searches.pxi"
