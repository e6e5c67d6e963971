# A connection that speaks WebSocket: its request, which the control plane decides about, its life, and its end.

cdef enum:
    REQUEST_PIECE = 4096
    PACKED_SIZE = READ_SIZE
    REQUEST_MAX = 65536     # bytes of a request's head
    STATUS_NORMAL = 1000
    STATUS_GOING_AWAY = 1001
    STATUS_POLICY = 1008
    STATUS_TOO_BIG = 1009
    STATUS_INTERNAL = 1011


# ---- the request

cdef bint head_is_whole(Ws* w) noexcept nogil:
    # Looks for the empty line that ends a request; the line before it may lack its CR.
    cdef const uint8_t* p = w.request.data
    cdef const uint8_t* end = NULL
    cdef size_t n = w.request.n, at = w.searched
    while at < n:
        end = <const uint8_t*>memchr(p + at, c'\n', n - at)
        if end == NULL:
            break
        at = end - p
        if at + 1 < n and p[at + 1] == c'\n':
            w.n_head = at + 2
            return True
        if at + 2 < n and p[at + 1] == c'\r' and p[at + 2] == c'\n':
            w.n_head = at + 3
            return True
        if at + 2 >= n:
            break           # what follows it decides
        at += 1
    w.searched = n if end == NULL else at
    return False


cdef int ws_establish(Conn* c) noexcept nogil:
    cdef Ws* w = c.ws
    cdef uint8_t* packed = reactor_packed(c.reactor)
    cdef ssize_t got
    if packed == NULL:
        return -ENOMEM
    if w.state != WS_REQUEST:
        return -EAGAIN
    while w.request.n == 0 or not head_is_whole(w):
        if w.request.n >= REQUEST_MAX:
            w.n_head = w.request.n      # the control plane will see that it has no end
            break
        got = w.below.read(c, packed, REQUEST_PIECE + transport_slack(c, w.below))
        if got <= 0:
            return <int>got if got else -ECONNRESET
        if bytes_add(&w.request, packed, <size_t>got) != 0:
            return -ENOMEM
    w.state = WS_ASKED
    return ASK_CONTROL


cdef void ws_ask(Conn* c) noexcept nogil:
    # The control plane is to decide about its request; until then nothing is read.
    cdef Ws* w = c.ws
    cdef Span texts[2]
    cdef int64_t num[2]
    texts[0] = c.base.address
    texts[1] = span(w.request.data, <uint32_t>w.n_head)
    num[0] = c.port
    num[1] = w.request.n - w.n_head
    c.rest.paused = True
    c.wants.reading = c.wants.writing = False
    if w.below.want(c, False, False) != 0 or inbox_put(&c.base.engine.inbox, IN_UPGRADE, c.base.cid, texts, 2, num, 2) != 0:
        client_close(&c.base, CLOSE_UNREACHABLE)


cdef bint ws_answer(Conn* c, int verdict, Span reply, const WsTerms* agreed) noexcept nogil:
    # What the control plane says to its request; the reactor goes on from there.
    cdef Ws* w = c.ws
    if w == NULL or not is_coming(c) or not c.rest.paused or w.verdict:
        return False
    if bytes_add(&w.answer, reply.p, reply.n) != 0:
        client_close(&c.base, CLOSE_UNREACHABLE)
        return False
    w.verdict = verdict
    if verdict == WS_OPEN:
        w.agreed = agreed[0]
        w.mask = env_secret(&c.base.engine.env)
        if not c.known:
            conn_count(c)
    task_post(&c.reactor.tasks, &w.answered)
    return True


cdef void ws_answered(Task* t) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    cdef Ws* w = c.ws
    c.rest.paused = False
    w.state = w.verdict
    w.verdict = 0
    if bytes_add(&w.ahead, w.answer.data, w.answer.n) != 0:
        client_close(&c.base, CLOSE_UNREACHABLE)
        return
    c.output.owes = w.answer.n != 0
    bytes_free(&w.answer)
    if w.state == WS_REFUSED:
        client_close(&c.base, CLOSE_UNREACHABLE)
    elif w.state == WS_OPEN:
        # Behind the answer to a request of this server there may be frames already.
        if w.dials and bytes_add(&w.held, w.request.data + w.n_head, w.request.n - w.n_head) != 0:
            client_close(&c.base, CLOSE_UNREACHABLE)
            return
        bytes_free(&w.request)
        w.terms = w.agreed
        w.message.max_payload = ws_max_payload(c)
        conn_established(c, 0)
        if w.held.n:
            c.input.more = True
            conn_read_again(c)
    else:
        memmove(w.request.data, w.request.data + w.n_head, w.request.n - w.n_head)
        w.request.n -= w.n_head
        w.n_head = w.searched = 0
        c.wants.reading = True
        if w.below.want(c, True, False) != 0:
            client_close(&c.base, CLOSE_UNREACHABLE)
        elif w.request.n:
            conn_read_again(c)
    conn_flush_soon(c)


cdef int64_t ws_max_payload(Conn* c) noexcept nogil:
    # Of a message that comes: a client's is one operation, another server's are pieces of many.
    return client_max_payload(&c.base) if c.base.kind == KIND_CLIENT else -1


cdef int64_t ws_patience(Conn* c) noexcept nogil:
    return c.ws.patience


cdef void ws_late(Conn* c) noexcept nogil:
    client_close(&c.base, CLOSE_UNREACHABLE)


cdef void ws_failed(Conn* c, int rc) noexcept nogil:
    client_close(&c.base, CLOSE_UNREACHABLE)


# ---- the end

cdef int close_status(int reason) noexcept nogil:
    # What a reason is as the status of a close frame.
    if reason == CLOSE_CLIENT:
        return STATUS_NORMAL
    if (reason == CLOSE_AUTH_TIMEOUT or reason == CLOSE_AUTH_FAILURE or reason == CLOSE_MAX_ACCOUNT_CONNECTIONS
            or reason == CLOSE_MAX_CONNECTIONS or reason == CLOSE_MAX_CONTROL_LINE or reason == CLOSE_MAX_SUBSCRIPTIONS
            or reason == CLOSE_MISSING_ACCOUNT or reason == CLOSE_REVOKED or reason == CLOSE_THROTTLED):
        return STATUS_POLICY
    if reason == CLOSE_PARSE_ERROR or reason == CLOSE_PROTOCOL_VIOLATION or reason == CLOSE_BAD_VERSION:
        return STATUS_PROTOCOL
    if reason == CLOSE_MAX_PAYLOAD:
        return STATUS_TOO_BIG
    if reason == CLOSE_STALE or reason == CLOSE_SHUTDOWN:
        return STATUS_GOING_AWAY
    return STATUS_INTERNAL


cdef void ws_shutdown(Conn* c) noexcept nogil:
    cdef Ws* w = c.ws
    cdef const char* text = c.reactor.net.reasons[c.base.closing]
    if w.state == WS_OPEN and c.ending == ENDS_WITH_LAST_WORDS and c.output.head == NULL and not c.output.owes:
        if c.base.closing != CLOSE_READ_ERROR and not (c.base.closing == CLOSE_CLIENT and w.ended):
            w.n_farewell = 0        # it ends before what its frames said later on
            ws_close_frame(w, close_status(c.base.closing), <const uint8_t*>text, strlen(text))
        if bytes_add(&w.behind, w.farewell, w.n_farewell) == 0:
            ws_write(c, NULL, 0)
    w.below.shutdown(c)


cdef int ws_want(Conn* c, bint read, bint write) noexcept nogil:
    return c.ws.below.want(c, read, write)


cdef size_t ws_slack(const Conn* c) noexcept nogil:
    # Frames take less room than what they come in.
    return transport_slack(c, c.ws.below)


cdef Transport ws_transport

ws_transport.establish = ws_establish
ws_transport.read = ws_read
ws_transport.write = ws_write
ws_transport.want = ws_want
ws_transport.slack = ws_slack
ws_transport.shutdown = ws_shutdown
ws_transport.patience = ws_patience
ws_transport.late = ws_late
ws_transport.failed = ws_failed
ws_transport.asks = ws_ask
