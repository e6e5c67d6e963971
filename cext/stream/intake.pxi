# What a mirror or a source takes in: deliveries of a consumer of its origin. They come as messages on a subject of their own, be
# the origin here, in another account or elsewhere. The control plane has made that consumer; it is told when the deliveries do
# not follow each other, or one is refused, and begins again from what is stored. What came is confirmed to the origin (flow
# control) when it is durable: so an origin that waits for acks keeps each message until it is on disk here.
#
# Of the members of a group only the leader takes in. What came is staged and proposed as what is published is; the confirmation
# is an entry behind it, which the leader sends when the group has agreed on it. What is taken in ends with the lead.

cdef enum:
    INTAKE_GAP = 1              # deliveries are missing
    INTAKE_REFUSED = 2          # a message is not stored
    LOOK_TURN = 2000            # messages that one turn looks at for what was sourced
    ASIDE_TURN = 500            # messages that one turn takes of what waited
    SEQUENCE_BITS = 61          # of an origin's sequences: files hold one bit more
    ORIGIN_NEAR = 10            # so many messages are left at most when a mirror answers direct gets of its origin
    CONFIRM_ROOM = 144          # of a confirmation's headers
    ACK_TOKENS = 12             # of an ack subject: those that are looked at
    # A consumer delivers, here or on another server; no client sends what its origin would.
    HEARS_INTAKE = 1 << KIND_JETSTREAM | 1 << KIND_ROUTER | 1 << KIND_GATEWAY | 1 << KIND_LEAF | 1 << KIND_HUB


cdef struct Intake:
    ListNode node
    Stream* s
    uint64_t id
    bint mirror
    void* sub
    Bytes consumer              # "stream.consumer" by their names
    Bytes head                  # of Nats-Stream-Source, up to the sequence
    Bytes tail                  # and behind it, up to the subject
    Transform** transforms      # of subjects: the first that matches
    uint32_t n_transforms
    uint64_t sseq               # of the last message, at the origin
    uint64_t dseq               # of its delivery
    uint64_t lag                # messages that the origin still had then
    int64_t last                # mono: when something came
    int broken                  # INTAKE_*: nothing is taken any more
    const char* why             # a message was not stored
    Fifo aside                  # what came while the stream could take nothing, in its order
    Task turn
    Bytes confirm               # where to say what was taken; empty: nobody waits
    bint bare                   # without numbers


cdef struct Delivery:
    Span stream
    Span consumer               # "stream.consumer"
    uint64_t deliveries
    uint64_t sseq
    uint64_t dseq
    uint64_t ts
    uint64_t pending


cdef bint read_delivery(Span reply, Delivery* d) noexcept nogil:
    # $JS.ACK.<stream>.<consumer>.<deliveries>.<sseq>.<dseq>.<ts>.<pending>, or with domain and account before the stream.
    cdef Span tokens[ACK_TOKENS]
    cdef uint32_t n = 0, i, start = 0
    for i in range(reply.n + 1):
        if i == reply.n or reply.p[i] == c'.':
            if n == ACK_TOKENS:
                break
            tokens[n] = span(reply.p + start, i - start)
            n += 1
            start = i + 1
    if n != 9 and n < 11:
        return False
    i = 3 if n == 9 else 5
    if not span_eq(tokens[0], span_c(b"$JS")) or not span_eq(tokens[1], span_c(b"ACK")):
        return False
    d.stream = tokens[i - 1]
    d.consumer = span(tokens[i - 1].p, tokens[i - 1].n + 1 + tokens[i].n)
    return (get_u64(tokens[i + 1], &d.deliveries) and get_u64(tokens[i + 2], &d.sseq) and get_u64(tokens[i + 3], &d.dseq)
            and get_u64(tokens[i + 4], &d.ts) and get_u64(tokens[i + 5], &d.pending))


cdef void intake_break(Intake* i, int why) noexcept nogil:
    cdef Event e
    if i.broken:
        return
    i.broken = why
    memset(&e, 0, sizeof(Event))
    e.kind = EV_INTAKE
    e.account = i.s.account
    e.text[0] = i.s.cfg.name
    e.num[0] = <int64_t>i.id
    i.s.env.out.event(i.s.env.out.ctx, &e)


# ---- headers -------------------------------------------------------------------------------------------------------

cdef inline bint is_dropped(Span line, bint mirror) noexcept nogil:
    # What was for the origin, and in a source what an origin of the origin has left.
    if line.n < 12 or memcmp(line.p, b"Nats-", 5) != 0:
        return False
    if starts_with(line, b"Nats-Expected-") or starts_with(line, b"Nats-Batch-") or starts_with(line, b"Nats-Request-Info:"):
        return True
    return not mirror and starts_with(line, b"Nats-Stream-Source:")


cdef bint has_dropped(Span block) noexcept nogil:
    cdef const uint8_t* p = line_end(block.p, block.p + block.n) + 2
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    while p < end:
        stop = line_end(p, end)
        if is_dropped(span(p, <uint32_t>(stop - p)), True):
            return True
        p = stop + 2
    return False


cdef void taken_header(const Intake* i, const Msg* m, uint64_t sseq, Draft* d) noexcept nogil:
    # As it is stored; nothing where no line is left.
    cdef const uint8_t* p = line_end(m.header.p, m.header.p + m.header.n) + 2
    cdef const uint8_t* end = m.header.p + m.header.n
    cdef const uint8_t* stop
    cdef bint any = not i.mirror
    draft_add(d, b"NATS/1.0\r\n", 10)
    while m.header.n and p < end:
        stop = line_end(p, end)
        if stop > p and not is_dropped(span(p, <uint32_t>(stop - p)), i.mirror):
            draft_add(d, p, stop - p)
            draft_add(d, b"\r\n", 2)
            any = True
        p = stop + 2
    if not i.mirror:
        draft_text(d, b"Nats-Stream-Source: ")
        draft_add(d, i.head.data, i.head.n)
        draft_number(d, sseq)
        draft_add(d, i.tail.data, i.tail.n)
        draft_add(d, m.subject.p, m.subject.n)
        draft_add(d, b"\r\n", 2)
    draft_add(d, b"\r\n", 2)
    if not any:
        d.n = 0


# ---- storing -------------------------------------------------------------------------------------------------------

cdef inline bint intake_refused(Intake* i, const char* why) noexcept nogil:
    i.why = why
    return False


cdef bint intake_judge(Intake* i, const Msg* m, const Delivery* t, Span subject) noexcept nogil:
    # m is as it is stored, but for a counter; the subject is the origin's. False: it is refused, `why` says it.
    cdef Stream* s = i.s
    cdef PubHeaders h
    cdef Msg sum
    cdef CounterParts parts
    cdef uint64_t seq
    cdef bint ok
    memset(&h, 0, sizeof(PubHeaders))
    if m.header.n:
        read_headers(&h, m.header)
    if s.failed or s.halted:
        return intake_refused(i, b"writing to disk failed")
    if s.cfg.flags & STREAM_SEALED:
        return intake_refused(i, b"the stream is sealed")
    if not i.mirror and h.msg_id.n and s.cfg.duplicate_window > 0:
        if dedupe_find(&s.dedupe, h.msg_id, &seq) or (s.staging != NULL and overlay_id(s.staging, h.msg_id, &seq)):
            return True
    if i.mirror or not s.cfg.flags & STREAM_ALLOW_MSG_COUNTER:
        return intake_store(i, m, t, &h)
    sum = m[0]
    memset(&parts, 0, sizeof(CounterParts))
    i.why = b"it is no counter's, or its sum is too long"
    ok = (counter_add(s, &sum, span(i.head.data, <uint32_t>i.head.n - 1), subject, h.incr, &parts)
          and intake_store(i, &sum, t, &h))
    counter_parts_free(&parts)
    return ok


cdef int intake_stage(Intake* i, const Change* c, uint64_t last) noexcept nogil:
    # Behind the last one that is staged. ST_OK, or an error and nothing is
    cdef Stream* s = i.s
    cdef StreamEntry e
    cdef int rc = store_fits(c.subject, c.header, c.data)
    if rc == ST_OK and s.member != NULL and c.seq > last + 1:
        rc = run_stage(s, last + 1, c.seq - 1)
    if rc != ST_OK:
        return rc
    memset(&e, 0, sizeof(StreamEntry))
    e.change = c[0]
    e.sourced = i.mirror
    return entry_stage(s, &e)


cdef bint intake_store(Intake* i, const Msg* m, const Delivery* t, const PubHeaders* h) noexcept nogil:
    cdef Stream* s = i.s
    cdef StoreState state
    cdef Change c
    cdef int64_t ttl
    cdef uint64_t size
    if server_full(s):
        return intake_refused(i, b"the server's limit is reached")
    if check_size(s, m):
        return intake_refused(i, b"it is too large, or its headers are")
    state_staged(s, &state)
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_MESSAGE
    c.seq = t.sseq if i.mirror else state.last_seq + 1
    c.ts = <int64_t>t.ts if i.mirror else s.env.now
    c.subject = m.subject
    c.header = m.header
    c.data = m.data
    c.id = h.msg_id
    if h.rollup.n and s.cfg.flags & STREAM_ALLOW_ROLLUP_HDRS and not s.cfg.flags & STREAM_DENY_PURGE:
        c.rollup = rollup_of(h.rollup)
    size = store_size_of(s.store, m.subject, m.header, m.data)
    if s.cfg.retention == RETENTION_INTEREST and not watched(&s.watchers, m.subject):
        c.kind = CHANGE_SKIP
    elif over(s.place.account_usage, size if s.staging == NULL else staged_more(s.staging, size)):
        return intake_refused(i, b"the account's limit is reached")
    elif s.cfg.flags & STREAM_ALLOW_MSG_TTL and h.ttl.n and not get_ttl(h.ttl, &ttl):
        return intake_refused(i, b"its Nats-TTL is none")
    elif s.cfg.discard == DISCARD_NEW and check_stream_room(s, m, h, &state):
        return intake_refused(i, b"the stream is full")
    if s.staging != NULL:
        return intake_stage(i, &c, state.last_seq) == ST_OK or intake_refused(i, b"it cannot be proposed")
    publish_change(s, m, &c)
    return (s.failed == 0 and s.entered == c.seq) or intake_refused(i, b"the store does not take it")


cdef void intake_message(Intake* i, const Msg* m, const Delivery* t) noexcept nogil:
    cdef Stream* s = i.s
    cdef Msg stored = m[0]
    cdef uint64_t sseq = i.sseq, dseq = i.dseq
    cdef Draft header, subject, renamed
    cdef uint32_t k
    cdef bint ok
    draft_open(&header)
    draft_open(&subject)
    draft_open(&renamed)
    stored.reply = span(NULL, 0)
    if not i.mirror or (m.header.n and (has_status(m.header) or has_dropped(m.header))):
        taken_header(i, m, t.sseq, &header)
        stored.header = draft_span(&header)
    for k in range(i.n_transforms):
        if i.transforms[k] != NULL and transform_match(i.transforms[k], s.env, m.subject, &subject):
            stored.subject = draft_span(&subject)
            break
    i.why = b"its subject or its headers become too long"
    came_to(s, stored.subject)
    ok = not (header.failed or subject.failed) and stream_rename(s, &stored.subject, &renamed) == 0
    i.sseq = t.sseq
    i.dseq = t.dseq
    i.lag = t.pending - 1 if t.pending else 0
    if not ok or not intake_judge(i, &stored, t, m.subject):
        i.sseq = sseq
        i.dseq = dseq
        intake_break(i, INTAKE_REFUSED)
    came_to(s, span(NULL, 0))
    draft_free(&header)
    draft_free(&subject)
    draft_free(&renamed)


cdef void intake_delivery(Intake* i, const Msg* m) noexcept nogil:
    cdef Delivery t
    if not read_delivery(m.reply, &t) or t.deliveries > 1 or t.sseq >> SEQUENCE_BITS or t.ts > INT64_MAX:
        return
    if not span_eq(t.consumer, span(i.consumer.data, <uint32_t>i.consumer.n)):
        return                                  # of an older consumer, or of one that somebody has deliver here
    if t.sseq <= i.sseq:
        if t.dseq == i.dseq + 1:
            i.dseq += 1
    elif t.dseq == i.dseq + 1 or (i.mirror and t.sseq == i.sseq + 1):
        intake_message(i, m, &t)
        if i.mirror and not i.broken and t.pending < ORIGIN_NEAR:
            serve_origin(i.s)
    elif t.dseq > i.dseq or i.mirror:
        intake_break(i, INTAKE_GAP)


# ---- heartbeats and flow control -----------------------------------------------------------------------------------

cdef void intake_confirm(Intake* i, Span reply, bint bare) noexcept nogil:
    # The sender chooses the subject: it is one of flow control, or nothing is sent.
    if not starts_with(reply, b"$JS.FC.") or not subject_is_literal(reply):
        return
    i.confirm.n = 0
    if add_span(&i.confirm, reply) == 0:
        i.bare = bare
        task_post(&i.s.env.tasks, &i.turn)


cdef void intake_control(Intake* i, const Msg* m) noexcept nogil:
    cdef uint64_t dseq
    cdef Span stalled
    if m.reply.n:
        intake_confirm(i, m.reply, False)
        return
    if get_u64(trimmed(header_get(m.header, b"Nats-Last-Consumer")), &dseq) and dseq and dseq != i.dseq:
        intake_break(i, INTAKE_GAP)
        return
    stalled = trimmed(header_get(m.header, b"Nats-Consumer-Stalled"))
    if stalled.n:
        intake_confirm(i, stalled, True)


cdef void intake_confirmed(Intake* i) noexcept nogil:
    # What was taken is said when it is durable.
    cdef Stream* s = i.s
    cdef Span reply = span(i.confirm.data, <uint32_t>i.confirm.n)
    cdef const char* status = b" 100 FlowControl Request" if s.member != NULL else b""
    cdef char text[CONFIRM_ROOM]
    cdef int n = 0
    if i.confirm.n == 0 or s.store == NULL:
        return
    if not i.bare:
        n = snprintf(text, sizeof(text), b"NATS/1.0%s\r\nNats-Last-Consumer: %llu\r\nNats-Last-Stream: %llu\r\n\r\n", status,
                     <unsigned long long>i.dseq, <unsigned long long>i.sseq)
    elif s.member != NULL:
        n = snprintf(text, sizeof(text), b"NATS/1.0%s\r\n\r\n", status)
    if s.member == NULL:
        stream_answer_with(s, store_ticket(s.store), reply, span(<uint8_t*>text, <uint32_t>n))
    elif confirmation_propose(s, reply, span(<uint8_t*>text, <uint32_t>n)) != ST_OK:
        intake_break(i, INTAKE_GAP)
    i.confirm.n = 0


# ---- what waits ----------------------------------------------------------------------------------------------------

cdef bint intake_waits(Intake* i) noexcept nogil:
    # Whether the stream can take nothing at the moment.
    if i.s.lent or i.s.dedupe.reading:
        return True
    if i.mirror or not ids_unread(i.s):
        return False
    dedupe_piece(i.s)
    return ids_unread(i.s)


cdef void intake_take(Intake* i, const Msg* m) noexcept nogil:
    if is_control(m.header, m.data):
        intake_control(i, m)
    else:
        intake_delivery(i, m)


cdef void intake_turn(Task* t) noexcept nogil:
    cdef Intake* i = <Intake*>t.owner
    cdef Fifo* q = &i.aside
    cdef uint8_t* p
    cdef Msg m
    cdef int k
    intake_confirmed(i)
    for k in range(ASIDE_TURN):
        if q.head >= q.b.n or i.broken or intake_waits(i):
            break
        p = publish_taken(q)
        if p == NULL:
            intake_break(i, INTAKE_GAP)
            break
        publish_read(i.s, p, &m)
        intake_take(i, &m)
        free(p)
    if i.broken:
        fifo_free(q)
    elif q.head < q.b.n:
        task_post(&i.s.env.tasks, t)


cdef int intake_inbound(void* target, const Msg* m) noexcept nogil:
    cdef Intake* i = <Intake*>target
    if i.broken:
        return 1
    i.last = i.s.env.mono
    if i.aside.b.n == 0 and not intake_waits(i):
        intake_take(i, m)
    elif i.aside.b.n - i.aside.head > WAITING_MAX or publish_keep(&i.aside, m) < 0:
        intake_break(i, INTAKE_GAP)
    else:
        task_post(&i.s.env.tasks, &i.turn)
    return 1


# ---- life ----------------------------------------------------------------------------------------------------------

cdef void intake_free(Intake* i) noexcept nogil:
    cdef uint32_t k
    if i.sub != NULL:
        i.s.env.out.unsubscribe(i.s.env.out.ctx, i.sub)
    task_cancel(&i.turn)
    for k in range(i.n_transforms):
        transform_free(i.transforms[k])
    free(i.transforms)
    fifo_free(&i.aside)
    bytes_free(&i.consumer)
    bytes_free(&i.head)
    bytes_free(&i.tail)
    bytes_free(&i.confirm)
    free(i)


cdef inline Intake* intake_at(const ListNode* n) noexcept nogil:
    return <Intake*>list_owner(n, &(<Intake*>NULL).node)


cdef Intake* intake_find(Stream* s, uint64_t id) noexcept nogil:
    cdef ListWalk all = list_walk(&s.intakes)
    cdef Intake* i = intake_at(list_step(&all))
    while i != NULL and i.id != id:
        i = intake_at(list_step(&all))
    return i


cdef void intake_close(Stream* s, uint64_t id) noexcept nogil:
    cdef Intake* i = intake_find(s, id)
    if i != NULL:
        list_remove(&i.node)
        intake_free(i)


cdef void intakes_free(Stream* s) noexcept nogil:
    cdef Intake* i = intake_at(list_pop(&s.intakes))
    while i != NULL:
        intake_free(i)
        i = intake_at(list_pop(&s.intakes))


cdef void intakes_end(Stream* s) noexcept nogil:
    # Of a member that leads no more. What was staged may be lost: who leads learns anew how far the stream is.
    cdef ListWalk all = list_walk(&s.intakes)
    cdef Intake* i = intake_at(list_step(&all))
    while i != NULL:
        intake_break(i, INTAKE_GAP)
        i = intake_at(list_step(&all))
    intakes_free(s)


cdef int mirror_skip(Stream* s, uint64_t seq) noexcept nogil:
    # What the origin has not, up to this sequence, this mirror will not have either.
    cdef Change c
    cdef StoreState state
    state_staged(s, &state)
    if seq <= state.last_seq:
        return ST_OK
    if s.member != NULL:
        return run_stage(s, state.last_seq + 1, seq)
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_SKIP
    c.seq = seq
    c.ts = s.env.now if state.msgs else state.last_ts
    return stream_append(s, &c)


cdef int intake_open(Stream* s, const IntakeConfig* cfg) noexcept nogil:
    cdef Intake* i
    cdef StoreState state
    cdef uint32_t k
    cdef bint whole
    if s.failed or s.halted or not s.active:
        return ST_CLOSED
    intake_close(s, cfg.id)
    if cfg.mirror and mirror_skip(s, cfg.origin) != ST_OK:
        return ST_IO
    i = <Intake*>calloc(1, sizeof(Intake))
    if i == NULL:
        return ST_NO_MEMORY
    i.s = s
    i.id = cfg.id
    i.mirror = cfg.mirror
    i.turn.fn = intake_turn
    i.turn.owner = i
    i.last = s.env.mono
    i.sseq = cfg.origin
    if cfg.mirror:
        state_staged(s, &state)
        i.sseq = max(cfg.origin, state.last_seq)
    whole = (add_span(&i.consumer, cfg.consumer) == 0 and add_span(&i.head, cfg.head) == 0
             and add_span(&i.tail, cfg.tail) == 0)
    i.transforms = <Transform**>calloc(cfg.n_transforms + 1, sizeof(Transform*))
    if i.transforms != NULL:
        i.n_transforms = cfg.n_transforms
        for k in range(cfg.n_transforms):
            if cfg.transforms[k] != NULL:
                i.transforms[k] = transform_copy(cfg.transforms[k])
                whole = whole and i.transforms[k] != NULL
    list_push_front(&s.intakes, &i.node)
    if whole and i.transforms != NULL:
        i.sub = s.env.out.subscribe(s.env.out.ctx, s.account, cfg.deliver, HEARS_INTAKE | LISTENS | IMPORTS, intake_inbound, i)
    if i.sub == NULL:
        intake_close(s, cfg.id)
        return ST_NO_MEMORY
    return ST_OK


# ---- direct gets of the origin -------------------------------------------------------------------------------------

cdef void serve_origin(Stream* s) noexcept nogil:
    # Once a mirror has caught up, where its configuration says so.
    if s.cfg.mirror_direct.n and s.origin_direct[0] == NULL:
        subscribe_direct(s, s.cfg.mirror_direct, s.origin_direct)


# ---- where a source goes on ----------------------------------------------------------------------------------------

cdef struct SourceLook:
    # The newest message of each source, looked for from the last one back.
    uint64_t before             # messages from here on were looked at
    uint64_t behind             # and those up to here are not
    uint32_t n
    uint32_t left
    Span* heads                 # as in IntakeConfig
    Span* tails
    uint64_t* found             # the origin's sequences; 0: none


cdef uint64_t sourced_from(Span value, Span head, Span tail) noexcept nogil:
    # The origin's sequence that Nats-Stream-Source tells of this source; 0: it is another's. What servers before 2.10 wrote
    # names nothing but the stream: "<name><sequence>", or the ack subject.
    cdef Delivery d
    cdef Span name = span(head.p, head.n - 1)
    cdef uint32_t n = 0
    cdef uint64_t seq
    if starts_with(value, b"$JS.ACK."):
        return d.sseq if read_delivery(value, &d) and span_eq(d.stream, name) and d.sseq >> SEQUENCE_BITS == 0 else 0
    if value.n <= head.n or memcmp(value.p, head.p, head.n) != 0:
        return 0
    value = span(value.p + head.n, value.n - head.n)
    while n < value.n and value.p[n] != c' ':
        n += 1
    if not get_u64(span(value.p, n), &seq) or seq >> SEQUENCE_BITS:
        return 0
    if n == value.n or (value.n - n >= tail.n and memcmp(value.p + n, tail.p, tail.n) == 0):
        return seq
    return 0


cdef int source_look(Stream* s, SourceLook* k, Wait* w) noexcept nogil:
    # A piece: 1 ask again, ST_WAIT likewise when w says so, ST_OK it is done, or another error.
    cdef Record r
    cdef Span value
    cdef uint32_t i, j
    cdef uint64_t seq
    cdef int rc
    for j in range(LOOK_TURN):
        if k.before <= k.behind + 1 or k.left == 0:
            return ST_OK
        rc = store_load_warm(s.store, k.before - 1, &r, w)
        if rc == ST_WAIT or rc == ST_IO:
            return rc
        k.before -= 1
        value = header_get(r.header, b"Nats-Stream-Source") if rc == ST_OK and r.header.n else span(NULL, 0)
        for i in range(k.n if value.n else <uint32_t>0):
            seq = sourced_from(value, k.heads[i], k.tails[i]) if k.found[i] == 0 else 0
            if seq:
                k.found[i] = seq
                k.left -= 1
    return 1
