# What a schedule publishes when it is due. It goes through the checks of a publish and names the next time in a header, so a
# start finds where it was. What could not be stored is tried again if it was to come once.

cdef bint still_last(Stream* s, Span subject, uint64_t seq) noexcept nogil:
    # Nothing took the schedule's place. What a schedule published there does not.
    cdef Record r
    if store_is_last(s.store, seq):
        return True
    return (store_load(s.store, store_last_of(s.store, subject), &r) == ST_OK
            and header_get(r.header, b"Nats-Scheduler").n != 0)


cdef bint is_not_passed_on(Span line) noexcept nogil:
    cdef uint8_t c = line.p[5] if line.n > 5 and memcmp(line.p, b"Nats-", 5) == 0 else 0
    if c == c'S':
        return starts_with(line, b"Nats-Schedule")
    if c == c'E':
        return starts_with(line, b"Nats-Expected-")
    if c == c'M':
        return starts_with(line, b"Nats-Msg-Id:")
    if c == c'T':
        return starts_with(line, b"Nats-TTL:")
    return c == c'R' and is_rollup(line)


cdef uint32_t put_zone_time(uint8_t* p, const Zone* z, int64_t ns) noexcept nogil:
    # RFC 3339, as the zone's clocks show it, at p (at most 40 bytes); returns how many.
    cdef WholeSecond last
    cdef int64_t seconds = floor_div(ns, SECOND), until
    cdef int64_t offset = zone_offset(z, seconds, &until) if z != NULL else 0
    cdef uint32_t n
    memset(&last, 0, sizeof(WholeSecond))
    n = put_time(p, (seconds + offset) * SECOND, &last)
    if offset == 0:
        return n
    p[n - 1] = c'-' if offset < 0 else c'+'             # instead of Z
    offset = (-offset if offset < 0 else offset) // 60
    p[n] = <uint8_t>(c'0' + offset // 600)
    p[n + 1] = <uint8_t>(c'0' + offset // 60 % 10)
    p[n + 2] = c':'
    p[n + 3] = <uint8_t>(c'0' + offset % 60 // 10)
    p[n + 4] = <uint8_t>(c'0' + offset % 10)
    return n + 5


cdef int product_header(Bytes* b, Span block, Span scheduler, Span next, const Schedule* x) noexcept nogil:
    # Of what is published. 0 | -1 no memory
    b.n = 0
    if block.n == 0 and add_text(b, b"NATS/1.0\r\n") < 0:
        return -1
    if (header_without(b, block, is_not_passed_on) < 0 or header_line(b, b"Nats-Scheduler", scheduler) < 0
            or header_line(b, b"Nats-Schedule-Next", next) < 0):
        return -1
    if x.ttl.n and header_line(b, b"Nats-TTL", x.ttl) < 0:
        return -1
    if x.rollup.n and header_line(b, b"Nats-Rollup", x.rollup) < 0:
        return -1
    return add_text(b, b"\r\n")


cdef void publish_product(Stream* s, Span subject, Span header, Span data) noexcept nogil:
    cdef Msg m
    cdef PubHeaders h
    cdef Draft d
    if s.cfg.flags & STREAM_SEALED:
        return
    memset(&m, 0, sizeof(Msg))
    draft_open(&d)
    came_to(s, subject)
    if stream_rename(s, &subject, &d) == 0:
        m.dest = subject
        m.subject = subject
        m.header = header
        m.data = data
        m.account = s.account
        read_headers(&h, header)
        publish_checked(s, &m, &h, True)
        s.timetable.stored = True
    came_to(s, span(NULL, 0))
    draft_free(&d)


cdef int schedule_make(Timetable* t, const Record* r, const Schedule* x, Pattern* p, const Zone* z) noexcept nogil:
    # Copies what is to be published: subject, header and body. ST_OK or an error
    cdef Stream* s = t.s
    cdef Record of = r[0]
    cdef uint8_t text[40]
    cdef Span next = span_c(b"purge")
    cdef uint64_t last
    cdef int rc
    if p.repeats:
        next = span(text, put_zone_time(text, z, p.due))
    last = store_last_of(s.store, x.source) if x.source.n else 0
    if last:
        rc = store_load_warm(s.store, last, &of, &t.wait)
        if rc == ST_DAMAGED:
            of = r[0]
        elif rc != ST_OK:
            return rc
    t.subject.n = 0
    t.body.n = 0
    return ST_NO_MEMORY if (product_header(&t.header, of.header, r.subject, next, x) < 0
                            or add_span(&t.subject, x.target) < 0 or add_span(&t.body, of.data) < 0) else ST_OK


cdef int schedule_over(Timetable* t, uint64_t seq) noexcept nogil:
    # One that was to come once: what it published took it away, or could not be stored and comes again. ST_OK or an error
    if store_subject(t.s.store, seq).p == NULL:
        return ST_OK
    return ST_NO_MEMORY if schedule_once(t, seq, t.s.env.now + wheel_time(TIMETABLE_PAUSE)) < 0 else ST_OK


cdef int schedule_fire(Timetable* t, uint64_t seq, bint once) noexcept nogil:
    # ST_OK, or why it is to be tried again.
    cdef Stream* s = t.s
    cdef uint64_t due = 0
    cdef Record r
    cdef Schedule x
    cdef Pattern p
    cdef const Zone* z
    cdef int rc
    if not stream_leads(s):
        return ST_OK                    # the leader's to do
    if not once and (not u64map_get(&t.due, seq, &due) or <int64_t>due > s.env.now):
        return ST_OK                    # it is due at another time by now
    rc = store_load_warm(s.store, seq, &r, &t.wait)
    if rc == ST_OK:
        read_schedule(&x, r.header)
    if (rc == ST_OK and still_last(s, r.subject, seq)
            and stored_zone(t, x.zone, &z) and read_pattern(x.pattern, z, <int64_t>due, s.env.now, &p)):
        rc = schedule_make(t, &r, &x, &p, z)
        if rc == ST_OK and p.repeats and schedule_at(t, seq, p.due) < 0:
            rc = ST_NO_MEMORY
        if rc == ST_OK:
            publish_product(s, span(t.subject.data, <uint32_t>t.subject.n),
                            span(t.header.data, <uint32_t>t.header.n), span(t.body.data, <uint32_t>t.body.n))
        return schedule_over(t, seq) if rc == ST_OK and not p.repeats else rc
    if rc == ST_OK or rc == ST_NOT_FOUND or rc == ST_DAMAGED:
        if not once:
            u64map_del(&t.due, seq)
        return ST_OK
    return rc
