# The control plane's view of the data plane. Each call takes the engine lock for a moment, without the GIL.

cdef int64_t SLIM_WAIT = 10000000000    # ns

cdef enum:
    JOURNAL_SIZE = 67108864     # bytes of each of its two segments
    JOURNAL_ABOVE = 4           # a round of more files than this goes through it
    LINK_MESSAGE_MAX = 65536    # bytes of a WebSocket message between servers: nats-server takes max_payload, inflated


cdef class DataPlane(PlaneView):
    """The data plane of one server: accounts, connections, and the threads that serve them.

    Life: make it, configure it, call run() in a thread of its own for each reactor (it returns after stop()), then close().
    Every other method may be called from any thread; after close() they raise PlaneClosed, and those about commits before
    open_store() too.
    """

    cdef bytes domain
    cdef object files           # held as long as the plane: what reaches the files of streams
    cdef Mesh* links            # to other servers; NULL: there are none
    cdef readonly int inbox_fd  # readable when drain() has something
    cdef readonly int reactors

    def __cinit__(self, int reactors=1):
        cdef int rc
        if not 1 <= reactors <= REACTORS_MAX:
            raise ValueError(f"a server has 1 to {REACTORS_MAX} reactors, not {reactors}")
        self.reactors = reactors
        self.domain = b""
        self.inbox_fd = -1
        self.m = <Machine*>calloc(1, sizeof(Machine))
        if self.m == NULL:
            raise MemoryError
        self.inbox_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self.inbox_fd < 0:
            raise OSError(errno, "cannot make an eventfd")
        engine_init(&self.m.engine, self.inbox_fd)
        env_lock_init(&self.m.lock)
        self.m.engine.env.lock = &self.m.lock
        self.env = &self.m.engine.env
        rc = net_init(&self.m.net, &self.m.engine, reactors)
        if rc != 0:
            raise OSError(-rc, "cannot start the reactors")
        self.m.engine.env.random = <uint64_t>posix_system().clock(NULL) | 1
        self.m.net.default_account = account_open(&self.m.engine, span_of(b"$G"))
        if self.m.net.default_account == NULL:
            raise MemoryError
        for reason, text in CLOSE_REASONS.items():
            self.name_reason(reason, text.encode())

    cdef int name_reason(self, int reason, bytes text) except -1:
        if reason >= REASONS_MAX or len(text) >= REASON_MAX:
            raise ValueError(f"there is no room for the reason {reason}: {text}")
        memcpy(self.m.net.reasons[reason], <const char*>text, len(text) + 1)
        return 0

    def run(self, int number=0):
        """Serve until stop(); the body of the thread of that reactor."""
        if not 0 <= number < self.reactors:
            raise IndexError(number)
        with nogil:
            reactor_run(&self.m.net.reactors[number])

    def stop(self):
        with nogil:
            net_stop(&self.m.net)

    def close(self):
        """Closes every connection and frees everything; after each run() returned and streams were closed."""
        with nogil:
            if self.enter():
                self.m.closed = True
                if self.committer != NULL:
                    committer_free(self.committer)
                    self.committer = NULL
                net_free(&self.m.net)
                engine_gc(&self.m.engine)
                if self.links != NULL:
                    mesh_free(self.links)
                    self.links = NULL
                engine_free(&self.m.engine)
                close(self.inbox_fd)
                self.inbox_fd = -1
            env_unlock(self.env)

    def __dealloc__(self):
        # The lock and what wakes reactors live as long as a thread may still use them.
        if self.m != NULL:
            if self.env != NULL:
                self.close()
            net_forget(&self.m.net)
            free(self.m)

    # ---- configuration

    def configure(self, config):
        """Takes a PlaneConfig, which applies to connected clients at once."""
        cdef Engine* e = &self.m.engine
        cdef Net* net = &self.m.net
        cdef EngineLimits limits
        cdef NetLimits net_limits
        cdef uint32_t max_requests = config.max_requests, max_asking = config.max_asking
        cdef bint debug = config.debug, trace = config.trace
        cdef bint open
        fill_limits(&limits, config)
        fill_net_limits(&net_limits, config)
        with nogil:
            open = self.enter()
            e.limits = limits
            e.inbox.requests_max = max_requests
            e.inbox.asking_max = max_asking
            e.debug = debug
            e.trace = trace
            net.limits = net_limits
            env_unlock(&e.env)
        self.check(open)

    def name_server(self, bytes name, bytes hash, bytes cluster=b""):
        """How other accounts' services are told of this server; hash: its eight characters; cluster: the one that it is in."""
        cdef Span s = span_of(name)
        cdef Span group = span_of(cluster)
        cdef const uint8_t* digits = <const uint8_t*><const char*>hash
        cdef bint open
        cdef int rc = 0
        if len(hash) != 8:
            raise ValueError(f"the hash of a server has eight characters, not {len(hash)}")
        with nogil:
            open = self.enter()
            if open:
                self.m.engine.server_name.n = 0
                self.m.engine.cluster_name.n = 0
                rc = bytes_add(&self.m.engine.server_name, s.p, s.n) | bytes_add(&self.m.engine.cluster_name, group.p, group.n)
                memcpy(self.m.engine.server_hash, digits, 8)
            env_unlock(&self.m.engine.env)
        self.check(open)
        if rc != 0:
            raise MemoryError

    def listener(self, int sort):
        """A ListenerHandle for connections of a sort, one of the LISTEN_ constants. It accepts none yet."""
        return listener_handle(self, sort)

    def mesh(self, uint32_t places):
        """A MeshHandle for routes. places: of a pool, whose connections share the accounts among them; 0: no pool."""
        cdef MeshHandle handle = MeshHandle.__new__(MeshHandle)
        cdef bint open
        self.make_links()
        with nogil:
            open = self.enter()
            if open and not self.links.routed:
                mesh_route(self.links, places)
            self.leave()
        self.check(open)
        handle.plane = self
        return handle

    def leaf_links(self):
        """A LeafHandle."""
        cdef LeafHandle handle = LeafHandle.__new__(LeafHandle)
        self.make_links()
        handle.plane = self
        return handle

    def gateway_links(self, bytes cluster not None, bytes server not None, bytes command not None):
        """A GatewayHandle. cluster, server: the six characters that both are named by in replies; command: INFO that tells the
        other side of an account, up to the number of the command."""
        cdef GatewayHandle handle = GatewayHandle.__new__(GatewayHandle)
        cdef Span line = span_of(command)
        cdef const uint8_t* cluster_hash = hash_of(cluster)
        cdef const uint8_t* server_hash = hash_of(server)
        cdef bint open
        cdef int rc = 0
        self.make_links()
        with nogil:
            open = self.enter()
            if open and not self.links.gated:
                rc = mesh_gate(self.links, cluster_hash, server_hash, line)
            self.leave()
        self.check(open)
        if rc != 0:
            raise MemoryError
        handle.plane = self
        return handle

    cdef int make_links(self) except -1:
        cdef bint open
        with nogil:
            open = self.enter()
            if open and self.links == NULL:
                self.links = mesh_new(&self.m.engine)
            self.leave()
        self.check(open)
        if self.links == NULL:
            raise MemoryError
        return 0

    cdef Conn* find_link(self, uint64_t cid) noexcept nogil:
        cdef Conn* c = self.find(cid)
        return c if c != NULL and c.base.kind > KIND_CLIENT and not c.base.closing else NULL

    def answer_peer(self, uint64_t cid, bint good):
        """Answers INBOX_PEER: it may go on, or it is closed. False: it does not wait for that any more."""
        cdef Conn* c
        cdef bint open, taken = False
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            if c != NULL:
                taken = peer_answer(c, good)
            self.leave()
        self.check(open)
        return taken

    def send_elsewhere(self, uint64_t cid):
        """Asks a client to connect elsewhere. False: it has not said that it takes such, or there is none."""
        cdef Conn* c
        cdef bint open, told = False
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            if c != NULL and c.known and c.base.kind == KIND_CLIENT:
                told = client_inform(c, True)
            self.leave()
        self.check(open)
        return told

    def open_websocket(self, uint64_t cid, bytes reply not None, bint masked, bint deflate, uint32_t frame_max=0,
                       bint whole=False, bint masks=False, bint leaf=False):
        """Answers INBOX_UPGRADE: the reply, and frames from then on. masked: the client's have to be; deflate: messages may be
        compressed; frame_max: bytes of a frame to it, 0: no limit, which with `whole` is not for compressed ones; masks: frames
        to the other side are masked; leaf: the other side is a leaf node or hub, and not a client. False: it is gone, or
        cannot be a leaf node."""
        cdef WsTerms agreed
        cdef Conn* c
        cdef bint open, able = True
        if leaf:
            with nogil:
                open = self.enter()
                c = self.find(cid) if open else NULL
                able = c != NULL and (c.base.kind == KIND_LEAF or (is_coming(c) and conn_become(c, KIND_LEAF, leafs())))
                self.leave()
            self.check(open)
        if not able:
            return False
        agreed.masks = masks
        agreed.message_max = LINK_MESSAGE_MAX if leaf else 0
        agreed.masked = masked
        agreed.deflate = deflate
        agreed.frame_max = frame_max
        agreed.whole = whole
        return self.answer_upgrade(cid, WS_OPEN, reply, &agreed)

    def refuse_websocket(self, uint64_t cid, bytes reply not None, bint again):
        """Answers INBOX_UPGRADE: the reply, and another request may come, or it is closed."""
        return self.answer_upgrade(cid, WS_REQUEST if again else WS_REFUSED, reply, NULL)

    cdef bint answer_upgrade(self, uint64_t cid, int verdict, bytes reply, const WsTerms* agreed) except -1:
        cdef Span text = span_of(reply)
        cdef Conn* c
        cdef bint open, taken = False
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            if c != NULL:
                taken = ws_answer(c, verdict, text, agreed)
            self.leave()
        self.check(open)
        return taken

    # ---- JetStream

    def open_store(self, *, int64_t sync_interval, bytes domain, int64_t max_memory, int64_t max_storage,
                   int64_t max_payload, bytes ballast=b"", bytes directory=b"",
                   object files=None):
        """Makes the commit machinery. sync_interval in ns, 0: acks follow the sync. Limits in bytes, -1: none.

        ballast: a file that is removed when the disk is full, so that what frees room can still be written. Nothing is
        stored from then on until has_room() says that there is one again.

        directory: below which all streams are; its journal makes rounds of many files durable. What a crash left in the
        journal is brought into the files first, as journal_drain() does, with its answer. OSError: it could not be; nothing
        is changed.

        files: by what files of streams are reached, EncryptedFiles of the cipher layer, and then no round goes through the
        journal, which is in clear; None: as they are.
        """
        cdef Span path = span_of(ballast), root = span_of(directory)
        cdef JournalReport report
        cdef int rc = 0
        cdef Committer* made
        cdef FileOps* ops = files_of(None if files is None else files.files())
        cdef bint open
        self.must_be_open()
        if self.committer != NULL:
            raise RuntimeError("the store is open")
        made = committer_new(self.env, sync_interval, SLIM_WAIT, self.m.net.reactors[0].wake)
        if made == NULL:
            raise MemoryError
        if committer_ballast(made, path) < 0:
            committer_free(made)
            raise ValueError("the path of the ballast is too long")
        memset(&report, 0, sizeof(report))
        if root.n:
            with nogil:
                rc = committer_journal(made, root, JOURNAL_SIZE if ops == NULL else 0, JOURNAL_ABOVE, &report)
        if rc < 0:
            committer_free(made)
            raise OSError(-rc, "the journal cannot be brought into the files: " + os.strerror(-rc), os.fsdecode(directory))
        if ops != NULL:
            self.env.files = ops        # what the journal holds is in clear
        self.files = files
        self.domain = domain
        with nogil:
            open = self.enter()
            if open:
                self.m.max_payload = max_payload
                self.m.memory.max = max_memory
                self.m.storage.max = max_storage
                self.committer = self.m.net.committer = made
            self.leave()
        if not open:
            committer_free(made)
        self.check(open)
        return report.frames, report.files, report.bytes, report.damaged, report.outdated

    def limit_batches(self, *, int64_t per_stream, int64_t total, int64_t size, int64_t timeout):
        """How many batches may be open, the messages of an atomic one, and after how many ns without a message one ends.
        What is not above 0 is as nats-server has it."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.m.batches.max_per_stream = per_stream
                self.m.batches.max_total = total
                self.m.batches.max_size = size
                self.m.batches.timeout = min(timeout, FOREVER)
            env_unlock(self.env)
        self.check(open)

    def limit_store(self, int64_t max_memory, int64_t max_storage):
        """How many bytes the streams of all accounts may hold from now on; -1: no limit."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.m.memory.max = max_memory
                self.m.storage.max = max_storage
            env_unlock(self.env)
        self.check(open)

    def has_room(self):
        """The disk that was full has room, and the ballast is there again."""
        cdef bint open
        with nogil:
            open = self.enter_store()
            if open:
                committer_has_room(self.committer)
            self.leave()
        self.check(open)

    def run_commits(self):
        """Write and sync what streams stage until stop_commits(); the body of the commit thread, which returns before
        close()."""
        cdef bint open
        with nogil:
            open = self.enter_store()
            self.leave()
            if open:
                committer_run(self.committer)
        self.check(open)

    def stop_commits(self):
        cdef bint open
        with nogil:
            open = self.enter_store()
            if open:
                committer_stop(self.committer)
            self.leave()
        self.check(open)

    cdef bint enter_store(self) noexcept nogil:
        # As enter; False without open_store, too.
        return self.enter() and self.committer != NULL

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
        cdef bint open
        cdef uint64_t dropped = 0
        with nogil:
            open = self.enter()
            if open:
                dropped = self.m.engine.inbox.dropped
            self.leave()
        self.check(open)
        return dropped

    def requests_done(self, uint64_t cid, uint32_t count):
        """INBOX_REQUEST of this connection that count so much together are worked on."""
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                c = self.find(cid)
                if c != NULL:
                    conn_answered(c, count)
            self.leave()
        self.check(open)

    def admit(self, uint64_t cid, AccountHandle account not None, PermissionSet permissions, bytes user=b"",
              int64_t max_subscriptions=-1, int64_t max_payload=-1):
        """Answers INBOX_CONNECT: the connection is let in. permissions may be None. user: as services are told. The limits are
        the user's own, -1: none. False: it or the account is gone, or the account has as many connections as it may, or no
        subscriptions at all, and this one is closed for it."""
        cdef Rights rights = rights_of(permissions)
        cdef Conn* c = NULL
        cdef Span name = span_of(user)
        cdef bint open, entered = False
        with nogil:
            open = self.enter()
            if open and not account.a.closed:
                c = self.find(cid)
            if c != NULL and not client_join(&c.base, account.a):
                c.base.protocol.refuse(&c.base, CLOSE_MAX_ACCOUNT_CONNECTIONS,
                                       span_c(b"maximum account active connections exceeded"))
            elif c != NULL and account.a.max_subscriptions == 0:
                c.base.protocol.refuse(&c.base, CLOSE_MAX_SUBSCRIPTIONS,
                                       span_c(b"maximum subscriptions exceeded"))      # as nats-server does
            elif c != NULL:
                entered = True
                client_name(&c.base, name)
                client_may(&c.base, &rights)
                c.base.max_subscriptions = max_subscriptions
                c.base.max_payload = max_payload
                c.base.protocol.admit(&c.base)
                conn_unpause(c)
            self.leave()
        self.check(open)
        return entered

    def restrict(self, uint64_t cid, PermissionSet permissions):
        """Gives a connection other permissions, None: everything is allowed. Subscriptions that it may not have end."""
        cdef Rights rights = rights_of(permissions)
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            if c != NULL:
                client_may(&c.base, &rights)
            self.leave()
        self.check(open)

    def refuse(self, uint64_t cid):
        """Answers INBOX_CONNECT: Authorization Violation."""
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            c = self.find(cid) if open else NULL
            if c != NULL:
                c.base.protocol.refuse(&c.base, CLOSE_AUTH_FAILURE, span_c(b"Authorization Violation"))
            self.leave()
        self.check(open)

    def close_connection(self, uint64_t cid, int reason, bytes error=None):
        """Cuts a connection, with -ERR 'error' first if given; reason is a key of CLOSE_REASONS."""
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
                    c.base.protocol.refuse(&c.base, reason, span_c(text))
                else:
                    client_close(&c.base, reason)
            self.leave()
        self.check(open)
        return c != NULL

    # ---- accounts

    def account(self, str name not None, bytes hash not None):
        """The account of this name, made if it is new. hash: its eight characters in the long form of ack subjects."""
        cdef AccountHandle handle = AccountHandle.__new__(AccountHandle)
        cdef bytes raw = name.encode()
        cdef Span s = span_of(raw)
        cdef bint open
        if len(hash) != 8:
            raise ValueError(f"the hash of an account has eight characters, not {len(hash)}")
        with nogil:
            open = self.enter()
            if open:
                handle.a = account_open(&self.m.engine, s)
            env_unlock(self.env)
        self.check(open)
        if handle.a == NULL:
            raise MemoryError
        handle.plane = self
        handle.name = name
        handle.hash = hash
        handle.id = handle.a.id
        return handle
