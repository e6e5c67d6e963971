# Dead letters are sent to where they are stored, and their consumer forgets them when they are.

cdef enum:
    DEAD_TURN = 64                      # letters a turn
    DEAD_AGAIN = 10                     # s until one is sent again that is not stored by then
    DEAD_SAID = 60                      # s between two lines in the log
    DEAD_PREFIX_SIZE = 9


cdef const char* DEAD_PREFIX = b"$JS.DEAD."


cdef void dead_done(Consumer* c, DeadLetter* d) noexcept nogil:
    # It is stored, or left its stream: the consumer is done with it.
    cdef uint32_t i = pending_find(&c.pending, d.seq)
    cdef Span reason = span(d.texts, d.n_reason)
    cdef uint64_t seq = d.seq
    if i:
        if c.group != NULL:
            propose_done(c, i)
        else:
            take_out(c, i)
            c.floor_ts = c.env.now
            log_acked(c, seq)
            let_go(c, seq)
        if d.terminated:
            advise(c, ADV_TERM, seq, d.dseq, d.deliveries, 0, reason)
    if d.n_reply:
        answer_ack(c, seq, span(d.texts + d.n_reason, d.n_reply))
    dead_drop(c, d)
    wake_delivery(c)


# ---- the letter ------------------------------------------------------------------------------------------------------

cdef bint is_kept_header(Span line) noexcept nogil:
    # What the headers of a letter keep of the message's: nothing that asks something of a stream, nor of an older death.
    return (not (line.n >= 5 and memcmp(line.p, b"Nats-", 5) == 0)
            and not (line.n >= 12 and memcmp(line.p, b"Dead-Letter-", 12) == 0))


cdef int add_kept_headers(Bytes* b, Span header) noexcept nogil:
    cdef const uint8_t* p = header.p
    cdef const uint8_t* end = header.p + header.n
    cdef const uint8_t* stop
    cdef bint first = True
    while p < end:
        stop = <const uint8_t*>memchr(p, c'\n', end - p)
        stop = end if stop == NULL else stop + 1
        if not first and stop - p > 2 and is_kept_header(span(p, <uint32_t>(stop - p))):
            if bytes_add(b, p, stop - p) < 0:
                return -1
        first = False
        p = stop
    return 0


cdef int add_line(Bytes* b, const char* name, Span value) noexcept nogil:
    # A value of one line, whatever it has.
    cdef uint32_t i
    cdef uint8_t ch
    if add_text(b, name) < 0:
        return -1
    for i in range(value.n):
        ch = value.p[i] if value.p[i] >= c' ' else c' '
        if bytes_add(b, &ch, 1) < 0:
            return -1
    return add_text(b, b"\r\n")


cdef int add_number(Bytes* b, const char* name, uint64_t value) noexcept nogil:
    if add_text(b, name) < 0 or add_u64(b, value) < 0:
        return -1
    return add_text(b, b"\r\n")


cdef int dead_header(Consumer* c, const DeadLetter* d, const Record* r, Bytes* b) noexcept nogil:
    # 0 | -1 no memory
    if (add_text(b, b"NATS/1.0\r\n") < 0 or add_kept_headers(b, r.header) < 0
            or add_text(b, b"Nats-Msg-Id: dead.") < 0 or add_span(b, c.s.cfg.name) < 0 or add_text(b, b".") < 0
            or add_span(b, c.cfg.name) < 0 or add_text(b, b".") < 0 or add_u64(b, d.seq) < 0
            or add_number(b, b".", <uint64_t>r.ts) < 0
            or add_line(b, b"Dead-Letter-Reason: ", span_c(b"terminated" if d.terminated else b"max_deliver")) < 0):
        return -1
    if d.n_reason and add_line(b, b"Dead-Letter-Detail: ", span(d.texts, d.n_reason)) < 0:
        return -1
    if (add_line(b, b"Dead-Letter-Stream: ", c.s.cfg.name) < 0 or add_line(b, b"Dead-Letter-Consumer: ", c.cfg.name) < 0
            or add_line(b, b"Dead-Letter-Subject: ", r.subject) < 0 or add_number(b, b"Dead-Letter-Sequence: ", d.seq) < 0
            or add_number(b, b"Dead-Letter-Deliveries: ", d.deliveries) < 0
            or add_number(b, b"Dead-Letter-Time: ", <uint64_t>r.ts) < 0):
        return -1
    return add_text(b, b"\r\n")


cdef int dead_reply(Consumer* c, DeadLetter* d, Bytes* b) noexcept nogil:
    # Where the answer comes to: dead_inbound listens. 0 | -1 no memory
    env_token(c.env, d.token, DEAD_TOKEN)
    if (add_text(b, DEAD_PREFIX) < 0 or add_span(b, c.s.cfg.name) < 0 or add_text(b, b".") < 0
            or add_span(b, c.cfg.name) < 0 or add_text(b, b".") < 0 or add_u64(b, d.seq) < 0 or add_text(b, b".") < 0):
        return -1
    return bytes_add(b, d.token, DEAD_TOKEN)


cdef int dead_send(Consumer* c, DeadLetter* d, const Record* r) noexcept nogil:
    # How many took it; -1 no memory. The record is copied: its own stream may be the one that stores it.
    cdef Bytes header, reply, data
    cdef Msg m
    cdef int rc = -1
    memset(&header, 0, sizeof(Bytes))
    memset(&reply, 0, sizeof(Bytes))
    memset(&data, 0, sizeof(Bytes))
    if (dead_header(c, d, r, &header) == 0 and dead_reply(c, d, &reply) == 0
            and bytes_add(&data, r.data.p, r.data.n) == 0):
        memset(&m, 0, sizeof(Msg))
        m.account = c.s.account
        m.dest = c.cfg.dead_subject
        m.subject = c.cfg.dead_subject
        m.reply = span(reply.data, <uint32_t>reply.n)
        m.header = span(header.data, <uint32_t>header.n)
        m.data = span(data.data, <uint32_t>data.n)
        rc = c.env.out.send(c.env.out.ctx, &m)
    bytes_free(&header)
    bytes_free(&reply)
    bytes_free(&data)
    return rc


cdef void dead_say(Consumer* c, const char* why, Span more) noexcept nogil:
    cdef char text[400]
    if c.dead.told and c.env.mono - c.dead.told < DEAD_SAID * <int64_t>SECOND:
        return
    c.dead.told = c.env.mono
    snprintf(text, sizeof(text), b"dead letters are not stored on %.*s and stay pending: %s%.*s",
             <int>min(c.cfg.dead_subject.n, <uint32_t>100), <const char*>c.cfg.dead_subject.p, why,
             <int>min(more.n, <uint32_t>200), <const char*>more.p)
    say_of(c, text)


cdef bint dead_try(Consumer* c, DeadLetter* d) noexcept nogil:
    # False: its bytes come from the disk first, and the task is posted when they are there.
    cdef Record r
    cdef int rc = ST_NOT_FOUND
    if pending_find(&c.pending, d.seq):         # else it was acked meanwhile
        rc = store_load_warm(c.s.store, d.seq, &r, &c.dead.cold)
    if rc == ST_WAIT:
        return False
    if rc == ST_NOT_FOUND or rc == ST_DAMAGED:
        dead_done(c, d)
        return True
    list_remove(&d.node)
    d.again = c.env.mono + DEAD_AGAIN * <int64_t>SECOND
    list_push_back(&c.dead.sent, &d.node)
    if rc == ST_OK:
        rc = dead_send(c, d, &r)                # the answer may have come, and the letter be gone
        if rc <= 0:
            dead_say(c, b"nobody listens there" if rc == 0 else b"out of memory", span(NULL, 0))
    return True


cdef void dead_turn(Task* t) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef DeadLetter* d = dead_at(list_first(&c.dead.sent))
    cdef int i
    if c.role != ROLE_LEADS or stands_still(c):
        return
    while d != NULL and d.again <= c.env.mono:
        list_remove(&d.node)
        d.again = 0
        list_push_back(&c.dead.unsent, &d.node)
        d = dead_at(list_first(&c.dead.sent))
    for i in range(DEAD_TURN):
        d = dead_at(list_first(&c.dead.unsent))
        if d == NULL:
            break
        if not dead_try(c, d):
            return
    if not list_empty(&c.dead.unsent):
        task_post(&c.env.tasks, t)
    d = dead_at(list_first(&c.dead.sent))
    if d != NULL:
        timer_set(&c.env.timers, &c.timers[TIMER_DEAD], d.again)


cdef void dead_due(Timer* t, int64_t now) noexcept nogil:
    task_post(&(<Consumer*>t.owner).env.tasks, &(<Consumer*>t.owner).dead.task)


# ---- the answer ------------------------------------------------------------------------------------------------------

cdef bint is_stored(Span answer, Span* error) noexcept nogil:
    # Whether a stream says that it has stored the message.
    cdef JsonReader j
    cdef JsonItem key, val
    cdef bint stored = False
    error[0] = answer
    json_open(&j, answer)
    if not json_enter_object(&j):
        return False
    while json_next_member(&j, &key, &val) > 0:
        if json_key_is(&key, b"error"):
            error[0] = val.text
            return False
        stored = stored or json_key_is(&key, b"seq")
    return stored


cdef int dead_inbound(void* target, const Msg* m) noexcept nogil:
    # <DEAD_PREFIX><stream>.<consumer>.<sequence>.<token>
    cdef Consumer* c = <Consumer*>target
    cdef uint32_t prefix = DEAD_PREFIX_SIZE + c.s.cfg.name.n + 1 + c.cfg.name.n + 1
    cdef Span s = m.dest
    cdef Span error
    cdef uint64_t seq
    cdef DeadLetter* d
    if s.n <= prefix:
        return 1
    s.p += prefix
    s.n -= prefix
    seq = take_number(&s)
    d = dead_of(c, seq)
    if d == NULL or s.n != DEAD_TOKEN or memcmp(s.p, d.token, DEAD_TOKEN) != 0 or stands_still(c):
        return 1
    if is_stored(m.data, &error):
        dead_done(c, d)
        return 1
    dead_say(c, b"", error)
    return 1


# ---- changes ---------------------------------------------------------------------------------------------------------

cdef int dead_listen(Consumer* c) noexcept nogil:
    # No client can say that a letter is stored: only what streams send is heard, and what it is sent to cannot be guessed.
    c.subs[5] = subscribe_to(c, DEAD_PREFIX, False, b".*.*", 1 << KIND_ACK, dead_inbound)
    return 0 if c.subs[5] != NULL else -1


cdef void dead_give_up(Consumer* c, const List* l) noexcept nogil:
    # There is no subject for dead letters any more: they die as without.
    cdef DeadLetter* d
    cdef uint32_t i
    while not list_empty(l):
        d = dead_at(list_first(l))
        i = pending_find(&c.pending, d.seq)
        if d.terminated or i == 0:
            dead_done(c, d)
        else:
            dead_drop(c, d)
            exhaust(c, i)


cdef int dead_changed(Consumer* c) noexcept nogil:
    # The configuration is another one. 0 | -1 no memory
    if c.cfg.dead_subject.n == 0:
        dead_give_up(c, &c.dead.unsent)
        dead_give_up(c, &c.dead.sent)
        if c.subs[5] != NULL:
            c.env.out.unsubscribe(c.env.out.ctx, c.subs[5])
            c.subs[5] = NULL
    elif c.role == ROLE_LEADS and c.subs[5] == NULL:
        return dead_listen(c)
    return 0
