# Messages whose time is over leave, and what stands for the last one of a subject takes its place. What is removed is written as
# removed, so a start derives nothing.

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
                            span(text, put_duration(text, s.cfg.subject_delete_marker_ttl // SECOND * SECOND))) == 0
            and header_line(&header, b"Nats-Rollup", span_c(b"sub")) == 0 and add_text(&header, b"\r\n") == 0):
        store_state(s.store, &state)
        c.kind = CHANGE_SKIP if is_unwanted(s, subject) else CHANGE_MESSAGE
        c.seq = state.last_seq + 1
        c.ts = s.env.now
        c.subject = subject
        c.header = span(header.data, <uint32_t>header.n)
        c.rollup = ROLLUP_SUBJECT
        rc = stream_append(s, &c)
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
    if s.cfg.subject_delete_marker_ttl > 0 and not bare and store_count_of(s.store, subject) == 1:
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
    while rc == ST_OK and s.cfg.flags & STREAM_ALLOW_MSG_TTL and s.cfg.max_age > 0:
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
