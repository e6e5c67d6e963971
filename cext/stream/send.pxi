# What a stream sends: messages, the texts of PubAcks and of errors. Nothing waits here.

cdef enum:
    REASON_ROOM = 160
    ERROR_START = 80


cdef enum:
    ACK_ROOM = 4096             # of a PubAck
    ACK_TAIL = 64               # of which behind its constant start


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


cdef inline uint8_t* put_bytes(uint8_t* p, Span s) noexcept nogil:
    if s.n:
        memcpy(p, s.p, s.n)
    return p + s.n


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


cdef enum:
    ACK_DUPLICATE = 1
    ACK_TEXT = 2                # what follows the reply is the answer; otherwise these are further members of the PubAck
    ACK_MORE = 8                # from this bit on: how many bytes follow the reply
    REPLY_ROOM = 512            # replies up to here are copied to the stack before they are sent to
    WAITING_MAX = 32 << 20         # bytes of answers that wait in a stream; beyond, what asks for more is refused


cdef int ack_more_text(Stream* s, uint64_t seq, uint32_t flags, Span more, Bytes* b) noexcept nogil:
    # A PubAck with further members. 0 | -1 no memory
    if (bytes_add(b, s.ack_prefix.data, s.ack_prefix.n) < 0 or add_u64(b, seq) < 0
            or flags & ACK_DUPLICATE and add_text(b, b",\"duplicate\": true") < 0
            or add_span(b, more) < 0 or add_text(b, b"}") < 0):
        return -1
    return 0


cdef void send_ack_more(Stream* s, Span reply, uint64_t seq, uint32_t flags, Span more) noexcept nogil:
    # A PubAck with further members, or another answer that waited. Without memory there is none: the client tries again.
    cdef Bytes b
    if flags & ACK_TEXT:
        send_text(s, reply, more.p, more.n)
        return
    memset(&b, 0, sizeof(Bytes))
    if ack_more_text(s, seq, flags, more, &b) == 0:
        send_text(s, reply, b.data, b.n)
    bytes_free(&b)


# ---- texts of errors -------------------------------------------------------------------------------------------------

cdef void error_start(char* start, const ApiError* error) noexcept nogil:
    # The member of an answer that tells the error, up to its text; ERROR_START bytes.
    snprintf(start, ERROR_START, b"\"error\":{\"code\":%d,\"err_code\":%d,\"description\":\"", error.code, error.err_code)


cdef void stream_reason(const Stream* s, char* text, size_t room) noexcept nogil:
    cdef int error = s.failed if s.failed else s.halted
    if error == 0:
        error = <int>store_error(s.store)
    snprintf(text, room, b"writing to disk failed: %s", strerror(error if error else EIO))


cdef const char* store_text(int rc) noexcept nogil:
    if rc == ST_TOO_LARGE:
        return b"message too large"
    if rc == ST_NO_MEMORY:
        return b"out of memory"
    return b"store is closed"
