# Requests of the API for single messages, MSG.GET and MSG.DELETE, that streams answer themselves: what is plainly asked for, and
# can be done at once. All else is left to the control plane, which knows every form of a request and every error.

cdef enum:
    ASKED_MAX = 4096                    # bytes of a request that is read here
    SHOWN_MAX = 1088 << 10              # bytes of a message that is written as text under the engine lock: half a millisecond
    SHOWN_ADDED = 256                   # what an answer has at most besides its message's own texts

cdef enum MessageKey:
    KEY_SEQ = 1
    KEY_LAST = 2
    KEY_NEXT = 4
    KEY_NO_HDR = 8
    KEY_NO_ERASE = 16
    KEY_START = 32
    KEYS_GET = KEY_SEQ | KEY_LAST | KEY_NEXT | KEY_NO_HDR | KEY_START
    KEYS_DELETE = KEY_SEQ | KEY_NO_ERASE


cdef inline Span type_get() noexcept nogil:
    return span_c(b"io.nats.jetstream.api.v1.stream_msg_get_response")


# ---- requests ----------------------------------------------------------------------------------------------

cdef bint is_text(Span s) noexcept nogil:
    # Whether JSON shows it without losing anything: UTF-8, and nothing that add_json_text leaves to others.
    cdef uint32_t i = 0, n
    while i < s.n:
        n = rune_size(s.p + i, s.n - i)
        if n == 0 or s.p[i] < c' ' or (n == 3 and s.p[i] == 0xE2 and s.p[i + 1] == 0x80 and s.p[i + 2] | 1 == 0xA9):
            return False
        i += n
    return True


cdef bint plain_text(const JsonItem* it, Span* to) noexcept nogil:
    to[0] = it.text
    return it.kind == JSON_STRING and not it.escaped and is_text(it.text)


cdef bint plain_pattern(const JsonItem* it, Span* to) noexcept nogil:
    return plain_text(it, to) and subject_is_valid(to[0])


cdef bint plain_time(const JsonItem* it, int64_t* to) noexcept nogil:
    # In UTC, as clients write it.
    cdef Span text
    return plain_text(it, &text) and text.n and text.p[text.n - 1] == c'Z' and get_time(text, to)


cdef bint is_key(const JsonItem* key, const char* name) noexcept nogil:
    return not key.escaped and span_eq(key.text, span_c(name))


cdef uint32_t message_member(DirectGet* g, const JsonItem* key, const JsonItem* val) noexcept nogil:
    # Which one it is, its value in g (of no_erase in no_hdr: no request has both); 0: none that is plain.
    if is_key(key, b"seq"):
        return KEY_SEQ if json_uint(val, &g.seq) else 0
    if is_key(key, b"last_by_subj"):
        return KEY_LAST if plain_pattern(val, &g.last_by) else 0
    if is_key(key, b"next_by_subj"):
        return KEY_NEXT if plain_pattern(val, &g.next_by) else 0
    if is_key(key, b"start_time"):
        g.has_start = plain_time(val, &g.start_time)
        return KEY_START if g.has_start else 0
    if val.kind != JSON_TRUE and val.kind != JSON_FALSE:
        return 0
    g.no_hdr = val.kind == JSON_TRUE
    if is_key(key, b"no_hdr"):
        return KEY_NO_HDR
    return KEY_NO_ERASE if is_key(key, b"no_erase") else 0


cdef bint read_message(Span text, uint32_t known, DirectGet* g) noexcept nogil:
    # Whether it is an object with some of these keys, each once.
    cdef JsonReader j
    cdef JsonItem key, val
    cdef uint32_t found = 0, one
    cdef int rc
    memset(g, 0, sizeof(DirectGet))
    json_open(&j, text)
    if text.n > ASKED_MAX or not json_enter_object(&j):
        return False
    while True:
        rc = json_next_member(&j, &key, &val)
        if rc <= 0:
            return rc == 0 and json_at_end(&j)
        one = message_member(g, &key, &val)
        if one == 0 or one & found or not one & known:
            return False
        found |= one


cdef bint is_asked(const Stream* s, const Msg* m, uint32_t known, DirectGet* g) noexcept nogil:
    # Whether the stream serves, and the request is one that is answered here.
    return (s.failed == 0 and m.reply.n and (m.header.n == 0 or header_get(m.header, b"Nats-Required-Api-Level").p == NULL)
            and read_message(m.data, known, g))


cdef bint is_audited(Stream* s) noexcept nogil:
    # Whether somebody wants to be told of requests, which the control plane does.
    return s.env.out.has_interest(s.env.out.ctx, s.account, span(b"$JS.EVENT.ADVISORY.API", 22))


# ---- MSG.GET -----------------------------------------------------------------------------------------------

cdef int message_text(Stream* s, Bytes* b, const Record* r, bint no_hdr) noexcept nogil:
    # The answer that shows it. 0 | -1 no memory
    cdef size_t room = SHOWN_ADDED + (<size_t>r.header.n + r.data.n) // 3 * 4
    cdef uint8_t* p
    if (bytes_reserve(b, room + r.subject.n) < 0
            or bytes_add(b, b"{\"type\":\"", 9) < 0 or add_span(b, type_get()) < 0
            or bytes_add(b, b"\",\"message\":{\"subject\":\"", 24) < 0 or add_json_text(b, r.subject) < 0
            or bytes_reserve(b, room) < 0):
        return -1
    p = put_bytes(b.data + b.n, span(b"\",\"seq\":", 8))
    p += put_u64(p, r.seq)
    if r.header.n and not no_hdr:
        p = put_bytes(p, span(b",\"hdrs\":\"", 9))
        p += put_base64(p, r.header)
        p = put_bytes(p, span(b"\"", 1))
    if r.data.n:
        p = put_bytes(p, span(b",\"data\":\"", 9))
        p += put_base64(p, r.data)
        p = put_bytes(p, span(b"\"", 1))
    p = put_bytes(p, span(b",\"time\":\"", 9))
    p += put_time(p, r.ts, &s.second)
    p = put_bytes(p, span(b"\"}}", 3))
    b.n = p - b.data
    return 0


cdef bint get_send(Stream* s, Span reply, Span text, uint64_t ticket) noexcept nogil:
    # Now, or when what it shows is durable; False: there is no room to wait.
    if ticket:
        return stream_answer_later(s, ticket, reply, text, type_get()) == 0
    send_message(s, KIND_JETSTREAM, reply, span(NULL, 0), text)
    return True


cdef bint get_found(Stream* s, Span reply, const Record* r, bint no_hdr) noexcept nogil:
    cdef Bytes b
    cdef bint sent
    if <uint64_t>r.header.n + r.data.n > SHOWN_MAX or not is_text(r.subject):
        return False
    memset(&b, 0, sizeof(Bytes))
    sent = message_text(s, &b, r, no_hdr) == 0 and get_send(s, reply, b_span(&b), stream_unsettled(s, r.seq))
    bytes_free(&b)
    return sent


cdef bint get_none(Stream* s, Span reply) noexcept nogil:
    # That something is not there is said when its removal is durable.
    cdef Bytes b
    cdef char start[ERROR_START]
    cdef bint sent
    memset(&b, 0, sizeof(Bytes))
    error_start(start, &ERR_NO_MESSAGE_FOUND)
    sent = (add_text(&b, b"{\"type\":\"") == 0 and add_span(&b, type_get()) == 0 and add_text(&b, b"\",") == 0
            and add_text(&b, start) == 0 and add_text(&b, ERR_NO_MESSAGE_FOUND.text) == 0 and add_text(&b, b"\"}}") == 0
            and get_send(s, reply, b_span(&b), stream_unsettled(s, 0)))
    bytes_free(&b)
    if sent:
        count_request(s, True)
    return sent


cdef int get_inbound(void* target, const Msg* m) noexcept nogil:
    # Returns Answered. Besides requests that are not plain it leaves messages that have to be looked for long or come from the
    # disk, and errors of which somebody wants to be told.
    cdef Stream* s = <Stream*>target
    cdef DirectGet g
    cdef Look k
    cdef Record r
    cdef Wait w
    cdef Span text
    cdef bint taken = False
    cdef int rc
    if (not is_asked(s, m, KEYS_GET, &g) or (g.seq and g.has_start)
            or (g.last_by.n > 0) == (g.seq > 0 or g.next_by.n > 0 or g.has_start)):
        return LEFT_ALONE
    memset(&k, 0, sizeof(Look))
    memset(&w, 0, sizeof(Wait))
    k.at = store_seq_at(s.store, g.start_time) if g.has_start else g.seq
    text = g.last_by if g.last_by.n else g.next_by
    k.filtered = g.next_by.n or (g.last_by.n and not subject_is_literal(text))
    if k.filtered and filter_init(&k.filter, &text, 1) != ST_OK:
        return LEFT_ALONE
    rc = one_look(s, &g, &k, &r, &w)
    wait_cancel(&w)
    if rc == ST_OK:
        taken = get_found(s, m.reply, &r, g.no_hdr)
    elif rc == ST_NOT_FOUND and not is_audited(s):
        taken = get_none(s, m.reply)
    look_free(&k)
    return ANSWERED if taken else LEFT_ALONE


# ---- MSG.DELETE --------------------------------------------------------------------------------------------

cdef void delete_answer(Stream* s, Span reply) noexcept nogil:
    # Sent when the deletion is durable, as PubAcks are: requests that come together share a sync. Without memory there is no
    # answer, and the client asks again.
    cdef uint64_t ticket = store_ticket(s.store)
    cdef Span type = span_c(b"io.nats.jetstream.api.v1.stream_msg_delete_response")
    cdef Span text = span_c(b"{\"type\":\"io.nats.jetstream.api.v1.stream_msg_delete_response\",\"success\":true}")
    if ticket <= store_durable_ticket(s.store) and s.answers.b.n == 0:
        count_request(s, False)
        send_message(s, KIND_JETSTREAM, reply, span(NULL, 0), text)
    elif answer_later(s, ticket, ANSWER_DELETE, reply, span(NULL, 0), text, type) == 0:
        count_deleting(s, 1)


cdef int delete_inbound(void* target, const Msg* m) noexcept nogil:
    # Returns Answered. Besides requests that are not plain it leaves messages that have to come from the disk or are not there.
    # Where somebody wants to be told of deletions, the control plane has many under way at once, as each waits for a sync.
    cdef Stream* s = <Stream*>target
    cdef DirectGet g
    cdef Wait w
    cdef bint warm
    if is_audited(s):
        return LEFT
    if not is_asked(s, m, KEYS_DELETE, &g) or s.cfg.flags & (STREAM_SEALED | STREAM_DENY_DELETE) or answers_full(s):
        return LEFT_ALONE
    memset(&w, 0, sizeof(Wait))
    warm = store_warm(s.store, g.seq, &w)
    wait_cancel(&w)
    if not warm or stream_delete(s, g.seq, not g.no_hdr) != ST_OK:
        return LEFT_ALONE
    delete_answer(s, m.reply)
    return ANSWERED


# ---- subscriptions -----------------------------------------------------------------------------------------

cdef int subscribe_messages(Stream* s) noexcept nogil:
    # 0 | -1 no memory
    cdef Bytes b
    cdef int rc = -1
    memset(&b, 0, sizeof(Bytes))
    if add_text(&b, b"$JS.API.STREAM.MSG.GET.") == 0 and add_span(&b, s.cfg.name) == 0:
        s.asked[0] = s.env.out.subscribe(s.env.out.ctx, s.account, b_span(&b), HEARS_REQUESTS | ANSWERS, get_inbound, s)
    b.n = 0
    if add_text(&b, b"$JS.API.STREAM.MSG.DELETE.") == 0 and add_span(&b, s.cfg.name) == 0:
        s.asked[1] = s.env.out.subscribe(s.env.out.ctx, s.account, b_span(&b), HEARS_REQUESTS | ANSWERS, delete_inbound, s)
    if s.asked[0] != NULL and s.asked[1] != NULL:
        rc = 0
    else:
        unsubscribe_all(s.env, s.asked, 2)
    bytes_free(&b)
    return rc
