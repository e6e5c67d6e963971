# What the store tells of durability: what is on disk is answered and shown; when writing fails, all that waits is refused.

cdef void republish_durable(Stream* s) noexcept nogil:
    # A piece of what may be seen, and the acks behind it. The rest, and what comes of it, has turns of its own.
    cdef uint64_t sent = republish_upto(s, safe_seq(s), REPUBLISH_PIECE)
    cdef uint64_t seq = safe_seq(s)
    if sent < seq:
        task_post(&s.env.tasks, &s.republish)
    release_acks(s, min(seq, sent), 0)


cdef void republish_turn(Task* t) noexcept nogil:
    republish_durable(<Stream*>t.owner)


cdef void publishes_refuse(Stream* s) noexcept nogil:
    # Those that wait, of a stream that failed.
    cdef uint8_t* p
    cdef Msg m
    if not s.dedupe.reading:
        return
    roll_up_finish(s)
    while publishes_wait(s):
        pattern_free(s)
        p = publish_first(s)
        if p != NULL:
            publish_read(s, p, &m)
            publish_down(s, &m)
            free(p)
    wait_cancel(&s.dedupe.cold)
    s.dedupe.reading = False


cdef void stream_fail(Stream* s, int error) noexcept nogil:
    # What is not durable is refused, also what was staged behind the group that failed. The control plane opens the
    # stream again from its files. Of what a member has proposed nobody knows what becomes: its publishers hear nothing.
    cdef char reason[REASON_ROOM]
    cdef Event e
    if s.failed:
        return
    s.failed = error
    memset(&e, 0, sizeof(Event))
    e.kind = EV_STORE_ERROR
    e.account = s.account
    e.text[0] = s.cfg.name
    e.num[0] = error
    s.env.out.event(s.env.out.ctx, &e)
    republish_upto(s, store_durable_seq(s.store), UINT64_MAX)
    release_acks(s, store_durable_seq(s.store), 0)
    republish_drop(s)
    if s.member == NULL:
        release_acks(s, UINT64_MAX, error)
    release_answers(s, UINT64_MAX, error)
    publishes_refuse(s)         # they hear the same
    if s.member == NULL:
        stream_reason(s, reason, sizeof(reason))
        staged_drop(s, reason)
    member_ends(s)
    s.env.system.broadcast(s.env.system.ctx, &s.durable)


cdef void on_durable(void* ctx, uint64_t seq, uint64_t ticket, int error) noexcept nogil:
    cdef Stream* s = <Stream*>ctx
    if error:
        stream_fail(s, error)
        return
    republish_durable(s)
    if s.synced:
        show_most(s, seq)
    release_answers(s, ticket, 0)
    s.env.system.broadcast(s.env.system.ctx, &s.durable)
