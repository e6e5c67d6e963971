# The queue of what a group asks of its driver: a header for each action, then its subject and its bytes.

cdef struct Queued:
    RaftAction action           # its spans say only how long they are
    uint32_t n_to
    uint32_t n_body


cdef int act(Raft* r, const RaftAction* a) noexcept nogil:
    # Queues an action with copies of its spans. 0 | RAFT_NO_MEMORY, and nothing is queued.
    cdef Queued q
    cdef size_t n = (sizeof(Queued) + <size_t>a.to.n + a.body.n + 7) & ~<size_t>7
    if r.queue_at == r.queue.n:
        r.queue.n = r.queue_at = 0
    if bytes_reserve(&r.queue, n) < 0:
        return RAFT_NO_MEMORY
    q.action = a[0]
    q.n_to = a.to.n
    q.n_body = a.body.n
    memcpy(r.queue.data + r.queue.n, &q, sizeof(Queued))
    if a.to.n:
        memcpy(r.queue.data + r.queue.n + sizeof(Queued), a.to.p, a.to.n)
    if a.body.n:
        memcpy(r.queue.data + r.queue.n + sizeof(Queued) + a.to.n, a.body.p, a.body.n)
    r.queue.n += n
    return RAFT_OK


cdef bint raft_next_action(Raft* r, RaftAction* out) noexcept nogil:
    cdef Queued* q
    cdef const uint8_t* at
    if r.queue_at == r.queue.n:
        r.queue.n = r.queue_at = 0
        if r.queue.cap > QUEUE_KEPT:
            bytes_free(&r.queue)
        return False
    q = <Queued*>(r.queue.data + r.queue_at)
    at = r.queue.data + r.queue_at + sizeof(Queued)
    out[0] = q.action
    out.to = span(at, q.n_to)
    out.body = span(at + q.n_to, q.n_body)
    r.queue_at += (sizeof(Queued) + <size_t>q.n_to + q.n_body + 7) & ~<size_t>7
    return True


cdef int act_plain(Raft* r, RaftAct kind, uint64_t index, uint64_t term, uint64_t peer) noexcept nogil:
    cdef RaftAction a
    memset(&a, 0, sizeof(RaftAction))
    a.act = kind
    a.index = index
    a.term = term
    a.peer = peer
    return act(r, &a)


cdef int act_send(Raft* r, RaftWhat what, Span to, RaftReply reply, Span body) noexcept nogil:
    cdef RaftAction a
    memset(&a, 0, sizeof(RaftAction))
    a.act = ACT_SEND
    a.what = what
    a.reply = reply
    a.index = r.follow.behind.inbox if reply == REPLY_CATCH_UP else r.round if reply == REPLY_ROUND else 0
    a.to = to
    a.body = body
    return act(r, &a)


cdef int act_role(Raft* r) noexcept nogil:
    return act_plain(r, ACT_ROLE, 0, r.term, r.follow.leader)
