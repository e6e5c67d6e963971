# Why a publish is refused: the errors that its publisher hears.

cdef void send_pub_error(Stream* s, Span reply, const ApiError* error, Span text) noexcept nogil:
    cdef Bytes b
    cdef char start[ERROR_START]
    if s.batches != NULL and fast_judged(s):
        fast_error(s, reply, error, text)
        return
    if reply.n == 0 or s.cfg.flags & STREAM_NO_ACK:
        return
    memset(&b, 0, sizeof(Bytes))
    error_start(start, error)
    if (add_text(&b, b"{") == 0 and add_text(&b, start) == 0 and add_json_text(&b, text) == 0
            and add_text(&b, b"\"}") == 0 and bytes_add(&b, s.error_suffix.data, s.error_suffix.n) == 0):
        answer_if_leader(s, reply, b_span(&b))
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


cdef int publish_down(Stream* s, const Msg* m) noexcept nogil:
    cdef char text[REASON_ROOM]
    stream_reason(s, text, sizeof(text))
    return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, text)
