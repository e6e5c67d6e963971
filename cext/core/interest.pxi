# Who wants what is sent to a subject: subscriptions that listen, how much waits for them, and watches, which hear when the
# first one comes and the last one goes.

cdef bint outlet_has_interest(void* ctx, void* account, Span subject) noexcept nogil:
    cdef const Match* found
    cdef uint32_t i, j
    cdef Sub* s
    cdef Response* r
    if is_mapped(subject):
        return True         # another cluster waits there, whose interest may be on its way still
    found = sublist_match((<Account*>account).subs, subject)
    if found == NULL:
        return False
    for i in range(found.n_plain):
        s = found.plain[i]
        if s.closed or not s.listens:
            continue
        if s.link != LINK_REPLY:
            return True
        r = response_find(<Engine*>ctx, reply_id(subject))
        if r != NULL and r.at == account and outlet_has_interest(ctx, r.to, r.reply):
            return True
    for i in range(found.n_groups):
        for j in range(found.groups[i].n):
            if found.groups[i].subs[j].listens and not found.groups[i].subs[j].closed:
                return True
    return False


cdef uint32_t count_exact(Account* a, Span subject, Span group) noexcept nogil:
    cdef const Match* found = sublist_match(a.subs, subject)
    cdef Sub* s
    cdef uint32_t i, j, n = 0
    if found == NULL:
        return 0
    if group.n == 0:
        for i in range(found.n_plain):
            s = found.plain[i]
            if s.listens and not s.closed and span_eq(s.subject, subject):
                n += 1
        return n
    for i in range(found.n_groups):
        if not span_eq(found.groups[i].name, group):
            continue
        for j in range(found.groups[i].n):
            s = found.groups[i].subs[j]
            if s.listens and not s.closed and span_eq(s.subject, subject):
                n += 1
    return n


cdef uint32_t outlet_heard_by(void* ctx, void* account, Span subject) noexcept nogil:
    return count_exact(<Account*>account, subject, span(NULL, 0))


cdef int64_t most_queued(Account* a, Span subject) noexcept nogil:
    # Of the connections whose subscriptions, shadows too, match: the most bytes that wait for one; -1: there is none.
    cdef const Match* found = sublist_match(a.subs, subject)
    cdef int64_t most = -1
    cdef uint32_t i, j
    if found == NULL:
        return -1
    for i in range(found.n_plain):
        most = max(most, queued_for(found.plain[i]))
    for i in range(found.n_groups):
        for j in range(found.groups[i].n):
            most = max(most, queued_for(found.groups[i].subs[j]))
    return most


cdef int64_t queued_for(const Sub* s) noexcept nogil:
    cdef const Client* c = s.client
    if c == NULL and s.link == LINK_SHADOW and s.shadow != NULL:
        c = s.shadow.client
    return -1 if s.closed or c == NULL else <int64_t>min(client_pending(c), <uint64_t>INT64_MAX)


cdef bint outlet_still_full(void* ctx, void* account, Span subject) noexcept nogil:
    return most_queued(<Account*>account, subject) > <int64_t>(full_pending(<Engine*>ctx) // 2)


cdef void interest_changed(Account* a, Sub* s, int delta) noexcept nogil:
    # A subscription begins (1) or ends (-1): other servers are told, and the watches on exactly its subject and group.
    cdef Watch* w
    cdef Watch* after
    if a.engine.peers != NULL:
        a.engine.peers.interest(a.engine.peers, a, s, delta * <int>s.weight)
    if a.watches.n == 0 or not s.listens:
        return
    w = <Watch*>strmap_get(&a.watches, s.subject)
    while w != NULL:
        after = w.next
        if span_eq(w.group, s.queue):
            w.count += delta
            if w.count == 0:
                w.fn(w.target, False)
            elif w.count == 1 and delta > 0:
                w.fn(w.target, True)
        w = after


cdef void* outlet_watch(void* ctx, void* account, Span subject, Span group,
                        void (*fn)(void* target, bint active) noexcept nogil, void* target) noexcept nogil:
    cdef Account* a = <Account*>account
    cdef Watch* w = <Watch*>calloc(1, sizeof(Watch) + subject.n + group.n)
    cdef uint8_t* texts
    if w == NULL:
        return NULL
    texts = <uint8_t*>w + sizeof(Watch)
    memcpy(texts, subject.p, subject.n)
    if group.n:
        memcpy(texts + subject.n, group.p, group.n)
    w.subject.p = texts
    w.subject.n = subject.n
    w.group.p = texts + subject.n
    w.group.n = group.n
    w.account = a
    w.fn = fn
    w.target = target
    w.next = <Watch*>strmap_get(&a.watches, subject)
    if strmap_put(&a.watches, subject, w) != 0:
        free(w)
        return NULL
    account_hold(a)
    w.count = count_exact(a, subject, group)
    fn(target, w.count > 0)
    return w


cdef void outlet_unwatch(void* ctx, void* handle) noexcept nogil:
    cdef Watch* w = <Watch*>handle
    cdef Account* a = w.account
    cdef Watch* at = <Watch*>strmap_get(&a.watches, w.subject)
    if at == w:
        if w.next == NULL:
            strmap_del(&a.watches, w.subject)
        else:
            strmap_put(&a.watches, w.subject, w.next)
    else:
        while at != NULL and at.next != w:
            at = at.next
        if at != NULL:
            at.next = w.next
    account_release(a)
    free(w)
