# Links to other servers, for the control plane.

cdef const uint8_t* hash_of(bytes name) except NULL:
    if len(name) != MAPPED_HASH:
        raise ValueError(f"a hash in replies has {MAPPED_HASH} characters, not {len(name)}")
    return <const uint8_t*><const char*>name


cdef int levels_of(int level, tuple thresholds, int64_t* ns) except -1:
    # Thresholds as they are handed down, and how many there are.
    cdef int n = <int>len(thresholds)
    if n > S2_BEST or not (n or S2_UNCOMPRESSED <= level <= S2_BEST):
        raise ValueError("no such level")
    for i in range(n):
        ns[i] = thresholds[i]
    return n


cdef class LinkHandle:
    """Connections to other servers. Every method may be called from any thread; when the data plane is closed they raise
    PlaneClosed."""

    cdef DataPlane plane

    def write(self, uint64_t cid, bytes line not None):
        """Writes to a link what is a line, or several. False: it is gone."""
        cdef Span s = span_of(line)
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                link_write(c, s)
            self.plane.leave()
        self.plane.check(open)
        return c != NULL

    def resume(self, uint64_t cid):
        """What a link has said, an INFO or CONNECT, is dealt with: what comes behind it is read."""
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                link_resume(c)
            self.plane.leave()
        self.plane.check(open)

    def compress(self, uint64_t cid, int level, tuple thresholds, bytes first not None):
        """As resume(), and all that follows is compressed both ways; what goes out begins with `first`. level: of
        COMPRESSION_LEVELS; or by round trips, with up to as many thresholds in ns."""
        cdef int64_t ns[S2_BEST]
        cdef Span s = span_of(first)
        cdef Conn* c
        cdef bint open
        cdef int n = levels_of(level, thresholds, ns)
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                link_compress(c, level, ns, n, s)
            self.plane.leave()
        self.plane.check(open)

    def relevel(self, uint64_t cid, int level, tuple thresholds):
        """What goes out on a link that is compressed is compressed so from now on; level and thresholds: as for compress()."""
        cdef int64_t ns[S2_BEST]
        cdef Conn* c
        cdef bint open
        cdef int n = levels_of(level, thresholds, ns)
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                conn_relevel(c, level, ns, n)
            self.plane.leave()
        self.plane.check(open)

    def secure(self, uint64_t cid, security not None, bytes name not None):
        """As resume(), and the side that dials makes a handshake; SAID_SECURED tells when it is made. security and name: as for
        MeshHandle.dial()."""
        cdef Security* s = security_of(security)
        cdef Span text = span_of(name)
        cdef Conn* c
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                rc = link_secure(c, s, text)
            self.plane.leave()
        self.plane.check(open)
        if rc != 0:
            raise MemoryError

    cdef int hold(self, int kind, int64_t ping_interval, int64_t ping_max, int64_t write_deadline, bint whole_writes) except -1:
        cdef bint open
        cdef Terms* t = &self.plane.m.net.terms[kind]
        with nogil:
            open = self.plane.enter()
            if open:
                t.ping_interval = ping_interval
                t.ping_max = ping_max
                t.write_deadline = write_deadline
                t.whole_writes = whole_writes
            self.plane.leave()
        self.plane.check(open)
        return 0

    cdef uint64_t dial_as(self, int fd, int64_t timeout, int kind, const Protocol* protocol, int64_t patience, object security,
                          bytes name, bytes request=b"") except 0:
        cdef Security* s = security_of(security)
        cdef Span text = span_of(name), asked = span_of(request)
        cdef Conn* c = NULL
        cdef bint open
        cdef uint64_t cid = 0
        with nogil:
            open = self.plane.enter()
            if open:
                c = conn_dial(&self.plane.m.net, fd, NULL, kind, protocol, &plain_transport, timeout, s, text, asked)
                if c != NULL:
                    cid = c.base.cid
                    (<LinkConn*>c).patience = patience
            self.plane.leave()
        self.plane.check(open)
        if c == NULL:
            raise MemoryError
        return cid


cdef class MeshHandle(LinkHandle):
    """The routes of a data plane. DataPlane.mesh() makes it, once, before the first route."""

    def pin(self, AccountHandle account not None):
        """The account has connections of its own to servers with pools. Before the first route opens."""
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.plane.enter()
            if open:
                rc = mesh_pin(self.plane.links, account.a)
            self.plane.leave()
        self.plane.check(open)
        if rc != 0:
            raise MemoryError

    def unpin(self, AccountHandle account not None):
        """The account shares the connections of pools again. The routes are to be closed, and opened anew."""
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                mesh_unpin(account.a)
            self.plane.leave()
        self.plane.check(open)

    def resize(self, uint32_t places):
        """Pools have so many connections, 0: no pool. Likewise."""
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                mesh_resize(self.plane.links, places)
            self.plane.leave()
        self.plane.check(open)

    def limit(self, *, int64_t ping_interval, int64_t ping_max, int64_t write_deadline, bint whole_writes):
        """What routes are held to: ns between PINGs, PINGs without an answer, and ns until one that takes no bytes is closed;
        with whole_writes: until one that does not take all that waited then. 0: as all are."""
        self.hold(KIND_ROUTER, ping_interval, ping_max, write_deadline, whole_writes)

    def dial(self, int fd, int64_t timeout, security=None, bytes name not None=b""):
        """A route over a non-blocking socket that connect() was called for, and which is the data plane's from then on: its
        number. It is open within `timeout` ns, or closes. security: what it is secured by, as for ListenerHandle.secure(), and
        name: of the server that must be at the other end, or its address."""
        return self.dial_as(fd, timeout, KIND_ROUTER, routes(), 0, security, name)

    def open(self, uint64_t cid, *, bint pooled, uint32_t place=0, AccountHandle account=None, bint origins=True,
             PermissionSet permissions=None, bytes server=b"      "):
        """Lets a route in: it is told of all interest that it carries, and messages flow. account: the one that it carries, and
        its lines do not name. origins: the other server understands LS+, LS- and LMSG. permissions: to publish what it may be
        told of, to subscribe to what its interest may be in. server: the six characters by which replies of other clusters name
        the other server. False: it is gone."""
        cdef RouteTerms terms
        cdef Permissions* perms = permissions.perms if permissions is not None else NULL
        cdef Conn* c
        cdef bint open
        terms.pooled = pooled
        terms.place = place
        terms.account = account.a if account is not None else NULL
        terms.origins = origins
        memcpy(terms.server, hash_of(server), MAPPED_HASH)
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                route_restrict(<RouteConn*>c, perms)
                route_open(self.plane.links, <RouteConn*>c, &terms)
            self.plane.leave()
        self.plane.check(open)
        return c != NULL

    def restrict(self, uint64_t cid, PermissionSet permissions):
        """What an open route may from now on, as with open(): it is told of what that changes, and its own interest ends that
        does not count any more."""
        cdef Permissions* perms = permissions.perms if permissions is not None else NULL
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                route_restrict(<RouteConn*>c, perms)
            self.plane.leave()
        self.plane.check(open)

    def tell_again(self, uint64_t cid):
        """Tells an open route of all interest that it carries, some of which it may have refused before."""
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                route_tell(<RouteConn*>c)
            self.plane.leave()
        self.plane.check(open)


cdef class LeafHandle(LinkHandle):
    """The leaf nodes of a data plane, and the hubs that it is a leaf node of. DataPlane.leaf_links() makes it."""

    def limit(self, *, int64_t ping_interval, int64_t ping_max, int64_t write_deadline, bint whole_writes):
        """What leaf nodes and hubs are held to, as MeshHandle.limit."""
        self.hold(KIND_LEAF, ping_interval, ping_max, write_deadline, whole_writes)

    def dial(self, int fd, int64_t timeout, int64_t patience, security=None, bytes name not None=b"",
             bytes request not None=b""):
        """As MeshHandle.dial, to a hub. It closes, too, if it is not let in within `patience` ns from then on. request: asks for
        WebSocket, unless empty; INBOX_UPGRADE has the answer, which DataPlane.open_websocket() or refuse_websocket() judges."""
        return self.dial_as(fd, timeout, KIND_LEAF, leafs(), patience, security, name, request)

    def open(self, uint64_t cid, AccountHandle account not None, *, bint to_hub, bytes cluster, bytes loop, bint isolated=False,
             bint headers=True, PermissionSet permissions=None, PermissionSet accepts=None, list more=None,
             int64_t max_subscriptions=-1, int64_t max_payload=-1):
        """Lets a leaf node into an account, or a hub (to_hub): it is told of all interest, and messages flow. cluster: that it is
        in; isolated: it is not told of leaf nodes; permissions: which messages go there (publish), and which interest it is told
        of (subscribe); accepts: which messages are taken from there (publish). loop: a subject that nobody else has, by which
        the account finds loops if it has none yet. more: subjects that it is told of beside what is subscribed. The limits are
        the user's own, as for DataPlane.admit(). False: it or the account is gone."""
        cdef LeafTerms terms
        cdef Bytes subjects
        cdef Span one
        cdef int rc = 0
        cdef Conn* c
        cdef bint open
        terms.account = account.a
        terms.to_hub = to_hub
        terms.isolated = isolated
        terms.headers = headers
        terms.perms = permissions.perms if permissions is not None else NULL
        terms.accepts = accepts.perms if accepts is not None else NULL
        terms.cluster = span_of(cluster)
        terms.loop = span_of(loop)
        terms.max_subscriptions = max_subscriptions
        terms.max_payload = max_payload
        memset(&subjects, 0, sizeof(subjects))
        for subject in more or ():
            one = span_of(subject)
            rc |= bytes_add(&subjects, &one, sizeof(Span))
        terms.more = <const Span*>subjects.data
        terms.n_more = <uint32_t>(subjects.n // sizeof(Span))
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open and rc == 0 and not account.a.closed else NULL
            if c != NULL:
                leaf_open(self.plane.links, <LeafConn*>c, &terms)
            self.plane.leave()
        bytes_free(&subjects)
        self.plane.check(open)
        if rc != 0:
            raise MemoryError
        return c != NULL


cdef class GatewayHandle(LinkHandle):
    """The connections of a data plane to servers of other clusters. DataPlane.gateway_links() makes it."""

    def limit(self, *, int64_t ping_interval, int64_t ping_max, int64_t write_deadline, bint whole_writes):
        """As LeafHandle.limit."""
        self.hold(KIND_GATEWAY, ping_interval, ping_max, write_deadline, whole_writes)

    def dial(self, int fd, int64_t timeout, int64_t patience, security=None, bytes name not None=b""):
        """As MeshHandle.dial. It closes, too, if the other server is not let in within `patience` ns from then on."""
        return self.dial_as(fd, timeout, KIND_GATEWAY, gateways(), patience, security, name)

    def open(self, uint64_t cid, *, bint inbound, bytes name not None, bytes hash not None, bint headers=True):
        """Lets a connection in. inbound: messages come from there, and it is told of all interest of this cluster; else messages
        go there. name: of the other cluster; hash: the six characters by which replies name that one. headers: it takes them.
        False: it is gone."""
        cdef GatewayTerms terms
        cdef Conn* c
        cdef bint open
        terms.inbound = inbound
        terms.headers = headers
        memcpy(terms.cluster, hash_of(hash), MAPPED_HASH)
        terms.name = span_of(name)
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_link(cid) if open else NULL
            if c != NULL:
                gateway_open(self.plane.links, <GatewayConn*>c, &terms)
            self.plane.leave()
        self.plane.check(open)
        return c != NULL
