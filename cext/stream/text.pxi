# Numbers, durations and times in the forms that NATS writes them: decimal, Go's durations, RFC 3339.

cdef enum:
    SECOND = 1000000000


cdef bint get_u64(Span s, uint64_t* v) noexcept nogil:
    cdef uint64_t x = 0, d
    cdef uint32_t i
    if s.n == 0 or s.n > U64_DIGITS_MAX:
        return False
    for i in range(s.n):
        if s.p[i] < c'0' or s.p[i] > c'9':
            return False
        d = s.p[i] - c'0'
        if x > (UINT64_MAX - d) // 10:
            return False
        x = x * 10 + d
    v[0] = x
    return True


cdef inline bint is_white(uint8_t c) noexcept nogil:
    return c == c' ' or (c'\t' <= c <= c'\r')


cdef Span trimmed(Span s) noexcept nogil:
    while s.n and is_white(s.p[0]):
        s.p += 1
        s.n -= 1
    while s.n and is_white(s.p[s.n - 1]):
        s.n -= 1
    return s


cdef inline uint8_t lower(uint8_t c) noexcept nogil:
    return c + 32 if c'A' <= c <= c'Z' else c


cdef bint key_is(Span key, const char* name) noexcept nogil:
    cdef uint32_t i
    for i in range(key.n):
        if name[i] == 0 or lower(key.p[i]) != <uint8_t>name[i]:
            return False
    return name[key.n] == 0


# ---- durations ---------------------------------------------------------------------------------------

cdef int64_t duration_unit(Span* s) noexcept nogil:
    # Takes a unit off the front; its nanoseconds, 0 if there is none.
    cdef uint32_t n = 1
    cdef int64_t unit = 0
    cdef uint8_t c, d
    if s.n == 0:
        return 0
    c = s.p[0]
    d = s.p[1] if s.n > 1 else 0
    if d == c's' and (c == c'n' or c == c'u' or c == c'm'):             # ns us ms
        unit = 1 if c == c'n' else (1000 if c == c'u' else 1000000)
        n = 2
    elif s.n > 2 and s.p[2] == c's' and ((c == 0xC2 and d == 0xB5) or (c == 0xCE and d == 0xBC)):    # the two letters mu
        unit = 1000
        n = 3
    elif c == c's':
        unit = SECOND
    elif c == c'm':
        unit = <int64_t>60 * SECOND
    elif c == c'h':
        unit = <int64_t>3600 * SECOND
    else:
        return 0
    s.p += n
    s.n -= n
    return unit


cdef bint get_duration(Span s, int64_t* ns) noexcept nogil:
    cdef bint negative = False, digits
    cdef int64_t total = 0, whole, part, unit
    cdef double fraction, scale
    if s.n and (s.p[0] == c'-' or s.p[0] == c'+'):
        negative = s.p[0] == c'-'
        s.p += 1
        s.n -= 1
    if s.n == 1 and s.p[0] == c'0':
        ns[0] = 0
        return True
    if s.n == 0:
        return False
    while s.n:
        whole = 0
        digits = False
        fraction = 0
        scale = 1
        while s.n and c'0' <= s.p[0] <= c'9':
            if whole > (INT64_MAX - 9) // 10:
                return False
            whole = whole * 10 + (s.p[0] - c'0')
            digits = True
            s.p += 1
            s.n -= 1
        if s.n and s.p[0] == c'.':
            s.p += 1
            s.n -= 1
            while s.n and c'0' <= s.p[0] <= c'9':
                scale = scale / 10
                fraction = fraction + scale * (s.p[0] - c'0')
                digits = True
                s.p += 1
                s.n -= 1
        unit = duration_unit(&s)
        if not digits or unit == 0 or whole > INT64_MAX // unit:
            return False
        whole = whole * unit
        part = <int64_t>(fraction * unit + 0.5)
        if whole > INT64_MAX - part or total > INT64_MAX - whole - part:
            return False
        total = total + whole + part
    ns[0] = -total if negative else total
    return True


cdef uint32_t put_duration(uint8_t* p, int64_t ns) noexcept nogil:
    cdef uint64_t u = <uint64_t>ns
    cdef uint32_t n = 0
    cdef uint64_t seconds
    if ns < 0:
        u = 0 - u
        p[0] = c'-'
        n = 1
    if u == 0:
        memcpy(p, b"0s", 2)
        return 2
    if u < SECOND:
        if u < 1000:
            n += put_u64(p + n, u)
            p[n] = c'n'
            n += 1
        elif u < 1000000:
            n += put_u64(p + n, u // 1000)
            n += put_fraction(p + n, u % 1000, 3)
            p[n] = 0xC2
            p[n + 1] = 0xB5
            n += 2
        else:
            n += put_u64(p + n, u // 1000000)
            n += put_fraction(p + n, u % 1000000, 6)
            p[n] = c'm'
            n += 1
        p[n] = c's'
        return n + 1
    seconds = u // SECOND
    if seconds >= 3600:
        n += put_u64(p + n, seconds // 3600)
        p[n] = c'h'
        n += 1
    if seconds >= 60:
        n += put_u64(p + n, seconds // 60 % 60)
        p[n] = c'm'
        n += 1
    n += put_u64(p + n, seconds % 60)
    n += put_fraction(p + n, u % SECOND, 9)
    p[n] = c's'
    return n + 1


# ---- times -------------------------------------------------------------------------------------------

cdef int64_t days_of(int64_t y, int64_t m, int64_t d) noexcept nogil:
    # Days from 1970-01-01 to a date of the Gregorian calendar (y >= 0).
    y += 400                                # keeps every division on the positive side
    if m <= 2:
        y -= 1
        m += 12
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * (m - 3) + 2) // 5 + d - 1 - 719468 - 146097


cdef bint get_digits(Span* s, uint32_t width, int64_t* v) noexcept nogil:
    cdef uint32_t i
    cdef int64_t x = 0
    if s.n < width:
        return False
    for i in range(width):
        if s.p[i] < c'0' or s.p[i] > c'9':
            return False
        x = x * 10 + (s.p[i] - c'0')
    s.p += width
    s.n -= width
    v[0] = x
    return True


cdef bint get_mark(Span* s, uint8_t c) noexcept nogil:
    if s.n == 0 or s.p[0] != c:
        return False
    s.p += 1
    s.n -= 1
    return True


cdef bint get_zone(Span* s, int64_t* seconds) noexcept nogil:
    cdef int64_t h, m
    cdef bint west
    seconds[0] = 0
    if get_mark(s, 90):
        return s.n == 0
    west = s.n and s.p[0] == c'-'
    if not west and not (s.n and s.p[0] == c'+'):
        return False
    s.p += 1
    s.n -= 1
    if not (get_digits(s, 2, &h) and get_mark(s, 58) and get_digits(s, 2, &m)) or h > 23 or m > 59 or s.n:
        return False
    seconds[0] = (h * 60 + m) * 60 * (-1 if west else 1)
    return True


cdef bint get_time(Span s, int64_t* ns) noexcept nogil:
    cdef int64_t y, mo, d, h, mi, sec, zone, fraction = 0, unit = SECOND // 10, t
    if not (get_digits(&s, 4, &y) and get_mark(&s, 45) and get_digits(&s, 2, &mo) and get_mark(&s, 45)
            and get_digits(&s, 2, &d) and get_mark(&s, 84) and get_digits(&s, 2, &h) and get_mark(&s, 58)
            and get_digits(&s, 2, &mi) and get_mark(&s, 58) and get_digits(&s, 2, &sec)):
        return False
    if s.n and s.p[0] == c'.':
        s.p += 1
        s.n -= 1
        if not s.n or s.p[0] < c'0' or s.p[0] > c'9':
            return False
        while s.n and c'0' <= s.p[0] <= c'9':
            fraction += unit * (s.p[0] - c'0')
            unit = unit // 10
            s.p += 1
            s.n -= 1
    if not get_zone(&s, &zone) or not (1 <= mo <= 12 and 1 <= d and h <= 23 and mi <= 59 and sec <= 59):
        return False
    if d > days_of(y + (mo == 12), mo % 12 + 1, 1) - days_of(y, mo, 1):
        return False
    t = days_of(y, mo, d) * 86400 + h * 3600 + mi * 60 + sec - zone
    if t > INT64_MAX // SECOND - 1:             # beyond the range of nanoseconds: its end
        ns[0] = INT64_MAX
    elif t < -(INT64_MAX // SECOND) + 1:
        ns[0] = INT64_MIN + 1
    else:
        ns[0] = t * SECOND + fraction
    return True


cdef bint starts_with(Span s, const char* text) noexcept nogil:
    cdef size_t n = strlen(text)
    return s.n >= n and memcmp(s.p, text, n) == 0


# ---- texts in buffers ----------------------------------------------------------------------------------

cdef int add_text(Bytes* b, const char* text) noexcept nogil:
    return bytes_add(b, text, strlen(text))


cdef int add_span(Bytes* b, Span s) noexcept nogil:
    return bytes_add(b, s.p, s.n)


cdef int add_u64(Bytes* b, uint64_t v) noexcept nogil:
    cdef uint8_t digits[U64_DIGITS_MAX]
    return bytes_add(b, digits, put_u64(digits, v))


cdef int add_json_text(Bytes* b, Span s) noexcept nogil:
    # As Go's encoder: <, > and & are escaped too.
    cdef uint32_t i
    cdef uint8_t c
    cdef char escape[8]
    for i in range(s.n):
        c = s.p[i]
        if c == c'"' or c == c'\\':
            escape[0] = c'\\'
            escape[1] = c
            if bytes_add(b, escape, 2) < 0:
                return -1
        elif c < c' ' or c == c'<' or c == c'>' or c == c'&':
            snprintf(escape, 8, b"\\u%04x", <int>c)
            if bytes_add(b, escape, 6) < 0:
                return -1
        elif bytes_add(b, &c, 1) < 0:
            return -1
    return 0


cdef bint is_subject(Span s) noexcept nogil:
    # Of a message.
    return subject_is_valid(s) and subject_is_literal(s)


cdef inline Span b_span(const Bytes* b) noexcept nogil:
    return span(b.data, <uint32_t>b.n)
