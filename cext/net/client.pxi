# The clients' protocol: verbs in, what is wrong with them out. What CONNECT, PING and INFO mean is in handshake.pxi, what
# the others do in core (publish.pxi, subscriptions.pxi).

cdef inline int64_t look_size(const uint8_t** at, const uint8_t* end) noexcept nogil:
    # A number of one to nine digits, behind which at stands then; -1: there is none.
    cdef const uint8_t* p = at[0]
    cdef int64_t v = 0
    while p < end and p - at[0] < 9 and c'0' <= p[0] <= c'9':
        v = v * 10 + (p[0] - c'0')
        p += 1
    if p == at[0]:
        return -1
    at[0] = p
    return v


cdef uint32_t client_look(const uint8_t* p, size_t n, Ahead* ahead, uint32_t most) noexcept nogil:
    # Publishes of the form that nearly every message has, whole: PUB subject [reply] size CRLF payload CRLF, one blank
    # between each. The parser takes the others. The limits of lines and payloads are looked at when they are taken.
    cdef const uint8_t* end = p + n
    cdef const uint8_t* q
    cdef const uint8_t* reply
    cdef uint32_t found = 0
    cdef int64_t size
    while found < most and end - p > 4 and memcmp(p, b"PUB ", 4) == 0:
        q = p + 4
        while q < end and q[0] > c' ':
            q += 1
        if q == p + 4 or q == end or q[0] != c' ':
            break
        ahead[found].n_subject = <uint32_t>(q - p - 4)
        ahead[found].n_reply = 0
        q += 1
        reply = q
        size = look_size(&q, end)
        if q < end and q[0] != c'\r':
            while q < end and q[0] > c' ':
                q += 1
            if q == reply or q == end or q[0] != c' ':
                break
            ahead[found].n_reply = <uint32_t>(q - reply)
            q += 1
            size = look_size(&q, end)
        if size < 0 or end - q < size + 4 or memcmp(q, b"\r\n", 2) != 0 or memcmp(q + 2 + size, b"\r\n", 2) != 0:
            break
        ahead[found].data_at = <uint32_t>(q + 2 - p)
        ahead[found].n_data = <uint32_t>size
        found += 1
        p = q + size + 4
    return found


cdef inline void client_publish(Client* b, Span subject, Span reply, Span header, Span data) noexcept nogil:
    if b.opts.pedantic and not (subject_is_valid(subject) and subject_is_literal(subject)):
        client_error(b, b"Invalid Publish Subject")
    publish(b, subject, reply, header, data)


cdef size_t publish_ahead(ClientConn* c, const uint8_t* p) noexcept nogil:
    # Carries out the publish at p, which was recognised; the bytes it used, 0: it goes beyond the limits, is to be traced,
    # or comes from a stranger, and the parser takes it and what follows.
    cdef Client* b = &c.conn.base
    cdef const Ahead* a = c.conn.input.ahead
    cdef uint32_t n_args = a.data_at - 6
    cdef size_t used = a.data_at + <size_t>a.n_data + 2
    if (<int64_t>n_args > c.parser.max_line or (c.parser.max_payload >= 0 and <int64_t>a.n_data > c.parser.max_payload)
            or c.conn.auth == AUTH_NEEDED or b.engine.trace):
        c.conn.input.n_ahead = 0
        return 0
    c.conn.input.ahead += 1
    c.conn.input.n_ahead -= 1
    c.parser.scanned = 0
    client_publish(b, span(p + 4, a.n_subject), span(p + 5 + a.n_subject, a.n_reply), span(p, 0),
                   span(p + a.data_at, a.n_data))
    return used


cdef size_t client_feed(Client* b, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    cdef ClientConn* c = <ClientConn*>b
    cdef Op op
    cdef size_t at = 0, used
    cdef int rc = PARSE_MORE
    c.parser.max_line = b.engine.limits.max_control_line
    c.parser.max_payload = client_max_payload(b)
    while at < n and not conn_halted(&c.conn):
        if c.conn.input.n_ahead:
            used = publish_ahead(c, p + at)
            if used:
                invariant(used <= n - at, "a publish stands in what arrived")
                rc = PARSE_OK
                at += used
                conn_pace(&c.conn)
                continue
        rc = parse(&c.parser, p + at, n - at, &op)
        if rc != PARSE_OK:
            break
        invariant(op.size <= n - at, "an operation stands in what arrived")
        client_op(c, &op)
        if c.conn.rest.paused and c.conn.auth == AUTH_WAITING and op.kind != OP_CONNECT:
            return at                   # the operation is looked at again once it may be
        at += op.size
        conn_pace(&c.conn)
    if rc == PARSE_MORE and c.parser.need == 0 and n - at > LEFT_MAX and not conn_halted(&c.conn):
        rc = PARSE_LINE
    if rc < 0 and not b.closing:
        client_parse_error(c, rc, &op, p + at, n - at)
    if rc == PARSE_MORE:
        need[0] = c.parser.need
    return at


cdef const char* args_text(const Op* op, int rc) noexcept nogil:
    # What is wrong with an operation's arguments, as nats-server says it.
    if op.kind == OP_SUB:
        return b"processSub Parse Error: "
    if op.kind == OP_UNSUB:
        return b"processUnsub Parse Error: "
    if op.has_header:
        return b"processHeaderPub Bad or Missing Size: " if rc == PARSE_SIZE else b"processHeaderPub Parse Error: "
    return b"processPub Bad or Missing Size: " if rc == PARSE_SIZE else b"processPub Parse Error: "


cdef void client_parse_error(ClientConn* c, int rc, const Op* op, const uint8_t* p, size_t n) noexcept nogil:
    cdef Client* b = &c.conn.base
    cdef char text[96]
    if c.conn.auth == AUTH_NEEDED:
        refuse_stranger(&c.conn)      # who has proven nothing is told nothing else
        return
    if b.engine.trace and op.kind and rc != PARSE_LINE:
        trace_line(b, TRACE_IN, verb_text(op), op.args)     # its line was whole
    if rc == PARSE_UNKNOWN:
        client_error(b, b"Unknown Protocol Operation")
        note_error(b, b"Client parser ERROR: proto='", span(p, <uint32_t>min(n, <size_t>SNIPPET)), b"...'")
        client_close(b, CLOSE_PROTOCOL_VIOLATION)
    elif rc == PARSE_LINE:
        client_error(b, b"maximum control line exceeded")
        note_text(b, b"maximum control line exceeded")
        client_close(b, CLOSE_MAX_CONTROL_LINE)
    elif rc == PARSE_PAYLOAD:
        snprintf(text, sizeof(text), b"maximum payload exceeded: %llu vs %lld", <unsigned long long>c.parser.need,
                 <long long>c.parser.max_payload)
        note_text(b, text)
        client_refuse(b, CLOSE_MAX_PAYLOAD, span_c(b"Maximum Payload Violation"))
    else:
        note_error(b, args_text(op, rc), op.args, b"")
        client_close(b, CLOSE_PROTOCOL_VIOLATION)


cdef void client_op(ClientConn* c, const Op* op) noexcept nogil:
    # One parsed operation.
    cdef Client* b = &c.conn.base
    cdef char text[256]
    if c.conn.auth == AUTH_NEEDED and op.kind != OP_CONNECT:
        if c.conn.terms.auth.no_user:
            c.conn.connect.n = 0
            ask_control(&c.conn)
        else:
            refuse_stranger(&c.conn)
        return
    if b.engine.trace:
        trace_op(c, op)
    if op.kind == OP_PUB:
        if op.has_header and not b.opts.headers:
            note_text(b, b"message headers not supported")
            client_close(b, CLOSE_PROTOCOL_VIOLATION)
            return
        client_publish(b, op.subject, op.reply, op.header, op.data)
    elif op.kind == OP_PING:
        on_ping(c)
    elif op.kind == OP_PONG:
        on_pong(&c.conn)
    elif op.kind == OP_SUB:
        if sub_begin(b, op.subject, op.queue, op.sid, 1, 0):
            client_accepted(b)
    elif op.kind == OP_UNSUB:
        sub_end(b, op.sid, op.max)
        client_accepted(b)
    elif op.kind == OP_CONNECT:
        on_connect(c, op.args)
    elif op.kind == OP_ERR:
        snprintf(text, sizeof(text), b"Client Error %.*s", <int>min(op.args.n, <uint32_t>200), <const char*>op.args.p)
        note_text(b, text)
        client_close(b, CLOSE_PARSE_ERROR)
    elif op.kind == OP_INFO and not is_json_object(op.args):
        client_close(b, CLOSE_PARSE_ERROR)


cdef const char* verb_text(const Op* op) noexcept nogil:
    if op.kind == OP_PUB:
        return b"HPUB" if op.has_header else b"PUB"
    if op.kind == OP_PING:
        return b"PING"
    if op.kind == OP_PONG:
        return b"PONG"
    if op.kind == OP_SUB:
        return b"SUB"
    if op.kind == OP_UNSUB:
        return b"UNSUB"
    if op.kind == OP_CONNECT:
        return b"CONNECT"
    return b"INFO"


cdef void trace_op(ClientConn* c, const Op* op) noexcept nogil:
    if op.kind == OP_OK or op.kind == OP_ERR:
        return
    if op.kind == OP_PUB and (c.opts.headers or not op.has_header):
        trace_message(&c.conn.base, TRACE_IN, verb_text(op), op.args, op.header, op.data)
    else:
        trace_line(&c.conn.base, TRACE_IN, verb_text(op), op.args)


cdef Protocol client_protocol

client_protocol.size = sizeof(ClientConn)
client_protocol.init = client_made
client_protocol.look = client_look
client_protocol.greet = client_greet
client_protocol.open = client_open
client_protocol.feed = client_feed
client_protocol.deliver = client_deliver
client_protocol.admit = connect_done
client_protocol.keepalive = client_keepalive
client_protocol.refuse = client_refuse
client_protocol.accepted = client_accepted
client_protocol.unheard = client_unheard
