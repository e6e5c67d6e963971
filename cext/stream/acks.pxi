# PubAcks and other answers, and their wait for durability: what was answered is on disk.

cdef struct AckHead:
    # One waiting PubAck in a queue; the reply follows, and what ACK_MORE says.
    uint64_t key                # the sequence that it waits for
    uint32_t n                  # bytes of both
    uint32_t flags


cdef struct AnswerHead:
    # One waiting answer of another kind; reply, header, data and the type of an API answer follow.
    uint64_t ticket
    uint32_t n_reply
    uint32_t n_header
    uint32_t n_data
    uint32_t n_type
    int kind                    # ANSWER_*


# ---- waiting ---------------------------------------------------------------------------------------------

cdef void queue_answer(Fifo* q, uint64_t key, Span reply, uint32_t flags) noexcept nogil:
    # Without memory there is no answer: the publisher tries again.
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


cdef inline bint is_shown_synced(const Stream* s) noexcept nogil:
    # Whether a message is shown once this server's disk has it. What a group has agreed on, a majority has on disk.
    return s.synced and s.member == NULL


cdef bint stream_shows_more(const Stream* s) noexcept nogil:
    return s.synced and s.member != NULL and s.shown > store_durable_seq(s.store)


cdef inline uint64_t safe_seq(const Stream* s) noexcept nogil:
    # Up to which sequence messages stay, whatever becomes of this server, or are served as if they did.
    if s.member != NULL or s.cfg.persist_mode == PERSIST_MODE_ASYNC:
        return UINT64_MAX               # a majority has them
    return store_durable_seq(s.store)


cdef inline bint ack_goes(const Stream* s, uint64_t seq) noexcept nogil:
    # Whether it may be sent at once.
    return seq <= safe_seq(s) and s.acks.b.n == 0 and s.republished.b.n == 0


cdef void pub_ack(Stream* s, Span reply, uint64_t seq, bint duplicate) noexcept nogil:
    # Now, if the message is durable, otherwise in its turn.
    if reply.n == 0 or s.cfg.flags & STREAM_NO_ACK:
        return
    if ack_goes(s, seq):
        send_pub_ack(s, reply, seq, duplicate)
    else:
        queue_answer(&s.acks, seq, reply, ACK_DUPLICATE if duplicate else 0)


cdef void pub_ack_settled(Stream* s, Span reply, uint64_t seq) noexcept nogil:
    # When everything that was changed up to now is durable.
    cdef uint64_t ticket = store_ticket(s.store)
    cdef uint8_t room[ACK_ROOM]
    if reply.n == 0 or s.cfg.flags & STREAM_NO_ACK:
        return
    if ticket <= store_durable_ticket(s.store) and s.answers.b.n == 0:
        send_pub_ack(s, reply, seq, False)
    else:       # without memory there is no answer: the publisher tries again
        answer_later(s, ticket, ANSWER_PUBLISH, reply, span(NULL, 0), pub_ack_text(s, seq, False, room), span(NULL, 0))


cdef void more_unconfirmed(Stream* s, Span reply, uint64_t seq, uint32_t flags, Span more) noexcept nogil:
    # Once the lead is confirmed and what was proposed until now is agreed on.
    cdef Bytes b
    if flags & ACK_TEXT:
        answer_unconfirmed(s, reply, more)
        return
    memset(&b, 0, sizeof(Bytes))
    if ack_more_text(s, seq, flags, more, &b) == 0:
        answer_unconfirmed(s, reply, b_span(&b))
    bytes_free(&b)


cdef void pub_ack_more(Stream* s, Span reply, uint64_t seq, uint32_t flags, Span more) noexcept nogil:
    # Likewise, with what follows the sequence; or, with ACK_TEXT, another answer once the message is durable. What a batch is
    # told keeps its order.
    if answers_unconfirmed(s):
        more_unconfirmed(s, reply, seq, flags, more)
    elif ack_goes(s, seq):
        send_ack_more(s, reply, seq, flags, more)
    else:
        queue_more(&s.acks, seq, reply, flags, more)


cdef void stream_answer(Stream* s, uint64_t ticket, Span reply) noexcept nogil:
    stream_answer_with(s, ticket, reply, span(NULL, 0))


cdef void stream_answer_with(Stream* s, uint64_t ticket, Span reply, Span header) noexcept nogil:
    if reply.n == 0:
        return
    if ticket <= store_durable_ticket(s.store) and s.answers.b.n == 0:
        send_message(s, KIND_ACK, reply, header, span(NULL, 0))
    else:
        answer_later(s, ticket, ANSWER_ACK, reply, header, span(NULL, 0), span(NULL, 0))


# ---- answers that show what is stored --------------------------------------------------------------------

cdef uint64_t stream_unsettled(Stream* s, uint64_t seq) noexcept nogil:
    cdef uint64_t ticket
    if not s.synced or (seq and seq <= s.shown):
        return 0
    ticket = store_ticket(s.store)
    return ticket if ticket > store_durable_ticket(s.store) else 0


cdef bint answers_full(const Stream* s) noexcept nogil:
    return s.answers.b.n - s.answers.head > WAITING_MAX


cdef int answer_later(Stream* s, uint64_t ticket, int kind, Span reply, Span header, Span data, Span type) noexcept nogil:
    # The answer is sent when this ticket is durable. 0 | -1 no memory
    cdef AnswerHead h
    cdef size_t size = sizeof(AnswerHead) + <size_t>reply.n + header.n + data.n + type.n
    cdef uint8_t* p = fifo_add(&s.answers, size)
    if p == NULL:
        return -1
    h.ticket = ticket
    h.n_reply = reply.n
    h.n_header = header.n
    h.n_data = data.n
    h.n_type = type.n
    h.kind = kind
    memcpy(p, &h, sizeof(AnswerHead))
    p += sizeof(AnswerHead)
    p = put_bytes(p, reply)
    p = put_bytes(p, header)
    p = put_bytes(p, data)
    put_bytes(p, type)
    return 0


cdef int stream_answer_later(Stream* s, uint64_t ticket, Span reply, Span data, Span type) noexcept nogil:
    if answers_full(s):
        return -1
    return answer_later(s, ticket, ANSWER_API, reply, span(NULL, 0), data, type)
