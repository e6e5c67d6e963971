# When a schedule is due (ADR-51): @at a time, @every so often, or six fields as cron has them, with seconds first.

cdef enum:
    CRON_YEARS = 5              # ahead, in which there must be a time


cdef struct CronField:
    uint64_t bits
    bint star                   # any day will do


cdef struct Cron:
    CronField field[6]          # second, minute, hour, day of the month, month, day of the week


cdef inline bint is_space(uint8_t c) noexcept nogil:
    return c == c' ' or c'\t' <= c <= c'\r'


cdef bint cron_number(Span s, uint64_t* v) noexcept nogil:
    # With a plus, as Go reads it.
    if s.n and s.p[0] == c'+':
        s = span(s.p + 1, s.n - 1)
    while s.n > 1 and s.p[0] == c'0':
        s = span(s.p + 1, s.n - 1)
    return s.n <= 4 and get_u64(s, v)


cdef bint cron_name(Span s, int field, uint64_t* v) noexcept nogil:
    # A number, or the first letters of a month or day.
    cdef const char* names = NULL
    cdef uint32_t i = 0
    if field == 4:
        names = b"janfebmaraprmayjunjulaugsepoctnovdec"
    elif field == 5:
        names = b"sunmontuewedthufrisat"
    while names != NULL and s.n == 3 and names[3 * i]:
        if ((s.p[0] | 32) == <uint8_t>names[3 * i] and (s.p[1] | 32) == <uint8_t>names[3 * i + 1]
                and (s.p[2] | 32) == <uint8_t>names[3 * i + 2]):
            v[0] = i + (1 if field == 4 else 0)
            return True
        i += 1
    return cron_number(s, v)


cdef Span cut_at(Span* s, uint8_t mark, bint* found) noexcept nogil:
    # What stands before the mark; s is what follows it.
    cdef const uint8_t* p = <const uint8_t*>memchr(s.p, mark, s.n) if s.n else NULL
    cdef Span head = s[0]
    found[0] = p != NULL
    if p != NULL:
        head = span(s.p, <uint32_t>(p - s.p))
        s[0] = span(p + 1, s.n - head.n - 1)
    else:
        s[0] = span(s.p + s.n, 0)
    return head


cdef bint cron_range(Span s, int field, CronField* to) noexcept nogil:
    # a, a-b, * or ?, each with /step; `a/step` goes on to the end.
    cdef uint64_t low = 1 if field == 3 or field == 4 else 0, high = 59, start, end, step = 1, i
    cdef bint stepped, ranged, more
    cdef Span range_, first
    high = 23 if field == 2 else 31 if field == 3 else 12 if field == 4 else 6 if field == 5 else 59
    range_ = cut_at(&s, c'/', &stepped)
    if stepped:
        first = cut_at(&s, c'/', &more)
        if more or not cron_number(first, &step) or step == 0:
            return False
    first = cut_at(&range_, c'-', &ranged)
    if first.n == 1 and (first.p[0] == c'*' or first.p[0] == c'?'):
        start = low
        end = high
        if step == 1:
            to.star = True
    else:
        if not cron_name(first, field, &start):
            return False
        end = high if stepped else start
        if ranged:
            first = cut_at(&range_, c'-', &more)
            if more or not cron_name(first, field, &end):
                return False
    if start < low or end > high or start > end:
        return False
    i = start
    while i <= end:
        to.bits |= <uint64_t>1 << i
        i += step
    return True


cdef bint read_cron(Span s, Cron* c) noexcept nogil:
    cdef Span field, part
    cdef int i
    cdef bint more
    memset(c, 0, sizeof(Cron))
    for i in range(6):
        while s.n and is_space(s.p[0]):
            s = span(s.p + 1, s.n - 1)
        field = span(s.p, 0)
        while s.n and not is_space(s.p[0]):
            field.n += 1
            s = span(s.p + 1, s.n - 1)
        if field.n == 0:
            return False
        more = True
        while more:
            part = cut_at(&field, c',', &more)
            if part.n and not cron_range(part, i, &c.field[i]):
                return False
        if c.field[i].bits == 0:
            return False                        # it never comes
    while s.n and is_space(s.p[0]):
        s = span(s.p + 1, s.n - 1)
    return s.n == 0


cdef inline int64_t next_bit(uint64_t bits, int64_t start) noexcept nogil:
    # -1: none from there on
    bits = bits >> start << start
    return low_bit(bits) if bits else -1


cdef bint day_fits(const Cron* c, const Civil* at) noexcept nogil:
    cdef bint month = (c.field[3].bits >> at.day & 1) != 0
    cdef bint week = (c.field[5].bits >> at.weekday & 1) != 0
    if c.field[3].star or c.field[5].star:
        return month and week
    return month or week


cdef bint cron_local(const Cron* c, int64_t* local, int64_t end) noexcept nogil:
    # The first second from there to below `end` on a clock that is never set. Field by field: where one does not fit, the
    # smaller ones start anew.
    cdef Civil at
    cdef int64_t day, hour, minute, second
    while local[0] < end:
        civil_of(local[0], &at)
        day = local[0] - at.second
        if (c.field[4].bits >> at.month & 1) == 0:
            local[0] = days_of(at.year + (at.month == 12), at.month % 12 + 1, 1) * 86400
            continue
        hour = next_bit(c.field[2].bits, at.second // 3600) if day_fits(c, &at) else -1
        if hour < 0:
            local[0] = day + 86400
            continue
        if hour > at.second // 3600:
            at.second = hour * 3600
        minute = next_bit(c.field[1].bits, at.second // 60 % 60)
        if minute < 0:
            local[0] = day + (hour + 1) * 3600
            continue
        if minute > at.second // 60 % 60:
            at.second = hour * 3600 + minute * 60
        second = next_bit(c.field[0].bits, at.second % 60)
        if second < 0:
            local[0] = day + hour * 3600 + (minute + 1) * 60
            continue
        local[0] = day + hour * 3600 + minute * 60 + second
        return local[0] < end
    return False


cdef bint cron_next(const Cron* c, const Zone* z, int64_t base, int64_t* next) noexcept nogil:
    # The first second after `base` (since 1970) that the clocks of the zone show as the fields say: one that they leave out
    # never comes, one that they show twice comes twice. False: none within five years.
    cdef int64_t t = base + 1, until, offset, local, year
    cdef Civil at
    cdef bint first = True
    while True:
        offset = zone_offset(z, t, &until) if z != NULL else 0
        if z == NULL:
            until = INT64_MAX
        local = t + offset
        if first:
            civil_of(local, &at)
            year = days_of(at.year + CRON_YEARS + 1, 1, 1) * 86400
            first = False
        if cron_local(c, &local, min(until + offset if until < INT64_MAX - 86400 else INT64_MAX, year)):
            next[0] = local - offset
            return True
        if until >= INT64_MAX - 86400 or until + offset >= year:
            return False
        t = until


# ---- patterns ----------------------------------------------------------------------------------------------------------

cdef inline Span behind(Span s, uint32_t n) noexcept nogil:
    return span(s.p + n, s.n - n)


cdef inline int64_t nearest_second(int64_t ns) noexcept nogil:
    return floor_div(ns + SECOND // 2, SECOND)


cdef const char* fields_of(Span s) noexcept nogil:
    # What a word stands for; NULL: it is none.
    if span_eq(s, span_c(b"@yearly")) or span_eq(s, span_c(b"@annually")):
        return b"0 0 0 1 1 *"
    if span_eq(s, span_c(b"@monthly")):
        return b"0 0 0 1 * *"
    if span_eq(s, span_c(b"@weekly")):
        return b"0 0 0 * * 0"
    if span_eq(s, span_c(b"@daily")) or span_eq(s, span_c(b"@midnight")):
        return b"0 0 0 * * *"
    if span_eq(s, span_c(b"@hourly")):
        return b"0 0 * * * *"
    return NULL


cdef bint read_pattern(Span s, const Zone* z, int64_t ts, int64_t now, Pattern* to) noexcept nogil:
    # When it is due the next time after ts (ns). What should have been several times before now is once, and goes on from now.
    cdef Cron c
    cdef int64_t ns, next
    to.repeats = True
    to.every = 0
    if starts_with(s, b"@at "):
        to.repeats = False
        return z == NULL and get_time(behind(s, 4), &to.due)
    if starts_with(s, b"@every "):
        if z != NULL or not get_duration(behind(s, 7), &ns) or ns < SECOND:
            return False
        ns = min(ns, <int64_t>1 << 61)
        to.every = ns
        to.due = nearest_second(ts) * SECOND + ns
        if to.due < now:
            to.due = nearest_second(now) * SECOND + ns
        return True
    if fields_of(s) != NULL:
        s = span_c(fields_of(s))
    if not read_cron(s, &c) or not cron_next(&c, z, floor_div(ts, SECOND), &next):
        return False
    if next * SECOND < now and not cron_next(&c, z, nearest_second(now), &next):
        return False
    to.due = next * SECOND
    return True


cdef bint read_pattern_after(Span s, const Zone* z, int64_t ts, int64_t after, Pattern* to) noexcept nogil:
    # When it is due the first time after both, counted from ts. False: it is no pattern.
    if not read_pattern(s, z, ts, ts, to):
        return False
    if not to.repeats or to.due > after:
        return True
    if to.every:
        to.due += ((after - to.due) // to.every + 1) * to.every
        return True
    return read_pattern(s, z, after, after, to)
