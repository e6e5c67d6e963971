# What all connections to other servers have in common: what they say to the control plane, PING and PONG, and how lines are
# taken out of what comes.

cdef enum:
    PAYLOAD_MAX = 67108864 + 65536      # of a message: what the widest max_payload of a server allows, and its headers
    LINES = 16                          # a line may be so many times as long as a client's
    ROUTE_PING_MAX_NS = 30000000000     # between PINGs of a route, at most
    GATEWAY_PING_MAX_NS = 15000000000

ctypedef void (*line_fn)(LinkConn* k, const Line* line) noexcept nogil


cdef void link_made(Client* c) noexcept nogil:
    # Protocol.init
    cdef LinkConn* k = <LinkConn*>c
    k.state = LINK_SHAKES
    draft_open(&k.sid)


cdef void link_ended(LinkConn* k) noexcept nogil:
    # Nothing more of it counts.
    cdef uint32_t i
    if list_linked(&k.node):
        list_remove(&k.node)
    k.state = LINK_ENDS
    client_drop_subs(&k.conn.base)
    draft_free(&k.sid)
    for i in range(k.accounts.cap):
        if k.accounts.keys[i] != NULL:
            account_release(<Account*>k.accounts.vals[i])
    strmap_free(&k.accounts)
    k.last = NULL


cdef int inbox_kind(const Client* c) noexcept nogil:
    if c.kind == KIND_ROUTER:
        return IN_LINK
    return IN_GATEWAY if c.kind == KIND_GATEWAY else IN_LEAF


cdef void link_says(LinkConn* k, int what, Span text) noexcept nogil:
    # To the control plane; what it has to answer keeps the input waiting.
    cdef Conn* c = &k.conn
    cdef Span texts[2]
    texts[0] = text
    texts[1] = span(c.secured.data, <uint32_t>c.secured.n)
    if note_client(&c.base, inbox_kind(&c.base), texts, 2 if what == LINK_CONNECT else 1, what) != 0:
        client_close(&c.base, CLOSE_PROTOCOL_VIOLATION)
        return
    if what == LINK_INFO or what == LINK_CONNECT or what == LINK_LOOP or what == LINK_SECURED:
        c.rest.paused = True
        conn_events(c)


cdef void link_resume(Conn* c) noexcept nogil:
    if c.rest.paused:
        conn_unpause(c)


cdef void link_compress(Conn* c, int level, const int64_t* thresholds, int n, Span first) noexcept nogil:
    if c.rest.paused and c.compression == NULL and conn_compress(c, level, thresholds, n, first) != 0:
        client_close(&c.base, CLOSE_WRITE_ERROR)


cdef int link_secure(Conn* c, Security* security, Span name) noexcept nogil:
    if not c.rest.paused or c.security != NULL:
        return 0
    (<LinkConn*>c).secures = True
    return conn_secure(c, security, name)


cdef void link_greet(Client* c) noexcept nogil:
    # Protocol.greet: the control plane says the first word. A handshake that is to come behind it begins after that.
    cdef LinkConn* k = <LinkConn*>c
    link_says(k, LINK_OPENED, span(NULL, 0))
    if k.conn.approach:
        k.conn.rest.paused = True
        conn_want(&k.conn, False, k.conn.wants.writing)


cdef void link_begin(Client* c) noexcept nogil:
    # Protocol.open
    cdef LinkConn* k = <LinkConn*>c
    k.conn.auth = AUTH_NEEDED
    if k.patience:
        timer_set(&k.conn.reactor.timers, &k.conn.auth_timer, c.engine.env.mono + k.patience)
    elif k.conn.security != NULL and c.chunks_queued:
        timer_set(&k.conn.reactor.timers, &k.conn.auth_timer, c.engine.env.mono + k.conn.terms.auth.timeout)
    if k.secures:
        link_says(k, LINK_SECURED, span(NULL, 0))


cdef void link_write(Conn* c, Span text) noexcept nogil:
    # The other side has its time from the first word on, however late that is: a start may have taken longer.
    client_write(&c.base, text.p, text.n)
    if c.approach and c.rest.paused:
        conn_unpause(c)
    if c.auth == AUTH_NEEDED and c.auth_timer.pos == 0:
        timer_set(&c.reactor.timers, &c.auth_timer, c.base.engine.env.mono + c.terms.auth.timeout)


cdef void link_open(Mesh* mesh, LinkConn* k, List* open) noexcept nogil:
    # The control plane lets it in. open: those of its kind.
    k.mesh = mesh
    k.state = LINK_RUNS
    list_push_front(open, &k.node)
    k.conn.auth = AUTH_OPEN
    timer_cancel(&k.conn.reactor.timers, &k.conn.auth_timer)


# ---- keepalive -------------------------------------------------------------------------------------------

cdef inline int64_t link_interval(const Conn* c) noexcept nogil:
    cdef int64_t interval = c.terms.ping_interval or c.reactor.net.limits.ping_interval
    if c.base.kind == KIND_GATEWAY:
        return min(interval, <int64_t>GATEWAY_PING_MAX_NS)
    return min(interval, <int64_t>ROUTE_PING_MAX_NS) if c.base.kind == KIND_ROUTER else interval


cdef void link_ping(Conn* c) noexcept nogil:
    c.keepalive.pings_out += 1
    c.keepalive.sent = c.base.engine.env.mono
    client_write(&c.base, b"PING\r\n", 6)
    timer_set(&c.reactor.timers, &c.keepalive.timer, c.base.engine.env.mono + link_interval(c))


cdef void link_keepalive(Client* b, int64_t now) noexcept nogil:
    # Whatever else comes: the answer tells that the other side's control plane lives, too.
    cdef Conn* c = <Conn*>b
    if <int64_t>c.keepalive.pings_out + 1 > (c.terms.ping_max or c.reactor.net.limits.ping_max):
        client_refuse(b, CLOSE_STALE, span_c(b"Stale Connection"))
        return
    link_ping(c)


cdef void link_pong(LinkConn* k) noexcept nogil:
    cdef Conn* c = &k.conn
    c.keepalive.pings_out = 0
    if c.keepalive.sent:
        c.base.rtt = max(c.base.engine.env.mono - c.keepalive.sent, <int64_t>1)
        c.keepalive.sent = 0
        conn_recompress(c)
    if not k.hailed and k.state == LINK_RUNS:
        k.hailed = True
        link_says(k, LINK_HAILED, span(NULL, 0))


# ---- what comes ------------------------------------------------------------------------------------------

cdef inline bint is_stranger(const LinkConn* k) noexcept nogil:
    # A leaf node that has not said who it is.
    return k.state == LINK_SHAKES and k.conn.base.kind == KIND_LEAF and k.patience == 0


cdef bint link_word(LinkConn* k, const Line* line) noexcept nogil:
    # Whether the line is one that all links have, and is dealt with.
    cdef Client* c = &k.conn.base
    if is_stranger(k) and line.kind != LINE_INFO and line.kind != LINE_CONNECT:
        link_reject(k)
    elif line.kind == LINE_INFO:
        link_says(k, LINK_INFO, line.args)
    elif line.kind == LINE_CONNECT:
        link_says(k, LINK_CONNECT, line.args)
    elif line.kind == LINE_ERR:
        link_says(k, LINK_ERROR, line.args)
        client_close(c, CLOSE_PARSE_ERROR)
    elif line.kind == LINE_PING:
        client_write(c, b"PONG\r\n", 6)
    elif line.kind == LINE_PONG:
        link_pong(k)
    elif k.state != LINK_RUNS:
        link_reject(k)
    else:
        return False
    return True


cdef void link_reject(LinkConn* k) noexcept nogil:
    client_refuse(&k.conn.base, CLOSE_AUTH_FAILURE, span_c(b"Authorization Violation"))


cdef const char* garbled_text(const Client* c) noexcept nogil:
    if c.kind == KIND_ROUTER:
        return b"Route parser ERROR: proto='"
    return b"Gateway parser ERROR: proto='" if c.kind == KIND_GATEWAY else b"Leafnode parser ERROR: proto='"


cdef void link_garbled(LinkConn* k, int rc, Span snippet) noexcept nogil:
    # What came is no line of its dialect.
    cdef Client* c = &k.conn.base
    if is_stranger(k):
        link_reject(k)
        return
    note_error(c, garbled_text(c), snippet, b"...'")
    if rc == LINE_ARGUMENTS:
        client_close(c, CLOSE_PROTOCOL_VIOLATION)       # without a word, as nats-server does
    else:
        client_refuse(c, CLOSE_PROTOCOL_VIOLATION, span_c(b"Unknown Protocol Operation"))


cdef size_t link_feed(LinkConn* k, int dialect, line_fn take, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    # Protocol.feed of a link whose lines are of that dialect: those that not all links have go to `take`.
    cdef Client* b = &k.conn.base
    cdef Line line
    cdef size_t at = 0
    cdef int rc = LINE_MORE
    k.parser.dialect = dialect
    k.parser.max_line = LINES * b.engine.limits.max_control_line
    k.parser.max_payload = PAYLOAD_MAX
    while at < n and not conn_halted(&k.conn):
        rc = line_parse(&k.parser, p + at, n - at, &line)
        if rc != LINE_READ:
            break
        invariant(line.size <= n - at, "a line stands in what arrived")
        if not link_word(k, &line):
            take(k, &line)
        at += line.size
        conn_pace(&k.conn)
    if rc < 0 and not b.closing:
        link_garbled(k, rc, span(p + at, <uint32_t>min(n - at, <size_t>SNIPPET)))
    if rc == LINE_MORE:
        need[0] = k.parser.need
    return at


cdef void link_message(LinkConn* k, Account* a, const Line* line, Msg* m) noexcept nogil:
    # Counts a message of an account, and fills in what is the same for all links.
    cdef Client* c = &k.conn.base
    cdef Engine* e = c.engine
    cdef uint32_t size = line.header.n + line.data.n
    c.in_msgs += 1
    c.in_bytes += size
    a.in_msgs += 1
    a.in_bytes += size
    e.stats.in_msgs += 1
    e.stats.in_bytes += size
    e.stats.link_in_msgs += 1
    e.stats.link_in_bytes += size
    memset(m, 0, sizeof(Msg))
    m.dest = line.subject
    m.subject = line.subject
    m.reply = line.reply
    m.header = line.header
    m.data = line.data
    m.cid = c.cid
    m.kind = c.kind
    m.groups = &line.queues
    m.account = a


cdef Sub* link_interest(LinkConn* k, Account* a, const Line* line, Span sid, uint32_t origin, bint may) noexcept nogil:
    # LS+, RS+ and their ends, for the subscription of that name. may: what is new counts. The subscription if it is new.
    cdef Client* c = &k.conn.base
    cdef uint32_t weight = line.weight or 1
    cdef Sub* s
    if sid.p == NULL or (line.kind == LINE_INTEREST and line.queue.n and line.weight == 0):
        client_close(c, CLOSE_WRITE_ERROR if sid.p == NULL else CLOSE_PARSE_ERROR)
        return NULL
    s = <Sub*>strmap_get(&c.subs, sid)
    if s != NULL and line.kind != LINE_INTEREST:
        sub_drop(c, s)
    elif s != NULL:
        if s.weight != weight:
            sub_reweigh(s, weight)
    elif line.kind == LINE_INTEREST and may:
        s = sub_add(c, a, line.subject, line.queue, sid, weight, origin)
        if s == NULL:
            client_close(c, CLOSE_WRITE_ERROR)
        return s
    return NULL


# ---- accounts that lines name ----------------------------------------------------------------------------

cdef enum:
    ACCOUNT_NAME_MAX = 255      # bytes: no account of this server has a longer name
    LINK_ACCOUNTS_MAX = 1000000


cdef Account* line_account(LinkConn* k, const Line* line) noexcept nogil:
    # The account that a line names; NULL: the line counts for nothing, or there is no memory, and the link ends. An account that
    # is not known here yet may be tomorrow, when the other server's interest in it still counts.
    cdef Account* a = found_account(k, line)
    if a == NULL and line.account.n <= ACCOUNT_NAME_MAX and k.accounts.n < LINK_ACCOUNTS_MAX:
        client_close(&k.conn.base, CLOSE_WRITE_ERROR)
    return a


cdef Account* found_account(LinkConn* k, const Line* line) noexcept nogil:
    cdef Account* a
    if k.last != NULL and span_eq(k.last.name, line.account) and not k.last.closed:
        return k.last
    a = <Account*>strmap_get(&k.accounts, line.account)
    if a == NULL or a.closed:
        if a != NULL:
            strmap_del(&k.accounts, line.account)
            drop_of(k, a)
            account_release(a)
        if line.account.n > ACCOUNT_NAME_MAX or k.accounts.n >= LINK_ACCOUNTS_MAX:
            return NULL
        a = account_open(k.conn.base.engine, line.account)
        if a == NULL:
            return NULL
        if strmap_put(&k.accounts, a.name, a) != 0:
            account_release(a)
            return NULL
    k.last = a
    return a


cdef void drop_of(LinkConn* k, Account* a) noexcept nogil:
    # Its interest in an account that is closed.
    cdef Client* c = &k.conn.base
    cdef ListWalk all = list_walk(&c.own_subs)
    cdef Sub* s = sub_at(list_step(&all))
    while s != NULL:
        if s.account == a:
            sub_drop(c, s)
        s = sub_at(list_step(&all))


cdef Span line_sid(LinkConn* k, const Account* a, const Line* line) noexcept nogil:
    # The name of a subscription among the connection's; .p NULL: no memory.
    cdef Draft* d = &k.sid
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
