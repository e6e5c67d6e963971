# What a connection hears that does what it may not.

cdef enum:
    QUOTED_MAX = 16384


cdef size_t put_quoted(uint8_t* out, size_t cap, Span s) noexcept nogil:
    # `s` in double quotes with the escapes Go's %q writes; cut short when it does not fit in cap.
    cdef const char* hexdigits = b"0123456789abcdef"
    cdef size_t n = 1
    cdef uint32_t at = 0, size
    cdef uint8_t ch
    out[0] = c'"'
    while at < s.n and n + 6 <= cap:
        ch = s.p[at]
        size = rune_size(s.p + at, s.n - at)
        if ch == c'"' or ch == c'\\':
            out[n] = c'\\'
            out[n + 1] = ch
            n += 2
        elif ch < c' ' or ch == 127 or size == 0:
            out[n] = c'\\'
            out[n + 1] = c'x'
            out[n + 2] = hexdigits[ch >> 4]
            out[n + 3] = hexdigits[ch & 15]
            n += 4
        else:
            memcpy(out + n, s.p + at, size)
            n += size
        at += max(size, <uint32_t>1)
    out[n] = c'"'
    return n + 1


cdef void violation(Client* c, const char* what, Span subject, Span queue, Span sid, const char* after) noexcept nogil:
    # 'Permissions Violation for <what> "subject"[ using queue "queue"]<after>', and the log's event.
    cdef uint8_t text[QUOTED_MAX + 600]
    cdef size_t n = 0
    cdef Span texts[4]
    memcpy(text, b"Permissions Violation for ", 26)
    n = 26
    memcpy(text + n, what, strlen(what))
    n += strlen(what)
    text[n] = c' '
    n += 1
    n += put_quoted(text + n, QUOTED_MAX, subject)
    if queue.n:
        memcpy(text + n, b" using queue ", 13)
        n += 13
        n += put_quoted(text + n, 256, queue)
    memcpy(text + n, after, strlen(after))
    n += strlen(after)
    c.protocol.refuse(c, 0, span(text, <uint32_t>n))
    texts[0] = span_c(what)
    texts[1] = subject
    texts[2] = queue
    texts[3] = sid
    note_client(c, IN_VIOLATION, texts, 4, 0)
