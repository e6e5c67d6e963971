# Messages that pass from one account to another: a service's requests are routed on from the account that imports, its
# replies come back; a stream's messages are heard by the shadows of subscriptions.

cdef enum:
    INFO_NAME = 17          # bytes of Nats-Request-Info


# ---- requests ------------------------------------------------------------------------------------------

cdef bint is_request_info(const uint8_t* p, const uint8_t* end) noexcept nogil:
    return end - p > INFO_NAME and memcmp(p, b"Nats-Request-Info:", INFO_NAME + 1) == 0


cdef void header_without_info(Span block, Draft* d) noexcept nogil:
    # The lines of a header block but the last, empty one, and without what a client says of itself.
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end
    cdef const uint8_t* stop
    if block.n <= 2:
        draft_add(d, b"NATS/1.0\r\n", 10)
        return
    end = block.p + block.n - 2
    while p < end:
        stop = <const uint8_t*>memchr(p, c'\n', end - p)
        stop = end if stop == NULL else stop + 1
        if p == block.p or not is_request_info(p, end):
            draft_add(d, p, stop - p)
        p = stop
    if d.n and d.p[d.n - 1] != c'\n':
        draft_add(d, b"\r\n", 2)       # no block at all, but what follows is to be a line of its own


cdef inline bint is_fast(Span reply) noexcept nogil:
    # Whether it tells a message's place in a fast batch, which a stream has to know.
    return reply.n > 4 and memcmp(reply.p + reply.n - 4, b".$FI", 4) == 0


cdef void request_header(Client* src, const Via* via, const Msg* m, Draft* d) noexcept nogil:
    # The header block with who asks. What the first import shares goes all the way.
    cdef const Via* first = via
    cdef Draft info
    cdef bint server = False
    cdef bint shared
    while True:
        shared = first.outer != NULL and first.outer.is_request and first.outer.share
        server = server or (not shared and (first.to_system or (first.share and first.outer != NULL)))
        if first.outer == NULL or not first.outer.is_request:
            break
        first = first.outer
    draft_open(&info)
    client_describe(src, src.account.name if src != NULL else first.account.name,
                    via.account.name if via != first else span(NULL, 0), first.share, server, &info)
    if is_fast(first.reply):
        info.n -= 1
        json_put_member(&info, b"\"reply\":", first.reply)
        draft_byte(&info, c'}')
    header_without_info(m.header, d)
    draft_add(d, b"Nats-Request-Info: ", INFO_NAME + 2)
    draft_add(d, info.p, info.n)
    draft_add(d, b"\r\n\r\n", 4)
    d.failed = d.failed or info.failed
    draft_free(&info)


cdef bint is_cycle(const Via* via, uint64_t export_id) noexcept nogil:
    # Whether the message under way has come by this export before.
    while via != NULL:
        if via.export_id == export_id:
            return True
        via = via.outer
    return False


cdef inline bint is_ack(Span reply) noexcept nogil:
    return span_starts(reply, b"$JS.ACK.", 8)


cdef void send_to(ServiceImport* s, Account* to, Msg* m, Draft* d) noexcept nogil:
    # Addresses m, whose subject in that account is in d, if it is not the one that it has.
    cdef Draft mapped
    cdef bint seen_otherwise = m.subject.p != m.dest.p      # what a consumer delivers shows the subject that was stored
    m.account = to
    if d.n:
        m.dest = draft_span(d)
    if to.renames:
        draft_open(&mapped)
        if account_renames(to, m.dest, &mapped):
            d.n = 0
            draft_add(d, mapped.p, mapped.n)
            d.failed = d.failed or mapped.failed
            m.dest = draft_span(d)
        draft_free(&mapped)
    if not seen_otherwise:
        m.subject = m.dest


cdef int service_request(Engine* e, Client* src, ServiceImport* s, const Msg* m) noexcept nogil:
    cdef Msg to = m[0]
    cdef Via via
    cdef Draft subject, header
    cdef Response* r = NULL
    cdef uint8_t reply[TRACKED_SIZE]
    cdef uint64_t id = 0
    cdef bint by_header, watched
    cdef int taken = 0
    if is_cycle(e.via, s.export_id) or (s.to.system and asks_an_asset(m.dest)):
        return 0                        # in the system account servers listen that leave these to streams and consumers
    watched = is_watched(s, &e.env, m.header, &by_header)
    if m.reply.n and not is_ack(m.reply):
        r = response_new(s, s.to, s.account, m.reply)
        if r == NULL:
            return 0
        if watched and s.respond == RESPOND_ONCE:
            report_begin(r, src, m.header if by_header else span(NULL, 0))
        id = r.id
        to.reply = span(reply, response_subject(r, reply))
    elif watched and m.reply.n == 0:
        report_bad(s, src, m.header if by_header else span(NULL, 0))
    via.outer = e.via
    via.is_request = True
    via.export_id = s.export_id
    via.account = s.account
    via.share = s.share
    via.to_system = s.to.system
    via.reply = m.reply
    draft_open(&subject)
    draft_open(&header)
    if s.transform != NULL:
        transform_apply(s.transform, &e.env, m.dest, &subject)
    else:
        draft_add(&subject, s.subject.p, s.subject.n)
    send_to(s, s.to, &to, &subject)
    if m.kind != KIND_SYSTEM:
        request_header(src, &via, m, &header)
        to.header = draft_span(&header)
    if not subject.failed and not header.failed:
        e.via = &via
        taken = engine_route(e, src, &to)
        e.via = via.outer
    draft_free(&subject)
    draft_free(&header)
    if taken == 0 and id:
        r = response_find(e, id)        # somebody may have answered meanwhile
        if r != NULL:
            response_end(e, r, REPORT_UNAVAILABLE)
    return taken


# ---- replies -------------------------------------------------------------------------------------------

cdef int service_reply(Engine* e, Client* src, Account* at, const Msg* m) noexcept nogil:
    cdef Response* r = response_find(e, reply_id(m.dest))
    cdef Response* back = NULL
    cdef Msg to = m[0]
    cdef Via via
    cdef Draft subject
    cdef ServiceImport* s
    cdef uint8_t reply[TRACKED_SIZE]
    cdef uint64_t id, back_id = 0
    cdef bint is_last
    cdef int taken = 0
    if r == NULL or r.at != at:
        return 0
    to.kind = KIND_ACCOUNT      # whatever the requester named for it, an answer asks nothing of the server
    id = r.id
    s = r.of
    if m.reply.n and not is_ack(m.reply):
        back = response_new(s, r.to, r.at, m.reply)     # the answer is a request of the one who answers
        r = response_find(e, id)
        if back == NULL or r == NULL:
            return 0
        back_id = back.id
        to.reply = span(reply, response_subject(back, reply))
    draft_open(&subject)
    draft_add(&subject, r.reply.p, r.reply.n)
    send_to(s, r.to, &to, &subject)
    if r.report.n:
        report_answer(r, src, m.dest)
    is_last = s.respond == RESPOND_ONCE or (m.header.n == 0 and m.data.n == 0)
    if is_last:
        response_free(e, r)
    via.outer = e.via
    via.is_request = False
    via.export_id = s.export_id
    if not subject.failed:
        e.via = &via
        taken = engine_route(e, src, &to)
        e.via = via.outer
    draft_free(&subject)
    r = response_find(e, id) if not is_last else NULL
    if r != NULL and taken:
        list_remove(&r.node)
        response_append(r, e.env.mono)
    elif r != NULL:
        response_free(e, r)
    if taken == 0 and back_id:
        back = response_find(e, back_id)
        if back != NULL:
            response_free(e, back)
    return taken


cdef inline bint has_imports(const Sub* s) noexcept nogil:
    return s.client != NULL or s.hears & IMPORTS


cdef inline int take_shadowed(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    return hand_over(e, src, s, m) if s.client != NULL else s.fn(s.target, m)


cdef int shadow_deliver(Engine* e, Client* src, Sub* shadow, const Msg* m) noexcept nogil:
    cdef StreamImport* of = <StreamImport*>shadow.target
    cdef Sub* s = shadow.shadow
    cdef Msg to = m[0]
    cdef Draft subject
    cdef int taken = 0
    if e.via != NULL or s.closed:       # what came by a service is not passed on
        return 0
    draft_open(&subject)
    to.dest = imported_subject(e, of, m.dest, &subject)
    if m.subject.p == m.dest.p:
        to.subject = to.dest
    if not subject.failed:
        if e.sharing == m:
            e.sharing = &to
        e.importing = of if s.client != NULL else NULL
        taken = take_shadowed(e, src, s, &to)
        e.importing = NULL
        if e.sharing == &to:
            e.sharing = m
    draft_free(&subject)
    return taken


cdef Span imported_subject(Engine* e, StreamImport* of, Span subject, Draft* d) noexcept nogil:
    if of.is_literal:
        return of.local
    if of.there == NULL:
        return subject
    transform_apply(of.there, &e.env, subject, d)
    return draft_span(d)


cdef int link_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    if s.link == LINK_SERVICE:
        return service_request(e, src, <ServiceImport*>s.target, m)
    if s.link == LINK_REPLY:
        return service_reply(e, src, <Account*>s.account, m)
    return shadow_deliver(e, src, s, m)
