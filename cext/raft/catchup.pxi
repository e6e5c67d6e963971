# What a leader sends to a member that asked for what it lacks: its state if the log begins later, then the records, so many
# bytes of them at a time.

cdef CatchUp* catch_up_find(Leading* l, uint64_t peer) noexcept nogil:
    cdef uint32_t i
    for i in range(l.n_catch_ups):
        if l.catch_ups[i].id == peer:
            return &l.catch_ups[i]
    return NULL


cdef CatchUp* catch_up_make(Leading* l, uint64_t peer) noexcept nogil:
    # NULL: no memory, or too many.
    cdef CatchUp* c = catch_up_find(l, peer)
    cdef uint32_t i
    if c != NULL:
        return c
    for i in range(l.n_catch_ups):
        c = &l.catch_ups[i]
        if not c.on:
            c.id = peer
            return c
    if l.n_catch_ups == CATCH_UPS_MAX:
        return NULL
    c = <CatchUp*>realloc(l.catch_ups, (l.n_catch_ups + 1) * sizeof(CatchUp))
    if c == NULL:
        return NULL
    l.catch_ups = c
    c += l.n_catch_ups
    l.n_catch_ups += 1
    memset(c, 0, sizeof(CatchUp))
    c.id = peer
    return c


cdef void catch_ups_end(Leading* l) noexcept nogil:
    cdef uint32_t i
    for i in range(l.n_catch_ups):
        bytes_free(&l.catch_ups[i].sizes)
    free(l.catch_ups)
    l.catch_ups = NULL
    l.n_catch_ups = 0


cdef int catch_up_begin(Raft* r, const AppendResponse* m, Span reply) noexcept nogil:
    # A later request of a peer takes the place of its former one.
    cdef CatchUp* c
    cdef uint64_t start = m.index + 1
    cdef RaftAction a
    cdef int rc
    if m.index >= r.log.last and (m.index > r.log.last or m.term != r.log.last_term):
        return become_follower(r, 0)            # it has more than this one
    if start < r.log.first and r.log.snapshot_index == 0:
        return become_follower(r, 0)            # nobody can be caught up from here
    c = catch_up_make(&r.lead, m.peer)
    if c == NULL:
        return RAFT_OK                          # it asks again
    c.on = True
    c.returns = peer_find(&r.members, m.peer) == NULL
    c.asked = False
    c.next = start
    c.last = r.log.last
    c.confirmed = start - 1
    c.bytes = 0
    c.active = r.now
    c.sizes.n = 0
    memcpy(c.to, reply.p, reply.n)
    c.n_to = reply.n
    if start < r.log.first:
        memset(&a, 0, sizeof(RaftAction))
        a.act = ACT_STATE
        a.peer = c.id
        a.index = r.log.snapshot_index
        a.term = r.log.snapshot_term
        a.to = reply
        rc = act(r, &a)
        if rc < 0:
            return rc
        c.next = a.index + 1
        c.confirmed = a.index
    return catch_up_go_on(r, c)


cdef bint has_come_back(Raft* r, uint64_t peer) noexcept nogil:
    # Whether a peer that is no member asked for what it lacked, and was sent that.
    cdef CatchUp* c = catch_up_find(&r.lead, peer)
    return c != NULL and c.returns and c.next > c.last


cdef int catch_up_go_on(Raft* r, CatchUp* c) noexcept nogil:
    # Asks the driver for the next record, while the window has room.
    cdef RaftAction a
    if not c.on or c.asked:
        return RAFT_OK
    if c.next > c.last:
        c.on = False
        return RAFT_OK
    if c.bytes > CATCH_UP_WINDOW:
        return RAFT_OK
    memset(&a, 0, sizeof(RaftAction))
    a.act = ACT_RECORD
    a.peer = c.id
    a.index = c.next
    a.term = r.term
    a.to = span(c.to, c.n_to)
    c.asked = True
    return act(r, &a)


cdef int raft_sent(Raft* r, uint64_t peer, uint64_t index, uint32_t n) noexcept nogil:
    cdef CatchUp* c = catch_up_find(&r.lead, peer)
    if c == NULL or not c.on or index != c.next or not c.asked:
        return RAFT_OK                          # of a catch-up that another one has replaced
    c.asked = False
    if n == 0:                                  # the log begins later by now
        c.on = False
        return RAFT_OK
    if bytes_add(&c.sizes, &n, 4) < 0:
        c.on = False
        return RAFT_NO_MEMORY
    c.bytes += n
    c.next += 1
    c.active = r.now
    return catch_up_go_on(r, c)


cdef int catch_up_confirmed(Raft* r, uint64_t peer, uint64_t index) noexcept nogil:
    cdef CatchUp* c = catch_up_find(&r.lead, peer)
    cdef uint32_t n
    cdef size_t at = 0
    if c == NULL or not c.on or index <= c.confirmed:
        return RAFT_OK
    index = min(index, c.next - 1)
    while c.confirmed < index:
        memcpy(&n, c.sizes.data + at, 4)
        c.bytes -= n
        c.confirmed += 1
        at += 4
    memmove(c.sizes.data, c.sizes.data + at, c.sizes.n - at)
    c.sizes.n -= at
    c.active = r.now
    return catch_up_go_on(r, c)


cdef void catch_ups_look(Raft* r) noexcept nogil:
    # What a member does not confirm for two seconds is given up; it asks again.
    cdef uint32_t i
    for i in range(r.lead.n_catch_ups):
        if r.now - r.lead.catch_ups[i].active >= STALLED:
            r.lead.catch_ups[i].on = False
