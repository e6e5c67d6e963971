# Subscriptions of connections: they begin and end.

cdef enum:
    SID_QUOTED_MAX = 128


cdef void sub_drop(Client* c, Sub* s) noexcept nogil:
    cdef Account* a = <Account*>s.account
    if s.closed:
        return
    list_remove(&s.node)
    c.n_subs -= 1
    if c.engine.trace:
        trace_line(c, TRACE_SUB, b"DELSUB", s.sid)
    strmap_del(&c.subs, s.sid)
    if s.shadow != NULL:
        shadows_drop(s)
    sublist_remove(a.subs, s)
    interest_changed(a, s, -1)
    if a.replies.n_awaiting:
        interest_gone(a, s.subject)


cdef void client_drop_subs(Client* c) noexcept nogil:
    while not list_empty(&c.own_subs):
        sub_drop(c, sub_at(list_first(&c.own_subs)))


cdef uint32_t count_tokens(Span s) noexcept nogil:
    cdef uint32_t i, n = 1
    for i in range(s.n):
        if s.p[i] == c'.':
            n += 1
    return n


cdef Sub* sub_add(Client* c, Account* a, Span subject, Span queue, Span sid, uint32_t weight,
                  uint32_t origin) noexcept nogil:
    # A subscription in an account, its connection's or another one that the connection holds. NULL: no memory.
    cdef Sub* s = sub_new(subject, queue, sid)
    if s == NULL:
        return NULL
    s.client = c
    s.account = a
    s.hears = c.hears
    s.weight = weight
    s.origin = origin
    s.listens = True
    if strmap_put(&c.subs, s.sid, s) != 0:
        sub_free(s)
        return NULL
    if sublist_insert(a.subs, s) != 0:
        strmap_del(&c.subs, s.sid)
        sub_free(s)
        return NULL
    list_push_front(&c.own_subs, &s.node)
    c.n_subs += 1
    interest_changed(a, s, 1)
    return s


cdef void sub_reweigh(Sub* s, uint32_t weight) noexcept nogil:
    # Another number of members of its queue group. No message is under way.
    cdef Account* a = <Account*>s.account
    cdef Peers* peers = a.engine.peers
    cdef int delta = <int>weight - <int>s.weight
    cdef Sub* shadow = s.shadow
    s.weight = weight
    sublist_reweighed(a.subs, s)
    peers.interest(peers, a, s, delta)
    while shadow != NULL:
        shadow.weight = weight
        sublist_reweighed((<Account*>shadow.account).subs, shadow)
        peers.interest(peers, <Account*>shadow.account, shadow, delta)
        shadow = shadow.next_shadow


cdef bint client_may_add(Client* c) noexcept nogil:
    # Whether c may have another subscription; where not, it has heard why.
    cdef const EngineLimits* all_have = &c.engine.limits
    if ((all_have.max_subscriptions > 0 and c.n_subs >= <uint64_t>all_have.max_subscriptions)
            or (c.account.max_subscriptions >= 0 and c.n_subs >= <uint64_t>c.account.max_subscriptions)
            or (c.max_subscriptions >= 0 and c.n_subs >= <uint64_t>c.max_subscriptions)):
        note_text(c, b"maximum subscriptions exceeded")
        c.protocol.refuse(c, 0, span_c(b"maximum subscriptions exceeded"))
        return False
    return True


cdef bint sub_begin(Client* c, Span subject, Span queue, Span sid, uint32_t weight, uint32_t origin) noexcept nogil:
    # Whether c has the subscription; where not, it has heard why.
    cdef Sub* s
    cdef Engine* e = c.engine
    if c.perms != NULL and not perms_can_subscribe(c.perms, subject, queue):
        violation(c, b"Subscription to", subject, queue, sid, b"")
        return False
    if queue.n == 5 and memcmp(queue.p, b"_sys_", 5) == 0:
        violation(c, b"Subscription to", subject, queue, sid, b"")
        return False
    if e.limits.max_sub_tokens > 0 and count_tokens(subject) > <uint64_t>e.limits.max_sub_tokens:
        queue.n = 0
        violation(c, b"Subscription to", subject, queue, sid, b", too many tokens")
        return False
    if not client_may_add(c):
        return False
    if strmap_get(&c.subs, sid) == NULL:
        if not subject_is_valid(subject):
            c.protocol.refuse(c, 0, span_c(b"Invalid Subject"))
            return False
        s = sub_add(c, c.account, subject, queue, sid, weight, origin)
        if s == NULL:
            client_close(c, CLOSE_WRITE_ERROR)
            return False
        s.filtered = c.perms != NULL and perms_must_filter(c.perms, subject, queue)
        if c.account.streams != NULL:
            shadows_add(c.account, s)
    return True


cdef void sub_end(Client* c, Span sid, uint64_t max) noexcept nogil:
    # After so many messages, with those that it has had; 0: now.
    cdef Sub* s = <Sub*>strmap_get(&c.subs, sid)
    if s == NULL:
        return
    if max > 0 and s.delivered < max:
        s.max = max
    else:
        sub_drop(c, s)


cdef void client_restrict(Client* c, Permissions* perms) noexcept nogil:
    # What it may do from now on. Subscriptions that it may not have any more end, and it hears of each.
    cdef ListWalk all = list_walk(&c.own_subs)
    cdef Sub* s = sub_at(list_step(&all))
    cdef uint8_t text[SID_QUOTED_MAX + 8]
    cdef size_t n
    if perms != NULL:
        perms_hold(perms)
    perms_release(c.perms)
    c.perms = perms
    while s != NULL:
        s.filtered = perms != NULL and perms_must_filter(perms, s.subject, s.queue)
        if perms != NULL and not perms_can_subscribe(perms, s.subject, s.queue):
            memcpy(text, b" (sid ", 6)
            n = 6 + put_quoted(text + 6, SID_QUOTED_MAX, s.sid)
            memcpy(text + n, b")", 2)
            violation(c, b"Subscription to", s.subject, s.queue, s.sid, <const char*>text)
            sub_drop(c, s)
        s = sub_at(list_step(&all))
