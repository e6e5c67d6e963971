"""An environment for streams and consumers: a clock that stands still until it is moved, and a way out that records what
goes out and leads to the subscriptions in it; and streams that are opened in it, or in another one."""

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.types cimport off_t

from jsserver.cext.bytes cimport (
    KIND_CLIENT, KIND_ROUTER, LISTENS, Bytes, Env, EnvLock, Event, FileOps, Msg, Mutex, Span, bytes_add, bytes_free,
    env_lock, env_lock_init, env_unlock, inbound_fn, mutex_free, mutex_init, posix_files, posix_system, put_u64, span,
    span_eq, span_of, subject_matches, task_run, timer_next, timer_run, timers_free,
)
from jsserver.cext.consumer cimport stream_handle
from jsserver.cext.store cimport (
    ST_WAIT, committer_free, committer_hold, committer_let, committer_new, committer_poll, committer_run, committer_stop,
    store_settle,
)
from jsserver.cext.stream cimport (
    BatchRoom, Change, Committed, EnvBox, Pattern, Purge, StreamEntry, StreamFace, StreamPlace, Wheel, Zone, change_get,
    change_put, member_applied, member_apply, member_asked, member_confirmed, member_follow, member_is_to_ask,
    member_lead, member_open, member_propose, member_recovered, member_refused, member_take, purge_begin, purge_free,
    purge_step, read_pattern, stream_apply, stream_stage, stream_stage_apply, stream_stage_end, wheel_add,
    wheel_again, wheel_free, wheel_next, wheel_take, zone_named, zone_offset, zones_free,
)

from threading import Thread


include "texts.pxi"


cdef struct TestSub:
    Bytes subject
    int hears
    inbound_fn fn
    void* target
    bint closed
    bint listens
    TestSub* next


cdef struct TestWatch:
    Bytes subject
    Bytes group
    void (*fn)(void* target, bint active) noexcept nogil
    void* target
    TestWatch* next


cdef enum FaultOp:
    FAULT_DATASYNC = 0
    FAULT_PWRITE = 1
    FAULT_OPEN = 2
    FAULT_TRUNCATE = 3


cdef struct TestDisk:
    # What goes wrong with files, by FaultOp.
    Mutex mutex
    int faults[4]               # errno of the calls to come
    int64_t after[4]            # so many succeed before
    int64_t times[4]            # so many fail
    Mutex hung                  # held while no sync ends


cdef class TestEnv(EnvBox):
    """An environment under a test's control.

    `sent` holds (dest, subject, reply, header, data) of all that went out, `events` (kind, texts, numbers).
    `listen` and `ignore` are a client's SUB and UNSUB; `inject` publishes into the server; `advance` moves the clock
    (nanoseconds), firing timers and running tasks on the way.
    """
    __test__ = False                    # not a test case, whatever its name
    cdef Env own
    cdef EnvLock lock
    cdef TestSub* subs
    cdef TestWatch* watches
    cdef int routing
    cdef FileOps files
    cdef TestDisk disk
    cdef BatchRoom batches
    cdef object thread
    cdef readonly list sent
    cdef readonly list events
    cdef readonly list clients          # (subject, queue group) pairs that a client listens on
    cdef readonly set full              # subjects of clients that have too much to take
    cdef readonly int subscribed        # how often the server's subscriptions became others

    def __cinit__(self, int64_t now=1_700_000_000_000_000_000, uint64_t seed=1):
        env_lock_init(&self.lock)
        memset(&self.own, 0, sizeof(Env))
        self.env = &self.own
        self.own.lock = &self.lock
        self.own.now = now
        self.own.mono = 1_000_000_000
        mutex_init(&self.disk.mutex)
        mutex_init(&self.disk.hung)
        self.files = posix_files()[0]
        self.files.ctx = <void*>self
        self.files.datasync = test_datasync
        self.files.sync_all = test_sync_all
        self.files.pwrite = test_pwrite
        self.files.open = test_open
        self.files.truncate = test_truncate
        self.own.files = &self.files
        self.own.system = posix_system()
        self.own.random = seed
        self.own.out.ctx = <void*>self
        self.own.out.send = test_send
        self.own.out.subscribe = test_subscribe
        self.own.out.unsubscribe = test_unsubscribe
        self.own.out.has_interest = test_has_interest
        self.own.out.heard_by = test_heard_by
        self.own.out.still_full = test_still_full
        self.own.out.watch = test_watch
        self.own.out.unwatch = test_unwatch
        self.own.out.event = test_event
        self.sent = []
        self.events = []
        self.clients = []
        self.full = set()

    def __dealloc__(self):
        cdef TestSub* sub = self.subs
        cdef TestWatch* w = self.watches
        while sub != NULL:
            self.subs = sub.next
            bytes_free(&sub.subject)
            free(sub)
            sub = self.subs
        while w != NULL:
            self.watches = w.next
            bytes_free(&w.subject)
            bytes_free(&w.group)
            free(w)
            w = self.watches
        timers_free(&self.own.timers)
        mutex_free(&self.disk.mutex)
        mutex_free(&self.disk.hung)
        mutex_free(&self.lock.held)
        mutex_free(&self.lock.next)

    @property
    def now(self) -> int:
        return self.own.now

    @property
    def mono(self) -> int:
        return self.own.mono

    def set_now(self, int64_t now) -> None:
        self.own.now = now

    @property
    def subscriptions(self) -> list:
        cdef TestSub* sub = self.subs
        found = []
        while sub != NULL:
            if not sub.closed:
                found.append(span_bytes(span(sub.subject.data, <uint32_t>sub.subject.n)))
            sub = sub.next
        return sorted(found)

    def listen(self, bytes subject, bytes queue=b"") -> None:
        self.clients.append((subject, queue))
        with nogil:
            env_lock(self.env)
        self.tell_watches(subject, queue, True)
        env_unlock(self.env)

    def ignore(self, bytes subject, bytes queue=b"") -> None:
        self.clients.remove((subject, queue))
        if (subject, queue) not in self.clients:
            with nogil:
                env_lock(self.env)
            self.tell_watches(subject, queue, False)
            env_unlock(self.env)

    cdef tell_watches(self, bytes subject, bytes queue, bint active):
        cdef TestWatch* w = self.watches
        cdef Span s = span_of(subject), g = span_of(queue)
        while w != NULL:
            if span_eq(span(w.subject.data, <uint32_t>w.subject.n), s) and \
                    span_eq(span(w.group.data, <uint32_t>w.group.n), g):
                w.fn(w.target, active)
            w = w.next

    def inject(self, bytes subject, bytes data=b"", bytes reply=b"", bytes header=b"", bint run=True, bint route=False) -> int:
        """Publishes, as a client, or as a server by its route; returns how many of the server's subscriptions took it. Tasks run
        unless told otherwise."""
        cdef Msg m
        cdef int n
        memset(&m, 0, sizeof(Msg))
        m.dest = span_of(subject)
        m.subject = m.dest
        m.reply = span_of(reply)
        m.header = span_of(header)
        m.data = span_of(data)
        m.cid = 1
        m.kind = KIND_ROUTER if route else KIND_CLIENT
        with nogil:
            env_lock(self.env)
            n = self.route(&m)
            env_unlock(self.env)
        if run:
            self.run()
        return n

    cdef int route(self, const Msg* m) noexcept nogil:
        cdef TestSub* sub = self.subs
        cdef TestSub** at
        cdef int n = 0
        self.routing += 1
        while sub != NULL:
            if (not sub.closed and sub.hears & (1 << m.kind)
                    and subject_matches(span(sub.subject.data, <uint32_t>sub.subject.n), m.dest)):
                n += sub.fn(sub.target, m)
            sub = sub.next
        self.routing -= 1
        if self.routing == 0:
            at = &self.subs
            while at[0] != NULL:
                sub = at[0]
                if sub.closed:
                    at[0] = sub.next
                    bytes_free(&sub.subject)
                    free(sub)
                else:
                    at = &sub.next
        return n

    def run(self, limit=100_000) -> int:
        """Runs the tasks that are due; returns how many ran."""
        cdef uint32_t n = limit
        with nogil:
            env_lock(self.env)
            n = task_run(&self.own.tasks, n)
            env_unlock(self.env)
        return n

    def advance(self, int64_t ns) -> None:
        cdef int64_t end = self.own.mono + ns, due
        while True:
            self.run()
            due = timer_next(&self.own.timers)
            if due > end:
                break
            if due > self.own.mono:
                self.own.now += due - self.own.mono
                self.own.mono = due
            with nogil:
                env_lock(self.env)
                timer_run(&self.own.timers, self.own.mono, 1000)
                env_unlock(self.env)
        self.own.now += end - self.own.mono
        self.own.mono = end

    def limit_batches(self, per_stream=0, total=0, size=0, timeout=0) -> None:
        """As the limits of a server; 0: the defaults."""
        self.batches.max_per_stream = per_stream
        self.batches.max_total = total
        self.batches.max_size = size
        self.batches.timeout = timeout

    @property
    def open_batches(self) -> tuple[int, int, int]:
        """Atomic ones, fast ones, bytes staged."""
        return self.batches.atomic, self.batches.fast, self.batches.bytes

    def start_commits(self, held=False) -> None:
        """A commit thread, for streams on disk; `poll` lets what it did take effect.

        held: it begins only with `release_commits`, as if the disk were slow.
        """
        self.committer = committer_new(self.env, 0, 0, -1)
        if self.committer == NULL:
            raise MemoryError()
        if not held:
            self.release_commits()

    def release_commits(self) -> None:
        self.thread = Thread(target=self.commit_main, daemon=True)
        self.thread.start()

    def stall_commits(self) -> None:
        """The disk hangs: no sync ends before `resume_commits`."""
        with nogil:
            posix_system().lock(NULL, &self.disk.hung)

    def resume_commits(self) -> None:
        posix_system().unlock(NULL, &self.disk.hung)

    def hold_commits(self) -> None:
        """Until `let_commits` what changes is not put before the commit thread: it is of one group then."""
        with nogil:
            env_lock(self.env)
            committer_hold(self.committer)
            env_unlock(self.env)

    def let_commits(self) -> None:
        with nogil:
            env_lock(self.env)
            committer_let(self.committer)
            env_unlock(self.env)

    def fail(self, int error, str op="datasync", int64_t after=0, int64_t times=1) -> None:
        """After some calls, so many of an operation on files fail with this errno."""
        cdef int at = ("datasync", "pwrite", "open", "truncate").index(op)
        with nogil:
            posix_system().lock(NULL, &self.disk.mutex)
        self.disk.faults[at] = error
        self.disk.after[at] = after
        self.disk.times[at] = times
        posix_system().unlock(NULL, &self.disk.mutex)

    def commit_main(self) -> None:
        with nogil:
            committer_run(self.committer)

    def poll(self) -> None:
        with nogil:
            env_lock(self.env)
            committer_poll(self.committer)
            env_unlock(self.env)

    def stop_commits(self) -> None:
        """After every stream is closed; nothing where there is no commit thread."""
        if self.committer == NULL:
            return
        committer_stop(self.committer)
        if self.thread is not None:
            self.thread.join()
        committer_free(self.committer)
        self.committer = NULL

    @property
    def timers(self) -> int:
        return self.own.timers.n

    def record(self, StreamFace face not None, list changes not None) -> None:
        """Every change that this stream decides goes into the list, as a tuple for `apply`."""
        face.s.on_change = note_change
        face.s.change_ctx = <void*>changes

    def apply(self, StreamFace face not None, tuple change not None) -> int:
        """Carries out a change; what stream_apply answers."""
        cdef Change c
        cdef int64_t rc
        memset(&c, 0, sizeof(Change))
        c.kind, c.seq, c.ts, c.rollup, c.keep, c.erase = change[:6]
        c.subject = span_of(change[6])
        c.header = span_of(change[7])
        c.data = span_of(change[8])
        c.id = span_of(change[9])
        c.start, c.most = change[10:] or (0, 0)
        with nogil:
            env_lock(self.env)
            rc = stream_apply(face.s, &c)
            env_unlock(self.env)
        return rc

    def settle(self, StreamFace face not None) -> None:
        """What age removed belongs to the next group, which is synced."""
        with nogil:
            env_lock(self.env)
            store_settle(face.s.store, True)
            env_unlock(self.env)

    def stage(self, StreamFace face not None) -> None:
        """From now on publishes are staged."""
        if stream_stage(face.s) < 0:
            raise MemoryError()

    def stage_apply(self, StreamFace face not None, uint64_t n) -> int:
        cdef int rc
        with nogil:
            env_lock(self.env)
            rc = stream_stage_apply(face.s, n)
            env_unlock(self.env)
        return rc

    def stage_end(self, StreamFace face not None, bint apply) -> None:
        with nogil:
            env_lock(self.env)
            stream_stage_end(face.s, apply)
            env_unlock(self.env)

    def take(self) -> list:
        """What went out since the last call."""
        got, self.sent = self.sent, []          # in one step: the commit thread sends, too
        return got


cdef int test_send(void* ctx, const Msg* m) noexcept nogil:
    cdef int n
    with gil:
        box = <TestEnv>ctx
        dest = span_bytes(m.dest)
        n = sum(1 for subject, _ in box.clients if subject_matches(span_of(subject), m.dest))
        box.sent.append((dest, span_bytes(m.subject), span_bytes(m.reply), span_bytes(m.header), span_bytes(m.data)))
        n += box.route(m)
        if dest in box.full:
            box.own.out.full = True
    return n


cdef void* test_subscribe(void* ctx, void* account, Span subject, int hears, inbound_fn fn,
                          void* target) noexcept nogil:
    cdef TestSub* sub = <TestSub*>calloc(1, sizeof(TestSub))
    if sub == NULL:
        return NULL
    bytes_add(&sub.subject, subject.p, subject.n)
    sub.hears = hears
    sub.fn = fn
    sub.target = target
    with gil:
        box = <TestEnv>ctx
        sub.listens = hears & LISTENS != 0
        sub.next = box.subs
        box.subs = sub
        box.subscribed += 1
        if sub.listens:
            box.tell_watches(span_bytes(subject), b"", True)
    return sub


cdef void test_unsubscribe(void* ctx, void* handle) noexcept nogil:
    cdef TestSub** at
    cdef TestSub* sub = <TestSub*>handle
    sub.closed = True
    with gil:
        box = <TestEnv>ctx
        box.subscribed += 1
        if box.routing:
            return
        at = &box.subs
        while at[0] != sub:
            at = &at[0].next
        at[0] = sub.next
    bytes_free(&sub.subject)
    free(sub)


cdef bint test_has_interest(void* ctx, void* account, Span subject) noexcept nogil:
    cdef TestSub* sub
    with gil:
        box = <TestEnv>ctx
        sub = box.subs
        while sub != NULL:
            if sub.listens and not sub.closed and subject_matches(
                    span(sub.subject.data, <uint32_t>sub.subject.n), subject):
                return True
            sub = sub.next
        return any(subject_matches(span_of(s), subject) for s, _ in box.clients)


cdef uint32_t test_heard_by(void* ctx, void* account, Span subject) noexcept nogil:
    with gil:
        return (<TestEnv>ctx).clients.count((span_bytes(subject), b""))


cdef bint test_still_full(void* ctx, void* account, Span subject) noexcept nogil:
    with gil:
        return span_bytes(subject) in (<TestEnv>ctx).full


cdef void* test_watch(void* ctx, void* account, Span subject, Span group,
                      void (*fn)(void* target, bint active) noexcept nogil, void* target) noexcept nogil:
    cdef TestWatch* w = <TestWatch*>calloc(1, sizeof(TestWatch))
    cdef bint active
    if w == NULL:
        return NULL
    bytes_add(&w.subject, subject.p, subject.n)
    bytes_add(&w.group, group.p, group.n)
    w.fn = fn
    w.target = target
    with gil:
        box = <TestEnv>ctx
        w.next = box.watches
        box.watches = w
        active = (span_bytes(subject), span_bytes(group)) in box.clients
    fn(target, active)
    return w


cdef void test_unwatch(void* ctx, void* handle) noexcept nogil:
    cdef TestWatch** at
    cdef TestWatch* w = <TestWatch*>handle
    with gil:
        at = &(<TestEnv>ctx).watches
        while at[0] != w:
            at = &at[0].next
        at[0] = w.next
    bytes_free(&w.subject)
    bytes_free(&w.group)
    free(w)


cdef void note_change(void* ctx, const Change* c) noexcept nogil:
    with gil:
        (<list>ctx).append((<int>c.kind, c.seq, c.ts, c.rollup, c.keep, c.erase, span_bytes(c.subject), span_bytes(c.header),
                            span_bytes(c.data), span_bytes(c.id), c.start, c.most))


cdef void test_event(void* ctx, const Event* e) noexcept nogil:
    cdef int i
    with gil:
        (<TestEnv>ctx).events.append((
            e.kind, tuple(span_bytes(e.text[i]) for i in range(3)), tuple(e.num[i] for i in range(5))))


class TestAccount:
    """Any account: a TestEnv has one."""
    __test__ = False

    def pointer(self):
        return PyCapsule_New(<void*>"account", b"jsserver.Account", NULL)


cdef class PurgeInPieces:
    """A purge that the test carries on piece by piece."""
    cdef Purge p
    cdef StreamFace face
    cdef bytes pattern

    def __init__(self, StreamFace face not None, bytes pattern, uint64_t seq=0, uint64_t keep=0):
        self.face = face
        self.pattern = pattern
        cdef Span wanted = span_of(pattern) if pattern is not None else span(NULL, 0)
        with nogil:
            env_lock(self.face.box.env)
            purge_begin(&self.p, self.face.s, wanted, seq, keep, False)
            env_unlock(self.face.box.env)

    def __dealloc__(self):
        purge_free(&self.p)

    def step(self) -> bool:
        """Whether there is more."""
        with nogil:
            env_lock(self.face.box.env)
            if self.p.more:
                purge_step(&self.p)
            env_unlock(self.face.box.env)
        return self.p.more

    @property
    def gone(self) -> int:
        return self.p.gone


def decimal(uint64_t v):
    """A number as streams write it into subjects and answers."""
    cdef uint8_t text[20]
    return text[:put_u64(text, v)]


include "faults.pxi"
include "times.pxi"
include "entries.pxi"
include "members.pxi"


def open_test_stream(EnvBox box not None, prepared, directory=None, bytes domain=b"", bytes account_hash=b"szMpdrwD",
                     bint long_acks=False, max_payload=1 << 20, bint synced=False):
    """A stream in an environment for tests, in no account."""
    cdef StreamPlace place
    memset(&place, 0, sizeof(place))
    place.domain = span_of(domain)
    place.account_hash = span_of(account_hash)
    place.long_acks = long_acks
    place.max_payload = max_payload
    place.synced = synced
    place.batch_room = &(<TestEnv?>box).batches
    return stream_handle(box, &place, prepared, directory)
