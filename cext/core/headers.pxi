# Values of headers, without the blanks around them.

cdef inline bint is_blank(uint8_t ch) noexcept nogil:
    return ch == c' ' or ch == c'\t'


cdef Span trace_header(Span header, const char* name) noexcept nogil:
    # As nats-server reads it: names have one spelling, blanks around the value do not count.
    cdef Span value = header_get(header, name)
    while value.n and is_blank(value.p[0]):
        value.p += 1
        value.n -= 1
    while value.n and is_blank(value.p[value.n - 1]):
        value.n -= 1
    return value


cdef Span header_like(Span block, const char* name) noexcept nogil:
    # The value of a header in whatever letter case; .p NULL: there is none. Blanks around it do not count.
    cdef Span value = span(NULL, 0)
    cdef size_t n_name = strlen(name), i
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    while p < end:
        stop = <const uint8_t*>memchr(p, c'\n', end - p)
        if stop == NULL:
            break
        if p > block.p and <size_t>(stop - p) > n_name and p[n_name] == c':':
            i = 0
            while i < n_name and (p[i] | 32) == (<uint8_t>name[i] | 32):
                i += 1
            if i == n_name:
                value = span(p + n_name + 1, <uint32_t>(stop - p - n_name - 1))
                while value.n and (is_blank(value.p[value.n - 1]) or value.p[value.n - 1] == c'\r'):
                    value.n -= 1
                while value.n and is_blank(value.p[0]):
                    value.p += 1
                    value.n -= 1
                break
        p = stop + 1
    return value
