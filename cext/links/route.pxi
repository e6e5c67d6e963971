# A route: what comes over it. INFO and CONNECT are for the control plane, interest for the sublists, messages for the router.

cdef enum:
    PAYLOAD_MAX = 67108864 + 65536      # of a message: what the widest max_payload of a server allows, and its headers
    ORIGINS_MAX = 65536
    LINES = 16                          # a line may be so many times as long as a client's
    PING_MAX_NS = 30000000000           # between PINGs, at most

cdef Span NO_QUEUE      # a server's interest counts whatever its queue group is called
NO_QUEUE.p = NULL
NO_QUEUE.n = 0


cdef void route_made(Client* c) noexcept nogil:
    cdef RouteConn* r = <RouteConn*>c
    r.state = ROUTE_NEW
    draft_open(&r.sid)


cdef void route_ended(Client* c) noexcept nogil:
    cdef RouteConn* r = <RouteConn*>c
    cdef uint32_t i
    if list_linked(&r.node):
        list_remove(&r.node)
    r.state = ROUTE_ENDED
    client_drop_subs(c)
    for i in range(r.accounts.cap):
        if r.accounts.keys[i] != NULL:
            account_release(<Account*>r.accounts.vals[i])
    strmap_free(&r.accounts)
    r.last = NULL
    if r.terms.account != NULL:
        account_release(r.terms.account)
        r.terms.account = NULL
    draft_free(&r.sid)


cdef void link_says(RouteConn* r, int what, Span text) noexcept nogil:
    # To the control plane; what it has to answer keeps the input waiting.
    cdef Conn* c = &r.conn
    if note_client(&c.base, IN_LINK, &text, 1, what) != 0:
        client_close(&c.base, CLOSE_PROTOCOL_VIOLATION)
        return
    if what == LINK_INFO or what == LINK_CONNECT:
        c.rest.paused = True
        conn_events(c)


cdef void link_resume(Conn* c) noexcept nogil:
    if c.rest.paused:
        conn_unpause(c)


cdef void route_greet(Client* c) noexcept nogil:
    pass        # the control plane says the first word, once bytes flow


cdef void route_begin(Client* c) noexcept nogil:
    # Protocol.open
    cdef RouteConn* r = <RouteConn*>c
    r.conn.auth = AUTH_NEEDED
    link_says(r, LINK_OPENED, span(NULL, 0))


cdef void link_write(Conn* c, Span text) noexcept nogil:
    # The other side has its time from the first word on, however late that is: a start may have taken longer.
    client_write(&c.base, text.p, text.n)
    if c.auth == AUTH_NEEDED and c.auth_timer.pos == 0:
        timer_set(&c.reactor.timers, &c.auth_timer, c.base.engine.env.mono + c.terms.auth.timeout)


cdef inline int64_t route_interval(const Conn* c) noexcept nogil:
    return min(c.terms.ping_interval or c.reactor.net.limits.ping_interval, <int64_t>PING_MAX_NS)


cdef void route_ping(Conn* c) noexcept nogil:
    c.keepalive.pings_out += 1
    c.keepalive.sent = c.base.engine.env.mono
    client_write(&c.base, b"PING\r\n", 6)
    timer_set(&c.reactor.timers, &c.keepalive.timer, c.base.engine.env.mono + route_interval(c))


cdef void route_keepalive(Client* b, int64_t now) noexcept nogil:
    # Whatever else comes: the answer tells that the other side's control plane lives, too.
    cdef Conn* c = <Conn*>b
    if <int64_t>c.keepalive.pings_out + 1 > c.reactor.net.limits.ping_max:
        client_refuse(b, CLOSE_STALE, span_c(b"Stale Connection"))
        return
    route_ping(c)


cdef void route_pong(RouteConn* r) noexcept nogil:
    cdef Conn* c = &r.conn
    c.keepalive.pings_out = 0
    if c.keepalive.sent:
        c.base.rtt = max(c.base.engine.env.mono - c.keepalive.sent, <int64_t>1)
        c.keepalive.sent = 0
    if not r.hailed and r.state == ROUTE_OPEN:
        r.hailed = True
        link_says(r, LINK_HAILED, span(NULL, 0))


cdef int route_open(Mesh* mesh, RouteConn* r, const RouteTerms* terms) noexcept nogil:
    cdef Conn* c = &r.conn
    r.terms = terms[0]
    r.mesh = mesh
    r.state = ROUTE_OPEN
    if terms.account != NULL:
        account_hold(terms.account)
    list_push_front(&mesh.open, &r.node)
    c.auth = AUTH_OPEN
    timer_cancel(&c.reactor.timers, &c.auth_timer)
    route_tell(r)
    route_ping(c)
    return 0


cdef void route_tell(RouteConn* r) noexcept nogil:
    cdef ListWalk all
    cdef Account* a
    if r.state != ROUTE_OPEN:
        return
    all = list_walk(&r.mesh.engine.accounts)
    a = account_step(&all)
    while a != NULL:
        if not a.closed:
            tell_account(r, a)
        a = account_step(&all)


cdef void route_restrict(RouteConn* r, Permissions* perms) noexcept nogil:
    cdef Client* c = &r.conn.base
    cdef Permissions* before = c.perms
    cdef ListWalk all
    cdef Account* a
    cdef Sub* s
    if perms != NULL:
        perms_hold(perms)
    c.perms = perms
    if r.state == ROUTE_OPEN:
        all = list_walk(&r.mesh.engine.accounts)
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
        a = account_open(r.conn.base.engine, line.account)
        if a == NULL:
            return NULL
        if strmap_put(&r.accounts, a.name, a) != 0:
            account_release(a)
            return NULL
    r.last = a
    return a


cdef void drop_of(RouteConn* r, Account* a) noexcept nogil:
    # Its interest in an account that is closed.
    cdef ListWalk all = list_walk(&r.conn.base.own_subs)
    cdef Sub* s = sub_at(list_step(&all))
    while s != NULL:
        if s.account == a:
            sub_drop(&r.conn.base, s)
        s = sub_at(list_step(&all))


cdef uint32_t line_origin(RouteConn* r, const Line* line) noexcept nogil:
    # The number of its leaf cluster. 0: it names none, or there are too many to be told apart: that one counts as this cluster.
    cdef StrMap* origins = &r.mesh.origins
    cdef uint64_t known
    if line.origin.n == 0:
        return 0
    known = <uint64_t>strmap_get(origins, line.origin)
    if known == 0 and origins.n < ORIGINS_MAX:
        known = origins.n + 1
        if strmap_put(origins, line.origin, <void*>known) != 0:
            known = 0
    return <uint32_t>known


cdef Span line_sid(RouteConn* r, const Account* a, const Line* line) noexcept nogil:
    # The name of a subscription among the connection's; .p NULL: no memory.
    cdef Draft* d = &r.sid
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
    cdef const Permissions* p = r.conn.base.perms
    return p == NULL or perms_can_subscribe(p, subject, NO_QUEUE)


cdef int route_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # Protocol.deliver
    if s.filtered and not perms_can_receive(s.client.perms, m.dest, NO_QUEUE):
        return 0
    return target_add(e, src, s, m)


cdef void route_interest(RouteConn* r, const Line* line) noexcept nogil:
    cdef Client* c = &r.conn.base
    cdef Account* a = line_account(r, line)
    cdef Span sid = line_sid(r, a, line) if a != NULL else span(NULL, 0)
    cdef Sub* s
    if sid.p == NULL or (line.kind == LINE_INTEREST and line.queue.n and line.weight == 0):
        client_close(c, CLOSE_WRITE_ERROR if sid.p == NULL else CLOSE_PARSE_ERROR)
        return
    s = <Sub*>strmap_get(&c.subs, sid)
    if s != NULL and line.kind == LINE_INTEREST and s.weight == (line.weight or 1):
        return
    if s != NULL:
        sub_drop(c, s)          # or it has another weight, which matches that are remembered do not know
    if line.kind != LINE_INTEREST or not may_have(r, line.subject):
        return
    s = sub_add(c, a, line.subject, line.queue, sid, line.weight or 1, line_origin(r, line))
    if s == NULL:
        client_close(c, CLOSE_WRITE_ERROR)
    else:
        s.filtered = c.perms != NULL and perms_must_filter(c.perms, line.subject, NO_QUEUE)


cdef void route_message(RouteConn* r, const Line* line) noexcept nogil:
    cdef Client* c = &r.conn.base
    cdef Engine* e = c.engine
    cdef Account* a = line_account(r, line)
    cdef Msg m
    cdef uint32_t size = line.header.n + line.data.n
    if a == NULL:
        client_close(c, CLOSE_WRITE_ERROR)
        return
    c.in_msgs += 1
    c.in_bytes += size
    a.in_msgs += 1
    a.in_bytes += size
    e.stats.in_msgs += 1
    e.stats.in_bytes += size
    e.stats.link_in_msgs += 1
    e.stats.link_in_bytes += size
    memset(&m, 0, sizeof(m))
    m.dest = line.subject
    m.subject = line.subject
    m.reply = line.reply
    m.header = line.header
    m.data = line.data
    m.cid = c.cid
    m.kind = KIND_ROUTER
    m.origin = line_origin(r, line)
    m.groups = &line.queues
    m.account = a
    ack_subject_take(&m.reply, &m.subject)
    engine_route(e, c, &m)


cdef void route_line(RouteConn* r, const Line* line) noexcept nogil:
    cdef Client* c = &r.conn.base
    if line.kind == LINE_INFO:
        link_says(r, LINK_INFO, line.args)
    elif line.kind == LINE_CONNECT:
        link_says(r, LINK_CONNECT, line.args)
    elif line.kind == LINE_ERR:
        link_says(r, LINK_ERROR, line.args)
        client_close(c, CLOSE_PARSE_ERROR)
    elif line.kind == LINE_PING:
        client_write(c, b"PONG\r\n", 6)
    elif line.kind == LINE_PONG:
        route_pong(r)
    elif r.state != ROUTE_OPEN:
        client_refuse(c, CLOSE_AUTH_FAILURE, span_c(b"Authorization Violation"))
    elif line.kind == LINE_MESSAGE:
        route_message(r, line)
    elif line.kind == LINE_INTEREST or line.kind == LINE_NO_INTEREST:
        route_interest(r, line)


cdef size_t route_feed(Client* b, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    cdef RouteConn* r = <RouteConn*>b
    cdef Line line
    cdef size_t at = 0
    cdef int rc = LINE_MORE
    r.parser.dialect = DIALECT_ROUTE if r.terms.account == NULL else DIALECT_ACCOUNT
    r.parser.max_line = LINES * b.engine.limits.max_control_line
    r.parser.max_payload = PAYLOAD_MAX
    while at < n and not conn_halted(&r.conn):
        rc = line_parse(&r.parser, p + at, n - at, &line)
        if rc != LINE_READ:
            break
        invariant(line.size <= n - at, "a line stands in what arrived")
        route_line(r, &line)
        at += line.size
        conn_pace(&r.conn)
    if rc < 0 and not b.closing:
        note_error(b, b"Route parser ERROR: proto='", span(p + at, <uint32_t>min(n - at, <size_t>SNIPPET)), b"...'")
        client_refuse(b, CLOSE_PROTOCOL_VIOLATION, span_c(b"Unknown Protocol Operation"))
    if rc == LINE_MORE:
        need[0] = r.parser.need
    return at
