# What monitoring sees of the data plane. Each call takes the engine lock for a moment, without the GIL.

cdef enum:
    CONNS_PIECE = 500           # connections that one hold of the lock looks at


cdef class AccountHandle


cdef class PlaneView(EnvBox):
    """The part of a DataPlane that looks at it."""

    cdef Machine* m

    cdef int check(self, bint open) except -1:
        if not open:
            raise PlaneClosed("the data plane is closed")
        return 0

    cdef int must_be_open(self) except -1:
        # Before a long call that takes the lock by itself.
        cdef bint open
        with nogil:
            open = self.enter()
            self.leave()
        return self.check(open)

    cdef bint enter(self) noexcept nogil:
        env_lock(self.env)
        read_clocks(&self.m.engine)
        return not self.m.closed

    cdef void leave(self) noexcept nogil:
        cdef uint64_t called = 0
        if not self.m.closed:
            called = reactors_called(&self.m.net)
        env_unlock(self.env)
        reactors_wake(&self.m.net, called)

    cdef Conn* find(self, uint64_t cid) noexcept nogil:
        cdef uint64_t val
        if not u64map_get(&self.m.net.by_cid, cid, &val):
            return NULL
        if (<Conn*>val).base.closing:
            return NULL
        return <Conn*>val

    # ---- monitoring

    def stats(self):
        """Counters of the whole data plane as a dict."""
        cdef Engine* e = &self.m.engine
        cdef EngineStats s
        cdef uint32_t n
        cdef uint64_t subs = 0
        cdef uint32_t active = 0
        cdef ListWalk accounts
        cdef Account* a
        cdef SublistStats l
        cdef bint open
        with nogil:
            open = self.enter()
            s = e.stats
            n = self.m.net.n_clients
            accounts = list_walk(&e.accounts)
            a = account_step(&accounts) if open else NULL
            while a != NULL:
                sublist_stats(a.subs, &l)
                subs += l.subs
                active += a.members > 0
                a = account_step(&accounts)
            env_unlock(&e.env)
        self.check(open)
        return {
            "connections": n, "total_connections": s.total_connections, "in_msgs": s.in_msgs,
            "in_bytes": s.in_bytes, "out_msgs": s.out_msgs, "out_bytes": s.out_bytes,
            "link_in_msgs": s.link_in_msgs, "link_in_bytes": s.link_in_bytes, "link_out_msgs": s.link_out_msgs,
            "link_out_bytes": s.link_out_bytes, "slow_consumers": s.slow_consumers, "slow_clients": s.slow_clients,
            "slow_routes": s.slow_routes, "slow_gateways": s.slow_gateways, "slow_leafs": s.slow_leafs,
            "stale_clients": s.stale_clients, "stale_routes": s.stale_routes, "stale_gateways": s.stale_gateways,
            "stale_leafs": s.stale_leafs, "stalls": s.stalls, "too_deep": s.too_deep, "forgotten": s.forgotten,
            "subscriptions": subs, "active_accounts": active,
        }

    def connections(self, AccountHandle account=None):
        """Clients' open connections, all or an account's, as items with ConnNumbers: those that are there when this begins, each
        as it is when its turn comes."""
        return self.connections_of(KIND_CLIENT, KIND_CLIENT, account)

    def routes(self):
        """Likewise connections to other servers of the cluster."""
        return self.connections_of(KIND_ROUTER, KIND_ROUTER, None)

    def leafs(self):
        """Likewise connections to leaf nodes and hubs."""
        return self.connections_of(KIND_LEAF, KIND_HUB, None)

    def gateways(self):
        """Likewise connections to servers of other clusters."""
        return self.connections_of(KIND_GATEWAY, KIND_GATEWAY, None)

    cdef list connections_of(self, int first, int last, AccountHandle account):
        cdef Inbox box
        cdef Bytes cids
        cdef ListWalk conns
        cdef Account* only = account.a if account is not None else NULL
        cdef Conn* c
        cdef uint64_t at = 0, end
        cdef bint open
        cdef int rc = 0
        cdef list found = []
        memset(&cids, 0, sizeof(cids))
        with nogil:
            open = self.enter()
            conns = list_walk(&self.m.net.conns)
            c = conn_step(&conns) if open else NULL
            while c != NULL and rc == 0:
                rc = bytes_add(&cids, &c.base.cid, sizeof(uint64_t))
                c = conn_step(&conns)
            env_unlock(&self.m.engine.env)
        try:
            self.check(open)
            if rc < 0:
                raise MemoryError
            while at < cids.n:
                with nogil:
                    box_open(&box)
                    open = self.enter()
                    end = min(cids.n, at + CONNS_PIECE * sizeof(uint64_t)) if open else at
                    while at < end:
                        c = self.find((<uint64_t*>(cids.data + at))[0])
                        if (c != NULL and c.known and first <= c.base.kind <= last
                                and (only == NULL or c.base.account == only)):
                            snapshot_conn(c, &box)
                        at += sizeof(uint64_t)
                    env_unlock(&self.m.engine.env)
                self.check(open)
                found += box_take(&box)
        finally:
            bytes_free(&cids)
        return found

    def longest_hold(self):
        """For how many ns the engine lock was held at most since this was asked last: nobody was served meanwhile."""
        cdef int64_t longest = 0
        cdef bint open
        with nogil:
            open = self.enter()
            longest = self.m.lock.longest
            self.m.lock.longest = 0
            env_unlock(self.env)
        self.check(open)
        return longest

    def connection(self, uint64_t cid, bint leaf=False):
        """One open connection of a client as connections() has it, or of a leaf node or hub; None when there is none."""
        cdef Inbox box
        cdef Conn* c
        cdef bint open
        cdef int first = KIND_LEAF if leaf else KIND_CLIENT
        cdef int last = KIND_HUB if leaf else KIND_CLIENT
        with nogil:
            open = self.enter()
            box_open(&box)
            c = self.find(cid) if open else NULL
            if c != NULL and c.known and first <= c.base.kind <= last:
                snapshot_conn(c, &box)
            env_unlock(&self.m.engine.env)
        self.check(open)
        found = box_take(&box)
        return found[0] if found else None

    def subscriptions(self, AccountHandle account=None, *, bytes matching=None, bytes within=None, bytes overlapping=None,
                      bytes queue=None, bint clients=False, cids=None, uint64_t offset=0, most=None):
        """A search for subscriptions.

        Wanted are all, or an account's; those that would get a message on the subject `matching`, that the pattern `within`
        covers, or that overlap with `overlapping`: one of the three; of the queue group; of connections; of these
        connections. Of those that are found the search tells a page: `most` (all) from `offset` on.
        """
        cdef Subscriptions search = Subscriptions()
        cdef SubSearch* w = &search.w
        self.must_be_open()
        search.plane = self
        search.account = account
        search.texts = (matching, within, overlapping, queue)
        w.only = account.a if account is not None else NULL
        w.account = w.only.id if w.only != NULL else 0
        for fit, subject in ((FIT_MATCHING, matching), (FIT_WITHIN, within), (FIT_OVERLAPPING, overlapping)):
            if subject is not None:
                w.fit = fit
                w.subject = span_of(subject)
        w.grouped = queue is not None
        if w.grouped:
            w.queue = span_of(queue)
        w.clients = clients
        w.skip = offset
        w.most = UINT64_MAX if most is None else most
        if cids is not None:
            w.cids = &search.cids
            for cid in cids:
                if u64map_put(&search.cids, cid, 1) != 0:
                    raise MemoryError
        return search


cdef class Subscriptions:
    """A search for subscriptions, in pieces: gives lists of items (kind, cid, SubNumbers, (subject, queue, sid)).

    A subscription that is there from the first piece to the last is found once, or twice where another one of exactly its
    subject ends meanwhile. One that comes or goes meanwhile is found, perhaps.
    """

    cdef PlaneView plane
    cdef AccountHandle account      # what the search points into
    cdef tuple texts
    cdef U64Map cids
    cdef SubSearch w
    cdef bint done

    def __dealloc__(self):
        u64map_free(&self.cids)

    @property
    def total(self):
        """How many were found so far, on the page or not."""
        return self.w.total

    def __iter__(self):
        return self

    def __next__(self):
        cdef Inbox box
        cdef bint open
        if self.done:
            raise StopIteration
        self.w.box = &box
        with nogil:
            box_open(&box)
            open = self.plane.enter()
            self.done = not open or subs_find(&self.plane.m.engine, &self.w)
            env_unlock(self.plane.env)
        self.plane.check(open)
        return box_take(&box)

    def count(self):
        """How many there are; ends the search."""
        for _ in self:
            pass
        return self.w.total
