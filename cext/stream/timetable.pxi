# What a stream does at some time: messages whose time is over leave (ttl.pxi), schedules publish (schedule.pxi). A wheel
# knows when each is due; what was there at the start is read in turns. All of it is decided by this stream's clock, and what
# comes of it are changes like any other.
#
# Whoever has max_age and allows a TTL may have messages that never age: so the store, which takes the oldest, does not see to
# that, but this.

cdef enum:
    TIMETABLE_TURN = 2000       # steps of a turn
    TIMETABLE_PAUSE = 512       # ticks until what could not be done is tried again
    TIMETABLE_HURRY = 250000000     # ns until it is on disk that messages left, which nobody waits for
    TIMETABLE_SPARE = 4096      # keys that the wheel may have besides twice the messages

# In the wheel, besides a sequence: nothing stands for this message when it is gone; it is a schedule; one that comes a single
# time, which is when the wheel says.
cdef uint64_t BARE = <uint64_t>1 << 63
cdef uint64_t SCHEDULED = <uint64_t>1 << 62
cdef uint64_t ONCE = BARE | SCHEDULED


cdef struct Timetable:
    Stream* s
    Wheel wheel
    Timer timer
    Timer hurry
    Task turn
    Wait wait                   # for the disk
    uint64_t read_at            # messages in [read_at, unread] are still to be looked at
    uint64_t unread
    uint64_t aged               # all below it are gone, or never age
    int64_t age_due             # when the next one is too old; INT64_MAX: there is none
    Bytes subject
    bint stored                 # this turn stored a message, which is seen when it is on disk
    int64_t ran                 # schedules that were due by then have run
    U64Map due                  # of those that repeat: sequence -> when, in ns; a key of the wheel counts if it is due by then
    Zone* zones                 # that schedules have named
    Bytes header                # of what is published
    Bytes body


cdef inline uint64_t key_seq(uint64_t key) noexcept nogil:
    return key & ~(BARE | SCHEDULED)


cdef inline uint64_t present(const Timetable* t) noexcept nogil:
    # What is due by this tick is due.
    return <uint64_t>max(t.s.env.now, <int64_t>0) >> WHEEL_TICK


cdef bint timetable_wants(void* ctx, uint64_t key) noexcept nogil:
    cdef Timetable* t = <Timetable*>ctx
    if store_subject(t.s.store, key_seq(key)).p != NULL:
        return True
    if key & ONCE == SCHEDULED:
        u64map_del(&t.due, key_seq(key))
    return False


cdef void timetable_by(Timetable* t, int64_t at) noexcept nogil:
    # There is something to do at a time.
    cdef Env* env = t.s.env
    cdef int64_t deadline = env.mono + max(elapsed(at, env.now), <int64_t>0)
    if t.timer.pos == 0 or deadline < t.timer.deadline:
        timer_set(&env.timers, &t.timer, deadline)


cdef void timetable_pause(Timetable* t) noexcept nogil:
    timetable_by(t, t.s.env.now + wheel_time(TIMETABLE_PAUSE))


cdef int timetable_add(Timetable* t, uint64_t key, int64_t due) noexcept nogil:
    # 0 | -1 no memory
    cdef uint64_t now = present(t), tick = wheel_tick(due)
    if now + TIMETABLE_PAUSE < t.wheel.now:     # the clock was set back
        wheel_again(&t.wheel, now)
    if wheel_add(&t.wheel, key, tick) < 0:
        return -1
    timetable_by(t, wheel_time(tick))
    return 0


cdef int timetable_note(Timetable* t, uint64_t seq, int64_t ts, Span header, const PubHeaders* h) noexcept nogil:
    # A message that is stored. 0 | -1 no memory
    if t.s.cfg.allow_ttl and h.ttl.n and ttl_note(t, seq, ts, header, h.ttl) < 0:
        return -1
    return schedule_note(t, seq, ts, h) if t.s.cfg.allow_schedules else 0


cdef void timetable_stored(Stream* s, const Change* c, const PubHeaders* h) noexcept nogil:
    # A message was stored just now. Without memory it is read again.
    cdef Timetable* t = s.timetable
    if c.header.n and timetable_note(t, c.seq, c.ts, c.header, h) < 0:
        t.read_at = min(t.read_at, c.seq) if t.unread else c.seq
        t.unread = c.seq
        timetable_pause(t)
    if s.cfg.allow_ttl and s.cfg.max_age > 0 and t.age_due == INT64_MAX:
        t.age_due = c.ts + s.cfg.max_age
        timetable_by(t, t.age_due)


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
    if s.failed or s.halted or s.staging != NULL or s.dedupe.rolling != NULL:
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


# ---- life --------------------------------------------------------------------------------------------------------------

cdef void timetable_again(Stream* s, bint served) noexcept nogil:
    # All that is stored is looked at anew. served: until now the stream did what was due
    cdef Timetable* t = s.timetable
    cdef StoreState state
    if t == NULL:
        return
    wheel_free(&t.wheel)
    u64map_free(&t.due)
    t.wheel.now = present(t)
    store_state(s.store, &state)
    t.ran = s.env.now if served else state.last_ts
    t.read_at = 1
    t.unread = state.last_seq if state.msgs else 0
    t.aged = 1
    t.age_due = INT64_MAX
    task_post(&s.env.tasks, &t.turn)


cdef int timetable_start(Stream* s) noexcept nogil:
    # If there is anything to do. 0 | -1 no memory
    cdef Timetable* t
    if not (s.cfg.allow_ttl or s.cfg.allow_schedules) or s.timetable != NULL:
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
    task_cancel(&s.env.tasks, &t.turn)
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


cdef void timetable_updated(Stream* s, const StreamConfig* old) noexcept nogil:
    # More may be allowed, and max_age may be another.
    cdef Timetable* t = s.timetable
    if (s.cfg.allow_ttl and not old.allow_ttl) or (s.cfg.allow_schedules and not old.allow_schedules):
        timetable_again(s, True)
    elif t != NULL:
        t.aged = 1
        task_post(&s.env.tasks, &t.turn)
