# Mappings of an account: another subject for what its clients publish, before anything else looks at it. A literal source
# comes before the patterns, which are tried in their order; what one gives is not mapped again.

cdef struct Mapping:
    # One allocation, with its source.
    Mapping* next
    Span source
    MapDest* dests          # owned
    uint32_t n_dests

cdef struct Mappings:
    StrMap literals         # source -> Mapping*
    Mapping* patterns
    Mapping** last


cdef Mappings* mappings_new() noexcept nogil:
    cdef Mappings* m = <Mappings*>calloc(1, sizeof(Mappings))
    if m != NULL:
        m.last = &m.patterns
    return m


cdef void mapping_free(Mapping* m) noexcept nogil:
    cdef uint32_t i
    for i in range(m.n_dests):
        transform_free(m.dests[i].transform)
    free(m.dests)
    free(m)


cdef void mappings_free(Mappings* all) noexcept nogil:
    cdef Mapping* m
    cdef uint32_t i
    if all == NULL:
        return
    while all.patterns != NULL:
        m = all.patterns
        all.patterns = m.next
        mapping_free(m)
    for i in range(all.literals.cap):
        if all.literals.keys[i] != NULL:
            mapping_free(<Mapping*>all.literals.vals[i])
    strmap_free(&all.literals)
    free(all)


cdef MapDest* mappings_add(Mappings* all, Span source, uint32_t n_dests) noexcept nogil:
    cdef Mapping* m = <Mapping*>calloc(1, sizeof(Mapping) + source.n)
    cdef uint8_t* text
    if m == NULL:
        return NULL
    text = <uint8_t*>(m + 1)
    m.source = sub_text(&text, source)
    m.dests = <MapDest*>calloc(max(n_dests, <uint32_t>1), sizeof(MapDest))
    if m.dests == NULL:
        free(m)
        return NULL
    m.n_dests = n_dests
    if not subject_is_literal(source):
        all.last[0] = m
        all.last = &m.next
    elif strmap_get(&all.literals, source) != NULL or strmap_put(&all.literals, source, m) != 0:
        mapping_free(m)
        return NULL
    return m.dests


cdef bint mappings_select(const Mappings* all, Env* env, Span subject, Draft* d) noexcept nogil:
    # Whether it is mapped, and adds what to: nothing where the message is to be lost.
    cdef const Mapping* m = <const Mapping*>strmap_get(<StrMap*>&all.literals, subject)
    cdef uint32_t i, drawn = 0
    if m == NULL:
        m = all.patterns
        while m != NULL and not subject_matches(m.source, subject):
            m = m.next
    if m == NULL:
        return False
    if m.n_dests > 1 or (m.n_dests and m.dests[0].upto < 100):
        drawn = <uint32_t>(env_random(env) % 100)
    for i in range(m.n_dests):
        if drawn < m.dests[i].upto:
            transform_apply(m.dests[i].transform, env, subject, d)
            break
    return True


cdef inline bint span_has(Span s, const char* start) noexcept nogil:
    # Whether it begins so, and goes on.
    cdef uint32_t n = <uint32_t>strlen(start)
    return s.n > n and span_starts(s, start, n)


cdef bint domain_select(Span prefix, Span subject, Draft* d) noexcept nogil:
    # Likewise, of what JetStream is asked by its domain's name. Clients put that before a bucket's subjects too. What is
    # neither that nor the API's is nobody's.
    cdef Span rest
    if subject.n <= prefix.n or memcmp(subject.p, prefix.p, prefix.n) != 0:
        return False
    rest = span(subject.p + prefix.n, subject.n - prefix.n)
    if not (span_has(rest, b"$KV.") or span_has(rest, b"$OBJ.")):
        if not (span_has(rest, b"STREAM.") or span_has(rest, b"CONSUMER.") or span_has(rest, b"DIRECT.")
                or span_has(rest, b"META.") or span_has(rest, b"SERVER.") or span_has(rest, b"ACCOUNT.")
                or (rest.n == 4 and memcmp(rest.p, b"INFO", 4) == 0)):
            return False
        draft_add(d, b"$JS.API.", 8)
    draft_add(d, rest.p, rest.n)
    return True


cdef bint account_renames(Account* a, Span subject, Draft* d) noexcept nogil:
    # Whether what is sent there goes elsewhere, and adds where to: before permissions are asked, for there is no way
    # round these by another name.
    if a.mappings != NULL and mappings_select(a.mappings, &a.engine.env, subject, d):
        return True
    return a.domain.n and not asks_elsewhere(a) and domain_select(a.domain, subject, d)


cdef Mappings* account_map(Account* a, Mappings* m) noexcept nogil:
    cdef Mappings* before = a.mappings
    a.mappings = m
    a.renames = m != NULL or a.domain.n > 0
    return before


cdef int account_domain(Account* a, Span prefix) noexcept nogil:
    cdef uint8_t* copy = <uint8_t*>malloc(max(prefix.n, <uint32_t>1))
    if copy == NULL:
        return -1
    memcpy(copy, prefix.p, prefix.n)
    free(<void*>a.domain.p)
    a.domain = span(copy, prefix.n)
    a.renames = a.mappings != NULL or a.domain.n > 0
    return 0
