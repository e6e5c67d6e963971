# Changes of a stream as the members of its Raft group send them to each other: nats-server's operations, to the byte.

cdef enum:
    # The first byte of an entry.
    OP_MESSAGE = 4
    OP_PURGE = 5
    OP_DELETE = 6
    OP_COMPRESSED_MESSAGE = 14
    OP_DELETE_RANGE = 15        # of the catch-up of a stream alone
    OP_BATCH_MESSAGE = 16
    OP_BATCH_END = 17

cdef enum:
    ENTRY_COMPRESSED_FROM = 8192    # bytes of subject, reply, header and data beyond which a message is compressed
    ENTRY_PLAIN_MAX = 64 << 20      # of a message that is compressed
    # Flags of a message. nats-server knows the first one, and passes over the others.
    ENTRY_SOURCED = 1
    ENTRY_JUDGED = 0x20
    ENTRY_UNWANTED = 0x40


cdef bint take_text(Span* s, Span* out, bint short) noexcept nogil:
    # Length, of two bytes or four, and text.
    cdef uint32_t n = 0
    if not get_bytes(s, &n, 2 if short else 4) or s.n < n:
        return False
    out[0] = span(s.p, n)
    s.p += n
    s.n -= n
    return True


cdef bint message_get(Span body, StreamEntry* e) noexcept nogil:
    cdef Change* c = &e.change
    cdef uint64_t flags = 0
    if not (get_bytes(&body, &e.lseq, 8) and get_bytes(&body, &c.ts, 8) and take_text(&body, &c.subject, True)
            and take_text(&body, &e.reply, True) and take_text(&body, &c.header, True)
            and take_text(&body, &c.data, False)):
        return False
    if body.n and not get_uv(&body, &flags):
        return False
    e.sourced = flags & ENTRY_SOURCED != 0
    e.judged = flags & ENTRY_JUDGED != 0
    e.unwanted = e.judged and flags & ENTRY_UNWANTED != 0
    c.kind = CHANGE_MESSAGE
    if c.subject.n == 0 and c.header.n == 0 and c.data.n == 0 and c.ts == 0:
        c.kind = CHANGE_SKIP
    return True


cdef int packed_get(Span body, Bytes* kept, StreamEntry* e) noexcept nogil:
    cdef int rc
    kept.n = 0
    rc = s2_block(body.p, body.n, ENTRY_PLAIN_MAX, kept)
    if rc == S2_NO_MEMORY:
        return ST_NO_MEMORY
    return rc == 0 and message_get(span(kept.data, <uint32_t>kept.n), e)


cdef int operation_get(uint8_t op, Span body, Bytes* kept, StreamEntry* e) noexcept nogil:
    if op == OP_MESSAGE:
        return message_get(body, e)
    return packed_get(body, kept, e) if op == OP_COMPRESSED_MESSAGE else 0


cdef int batch_get(uint8_t op, Span body, Bytes* kept, StreamEntry* e) noexcept nogil:
    cdef uint8_t inner
    e.batch_ends = op == OP_BATCH_END
    if not take_text(&body, &e.batch, True) or not get_uv(&body, &e.batch_seq) or not get_bytes(&body, &inner, 1):
        return 0
    return operation_get(inner, body, kept, e) if e.batch.n and e.batch_seq else 0


# ---- what is JSON ------------------------------------------------------------------------------------

cdef bint kept_text(const JsonItem* it, Bytes* kept, Span* out) noexcept nogil:
    # A string without its escapes, behind what is kept already; there is room for all of them.
    cdef int n
    if it.kind == JSON_NULL:
        return True
    n = json_text(it, kept.data + kept.n, <uint32_t>(kept.cap - kept.n))
    if n < 0:
        return False
    out[0] = span(kept.data + kept.n, <uint32_t>n)
    kept.n += <size_t>n
    return True


cdef bint purge_request_get(Span text, Bytes* kept, StreamEntry* e) noexcept nogil:
    cdef JsonReader r
    cdef JsonItem key, val
    cdef int more
    cdef bint good = True
    json_open(&r, text)
    if not json_enter_object(&r):
        return False
    more = json_next_member(&r, &key, &val)
    while more > 0 and good:
        if json_key_is(&key, b"filter"):
            good = kept_text(&val, kept, &e.change.subject)
        elif json_key_is(&key, b"seq"):
            good = json_uint(&val, &e.change.seq)
        elif json_key_is(&key, b"keep"):
            good = json_uint(&val, &e.change.keep)
        more = json_next_member(&r, &key, &val)
    return good and more == 0


cdef bint object_member(const JsonItem* key, const JsonItem* val, Bytes* kept, StreamEntry* e, bint* no_erase) noexcept nogil:
    # False: it has the wrong type.
    if json_key_is(key, b"client"):
        e.client = val.text if val.kind == JSON_OBJECT else span(NULL, 0)
        return val.kind == JSON_OBJECT or val.kind == JSON_NULL
    if json_key_is(key, b"stream"):
        return kept_text(val, kept, &e.stream)
    if json_key_is(key, b"subject"):
        return kept_text(val, kept, &e.api)
    if json_key_is(key, b"reply"):
        return kept_text(val, kept, &e.reply)
    if json_key_is(key, b"last_seq"):
        return json_uint(val, &e.last)
    if json_key_is(key, b"seq") or json_key_is(key, b"first"):
        return json_uint(val, &e.change.seq)
    if json_key_is(key, b"num"):
        return json_uint(val, &e.change.most)
    if json_key_is(key, b"no_erase"):
        return json_bool(val, no_erase)
    if json_key_is(key, b"request") and val.kind != JSON_NULL:
        return purge_request_get(val.text, kept, e)
    return True


cdef int object_get(uint8_t op, Span body, Bytes* kept, StreamEntry* e) noexcept nogil:
    cdef JsonReader r
    cdef JsonItem key, val
    cdef int more
    cdef bint good = True, no_erase = False
    kept.n = 0
    if bytes_reserve(kept, <size_t>body.n + 64) < 0:    # strings get shorter at most
        return ST_NO_MEMORY
    json_open(&r, body)
    if not json_enter_object(&r):
        return 0
    more = json_next_member(&r, &key, &val)
    while more > 0 and good:
        good = object_member(&key, &val, kept, e, &no_erase)
        more = json_next_member(&r, &key, &val)
    if not good or more < 0 or not json_at_end(&r):
        return 0
    if op == OP_PURGE:
        e.change.kind = CHANGE_PURGE
        if e.change.seq == 0 and e.change.keep == 0:
            e.change.seq = e.last + 1           # what came later stays
        return 1
    if op == OP_DELETE_RANGE:
        e.change.kind = CHANGE_SKIP
        return e.change.most <= UINT64_MAX - e.change.seq
    e.change.erase = not no_erase
    e.change.kind = CHANGE_DELETE if e.api.n or e.change.erase else CHANGE_RELEASE
    return 1


cdef int change_get(Span entry, Bytes* kept, StreamEntry* out) noexcept nogil:
    cdef uint8_t op
    memset(out, 0, sizeof(StreamEntry))
    if not get_bytes(&entry, &op, 1):
        return 0
    if op == OP_BATCH_MESSAGE or op == OP_BATCH_END:
        return batch_get(op, entry, kept, out)
    if op == OP_PURGE or op == OP_DELETE or op == OP_DELETE_RANGE:
        return object_get(op, entry, kept, out)
    return operation_get(op, entry, kept, out)


cdef bint is_request(Span entry) noexcept nogil:
    # Whether an entry may be a request of the API.
    return entry.n and (entry.p[0] == OP_PURGE or entry.p[0] == OP_DELETE)


# ---- the way out ---------------------------------------------------------------------------------------

cdef int put_text(Bytes* out, Span s, bint short) noexcept nogil:
    if short and s.n > 0xffff:
        return ST_TOO_LARGE
    if bytes_add(out, &s.n, 2 if short else 4) < 0 or bytes_add(out, s.p, s.n) < 0:
        return ST_NO_MEMORY
    return ST_OK


cdef int message_body_put(const StreamEntry* e, Bytes* out) noexcept nogil:
    cdef uint8_t flags = ENTRY_SOURCED if e.sourced else 0
    cdef int rc = ST_OK
    if e.judged:
        flags |= ENTRY_JUDGED | ENTRY_UNWANTED if e.unwanted else ENTRY_JUDGED
    if bytes_add(out, &e.lseq, 8) < 0 or bytes_add(out, &e.change.ts, 8) < 0:
        return ST_NO_MEMORY
    rc = put_text(out, e.change.subject, True)
    rc = rc if rc < 0 else put_text(out, e.reply, True)
    rc = rc if rc < 0 else put_text(out, e.change.header, True)
    rc = rc if rc < 0 else put_text(out, e.change.data, False)
    return ST_NO_MEMORY if rc == ST_OK and bytes_add(out, &flags, 1) < 0 else rc


cdef int message_put(const StreamEntry* e, Bytes* out) noexcept nogil:
    cdef uint64_t size = <uint64_t>e.change.subject.n + e.reply.n + e.change.header.n + e.change.data.n
    cdef size_t at = out.n
    cdef uint8_t op = OP_MESSAGE
    cdef Bytes packed
    cdef int rc
    if bytes_add(out, &op, 1) < 0:
        return ST_NO_MEMORY
    rc = message_body_put(e, out)
    if rc < 0 or size <= ENTRY_COMPRESSED_FROM:
        return rc
    memset(&packed, 0, sizeof(Bytes))
    if s2_pack_block(out.data + at + 1, out.n - at - 1, &packed) < 0:
        rc = ST_NO_MEMORY
    elif packed.n < out.n - at - 1:
        out.data[at] = OP_COMPRESSED_MESSAGE
        memcpy(out.data + at + 1, packed.data, packed.n)
        out.n = at + 1 + packed.n
    bytes_free(&packed)
    return rc


cdef int batch_put(const StreamEntry* e, Bytes* out) noexcept nogil:
    cdef uint8_t op = OP_BATCH_END if e.batch_ends else OP_BATCH_MESSAGE
    cdef uint8_t number[10]
    cdef int rc
    if bytes_add(out, &op, 1) < 0:
        return ST_NO_MEMORY
    rc = put_text(out, e.batch, True)
    if rc == ST_OK and bytes_add(out, number, put_uv(number, e.batch_seq)) < 0:
        rc = ST_NO_MEMORY
    return rc if rc < 0 else message_put(e, out)


cdef int entry_member(Bytes* out, const char* name, Span text) noexcept nogil:
    # ,"name":"text"
    return (add_text(out, name) or add_text(out, b"\"") or add_json_text(out, text) or add_text(out, b"\""))


cdef int entry_count(Bytes* out, const char* name, uint64_t n) noexcept nogil:
    return add_text(out, name) or add_u64(out, n)


cdef int object_begin(const StreamEntry* e, uint8_t op, Bytes* out) noexcept nogil:
    cdef int rc = bytes_add(out, &op, 1) or add_text(out, b"{")
    if e.client.n:
        rc = rc or add_text(out, b"\"client\":") or add_span(out, e.client) or add_text(out, b",")
    return rc or entry_member(out, b"\"stream\":", e.stream)


cdef int delete_put(const StreamEntry* e, Bytes* out) noexcept nogil:
    cdef int rc = object_begin(e, OP_DELETE, out) or entry_count(out, b",\"seq\":", e.change.seq)
    if not e.change.erase:
        rc = rc or add_text(out, b",\"no_erase\":true")
    rc = rc or entry_member(out, b",\"subject\":", e.api) or entry_member(out, b",\"reply\":", e.reply)
    return ST_NO_MEMORY if rc or add_text(out, b"}\n") else ST_OK


cdef int purge_put(const StreamEntry* e, Bytes* out) noexcept nogil:
    cdef const Change* c = &e.change
    cdef bint below = c.seq != 0 and c.seq != e.last + 1
    cdef const char* begin = b",\"request\":{"
    cdef int rc = object_begin(e, OP_PURGE, out) or entry_count(out, b",\"last_seq\":", e.last)
    rc = rc or entry_member(out, b",\"subject\":", e.api) or entry_member(out, b",\"reply\":", e.reply)
    if below:
        rc = rc or add_text(out, begin) or entry_count(out, b"\"seq\":", c.seq)
        begin = b","
    if c.subject.n:
        rc = rc or add_text(out, begin) or entry_member(out, b"\"filter\":", c.subject)
        begin = b","
    if c.keep:
        rc = rc or add_text(out, begin) or entry_count(out, b"\"keep\":", c.keep)
    if below or c.subject.n or c.keep:
        rc = rc or add_text(out, b"}")
    return ST_NO_MEMORY if rc or add_text(out, b"}\n") else ST_OK


cdef int range_put(const StreamEntry* e, Bytes* out) noexcept nogil:
    cdef uint8_t op = OP_DELETE_RANGE
    cdef int rc = bytes_add(out, &op, 1) or entry_count(out, b"{\"First\":", e.change.seq)
    rc = rc or entry_count(out, b",\"Num\":", e.change.most)
    return ST_NO_MEMORY if rc or add_text(out, b"}\n") else ST_OK


cdef int change_put(const StreamEntry* e, Bytes* out) noexcept nogil:
    if e.change.kind == CHANGE_SKIP and e.change.most:
        return range_put(e, out)
    if e.change.kind == CHANGE_MESSAGE or e.change.kind == CHANGE_SKIP:
        return batch_put(e, out) if e.batch.n else message_put(e, out)
    if e.change.kind == CHANGE_PURGE:
        return purge_put(e, out)
    if e.change.kind == CHANGE_TRUNCATE:
        return ST_UNKNOWN                       # no leader asks for one
    return delete_put(e, out)
