# The headers of messages with a time of their own (Nats-TTL, ADR-43).

cdef bint get_ttl(Span text, int64_t* seconds) noexcept nogil:
    # -1: never, 0: as if there were none. False: it is none.
    cdef int64_t ns
    cdef uint64_t n
    seconds[0] = -1
    if key_is(text, b"never"):
        return True
    if get_duration(text, &ns):
        seconds[0] = ns // SECOND
        return ns >= SECOND
    if not get_u64(text, &n) or n > <uint64_t>(INT64_MAX // SECOND):
        return False
    seconds[0] = <int64_t>n
    return True


cdef int64_t ttl_seconds(Span text) noexcept nogil:
    # Of a stored message's header; -1: it never ages, 0: it has none.
    cdef int64_t seconds
    return seconds if text.n and get_ttl(text, &seconds) else 0


cdef bint leaves_no_marker(Span header) noexcept nogil:
    # It stands for removed messages itself.
    return (header_get(header, b"Nats-Marker-Reason").n != 0
            or span_eq(header_get(header, b"KV-Operation"), span_c(b"PURGE")))


cdef bint is_ttl(Span line) noexcept nogil:
    return starts_with(line, b"Nats-TTL:")


cdef bint too_short(const Stream* s, int64_t seconds) noexcept nogil:
    # A message that would be gone before what stands for the one before it.
    return 0 < seconds < s.cfg.subject_delete_marker_ttl // SECOND and s.cfg.max_msgs_per_subject != 1


cdef int header_with_ttl(Bytes* b, Span block, int64_t seconds) noexcept nogil:
    # 0 | -1 no memory
    cdef uint8_t digits[U64_DIGITS_MAX]
    return -1 if (header_without(b, block, is_ttl) < 0
                  or header_line(b, b"Nats-TTL", span(digits, put_u64(digits, <uint64_t>seconds))) < 0
                  or add_text(b, b"\r\n") < 0) else 0
