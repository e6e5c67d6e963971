# Dead letters: where a consumer names a subject for them, a message that was delivered as often as it may be, or that its
# receiver terminated, is stored there, with the reason in its headers, before the consumer forgets it. It stays pending until
# the stream that stores it has said that it is durable; after a crash in between it is stored again under the same id, which
# is a duplicate.

cdef enum:
    DEAD_TOKEN = 12
    DEAD_REASON = 256                   # bytes of a reason that are kept


cdef struct DeadLetter:
    # Allocated with its texts.
    ListNode node
    uint64_t seq
    uint64_t dseq                       # as the ack said
    uint32_t deliveries
    bint terminated
    int64_t again                       # mono: when it is sent again; 0: it is in dead_new
    uint8_t token[DEAD_TOKEN]           # of the last sending: its answer comes to a subject that nobody can guess
    uint32_t n_reason
    uint32_t n_reply                    # of a double ack that is answered in the end
    uint8_t texts[1]


cdef inline DeadLetter* dead_at(const ListNode* n) noexcept nogil:
    return <DeadLetter*>list_owner(n, &(<DeadLetter*>NULL).node)


cdef inline DeadLetter* dead_of(const Consumer* c, uint64_t seq) noexcept nogil:
    cdef uint64_t found
    return <DeadLetter*>found if c.dead.by_seq.n and u64map_get(&c.dead.by_seq, seq, &found) else NULL


cdef bint dead_add(Consumer* c, uint32_t i, const AckTokens* t, Span reason, Span reply) noexcept nogil:
    # The message of this entry died: by a terminating ack, or (t NULL) of too many deliveries. False: no memory, it is as it was
    cdef Pending* e = entry_at(&c.pending, i)
    cdef DeadLetter* d = dead_of(c, e.sseq)
    if d != NULL:
        return True
    reason.n = min(reason.n, <uint32_t>DEAD_REASON)
    d = <DeadLetter*>calloc(1, sizeof(DeadLetter) + reason.n + reply.n)
    if d == NULL or u64map_put(&c.dead.by_seq, e.sseq, <uint64_t>d) < 0:
        free(d)
        return False
    d.seq = e.sseq
    d.dseq = t.dseq if t != NULL else e.dseq
    d.deliveries = e.deliveries
    d.terminated = t != NULL
    d.n_reason = reason.n
    d.n_reply = reply.n
    if reason.n:
        memcpy(d.texts, reason.p, reason.n)
    if reply.n:
        memcpy(d.texts + reason.n, reply.p, reply.n)
    list_push_back(&c.dead.unsent, &d.node)
    pending_unplace(&c.pending, i)
    ack_timer_set(c)
    task_post(&c.env.tasks, &c.dead.task)
    return True


cdef void dead_drop(Consumer* c, DeadLetter* d) noexcept nogil:
    u64map_del(&c.dead.by_seq, d.seq)
    list_remove(&d.node)
    free(d)


cdef void dead_free(Consumer* c) noexcept nogil:
    while not list_empty(&c.dead.unsent):
        dead_drop(c, dead_at(list_first(&c.dead.unsent)))
    while not list_empty(&c.dead.sent):
        dead_drop(c, dead_at(list_first(&c.dead.sent)))
    u64map_free(&c.dead.by_seq)


cdef void dead_stop(Consumer* c) noexcept nogil:
    # What is not stored by now dies again where its consumer is served next.
    task_cancel(&c.dead.task)
    timer_cancel(&c.env.timers, &c.timers[TIMER_DEAD])
    wait_cancel(&c.dead.cold)
    dead_free(c)


# ---- changes ---------------------------------------------------------------------------------------------------------

cdef void dead_cut(Consumer* c, const List* l, uint64_t seq) noexcept nogil:
    # The stream ends at this sequence: other messages get those behind it.
    cdef ListWalk all = list_walk(l)
    cdef DeadLetter* d = dead_at(list_step(&all))
    while d != NULL:
        if d.seq > seq:
            dead_drop(c, d)
        d = dead_at(list_step(&all))


cdef void dead_truncated(Consumer* c, uint64_t seq) noexcept nogil:
    dead_cut(c, &c.dead.unsent, seq)
    dead_cut(c, &c.dead.sent, seq)
