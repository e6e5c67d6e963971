# INFO, CONNECT and keepalive of clients: what they say besides messages.

cdef enum InfoForm:
    INFO_FIRST = 0          # with a nonce, for who has to sign
    INFO_CONNECTED          # with connect_info, for clients that asked for it
    INFO_CHANGED            # to who is connected, as the server's part is another one
    INFO_LAME               # likewise, and asks the client to connect elsewhere


cdef void send_info(Conn* c, int form) noexcept nogil:
    # INFO with this connection's id and address.
    cdef const Terms* t = c.terms
    cdef ClientConn* cc = <ClientConn*>c
    cdef Client* b = &c.base
    cdef char text[96]
    if form != INFO_FIRST and t.later_head.n:
        client_write(b, t.later_head.data, t.later_head.n)
    else:
        client_write(b, t.info_head.data, t.info_head.n)
    client_write(b, text, snprintf(text, sizeof(text), b"%lld", <long long>client_max_payload(b)))
    client_write(b, t.info_middle.data, t.info_middle.n)
    client_write(b, text, snprintf(text, sizeof(text), b"%llu", <unsigned long long>b.cid))
    if c.approach != PROXYING:      # else its address is not known yet
        client_text(b, b",\"client_ip\":\"")
        client_write(b, c.address, c.n_address)
        client_write(b, b"\"", 1)
    if form == INFO_CONNECTED:
        # Names of accounts hold nothing that JSON writes in another way (jsserver/config/accounts.py).
        client_text(b, b",\"connect_info\":true,\"remote_account\":\"")
        client_write(b, b.account.name.p, b.account.name.n)
        client_text(b, b"\",\"acc_is_sys\":true" if b.account.system else b"\"")
    elif form == INFO_FIRST and cc.n_nonce:
        client_text(b, b",\"nonce\":\"")
        client_write(b, cc.nonce, cc.n_nonce)
        client_write(b, b"\"", 1)
    elif form == INFO_LAME:
        client_text(b, b",\"ldm\":true")
    client_write(b, t.info_tail.data, t.info_tail.n)


cdef inline void client_text(Client* b, const char* text) noexcept nogil:
    client_write(b, text, strlen(text))


cdef void make_nonce(ClientConn* c) noexcept nogil:
    # Random bytes in base64 for URLs, without padding.
    cdef const char* digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    cdef Env* env = &c.conn.base.engine.env
    cdef uint8_t raw[NONCE_BYTES]
    cdef uint32_t bits = 0, n_bits = 0, i
    for i in range(NONCE_BYTES):
        raw[i] = <uint8_t>env_secret(env)
    c.n_nonce = 0
    for i in range(NONCE_BYTES):
        bits = bits << 8 | raw[i]
        n_bits += 8
        while n_bits >= 6:
            n_bits -= 6
            c.nonce[c.n_nonce] = digits[bits >> n_bits & 63]
            c.n_nonce += 1
    if n_bits:
        c.nonce[c.n_nonce] = digits[bits << (6 - n_bits) & 63]
        c.n_nonce += 1


cdef void client_made(Client* b) noexcept nogil:
    cdef ClientConn* c = <ClientConn*>b
    b.opts = &c.opts
    c.opts.verbose = c.opts.pedantic = c.opts.echo = True


cdef void client_greet(Client* b) noexcept nogil:
    cdef Conn* c = <Conn*>b
    cdef bint full = net_is_full(c.reactor.net, 0)
    if c.terms.auth.nonce:
        make_nonce(<ClientConn*>c)
    # Nobody is to hear INFO before a handshake that comes first; who is too many hears why in plain text.
    if not (full and c.approach and c.security != NULL and c.security.first):
        send_info(c, INFO_FIRST)
    c.keepalive.sent = b.engine.env.mono     # INFO asks for CONNECT as PING for PONG
    if full:
        client_refuse(b, CLOSE_MAX_CONNECTIONS, span_c(b"maximum connections exceeded"))


cdef void client_open(Client* b) noexcept nogil:
    cdef Conn* c = <Conn*>b
    cdef Net* net = c.reactor.net
    if b.closing:
        return
    if c.terms.auth.required:
        c.auth = AUTH_NEEDED
        timer_set(&c.reactor.timers, &c.auth_timer, b.engine.env.mono + c.terms.auth.timeout)
    else:
        client_join(b, b.account)       # the global account, which has no limits
        arm_ping(c, ping_interval(c))


cdef inline int64_t ping_interval(const Conn* c) noexcept nogil:
    return c.terms.ping_interval or c.reactor.net.limits.ping_interval


cdef void arm_ping(Conn* c, int64_t delay) noexcept nogil:
    timer_set(&c.reactor.timers, &c.keepalive.timer, c.base.engine.env.mono + delay)


cdef void client_keepalive(Client* b, int64_t now) noexcept nogil:
    cdef Conn* c = <Conn*>b
    cdef Net* net = c.reactor.net
    cdef bint rtt_fresh = c.keepalive.rtt_at != 0 and now - c.keepalive.rtt_at < 3600 * <int64_t>1000000000
    arm_ping(c, ping_interval(c))
    if c.auth != AUTH_OPEN:
        return
    if c.keepalive.pings_out == 0 and rtt_fresh and now - c.input.at < ping_interval(c):
        return
    if <int64_t>c.keepalive.pings_out + 1 > net.limits.ping_max:
        client_refuse(&c.base, CLOSE_STALE, span_c(b"Stale Connection"))
        return
    c.keepalive.pings_out += 1
    c.keepalive.sent = now
    client_write(&c.base, b"PING\r\n", 6)
    if c.base.engine.trace:
        trace_line(&c.base, TRACE_OUT, b"PING", span(NULL, 0))


cdef void on_pong(Conn* c) noexcept nogil:
    cdef int64_t now = c.base.engine.env.mono
    c.keepalive.pings_out = 0
    if c.keepalive.sent:
        c.base.rtt = now - c.keepalive.sent
        if c.base.rtt <= 0:
            c.base.rtt = 1
        c.keepalive.rtt_at = now
        c.keepalive.sent = 0


cdef void on_ping(ClientConn* cc) noexcept nogil:
    cdef Conn* c = &cc.conn
    client_write(&c.base, b"PONG\r\n", 6)
    if c.base.engine.trace:
        trace_line(&c.base, TRACE_OUT, b"PONG", span(NULL, 0))
    if not cc.first_pong:
        cc.first_pong = True
        if cc.version >= 1:
            send_info(c, INFO_CONNECTED)


cdef bint client_inform(Conn* c, bint lame) noexcept nogil:
    cdef ClientConn* cc = <ClientConn*>c
    if cc.version < 1 or not cc.first_pong or c.base.closing:
        return False
    send_info(c, INFO_LAME if lame else INFO_CHANGED)
    return True


cdef inline void refuse(Conn* c) noexcept nogil:
    client_refuse(&c.base, CLOSE_AUTH_FAILURE, span_c(b"Authorization Violation"))


cdef void refuse_stranger(Conn* c) noexcept nogil:
    # It did not even say who it is.
    note_text(&c.base, b"authentication error")
    refuse(c)


cdef inline void first_rtt(Conn* c) noexcept nogil:
    # As long as it took from INFO to CONNECT, until there is a PONG.
    if c.base.rtt == 0:
        c.base.rtt = max(c.base.engine.env.mono - c.keepalive.sent, <int64_t>1)
        c.keepalive.sent = 0


cdef void ask_control(Conn* c) noexcept nogil:
    # The control plane decides about this connection's CONNECT, in what time that takes; until then its input rests.
    cdef ClientConn* cc = <ClientConn*>c
    cdef Span texts[3]
    first_rtt(c)
    c.auth = AUTH_WAITING
    c.rest.paused = True
    timer_cancel(&c.reactor.timers, &c.auth_timer)
    texts[0] = span(c.connect.data, <uint32_t>c.connect.n)
    texts[1] = span(<const uint8_t*>cc.nonce, cc.n_nonce)
    texts[2] = span(c.secured.data, <uint32_t>c.secured.n)
    if note_client(&c.base, IN_CONNECT, texts, 3, 0) != 0:
        refuse(c)
    conn_events(c)


cdef bint read_options(ClientConn* c, Span json) noexcept nogil:
    # Takes the options routing needs from CONNECT; False when the JSON or a type is wrong. What the
    # control plane and monitoring need (names, credentials) is read there, from the kept text.
    cdef JsonReader rd
    cdef JsonItem key, val
    cdef Client* b = &c.conn.base
    cdef int rc
    cdef bint ok
    cdef int64_t number = 0
    b.opts.verbose = True
    b.opts.pedantic = True
    b.opts.echo = True
    b.opts.headers = False
    b.opts.no_responders = False
    c.version = 0
    json_open(&rd, json)
    if not json_enter_object(&rd):
        # Go's decoder takes null for an object without members.
        return json.n == 4 and memcmp(json.p, b"null", 4) == 0
    while True:
        rc = json_next_member(&rd, &key, &val)
        if rc <= 0:
            break
        ok = True
        if json_key_is(&key, b"verbose"):
            ok = json_bool(&val, &b.opts.verbose)
        elif json_key_is(&key, b"pedantic"):
            ok = json_bool(&val, &b.opts.pedantic)
        elif json_key_is(&key, b"echo"):
            ok = json_bool(&val, &b.opts.echo)
        elif json_key_is(&key, b"headers"):
            ok = json_bool(&val, &b.opts.headers)
        elif json_key_is(&key, b"no_responders"):
            ok = json_bool(&val, &b.opts.no_responders)
        elif json_key_is(&key, b"tls_required"):
            ok = val.kind == JSON_TRUE or val.kind == JSON_FALSE or val.kind == JSON_NULL
        elif json_key_is(&key, b"protocol"):
            ok = val.kind == JSON_NUMBER or val.kind == JSON_NULL
            if val.kind == JSON_NUMBER:
                ok = json_int(&val, &number)
                c.version = 1 if number == 1 else (0 if number == 0 else -1)
        elif (json_key_is(&key, b"user") or json_key_is(&key, b"pass") or json_key_is(&key, b"auth_token")
                or json_key_is(&key, b"name") or json_key_is(&key, b"lang") or json_key_is(&key, b"version")
                or json_key_is(&key, b"nkey") or json_key_is(&key, b"sig") or json_key_is(&key, b"jwt")):
            ok = val.kind == JSON_STRING or val.kind == JSON_NULL
        elif json_key_is(&key, b"account") or json_key_is(&key, b"new_account"):
            # Old ways to choose an account are refused, as nats-server does.
            if (val.kind == JSON_STRING and val.text.n > 0) or val.kind == JSON_TRUE:
                c.version = -2
        if not ok:
            return False
    if rc < 0 or not json_at_end(&rd):
        return False
    b.opts.headers = b.opts.headers and b.engine.limits.headers
    return True


cdef void on_connect(ClientConn* cc, Span json) noexcept nogil:
    cdef Conn* c = &cc.conn
    cdef Client* b = &c.base
    if cc.connected:
        client_drop_subs(b)
        cc.connected = False
        b.options.n = 0
        if c.terms.auth.required:
            c.auth = AUTH_NEEDED
    b.options.n = 0
    c.connect.n = 0
    if bytes_add(&c.connect, json.p, json.n) != 0 or not read_options(cc, json):
        note_text(b, b"CONNECT options are not valid")
        client_close(b, CLOSE_PROTOCOL_VIOLATION)
        return
    if c.auth == AUTH_OPEN:
        b.options = span(c.connect.data, <uint32_t>c.connect.n)
    if cc.version == -2:
        refuse_stranger(c)
        return
    if cc.version < 0 or cc.version > 1:
        client_refuse(b, CLOSE_BAD_VERSION, span_c(b"invalid client protocol"))
        return
    if b.opts.no_responders and not b.opts.headers:
        client_refuse(b, CLOSE_NO_RESPONDERS_HEADERS, span_c(b"no responders requires headers support"))
        return
    if c.auth != AUTH_OPEN:
        ask_control(c)
        return
    connect_done(b)


cdef void connect_done(Client* b) noexcept nogil:
    # CONNECT is accepted: keepalive starts with an early PING that also measures the round trip.
    cdef Conn* c = <Conn*>b
    cdef int64_t first = ping_interval(c)
    first_rtt(c)
    (<ClientConn*>c).connected = True
    c.auth = AUTH_OPEN
    c.base.options = span(c.connect.data, <uint32_t>c.connect.n)
    timer_cancel(&c.reactor.timers, &c.auth_timer)
    if c.base.opts.verbose and c.connect.n:      # else it is let in for what came without a CONNECT
        client_ok(&c.base)
    if first > 2000000000:
        first = 2000000000
    arm_ping(c, first + <int64_t>(env_random(&c.base.engine.env) % <uint64_t>(first // 5 + 1)))


cdef bint is_json_object(Span text) noexcept nogil:
    cdef JsonReader rd
    cdef JsonItem key, val
    cdef int rc = 1
    json_open(&rd, text)
    if not json_enter_object(&rd):
        return False
    while rc > 0:
        rc = json_next_member(&rd, &key, &val)
    return rc == 0 and json_at_end(&rd)
