# Messages with a time of their own (Nats-TTL, ADR-43), and what stands for the last one of a subject when time has removed it.
# What is removed is written as removed, so a start derives nothing.

# ---- headers ---------------------------------------------------------------------------------------------------------

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


cdef int header_without(Bytes* b, Span block, bint (*dropped)(Span line) noexcept nogil) noexcept nogil:
    # The block without some lines, and without the empty one at its end. 0 | -1 no memory
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    while p < end:
        stop = line_end(p, end)
        if stop == p:
            break
        if not dropped(span(p, <uint32_t>(stop - p))):
            if bytes_add(b, p, stop - p) < 0 or add_text(b, b"\r\n") < 0:
                return -1
        p = stop + 2
    return 0


cdef int header_line(Bytes* b, const char* name, Span value) noexcept nogil:
    return -1 if (add_text(b, name) < 0 or add_text(b, b": ") < 0 or add_span(b, value) < 0
                  or add_text(b, b"\r\n") < 0) else 0


cdef bint is_ttl(Span line) noexcept nogil:
    return starts_with(line, b"Nats-TTL:")


cdef bint too_short(const Stream* s, int64_t seconds) noexcept nogil:
    # A message that would be gone before what stands for the one before it.
    return 0 < seconds < s.cfg.marker_ttl // SECOND and s.cfg.max_msgs_per != 1


cdef int header_with_ttl(Bytes* b, Span block, int64_t seconds) noexcept nogil:
    # 0 | -1 no memory
    cdef uint8_t digits[U64_DIGITS_MAX]
    return -1 if (header_without(b, block, is_ttl) < 0
                  or header_line(b, b"Nats-TTL", span(digits, put_u64(digits, <uint64_t>seconds))) < 0
                  or add_text(b, b"\r\n") < 0) else 0


# ---- what is due -----------------------------------------------------------------------------------------------------

cdef int ttl_note(Timetable* t, uint64_t seq, int64_t ts, Span header, Span ttl) noexcept nogil:
    # A message that is stored. 0 | -1 no memory
    cdef int64_t seconds = ttl_seconds(ttl), due
    if seconds <= 0:
        return 0
    due = ts + seconds * SECOND if ts < INT64_MAX - seconds * SECOND else INT64_MAX
    return timetable_add(t, seq | (BARE if leaves_no_marker(header) else 0), due)


cdef int marker_store(Stream* s, Span subject) noexcept nogil:
    # In place of all that the subject has.
    cdef Change c
    cdef StoreState state
    cdef Bytes header
    cdef uint8_t text[32]
    cdef int rc = ST_NO_MEMORY
    memset(&header, 0, sizeof(Bytes))
    memset(&c, 0, sizeof(Change))
    if (add_text(&header, b"NATS/1.0\r\n") == 0
            and header_line(&header, b"Nats-Marker-Reason", span_c(b"MaxAge")) == 0
            and header_line(&header, b"Nats-TTL",
                            span(text, put_duration(text, s.cfg.marker_ttl // SECOND * SECOND))) == 0
            and header_line(&header, b"Nats-Rollup", span_c(b"sub")) == 0 and add_text(&header, b"\r\n") == 0):
        store_state(s.store, &state)
        c.kind = CHANGE_MESSAGE
        if s.cfg.retention == RETAIN_INTEREST and not watched(&s.watchers, subject):
            c.kind = CHANGE_SKIP
        c.seq = state.last_seq + 1
        c.ts = s.env.now
        c.subject = subject
        c.header = span(header.data, <uint32_t>header.n)
        c.rollup = ROLLUP_SUBJECT
        rc = <int>stream_change(s, &c)
        s.timetable.stored = True
    bytes_free(&header)
    return rc


cdef int expire(Stream* s, uint64_t seq, bint bare) noexcept nogil:
    # ST_OK also if it is gone.
    cdef Span subject = store_subject(s.store, seq)
    cdef Bytes* copy = &s.timetable.subject
    cdef int rc
    if subject.p == NULL:
        return ST_OK
    if s.cfg.marker_ttl > 0 and not bare and store_count_of(s.store, subject) == 1:
        copy.n = 0
        if add_span(copy, subject) < 0:
            return ST_NO_MEMORY
        return marker_store(s, span(copy.data, <uint32_t>copy.n))
    rc = stream_remove(s, CHANGE_EXPIRE, seq, False)
    return ST_OK if rc == ST_NOT_FOUND else rc


cdef int age_due_now(Timetable* t, uint32_t* left) noexcept nogil:
    # The oldest, but for those that never age.
    cdef Stream* s = t.s
    cdef uint64_t seq
    cdef Record r
    cdef bint bare
    cdef int rc = ST_OK
    t.age_due = INT64_MAX
    while rc == ST_OK and s.cfg.allow_ttl and s.cfg.max_age > 0:
        seq = store_next_seq(s.store, NULL, t.aged)
        t.age_due = s.env.now if seq else INT64_MAX
        if seq == 0 or left[0] == 0:
            break
        left[0] -= 1
        t.aged = seq
        rc = store_load_warm(s.store, seq, &r, &t.wait)
        if rc == ST_DAMAGED:                    # its time is not known
            rc = ST_OK
        elif rc == ST_OK and ttl_seconds(header_get(r.header, b"Nats-TTL")) >= 0:
            if elapsed(s.env.now, r.ts) < s.cfg.max_age:
                t.age_due = r.ts + s.cfg.max_age
                break
            bare = leaves_no_marker(r.header)
            rc = expire(s, seq, bare)
        t.aged += rc == ST_OK
    return rc
