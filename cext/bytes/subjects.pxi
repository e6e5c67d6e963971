# Subjects: tokens separated by dots; `*` stands for one token, `>` at the end for one or more.
# Also the lookup in header blocks.

cdef bint subject_matches(Span pattern, Span subject) noexcept nogil:
    cdef Tokens a = tokens_of(pattern), b = tokens_of(subject)
    while True:
        if b.n == 0:
            return False
        if is_tail(&a):
            break
        if not is_star(&a) and not same_token(&a, &b):
            return False
        if a.last or b.last:
            return a.last and b.last
        tokens_cut(&a)
        tokens_cut(&b)
    # `>` takes the rest, but for a subject with an empty token, which nothing matches.
    while not b.last:
        tokens_cut(&b)
        if b.n == 0:
            return False
    return True


cdef bint subject_is_literal(Span s) noexcept nogil:
    cdef Tokens t = tokens_of(s)
    while True:
        if t.n == 1 and (t.p[0] == c'*' or t.p[0] == c'>'):
            return False
        if t.last:
            return True
        tokens_cut(&t)


cdef bint subject_is_valid(Span s) noexcept nogil:
    cdef uint32_t i, n = 0      # n: bytes of the token at hand
    cdef bint tail = False
    cdef uint8_t c
    for i in range(s.n):
        c = s.p[i]
        if c == c'.':
            if n == 0 or tail:
                return False
            n = 0
        elif c == c' ' or c == c'\t' or c == c'\n' or c == c'\r' or c == c'\f':
            return False
        else:
            n += 1
            tail = n == 1 and c == c'>'
    return n > 0


cdef bint subject_covers(Span outer, Span inner) noexcept nogil:
    cdef Tokens a = tokens_of(outer), b = tokens_of(inner)
    while True:
        if a.n == 0 or b.n == 0:
            return False
        if is_tail(&a):
            return True
        if is_tail(&b):
            return False
        if not is_star(&a) and (is_star(&b) or not same_token(&a, &b)):
            return False
        if a.last or b.last:
            return a.last and b.last
        tokens_cut(&a)
        tokens_cut(&b)


cdef bint subjects_overlap(Span a, Span b) noexcept nogil:
    cdef Tokens x = tokens_of(a), y = tokens_of(b)
    while True:
        if x.n == 0 or y.n == 0:
            return False
        if is_tail(&x) or is_tail(&y):
            return True
        if not is_star(&x) and not is_star(&y) and not same_token(&x, &y):
            return False
        if x.last or y.last:
            return x.last and y.last
        tokens_cut(&x)
        tokens_cut(&y)


# ---- headers -------------------------------------------------------------------------------------------

cdef Span header_get(Span block, const char* name) noexcept nogil:
    cdef Span value
    cdef size_t n_name = strlen(name)
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    value.p = NULL
    value.n = 0
    while p < end:
        p = <const uint8_t*>memchr(p, c'\n', end - p)
        if p == NULL:
            break
        p += 1
        if p - block.p < 2 or (p - 2)[0] != c'\r' or <size_t>(end - p) <= n_name:
            continue
        if p[n_name] != c':' or memcmp(p, name, n_name) != 0:
            continue
        p += n_name + 1
        while p < end and p[0] == c' ':
            p += 1
        stop = p
        while True:
            stop = <const uint8_t*>memchr(stop, c'\r', end - stop)
            if stop == NULL:
                stop = end
                break
            if stop + 1 < end and stop[1] == c'\n':
                break
            stop += 1
        value.p = p
        value.n = <uint32_t>(stop - p)
        break
    return value
