# Interest that other servers are told of: counted for each subject and queue group of an account, so that each is told once.

cdef uint64_t told_hash(Span subject, Span queue) noexcept nogil:
    return table_hash(subject.p, subject.n) * 31 + table_hash(queue.p, queue.n)


cdef Told* told_find(const Table* t, Span subject, Span queue, uint64_t hash) noexcept nogil:
    cdef uint32_t at = 0
    cdef Told* found = <Told*>table_first(t, hash, &at)
    while found != NULL and not (span_eq(found.subject, subject) and span_eq(found.queue, queue)):
        found = <Told*>table_more(t, hash, &at)
    return found


cdef Told* told_new(Table* t, Span subject, Span queue, uint64_t hash) noexcept nogil:
    cdef Told* made = <Told*>calloc(1, sizeof(Told) + <size_t>subject.n + queue.n)
    cdef uint8_t* text
    if made == NULL:
        return NULL
    text = <uint8_t*>(made + 1)
    memcpy(text, subject.p, subject.n)
    made.subject = span(text, subject.n)
    if queue.n:
        memcpy(text + subject.n, queue.p, queue.n)
        made.queue = span(text + subject.n, queue.n)
    made.hash = hash
    if table_add(t, hash, made) != 0:
        free(made)
        return NULL
    return made


cdef AccountTold* account_told(Mesh* mesh, Account* a) noexcept nogil:
    # NULL: no memory.
    cdef AccountTold* t = <AccountTold*>a.told
    if t == NULL:
        t = <AccountTold*>calloc(1, sizeof(AccountTold))
        if t == NULL:
            return NULL
        t.place = pool_place(a.name, mesh.places)
        a.told = t
    return t


cdef void told_free(AccountTold* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.interest.cap):
        free(t.interest.a[i].item)
    free(t.interest.a)
    free(t)


cdef uint32_t pool_place(Span account, uint32_t places) noexcept nogil:
    # FNV-1a of its name, 32 bits, as all servers reckon it.
    cdef uint32_t h = 2166136261, i
    for i in range(account.n):
        h = (h ^ account.p[i]) * 16777619
    return h % places if places > 1 else 0


cdef inline bint is_own(const Sub* s) noexcept nogil:
    # Not another server's. Of the server's own neither a request's way into another account, whose own interest counts, nor
    # what every server offers each account; services of the system account are asked by their servers' ids, or all together.
    if s.client != NULL:
        return s.client.kind != KIND_ROUTER and s.client.kind != KIND_GATEWAY
    return s.link != LINK_SERVICE and (s.listens or (<Account*>s.account).system)


cdef void interest_told(Peers* p, Account* a, Sub* s, int delta) noexcept nogil:
    # Peers.interest: without memory other servers hear of it with the next change.
    cdef Mesh* mesh = <Mesh*>p
    cdef AccountTold* t
    cdef Told* told
    cdef uint64_t hash, before
    if not is_own(s):
        return
    t = account_told(mesh, a)
    if t == NULL:
        return
    hash = told_hash(s.subject, s.queue)
    told = told_find(&t.interest, s.subject, s.queue, hash)
    if told == NULL and delta > 0:
        told = told_new(&t.interest, s.subject, s.queue, hash)
    if told == NULL:
        return
    before = told.n
    told.n = told.n + 1 if delta > 0 else told.n - 1
    if s.queue.n or before == 0 or told.n == 0:
        routes_tell(mesh, a, t, told)
    if told.n == 0:
        table_remove(&t.interest, hash, told)
        free(told)


cdef void interest_forgotten(Peers* p, Account* a) noexcept nogil:
    # Peers.forget
    told_free(<AccountTold*>a.told)
    a.told = NULL


# ---- what routes are told --------------------------------------------------------------------------------

cdef inline bint carries(const RouteConn* r, const Account* a, const AccountTold* t) noexcept nogil:
    if r.terms.account != NULL:
        return r.terms.account == a
    return not r.terms.pooled or (not t.pinned and r.terms.place == t.place)


cdef inline bint may_tell(const Permissions* p, const Told* told) noexcept nogil:
    return p == NULL or perms_can_publish(p, told.subject)


cdef void tell_interest(RouteConn* r, const Account* a, const Told* told) noexcept nogil:
    if may_tell(r.conn.base.perms, told):
        tell(r, a, told, told.n > 0)


cdef void tell(RouteConn* r, const Account* a, const Told* told, bint listens) noexcept nogil:
    # RS+ [account] subject [queue members], or RS- [account] subject [queue].
    cdef Draft* d = &r.mesh.line
    d.n = 0
    draft_add(d, b"RS+ " if listens else b"RS- ", 4)
    if r.terms.account == NULL:
        add_word(d, a.name)
    add_word(d, told.subject)
    if told.queue.n:
        add_word(d, told.queue)
        if listens:
            add_number(d, told.n)
            draft_byte(d, c' ')
    if not d.failed:
        d.n -= 1
    draft_add(d, b"\r\n", 2)
    client_draft(&r.conn.base, d)


cdef void routes_tell(Mesh* mesh, Account* a, const AccountTold* t, const Told* told) noexcept nogil:
    cdef ListNode* at = list_first(&mesh.open)
    cdef RouteConn* r
    while at != NULL:
        r = <RouteConn*>list_owner(at, &(<RouteConn*>NULL).node)
        if carries(r, a, t):
            tell_interest(r, a, told)
        at = list_next(&mesh.open, at)


cdef void tell_account(RouteConn* r, Account* a) noexcept nogil:
    # All of its interest.
    cdef AccountTold* t = <AccountTold*>a.told
    cdef uint32_t i
    if t == NULL or not carries(r, a, t):
        return
    for i in range(t.interest.cap):
        if t.interest.a[i].item != NULL:
            tell_interest(r, a, <const Told*>t.interest.a[i].item)


cdef void tell_difference(RouteConn* r, Account* a, const Permissions* before) noexcept nogil:
    # What interest of an account it may be told of now and might not before, and the other way round.
    cdef AccountTold* t = <AccountTold*>a.told
    cdef const Told* told
    cdef uint32_t i
    cdef bint may
    if t == NULL or not carries(r, a, t):
        return
    for i in range(t.interest.cap):
        told = <const Told*>t.interest.a[i].item
        if told != NULL:
            may = may_tell(r.conn.base.perms, told)
            if may != may_tell(before, told):
                tell(r, a, told, may)
