# PubAcks and other answers, and their wait for durability: what was answered is on disk.

cdef enum:
    ACK_DUPLICATE = 1
    ACK_TEXT = 2                # what follows the reply is the answer; otherwise these are further members of the PubAck
    ACK_MORE = 8                # from this bit on: how many bytes follow the reply
    REPLY_ROOM = 512            # replies up to here are copied to the stack before they are sent to
    REASON_ROOM = 160
    ERROR_START = 80
    HELD_MAX = 32 << 20         # bytes of answers that wait in a stream; beyond, what asks for more is refused


cdef struct AckHead:
    # One waiting PubAck in a queue; the reply follows, and what ACK_MORE says.
    uint64_t key                # the sequence that it waits for
    uint32_t n                  # bytes of both
    uint32_t flags


cdef struct HeldHead:
    # One waiting answer of another kind; reply, header, data and the type of an API answer follow.
    uint64_t ticket
    uint32_t n_reply
    uint32_t n_header
    uint32_t n_data
    uint32_t n_type
    int kind                    # HELD_*


cdef void send_message(Stream* s, int kind, Span dest, Span header, Span data) noexcept nogil:
    cdef Msg m
    memset(&m, 0, sizeof(Msg))
    m.kind = kind
    m.dest = dest
    m.subject = dest
    m.header = header
    m.data = data
    m.account = s.account
    s.env.out.send(s.env.out.ctx, &m)


cdef void send_text(Stream* s, Span reply, const void* p, size_t n) noexcept nogil:
    send_message(s, KIND_ACK, reply, span(NULL, 0), span(p, <uint32_t>n))


cdef Span pub_ack_text(Stream* s, uint64_t seq, bint duplicate, uint8_t* text) noexcept nogil:
    # In the ACK_ROOM bytes of `text`.
    cdef uint32_t n = <uint32_t>s.ack_prefix.n              # at most ACK_ROOM - ACK_TAIL: texts_prepare
    memcpy(text, s.ack_prefix.data, n)
    n += put_u64(text + n, seq)
    if duplicate:
        memcpy(text + n, b",\"duplicate\": true", 18)
        n += 18
    text[n] = c'}'
    return span(text, n + 1)


cdef void send_pub_ack(Stream* s, Span reply, uint64_t seq, bint duplicate) noexcept nogil:
    cdef uint8_t room[ACK_ROOM]
    cdef Span text = pub_ack_text(s, seq, duplicate, room)
    send_text(s, reply, text.p, text.n)


cdef void send_ack_more(Stream* s, Span reply, uint64_t seq, uint32_t flags, Span more) noexcept nogil:
    # A PubAck with further members, or another answer that waited. Without memory there is none: whoever waits tries again.
    cdef Bytes b
    if flags & ACK_TEXT:
        send_text(s, reply, more.p, more.n)
        return
    memset(&b, 0, sizeof(Bytes))
    if (bytes_add(&b, s.ack_prefix.data, s.ack_prefix.n) == 0 and add_u64(&b, seq) == 0
            and (not flags & ACK_DUPLICATE or add_text(&b, b",\"duplicate\": true") == 0)
            and add_span(&b, more) == 0 and add_text(&b, b"}") == 0):
        send_text(s, reply, b.data, b.n)
    bytes_free(&b)


cdef void error_start(char* start, const ApiError* error) noexcept nogil:
    # The member of an answer that tells the error, up to its text; ERROR_START bytes.
    snprintf(start, ERROR_START, b"\"error\":{\"code\":%d,\"err_code\":%d,\"description\":\"", error.code, error.err_code)


cdef void send_pub_error(Stream* s, Span reply, const ApiError* error, Span text) noexcept nogil:
    cdef Bytes b
    cdef char start[ERROR_START]
    if s.batches != NULL and fast_judged(s):
        fast_error(s, reply, error, text)
        return
    if reply.n == 0 or s.cfg.no_ack:
        return
    memset(&b, 0, sizeof(Bytes))
    error_start(start, error)
    if (add_text(&b, b"{") == 0 and add_text(&b, start) == 0 and add_json_text(&b, text) == 0
            and add_text(&b, b"\"}") == 0 and bytes_add(&b, s.error_suffix.data, s.error_suffix.n) == 0):
        send_text(s, reply, b.data, b.n)
    bytes_free(&b)


cdef int publish_failed(Stream* s, const Msg* m, const ApiError* error) noexcept nogil:
    send_pub_error(s, m.reply, error, span_c(error.text))
    return 1


cdef int publish_failed_as(Stream* s, const Msg* m, const ApiError* error, const char* text) noexcept nogil:
    # In other words than the error's own.
    send_pub_error(s, m.reply, error, span_c(text))
    return 1


cdef int publish_failed_with(Stream* s, const Msg* m, const ApiError* error, Span more) noexcept nogil:
    # The error's text, followed by what it is about.
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if add_text(&b, error.text) == 0 and add_span(&b, more) == 0:
        send_pub_error(s, m.reply, error, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return 1


cdef int publish_failed_seq(Stream* s, const Msg* m, uint64_t last) noexcept nogil:
    cdef uint8_t digits[U64_DIGITS_MAX]
    return publish_failed_with(s, m, &ERR_STREAM_WRONG_LAST_SEQUENCE, span(digits, put_u64(digits, last)))


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


cdef void queue_more(Fifo* q, uint64_t key, Span reply, uint32_t flags, Span more) noexcept nogil:
    cdef AckHead head
    cdef uint8_t* p = fifo_add(q, sizeof(AckHead) + <size_t>reply.n + more.n)
    if p == NULL:
        return
    head.key = key
    head.n = reply.n + more.n
    head.flags = flags | more.n << ACK_MORE
    memcpy(p, &head, sizeof(AckHead))
    put_bytes(put_bytes(p + sizeof(AckHead), reply), more)


cdef inline uint32_t reply_size(const AckHead* head) noexcept nogil:
    # Of what next_answer left, which without memory is nothing.
    return head.n - (head.flags >> ACK_MORE) if head.n else 0


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


cdef inline bint ack_goes(const Stream* s, uint64_t seq) noexcept nogil:
    # Whether it may be sent at once.
    return (seq <= store_durable_seq(s.store) or s.cfg.early_acks) and s.acks.b.n == 0 and s.republished.b.n == 0


cdef void pub_ack(Stream* s, Span reply, uint64_t seq, bint duplicate) noexcept nogil:
    # Now, if the message is durable, otherwise in its turn.
    if reply.n == 0 or s.cfg.no_ack:
        return
    if ack_goes(s, seq):
        send_pub_ack(s, reply, seq, duplicate)
    else:
        queue_answer(&s.acks, seq, reply, ACK_DUPLICATE if duplicate else 0)


cdef void pub_ack_settled(Stream* s, Span reply, uint64_t seq) noexcept nogil:
    # When everything that was changed up to now is durable.
    cdef uint64_t ticket = store_ticket(s.store)
    cdef uint8_t room[ACK_ROOM]
    if reply.n == 0 or s.cfg.no_ack:
        return
    if ticket <= store_durable_ticket(s.store) and s.answers.b.n == 0:
        send_pub_ack(s, reply, seq, False)
    else:       # without memory there is no answer: whoever waits for it tries again
        hold(s, ticket, HELD_PUBLISH, reply, span(NULL, 0), pub_ack_text(s, seq, False, room), span(NULL, 0))


cdef void pub_ack_more(Stream* s, Span reply, uint64_t seq, uint32_t flags, Span more) noexcept nogil:
    # Likewise, with what follows the sequence; or, with ACK_TEXT, another answer once the message is durable.
    if ack_goes(s, seq):
        send_ack_more(s, reply, seq, flags, more)
    else:
        queue_more(&s.acks, seq, reply, flags, more)


cdef void stream_reason(const Stream* s, char* text, size_t room) noexcept nogil:
    cdef int error = s.failed if s.failed else s.halted
    if error == 0:
        error = <int>store_error(s.store)
    snprintf(text, room, b"writing to disk failed: %s", strerror(error if error else EIO))


cdef int publish_down(Stream* s, const Msg* m) noexcept nogil:
    cdef char text[REASON_ROOM]
    stream_reason(s, text, sizeof(text))
    return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, text)


cdef void stream_answer(Stream* s, uint64_t ticket, Span reply) noexcept nogil:
    stream_answer_with(s, ticket, reply, span(NULL, 0))


cdef void stream_answer_with(Stream* s, uint64_t ticket, Span reply, Span header) noexcept nogil:
    if reply.n == 0:
        return
    if ticket <= store_durable_ticket(s.store) and s.answers.b.n == 0:
        send_message(s, KIND_ACK, reply, header, span(NULL, 0))
    else:
        hold(s, ticket, HELD_ACK, reply, header, span(NULL, 0), span(NULL, 0))


# ---- answers that show what is stored --------------------------------------------------------------------

cdef uint64_t stream_unsettled(Stream* s, uint64_t seq) noexcept nogil:
    cdef uint64_t ticket
    if not s.synced or (seq and seq <= s.shown):
        return 0
    ticket = store_ticket(s.store)
    return ticket if ticket > store_durable_ticket(s.store) else 0


cdef bint too_much_held(const Stream* s) noexcept nogil:
    return s.answers.b.n - s.answers.head > HELD_MAX


cdef int hold(Stream* s, uint64_t ticket, int kind, Span reply, Span header, Span data, Span type) noexcept nogil:
    # The answer is sent when this ticket is durable. 0 | -1 no memory
    cdef HeldHead h
    cdef size_t size = sizeof(HeldHead) + <size_t>reply.n + header.n + data.n + type.n
    cdef uint8_t* p = fifo_add(&s.answers, size)
    if p == NULL:
        return -1
    h.ticket = ticket
    h.n_reply = reply.n
    h.n_header = header.n
    h.n_data = data.n
    h.n_type = type.n
    h.kind = kind
    memcpy(p, &h, sizeof(HeldHead))
    p += sizeof(HeldHead)
    p = put_bytes(p, reply)
    p = put_bytes(p, header)
    p = put_bytes(p, data)
    put_bytes(p, type)
    return 0


cdef inline uint8_t* put_bytes(uint8_t* p, Span s) noexcept nogil:
    if s.n:
        memcpy(p, s.p, s.n)
    return p + s.n


cdef int stream_hold(Stream* s, uint64_t ticket, Span reply, Span data, Span type) noexcept nogil:
    if too_much_held(s):
        return -1
    return hold(s, ticket, HELD_API, reply, span(NULL, 0), data, type)


cdef void count_request(Stream* s, bint failed) noexcept nogil:
    # One that the stream answered itself.
    if s.cfg.requests != NULL:
        s.cfg.requests.total += 1
        s.cfg.requests.errors += failed


cdef void count_deleting(Stream* s, int64_t more) noexcept nogil:
    s.deleting += more
    if s.cfg.requests != NULL:
        s.cfg.requests.inflight += more


cdef void send_failed(Stream* s, const HeldHead* h, Span reply, Span type) noexcept nogil:
    # What the answer would have shown is not stored. A double ack says nothing then: its sender will ask again.
    cdef Bytes b
    cdef char reason[REASON_ROOM]
    cdef char start[ERROR_START]
    if h.kind == HELD_ACK:
        return
    stream_reason(s, reason, sizeof(reason))
    if h.kind == HELD_GET:
        direct_failed(s, reply, reason)
        return
    if h.kind == HELD_PUBLISH:
        send_pub_error(s, reply, &ERR_STREAM_STORE_FAILED, span_c(reason))
        return
    memset(&b, 0, sizeof(Bytes))
    error_start(start, &ERR_STREAM_STORE_FAILED)
    if (add_text(&b, b"{\"type\":\"") == 0 and add_json_text(&b, type) == 0
            and add_text(&b, b"\",") == 0 and add_text(&b, start) == 0
            and add_json_text(&b, span_c(reason)) == 0 and add_text(&b, b"\"}}") == 0):
        send_message(s, KIND_JETSTREAM, reply, span(NULL, 0), span(b.data, <uint32_t>b.n))
    bytes_free(&b)


cdef void send_held(Stream* s, const HeldHead* h, const uint8_t* p, int error) noexcept nogil:
    cdef Span reply = span(p, h.n_reply)
    cdef Span header = span(p + h.n_reply, h.n_header)
    cdef Span data = span(header.p + h.n_header, h.n_data)
    if error:
        send_failed(s, h, reply, span(data.p + h.n_data, h.n_type))
    else:
        send_message(s, KIND_ACK if h.kind == HELD_ACK or h.kind == HELD_PUBLISH else KIND_JETSTREAM, reply, header, data)


cdef void release_acks(Stream* s, uint64_t upto, int error) noexcept nogil:
    cdef AckHead head
    cdef uint8_t room[REPLY_ROOM]
    cdef uint8_t* reply
    cdef uint32_t n
    cdef char text[REASON_ROOM]
    while next_answer(&s.acks, upto, &head, room, &reply):
        if error:
            stream_reason(s, text, sizeof(text))
            send_pub_error(s, span(reply, reply_size(&head)), &ERR_STREAM_STORE_FAILED, span_c(text))
        elif head.n and head.flags <= ACK_DUPLICATE:
            send_pub_ack(s, span(reply, head.n), head.key, head.flags)
        elif head.n:
            n = reply_size(&head)
            send_ack_more(s, span(reply, n), head.key, head.flags, span(reply + n, head.n - n))
        if reply != room:
            free(reply)


cdef void release_answers(Stream* s, uint64_t upto, int error) noexcept nogil:
    # What is sent may lead to more answers: each is taken out first.
    cdef HeldHead h
    cdef uint8_t room[REPLY_ROOM]
    cdef uint8_t* p
    cdef size_t n
    while s.answers.head < s.answers.b.n:
        memcpy(&h, s.answers.b.data + s.answers.head, sizeof(HeldHead))
        if h.ticket > upto:
            break
        n = <size_t>h.n_reply + h.n_header + h.n_data + h.n_type
        p = &room[0] if n <= REPLY_ROOM else <uint8_t*>malloc(n)
        if p != NULL:                           # else there is no answer, and whoever waits asks again
            memcpy(p, s.answers.b.data + s.answers.head + sizeof(HeldHead), n)
        fifo_drop(&s.answers, sizeof(HeldHead) + n)
        if h.kind == HELD_DELETE:
            count_deleting(s, -1)
            count_request(s, error != 0)
        if p != NULL:
            send_held(s, &h, p, error)
        if p != room:
            free(p)
    direct_resume(s)


cdef void on_durable(void* ctx, uint64_t seq, uint64_t ticket, int error) noexcept nogil:
    cdef Stream* s = <Stream*>ctx
    if error:
        stream_fail(s, error)
        return
    republish_durable(s)
    if s.synced and seq > s.shown:
        show(s, seq)
    release_answers(s, ticket, 0)
    s.env.system.broadcast(s.env.system.ctx, &s.durable)


cdef void stream_fail(Stream* s, int error) noexcept nogil:
    # What is not durable is refused, also what was staged behind the group that failed. The control plane opens the
    # stream again from its files.
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
    release_acks(s, UINT64_MAX, error)
    release_answers(s, UINT64_MAX, error)
    dedupe_finish(s)            # they hear the same
    stream_reason(s, reason, sizeof(reason))
    staged_drop(s, reason)
    s.env.system.broadcast(s.env.system.ctx, &s.durable)
