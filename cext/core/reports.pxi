# Reports of latency: which requests to a service are watched, and what the control plane is told of them to publish.

cdef enum:
    TRACE_HEADER_MAX = 8192     # bytes of a header block of which a report may show a part


cdef Span token_of(Span text, uint8_t by, uint32_t place, uint32_t* count) noexcept nogil:
    # The token at a place between delimiters, and how many there are.
    cdef Span found = span(text.p, 0)
    cdef uint32_t i, start = 0, n = 0
    for i in range(text.n + 1):
        if i == text.n or text.p[i] == by:
            if n == place:
                found = span(text.p + start, i - start)
            n += 1
            start = i + 1
    count[0] = n
    return found


cdef int hex_digit(uint8_t ch) noexcept nogil:
    if c'0' <= ch <= c'9':
        return ch - c'0'
    ch |= 32
    return ch - c'a' + 10 if c'a' <= ch <= c'f' else -1


cdef bint is_odd_hex(Span digits, uint32_t most) noexcept nogil:
    # One or two hexadecimal digits, at most `most` (as Go reads them), whose lowest bit is set.
    cdef int high = 0, low
    if digits.n == 0 or digits.n > 2:
        return False
    if digits.n == 2:
        high = hex_digit(digits.p[0])
    low = hex_digit(digits.p[digits.n - 1])
    return high >= 0 and low >= 0 and <uint32_t>(16 * high + low) <= most and low & 1


cdef bint trace_asks(Span header) noexcept nogil:
    # Whether the headers of a tracing system say that the request is one of its sample.
    cdef Span value
    cdef uint32_t n
    if header.n == 0:
        return False
    value = header_like(header, b"Uber-Trace-Id")
    if value.p != NULL:
        value = token_of(value, c':', 3, &n)
        return n == 4 and is_odd_hex(value, 255)
    value = header_like(header, b"X-B3-Sampled")
    if value.n == 1 and value.p[0] == c'1':
        return True
    if value.n == 1 and value.p[0] == c'0':
        return False
    if header_like(header, b"X-B3-TraceId").p != NULL:
        return True
    value = header_like(header, b"B3")
    if value.p != NULL:
        value = token_of(value, c'-', 2 if memchr(value.p, c'-', value.n) != NULL else 0, &n)
        return not ((n > 2 or n == 1) and value.n == 1 and value.p[0] == c'0')
    value = header_like(header, b"Traceparent")
    value = token_of(value, c'-', 3, &n)
    return n == 4 and value.n == 2 and is_odd_hex(value, 127)


cdef bint is_watched(const ServiceImport* s, Env* env, Span header, bint* by_header) noexcept nogil:
    by_header[0] = False
    if s.latency.n == 0:
        return False
    if s.sampling >= 100 or (s.sampling > 0 and <int64_t>(env_random(env) % 100) <= s.sampling):
        return True
    by_header[0] = trace_asks(header)
    return by_header[0]


cdef void report_put(ServiceImport* s, int status, Span requestor, Span responder, Span header, int64_t start,
                     int64_t service, int64_t total, Span reply) noexcept nogil:
    cdef Span texts[5]
    cdef int64_t num[5]
    if s.latency.n == 0:        # nobody wants it any more
        return
    texts[0] = s.latency
    texts[1] = requestor
    texts[2] = responder
    texts[3] = header
    texts[4] = reply
    num[0] = s.to.id
    num[1] = status
    num[2] = start
    num[3] = max(service, <int64_t>0)
    num[4] = total
    inbox_put(&s.account.engine.inbox, IN_LATENCY, 0, texts, 5, num, 5)


cdef void report_begin(Response* r, Client* src, Span header) noexcept nogil:
    # Answers to this request are measured; header: its own, where that asked for it.
    cdef Draft d
    if src == NULL:
        return
    draft_open(&d)
    client_describe(src, src.account.name, span(NULL, 0), r.of.share, False, &d)
    if not d.failed and bytes_add(&r.report, d.p, d.n) == 0:
        r.n_requestor = <uint32_t>d.n
        if header.n <= TRACE_HEADER_MAX:
            bytes_add(&r.report, header.p, header.n)
        r.rtt = src.rtt
        r.began = src.engine.env.now
    draft_free(&d)


cdef inline Span report_requestor(const Response* r) noexcept nogil:
    return span(r.report.data, r.n_requestor)


cdef inline Span report_header(const Response* r) noexcept nogil:
    return span(r.report.data + r.n_requestor, <uint32_t>(r.report.n - r.n_requestor))


cdef void report_failure(const Response* r, int status) noexcept nogil:
    report_put(r.of, status, report_requestor(r), span(NULL, 0), report_header(r), r.began - r.rtt, 0, 0,
               span(NULL, 0))


cdef void report_answer(const Response* r, const Client* by, Span reply) noexcept nogil:
    # by: NULL where the answer is not a connection's. An answer that comes from another server of the cluster, or of another
    # one, was measured there, too.
    cdef Draft d
    cdef Engine* e = r.at.engine
    cdef int64_t service = e.env.now - r.began
    cdef int64_t rtt = 0
    cdef bint elsewhere = by != NULL and (by.kind == KIND_ROUTER or by.kind == KIND_GATEWAY)
    draft_open(&d)
    if by != NULL and not elsewhere:
        rtt = by.rtt
        client_describe(by, by.account.name, span(NULL, 0), True, False, &d)
    report_put(r.of, REPORT_OK, report_requestor(r), draft_span(&d), report_header(r), r.began - r.rtt, service - rtt,
               r.rtt + service, reply if elsewhere else span(NULL, 0))
    draft_free(&d)


cdef void report_bad(ServiceImport* s, Client* src, Span header) noexcept nogil:
    # A request that nobody can answer.
    cdef Draft d
    if src == NULL:
        return
    draft_open(&d)
    client_describe(src, src.account.name, span(NULL, 0), s.share, False, &d)
    report_put(s, REPORT_BAD, draft_span(&d), span(NULL, 0), header, src.engine.env.now - src.rtt, 0, 0, span(NULL, 0))
    draft_free(&d)
