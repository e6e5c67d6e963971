# A message that passed all checks is stored and acked, or staged.

cdef int store_refused(Stream* s, const Msg* m, int rc) noexcept nogil:
    # The store did not take it.
    if rc == ST_IO:
        stream_fail(s, <int>store_error(s.store))
    if rc == ST_IO or rc == ST_FULL:
        return publish_down(s, m)
    return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(rc))


cdef int roll_up_in_pieces(Stream* s, const Msg* m, const Change* c) noexcept nogil:
    cdef Change message = c[0]
    cdef Rolling* r = <Rolling*>malloc(sizeof(Rolling) + m.reply.n + c.subject.n)
    cdef uint8_t* at = <uint8_t*>r + sizeof(Rolling)
    cdef int rc
    if r == NULL:
        return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY))
    r.seq = c.seq
    r.reply = m.reply
    r.subject = c.subject
    place_text(&at, &r.reply)
    place_text(&at, &r.subject)
    message.rollup = ROLLUP_NONE
    rc = stream_append(s, &message)
    if rc != ST_OK:
        free(r)
        return store_refused(s, m, rc)
    s.dedupe.rolling = r
    purge_begin(&r.purge, s, r.subject, r.seq, 0, False)
    s.dedupe.reading = True
    task_post(&s.env.tasks, &s.dedupe.turn)
    return 1


cdef int publish_staged(Stream* s, const Msg* m, const Change* c) noexcept nogil:
    cdef int rc = store_fits(m.subject, m.header, m.data)
    if rc == ST_OK:
        rc = change_stage(s, m.reply, c)
        if rc == ST_TOO_LARGE:
            return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"too much is staged at once")
    return 1 if rc == ST_OK else publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(rc))


cdef int publish_change(Stream* s, const Msg* m, const Change* c) noexcept nogil:
    # It passed all checks.
    cdef int rc
    if s.staging != NULL:
        return publish_staged(s, m, c)
    if c.rollup == ROLLUP_SUBJECT and store_count_of(s.store, c.subject) > PURGE_PIECE:
        return roll_up_in_pieces(s, m, c)
    rc = stream_append(s, c)
    if rc != ST_OK:
        return store_refused(s, m, rc)
    if s.cfg.flags & STREAM_ALLOW_MSG_COUNTER:
        counter_ack(s, m.reply, c.seq, c.data)
    else:
        pub_ack(s, m.reply, c.seq, False)
    return 1
