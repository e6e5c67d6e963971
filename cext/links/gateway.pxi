# A gateway connection. Each server dials one server of each other cluster: messages go out over that connection, and interest
# of the other cluster comes back. So what others have dialled brings messages in, and is told of the interest of this cluster.

cdef void gateway_ended(Client* c) noexcept nogil:
    # Protocol.end
    cdef GatewayConn* g = <GatewayConn*>c
    link_ended(&g.link)
    free(<void*>g.terms.name.p)
    g.terms.name = span(NULL, 0)


cdef int gateway_open(Mesh* mesh, GatewayConn* g, const GatewayTerms* terms) noexcept nogil:
    cdef uint8_t* name = <uint8_t*>malloc(max(terms.name.n, <uint32_t>1))
    if name == NULL:
        client_close(&g.link.conn.base, CLOSE_WRITE_ERROR)
        return -1
    memcpy(name, terms.name.p, terms.name.n)
    g.terms = terms[0]
    g.terms.name.p = name
    link_open(mesh, &g.link, &mesh.inbound if terms.inbound else &mesh.outbound)
    if terms.inbound:
        gateway_tell(g)
    link_ping(&g.link.conn)
    return 0


# ---- what comes ------------------------------------------------------------------------------------------

cdef void gateway_message(GatewayConn* g, const Line* line) noexcept nogil:
    cdef Client* c = &g.link.conn.base
    cdef Account* a = <Account*>strmap_get(&c.engine.by_name, line.account)
    cdef Msg m
    if a == NULL:
        gateway_says(g, b"A- ", line.account)
        return
    link_message(&g.link, a, line, &m)
    ack_subject_take(&m.reply, &m.subject)
    engine_route(c.engine, c, &m)


cdef void gateway_interest(GatewayConn* g, const Line* line) noexcept nogil:
    cdef Account* a = line_account(&g.link, line)
    if a == NULL:
        return
    link_interest(&g.link, a, line, line_sid(&g.link, a, line), 0, True)


cdef void gateway_no_account(GatewayConn* g, const Line* line) noexcept nogil:
    cdef Account* a = <Account*>strmap_get(&g.link.accounts, line.account)
    if a != NULL:
        drop_of(&g.link, a)


cdef void gateway_misplaced(GatewayConn* g, const Line* line) noexcept nogil:
    # Interest is told to those who send messages alone.
    cdef Client* c = &g.link.conn.base
    note_text(c, b"Received RS+ from gateway on inbound connection" if line.kind == LINE_INTEREST
              else b"Received RS- from gateway on inbound connection")
    client_close(c, CLOSE_PROTOCOL_VIOLATION)


cdef void gateway_line(LinkConn* k, const Line* line) noexcept nogil:
    cdef GatewayConn* g = <GatewayConn*>k
    if line.kind == LINE_MESSAGE and g.terms.inbound:
        gateway_message(g, line)
    elif line.kind == LINE_INTEREST or line.kind == LINE_NO_INTEREST:
        if g.terms.inbound:
            gateway_misplaced(g, line)
        else:
            gateway_interest(g, line)
    elif line.kind == LINE_NO_ACCOUNT and not g.terms.inbound:
        gateway_no_account(g, line)


cdef size_t gateway_feed(Client* b, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    return link_feed(<LinkConn*>b, DIALECT_GATEWAY, gateway_line, p, n, need)


# ---- mapped replies --------------------------------------------------------------------------------------

cdef RouteConn* route_to(Mesh* mesh, const Account* a, const uint8_t* server) noexcept nogil:
    # The route to a server of this cluster that carries an account; NULL: there is none.
    cdef AccountTold* t = <AccountTold*>a.told
    cdef ListNode* at = list_first(&mesh.open)
    cdef RouteConn* r
    while at != NULL:
        r = <RouteConn*>list_owner(at, &(<LinkConn*>NULL).node)
        if memcmp(r.terms.server, server, MAPPED_HASH) == 0 and t != NULL and carries(r, a, t):
            return r
        at = list_next(&mesh.open, at)
    return NULL


cdef int answer_sent(Engine* e, Client* to, Sub* counts, const Msg* m) noexcept nogil:
    cdef Target t
    memset(&t, 0, sizeof(t))
    t.to = to
    t.first = counts
    return to.protocol.send(e, &t, m)


cdef inline bint is_for_cluster(const Mesh* mesh, const Msg* m) noexcept nogil:
    return memcmp(m.dest.p + MAPPED_CLUSTER, mesh.cluster, MAPPED_HASH) == 0


cdef inline bint is_for_servers(const Msg* m) noexcept nogil:
    # Acks of what a consumer has just begun to deliver, and what servers with JetStream tell each other, act as they do once
    # their interest is known. Any other answer asks nothing of this server, and may go on to another one.
    if not (<Account*>m.account).system:
        return span_starts(m.dest, b"$JS.ACK.", 8)
    return span_starts(m.dest, b"$NRG.", 5) or span_starts(m.dest, b"$JSC.", 5)


cdef int answer_arrived(Mesh* mesh, Client* src, const Msg* m) noexcept nogil:
    # What another cluster answers, at the cluster that has asked: it goes on to the server that has, which knows the reply.
    cdef Engine* e = mesh.engine
    cdef Msg to = m[0]
    cdef RouteConn* r
    if not is_for_cluster(mesh, m):
        return 0
    if m.kind != KIND_ROUTER and memcmp(m.dest.p + MAPPED_SERVER, mesh.server, MAPPED_HASH) != 0:
        r = route_to(mesh, <Account*>m.account, m.dest.p + MAPPED_SERVER)
        if r != NULL:
            return answer_sent(e, &r.link.conn.base, &r.answers, m)
    to.dest = unmapped(m.dest)
    if is_mapped(to.dest):
        return 0                # no server makes such a reply
    if m.subject.p == m.dest.p:
        to.subject = to.dest
    to.kind = KIND_GATEWAY if m.kind > KIND_CLIENT and is_for_servers(&to) else KIND_ACCOUNT
    to.groups = NULL
    return engine_route(e, src, &to)


cdef int mapped_answer(Peers* p, Client* src, const Msg* m) noexcept nogil:
    # Peers.answer
    cdef Mesh* mesh = <Mesh*>p
    cdef ListNode* at = list_first(&mesh.outbound)
    cdef GatewayConn* g
    if m.kind == KIND_ROUTER or m.kind == KIND_GATEWAY or (m.kind < KIND_CLIENT and is_for_cluster(mesh, m)):
        return answer_arrived(mesh, src, m)
    while at != NULL:
        g = <GatewayConn*>list_owner(at, &(<LinkConn*>NULL).node)
        if memcmp(m.dest.p + MAPPED_CLUSTER, g.terms.cluster, MAPPED_HASH) == 0:
            return answer_sent(mesh.engine, &g.link.conn.base, &g.answers, m)
        at = list_next(&mesh.outbound, at)
    return 0 if list_empty(&mesh.leafs) else -1     # a hub may know the way


# ---- what goes there -------------------------------------------------------------------------------------

cdef void map_reply(Mesh* mesh, Span reply) noexcept nogil:
    # _GR_.<this cluster>.<this server>.<reply>
    cdef Draft* d = &mesh.reply
    d.n = 0
    draft_add(d, b"_GR_.", 5)
    draft_add(d, mesh.cluster, MAPPED_HASH)
    draft_byte(d, c'.')
    draft_add(d, mesh.server, MAPPED_HASH)
    draft_byte(d, c'.')
    draft_add(d, reply.p, reply.n)


cdef int gateway_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # Protocol.deliver
    return target_add(e, src, s, m)


cdef int gateway_send(Engine* e, const Target* t, const Msg* m) noexcept nogil:
    # Protocol.send: RMSG or HMSG.
    cdef GatewayConn* g = <GatewayConn*>t.to
    cdef Client* c = &g.link.conn.base
    cdef Mesh* mesh = g.link.mesh
    cdef Account* a = <Account*>m.account
    cdef Span header = m.header if g.terms.headers else span(NULL, 0)
    cdef Msg to = m[0]
    cdef Draft* d
    if g.link.state != LINK_RUNS or not has_room(c, header.n + m.data.n):
        return 0
    if m.reply.n and not is_mapped(m.reply) and is_recent(mesh, a, m.reply):
        map_reply(mesh, m.reply)
        if mesh.reply.failed:
            mesh.reply.failed = False
            return 0
        to.reply = draft_span(&mesh.reply)
    d = &mesh.line
    d.n = 0
    draft_add(d, b"HMSG " if header.n else b"RMSG ", 5)
    add_word(d, a.name)
    return message_send(e, c, d, t, &to, header, False)


# ---- who is told of other clusters -----------------------------------------------------------------------

cdef inline bint is_behind(const Client* a, const Client* b) noexcept nogil:
    # Whether the cluster of the first is farther away.
    return a.rtt > b.rtt or (a.rtt == b.rtt and a.cid > b.cid)


cdef GatewayConn* next_nearest(Mesh* mesh, const GatewayConn* last) noexcept nogil:
    # The nearest cluster behind the last one, NULL: of all.
    cdef ListNode* at = list_first(&mesh.outbound)
    cdef GatewayConn* found = NULL
    cdef GatewayConn* g
    while at != NULL:
        g = <GatewayConn*>list_owner(at, &(<LinkConn*>NULL).node)
        if last == NULL or is_behind(&g.link.conn.base, &last.link.conn.base):
            if found == NULL or is_behind(&found.link.conn.base, &g.link.conn.base):
                found = g
        at = list_next(&mesh.outbound, at)
    return found


cdef void other_clusters(Peers* p, Draft* d) noexcept nogil:
    # Peers.clusters
    cdef Mesh* mesh = <Mesh*>p
    cdef GatewayConn* g = next_nearest(mesh, NULL)
    if g == NULL:
        return
    draft_add(d, b",\"alts\":[", 9)
    while g != NULL:
        json_put_text(d, g.terms.name)
        g = next_nearest(mesh, g)
        if g != NULL:
            draft_byte(d, c',')
    draft_byte(d, c']')
