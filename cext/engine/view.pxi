# What monitoring sees of the data plane. Each call takes the engine lock for a moment, without the GIL.


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
        cdef Account* a
        cdef SublistStats l
        cdef bint open
        with nogil:
            open = self.enter()
            s = e.stats
            n = self.m.net.n_conns
            a = e.first_account if open else NULL
            while a != NULL:
                sublist_stats(a.subs, &l)
                subs += l.subs
                active += a.members > 0
                a = a.next
            env_unlock(&e.env)
        self.check(open)
        return {
            "connections": n, "total_connections": s.total_connections, "in_msgs": s.in_msgs,
            "in_bytes": s.in_bytes, "out_msgs": s.out_msgs, "out_bytes": s.out_bytes,
            "slow_consumers": s.slow_consumers, "slow_clients": s.slow_clients, "stale": s.stale,
            "stalls": s.stalls, "too_deep": s.too_deep, "forgotten": s.forgotten,
            "subscriptions": subs, "active_accounts": active,
        }

    def connections(self, AccountHandle account=None):
        """Open connections, all or an account's, as items with ConnNumbers."""
        cdef Inbox box
        cdef Conn* c
        cdef Account* only = account.a if account is not None else NULL
        cdef bint open
        with nogil:
            open = self.enter()
            box_open(&box)
            c = self.m.net.conns if open else NULL
            while c != NULL:
                if c.known and not c.base.closing and (only == NULL or c.base.account == only):
                    snapshot_conn(c, &box)
                c = c.next
            env_unlock(&self.m.engine.env)
        self.check(open)
        return box_take(&box)

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

    def connection(self, uint64_t cid):
        """One open connection as connections() has it; None when there is none."""
        cdef Inbox box
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.enter()
            box_open(&box)
            c = self.find(cid) if open else NULL
            if c != NULL and c.known:
                snapshot_conn(c, &box)
            env_unlock(&self.m.engine.env)
        self.check(open)
        found = box_take(&box)
        return found[0] if found else None

    def subscriptions(self, AccountHandle account=None):
        """Every subscription, or an account's, as (kind, cid, (account's id, delivered, max, internal), texts): subject, queue
        and sid."""
        cdef Inbox box
        cdef SubWalk walk
        cdef Account* a
        cdef Account* only = account.a if account is not None else NULL
        cdef bint open
        with nogil:
            open = self.enter()
            box_open(&box)
            walk.box = &box
            a = self.m.engine.first_account if open else NULL
            while a != NULL:
                if only == NULL or a == only:
                    walk.account = a.id
                    sublist_each(a.subs, snapshot_sub, &walk)
                a = a.next
            env_unlock(&self.m.engine.env)
        self.check(open)
        return box_take(&box)
