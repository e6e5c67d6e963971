# Rollups of a subject that has many messages. The message is stored, and what it replaces goes in pieces, as in a purge of its
# own; it is acked when all of that is durable. Until then publishes to the stream wait, so it stays the last message, and a start
# after a crash finishes it (last_resume).

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
    rc = <int>stream_change(s, &message)
    if rc != ST_OK:
        free(r)
        return store_refused(s, m, rc)
    s.dedupe.rolling = r
    purge_begin(&r.purge, s, r.subject, r.seq, 0, False)
    s.dedupe.reading = True
    task_post(&s.env.tasks, &s.dedupe.turn)
    return 1


cdef void roll_up_piece(Stream* s) noexcept nogil:
    cdef Rolling* r = s.dedupe.rolling
    cdef char reason[REASON_ROOM]
    if r.purge.more:
        purge_step(&r.purge)
    if r.purge.more:
        return
    s.dedupe.rolling = NULL
    if r.purge.gone < 0 or s.failed:
        stream_reason(s, reason, sizeof(reason))
        send_pub_error(s, r.reply, &ERR_STREAM_STORE_FAILED, span_c(reason))
    else:
        pub_ack_settled(s, r.reply, r.seq)
    purge_free(&r.purge)
    free(r)


cdef void roll_up_finish(Stream* s) noexcept nogil:
    # All of it at once.
    while s.dedupe.rolling != NULL:
        roll_up_piece(s)
