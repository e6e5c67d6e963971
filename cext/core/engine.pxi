# The engine: accounts, clients' lives, and the way out that the layers below are handed.

cdef int outlet_send(void* ctx, const Msg* m) noexcept nogil:
    # Whatever message led to it, this one has come by no import.
    cdef Engine* e = <Engine*>ctx
    cdef const Via* outer = e.via
    cdef int taken
    e.via = NULL
    taken = engine_route(e, NULL, m)
    e.via = outer
    return taken


cdef void* outlet_subscribe(void* ctx, void* account, Span subject, int hears, inbound_fn fn,
                            void* target) noexcept nogil:
    return own_subscribe(<Account*>account, subject, hears, fn, target)


cdef void outlet_unsubscribe(void* ctx, void* handle) noexcept nogil:
    own_unsubscribe(<Sub*>handle)


cdef bint outlet_has_interest(void* ctx, void* account, Span subject) noexcept nogil:
    cdef const Match* found = sublist_match((<Account*>account).subs, subject)
    cdef uint32_t i, j
    cdef Sub* s
    cdef Response* r
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


cdef void outlet_event(void* ctx, const Event* ev) noexcept nogil:
    # The account's id goes in front of the event's own numbers.
    cdef int64_t num[6]
    num[0] = (<Account*>ev.account).id if ev.account != NULL else 0
    memcpy(&num[1], ev.num, sizeof(ev.num))
    inbox_put(&(<Engine*>ctx).inbox, ev.kind, 0, ev.text, 3, num, 6)


cdef enum:
    PENDING_MUCH = 524288   # bytes: whoever sends to a client that has so many to take rests, while they are in the cache


cdef void limit_pending(EngineLimits* limits, int64_t most) noexcept nogil:
    limits.max_pending = most
    limits.much_pending = min(<uint64_t>PENDING_MUCH, <uint64_t>(most - most // 4))


cdef int engine_init(Engine* e, int inbox_fd) noexcept nogil:
    memset(e, 0, sizeof(Engine))
    e.inbox.fd = inbox_fd
    e.inbox.requests_max = 10000
    e.inbox.asking_max = 128
    e.env.files = posix_files()
    e.env.system = posix_system()
    e.env.out.ctx = e
    e.env.out.send = outlet_send
    e.env.out.subscribe = outlet_subscribe
    e.env.out.unsubscribe = outlet_unsubscribe
    e.env.out.has_interest = outlet_has_interest
    e.env.out.still_full = outlet_still_full
    e.env.out.watch = outlet_watch
    e.env.out.unwatch = outlet_unwatch
    e.env.out.event = outlet_event
    draft_open(&e.mapped)
    e.responses.sweep.fn = responses_sweep
    e.responses.sweep.owner = e
    e.limits.max_payload = 1024 * 1024
    e.limits.max_control_line = 4096
    limit_pending(&e.limits, 64 * 1024 * 1024)
    e.limits.max_connections = 65536
    e.limits.headers = True
    e.limits.stall = True
    return 0


cdef void engine_free(Engine* e) noexcept nogil:
    # Every client, stream and consumer is gone before.
    accounts_free(e)
    u64map_free(&e.responses.by_id)
    free(e.responses.buckets)
    bytes_free(&e.server_name)
    draft_free(&e.mapped)
    chunks_free(e)
    bytes_free(&e.inbox.items)
    free(e.env.timers.a)


cdef void client_init(Client* c, Engine* e, Worklist* work, Account* a, uint64_t cid, int kind,
                      const Protocol* protocol) noexcept nogil:
    memset(c, 0, sizeof(Client))
    c.cid = cid
    c.kind = kind
    c.hears = HEARD_BY[kind]
    c.protocol = protocol
    c.engine = e
    c.work = work
    c.account = a
    account_hold(a)
    c.max_subscriptions = c.max_payload = -1
    c.verbose = True
    c.pedantic = True
    c.echo = True


cdef void client_leave(Client* c) noexcept nogil:
    if c.member:
        c.account.members -= 1
        c.member = False


cdef void client_forget_replies(Client* c) noexcept nogil:
    cdef uint32_t i
    for i in range(c.replies.cap):
        if c.replies.keys[i] != NULL:
            free(c.replies.vals[i])
    strmap_free(&c.replies)


cdef bint client_join(Client* c, Account* a) noexcept nogil:
    client_leave(c)
    client_forget_replies(c)    # of whoever it was before
    if c.account != a:
        client_drop_subs(c)
        account_hold(a)
        account_release(c.account)
        c.account = a
    if a.max_members >= 0 and a.members >= <uint64_t>a.max_members:
        return False
    a.members += 1
    c.member = True
    return True


cdef int64_t client_max_payload(const Client* c) noexcept nogil:
    cdef int64_t all_have = c.engine.limits.max_payload, own = c.account.max_payload
    if own < 0 or 0 <= c.max_payload < own:
        own = c.max_payload
    if own < 0:
        return all_have
    return own if all_have < 0 else min(own, all_have)


cdef void client_free(Client* c) noexcept nogil:
    cdef Chunk* k
    client_drop_subs(c)
    strmap_free(&c.subs)
    client_forget_replies(c)
    while c.head != NULL:
        k = c.head
        c.head = k.next
        chunk_release(c.engine, k)
    c.tail = NULL
    bytes_free(&c.user)
    client_leave(c)
    account_release(c.account)
    perms_release(c.perms)
    c.perms = NULL


cdef void client_close(Client* c, int reason) noexcept nogil:
    # Takes effect in its reactor's turn; from now on nothing is delivered or written.
    if c.closing:
        return
    c.closing = reason
    client_leave(c)
    c.next_closing = c.work.closing
    c.work.closing = c
    if reason == CLOSE_SLOW_PENDING or reason == CLOSE_SLOW_DEADLINE:
        c.engine.stats.slow_consumers += 1
        c.engine.stats.slow_clients += 1
    elif reason == CLOSE_STALE:
        c.engine.stats.stale += 1
