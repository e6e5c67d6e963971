# The subjects that a consumer's own name stands in: of acks, of flow control, of requests.

cdef enum:
    ACK_SUBJECT_ROOM = 1280
    ACK_PREFIX_MAX = ACK_SUBJECT_ROOM - 5 * 21


cdef int add_ack_name(Bytes* b, const Stream* s, bint long_form) noexcept nogil:
    # What stands between $JS.ACK. (or $JS.FC.) and the consumer's name.
    if long_form:
        if s.place.domain.n:
            if add_span(b, s.place.domain) < 0:
                return -1
        elif add_text(b, b"_") < 0:
            return -1
        if add_text(b, b".") < 0 or add_span(b, s.place.account_hash) < 0 or add_text(b, b".") < 0:
            return -1
    if add_span(b, s.cfg.name) < 0:
        return -1
    return add_text(b, b".")


cdef int make_ack_prefix(Consumer* c) noexcept nogil:
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if (add_text(&b, b"$JS.ACK.") < 0 or add_ack_name(&b, c.s, c.s.place.long_acks) < 0
            or add_span(&b, c.cfg.name) < 0 or add_text(&b, b".") < 0 or b.n > ACK_PREFIX_MAX):
        bytes_free(&b)
        return -1
    c.ack_prefix = b.data
    c.n_ack_prefix = <uint32_t>b.n
    return 0


cdef void* subscribe_to(Consumer* c, const char* prefix, bint long_form, const char* suffix, int hears,
                        inbound_fn fn) noexcept nogil:
    cdef Bytes b
    cdef void* sub = NULL
    memset(&b, 0, sizeof(Bytes))
    if (add_text(&b, prefix) == 0 and add_ack_name(&b, c.s, long_form) == 0 and add_span(&b, c.cfg.name) == 0
            and add_text(&b, suffix) == 0):
        sub = c.env.out.subscribe(c.env.out.ctx, c.s.account, span(b.data, <uint32_t>b.n), hears, fn, c)
    bytes_free(&b)
    return sub


# ---- what an ack subject tells ---------------------------------------------------------------------------------------

cdef struct AckTokens:
    # From the ack subject. Tokens that are no numbers are taken as impossibly large.
    uint64_t deliveries
    uint64_t sseq
    uint64_t dseq


cdef uint64_t take_number(Span* s) noexcept nogil:
    # The first token as a number, its dot taken too.
    cdef uint64_t v = 0
    cdef uint32_t i = 0
    cdef bint good = True
    while i < s.n and s.p[i] != c'.':
        if s.p[i] < c'0' or s.p[i] > c'9' or i >= 19:
            good = False
        else:
            v = v * 10 + (s.p[i] - c'0')
        i += 1
    good = good and i > 0
    if i < s.n:
        i += 1
    s.p += i
    s.n -= i
    return v if good else UINT64_MAX
