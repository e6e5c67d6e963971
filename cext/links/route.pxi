# A route: what comes over it. INFO and CONNECT are for the control plane, interest for the sublists, messages for the router.

cdef Span NO_QUEUE      # a server's interest counts whatever its queue group is called
NO_QUEUE.p = NULL
NO_QUEUE.n = 0


cdef void route_ended(Client* c) noexcept nogil:
    # Protocol.end
    cdef RouteConn* r = <RouteConn*>c
    cdef uint32_t i
    link_ended(&r.link)
    for i in range(r.accounts.cap):
        if r.accounts.keys[i] != NULL:
            account_release(<Account*>r.accounts.vals[i])
    strmap_free(&r.accounts)
    r.last = NULL
    if r.terms.account != NULL:
        account_release(r.terms.account)
        r.terms.account = NULL


cdef int route_open(Mesh* mesh, RouteConn* r, const RouteTerms* terms) noexcept nogil:
    r.terms = terms[0]
    if terms.account != NULL:
        account_hold(terms.account)
    link_open(mesh, &r.link, &mesh.open)
    route_tell(r)
    link_ping(&r.link.conn)
    return 0


cdef void route_tell(RouteConn* r) noexcept nogil:
    cdef ListWalk all
    cdef Account* a
    if r.link.state != LINK_RUNS:
        return
    all = list_walk(&r.link.mesh.engine.accounts)
    a = account_step(&all)
    while a != NULL:
        if not a.closed:
            tell_account(r, a)
        a = account_step(&all)


cdef void route_restrict(RouteConn* r, Permissions* perms) noexcept nogil:
    cdef Client* c = &r.link.conn.base
    cdef Permissions* before = c.perms
    cdef ListWalk all
    cdef Account* a
    cdef Sub* s
    if perms != NULL:
        perms_hold(perms)
    c.perms = perms
    if r.link.state == LINK_RUNS:
        all = list_walk(&r.link.mesh.engine.accounts)
        a = account_step(&all)
        while a != NULL:
            if not a.closed:
                tell_difference(r, a, before)
            a = account_step(&all)
    perms_release(before)
    all = list_walk(&c.own_subs)
    s = sub_at(list_step(&all))
    while s != NULL:
        if may_have(r, s.subject):
            s.filtered = perms != NULL and perms_must_filter(perms, s.subject, NO_QUEUE)
        else:
            sub_drop(c, s)
        s = sub_at(list_step(&all))


# ---- what comes ------------------------------------------------------------------------------------------

cdef Account* line_account(RouteConn* r, const Line* line) noexcept nogil:
    # NULL: no memory. One that is not known here yet may be tomorrow, when the other server's interest in it still counts.
    cdef Account* a
    if r.terms.account != NULL:
        return r.terms.account
    if r.last != NULL and span_eq(r.last.name, line.account) and not r.last.closed:
        return r.last
    a = <Account*>strmap_get(&r.accounts, line.account)
    if a == NULL or a.closed:
        if a != NULL:
            strmap_del(&r.accounts, line.account)
            drop_of(r, a)
            account_release(a)
        a = account_open(r.link.conn.base.engine, line.account)
        if a == NULL:
            return NULL
        if strmap_put(&r.accounts, a.name, a) != 0:
            account_release(a)
            return NULL
    r.last = a
    return a


cdef void drop_of(RouteConn* r, Account* a) noexcept nogil:
    # Its interest in an account that is closed.
    cdef Client* c = &r.link.conn.base
    cdef ListWalk all = list_walk(&c.own_subs)
    cdef Sub* s = sub_at(list_step(&all))
    while s != NULL:
        if s.account == a:
            sub_drop(c, s)
        s = sub_at(list_step(&all))


cdef Span line_sid(RouteConn* r, const Account* a, const Line* line) noexcept nogil:
    # The name of a subscription among the connection's; .p NULL: no memory.
    cdef Draft* d = &r.link.sid
    d.n = 0
    draft_add(d, a.name.p, a.name.n)
    draft_byte(d, c' ')
    draft_add(d, line.subject.p, line.subject.n)
    if line.queue.n or line.origin.n:
        draft_byte(d, c' ')
        draft_add(d, line.queue.p, line.queue.n)
    if line.origin.n:
        draft_byte(d, c' ')
        draft_add(d, line.origin.p, line.origin.n)
    if d.failed:
        d.failed = False
        return span(NULL, 0)
    return draft_span(d)


cdef bint may_have(RouteConn* r, Span subject) noexcept nogil:
    # Whether interest of another server counts.
    cdef const Permissions* p = r.link.conn.base.perms
    return p == NULL or perms_can_subscribe(p, subject, NO_QUEUE)


cdef int route_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # Protocol.deliver
    if s.filtered and not perms_can_receive(s.client.perms, m.dest, NO_QUEUE):
        return 0
    return target_add(e, src, s, m)


cdef void route_interest(RouteConn* r, Account* a, const Line* line) noexcept nogil:
    cdef const Permissions* p = r.link.conn.base.perms
    cdef uint32_t origin = origin_number(r.link.mesh, line.origin)
    cdef Sub* s = link_interest(&r.link, a, line, line_sid(r, a, line), origin, may_have(r, line.subject))
    if s != NULL:
        s.filtered = p != NULL and perms_must_filter(p, line.subject, NO_QUEUE)


cdef void route_message(RouteConn* r, Account* a, const Line* line) noexcept nogil:
    cdef Client* c = &r.link.conn.base
    cdef Msg m
    link_message(&r.link, a, line, &m)
    m.origin = origin_number(r.link.mesh, line.origin)
    ack_subject_take(&m.reply, &m.subject)
    engine_route(c.engine, c, &m)


cdef void route_line(LinkConn* k, const Line* line) noexcept nogil:
    cdef RouteConn* r = <RouteConn*>k
    cdef Account* a = line_account(r, line) if line.subject.n else NULL
    if line.kind != LINE_MESSAGE and line.kind != LINE_INTEREST and line.kind != LINE_NO_INTEREST:
        return
    if a == NULL:
        client_close(&k.conn.base, CLOSE_WRITE_ERROR)
    elif line.kind == LINE_MESSAGE:
        route_message(r, a, line)
    else:
        route_interest(r, a, line)


cdef size_t route_feed(Client* b, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    cdef RouteConn* r = <RouteConn*>b
    return link_feed(&r.link, DIALECT_ROUTE if r.terms.account == NULL else DIALECT_ACCOUNT, route_line, p, n, need)
