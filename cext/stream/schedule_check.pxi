# The checks of schedules (ADR-51): what a message may say of one, and whom a client may end.

cdef bint holds_subject(const Stream* s, Span subject) noexcept nogil:
    cdef uint32_t i
    for i in range(s.cfg.n_subjects):
        if subject_matches(s.cfg.subjects[i], subject):
            return True
    return False


cdef const ApiError* schedule_wrong(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    # NULL: nothing is
    cdef const Zone* z = NULL
    cdef Schedule x
    cdef Pattern p
    cdef int64_t seconds
    if not s.cfg.flags & STREAM_ALLOW_MSG_SCHEDULES or s.timetable == NULL:
        return &ERR_MESSAGE_SCHEDULES_DISABLED if h.schedule.n or not zone_exists(s.env.files, h.zone) else NULL
    if h.zone.p != NULL:
        z = zone_named(&s.timetable.zones, s.env.files, h.zone)
        if z == NULL:
            return &ERR_MESSAGE_SCHEDULES_TIME_ZONE_INVALID
    if h.schedule.n == 0:
        return NULL
    if not read_pattern(h.schedule, z, s.env.now, s.env.now, &p):
        return &ERR_MESSAGE_SCHEDULES_PATTERN_INVALID
    read_schedule(&x, m.header)
    if x.ttl.n and not get_ttl(x.ttl, &seconds):
        return &ERR_MESSAGE_SCHEDULES_TTL_INVALID
    if x.rollup.n and not span_eq(x.rollup, span_c(b"sub")):
        return &ERR_MESSAGE_SCHEDULES_ROLLUP_INVALID
    if x.ttl.n and not s.cfg.flags & STREAM_ALLOW_MSG_TTL:
        return &ERR_MESSAGE_TTL_DISABLED
    if not is_subject(x.target) or span_eq(x.target, m.subject):
        return &ERR_MESSAGE_SCHEDULES_TARGET_INVALID
    if x.source.n and (not is_subject(x.source) or span_eq(x.source, x.target) or span_eq(x.source, m.subject)):
        return &ERR_MESSAGE_SCHEDULES_SOURCE_INVALID
    if not holds_subject(s, x.target):
        return &ERR_MESSAGE_SCHEDULES_TARGET_INVALID
    if x.source.n and not holds_subject(s, x.source):
        return &ERR_MESSAGE_SCHEDULES_SOURCE_INVALID
    if h.rollup.n and not key_is(h.rollup, b"sub"):
        return &ERR_MESSAGE_SCHEDULES_ROLLUP_INVALID
    return NULL


cdef const ApiError* scheduler_wrong(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    # A client may end a schedule with a message, and claims no other part of what a schedule publishes. NULL: nothing is wrong
    cdef Record r
    if h.schedule_next.n == 0:
        return &ERR_MESSAGE_SCHEDULES_SCHEDULER_INVALID if h.scheduler.n else NULL
    if (not span_eq(h.schedule_next, span_c(b"purge")) or not is_subject(h.scheduler)
            or span_eq(h.scheduler, m.subject)):
        return &ERR_MESSAGE_SCHEDULES_SCHEDULER_INVALID
    if not s.cfg.flags & STREAM_ALLOW_MSG_SCHEDULES:
        return &ERR_MESSAGE_SCHEDULES_DISABLED
    if latest(s, h.scheduler, &r) == ST_OK and header_get(r.header, b"Nats-Schedule").n == 0:
        return &ERR_MESSAGE_SCHEDULES_SCHEDULER_INVALID
    return NULL


cdef int check_schedule(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    # 0 goes on, 1 has been answered
    cdef const ApiError* error
    if h.schedule.n == 0 and h.scheduler.n == 0 and h.schedule_next.n == 0 and h.zone.p == NULL:
        return 0
    error = schedule_wrong(s, m, h) if h.schedule.n or h.zone.p != NULL else NULL
    if error == NULL:
        error = scheduler_wrong(s, m, h)
    return publish_failed(s, m, error) if error != NULL else 0
