# Rollups of a subject that has many messages. The message is stored, and what it replaces goes in pieces, as in a purge of its
# own; it is acked when all of that is durable. Until then publishes to the stream wait, so it stays the last message, and a start
# after a crash finishes it (last_resume).

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


cdef int stream_append(Stream* s, const Change* c) noexcept nogil:
    # A message or a skip that was decided here. ST_OK or ST_*
    roll_up_finish(s)           # what the stream publishes itself shall not stand behind half a rollup
    return <int>stream_change(s, c)
