# Counters (ADR-49): a message has an increment instead of a body, and what is stored is the sum of its subject. Numbers are
# decimal and of any length: a header holds 64 KiB, a body what the server takes.

cdef enum:
    COUNTER_MAX = 8 << 20       # bytes of a sum: it stands in its ack, too


cdef struct Number:
    bint negative
    Span digits                 # without leading zeros: zero has none


cdef inline Number zero() noexcept nogil:
    cdef Number n
    n.negative = False
    n.digits = span(NULL, 0)
    return n


cdef bint get_number(Span s, Number* n) noexcept nogil:
    cdef uint32_t i
    n.negative = s.n > 0 and s.p[0] == c'-'
    if s.n and (s.p[0] == c'-' or s.p[0] == c'+'):
        s = span(s.p + 1, s.n - 1)
    if s.n == 0:
        return False
    for i in range(s.n):
        if s.p[i] < c'0' or s.p[i] > c'9':
            return False
    while s.n and s.p[0] == c'0':
        s = span(s.p + 1, s.n - 1)
    n.digits = s
    return True


cdef int compare_digits(Span a, Span b) noexcept nogil:
    if a.n != b.n:
        return 1 if a.n > b.n else -1
    return memcmp(a.p, b.p, a.n) if a.n else 0


cdef void add_digits(uint8_t* to, Span a, Span b) noexcept nogil:
    # a + b, where a has no fewer digits, into one more than a has.
    cdef uint32_t i, carry = 0, x
    for i in range(a.n):
        x = a.p[a.n - 1 - i] - c'0' + carry
        if i < b.n:
            x += b.p[b.n - 1 - i] - c'0'
        to[a.n - i] = <uint8_t>(c'0' + x % 10)
        carry = x // 10
    to[0] = <uint8_t>(c'0' + carry)


cdef void take_digits(uint8_t* to, Span a, Span b) noexcept nogil:
    # a - b, where a is no less, into one more than a has.
    cdef uint32_t i
    cdef int x, borrow = 0
    for i in range(a.n):
        x = a.p[a.n - 1 - i] - c'0' - borrow
        if i < b.n:
            x -= b.p[b.n - 1 - i] - c'0'
        borrow = x < 0
        to[a.n - i] = <uint8_t>(c'0' + x + 10 * borrow)
    to[0] = c'0'


cdef int add_sum(Bytes* out, Number a, Number b) noexcept nogil:
    # Their sum as text. 0 | -1 no memory
    cdef Number other
    cdef uint8_t* p
    cdef uint32_t n, zeros = 0
    if compare_digits(a.digits, b.digits) < 0:
        other = a
        a = b
        b = other
    n = a.digits.n + 1
    if bytes_reserve(out, <size_t>n + 1) < 0:
        return -1
    p = out.data + out.n
    if a.negative == b.negative:
        add_digits(p + 1, a.digits, b.digits)
    else:
        take_digits(p + 1, a.digits, b.digits)
    while zeros + 1 < n and p[1 + zeros] == c'0':
        zeros += 1
    if a.negative and p[1 + zeros] != c'0':
        p[0] = c'-'
        memmove(p + 1, p + 1 + zeros, n - zeros)
        out.n += n - zeros + 1
    else:
        memmove(p, p + 1 + zeros, n - zeros)
        out.n += n - zeros
    return 0


# ---- what is stored --------------------------------------------------------------------------------------------------

cdef bint read_counter(Span data, Number* n) noexcept nogil:
    # {"val":"123"}
    cdef JsonReader j
    cdef JsonItem key, val
    cdef bint found = False
    cdef int rc = 1
    json_open(&j, data)
    if not json_enter_object(&j):
        return False
    while rc == 1:
        rc = json_next_member(&j, &key, &val)
        if rc == 1 and json_key_is(&key, b"val"):
            if val.kind != JSON_STRING or not get_number(val.text, n):
                return False
            found = True
    return found and rc == 0 and json_at_end(&j)


cdef bint is_object(Span text) noexcept nogil:
    # JSON as that of Nats-Counter-Sources: values by subject, by stream.
    cdef JsonReader j, inner
    cdef JsonItem key, val
    cdef int rc = 1, deep
    json_open(&j, text)
    if not json_enter_object(&j):
        return False
    while rc == 1:
        rc = json_next_member(&j, &key, &val)
        if rc < 1:
            break
        json_open(&inner, val.text)
        if val.kind != JSON_OBJECT or not json_enter_object(&inner):
            return False
        deep = 1
        while deep == 1:
            deep = json_next_member(&inner, &key, &val)
            if deep == 1 and val.kind != JSON_STRING:
                return False
        if deep < 0:
            return False
    return rc == 0 and json_at_end(&j)


cdef int latest(Stream* s, Span subject, Record* r) noexcept nogil:
    # The last message on a subject, as the checks see it: header and body. ST_NOT_FOUND or another error
    cdef Change c
    cdef uint64_t seq
    if s.staging == NULL:
        seq = store_last_of(s.store, subject)
    elif overlay_latest(s.staging, subject, &c):
        r.header = c.header
        r.data = c.data
        return ST_OK
    else:
        seq = overlay_last(s, subject)
    return store_load(s.store, seq, r) if seq else ST_NOT_FOUND


cdef bint is_sources(Span line) noexcept nogil:
    return starts_with(line, b"Nats-Counter-Sources:")


cdef bint counter_now(const Record* r, Number* now, Span* sources) noexcept nogil:
    # The value of a stored message; views of it. False: it is no counter.
    sources[0] = header_get(r.header, b"Nats-Counter-Sources")
    return read_counter(r.data, now) and (sources.n == 0 or is_object(sources[0]))


# ---- checks: 0 goes on, 1 has been answered --------------------------------------------------------------------------

cdef int check_increment(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef Number more
    if not get_number(h.incr, &more):
        return publish_failed(s, m, &ERR_MESSAGE_INCR_INVALID)
    if not s.cfg.flags & STREAM_ALLOW_MSG_COUNTER:
        return publish_failed(s, m, &ERR_MESSAGE_INCR_DISABLED)
    if m.data.n:
        return publish_failed(s, m, &ERR_MESSAGE_INCR_PAYLOAD)
    if (h.rollup.n or h.stream.n or h.last_msg_id.n or h.subject_seq_of.n or h.last_seq.n or h.subject_seq.n):
        return publish_failed(s, m, &ERR_MESSAGE_INCR_INVALID)
    return 0


cdef int counter_text(Bytes* body, Bytes* header, const Msg* m, Number now, Number more, Span sources) noexcept nogil:
    # What is stored. 0 | -1 no memory
    if add_text(body, b"{\"val\":\"") < 0 or add_sum(body, now, more) < 0 or add_text(body, b"\"}") < 0:
        return -1
    if sources.n == 0:
        return 0
    return -1 if (header_without(header, m.header, is_sources) < 0
                  or header_line(header, b"Nats-Counter-Sources", sources) < 0 or add_text(header, b"\r\n") < 0) else 0


cdef const ApiError* counter_sum(Stream* s, const Msg* m, const PubHeaders* h, const Record* before, Bytes* body,
                                 Bytes* header) noexcept nogil:
    # Body and, where it is another, header of what is stored. before: the subject's last message; NULL: as the checks see it.
    # NULL: nothing is wrong
    cdef Record r
    cdef Number now = zero(), more
    cdef Span sources = span(NULL, 0)
    cdef int rc = ST_OK
    if not get_number(h.incr, &more):
        return &ERR_MESSAGE_INCR_MISSING
    if header_get(m.header, b"Nats-Stream-Source").n:
        return &ERR_MESSAGE_COUNTER_BROKEN          # it would bring a sum
    if before == NULL:
        rc = latest(s, m.subject, &r)
        before = &r
    if rc == ST_DAMAGED or (rc == ST_OK and not counter_now(before, &now, &sources)):
        return &ERR_MESSAGE_COUNTER_BROKEN
    if (rc != ST_OK and rc != ST_NOT_FOUND) or counter_text(body, header, m, now, more, sources) < 0:
        return &ERR_INSUFFICIENT_RESOURCES
    if (<int64_t>body.n + (header.n if header.n else m.header.n) > s.place.max_payload or body.n > COUNTER_MAX):
        return &ERR_STREAM_MESSAGE_EXCEEDS_MAXIMUM
    return NULL


cdef void counter_ack(Stream* s, Span reply, uint64_t seq, Span data) noexcept nogil:
    # With the value that is stored. Without memory there is no answer: the publisher asks again.
    cdef Bytes tail
    if reply.n == 0 or s.cfg.flags & STREAM_NO_ACK or data.n < 2:
        return
    memset(&tail, 0, sizeof(Bytes))
    if add_text(&tail, b",") == 0 and bytes_add(&tail, data.p + 1, data.n - 2) == 0:
        pub_ack_more(s, reply, seq, 0, span(tail.data, <uint32_t>tail.n))
    bytes_free(&tail)
