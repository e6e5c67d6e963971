# Schedules (ADR-51): a message that says when a copy of it, or of another subject's last message, is published into the stream.
# It holds its subject: with a newer message there, or when it is gone for whatever reason, it is over.
#
# What it publishes goes through the checks of a publish and names the next time in a header, so a start finds where it was. Where
# that message is gone, the time of the stream's last message tells: what was due by then has run, as its message would be later;
# what was due since was missed, and runs once. What could not be stored is tried again if it was to come once.


# ---- checks ------------------------------------------------------------------------------------------------------------

cdef bint is_subject(Span s) noexcept nogil:
    # Of a message.
    return subject_is_valid(s) and subject_is_literal(s)


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
    if not s.cfg.allow_schedules or s.timetable == NULL:
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
    if x.ttl.n and not s.cfg.allow_ttl:
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
    if not s.cfg.allow_schedules:
        return &ERR_MESSAGE_SCHEDULES_DISABLED
    if latest(s, h.scheduler, &r) == ST_OK and header_get(r.header, b"Nats-Schedule").n == 0:
        return &ERR_MESSAGE_SCHEDULES_SCHEDULER_INVALID
    return NULL


cdef int check_schedule(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    # 0 goes on, 1 has been answered
    cdef const ApiError* error = schedule_wrong(s, m, h) if h.schedule.n or h.zone.p != NULL else NULL
    if error == NULL:
        error = scheduler_wrong(s, m, h)
    return publish_failed(s, m, error) if error != NULL else 0


cdef bint is_rollup(Span line) noexcept nogil:
    return starts_with(line, b"Nats-Rollup:")


cdef int header_rolled(Bytes* b, Span block) noexcept nogil:
    # There is one schedule on a subject. 0 | -1 no memory
    return -1 if (header_without(b, block, is_rollup) < 0 or header_line(b, b"Nats-Rollup", span_c(b"sub")) < 0
                  or add_text(b, b"\r\n") < 0) else 0


cdef int publish_schedule(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # It passed.
    cdef Msg only = m[0]
    cdef PubHeaders rolled = h[0]
    cdef Bytes b
    if h.rollup.n:
        return publish_entered(s, m, h, state)
    memset(&b, 0, sizeof(Bytes))
    if header_rolled(&b, m.header) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY))
    else:
        only.header = span(b.data, <uint32_t>b.n)
        rolled.rollup = span_c(b"sub")
        publish_entered(s, &only, &rolled, state)
    bytes_free(&b)
    return 1


cdef void schedule_end(Stream* s, const PubHeaders* h) noexcept nogil:
    # What was stored ends a schedule: part of its change, as a rollup is.
    if span_eq(h.schedule_next, span_c(b"purge")) and is_subject(h.scheduler):
        store_purge_subject(s.store, h.scheduler)


# ---- what is due -------------------------------------------------------------------------------------------------------

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


cdef bint stored_zone(Timetable* t, Span zone, const Zone** z) noexcept nogil:
    # The zone that a schedule's headers name. False: there is no such zone.
    z[0] = zone_named(&t.zones, t.s.env.files, zone) if zone.p != NULL else NULL
    return zone.p == NULL or z[0] != NULL


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


cdef bint still_last(Stream* s, Span subject, uint64_t seq) noexcept nogil:
    # Nothing took the schedule's place. What a schedule published there does not.
    cdef Record r
    if store_is_last(s.store, seq):
        return True
    return (store_load(s.store, store_last_of(s.store, subject), &r) == ST_OK
            and header_get(r.header, b"Nats-Scheduler").n != 0)


cdef bint is_not_passed_on(Span line) noexcept nogil:
    cdef uint8_t c = line.p[5] if line.n > 5 and memcmp(line.p, b"Nats-", 5) == 0 else 0
    if c == c'S':
        return starts_with(line, b"Nats-Schedule")
    if c == c'E':
        return starts_with(line, b"Nats-Expected-")
    if c == c'M':
        return starts_with(line, b"Nats-Msg-Id:")
    if c == c'T':
        return starts_with(line, b"Nats-TTL:")
    return c == c'R' and is_rollup(line)


cdef uint32_t put_zone_time(uint8_t* p, const Zone* z, int64_t ns) noexcept nogil:
    # RFC 3339, as the zone's clocks show it, at p (at most 40 bytes); returns how many.
    cdef WholeSecond last
    cdef int64_t seconds = floor_div(ns, SECOND), until
    cdef int64_t offset = zone_offset(z, seconds, &until) if z != NULL else 0
    cdef uint32_t n
    memset(&last, 0, sizeof(WholeSecond))
    n = put_time(p, (seconds + offset) * SECOND, &last)
    if offset == 0:
        return n
    p[n - 1] = c'-' if offset < 0 else c'+'             # instead of Z
    offset = (-offset if offset < 0 else offset) // 60
    p[n] = <uint8_t>(c'0' + offset // 600)
    p[n + 1] = <uint8_t>(c'0' + offset // 60 % 10)
    p[n + 2] = c':'
    p[n + 3] = <uint8_t>(c'0' + offset % 60 // 10)
    p[n + 4] = <uint8_t>(c'0' + offset % 10)
    return n + 5


cdef int product_header(Bytes* b, Span block, Span scheduler, Span next, const Schedule* x) noexcept nogil:
    # Of what is published. 0 | -1 no memory
    b.n = 0
    if block.n == 0 and add_text(b, b"NATS/1.0\r\n") < 0:
        return -1
    if (header_without(b, block, is_not_passed_on) < 0 or header_line(b, b"Nats-Scheduler", scheduler) < 0
            or header_line(b, b"Nats-Schedule-Next", next) < 0):
        return -1
    if x.ttl.n and header_line(b, b"Nats-TTL", x.ttl) < 0:
        return -1
    if x.rollup.n and header_line(b, b"Nats-Rollup", x.rollup) < 0:
        return -1
    return add_text(b, b"\r\n")


cdef void publish_product(Stream* s, Span subject, Span header, Span data) noexcept nogil:
    cdef Msg m
    cdef PubHeaders h
    cdef StoreState state
    cdef Draft d
    if s.cfg.sealed:
        return
    memset(&m, 0, sizeof(Msg))
    draft_open(&d)
    if stream_rename(s, &subject, &d) == 0:
        m.dest = subject
        m.subject = subject
        m.header = header
        m.data = data
        m.account = s.account
        read_headers(&h, header)
        store_state(s.store, &state)
        publish_entered(s, &m, &h, &state)
        s.timetable.stored = True
    draft_free(&d)


cdef int schedule_make(Timetable* t, const Record* r, const Schedule* x, Pattern* p, const Zone* z) noexcept nogil:
    # Copies what is to be published: subject, header and body. ST_OK or an error
    cdef Stream* s = t.s
    cdef Record of = r[0]
    cdef uint8_t text[40]
    cdef Span next = span_c(b"purge")
    cdef uint64_t last
    cdef int rc
    if p.repeats:
        next = span(text, put_zone_time(text, z, p.due))
    last = store_last_of(s.store, x.source) if x.source.n else 0
    if last:
        rc = store_load_warm(s.store, last, &of, &t.wait)
        if rc == ST_DAMAGED:
            of = r[0]
        elif rc != ST_OK:
            return rc
    t.subject.n = 0
    t.body.n = 0
    return ST_NO_MEMORY if (product_header(&t.header, of.header, r.subject, next, x) < 0
                            or add_span(&t.subject, x.target) < 0 or add_span(&t.body, of.data) < 0) else ST_OK


cdef int schedule_over(Timetable* t, uint64_t seq) noexcept nogil:
    # One that was to come once: what it published took it away, or could not be stored and comes again. ST_OK or an error
    if store_subject(t.s.store, seq).p == NULL:
        return ST_OK
    return ST_NO_MEMORY if schedule_once(t, seq, t.s.env.now + wheel_time(TIMETABLE_PAUSE)) < 0 else ST_OK


cdef int schedule_fire(Timetable* t, uint64_t seq, bint once) noexcept nogil:
    # ST_OK, or why it is to be tried again.
    cdef Stream* s = t.s
    cdef uint64_t due = 0
    cdef Record r
    cdef Schedule x
    cdef Pattern p
    cdef const Zone* z
    cdef int rc
    if not once and (not u64map_get(&t.due, seq, &due) or <int64_t>due > s.env.now):
        return ST_OK                    # it is due at another time by now
    rc = store_load_warm(s.store, seq, &r, &t.wait)
    if rc == ST_OK:
        read_schedule(&x, r.header)
    if (rc == ST_OK and still_last(s, r.subject, seq)
            and stored_zone(t, x.zone, &z) and read_pattern(x.pattern, z, <int64_t>due, s.env.now, &p)):
        rc = schedule_make(t, &r, &x, &p, z)
        if rc == ST_OK and p.repeats and schedule_at(t, seq, p.due) < 0:
            rc = ST_NO_MEMORY
        if rc == ST_OK:
            publish_product(s, span(t.subject.data, <uint32_t>t.subject.n),
                            span(t.header.data, <uint32_t>t.header.n), span(t.body.data, <uint32_t>t.body.n))
        return schedule_over(t, seq) if rc == ST_OK and not p.repeats else rc
    if rc == ST_OK or rc == ST_NOT_FOUND or rc == ST_DAMAGED:
        if not once:
            u64map_del(&t.due, seq)
        return ST_OK
    return rc
