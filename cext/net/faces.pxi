# The control plane's view of the data plane. Each call takes the engine lock for a moment, without the GIL.

#: Texts for CloseReason, as monitoring and events show them.
CLOSE_REASONS = (
    "", "Client Closed", "Authentication Timeout", "Authentication Failure", "Slow Consumer (Pending Bytes)",
    "Slow Consumer (Write Deadline)", "Write Error", "Read Error", "Parse Error", "Stale Connection",
    "Protocol Violation", "Bad Client Protocol Version", "Maximum Connections Exceeded",
    "Maximum Message Payload Exceeded", "Maximum Control Line Exceeded", "Maximum Subscriptions Exceeded",
    "Server Shutdown", "Credentials Revoked", "Message Header Violation", "No Responders Requires Headers",
    "Kicked",
)

INBOX_CONSUMER_GONE = EV_CONSUMER_GONE
INBOX_ADVISORY = EV_ADVISORY
INBOX_STORE_ERROR = EV_STORE_ERROR
INBOX_PAUSE_OVER = EV_PAUSE_OVER
INBOX_LOG = EV_LOG
INBOX_DISK_FULL = EV_DISK_FULL
INBOX_REQUEST = IN_REQUEST
INBOX_CONNECT = IN_CONNECT
INBOX_OPENED = IN_OPENED
INBOX_CLOSED = IN_CLOSED
INBOX_VIOLATION = IN_VIOLATION
INBOX_TRACE = IN_TRACE
INBOX_ERROR = IN_ERROR


class PlaneClosed(RuntimeError):
    """The data plane was closed."""


cdef enum:
    ACCOUNTS_MAX = 1024

cdef struct AccountStore:
    # What the streams of an account hold; streams keep pointers to it.
    Usage memory
    Usage storage
    uint8_t hash[8]         # the account's name in the long form of ack subjects


cdef struct Machine:
    # On the heap, because its parts point at each other.
    Engine engine
    Reactor reactor
    EnvLock lock
    AccountStore server     # of all accounts
    AccountStore* accounts[ACCOUNTS_MAX]
    int64_t max_payload
    bint closed


cdef class DataPlane(EnvBox):
    """The data plane of one server: accounts, connections, and the thread that serves them.

    Life: make it, configure it, call run() in a thread of its own (it returns after stop()), then close().
    Every other method may be called from any thread; after close() they raise PlaneClosed.
    """

    cdef Machine* m
    cdef bytes domain
    cdef list permissions       # sets that connections may still use
    cdef readonly int inbox_fd  # readable when drain() has something

    def __cinit__(self):
        cdef Span system
        cdef int rc
        self.permissions = []
        self.domain = b""
        self.inbox_fd = -1
        self.m = <Machine*>calloc(1, sizeof(Machine))
        if self.m == NULL:
            raise MemoryError
        self.m.reactor.wake = -1
        self.inbox_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self.inbox_fd < 0:
            raise OSError(errno, "cannot make an eventfd")
        engine_init(&self.m.engine, self.inbox_fd)
        env_lock_init(&self.m.lock)
        self.m.engine.env.lock = &self.m.lock
        rc = reactor_init(&self.m.reactor, &self.m.engine)
        if rc != 0:
            raise OSError(-rc, "cannot start the reactor")
        self.m.engine.env.random = <uint64_t>clock_ns(CLOCK_MONOTONIC) | 1
        self.env = &self.m.engine.env
        self.m.reactor.default_account = engine_account(&self.m.engine, span_of(b"$G"))
        if self.m.reactor.default_account == NULL:
            raise MemoryError

    def run(self):
        """Serve until stop(); the body of the data plane's thread."""
        with nogil:
            reactor_run(&self.m.reactor)

    def stop(self):
        self.m.reactor.stopping = True
        reactor_wake(&self.m.reactor)

    def close(self):
        """Closes every connection and frees everything; after run() returned and streams were closed."""
        cdef int i
        with nogil:
            if self.enter():
                self.m.closed = True
                if self.committer != NULL:
                    committer_free(self.committer)
                    self.committer = NULL
                reactor_free(&self.m.reactor)
                engine_free(&self.m.engine)
                for i in range(ACCOUNTS_MAX):
                    free(self.m.accounts[i])
                    self.m.accounts[i] = NULL
                close(self.inbox_fd)
                self.inbox_fd = -1
            env_unlock(self.env)

    def __dealloc__(self):
        # The lock and the eventfd that wakes the reactor live as long as whoever may still use them.
        if self.m != NULL:
            if self.env != NULL:
                self.close()
            if self.m.reactor.wake >= 0:
                close(self.m.reactor.wake)
            free(self.m)

    cdef int check(self, bint open) except -1:
        if not open:
            raise PlaneClosed("the data plane is closed")
        return 0

    # ---- configuration

    def configure(self, *, int64_t max_payload, int64_t max_control_line, int64_t max_pending,
                  int64_t max_subscriptions, int64_t max_sub_tokens, int64_t max_connections, bint headers,
                  bint stall, uint32_t max_requests, int64_t ping_interval, int64_t ping_max,
                  int64_t write_deadline, int64_t auth_timeout, bint auth_required, bint no_auth_user,
                  bint debug, bint trace):
        """Limits and timings (ns); those of the client protocol apply to connected clients at once."""
        cdef Engine* e = &self.m.engine
        cdef Reactor* r = &self.m.reactor
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            e.limits.max_payload = max_payload
            e.limits.max_control_line = max_control_line
            e.limits.max_pending = max_pending
            e.limits.max_subscriptions = max_subscriptions
            e.limits.max_sub_tokens = max_sub_tokens
            e.limits.max_connections = max_connections
            e.limits.headers = headers
            e.limits.stall = stall
            e.inbox.requests_max = max_requests
            e.debug = debug
            e.trace = trace
            r.ping_interval = ping_interval
            r.ping_max = ping_max
            r.write_deadline = write_deadline
            r.auth_timeout = auth_timeout
            r.auth_required = auth_required
            r.no_auth_user = no_auth_user
            c = r.conns
            while c != NULL:
                c.parser.max_line = max_control_line
                c.parser.max_payload = max_payload
                c = c.next
            env_unlock(&e.env)
        self.check(open)

    def set_info(self, bytes head, bytes connected, bytes tail):
        """The pieces of INFO: up to and with `"client_id":`, what connect_info adds, and the rest."""
        cdef Reactor* r = &self.m.reactor
        cdef Span a = span_of(head)
        cdef Span b = span_of(connected)
        cdef Span c = span_of(tail)
        cdef int rc = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                r.info_head.n = r.info_connected.n = r.info_tail.n = 0
                rc |= bytes_add(&r.info_head, a.p, a.n)
                rc |= bytes_add(&r.info_connected, b.p, b.n)
                rc |= bytes_add(&r.info_tail, c.p, c.n)
            env_unlock(&self.m.engine.env)
        self.check(open)
        if rc != 0:
            raise MemoryError

    def listen(self, int fd):
        """Accept connections from a listening, non-blocking socket; -1 stops accepting."""
        cdef Reactor* r = &self.m.reactor
        cdef epoll_event ev
        cdef bint open
        with nogil:
            open = self.enter()
            if open and r.listener.fd >= 0:
                epoll_ctl(r.epoll, EPOLL_CTL_DEL, r.listener.fd, NULL)
            r.listener.fd = fd
            r.listener.paused = False
            if open and fd >= 0:
                ev.events = EPOLLIN
                ev.data.ptr = &r.listener
                epoll_ctl(r.epoll, EPOLL_CTL_ADD, fd, &ev)
            env_unlock(&self.m.engine.env)
        self.check(open)

    # ---- JetStream

    cdef bint enter(self) noexcept nogil:
        env_lock(self.env)
        read_clocks(&self.m.engine)
        return not self.m.closed

    cdef void leave(self) noexcept nogil:
        env_unlock(self.env)
        reactor_wake(&self.m.reactor)

    def open_store(self, *, int64_t sync_interval, bytes domain, int64_t max_memory, int64_t max_storage,
                   int64_t max_payload, bytes ballast=b""):
        """Makes the commit machinery. sync_interval in ns, 0: acks follow the sync. Limits in bytes, -1: none.

        ballast: a file that is removed when the disk is full, so that what frees room can still be written. Nothing is
        stored from then on until has_room() says that there is one again.
        """
        cdef Span path = span_of(ballast)
        self.domain = domain
        self.m.max_payload = max_payload
        self.m.server.memory.max = max_memory
        self.m.server.storage.max = max_storage
        self.committer = committer_new(self.env, sync_interval, self.m.reactor.wake)
        if self.committer == NULL:
            raise MemoryError
        if committer_ballast(self.committer, path) < 0:
            raise ValueError("the path of the ballast is too long")
        with nogil:
            env_lock(self.env)
            self.m.reactor.committer = self.committer
            self.leave()

    def has_room(self):
        """The disk that was full has room, and the ballast is there again."""
        with nogil:
            env_lock(self.env)
            committer_has_room(self.committer)
            self.leave()

    def run_commits(self):
        """Write and sync what streams stage until stop_commits(); the body of the commit thread."""
        with nogil:
            committer_run(self.committer)

    def stop_commits(self):
        committer_stop(self.committer)

    cdef AccountStore* account_store(self, str name) except NULL:
        cdef Account* a = self.account(name)
        cdef AccountStore* found
        cdef bytes digest
        if a.index >= ACCOUNTS_MAX:
            raise ValueError(f"more than {ACCOUNTS_MAX} accounts")
        if self.m.accounts[a.index] == NULL:
            found = <AccountStore*>calloc(1, sizeof(AccountStore))
            if found == NULL:
                raise MemoryError
            found.memory.max = found.storage.max = -1
            digest = short_hash(name).encode()
            memcpy(found.hash, PyBytes_AS_STRING(digest), 8)
            self.m.accounts[a.index] = found
        return self.m.accounts[a.index]

    def open_stream(self, str account, directory, params):
        """Blocking. A StreamHandle, new or with what its directory holds (None for memory); StoreError."""
        cdef StreamPlace place
        cdef AccountStore* usage = self.account_store(account)
        memset(&place, 0, sizeof(place))
        place.account = self.account(account)
        place.domain = span_of(self.domain)
        place.account_hash.p = usage.hash
        place.account_hash.n = 8
        place.max_payload = self.m.max_payload
        if directory is None:
            place.account_usage = &usage.memory
            place.server_usage = &self.m.server.memory
        else:
            place.account_usage = &usage.storage
            place.server_usage = &self.m.server.storage
        return stream_handle(self, &place, params, directory)

    def usage(self, str account):
        """Bytes that the account's streams hold."""
        cdef AccountStore* usage = self.account_store(account)
        cdef int64_t memory = 0, storage = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                memory = usage.memory.used
                storage = usage.storage.used
            env_unlock(self.env)
        self.check(open)
        return AccountUsage(memory=memory, storage=storage)

    def set_account_limits(self, str account, int64_t max_memory, int64_t max_storage):
        """The most bytes the account's streams may hold; -1: no limit."""
        cdef AccountStore* usage = self.account_store(account)
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                usage.memory.max = max_memory
                usage.storage.max = max_storage
            env_unlock(self.env)
        self.check(open)

    # ---- the control inbox

    def drain(self):
        """Everything that came in: a list of (kind, cid, numbers, texts), kinds being the INBOX_ constants."""
        cdef Engine* e = &self.m.engine
        cdef Bytes taken
        cdef uint64_t scrap
        cdef bint open
        memset(&taken, 0, sizeof(Bytes))
        with nogil:
            open = self.enter()
            if open:
                read(e.inbox.fd, &scrap, 8)
                taken = e.inbox.items
                memset(&e.inbox.items, 0, sizeof(Bytes))
                e.inbox.n = 0
                e.inbox.requests = 0
                e.inbox.signalled = False
            env_unlock(&e.env)
        self.check(open)
        try:
            return read_items(taken.data, taken.n)
        finally:
            bytes_free(&taken)

    def dropped(self):
        """Inbox items dropped because the inbox was full, since the start."""
        return self.m.engine.inbox.dropped

    def requests_done(self, uint64_t cid, uint32_t count):
        """So many of this connection's INBOX_REQUEST are worked on."""
        cdef Conn* c
        cdef bint resumed
        with nogil:
            env_lock(&self.m.engine.env)
            c = self.find(cid)
            resumed = c != NULL and conn_answered(c, count)
            env_unlock(&self.m.engine.env)
        if resumed:
            reactor_wake(&self.m.reactor)

    def admit(self, uint64_t cid, str account, PermissionSet permissions):
        """Answers INBOX_CONNECT: the connection is let in. permissions may be None. False: it is gone."""
        cdef bytes name = account.encode()
        cdef Span name_span = span_of(name)
        cdef Permissions* perms = NULL
        cdef bint responses = False
        cdef int32_t responses_max = 0
        cdef int64_t responses_ttl = 0
        cdef Conn* c
        cdef Account* a
        cdef bint open
        if permissions is not None:
            if permissions not in self.permissions:
                self.permissions.append(permissions)
            perms = permissions.perms
            responses = permissions.responses
            responses_max = permissions.responses_max
            responses_ttl = permissions.responses_ttl
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            a = engine_account(&self.m.engine, name_span) if c != NULL else NULL
            if a != NULL:
                c.base.account = a
                c.base.perms = perms
                c.base.responses = responses
                c.base.responses_max = responses_max
                c.base.responses_ttl = responses_ttl
                connect_done(c)
                conn_unpause(c)
            self.leave()
        self.check(open)
        if c != NULL and a == NULL:
            raise MemoryError
        return c != NULL

    def refuse(self, uint64_t cid):
        """Answers INBOX_CONNECT: Authorization Violation."""
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            if c != NULL:
                refuse(c)
            self.leave()
        self.check(open)

    cdef Conn* find(self, uint64_t cid) noexcept nogil:
        cdef uint64_t val
        if not u64map_get(&self.m.reactor.by_cid, cid, &val):
            return NULL
        if (<Conn*>val).base.closing:
            return NULL
        return <Conn*>val

    def close_connection(self, uint64_t cid, int reason, bytes error=None):
        """Cuts a connection, with -ERR 'error' first if given; reason is an index of CLOSE_REASONS."""
        cdef Conn* c
        cdef const char* text = NULL
        cdef bint open
        if error is not None:
            text = error
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            if c != NULL:
                if text != NULL:
                    client_error(&c.base, text)
                client_close(&c.base, reason)
            self.leave()
        self.check(open)
        return c != NULL

    # ---- messages

    def publish(self, str account, bytes subject, bytes reply, bytes headers, bytes payload):
        """Routes a message of the server's own."""
        cdef Msg m
        cdef bint open
        memset(&m, 0, sizeof(m))
        m.account = self.account(account)
        m.kind = KIND_SYSTEM
        m.dest = m.subject = span_of(subject)
        m.reply = span_of(reply)
        m.header = span_of(headers)
        m.data = span_of(payload)
        with nogil:
            open = self.enter()
            if open:
                engine_route(&self.m.engine, NULL, &m)
            self.leave()
        self.check(open)

    cdef Account* account(self, str name) except NULL:
        cdef bytes raw = name.encode()
        cdef Span s = span_of(raw)
        cdef Account* a
        cdef bint open
        with nogil:
            open = self.enter()
            a = engine_account(&self.m.engine, s) if open else NULL
            env_unlock(&self.m.engine.env)
        self.check(open)
        if a == NULL:
            raise MemoryError
        return a

    def account_index(self, str name):
        """The number by which inbox items name the account; it is made when it is new."""
        return self.account(name).index

    cdef int serve(self, str account, bytes subject, inbound_fn fn) except -1:
        cdef Account* a = self.account(account)
        cdef Span s = span_of(subject)
        cdef void* sub = NULL
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                sub = self.env.out.subscribe(self.env.out.ctx, a, s, HEARS_REQUESTS, fn, a)
            env_unlock(&self.m.engine.env)
        self.check(open)
        if sub == NULL:
            raise MemoryError
        return 0

    def serve_requests(self, str account, bytes subject):
        """Messages on this subject, which may have wildcards, come to the inbox as INBOX_REQUEST."""
        self.serve(account, subject, request_in)

    def serve_domain(self, str account, str domain):
        """The API of this domain is the API. What is neither that nor a bucket's has no responder."""
        for name in ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>"):
            self.serve(account, f"$JS.{domain}.API.{name}".encode(), domain_in)
        for name in ("$KV.>", "$OBJ.>"):
            self.serve(account, f"$JS.{domain}.API.{name}".encode(), domain_view_in)

    def subject_interest(self, str account, bytes subject):
        """Whether a client or a stream would receive a message on this subject."""
        cdef Account* a = self.account(account)
        cdef Span s = span_of(subject)
        cdef bint open, found
        with nogil:
            open = self.enter()
            found = open and self.env.out.has_interest(self.env.out.ctx, a, s)
            env_unlock(&self.m.engine.env)
        self.check(open)
        return found

    # ---- monitoring

    def stats(self):
        """Counters of the whole data plane as a dict."""
        cdef Engine* e = &self.m.engine
        cdef EngineStats s
        cdef uint32_t n
        cdef uint64_t subs = 0
        cdef uint32_t i
        cdef SublistStats l
        cdef bint open
        with nogil:
            open = self.enter()
            s = e.stats
            n = self.m.reactor.n_conns
            for i in range(e.n_accounts):
                sublist_stats(e.accounts[i].subs, &l)
                subs += l.subs
            env_unlock(&e.env)
        self.check(open)
        return {
            "connections": n, "total_connections": s.total_connections, "in_msgs": s.in_msgs,
            "in_bytes": s.in_bytes, "out_msgs": s.out_msgs, "out_bytes": s.out_bytes,
            "slow_consumers": s.slow_consumers, "slow_clients": s.slow_clients, "stale": s.stale,
            "stalls": s.stalls, "too_deep": s.too_deep, "subscriptions": subs,
        }

    def sublist(self, str account):
        """Counters of one account's sublist as a dict."""
        cdef Account* a = self.account(account)
        cdef SublistStats l
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                sublist_stats(a.subs, &l)
            env_unlock(&self.m.engine.env)
        self.check(open)
        return l

    def connections(self):
        """Open connections as (kind, cid, numbers, texts), numbers as conn_numbers fills them."""
        cdef Inbox box
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            box_open(&box)
            c = self.m.reactor.conns
            while c != NULL:
                snapshot_conn(c, &box)
                c = c.next
            env_unlock(&self.m.engine.env)
        self.check(open)
        return box_take(&box)

    def connection(self, uint64_t cid):
        """One open connection as connections() has it; None when there is none."""
        cdef Inbox box
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            box_open(&box)
            c = self.find(cid) if open else NULL
            if c != NULL:
                snapshot_conn(c, &box)
            env_unlock(&self.m.engine.env)
        self.check(open)
        found = box_take(&box)
        return found[0] if found else None

    def subscriptions(self):
        """Every subscription as (kind, cid, (account, delivered, max, internal), (subject, queue, sid))."""
        cdef Inbox box
        cdef SubWalk walk
        cdef uint32_t i
        cdef bint open
        with nogil:
            open = self.enter()
            box_open(&box)
            walk.box = &box
            for i in range(self.m.engine.n_accounts):
                walk.account = i
                sublist_each(self.m.engine.accounts[i].subs, snapshot_sub, &walk)
            env_unlock(&self.m.engine.env)
        self.check(open)
        return box_take(&box)
