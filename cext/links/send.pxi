# Messages to other servers.

cdef bint has_room(Client* c, size_t n) noexcept nogil:
    # Whether n bytes more may wait for it; where not, it is cut, so that it holds nobody up.
    if c.closing:
        return False
    if client_pending(c) + n > <uint64_t>c.engine.limits.max_pending:
        client_close(c, CLOSE_SLOW_PENDING)
        return False
    return True


cdef inline void add_word(Draft* d, Span word) noexcept nogil:
    # And a blank behind.
    draft_add(d, word.p, word.n)
    draft_byte(d, c' ')


cdef inline void add_number(Draft* d, uint64_t n) noexcept nogil:
    cdef uint8_t digits[20]
    draft_add(d, digits, put_u64(digits, n))


cdef bint client_draft(Client* c, Draft* d) noexcept nogil:
    # Writes the line; False: it could not be made or has no room, and the connection is cut.
    if d.failed:
        d.failed = False
        client_close(c, CLOSE_WRITE_ERROR)
        return False
    if not has_room(c, d.n):
        return False
    client_write(c, d.p, d.n)
    return True


cdef bint shows_another(const Msg* m) noexcept nogil:
    # Its receivers see another subject than the one that it is routed by: a consumer's delivery, whose reply tells it to the
    # other server.
    return m.reply.n > 0 and m.subject.p != m.dest.p


cdef void add_address(Draft* d, const Peers* peers, const Target* t, const Msg* m) noexcept nogil:
    # subject [reply | + reply queues | bar queues], and a blank.
    cdef uint32_t at = t.picked
    add_word(d, m.dest)
    if at:
        add_word(d, span_c(b"+" if m.reply.n else b"|"))
    if m.reply.n:
        draft_add(d, m.reply.p, m.reply.n)
        if shows_another(m):
            draft_byte(d, c'@')
            draft_add(d, m.subject.p, m.subject.n)
        draft_byte(d, c' ')
    while at:
        add_word(d, peers.picked[at - 1].sub.queue)
        at = peers.picked[at - 1].next


cdef int message_send(Engine* e, Client* c, Draft* d, const Target* t, const Msg* m, Span header, bint sizes) noexcept nogil:
    # Sends a message whose line is begun, verb and all that stands before the subject; sizes: its line has that of the headers
    # even if there are none. 1: it took it.
    cdef uint32_t total = header.n + m.data.n
    add_address(d, e.peers, t, m)
    if sizes or header.n:
        add_number(d, header.n)
        draft_byte(d, c' ')
    add_number(d, total)
    draft_add(d, b"\r\n", 2)
    if not client_draft(c, d):
        return 0
    if header.n:
        client_write(c, header.p, header.n)
    client_write(c, m.data.p, m.data.n)
    client_write(c, b"\r\n", 2)
    count_sent(e, c, t.first, <Account*>m.account, total)
    e.stats.link_out_msgs += 1
    e.stats.link_out_bytes += total
    if m.kind == KIND_CLIENT and client_pending(c) > e.limits.much_pending:
        slow_down(e, c)
    return 1


cdef int route_send(Engine* e, const Target* t, const Msg* m) noexcept nogil:
    # Protocol.send: RMSG, HMSG, or LMSG for what a leaf node has sent, with its cluster.
    cdef RouteConn* r = <RouteConn*>t.to
    cdef Client* c = &r.link.conn.base
    cdef Draft* d
    cdef bint of_leaf = m.kind == KIND_LEAF and m.origin and r.terms.origins
    if r.link.state != LINK_RUNS or not has_room(c, m.header.n + m.data.n):
        return 0
    d = &r.link.mesh.line
    d.n = 0
    if of_leaf:
        draft_add(d, b"LMSG ", 5)
        add_word(d, origin_name(r.link.mesh, m.origin))
    else:
        draft_add(d, b"HMSG " if m.header.n else b"RMSG ", 5)
    if r.terms.account == NULL:
        add_word(d, (<Account*>m.account).name)
    return message_send(e, c, d, t, m, m.header, of_leaf)


cdef int leaf_send(Engine* e, const Target* t, const Msg* m) noexcept nogil:
    # Protocol.send: LMSG or HMSG.
    cdef LeafConn* leaf = <LeafConn*>t.to
    cdef Client* c = &leaf.link.conn.base
    cdef Span header = m.header if leaf.headers else span(NULL, 0)
    cdef Draft* d
    cdef Draft subject
    cdef Msg to = m[0]
    cdef int taken = 0
    if leaf.link.state != LINK_RUNS or not has_room(c, header.n + m.data.n):
        return 0
    draft_open(&subject)
    if t.by != NULL:
        to.dest = imported_subject(e, t.by, m.dest, &subject)
        if m.subject.p == m.dest.p:
            to.subject = to.dest
    d = &leaf.link.mesh.line
    d.n = 0
    draft_add(d, b"HMSG " if header.n else b"LMSG ", 5)
    if not subject.failed:
        taken = message_send(e, c, d, t, &to, header, False)
    draft_free(&subject)
    return taken
