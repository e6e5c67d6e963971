# Proposals of a consumer that leads a Raft group. Its state changes when they are applied (apply.pxi). Until then the pending
# message is in none of the consumer's lists, so that nothing else happens to it.

cdef enum:
    PASSES_MOST = 10                    # times that the lead is handed over for a message, before no member is taken to have it


cdef int propose(Consumer* c, const ConsumerEntry* e) noexcept nogil:
    # 0 | -1 not proposed: the group takes no more for the moment, or the lead has to end, as without memory.
    cdef ConsumerGroup* g = c.group
    cdef int rc = -1
    g.entry.n = 0
    if not g.refused and g.propose != NULL and consumer_entry_put(e, &g.entry) == 0:
        rc = g.propose(g.ctx, span(g.entry.data, <uint32_t>g.entry.n))
    g.busy = rc == PROPOSE_LATER
    if rc != 0:
        g.refused = g.refused or not g.busy
        return -1
    g.proposed += 1
    return 0


cdef bint passes_on(Consumer* c, uint64_t seq) noexcept nogil:
    # Whether another member is to lead, and deliver this message, which is damaged here.
    cdef ConsumerGroup* g = c.group
    if g == NULL:
        return False
    if g.passed != seq:
        g.passed = seq
        g.passes = 0
    g.passes += 1
    if g.passes > PASSES_MOST:
        return False
    g.refused = True
    g.refuse(g.ctx)
    return True


cdef int propose_delivered(Consumer* c, uint64_t dseq, uint64_t sseq, uint64_t deliveries, int64_t sent) noexcept nogil:
    cdef ConsumerEntry e
    memset(&e, 0, sizeof(ConsumerEntry))
    e.op = OP_DELIVERED
    e.dseq = dseq
    e.sseq = sseq
    e.deliveries = deliveries
    e.sent = sent
    return propose(c, &e)


cdef int propose_acked(Consumer* c, uint64_t dseq, uint64_t sseq) noexcept nogil:
    cdef ConsumerEntry e
    memset(&e, 0, sizeof(ConsumerEntry))
    e.op = OP_ACKED
    e.dseq = dseq
    e.sseq = sseq
    return propose(c, &e)


cdef int propose_position(Consumer* c, ConsumerOp op, uint64_t next, Span reply) noexcept nogil:
    cdef ConsumerEntry e
    memset(&e, 0, sizeof(ConsumerEntry))
    e.op = <uint8_t>op
    e.sseq = next
    e.reply = reply
    return propose(c, &e)


# ---- pending messages ------------------------------------------------------------------------------------------------

cdef void await_group(Consumer* c, uint32_t i, Place place) noexcept nogil:
    pending_unplace(&c.pending, i)
    entry_at(&c.pending, i).place = place


cdef int propose_done(Consumer* c, uint32_t i) noexcept nogil:
    # The message is acked, or left the stream. nats-server ignores acks of deliveries below the floor. Returns as propose.
    cdef const Pending* e = entry_at(&c.pending, i)
    if e.place == AT_ACKED:
        return 0
    if propose_acked(c, max(e.dseq, c.floor_dseq + 1), e.sseq) < 0:
        return -1
    await_group(c, i, AT_ACKED)
    return 0


cdef void propose_acked_upto(Consumer* c, uint64_t sseq) noexcept nogil:
    # For ack policy all: nats-server takes only acks of pending messages.
    cdef uint32_t i = pending_find(&c.pending, sseq)
    if i == 0:
        i = c.pending.last
        while i and entry_at(&c.pending, i).sseq > sseq:
            i = entry_at(&c.pending, i).prev
    if i and propose_acked(c, max(entry_at(&c.pending, i).dseq, c.floor_dseq + 1), entry_at(&c.pending, i).sseq) == 0:
        c.upto.seq = entry_at(&c.pending, i).sseq


cdef void propose_deadline(Consumer* c, uint32_t i, int64_t deadline) noexcept nogil:
    # deadline: wall clock.
    cdef const Pending* e = entry_at(&c.pending, i)
    if propose_delivered(c, e.dseq, e.sseq, e.deliveries, deadline - wait_of(c, e.deliveries)) == 0:
        await_group(c, i, AT_PROPOSED)


cdef int propose_given_up(Consumer* c, uint32_t i) noexcept nogil:
    # Reports one delivery more than are allowed. Returns as propose.
    cdef const Pending* e = entry_at(&c.pending, i)
    cdef uint64_t deliveries = max(<uint64_t>e.deliveries, <uint64_t>c.cfg.max_deliver) + 1
    if propose_delivered(c, e.dseq, e.sseq, deliveries, wall_time(c, e.sent)) < 0:
        return -1
    await_group(c, i, AT_PROPOSED)
    return 0


cdef void proposed_gone(Consumer* c, uint64_t sseq) noexcept nogil:
    # A message that was delivered too often has left the stream.
    cdef uint64_t deliveries
    if u64map_get(&c.exhausted, sseq, &deliveries):
        propose_acked(c, c.floor_dseq, sseq)


cdef void start_tell(Consumer* c) noexcept nogil:
    # Proposes where a new consumer starts.
    if c.fresh and c.role == ROLE_LEADS:
        propose_position(c, OP_SKIP, c.next, span(NULL, 0))


# ---- requests ----------------------------------------------------------------------------------------------------------

cdef void request_ends(Consumer* c, Pull* q) noexcept nogil:
    if c.role == ROLE_LEADS and q.told:
        propose_position(c, OP_REQUEST_ENDS, 0, span(q.reply, q.n_reply))
    elif not q.told and c.group.untold:
        c.group.untold -= 1


cdef void requests_tell(Consumer* c) noexcept nogil:
    # Proposes the pull requests that were not served at once.
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef Pull* q = <Pull*>list_owner(list_step(&all), &(<Pull*>NULL).node)
    while q != NULL and c.group.untold:
        if not q.told:
            if propose_position(c, OP_REQUEST, 0, span(q.reply, q.n_reply)) < 0:
                return
            q.told = True
            c.group.untold -= 1
        q = <Pull*>list_owner(list_step(&all), &(<Pull*>NULL).node)


# ---- messages that wait for proposals --------------------------------------------------------------------------------

cdef Flight* flight_new(Consumer* c, FlightKind kind, Span dest, Span reply, Span header) noexcept nogil:
    # NULL: no memory
    cdef Flight* f = <Flight*>calloc(1, sizeof(Flight) + <size_t>dest.n + reply.n + header.n)
    if f == NULL:
        return NULL
    f.kind = kind
    f.n_dest = dest.n
    f.n_reply = reply.n
    f.n_header = header.n
    memcpy(f.texts, dest.p, dest.n)
    memcpy(f.texts + dest.n, reply.p, reply.n)
    memcpy(f.texts + dest.n + reply.n, header.p, header.n)
    return f


cdef void flight_add(Consumer* c, Flight* f) noexcept nogil:
    f.after = c.group.proposed
    list_push_back(&c.group.flights, &f.node)
    c.group.n += 1
    c.group.bytes += f.cost
    if f.pull != NULL:
        f.pull.flights += 1
    if f.after <= c.group.applied:
        task_post(&c.env.tasks, &c.group.task)


cdef Flight* flight_take(Consumer* c) noexcept nogil:
    # Takes the next message whose proposals are applied out of the list; NULL: there is none.
    cdef Flight* f = <Flight*>list_owner(list_first(&c.group.flights), &(<Flight*>NULL).node)
    if f == NULL or f.after > c.group.applied:
        return NULL
    list_remove(&f.node)
    c.group.n -= 1
    c.group.bytes -= f.cost
    return f


cdef void flight_free(Flight* f) noexcept nogil:
    cdef Pull* q = f.pull
    free(f)
    if q != NULL:
        q.flights -= 1
        if q.ended and q.flights == 0:
            free(q)


cdef int status_later(Consumer* c, Span dest, Span reply, Span header) noexcept nogil:
    # Sends a status behind all waiting messages. 0 | -1 no memory
    cdef Flight* f = flight_new(c, FLIGHT_STATUS, dest, reply, header)
    if f == NULL:
        return -1
    flight_add(c, f)
    return 0


cdef void answer_later(Consumer* c, Span reply) noexcept nogil:
    # Sends a double ack's answer once all present proposals are applied. If they failed, or without memory, there is no answer,
    # and the client asks again.
    cdef Flight* f = NULL
    if not c.group.refused and not c.group.busy:
        f = flight_new(c, FLIGHT_ANSWER, span(NULL, 0), reply, span(NULL, 0))
    if f != NULL:
        flight_add(c, f)


# ---- beginning and end of a lead ---------------------------------------------------------------------------------------

cdef void lead_forget(Consumer* c) noexcept nogil:
    # Proposals under way may still be applied, then as another member's entries.
    cdef ConsumerGroup* g = c.group
    cdef uint32_t i = c.pending.first
    cdef Pending* e
    task_cancel(&g.task)
    wait_cancel(&g.cold)
    g.propose = NULL
    g.proposed = 0
    g.applied = UINT64_MAX
    while g.n:
        flight_free(flight_take(c))
    g.applied = 0
    g.refused = False
    g.busy = False
    g.resetting = False
    g.deliveries = 0
    g.firsts = 0
    c.upto.seq = 0
    while i:
        e = entry_at(&c.pending, i)
        if e.place == AT_NONE or e.place >= AT_QUEUE:
            pending_schedule(&c.pending, i, deadline_of(&c.pending, e), False)
        i = e.next


cdef void group_free(Consumer* c) noexcept nogil:
    if c.group == NULL:
        return
    lead_forget(c)
    if c.group.gone != NULL:
        c.group.gone(c.group.gone_ctx)
    bytes_free(&c.group.entry)
    free(c.group)
    c.group = NULL
