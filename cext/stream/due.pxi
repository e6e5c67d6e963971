# What is due is done: messages whose time is over leave (expiry.pxi), schedules publish (schedule_fire.pxi). What was there
# at the start is read in turns.

cdef enum:
    TIMETABLE_TURN = 2000       # steps of a turn
    TIMETABLE_HURRY = 250000000     # ns until it is on disk that messages left, which nobody waits for
    TIMETABLE_SPARE = 4096      # keys that the wheel may have besides twice the messages


cdef int timetable_due(Timetable* t, uint32_t* left) noexcept nogil:
    # What is to be done by now. ST_OK, or why there is no going on.
    cdef uint64_t now = present(t), key, next
    cdef int rc = ST_OK
    while rc == ST_OK and wheel_take(&t.wheel, now, timetable_wants, t, left, &key) == 1:
        next = wheel_ahead(&t.wheel)
        if next:
            store_ahead(t.s.store, key_seq(next))
        if key & SCHEDULED:
            rc = schedule_fire(t, key_seq(key), key & ONCE == ONCE)
        else:
            rc = expire(t.s, key_seq(key), key & BARE != 0)
        if rc != ST_OK:
            wheel_add(&t.wheel, key, now + (0 if rc == ST_WAIT else TIMETABLE_PAUSE))
    return rc


cdef int timetable_read(Timetable* t, uint32_t* left) noexcept nogil:
    # What was there before.
    cdef Stream* s = t.s
    cdef Record r
    cdef PubHeaders h
    cdef int rc = ST_OK
    while rc == ST_OK and t.unread and left[0]:
        left[0] -= 1
        t.read_at = store_next_seq(s.store, NULL, t.read_at)
        if t.read_at == 0 or t.read_at > t.unread:
            t.unread = 0
            break
        rc = store_load_warm(s.store, t.read_at, &r, &t.wait)
        if rc == ST_OK and r.header.n:
            read_headers(&h, r.header)
            if timetable_note(t, r.seq, r.ts, r.header, &h) < 0:
                rc = ST_NO_MEMORY
        rc = ST_OK if rc == ST_DAMAGED else rc
        t.read_at += rc == ST_OK
    return rc


cdef void timetable_hurry(Timer* timer, int64_t now) noexcept nogil:
    store_hurry((<Timetable*>timer.owner).s.store)


cdef void timetable_to_disk(Timetable* t) noexcept nogil:
    # What a turn changed. A message that only left makes no round of its own: a start finds it due again.
    cdef Env* env = t.s.env
    if t.stored or not t.s.synced or (t.hurry.pos == 0
                                      and timer_set(&env.timers, &t.hurry, env.mono + TIMETABLE_HURRY) < 0):
        store_hurry(t.s.store)
    t.stored = False


cdef int timetable_work(Timetable* t, uint32_t* left) noexcept nogil:
    # What is due, what is too old, what is still to be read, and what is due of that. ST_OK, or why there is no going on.
    cdef int rc = timetable_due(t, left)
    if rc == ST_OK:
        rc = age_due_now(t, left)
    if rc == ST_OK:
        rc = timetable_read(t, left)
    return timetable_due(t, left) if rc == ST_OK else rc


cdef void timetable_go(Timetable* t) noexcept nogil:
    cdef Stream* s = t.s
    cdef StoreState state
    cdef uint32_t left = TIMETABLE_TURN
    cdef uint64_t next
    cdef int rc
    if s.failed or s.halted or (s.staging != NULL and s.member == NULL) or s.dedupe.rolling != NULL:
        timetable_pause(t)
        return
    wait_cancel(&t.wait)
    store_state(s.store, &state)
    if t.wheel.n > 2 * state.msgs + TIMETABLE_SPARE:
        wheel_again(&t.wheel, t.wheel.now)
    store_unhurried(s.store, True)
    rc = timetable_work(t, &left)
    store_unhurried(s.store, False)
    timetable_to_disk(t)
    stream_count_bytes(s)
    next = wheel_next(&t.wheel)
    if rc == ST_WAIT:
        return                          # the turn is posted when the disk has it
    if rc != ST_OK or (left and next <= t.wheel.now):
        timetable_pause(t)
    elif left == 0 or t.unread:
        task_post(&s.env.tasks, &t.turn)
    else:
        if next != UINT64_MAX:
            timetable_by(t, wheel_time(next))
        if t.age_due != INT64_MAX:
            timetable_by(t, t.age_due)


cdef void timetable_fire(Timer* timer, int64_t now) noexcept nogil:
    timetable_go(<Timetable*>timer.owner)


cdef void timetable_turn(Task* task) noexcept nogil:
    timetable_go(<Timetable*>task.owner)


# ---- life ------------------------------------------------------------------------------------------------------------

cdef int timetable_start(Stream* s) noexcept nogil:
    # If there is anything to do. 0 | -1 no memory
    cdef Timetable* t
    if not s.cfg.flags & (STREAM_ALLOW_MSG_TTL | STREAM_ALLOW_MSG_SCHEDULES) or s.timetable != NULL:
        return 0
    t = <Timetable*>calloc(1, sizeof(Timetable))
    if t == NULL:
        return -1
    t.s = s
    t.timer.fn = timetable_fire
    t.timer.owner = t
    t.hurry.fn = timetable_hurry
    t.hurry.owner = t
    t.turn.fn = timetable_turn
    t.turn.owner = t
    t.wait.task = &t.turn
    s.timetable = t
    timetable_again(s, s.active)
    return 0


cdef void timetable_stop(Stream* s) noexcept nogil:
    cdef Timetable* t = s.timetable
    if t == NULL:
        return
    timer_cancel(&s.env.timers, &t.timer)
    timer_cancel(&s.env.timers, &t.hurry)
    task_cancel(&t.turn)
    if s.store != NULL:
        store_hurry(s.store)
    wait_cancel(&t.wait)
    wheel_free(&t.wheel)
    u64map_free(&t.due)
    zones_free(&t.zones)
    bytes_free(&t.subject)
    bytes_free(&t.header)
    bytes_free(&t.body)
    free(t)
    s.timetable = NULL
