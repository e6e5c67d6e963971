# Times as texts.

cdef uint32_t put_fraction(uint8_t* p, uint64_t v, uint32_t width) noexcept nogil:
    cdef uint32_t i
    if v == 0:
        return 0
    while v % 10 == 0:
        v = v // 10
        width -= 1
    p[0] = c'.'
    for i in range(width, 0, -1):
        p[i] = <uint8_t>(c'0' + v % 10)
        v = v // 10
    return width + 1


cdef inline uint32_t put_two(uint8_t* p, int64_t v, uint8_t mark) noexcept nogil:
    p[0] = <uint8_t>(c'0' + v // 10 % 10)
    p[1] = <uint8_t>(c'0' + v % 10)
    p[2] = mark
    return 3


cdef void put_second(uint8_t* p, int64_t seconds) noexcept nogil:
    # 2006-01-02T15:04:05 of seconds since 1970, and a byte behind it.
    cdef int64_t days = seconds // 86400, rest = seconds % 86400, era, doe, yoe, doy, mp, y, m
    cdef uint32_t n
    if rest < 0:                                # C's division rounds towards zero
        rest += 86400
        days -= 1
    days += 719468
    era = days // 146097
    doe = days - era * 146097                   # day of the 400-year era that starts on March 1st
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    m = mp + 3 if mp < 10 else mp - 9
    y = yoe + era * 400 + (1 if m <= 2 else 0)
    p[0] = <uint8_t>(c'0' + y // 1000 % 10)
    p[1] = <uint8_t>(c'0' + y // 100 % 10)
    n = 2 + put_two(p + 2, y % 100, 45)
    n += put_two(p + n, m, 45)
    n += put_two(p + n, doy - (153 * mp + 2) // 5 + 1, 84)
    n += put_two(p + n, rest // 3600, 58)
    n += put_two(p + n, rest // 60 % 60, 58)
    put_two(p + n, rest % 60, 0)


cdef uint32_t put_time(uint8_t* p, int64_t ns, WholeSecond* last) noexcept nogil:
    cdef int64_t seconds = ns // 1000000000
    cdef uint32_t n = SECOND_TEXT
    ns = ns % 1000000000
    if ns < 0:
        ns += 1000000000
        seconds -= 1
    if seconds != last.seconds or last.text[0] == 0:
        put_second(last.text, seconds)
        last.seconds = seconds
    memcpy(p, last.text, SECOND_TEXT)
    n += put_fraction(p + n, <uint64_t>ns, 9)
    p[n] = c'Z'
    return n + 1
