# Messages, statuses and answers of a consumer that leads a Raft group: they go out in order, each when what was proposed before
# is applied. Of a message nothing is kept but where it is; it is read again then.

cdef enum:
    FLIGHTS_MOST = 4096                 # messages on their way
    FLIGHTS_BYTES = 32 << 20            # of theirs


cdef Pull* request_for(Consumer* c, int64_t cost) noexcept nogil:
    # The request whose turn it is, which somebody listens for; NULL: there is none.
    cdef Pull* q = request_next(c, cost)
    while q != NULL and not heard(c, q):
        pull_remove(c, q)
        q = request_next(c, cost)
    return q


cdef bint depart(Consumer* c, const Record* r, uint32_t deliveries, uint64_t pending) noexcept nogil:
    # Whether the delivery of this message was proposed.
    cdef ConsumerGroup* g = c.group
    cdef uint64_t dseq = c.dseq + g.deliveries
    cdef uint8_t reply[ACK_SUBJECT_ROOM]
    cdef Msg m
    cdef Bytes header
    cdef Pull* q = NULL
    cdef Flight* f
    cdef int64_t cost
    if g.n >= FLIGHTS_MOST or g.bytes >= FLIGHTS_BYTES:
        return False
    if message_make(c, r, dseq, deliveries, pending, reply, &header, &m) < 0:
        return False
    cost = message_cost(&m)
    bytes_free(&header)
    if c.cfg.rate_limit_bps and rate_waits(c, cost):
        return False
    if not is_push(c):
        q = request_for(c, cost)
        if q == NULL:
            return False
    f = flight_new(c, FLIGHT_MESSAGE, span(NULL, 0), span(NULL, 0), span(NULL, 0))
    if f == NULL or propose_delivered(c, dseq, r.seq, deliveries, c.env.now) < 0:
        free(f)
        return False
    g.deliveries += 1
    f.sseq = r.seq
    f.dseq = dseq
    f.deliveries = deliveries
    f.pending = pending
    f.cost = cost
    f.pull = q
    flight_add(c, f)
    if q != NULL:
        pull_served(c, q, cost)
    c.last_delivery = c.env.mono
    c.last_activity = c.env.mono
    return True


cdef int depart_new(Consumer* c, const Record* r) noexcept nogil:
    cdef uint64_t seq = r.seq
    cdef int64_t ts = r.ts
    cdef bint listed = c.skip.seqs != NULL
    if not depart(c, r, 1, <uint64_t>max(<int64_t>0, c.num_pending - 1)):
        return STEP_WAIT
    step_over(c, seq)
    if c.replay.on:
        c.replay.ts = ts
        c.replay.on = seq < c.replay.until
    if c.cfg.ack_policy != ACK_POLICY_NONE:
        c.group.firsts += 1
    if listed and c.skip.seqs == NULL:
        propose_position(c, OP_SKIP, c.next, span(NULL, 0))     # the next leader has no such list
    return STEP_ON


cdef int depart_again(Consumer* c, const Record* r, uint32_t deliveries) noexcept nogil:
    cdef uint64_t seq = r.seq
    if not depart(c, r, deliveries, <uint64_t>max(<int64_t>0, c.num_pending)):
        return STEP_WAIT
    await_group(c, pending_find(&c.pending, seq), AT_PROPOSED)
    return STEP_ON


# ---- arrival -----------------------------------------------------------------------------------------------------------

cdef void send_flight(Consumer* c, Flight* f, const Record* r) noexcept nogil:
    # A request that nobody listens for any more loses it: the message comes again at once.
    cdef uint8_t reply[ACK_SUBJECT_ROOM]
    cdef Msg m
    cdef Bytes header
    cdef uint32_t i
    cdef int taken = 1
    if message_make(c, r, f.dseq, f.deliveries, f.pending, reply, &header, &m) < 0:
        return
    c.s.lent = True
    if f.pull == NULL:
        push_send(c, &m, f.cost)
    else:
        taken = request_send(c, f.pull, &m)
    c.s.lent = False
    bytes_free(&header)
    if taken <= 0:
        i = pending_find(&c.pending, f.sseq)
        if i:
            requeue(c, i)
    elif f.pull != NULL and not f.pull.ended:
        pull_fills(c, f.pull)


cdef bint flight_lands(Consumer* c, Flight* f) noexcept nogil:
    # False: its message is not there yet.
    cdef Record r
    cdef uint32_t i
    cdef int rc = store_load_warm(c.s.store, f.sseq, &r, &c.group.cold)
    if rc == ST_OK:
        send_flight(c, f, &r)
    elif rc == ST_DAMAGED and c.cfg.ack_policy != ACK_POLICY_NONE and passes_on(c, f.sseq):
        return True                     # it is pending, and comes again
    elif rc == ST_NOT_FOUND or rc == ST_DAMAGED:
        i = pending_find(&c.pending, f.sseq)
        if i and f.sseq > c.s.shown:    # the stream went back here, and will have it again
            requeue(c, i)
        elif i:
            pending_gone(c, i)
    if rc != ST_WAIT and c.cfg.ack_policy == ACK_POLICY_NONE and not stream_keeps_all(c.s):
        propose_acked(c, f.dseq, f.sseq)        # no sooner: the message leaves the stream
    return rc != ST_WAIT


cdef void flights_run(Task* t) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef Flight* f
    cdef uint32_t left = DELIVER_TURN
    while left:
        left -= 1
        f = flight_take(c)
        if f == NULL:
            break
        if f.kind == FLIGHT_ANSWER:
            stream_answer(c.s, 0, span(f.texts, f.n_reply))
        elif f.kind == FLIGHT_STATUS:
            send_status_now(c, span(f.texts, f.n_dest), span(f.texts + f.n_dest, f.n_reply),
                            span(f.texts + f.n_dest + f.n_reply, f.n_header))
        elif not flight_lands(c, f):
            list_push_front(&c.group.flights, &f.node)
            c.group.n += 1
            c.group.bytes += f.cost
            return
        flight_free(f)
    if left == 0:
        task_post(&c.env.tasks, t)
    wake_delivery(c)
