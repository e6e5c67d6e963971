# What a stream is to do at some time (due.pxi does it). A wheel knows when each message with a time of its own and each schedule
# is due. All of it is decided by this stream's clock, and what comes of it are changes like any other.
#
# A stream that has max_age and allows a TTL may have messages that never age. So its ages are seen to here, not in the store,
# which takes the oldest.
#
# Where the message that a schedule published last is gone, the time of the stream's last message tells: what was due by then has
# run, as its message would be later; what was due since was missed, and runs once.

cdef enum:
    TIMETABLE_PAUSE = 512       # ticks until what could not be done is tried again

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


# ---- messages that are stored ----------------------------------------------------------------------------------------

cdef int ttl_note(Timetable* t, uint64_t seq, int64_t ts, Span header, Span ttl) noexcept nogil:
    # A message that is stored. 0 | -1 no memory
    cdef int64_t seconds = ttl_seconds(ttl), due
    if seconds <= 0:
        return 0
    due = ts + seconds * SECOND if ts < INT64_MAX - seconds * SECOND else INT64_MAX
    return timetable_add(t, seq | (BARE if leaves_no_marker(header) else 0), due)


cdef bint stored_zone(Timetable* t, Span zone, const Zone** z) noexcept nogil:
    # The zone that a schedule's headers name. False: there is no such zone.
    z[0] = zone_named(&t.zones, t.s.env.files, zone) if zone.p != NULL else NULL
    return zone.p == NULL or z[0] != NULL


cdef int schedule_once(Timetable* t, uint64_t seq, int64_t due) noexcept nogil:
    # 0 | -1 no memory
    return timetable_add(t, seq | ONCE, due)


cdef int schedule_at(Timetable* t, uint64_t seq, int64_t due) noexcept nogil:
    # One that repeats. 0 | -1 no memory
    cdef uint64_t was
    if u64map_get(&t.due, seq, &was) and was == <uint64_t>due:
        return 0
    if u64map_put(&t.due, seq, <uint64_t>due) < 0:
        return -1
    return timetable_add(t, seq | SCHEDULED, due)


cdef int schedule_note(Timetable* t, uint64_t seq, int64_t ts, const PubHeaders* h) noexcept nogil:
    # A message that is stored. 0 | -1 no memory
    cdef Pattern p
    cdef const Zone* z
    cdef uint64_t of, was
    cdef int64_t due
    if h.schedule.n:
        # What it published last follows, where that is still there, and says more.
        if not stored_zone(t, h.zone, &z) or not read_pattern_after(h.schedule, z, ts, t.ran, &p):
            return 0
        return schedule_at(t, seq, p.due) if p.repeats else schedule_once(t, seq, p.due)
    if h.schedule_next.n == 0 or not get_time(h.schedule_next, &due):
        return 0
    of = store_last_of(t.s.store, h.scheduler)
    return schedule_at(t, of, due) if u64map_get(&t.due, of, &was) else 0


cdef int timetable_note(Timetable* t, uint64_t seq, int64_t ts, Span header, const PubHeaders* h) noexcept nogil:
    # A message that is stored. 0 | -1 no memory
    if t.s.cfg.flags & STREAM_ALLOW_MSG_TTL and h.ttl.n and ttl_note(t, seq, ts, header, h.ttl) < 0:
        return -1
    return schedule_note(t, seq, ts, h) if t.s.cfg.flags & STREAM_ALLOW_MSG_SCHEDULES else 0


cdef void timetable_stored(Stream* s, const Change* c, const PubHeaders* h) noexcept nogil:
    # A message was stored just now. Without memory it is read again.
    cdef Timetable* t = s.timetable
    if c.header.n and timetable_note(t, c.seq, c.ts, c.header, h) < 0:
        t.read_at = min(t.read_at, c.seq) if t.unread else c.seq
        t.unread = c.seq
        timetable_pause(t)
    if s.cfg.flags & STREAM_ALLOW_MSG_TTL and s.cfg.max_age > 0 and t.age_due == INT64_MAX:
        t.age_due = c.ts + s.cfg.max_age
        timetable_by(t, t.age_due)


# ---- all anew --------------------------------------------------------------------------------------------------------

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


cdef void timetable_updated(Stream* s, const StreamConfig* old) noexcept nogil:
    # More may be allowed, and max_age may be another.
    cdef Timetable* t = s.timetable
    if s.cfg.flags & ~old.flags & (STREAM_ALLOW_MSG_TTL | STREAM_ALLOW_MSG_SCHEDULES):
        timetable_again(s, True)
    elif t != NULL:
        t.aged = 1
        task_post(&s.env.tasks, &t.turn)
