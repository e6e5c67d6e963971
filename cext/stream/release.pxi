# Answers that waited go out: what they tell is durable, or will never be.

cdef void send_failed(Stream* s, const AnswerHead* h, Span reply, Span type) noexcept nogil:
    # What the answer would have shown is not stored. A double ack says nothing then: its sender will ask again.
    cdef Bytes b
    cdef char reason[REASON_ROOM]
    cdef char start[ERROR_START]
    if h.kind == ANSWER_ACK:
        return
    stream_reason(s, reason, sizeof(reason))
    if h.kind == ANSWER_GET:
        direct_failed(s, reply, reason)
        return
    if h.kind == ANSWER_PUBLISH:
        send_pub_error(s, reply, &ERR_STREAM_STORE_FAILED, span_c(reason))
        return
    memset(&b, 0, sizeof(Bytes))
    error_start(start, &ERR_STREAM_STORE_FAILED)
    if (add_text(&b, b"{\"type\":\"") == 0 and add_json_text(&b, type) == 0
            and add_text(&b, b"\",") == 0 and add_text(&b, start) == 0
            and add_json_text(&b, span_c(reason)) == 0 and add_text(&b, b"\"}}") == 0):
        send_message(s, KIND_JETSTREAM, reply, span(NULL, 0), span(b.data, <uint32_t>b.n))
    bytes_free(&b)


cdef void send_answer(Stream* s, const AnswerHead* h, const uint8_t* p, int error) noexcept nogil:
    cdef Span reply = span(p, h.n_reply)
    cdef Span header = span(p + h.n_reply, h.n_header)
    cdef Span data = span(header.p + h.n_header, h.n_data)
    if error:
        send_failed(s, h, reply, span(data.p + h.n_data, h.n_type))
    else:
        send_message(s, KIND_ACK if h.kind == ANSWER_ACK or h.kind == ANSWER_PUBLISH else KIND_JETSTREAM, reply, header, data)


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
    cdef AnswerHead h
    cdef uint8_t room[REPLY_ROOM]
    cdef uint8_t* p
    cdef size_t n
    while s.answers.head < s.answers.b.n:
        memcpy(&h, s.answers.b.data + s.answers.head, sizeof(AnswerHead))
        if h.ticket > upto:
            break
        n = <size_t>h.n_reply + h.n_header + h.n_data + h.n_type
        p = &room[0] if n <= REPLY_ROOM else <uint8_t*>malloc(n)
        if p != NULL:                           # else there is no answer, and the client asks again
            memcpy(p, s.answers.b.data + s.answers.head + sizeof(AnswerHead), n)
        fifo_drop(&s.answers, sizeof(AnswerHead) + n)
        if h.kind == ANSWER_DELETE:
            count_deleting(s, -1)
            count_request(s, error != 0)
        if p != NULL:
            send_answer(s, &h, p, error)
        if p != room:
            free(p)
    direct_resume(s)
