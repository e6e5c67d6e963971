# Links to other servers, for the control plane.

cdef class MeshHandle:
    """The routes of a data plane. DataPlane.mesh() makes it, once, before the first route.

    Every method may be called from any thread; when the data plane is closed they raise PlaneClosed.
    """

    cdef DataPlane plane

    def pin(self, AccountHandle account not None):
        """The account has connections of its own to servers with pools. Before the first route opens."""
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.plane.enter()
            if open:
                rc = mesh_pin(self.plane.routes, account.a)
            self.plane.leave()
        self.plane.check(open)
        if rc != 0:
            raise MemoryError

    def dial(self, int fd, int64_t timeout):
        """A route over a non-blocking socket that connect() was called for, and which is the data plane's from then on: its
        number. It is open within `timeout` ns, or closes."""
        cdef Conn* c = NULL
        cdef bint open
        cdef uint64_t cid = 0
        with nogil:
            open = self.plane.enter()
            if open:
                c = conn_dial(&self.plane.m.net, fd, NULL, KIND_ROUTER, routes(), &plain_transport, timeout)
                if c != NULL:
                    cid = c.base.cid
            self.plane.leave()
        self.plane.check(open)
        if c == NULL:
            raise MemoryError
        return cid

    def write(self, uint64_t cid, bytes line not None):
        """Writes to a route what is a line, or several. False: it is gone."""
        cdef Span s = span_of(line)
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_route(cid) if open else NULL
            if c != NULL:
                link_write(c, s)
            self.plane.leave()
        self.plane.check(open)
        return c != NULL

    def resume(self, uint64_t cid):
        """An INBOX_LINK with an INFO or CONNECT is dealt with: what comes behind it is read."""
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_route(cid) if open else NULL
            if c != NULL:
                link_resume(c)
            self.plane.leave()
        self.plane.check(open)

    def open(self, uint64_t cid, *, bint pooled, uint32_t place=0, AccountHandle account=None, PermissionSet permissions=None):
        """Lets a route in: it is told of all interest that it carries, and messages flow. account: the one that it carries, and
        its lines do not name. permissions: to publish what it may be told of, to subscribe to what its interest may be in.
        False: it is gone."""
        cdef RouteTerms terms
        cdef Permissions* perms = permissions.perms if permissions is not None else NULL
        cdef Conn* c
        cdef bint open
        terms.pooled = pooled
        terms.place = place
        terms.account = account.a if account is not None else NULL
        with nogil:
            open = self.plane.enter()
            c = self.plane.find_route(cid) if open else NULL
            if c != NULL:
                route_restrict(<RouteConn*>c, perms)
                route_open(self.plane.routes, <RouteConn*>c, &terms)
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
            c = self.plane.find_route(cid) if open else NULL
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
            c = self.plane.find_route(cid) if open else NULL
            if c != NULL:
                route_tell(<RouteConn*>c)
            self.plane.leave()
        self.plane.check(open)
