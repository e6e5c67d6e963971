# Routing: from a published message to the out buffers and handlers of everybody who subscribed.

cdef enum:
    # Bytes of a payload that several connections share. The kernel takes one piece of memory cheaper than two: at 1 KiB and four
    # receivers sharing costs 1.4 times what copying does, at 16 KiB 0.85 times.
    SHARED_MIN = 16384
    MAX_DEPTH = 24      # a route inside a route: streams, consumers and acks that lead to each other


cdef inline int hand_over(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # To a connection's subscription. A leaf node's cluster has what it sent, whichever way it asks.
    if s.origin and m.origin == s.origin:
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
    # A near member of the group, each as likely as its weight says.
    cdef uint64_t at = env_random(&e.env) % g.weight
    cdef uint32_t k = 0
    if g.weight == g.near:
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


cdef bint names_group(const Span* groups, Span name) noexcept nogil:
    cdef const uint8_t* p = groups.p
    cdef const uint8_t* end = groups.p + groups.n
    cdef const uint8_t* start
    while p < end:
        while p < end and p[0] == c' ':
            p += 1
        start = p
        while p < end and p[0] != c' ':
            p += 1
        if p - start == <ptrdiff_t>name.n and name.n and memcmp(start, name.p, name.n) == 0:
            return True
    return False


cdef inline bint is_echo(const Client* src, const Sub* s) noexcept nogil:
    # Whether another server would get back what it has sent.
    return src != NULL and s.client == src and src.kind > KIND_CLIENT


cdef int group_deliver(Engine* e, Client* src, const QueueGroup* g, const Msg* m) noexcept nogil:
    # To one member of a group, some of whom may be at other servers: a member of this cluster, each as likely as its weight
    # says; then one of a leaf node; then the nearest of the other clusters. What another server of this cluster has sent goes to
    # those who are here before all others. A leaf cluster has its own messages already.
    cdef uint32_t k = choose(e, g) if g.near > 1 else 0, j
    cdef Sub* s
    cdef Sub* other = NULL
    for j in range(g.near):
        s = g.subs[k]
        k = k + 1 if k + 1 < g.near else 0
        if s.closed or not s.hears & 1 << m.kind or (s.origin and s.origin == m.origin) or is_echo(src, s):
            continue
        if s.client != NULL and s.client.kind == KIND_ROUTER and not s.origin:
            return s.client.protocol.deliver(e, src, s, m)
        if s.client != NULL and s.client.kind >= KIND_ROUTER:
            if other == NULL:
                other = s
        elif deliver(e, src, s, m):
            return 1
    if other != NULL and other.client.protocol.deliver(e, src, other, m):
        return 1
    return far_deliver(e, src, g, m) if g.near < g.n else 0


cdef int far_deliver(Engine* e, Client* src, const QueueGroup* g, const Msg* m) noexcept nogil:
    # To the nearest of the other clusters that have members of a group.
    cdef Sub* nearest = NULL
    cdef Sub* s
    cdef uint32_t j
    for j in range(g.near, g.n):
        s = g.subs[j]
        if not s.closed and s.hears & 1 << m.kind and (nearest == NULL or s.client.rtt < nearest.client.rtt):
            nearest = s
    return nearest.client.protocol.deliver(e, src, nearest, m) if nearest != NULL else 0


cdef int target_add(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    cdef Peers* p = e.peers
    cdef Target* t = NULL
    cdef uint32_t i
    for i in range(e.first_target, p.n_targets):
        if p.targets[i].to == s.client and p.targets[i].by == e.importing:
            t = &p.targets[i]
            break
    if t == NULL:
        if array_room(&p.targets, &p.cap_targets, <uint64_t>p.n_targets + 1, sizeof(Target), 16) < 0:
            return 0
        t = &p.targets[p.n_targets]
        p.n_targets += 1
        memset(t, 0, sizeof(Target))
        t.to = s.client
        t.by = e.importing
        t.first = s
    if s.queue.n == 0:
        return 1
    if array_room(&p.picked, &p.cap_picked, <uint64_t>p.n_picked + 1, sizeof(Picked), 16) < 0:
        return 0
    p.picked[p.n_picked].sub = s
    p.picked[p.n_picked].next = 0
    p.n_picked += 1
    if t.picked:
        p.picked[t.last - 1].next = p.n_picked
    else:
        t.picked = p.n_picked
    t.last = p.n_picked
    return 1


cdef void targets_send(Engine* e, const Msg* m, uint32_t outer_target, uint32_t outer_picked) noexcept nogil:
    # Once to each server that was noted for this message. What was noted for the message around this one stays.
    cdef Peers* p = e.peers
    cdef Target t
    cdef uint32_t i
    for i in range(e.first_target, p.n_targets):
        t = p.targets[i]        # sending may move them
        t.to.protocol.send(e, &t, m)
    p.n_targets = e.first_target
    p.n_picked = outer_picked
    e.first_target = outer_target


cdef int engine_route(Engine* e, Client* src, const Msg* m) noexcept nogil:
    cdef Account* a = <Account*>m.account
    cdef Sublist* subs = a.subs
    cdef const Match* found
    cdef const QueueGroup* g
    cdef uint32_t i
    cdef int taken = 0
    cdef const Msg* outer = e.sharing
    cdef Payload* outer_payload = e.shared
    cdef uint32_t outer_target = e.first_target, outer_picked = 0
    if e.depth >= MAX_DEPTH:
        note_too_deep(e, m)
        return 0
    if e.peers != NULL and e.peers.answer != NULL and is_mapped(m.dest):
        taken = e.peers.answer(e.peers, src, m)
        if taken >= 0:
            return taken
        taken = 0
    found = sublist_match(subs, m.dest)
    if found == NULL or (found.n_plain == 0 and found.n_groups == 0):
        match_done(subs, found)
        return 0
    e.depth += 1
    e.shared = NULL
    e.sharing = m if m.data.n >= SHARED_MIN and is_for_several(found) else NULL
    if e.peers != NULL:
        e.first_target = e.peers.n_targets
        outer_picked = e.peers.n_picked
    for i in range(found.n_plain):
        taken += deliver(e, src, found.plain[i], m)
    for i in range(found.n_groups):
        g = &found.groups[i]
        if m.groups == NULL or names_group(m.groups, g.name):
            taken += group_deliver(e, src, g, m)
    if e.peers != NULL:
        targets_send(e, m, outer_target, outer_picked)
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
