# Who sends a request, as JSON: what a service in another account is told of its requesters, and what latency reports name.

cdef enum:
    OPTION_MAX = 4096       # bytes of an option of CONNECT


cdef void json_put_text(Draft* d, Span s) noexcept nogil:
    # In quotes, written as Go's encoder does.
    cdef const char* hexdigits = b"0123456789abcdef"
    cdef uint8_t escape[6]
    cdef uint32_t at = 0, size
    cdef uint8_t ch
    memcpy(escape, b"\\u00", 4)
    draft_byte(d, c'"')
    while at < s.n:
        ch = s.p[at]
        size = rune_size(s.p + at, s.n - at)
        if size == 0:
            draft_add(d, b"\\ufffd", 6)
        elif ch == c'"' or ch == c'\\':
            draft_byte(d, c'\\')
            draft_byte(d, ch)
        elif 8 <= ch <= 13 and ch != 11:
            draft_byte(d, c'\\')
            draft_byte(d, b"btn fr"[ch - 8])
        elif size == 3 and ch == 0xe2 and s.p[at + 1] == 0x80 and s.p[at + 2] | 1 == 0xa9:
            draft_add(d, b"\\u2028" if s.p[at + 2] == 0xa8 else b"\\u2029", 6)
        elif ch < c' ' or ch == c'<' or ch == c'>' or ch == c'&':
            escape[4] = hexdigits[ch >> 4]
            escape[5] = hexdigits[ch & 15]
            draft_add(d, escape, 6)
        else:
            draft_add(d, s.p + at, size)
        at += max(size, <uint32_t>1)
    draft_byte(d, c'"')


cdef void json_put_member(Draft* d, const char* name, Span value) noexcept nogil:
    # "name":"value", where there is one. name: with its quotes and colon.
    if value.n == 0:
        return
    if d.n and d.p[d.n - 1] != c'{':
        draft_byte(d, c',')
    draft_add(d, name, strlen(name))
    json_put_text(d, value)


cdef void json_put_count(Draft* d, const char* name, uint64_t value) noexcept nogil:
    if value == 0:
        return
    if d.n and d.p[d.n - 1] != c'{':
        draft_byte(d, c',')
    draft_add(d, name, strlen(name))
    draft_number(d, value)


cdef void json_put_options(Draft* d, Span options) noexcept nogil:
    # name, lang and version, as CONNECT had them.
    cdef JsonReader rd
    cdef JsonItem key, val
    cdef Span found[3]
    cdef uint8_t texts[3][OPTION_MAX]
    cdef int i, n
    memset(found, 0, sizeof(found))
    json_open(&rd, options)
    if not json_enter_object(&rd):
        return
    while json_next_member(&rd, &key, &val) > 0:
        if json_key_is(&key, b"name"):
            i = 0
        elif json_key_is(&key, b"lang"):
            i = 1
        elif json_key_is(&key, b"version"):
            i = 2
        else:
            continue
        if val.kind != JSON_STRING:
            continue
        n = json_text(&val, texts[i], OPTION_MAX)
        if n >= 0:
            found[i] = span(texts[i], <uint32_t>n)
    json_put_member(d, b"\"name\":", found[0])
    json_put_member(d, b"\"lang\":", found[1])
    json_put_member(d, b"\"ver\":", found[2])


cdef void client_describe(const Client* c, Span account, Span through, bint details, bint server, Draft* d) noexcept nogil:
    # c: NULL for a stream or consumer of that account. through: the account that it came by, if any.
    cdef Engine* e
    cdef uint8_t text[40]
    cdef WholeSecond second
    draft_byte(d, c'{')
    if details and c != NULL:
        if c.started > 0:
            memset(&second, 0, sizeof(second))
            json_put_member(d, b"\"start\":", span(text, put_time(text, c.started, &second)))
        json_put_member(d, b"\"host\":", c.address)
        json_put_count(d, b"\"id\":", c.cid)
    json_put_member(d, b"\"acc\":", account)
    json_put_member(d, b"\"svc\":", through)
    if details and c != NULL:
        json_put_member(d, b"\"user\":", span(c.user.data, <uint32_t>c.user.n))
        json_put_options(d, c.options)
    if c != NULL:
        e = c.engine
        json_put_count(d, b"\"rtt\":", <uint64_t>c.rtt)
        if details or server:
            json_put_member(d, b"\"server\":", span(e.server_name.data, <uint32_t>e.server_name.n))
            json_put_member(d, b"\"cluster\":", span(e.cluster_name.data, <uint32_t>e.cluster_name.n))
            if e.peers != NULL and e.peers.clusters != NULL:
                e.peers.clusters(e.peers, d)
        if details:
            if c.kind >= KIND_LEAF:
                json_put_member(d, b"\"kind\":", span_c(b"Leafnode"))
            else:
                json_put_member(d, b"\"kind\":", span_c(b"Client"))
                json_put_member(d, b"\"client_type\":", span_c(b"websocket" if c.websocket else b"nats"))
    draft_byte(d, c'}')


cdef int client_name(Client* c, Span user) noexcept nogil:
    # 0 | -1 no memory
    c.user.n = 0
    return bytes_add(&c.user, user.p, user.n)
