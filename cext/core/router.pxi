# Routing: from a published message to the out buffers and handlers of everybody who subscribed.

cdef enum:
    # Bytes of a payload that several connections share. The kernel takes one piece of memory cheaper than two: at 1 KiB and four
    # receivers sharing costs 1.4 times what copying does, at 16 KiB 0.85 times.
    SHARED_MIN = 16384
    MAX_DEPTH = 24      # a route inside a route: streams, consumers and acks that lead to each other


cdef inline int hand_over(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # To a connection's subscription. A leaf node's cluster has what it sent, whichever way it asks.
    if s.origin and src != NULL and src.origin == s.origin:
        return 0
    return s.client.protocol.deliver(e, src, s, m)


cdef inline int deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    if s.closed or not s.hears & (1 << m.kind):
        return 0
    if s.client != NULL:
        return hand_over(e, src, s, m)
    if s.link:
        return link_deliver(e, src, s, m)
    return s.fn(s.target, m)


cdef void note_too_deep(Engine* e, const Msg* m) noexcept nogil:
    # A message that is dropped leaves a line in the log, one a second.
    cdef Event ev
    cdef char text[256]
    e.stats.too_deep += 1
    if e.env.mono < e.too_deep_again:
        return
    e.too_deep_again = e.env.mono + 1000000000
    memset(&ev, 0, sizeof(ev))
    ev.kind = EV_LOG
    ev.account = m.account
    ev.text[0].n = <uint32_t>snprintf(text, sizeof(text), b"Dropped a message for '%.*s', which accounts, streams and "
                                      b"consumers handed on to each other more than %d times", <int>min(m.dest.n, <uint32_t>100),
                                      <const char*>m.dest.p, <int>MAX_DEPTH)
    ev.text[0].p = <const uint8_t*>text
    outlet_event(e, &ev)


cdef inline uint32_t choose(Engine* e, const QueueGroup* g) noexcept nogil:
    # A member of the group, each as likely as its weight says.
    cdef uint64_t at = env_random(&e.env) % g.weight
    cdef uint32_t k = 0
    if g.weight == g.n:
        return <uint32_t>at
    while at >= g.subs[k].weight:
        at -= g.subs[k].weight
        k += 1
    return k


cdef bint is_for_several(const Match* found) noexcept nogil:
    # Whether more than one connection may take what is sent there.
    cdef uint32_t i, n = found.n_groups
    for i in range(found.n_plain):
        if n > 1:
            break
        n += found.plain[i].client != NULL or found.plain[i].link == LINK_SHADOW
    return n > 1


cdef int engine_route(Engine* e, Client* src, const Msg* m) noexcept nogil:
    cdef Account* a = <Account*>m.account
    cdef Sublist* subs = a.subs
    cdef const Match* found
    cdef const QueueGroup* g
    cdef uint32_t i, j, k
    cdef int taken = 0
    cdef const Msg* outer = e.sharing
    cdef Payload* outer_payload = e.shared
    if e.depth >= MAX_DEPTH:
        note_too_deep(e, m)
        return 0
    found = sublist_match(subs, m.dest)
    if found == NULL or (found.n_plain == 0 and found.n_groups == 0):
        match_done(subs, found)
        return 0
    e.depth += 1
    e.shared = NULL
    e.sharing = m if m.data.n >= SHARED_MIN and is_for_several(found) else NULL
    for i in range(found.n_plain):
        taken += deliver(e, src, found.plain[i], m)
    for i in range(found.n_groups):
        g = &found.groups[i]
        k = choose(e, g) if g.n > 1 else 0
        for j in range(g.n):
            if deliver(e, src, g.subs[k], m):
                taken += 1
                break
            k += 1
            if k == g.n:
                k = 0
    match_done(subs, found)
    e.depth -= 1
    if e.shared != NULL:
        payload_release(e, e.shared)
    e.sharing = outer
    e.shared = outer_payload
    return taken


cdef void engine_gc(Engine* e) noexcept nogil:
    sublists_gc(&e.waiting)
    accounts_gc(e)
