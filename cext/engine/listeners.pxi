# What accepts connections, and what these are told and held to.

cdef enum ListenSort:
    LISTEN_FOR_CLIENTS = 1
    LISTEN_FOR_WEBSOCKET = 2
    LISTEN_FOR_ROUTES = 3
    LISTEN_FOR_LEAFS = 4
    LISTEN_FOR_GATEWAYS = 5

#: Sorts of connections: clients, clients that speak WebSocket, whose requests come as INBOX_UPGRADE, routes, which speak by
#: INBOX_LINK, leaf nodes, which speak by INBOX_LEAF, and servers of other clusters, which speak by INBOX_GATEWAY.
LISTEN_CLIENTS = LISTEN_FOR_CLIENTS
LISTEN_WEBSOCKET = LISTEN_FOR_WEBSOCKET
LISTEN_ROUTES = LISTEN_FOR_ROUTES
LISTEN_LEAFS = LISTEN_FOR_LEAFS
LISTEN_GATEWAYS = LISTEN_FOR_GATEWAYS


@cython.no_gc_clear     # as AccountHandle
cdef class ListenerHandle:
    """Accepts connections of one sort. DataPlane.listener() makes it.

    Every method may be called from any thread; when the data plane is closed they raise PlaneClosed.
    """

    cdef DataPlane plane
    cdef int kind
    cdef const Protocol* protocol
    cdef Terms* terms
    cdef bint framed
    cdef Listener* s            # NULL: none are accepted
    cdef Security* security     # held; NULL: none
    cdef bint proxied
    cdef int64_t patience       # ns that a request for WebSocket may take

    def __dealloc__(self):
        if self.plane is None:
            return
        with nogil:
            if self.plane.enter() and self.s != NULL:
                listener_close(self.s)
            if self.security != NULL:
                self.security.release(self.security)
            env_unlock(self.plane.env)

    def configure(self, config):
        """What its connections are told and held to from now on: a ListenerConfig. Those that are there already are held to
        it, too."""
        cdef ClientAuth auth
        cdef int64_t ping_interval = config.ping_interval, patience = config.handshake_timeout
        cdef bint open
        fill_auth(&auth, config)
        if config.info is not None:
            head, middle, tail = config.info
            later = config.later_head
            self.inform(head, middle, tail, later)
        with nogil:
            open = self.plane.enter()
            if open:
                self.terms.auth = auth
                self.terms.ping_interval = ping_interval
                self.patience = patience
                if self.s != NULL:
                    self.s.patience = patience
            env_unlock(self.plane.env)
        self.plane.check(open)

    cdef int inform(self, bytes head, bytes middle, bytes tail, bytes later) except -1:
        cdef Terms* t = self.terms
        cdef Span a = span_of(head)
        cdef Span b = span_of(middle)
        cdef Span c = span_of(tail)
        cdef Span d = span_of(later)
        cdef int rc = 0
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                t.info_head.n = t.info_middle.n = t.info_tail.n = t.later_head.n = 0
                rc |= bytes_add(&t.info_head, a.p, a.n)
                rc |= bytes_add(&t.info_middle, b.p, b.n)
                rc |= bytes_add(&t.info_tail, c.p, c.n)
                rc |= bytes_add(&t.later_head, d.p, d.n)
            env_unlock(self.plane.env)
        self.plane.check(open)
        if rc != 0:
            raise MemoryError
        return 0

    def tell(self):
        """Sends INFO to those of its clients that take such at any time, as what configure() said of it has changed."""
        cdef Bytes cids
        cdef ListWalk conns
        cdef Conn* c
        cdef uint64_t at = 0, end
        cdef bint open
        cdef int rc = 0
        memset(&cids, 0, sizeof(cids))
        with nogil:
            open = self.plane.enter()
            conns = list_walk(&self.plane.m.net.conns)
            c = conn_step(&conns) if open else NULL
            while c != NULL and rc == 0:
                if c.terms == self.terms:
                    rc = bytes_add(&cids, &c.base.cid, sizeof(uint64_t))
                c = conn_step(&conns)
            env_unlock(self.plane.env)
        try:
            self.plane.check(open)
            if rc < 0:
                raise MemoryError
            while at < cids.n:
                with nogil:
                    open = self.plane.enter()
                    end = min(cids.n, at + CONNS_PIECE * sizeof(uint64_t)) if open else at
                    while at < end:
                        c = self.plane.find((<uint64_t*>(cids.data + at))[0])
                        if c != NULL:
                            client_inform(c, False)
                        at += sizeof(uint64_t)
                    self.plane.leave()
                self.plane.check(open)
        finally:
            bytes_free(&cids)

    def secure(self, security, bint proxied=False):
        """What connections that come from now on are secured by: what SecurityContext.security() of the tls layer gives, or
        None. proxied: a PROXY header may come first. Those that are connected stay as they are."""
        cdef Security* s = security_of(security)
        cdef Security* old
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                if s != NULL:
                    s.hold(s)
                old = self.security
                self.security = s
                self.proxied = proxied
                if old != NULL:
                    old.release(old)
                if self.s != NULL:
                    listener_secure(self.s, s, proxied)
            env_unlock(self.plane.env)
        self.plane.check(open)

    def listen(self, int fd):
        """Accepts connections from a listening, non-blocking socket from now on; -1: none."""
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open and self.s != NULL:
                listener_close(self.s)
            self.s = NULL
            if open and fd >= 0:
                self.s = listener_open(&self.plane.m.net, fd, self.kind, self.protocol, &plain_transport)
                if self.s != NULL:
                    self.s.terms = self.terms
                    self.s.framed = self.framed
                    self.s.becomes = leafs() if self.framed and self.plane.links != NULL else NULL
                    self.s.patience = self.patience
                    listener_secure(self.s, self.security, self.proxied)
            env_unlock(self.plane.env)
        self.plane.check(open)
        if fd >= 0 and self.s == NULL:
            raise MemoryError


cdef ListenerHandle listener_handle(DataPlane plane, int sort):
    cdef ListenerHandle handle
    plane.must_be_open()
    if not LISTEN_FOR_CLIENTS <= sort <= LISTEN_FOR_GATEWAYS:
        raise ValueError(f"there is no sort {sort} of connections")
    handle = ListenerHandle.__new__(ListenerHandle)
    handle.plane = plane
    if sort == LISTEN_FOR_ROUTES:
        handle.kind, handle.protocol = KIND_ROUTER, routes()
    elif sort == LISTEN_FOR_LEAFS:
        handle.kind, handle.protocol = KIND_LEAF, leafs()
    elif sort == LISTEN_FOR_GATEWAYS:
        handle.kind, handle.protocol = KIND_GATEWAY, gateways()
    else:
        handle.kind, handle.protocol = KIND_CLIENT, &client_protocol
    handle.framed = sort == LISTEN_FOR_WEBSOCKET
    handle.terms = &plane.m.net.websocket if handle.framed else &plane.m.net.terms[handle.kind]
    return handle
