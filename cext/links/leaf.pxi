# A leaf node of this server, or a hub whose leaf node this one is: what comes from there, and what goes there.

cdef void leaf_ended(Client* c) noexcept nogil:
    # Protocol.end
    cdef LeafConn* leaf = <LeafConn*>c
    if list_linked(&leaf.beside):
        list_remove(&leaf.beside)
    link_ended(&leaf.link)
    told_free(&leaf.told)
    perms_release(leaf.accepts)
    leaf.accepts = NULL


cdef int leaf_open(Mesh* mesh, LeafConn* leaf, const LeafTerms* terms) noexcept nogil:
    cdef Client* c = &leaf.link.conn.base
    cdef Account* a = terms.account
    cdef AccountTold* t = account_told(mesh, a)
    cdef uint32_t i
    if t == NULL or (t.loop.n == 0 and not loop_name(t, terms.loop)):
        client_close(c, CLOSE_WRITE_ERROR)
        return -1
    client_bind(c, a, KIND_HUB if terms.to_hub else KIND_LEAF)
    client_restrict(c, terms.perms)
    c.origin = origin_number(mesh, terms.cluster)
    c.max_subscriptions = terms.max_subscriptions
    c.max_payload = terms.max_payload
    leaf.isolated = terms.isolated
    leaf.headers = terms.headers
    leaf.accepts = terms.accepts
    if leaf.accepts != NULL:
        perms_hold(leaf.accepts)
    sublist_each(a.subs, count_for_leaf, leaf)
    leaf_interest(leaf, t.loop, span(NULL, 0), 1)
    for i in range(terms.n_more):
        if c.perms == NULL or is_for_answers(terms.more[i]) or perms_can_tell(c.perms, terms.more[i], span(NULL, 0)):
            leaf_interest(leaf, terms.more[i], span(NULL, 0), 1)
    list_push_front(&t.leafs, &leaf.beside)
    link_open(mesh, &leaf.link, &mesh.leafs)
    leaf_tell_all(leaf)
    link_ping(&leaf.link.conn)
    return 0


cdef inline bint is_for_answers(Span subject) noexcept nogil:
    # Of what goes to mapped replies: subjects that no permission has to name.
    return span_starts(subject, b"_GR_.", 5)


cdef bint loop_name(AccountTold* t, Span name) noexcept nogil:
    # By what loops are found is the account's from its first leaf node on. False: no memory.
    cdef uint8_t* text = <uint8_t*>malloc(max(name.n, <uint32_t>1))
    if text == NULL:
        return False
    memcpy(text, name.p, name.n)
    t.loop = span(text, name.n)
    return True


# ---- what comes ------------------------------------------------------------------------------------------

cdef Span leaf_sid(LeafConn* leaf, const Line* line) noexcept nogil:
    # The name of a subscription among the connection's; .p NULL: no memory.
    cdef Draft* d = &leaf.link.sid
    d.n = 0
    draft_add(d, line.subject.p, line.subject.n)
    if line.queue.n:
        draft_byte(d, c' ')
        draft_add(d, line.queue.p, line.queue.n)
    if d.failed:
        d.failed = False
        return span(NULL, 0)
    return draft_span(d)


cdef bint leaf_may_listen(LeafConn* leaf, const Line* line) noexcept nogil:
    # Whether the other side may have the subscription; where not, it has heard why, if this is the hub.
    cdef Client* c = &leaf.link.conn.base
    cdef AccountTold* t = <AccountTold*>c.account.told
    if is_loop(line.subject):
        if span_eq(line.subject, t.loop):
            link_says(&leaf.link, LINK_LOOP, span(NULL, 0))
            return False
        return True
    if c.perms != NULL and subject_is_literal(line.subject) and not perms_can_publish(c.perms, line.subject):
        leaf_violation(leaf, b"Subscription to", line.subject)
        return False
    if not subject_is_valid(line.subject):
        client_refuse(c, 0, span_c(b"Invalid Subscription"))
        return False
    return True


cdef void leaf_violation(LeafConn* leaf, const char* what, Span subject) noexcept nogil:
    # A hub has said what it permits, so that a leaf node that goes beyond that is cut. A leaf node ignores what it did not
    # want.
    cdef Client* c = &leaf.link.conn.base
    if c.kind == KIND_LEAF:
        violation(c, what, subject, span(NULL, 0), span(NULL, 0), b"")
        client_close(c, CLOSE_PROTOCOL_VIOLATION)


cdef inline bint is_answer(Span subject) noexcept nogil:
    # Of a service, or to a consumer: subjects that no permission has to name.
    return span_starts(subject, b"_R_.", 4) or span_starts(subject, b"$JS.ACK.", 8)


cdef bint leaf_may_send(const LeafConn* leaf, Span subject) noexcept nogil:
    # Whether a message is taken from there.
    cdef Span reached = unmapped(subject) if is_mapped(subject) else subject
    if is_mapped(subject) and leaf.link.conn.base.kind == KIND_HUB:
        return True
    return is_answer(reached) or perms_can_publish(leaf.accepts, reached)


cdef bint leaf_is_small(LeafConn* leaf, const Line* line) noexcept nogil:
    # Whether a message is as small as all from there must be; where not, the connection ends.
    cdef Client* c = &leaf.link.conn.base
    cdef int64_t most = client_max_payload(c)
    if most < 0 or <int64_t>(line.header.n + line.data.n) <= most:
        return True
    client_refuse(c, CLOSE_MAX_PAYLOAD, span_c(b"Maximum Payload Violation"))
    return False


cdef void leaf_message(LeafConn* leaf, const Line* line) noexcept nogil:
    cdef Client* c = &leaf.link.conn.base
    cdef Engine* e = c.engine
    cdef Msg m
    if not leaf_is_small(leaf, line):
        return
    link_message(&leaf.link, c.account, line, &m)
    if leaf.accepts != NULL and not leaf_may_send(leaf, m.dest):
        leaf_violation(leaf, b"Publish to", line.subject)
        return
    m.origin = c.origin
    ack_subject_take(&m.reply, &m.subject)
    if c.account.renames:
        m.dest = map_subject(c, m.dest)
        if m.dest.p == NULL:
            return
        if m.dest.p != line.subject.p:
            # The other side has chosen queue groups, if any, for the subject that it knows.
            if line.queues.n == 0:
                m.groups = NULL
            if m.subject.p == line.subject.p:
                m.subject = m.dest
    engine_route(e, c, &m)


cdef void leaf_listens(LeafConn* leaf, const Line* line) noexcept nogil:
    cdef Client* c = &leaf.link.conn.base
    cdef Span sid = leaf_sid(leaf, line)
    cdef Sub* s
    if sid.p != NULL and line.kind == LINE_INTEREST and strmap_get(&c.subs, sid) == NULL and not client_may_add(c):
        return
    s = link_interest(&leaf.link, c.account, line, sid, c.origin, True)
    if s != NULL and c.account.streams != NULL:
        shadows_add(c.account, s)       # what its account imports reaches it


cdef void leaf_line(LinkConn* link, const Line* line) noexcept nogil:
    cdef LeafConn* leaf = <LeafConn*>link
    if line.kind == LINE_MESSAGE:
        leaf_message(leaf, line)
    elif line.kind == LINE_NO_INTEREST or (line.kind == LINE_INTEREST and leaf_may_listen(leaf, line)):
        leaf_listens(leaf, line)


cdef size_t leaf_feed(Client* b, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    return link_feed(<LinkConn*>b, DIALECT_LEAF, leaf_line, p, n, need)


# ---- what goes there -------------------------------------------------------------------------------------

cdef int leaf_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # Protocol.deliver. Other servers of the cluster have connections to the hub themselves: what they send goes there from here
    # only if it answers a service.
    cdef Client* c = s.client
    if c == src or c.closing:
        return 0
    if c.kind == KIND_HUB and m.kind == KIND_ROUTER and not span_starts(m.dest, b"_R_.", 4):
        return 0
    if c.perms != NULL and not perms_can_publish(c.perms, unmapped(m.dest) if is_mapped(m.dest) else m.dest):
        return 0
    return target_add(e, src, s, m)
