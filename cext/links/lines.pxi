# What servers say to each other, line by line: bytes in, one operation out, no socket and no copy. The grammar of the four
# dialects is nats-server's (docs/links.md has it in a table). `scanned` remembers how far a line's end was looked for, so that
# nothing is scanned twice.

cdef enum:
    ACK_DOTS = 8                # in `$JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<time>.<pending>`
    SIZE_DIGITS = 9

cdef struct Verb:
    const char* text
    int kind
    int dialects                # bits of 1 << Dialect
    int form                    # VERB_*

cdef enum:
    VERB_BARE = 0               # nothing of what follows matters
    VERB_WORDS = 1              # the rest of the line as it is
    VERB_FIELDS = 2
    VERB_ORIGIN = 4             # an origin comes first, on routes
    VERB_HEADER = 8             # the size of the headers stands before that of the whole

    ALL = (1 << DIALECT_ROUTE) | (1 << DIALECT_ACCOUNT) | (1 << DIALECT_LEAF) | (1 << DIALECT_GATEWAY)
    ROUTES = (1 << DIALECT_ROUTE) | (1 << DIALECT_ACCOUNT)
    LEAFS = 1 << DIALECT_LEAF
    GATEWAYS = 1 << DIALECT_GATEWAY
    N_VERBS = 18

cdef Verb[N_VERBS] VERBS = [
    Verb(b"RMSG", LINE_MESSAGE, ROUTES | GATEWAYS, VERB_FIELDS),
    Verb(b"HMSG", LINE_MESSAGE, ALL, VERB_FIELDS | VERB_HEADER),
    Verb(b"LMSG", LINE_MESSAGE, ROUTES, VERB_FIELDS | VERB_ORIGIN | VERB_HEADER),
    Verb(b"LMSG", LINE_MESSAGE, LEAFS, VERB_FIELDS),
    Verb(b"RS+", LINE_INTEREST, ROUTES | GATEWAYS, VERB_FIELDS),
    Verb(b"RS-", LINE_NO_INTEREST, ROUTES | GATEWAYS, VERB_FIELDS),
    Verb(b"LS+", LINE_INTEREST, ROUTES, VERB_FIELDS | VERB_ORIGIN),
    Verb(b"LS-", LINE_NO_INTEREST, ROUTES, VERB_FIELDS | VERB_ORIGIN),
    Verb(b"LS+", LINE_INTEREST, LEAFS, VERB_FIELDS),
    Verb(b"LS-", LINE_NO_INTEREST, LEAFS, VERB_FIELDS),
    Verb(b"A+", LINE_ACCOUNT, GATEWAYS, VERB_FIELDS),
    Verb(b"A-", LINE_NO_ACCOUNT, GATEWAYS, VERB_FIELDS),
    Verb(b"PING", LINE_PING, ALL, VERB_BARE),
    Verb(b"PONG", LINE_PONG, ALL, VERB_BARE),
    Verb(b"INFO", LINE_INFO, ALL, VERB_WORDS),
    Verb(b"CONNECT", LINE_CONNECT, ALL, VERB_WORDS),
    Verb(b"-ERR", LINE_ERR, ALL, VERB_WORDS),
    Verb(b"+OK", LINE_OK, ALL, VERB_BARE),
]


cdef inline bint is_blank(uint8_t ch) noexcept nogil:
    return ch == c' ' or ch == c'\t'


cdef bint field_next(Span* rest, Span* field) noexcept nogil:
    # Takes the next field off a line; False: there is none.
    cdef const uint8_t* p = rest.p
    cdef const uint8_t* end = rest.p + rest.n
    while p < end and is_blank(p[0]):
        p += 1
    field.p = p
    while p < end and not is_blank(p[0]):
        p += 1
    field.n = <uint32_t>(p - field.p)
    rest.p = p
    rest.n = <uint32_t>(end - p)
    return field.n > 0


cdef bint field_last(Span* rest, Span* field) noexcept nogil:
    # Takes the last field off a line.
    cdef uint32_t n = rest.n, end
    while n and is_blank(rest.p[n - 1]):
        n -= 1
    end = n
    while n and not is_blank(rest.p[n - 1]):
        n -= 1
    field.p = rest.p + n
    field.n = end - n
    rest.n = n
    return field.n > 0


cdef int64_t size_of(Span s) noexcept nogil:
    # Up to nine digits; -1 otherwise.
    cdef int64_t v = 0
    cdef uint32_t i
    if s.n == 0 or s.n > SIZE_DIGITS:
        return -1
    for i in range(s.n):
        if s.p[i] < c'0' or s.p[i] > c'9':
            return -1
        v = v * 10 + (s.p[i] - c'0')
    return v


cdef bint is_sign(Span field, uint8_t sign) noexcept nogil:
    return field.n == 1 and field.p[0] == sign


cdef int verb_find(int dialect, const uint8_t* p, size_t n, const Verb** found) noexcept nogil:
    # LINE_READ, LINE_MORE while it may still become a verb, or LINE_UNKNOWN.
    cdef const char* text
    cdef size_t i, length
    cdef int k
    cdef bint may_be = False
    for k in range(N_VERBS):
        if not VERBS[k].dialects & 1 << dialect:
            continue
        text = VERBS[k].text
        length = strlen(text)
        i = 0
        while i < length and i < n and p[i] == <uint8_t>text[i]:
            i += 1
        if i == length:
            found[0] = &VERBS[k]
            return LINE_READ
        may_be = may_be or i == n
    return LINE_MORE if may_be else LINE_UNKNOWN


cdef inline bint names_account(const LinkParser* ps) noexcept nogil:
    return ps.dialect == DIALECT_ROUTE or ps.dialect == DIALECT_GATEWAY


cdef int interest_parse(Line* line, Span rest) noexcept nogil:
    # subject [queue weight], or behind a minus subject [queue].
    cdef Span field
    cdef int64_t weight
    if not field_next(&rest, &line.subject):
        return LINE_ARGUMENTS
    if not field_next(&rest, &line.queue):
        return LINE_READ
    if line.kind == LINE_INTEREST:
        weight = size_of(field) if field_next(&rest, &field) else -1
        if weight < 0:
            return LINE_ARGUMENTS
        line.weight = <uint32_t>weight
    return LINE_ARGUMENTS if field_next(&rest, &field) else LINE_READ


cdef int message_parse(LinkParser* ps, Line* line, const Verb* verb, Span rest, const uint8_t* p, size_t n) noexcept nogil:
    # subject [reply | + reply queues | bar queues] [size of headers] size; then the payload and CRLF.
    cdef Span field
    cdef int64_t total, header = 0
    cdef size_t whole
    total = size_of(field) if field_last(&rest, &field) else -1
    if total >= 0 and verb.form & VERB_HEADER:
        header = size_of(field) if field_last(&rest, &field) else -1
    if total < 0 or header < 0 or header > total or not field_next(&rest, &line.subject):
        return LINE_ARGUMENTS
    if field_next(&rest, &field):
        line.chosen = is_sign(field, c'+') or is_sign(field, c'|')
        if not line.chosen:
            line.reply = field
            if field_next(&rest, &field):
                return LINE_ARGUMENTS
        elif is_sign(field, c'+') and not field_next(&rest, &line.reply):
            return LINE_ARGUMENTS
        else:
            line.queues = rest
    if ps.max_payload >= 0 and total > ps.max_payload:
        ps.need = <size_t>total
        return LINE_PAYLOAD
    whole = line.size + <size_t>total + 2
    if n < whole:
        ps.need = whole
        return LINE_MORE
    if p[whole - 2] != c'\r' or p[whole - 1] != c'\n':
        return LINE_UNKNOWN
    line.header = span(p + line.size, <uint32_t>header)
    line.data = span(p + line.size + header, <uint32_t>(total - header))
    line.size = whole
    return LINE_READ


cdef int fields_parse(LinkParser* ps, Line* line, const Verb* verb, const uint8_t* p, size_t n) noexcept nogil:
    cdef Span rest = line.args
    cdef Span field
    if verb.form & VERB_ORIGIN and not field_next(&rest, &line.origin):
        return LINE_ARGUMENTS
    if names_account(ps) and not field_next(&rest, &line.account):
        return LINE_ARGUMENTS
    if line.kind == LINE_MESSAGE:
        return message_parse(ps, line, verb, rest, p, n)
    if line.kind == LINE_ACCOUNT or line.kind == LINE_NO_ACCOUNT:
        return LINE_ARGUMENTS if field_next(&rest, &field) else LINE_READ
    return interest_parse(line, rest)


cdef int line_parse(LinkParser* ps, const uint8_t* p, size_t n, Line* line) noexcept nogil:
    cdef const Verb* verb = NULL
    cdef const uint8_t* end
    cdef size_t start, stop
    cdef int rc
    ps.need = 0
    memset(line, 0, sizeof(Line))
    rc = verb_find(ps.dialect, p, n, &verb)
    if rc != LINE_READ:
        return rc
    start = strlen(verb.text)
    if verb.form != VERB_BARE and n > start and not is_blank(p[start]):
        return LINE_UNKNOWN
    ps.scanned = max(ps.scanned, start)
    end = <const uint8_t*>memchr(p + ps.scanned, c'\n', n - ps.scanned) if n > ps.scanned else NULL
    if end == NULL:
        ps.scanned = n
        return LINE_LONG if <int64_t>(n - start) > ps.max_line else LINE_MORE
    stop = <size_t>(end - p)
    ps.scanned = stop           # a payload may be to come
    line.size = stop + 1
    if stop > start and p[stop - 1] == c'\r':
        stop -= 1
    while start < stop and is_blank(p[start]):
        start += 1
    if <int64_t>(stop - start) > ps.max_line:
        return LINE_LONG
    line.kind = verb.kind
    line.args = span(p + start, <uint32_t>(stop - start))
    rc = fields_parse(ps, line, verb, p, n) if verb.form & VERB_FIELDS else LINE_READ
    if rc != LINE_MORE:
        ps.scanned = 0
    return rc


cdef bint ack_subject_take(Span* reply, Span* subject) noexcept nogil:
    cdef uint32_t start = MAPPED_REPLY if is_mapped(reply[0]) else 0, i, dots = 0
    if reply.n < start + 8 or memcmp(reply.p + start, b"$JS.ACK.", 8) != 0:
        return False
    for i in range(start, reply.n):
        if reply.p[i] == c'.':
            dots += 1
        elif reply.p[i] == c'@' and dots >= ACK_DOTS:
            subject[0] = span(reply.p + i + 1, reply.n - i - 1)
            reply.n = i
            return True
    return False
