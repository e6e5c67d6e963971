# Counters whose messages come from other streams (ADR-49): each brings the sum that its subject has at the origin. What is added
# here is what that is more than the sum before, which Nats-Counter-Sources keeps: {"<stream>":{"<subject>":"<sum>"}}, by name.

cdef struct CounterParts:
    # What of a counter's message is made anew; freed with counter_parts_free.
    Bytes stream                # names, as JSON has them
    Bytes subject
    Bytes more                  # what is added
    Bytes sums                  # Nats-Counter-Sources
    Bytes header
    Bytes body


cdef void counter_parts_free(CounterParts* p) noexcept nogil:
    bytes_free(&p.stream)
    bytes_free(&p.subject)
    bytes_free(&p.more)
    bytes_free(&p.sums)
    bytes_free(&p.header)
    bytes_free(&p.body)


cdef inline Span bytes_span(const Bytes* b) noexcept nogil:
    return span(b.data, <uint32_t>b.n)


cdef int by_text(Span a, Span b) noexcept nogil:
    cdef int order = memcmp(a.p, b.p, min(a.n, b.n)) if a.n and b.n else 0
    return order if order else <int>(a.n > b.n) - <int>(a.n < b.n)


cdef bint find_member(Span object, Span name, JsonItem* found) noexcept nogil:
    cdef JsonReader j
    cdef JsonItem key
    json_open(&j, object)
    if object.n == 0 or not json_enter_object(&j):
        return False
    while json_next_member(&j, &key, found) == 1:
        if span_eq(key.text, name):
            return True
    return False


cdef int put_one(Bytes* b, Span name, Span value, bint first) noexcept nogil:
    # value: as it stands in JSON
    return -1 if ((not first and add_text(b, b",") < 0) or add_text(b, b"\"") < 0 or add_span(b, name) < 0
                  or add_text(b, b"\":") < 0 or add_span(b, value) < 0) else 0


cdef inline Span whole_value(const JsonItem* val) noexcept nogil:
    return span(val.text.p - 1, val.text.n + 2) if val.kind == JSON_STRING else val.text


cdef int put_member(Bytes* b, Span old, Span name, Span value) noexcept nogil:
    # An object, or none, with this value in its place. 0 | -1 no memory
    cdef JsonReader j
    cdef JsonItem key, val
    cdef bint first = True, done = False
    cdef int order
    if add_text(b, b"{") < 0:
        return -1
    json_open(&j, old)
    if old.n and json_enter_object(&j):
        while json_next_member(&j, &key, &val) == 1:
            order = by_text(key.text, name)
            if not done and order >= 0:
                if put_one(b, name, value, first) < 0:
                    return -1
                done = True
                first = False
            if order != 0:
                if put_one(b, key.text, whole_value(&val), first) < 0:
                    return -1
                first = False
    if not done and put_one(b, name, value, first) < 0:
        return -1
    return add_text(b, b"}")


cdef int counted_header(Bytes* b, Span block, Span more, Span sums) noexcept nogil:
    # With what is added and all sums, in the places that these have.
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    cdef Span line
    cdef bint has_sums = False
    cdef int rc
    while p < end:
        stop = line_end(p, end)
        if stop == p:
            break
        line = span(p, <uint32_t>(stop - p))
        if starts_with(line, b"Nats-Incr:"):
            rc = header_line(b, b"Nats-Incr", more)
        elif is_sources(line):
            rc = header_line(b, b"Nats-Counter-Sources", sums)
            has_sums = True
        else:
            rc = -1 if bytes_add(b, p, stop - p) < 0 or add_text(b, b"\r\n") < 0 else 0
        if rc < 0:
            return -1
        p = stop + 2
    if not has_sums and header_line(b, b"Nats-Counter-Sources", sums) < 0:
        return -1
    return add_text(b, b"\r\n")


cdef bint counter_add(Stream* s, Msg* m, Span stream, Span subject, Span increment, CounterParts* p) noexcept nogil:
    # Makes of a message, which has its place in Nats-Stream-Source, what is stored: header and body. False: it is refused.
    cdef Record r
    cdef Number sum, more, now = zero(), before = zero()
    cdef Span all = span(NULL, 0), own = span(NULL, 0)
    cdef JsonItem found
    cdef int rc
    if not get_number(increment, &more) or not read_counter(m.data, &sum):
        return False
    if add_json_text(&p.stream, stream) < 0 or add_json_text(&p.subject, subject) < 0:
        return False
    rc = latest(s, m.subject, &r)
    if (rc != ST_OK and rc != ST_NOT_FOUND) or (rc == ST_OK and not counter_now(&r, &now, &all)):
        return False
    if find_member(all, bytes_span(&p.stream), &found):
        own = found.text
    if find_member(own, bytes_span(&p.subject), &found) and not get_number(found.text, &before):
        return False
    before.negative = not before.negative and before.digits.n > 0
    if add_sum(&p.more, sum, before) < 0 or not get_number(bytes_span(&p.more), &more):
        return False
    if counter_text(&p.body, &p.header, m, now, more, span(NULL, 0)) < 0 or put_counted(p, all, own, sum) < 0:
        return False
    if counted_header(&p.header, m.header, bytes_span(&p.more), bytes_span(&p.sums)) < 0:
        return False
    if <int64_t>p.body.n + p.header.n > s.place.max_payload or p.body.n > COUNTER_MAX:
        return False
    m.header = bytes_span(&p.header)
    m.data = bytes_span(&p.body)
    return True


cdef int put_counted(CounterParts* p, Span all, Span own, Number sum) noexcept nogil:
    # The sums of all origins, of which `own` are the stream's, with this one. 0 | -1 no memory
    cdef Bytes text, sums
    cdef int rc = -1
    memset(&text, 0, sizeof(Bytes))
    memset(&sums, 0, sizeof(Bytes))
    if (add_text(&text, b"\"") == 0 and add_sum(&text, sum, zero()) == 0 and add_text(&text, b"\"") == 0
            and put_member(&sums, own, bytes_span(&p.subject), bytes_span(&text)) == 0):
        rc = put_member(&p.sums, all, bytes_span(&p.stream), bytes_span(&sums))
    bytes_free(&text)
    bytes_free(&sums)
    return rc
