# PubAcks and other answers, and their wait for durability: what was answered is on disk.

cdef enum:
    ACK_DUPLICATE = 1
    REPLY_ROOM = 512            # replies up to here are copied to the stack before they are sent to


cdef struct AckHead:
    # One waiting answer in a queue; the reply follows.
    uint64_t key                # the sequence or the ticket that it waits for
    uint32_t n
    uint32_t flags


cdef void send_text(Stream* s, Span reply, const void* p, size_t n) noexcept nogil:
    cdef Msg m
    memset(&m, 0, sizeof(Msg))
    m.dest = reply
    m.subject = reply
    m.data = span(p, <uint32_t>n)
    m.account = s.account
    s.env.out.send(s.env.out.ctx, &m)


cdef void send_pub_ack(Stream* s, Span reply, uint64_t seq, bint duplicate) noexcept nogil:
    cdef uint8_t text[ACK_ROOM]
    cdef size_t n = s.ack_prefix.n              # at most ACK_ROOM - ACK_TAIL: texts_prepare
    memcpy(text, s.ack_prefix.data, n)
    n += put_u64(text + n, seq)
    if duplicate:
        memcpy(text + n, b",\"duplicate\": true", 18)
        n += 18
    text[n] = 125
    send_text(s, reply, text, n + 1)


cdef void send_pub_error(Stream* s, Span reply, int code, int err_code, Span text) noexcept nogil:
    cdef Bytes b
    cdef char start[80]
    if reply.n == 0 or s.cfg.no_ack:
        return
    memset(&b, 0, sizeof(Bytes))
    snprintf(start, sizeof(start), b"{\"error\":{\"code\":%d,\"err_code\":%d,\"description\":\"", code, err_code)
    if (add_text(&b, start) == 0 and add_json_text(&b, text) == 0 and add_text(&b, b"\"}") == 0
            and bytes_add(&b, s.error_suffix.data, s.error_suffix.n) == 0):
        send_text(s, reply, b.data, b.n)
    bytes_free(&b)


cdef int publish_failed(Stream* s, const Msg* m, int code, int err_code, const char* text) noexcept nogil:
    send_pub_error(s, m.reply, code, err_code, span_c(text))
    return 1


cdef int publish_failed_with(Stream* s, const Msg* m, int code, int err_code, const char* text,
                             Span more) noexcept nogil:
    # The text, followed by something of the request's.
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if add_text(&b, text) == 0 and add_span(&b, more) == 0:
        send_pub_error(s, m.reply, code, err_code, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return 1


cdef int publish_failed_seq(Stream* s, const Msg* m, uint64_t last) noexcept nogil:
    cdef uint8_t digits[20]
    return publish_failed_with(s, m, 400, 10071, b"wrong last sequence: ", span(digits, put_u64(digits, last)))


# ---- waiting ---------------------------------------------------------------------------------------------

cdef void queue_answer(Fifo* q, uint64_t key, Span reply, uint32_t flags) noexcept nogil:
    # Without memory there is no answer: whoever waits for it tries again.
    cdef AckHead head
    cdef uint8_t* p = fifo_add(q, sizeof(AckHead) + reply.n)
    if p == NULL:
        return
    head.key = key
    head.n = reply.n
    head.flags = flags
    memcpy(p, &head, sizeof(AckHead))
    memcpy(p + sizeof(AckHead), reply.p, reply.n)


cdef bint next_answer(Fifo* q, uint64_t upto, AckHead* head, uint8_t* room, uint8_t** reply) noexcept nogil:
    # Takes the first answer out if it waits for nothing beyond upto. A reply longer than the room is malloc'ed.
    cdef uint8_t* p
    cdef size_t size
    if q.head >= q.b.n:
        return False
    p = q.b.data + q.head
    memcpy(head, p, sizeof(AckHead))
    if head.key > upto:
        return False
    size = sizeof(AckHead) + head.n
    reply[0] = room if head.n <= REPLY_ROOM else <uint8_t*>malloc(head.n)
    if reply[0] == NULL:
        head.n = 0
    else:
        memcpy(reply[0], p + sizeof(AckHead), head.n)
    fifo_drop(q, size)
    return True


cdef void pub_ack(Stream* s, Span reply, uint64_t seq, bint duplicate) noexcept nogil:
    # Now, if the message is durable, otherwise in its turn.
    cdef char text[160]
    if reply.n == 0 or s.cfg.no_ack:
        return
    if seq <= store_durable_seq(s.store) and s.acks.b.n == 0:
        send_pub_ack(s, reply, seq, duplicate)
    elif seq <= s.failed_seq:
        failed_text(s, text, sizeof(text))
        send_pub_error(s, reply, 503, 10077, span_c(text))
    else:
        queue_answer(&s.acks, seq, reply, ACK_DUPLICATE if duplicate else 0)


cdef void failed_text(Stream* s, char* text, size_t room) noexcept nogil:
    snprintf(text, room, b"writing to disk failed: %s", strerror(s.failed_errno))


cdef void stream_answer(Stream* s, uint64_t ticket, Span reply) noexcept nogil:
    if reply.n == 0:
        return
    if ticket <= store_durable_ticket(s.store) and s.answers.b.n == 0:
        send_text(s, reply, NULL, 0)
    else:
        queue_answer(&s.answers, ticket, reply, 0)


cdef void release_acks(Stream* s, uint64_t upto, int error) noexcept nogil:
    cdef AckHead head
    cdef uint8_t room[REPLY_ROOM]
    cdef uint8_t* reply
    cdef char text[160]
    while next_answer(&s.acks, upto, &head, room, &reply):
        if error or head.key <= s.failed_seq:
            failed_text(s, text, sizeof(text))
            send_pub_error(s, span(reply, head.n), 503, 10077, span_c(text))
        elif head.n:
            send_pub_ack(s, span(reply, head.n), head.key, head.flags & ACK_DUPLICATE)
        if reply != room:
            free(reply)


cdef void release_answers(Stream* s, uint64_t upto, int error) noexcept nogil:
    # After an error nothing is said: the change is not durable, and its sender will ask again.
    cdef AckHead head
    cdef uint8_t room[REPLY_ROOM]
    cdef uint8_t* reply
    while next_answer(&s.answers, upto, &head, room, &reply):
        if head.n and not error:
            send_text(s, span(reply, head.n), NULL, 0)
        if reply != room:
            free(reply)


cdef void on_durable(void* ctx, uint64_t seq, uint64_t ticket, int error) noexcept nogil:
    cdef Stream* s = <Stream*>ctx
    cdef Event e
    if error:
        s.failed_seq = max(s.failed_seq, seq)
        s.failed_errno = error
        memset(&e, 0, sizeof(Event))
        e.kind = EV_STORE_ERROR
        e.account = s.account
        e.text[0] = s.cfg.name
        e.num[0] = error
        s.env.out.event(s.env.out.ctx, &e)
    release_acks(s, seq, error)
    release_answers(s, ticket, error)
    pthread_cond_broadcast(<pthread_cond_t*>s.durable)
