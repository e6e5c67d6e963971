# Time zones: the files of the IANA database (RFC 8536) and the rule at their end, as POSIX writes it, for what comes after the
# last change that a file lists. A zone says what the clocks show from one change to the next.

cdef enum:
    ZONE_NAME_MAX = 64
    ZONE_FILE_MAX = 65536
    ZONES_MAX = 1024            # more than there are


cdef struct ZoneRule:
    # One change of a year in a POSIX rule.
    int kind                    # 0: Jn, without February 29th; 1: n, from zero; 2: Mm.w.d
    int64_t day                 # of the year, or of the week
    int64_t week
    int64_t month
    int64_t at                  # seconds of local time


cdef struct Zone:
    Zone* next
    uint32_t n_name
    uint8_t name[ZONE_NAME_MAX]
    uint32_t n                  # changes
    int64_t* at                 # when, in seconds since 1970
    int32_t* offset             # n + 1: the first before any change; seconds east of Greenwich
    bint ruled                  # after the last change:
    bint summer                 # it has two offsets
    int64_t winter_offset
    int64_t summer_offset
    ZoneRule to_summer
    ZoneRule to_winter


# ---- the rule at the end ---------------------------------------------------------------------------------------------

cdef bint rule_name(Span* s) noexcept nogil:
    # EST, or <+03>.
    cdef uint32_t n = 0
    if s.n and s.p[0] == c'<':
        while n < s.n and s.p[n] != c'>':
            n += 1
        n += 1
        if n > s.n:
            return False
    else:
        while n < s.n and (c'a' <= s.p[n] <= c'z' or c'A' <= s.p[n] <= c'Z'):
            n += 1
    s.p += n
    s.n -= n
    return n >= 3


cdef bint rule_number(Span* s, int64_t* v) noexcept nogil:
    cdef uint32_t n = 0
    v[0] = 0
    while n < s.n and n < 4 and c'0' <= s.p[n] <= c'9':
        v[0] = v[0] * 10 + (s.p[n] - c'0')
        n += 1
    s.p += n
    s.n -= n
    return n > 0


cdef inline bint rule_mark(Span* s, uint8_t mark) noexcept nogil:
    if s.n == 0 or s.p[0] != mark:
        return False
    s.p += 1
    s.n -= 1
    return True


cdef bint rule_time(Span* s, int64_t* seconds) noexcept nogil:
    # [+-]hh[:mm[:ss]]
    cdef int64_t h = 0, m = 0, sec = 0
    cdef bint minus = rule_mark(s, c'-')
    if not minus:
        rule_mark(s, c'+')
    if not rule_number(s, &h):
        return False
    if rule_mark(s, c':') and not rule_number(s, &m):
        return False
    if rule_mark(s, c':') and not rule_number(s, &sec):
        return False
    seconds[0] = h * 3600 + m * 60 + sec
    if minus:
        seconds[0] = -seconds[0]
    return True


cdef bint rule_change(Span* s, ZoneRule* r) noexcept nogil:
    # ,M3.2.0/2
    r.at = 7200
    if not rule_mark(s, c','):
        return False
    if rule_mark(s, c'M'):
        r.kind = 2
        if not (rule_number(s, &r.month) and rule_mark(s, c'.') and rule_number(s, &r.week) and rule_mark(s, c'.')
                and rule_number(s, &r.day) and 1 <= r.month <= 12 and 1 <= r.week <= 5 and r.day <= 6):
            return False
    else:
        r.kind = 0 if rule_mark(s, c'J') else 1
        if not rule_number(s, &r.day) or r.day > 365 + (r.kind == 0):
            return False
    return not rule_mark(s, c'/') or rule_time(s, &r.at)


cdef bint read_rule(Zone* z, Span s) noexcept nogil:
    # EST5EDT,M3.2.0,M11.1.0; offsets are west of Greenwich.
    cdef int64_t west
    if not (rule_name(&s) and rule_time(&s, &west)):
        return False
    z.winter_offset = -west
    z.summer = s.n > 0
    if z.summer:
        if not rule_name(&s):
            return False
        west -= 3600
        if s.n and s.p[0] != c',' and not rule_time(&s, &west):
            return False
        z.summer_offset = -west
        if not (rule_change(&s, &z.to_summer) and rule_change(&s, &z.to_winter)):
            return False
    z.ruled = s.n == 0
    return z.ruled


# ---- days --------------------------------------------------------------------------------------------------------------

cdef struct Civil:
    int64_t year
    int64_t month               # from 1
    int64_t day                 # from 1
    int64_t weekday             # Sunday is 0
    int64_t second              # of the day


cdef inline int64_t floor_div(int64_t a, int64_t b) noexcept nogil:
    return a // b - (a % b < 0)                 # C's division rounds towards zero; b is positive


cdef void civil_of(int64_t local, Civil* c) noexcept nogil:
    # Of seconds since 1970 on a local clock.
    cdef int64_t days = floor_div(local, 86400), z = days + 719468, era, doe, yoe, doy, mp
    c.second = local - days * 86400
    c.weekday = days + 4 - 7 * floor_div(days + 4, 7)
    era = floor_div(z, 146097)
    doe = z - era * 146097                      # day of the 400-year era that starts on March 1st
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    c.day = doy - (153 * mp + 2) // 5 + 1
    c.month = mp + 3 if mp < 10 else mp - 9
    c.year = yoe + era * 400 + (1 if c.month <= 2 else 0)


cdef int64_t rule_day(const ZoneRule* r, int64_t year) noexcept nogil:
    # Days since 1970.
    cdef int64_t first = days_of(year, 1, 1), day, weekday
    cdef bint leap = days_of(year + 1, 1, 1) - first == 366
    if r.kind == 0:
        return first + r.day - 1 + (leap and r.day > 59)
    if r.kind == 1:
        return first + r.day
    day = days_of(year, r.month, 1)
    weekday = day + 4 - 7 * floor_div(day + 4, 7)
    day += (r.day - weekday + 7) % 7 + 7 * (r.week - 1)
    first = days_of(year + (r.month == 12), r.month % 12 + 1, 1)
    return day if day < first else day - 7


# ---- files -------------------------------------------------------------------------------------------------------------

cdef inline uint32_t be32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline int64_t be64(const uint8_t* p) noexcept nogil:
    return <int64_t>(<uint64_t>be32(p) << 32 | be32(p + 4))


cdef size_t tz_block(const uint8_t* p, size_t n, uint32_t width, uint32_t* times, uint32_t* types) noexcept nogil:
    # How long the header at p and its block are; 0: that is none.
    cdef uint64_t size
    if n < 44 or memcmp(p, b"TZif", 4) != 0:
        return 0
    times[0] = be32(p + 32)
    types[0] = be32(p + 36)
    if times[0] > ZONE_FILE_MAX or types[0] == 0 or types[0] > 256 or be32(p + 40) > ZONE_FILE_MAX:
        return 0
    size = 44 + <uint64_t>times[0] * (width + 1) + types[0] * 6 + be32(p + 40)
    if be32(p + 28) > 1024 or be32(p + 24) > 256 or be32(p + 20) > 256:
        return 0
    size += be32(p + 28) * (width + 4) + be32(p + 24) + be32(p + 20)
    return <size_t>size if size <= n else 0


cdef bint read_zone(Zone* z, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t times, types, i, width = 4
    cdef const uint8_t* index
    cdef const uint8_t* infos
    cdef const uint8_t* end = p + n
    cdef uint8_t version
    cdef size_t size = tz_block(p, n, 4, &times, &types)
    if size == 0:
        return False
    version = p[4]
    if version >= c'2':
        p += size
        width = 8
        size = tz_block(p, <size_t>(end - p), 8, &times, &types)
        if size == 0:
            return False
    index = p + 44 + <size_t>times * width
    infos = index + times
    z.at = <int64_t*>malloc((<size_t>times + 1) * sizeof(int64_t))
    z.offset = <int32_t*>malloc((<size_t>times + 1) * sizeof(int32_t))
    if z.at == NULL or z.offset == NULL:
        return False
    z.n = times
    z.offset[0] = <int32_t>be32(infos)
    for i in range(times):
        if index[i] >= types:
            return False
        z.at[i] = be64(p + 44 + i * 8) if width == 8 else <int32_t>be32(p + 44 + i * 4)
        z.offset[i + 1] = <int32_t>be32(infos + 6 * index[i])
        if i and z.at[i] <= z.at[i - 1]:
            return False
    p += size
    if width == 8 and p < end and p[0] == c'\n':
        p += 1
        i = 0
        while p + i < end and p[i] != c'\n':
            i += 1
        if i and not read_rule(z, span(p, i)):
            return False
    return True


cdef bint zone_load(Zone* z, FileOps* f, const char* path) noexcept nogil:
    cdef uint8_t* p
    cdef int64_t size, n = -1
    cdef bint known = False
    cdef int fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd < 0:
        return False
    size = f.size(f.ctx, fd)
    p = <uint8_t*>malloc(ZONE_FILE_MAX) if 0 < size <= ZONE_FILE_MAX else NULL
    if p != NULL:
        n = f.pread(f.ctx, fd, p, <size_t>size, 0)
        known = n == size and read_zone(z, p, <size_t>n)
    free(p)
    f.close(f.ctx, fd)
    return known


cdef void zone_free(Zone* z) noexcept nogil:
    if z != NULL:
        free(z.at)
        free(z.offset)
        free(z)


cdef void zones_free(Zone** zones) noexcept nogil:
    cdef Zone* z
    while zones[0] != NULL:
        z = zones[0]
        zones[0] = z.next
        zone_free(z)


cdef bint zone_name_good(Span name) noexcept nogil:
    # One that leads to a file of the database and nowhere else.
    cdef uint32_t i
    if name.n == 0 or name.n > ZONE_NAME_MAX or name.p[0] == c'/':
        return False
    for i in range(name.n):
        if not (c'a' <= name.p[i] <= c'z' or c'A' <= name.p[i] <= c'Z' or c'0' <= name.p[i] <= c'9'
                or name.p[i] == c'/' or name.p[i] == c'_' or name.p[i] == c'-' or name.p[i] == c'+'):
            return False
    return True


cdef const Zone* zone_named(Zone** zones, FileOps* f, Span name) noexcept nogil:
    # Read when it is asked for first; NULL: there is none.
    cdef Zone* z = zones[0]
    cdef char path[ZONE_NAME_MAX + 40]
    cdef uint32_t n = 0
    cdef bint known
    if not zone_name_good(name):
        return NULL
    while z != NULL:
        if span_eq(span(z.name, z.n_name), name):
            return z
        n += 1
        z = z.next
    z = <Zone*>calloc(1, sizeof(Zone)) if n < ZONES_MAX else NULL
    if z == NULL:
        return NULL
    memcpy(z.name, name.p, name.n)
    z.n_name = name.n
    if span_eq(name, span_c(b"UTC")):
        known = read_rule(z, span_c(b"UTC0"))
    elif span_eq(name, span_c(b"Local")):
        known = zone_load(z, f, b"/etc/localtime") or read_rule(z, span_c(b"UTC0"))
    else:
        snprintf(path, sizeof(path), b"/usr/share/zoneinfo/%.*s", <int>name.n, <const char*>name.p)
        known = zone_load(z, f, path)
    if not known or (z.n == 0 and not z.ruled and z.offset == NULL):
        zone_free(z)
        return NULL
    z.next = zones[0]
    zones[0] = z
    return z


cdef bint zone_exists(FileOps* f, Span name) noexcept nogil:
    # Whether there is a zone of this name, which is not kept.
    cdef Zone* zones = NULL
    cdef bint found = zone_named(&zones, f, name) != NULL
    zones_free(&zones)
    return found


# ---- what clocks show --------------------------------------------------------------------------------------------------

cdef int64_t rule_offset(const Zone* z, int64_t t, int64_t* until) noexcept nogil:
    # By the rule: the offset at t, and when it changes next.
    cdef Civil c
    cdef int64_t summer, winter, offset, year
    cdef int i
    until[0] = INT64_MAX
    if not z.summer:
        return z.winter_offset
    civil_of(t + z.winter_offset, &c)
    offset = z.winter_offset
    year = c.year - 1
    for i in range(3):                          # the changes of the year before say what is in force at its start
        summer = rule_day(&z.to_summer, year + i) * 86400 + z.to_summer.at - z.winter_offset
        winter = rule_day(&z.to_winter, year + i) * 86400 + z.to_winter.at - z.summer_offset
        if summer <= t and (winter > t or winter < summer):
            offset = z.summer_offset
        elif winter <= t and (summer > t or summer < winter):
            offset = z.winter_offset
        if summer > t:
            until[0] = min(until[0], summer)
        if winter > t:
            until[0] = min(until[0], winter)
    return offset


cdef int64_t zone_offset(const Zone* z, int64_t t, int64_t* until) noexcept nogil:
    # What the clocks show more than UTC at t (seconds since 1970), and when that changes; INT64_MAX: never.
    cdef uint32_t lo = 0, hi = z.n, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if z.at[mid] <= t:
            lo = mid + 1
        else:
            hi = mid
    if lo == z.n and z.ruled:
        return rule_offset(z, t, until)
    until[0] = z.at[lo] if lo < z.n else INT64_MAX
    return z.offset[lo]
