# What a pull request asks for, read from its body.

cdef enum:
    WRONG_ROOM = 200                    # of the text that says what is wrong with a request


cdef struct PullAsk:
    # What a request says.
    int64_t batch                       # zero and less ask for one message, and are told as they are in statuses
    int64_t max_bytes
    int64_t expires
    int64_t heartbeat
    int64_t min_pending
    int64_t min_ack_pending
    int64_t priority
    bint no_wait
    bint formal                         # a JSON object, which is to name a group where there are any
    int n_group                         # 0: none, -1: one that no group has
    int n_id                            # 0: none, -1: one that no pin has
    uint8_t group[GROUP_MAX + 4]
    uint8_t id[PIN_SIZE + 4]


cdef bint ask_text(const JsonItem* val, uint8_t* out, uint32_t room, int* n) noexcept nogil:
    # A text of at most `room` bytes, where four more have a place; null says nothing.
    if val.kind == JSON_STRING:
        n[0] = json_text(val, out, room + 4)
        if n[0] > <int>room:
            n[0] = -1
    return val.kind == JSON_STRING or val.kind == JSON_NULL


cdef bint ask_member(PullAsk* a, const JsonItem* key, const JsonItem* val) noexcept nogil:
    if json_key_is(key, b"batch"):
        return read_int(val, &a.batch)
    if json_key_is(key, b"max_bytes"):
        return read_int(val, &a.max_bytes)
    if json_key_is(key, b"expires"):
        return read_int(val, &a.expires)
    if json_key_is(key, b"no_wait"):
        return json_bool(val, &a.no_wait)
    if json_key_is(key, b"idle_heartbeat"):
        return read_int(val, &a.heartbeat)
    if json_key_is(key, b"min_pending"):
        return read_int(val, &a.min_pending)
    if json_key_is(key, b"min_ack_pending"):
        return read_int(val, &a.min_ack_pending)
    if json_key_is(key, b"priority"):
        return read_int(val, &a.priority)
    if json_key_is(key, b"id"):
        return ask_text(val, a.id, PIN_SIZE, &a.n_id)
    if json_key_is(key, b"group"):
        return ask_text(val, a.group, GROUP_MAX, &a.n_group)
    return True


cdef const char* go_type(const JsonItem* key) noexcept nogil:
    if json_key_is(key, b"no_wait"):
        return b"bool"
    if json_key_is(key, b"id") or json_key_is(key, b"group"):
        return b"string"
    if json_key_is(key, b"expires") or json_key_is(key, b"idle_heartbeat"):
        return b"time.Duration"
    return b"int64" if json_key_is(key, b"min_pending") or json_key_is(key, b"min_ack_pending") else b"int"


cdef const char* json_kind(const JsonItem* val) noexcept nogil:
    if val.kind == JSON_STRING:
        return b"string"
    if val.kind == JSON_NUMBER:
        return b"number"
    if val.kind == JSON_OBJECT:
        return b"object"
    return b"array" if val.kind == JSON_ARRAY else b"bool"


cdef bint wrong_type(char* wrong, const JsonItem* key, const JsonItem* val) noexcept nogil:
    # As Go's decoder says it; a number that does not fit is named.
    cdef const char* target = go_type(key)
    cdef bint misfit = val.kind == JSON_NUMBER and target[0] != c'b' and target[0] != c's'
    snprintf(wrong, WRONG_ROOM,
             b"json: cannot unmarshal %s%s%.*s into Go struct field JSApiConsumerGetNextRequest.%.*s of type %s",
             json_kind(val), b" " if misfit else b"", <int>(min(val.text.n, <uint32_t>24) if misfit else 0),
             <const char*>val.text.p, <int>min(key.text.n, <uint32_t>20), <const char*>key.text.p, target)
    return False


cdef bint wrong_character(char* wrong, const JsonReader* j, const char* where) noexcept nogil:
    if j.p >= j.end:
        snprintf(wrong, WRONG_ROOM, b"unexpected end of JSON input")
    elif c' ' <= j.p[0] < 127:
        snprintf(wrong, WRONG_ROOM, b"invalid character '%c' %s", <int>j.p[0], where)
    else:
        snprintf(wrong, WRONG_ROOM, b"invalid character '\\x%02x' %s", <int>j.p[0], where)
    return False


cdef bint before_key(const JsonReader* j, const uint8_t* start) noexcept nogil:
    # Whether a key had to come where the reader stopped: behind an opening brace or a comma.
    cdef const uint8_t* p = j.p
    while p > start:
        p -= 1
        if p[0] == c'{' or p[0] == c',':
            return True
        if p[0] > c' ':
            return False
    return False


cdef bint read_ask(PullAsk* a, Span body, char* wrong) noexcept nogil:
    # False and what is wrong with the JSON, in WRONG_ROOM bytes.
    cdef JsonReader j
    cdef JsonItem key, val
    cdef uint64_t batch
    cdef int rc
    memset(a, 0, sizeof(PullAsk))
    body = trimmed(body)
    json_open(&j, body)
    if not json_enter_object(&j):
        a.batch = 1
        if get_u64(body, &batch) and 0 < batch <= <uint64_t>INT32_MAX:
            a.batch = <int64_t>batch
        return True
    a.formal = True
    while True:
        rc = json_next_member(&j, &key, &val)
        if rc <= 0:
            break
        if not ask_member(a, &key, &val):
            return wrong_type(wrong, &key, &val)
    if rc < 0:
        return wrong_character(wrong, &j, b"looking for beginning of object key string" if before_key(&j, body.p)
                               else b"looking for beginning of value")
    if not json_at_end(&j):
        return wrong_character(wrong, &j, b"after top-level value")
    return True
