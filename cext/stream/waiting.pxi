# Publishes that wait: for ids of messages that were there at the start, for a look that one of them began, for a rollup in
# pieces. All publishes to the stream wait for it, in their order; nobody else does.

cdef enum:
    DEDUPE_PUBLISH = 250                # publishes that waited for it, and go on in one turn


cdef void publish_kept(Stream* s) noexcept nogil:
    # The first that waits goes on; what comes of it may lead to others, so it is taken out before.
    cdef Msg m
    cdef uint8_t* p = publish_first(s)
    if p == NULL:
        return
    publish_read(s, p, &m)
    if publish_now(s, &m) == PUBLISH_LATER:
        s.dedupe.first = p
        return
    pattern_free(s)            # where it was refused before it came to that
    free(p)


cdef int publish_later(Stream* s, const Msg* m) noexcept nogil:
    # It waits for a look, and those behind it for it.
    cdef Dedupe* d = &s.dedupe
    d.reading = True
    if publish_keep(&d.waiting, m) == 0:
        task_post(&s.env.tasks, &d.turn)
        return 1
    while pattern_piece(s):            # without memory at once
        pass
    publish_now(s, m)
    pattern_free(s)
    d.reading = False
    return 1


cdef void dedupe_turn(Task* t) noexcept nogil:
    cdef Stream* s = <Stream*>t.owner
    cdef uint32_t left = DEDUPE_PUBLISH
    if s.dedupe.rolling != NULL:
        roll_up_piece(s)
        left = 0
    elif ids_wanted(s):
        if dedupe_cold(s):
            return
        dedupe_piece(s)
        left = 0
    elif s.dedupe.look != NULL:     # with it the turn has done enough
        left = 0 if pattern_piece(s) else 1
    while left and publishes_wait(s):
        publish_kept(s)
        left = left - 1 if s.dedupe.look == NULL and s.dedupe.rolling == NULL else 0
    s.dedupe.reading = s.dedupe.rolling != NULL or ids_wanted(s) or publishes_wait(s)
    if s.dedupe.reading:
        task_post(&s.env.tasks, t)


cdef void dedupe_finish(Stream* s) noexcept nogil:
    # Publishers that wait go on now.
    if not s.dedupe.reading:
        return
    if ids_wanted(s):
        dedupe_read(s)
    roll_up_finish(s)
    while publishes_wait(s):
        if not pattern_piece(s):
            publish_kept(s)
        roll_up_finish(s)
    wait_cancel(&s.dedupe.cold)
    s.dedupe.reading = False


cdef bint publish_waits(Stream* s, const Msg* m, bint asks) noexcept nogil:
    # Whether a publish, which asks for an id or not, waits for those that are not read yet; it is kept then.
    cdef Dedupe* d = &s.dedupe
    if not d.reading:
        if not asks or not ids_unread(s) or s.staging != NULL:
            return False
        if not dedupe_cold(s):
            dedupe_piece(s)
            if not ids_unread(s):
                return False
    d.asked = d.asked or asks
    if d.waiting.b.n - d.waiting.head > WAITING_MAX or publish_keep(&d.waiting, m) < 0:
        d.reading = True
        dedupe_finish(s)
        return False
    d.reading = True
    task_post(&s.env.tasks, &d.turn)
    return True


cdef int stream_publish(Stream* s, const Msg* m) noexcept nogil:
    cdef bint asks = s.dedupe.unread != 0 and m.header.n and header_get(m.header, b"Nats-Msg-Id").n
    cdef int rc
    if (asks or s.dedupe.reading) and publish_waits(s, m, asks):
        return 1
    rc = publish_now(s, m)
    return rc if rc != PUBLISH_LATER else publish_later(s, m)


cdef int publish_inbound(void* target, const Msg* m) noexcept nogil:
    # Not of what this stream delivers itself, whose bytes may move while it stores.
    cdef Stream* s = <Stream*>target
    return 0 if s.lent else stream_publish(s, m)


cdef int stream_stage(Stream* s) noexcept nogil:
    dedupe_finish(s)
    if s.staging == NULL:
        s.staging = <Overlay*>calloc(1, sizeof(Overlay))
    return 0 if s.staging != NULL else -1
