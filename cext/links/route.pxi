# A route: what comes over it. INFO and CONNECT are for the control plane, interest for the sublists, messages for the router.

cdef Span NO_QUEUE      # a server's interest counts whatever its queue group is called
NO_QUEUE.p = NULL
NO_QUEUE.n = 0


cdef void route_ended(Client* c) noexcept nogil:
    # Protocol.end
    cdef RouteConn* r = <RouteConn*>c
    link_ended(&r.link)
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
    cdef Sub* s = link_interest(&r.link, a, line, line_sid(&r.link, a, line), origin, may_have(r, line.subject))
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
    cdef Account* a = r.terms.account
    if line.kind != LINE_MESSAGE and line.kind != LINE_INTEREST and line.kind != LINE_NO_INTEREST:
        return
    if a == NULL:
        a = line_account(k, line)
    if a == NULL:
        return
    if line.kind == LINE_MESSAGE:
        route_message(r, a, line)
    else:
        route_interest(r, a, line)


cdef size_t route_feed(Client* b, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    cdef RouteConn* r = <RouteConn*>b
    return link_feed(&r.link, DIALECT_ROUTE if r.terms.account == NULL else DIALECT_ACCOUNT, route_line, p, n, need)
