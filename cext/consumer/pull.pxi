# Pull requests: what they ask for, the queue in which they wait in turn, and how they end.

cdef enum:
    SWEEP_PAUSE = 1000000000            # between two sweeps of a full queue, ns
    FULL_PAUSE = 1000000                # between two looks whether a client has room again, ns
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


# ---- statuses ------------------------------------------------------------------------------------------------

cdef void send_status(Consumer* c, Span dest, Span reply, const void* text, size_t n) noexcept nogil:
    cdef Msg m
    memset(&m, 0, sizeof(Msg))
    m.dest = dest
    m.subject = dest
    m.reply = reply
    m.header = span(text, <uint32_t>n)
    m.account = c.s.account
    c.env.out.send(c.env.out.ctx, &m)


cdef void refuse(Consumer* c, Span dest, const char* status) noexcept nogil:
    # A status without further headers.
    cdef char text[256]
    cdef int n = snprintf(text, sizeof(text), b"NATS/1.0 %s\r\n\r\n", status)
    send_status(c, dest, span(NULL, 0), text, min(n, <int>sizeof(text) - 1))


cdef void refuse_number(Consumer* c, Span dest, const char* status, int64_t number) noexcept nogil:
    cdef char text[160]
    snprintf(text, sizeof(text), b"%s%lld", status, <long long>number)
    refuse(c, dest, text)


cdef void pull_status(Consumer* c, const Pull* q, const char* status) noexcept nogil:
    # A status that says what is left of the request.
    cdef char text[256]
    cdef int n = snprintf(text, sizeof(text),
                          b"NATS/1.0 %s\r\nNats-Pending-Messages: %lld\r\nNats-Pending-Bytes: %lld\r\n\r\n", status,
                          <long long>q.batch, <long long>q.bytes)
    send_status(c, span(q.reply, q.n_reply), span(NULL, 0), text, min(n, <int>sizeof(text) - 1))


cdef void send_heartbeat(Consumer* c, Span dest) noexcept nogil:
    cdef char text[1536]
    cdef int n = snprintf(text, sizeof(text),
                          b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %llu\r\nNats-Last-Stream: %llu\r\n",
                          <unsigned long long>(c.dseq - 1), <unsigned long long>(c.next - 1))
    cdef uint32_t flow
    if c.asking:
        memcpy(text + n, b"Nats-Consumer-Stalled: ", 23)
        n += 23
        flow = put_flow_subject(c, <uint8_t*>text + n)
        n += flow
        memcpy(text + n, b"\r\n", 2)
        n += 2
    memcpy(text + n, b"\r\n", 2)
    send_status(c, dest, span(NULL, 0), text, n + 2)


# ---- the queue -----------------------------------------------------------------------------------------------

cdef void pull_append(Consumer* c, Pull* q) noexcept nogil:
    q.next = NULL
    q.prev = c.last
    if c.last != NULL:
        c.last.next = q
    else:
        c.first = q
    c.last = q


cdef void pull_sort_in(Consumer* c, Pull* q) noexcept nogil:
    # Behind all that come first or are alike.
    cdef Pull* before = c.last
    while before != NULL and before.priority > q.priority:
        before = before.prev
    q.prev = before
    q.next = before.next if before != NULL else c.first
    if q.next != NULL:
        q.next.prev = q
    else:
        c.last = q
    if before != NULL:
        before.next = q
    else:
        c.first = q


cdef inline void pull_enqueue(Consumer* c, Pull* q) noexcept nogil:
    if c.cfg.priority == PRIORITY_SORTED:
        pull_sort_in(c, q)
    else:
        pull_append(c, q)


cdef void pull_unlink(Consumer* c, Pull* q) noexcept nogil:
    if q.prev != NULL:
        q.prev.next = q.next
    else:
        c.first = q.next
    if q.next != NULL:
        q.next.prev = q.prev
    else:
        c.last = q.prev


cdef void pull_remove(Consumer* c, Pull* q) noexcept nogil:
    pull_unlink(c, q)
    timer_cancel(&c.env.timers, &q.timer)
    c.n_waiting -= 1
    if q.no_wait:
        c.n_no_wait -= 1
    if q.full:
        c.n_full -= 1
    c.last_activity = c.env.mono
    free(q)


cdef void pull_arm(Consumer* c, Pull* q) noexcept nogil:
    cdef int64_t due = INT64_MAX
    if q.expires:
        due = q.expires
    if q.heartbeat and q.last + q.heartbeat < due:
        due = q.last + q.heartbeat
    if due != INT64_MAX:
        timer_set(&c.env.timers, &q.timer, due)


cdef void pull_due(Timer* t, int64_t now) noexcept nogil:
    cdef Pull* q = <Pull*>t.owner
    cdef Consumer* c = q.c
    cdef bint idle = not c.deliver.queued and c.wake.pos == 0
    if q.expires and q.expires <= now:
        pull_status(c, q, b"408 Request Timeout")
        pull_remove(c, q)
    elif not (idle and ends_unserved(q)):
        if q.heartbeat and q.last + q.heartbeat <= now:
            send_heartbeat(c, span(q.reply, q.n_reply))
            q.last = now
        pull_arm(c, q)
    if idle and c.n_no_wait:
        pulls_at_end(c)                         # also where max_ack_pending stops it: they had their chance


# A server is often faster than whoever asked for a million messages: such a request stands aside until what was sent is taken,
# instead of leading to the client's end as a slow consumer. Others are served meanwhile.

cdef inline void pull_fills(Consumer* c, Pull* q) noexcept nogil:
    # A message was sent to it.
    if c.env.out.full and not q.full:
        q.full = True
        c.n_full += 1


cdef void pulls_wait_for_room(Consumer* c) noexcept nogil:
    timer_set(&c.env.timers, &c.wake, c.full_until)


cdef bint all_are_full(Consumer* c) noexcept nogil:
    # Whether nobody of those who ask has room by now; then delivery is woken to look again.
    cdef Pull* q = c.first
    if c.env.mono >= c.full_until:
        c.full_until = c.env.mono + FULL_PAUSE
        while q != NULL:
            if q.full and not c.env.out.still_full(c.env.out.ctx, c.s.account, span(q.reply, q.n_reply)):
                q.full = False
                c.n_full -= 1
            q = q.next
    if c.n_full < c.n_waiting:
        return False
    pulls_wait_for_room(c)
    return True


cdef Pull* pull_for(Consumer* c, int64_t cost) noexcept nogil:
    # The request whose turn it is. One that has no room for the message ends here.
    cdef Pull* q = c.first
    cdef Pull* after
    while q != NULL:
        after = q.next
        if q.expires and q.expires <= c.env.mono:
            pull_status(c, q, b"408 Request Timeout")
        elif q.full:
            q = after
            continue
        elif q.has_bytes and cost > q.bytes:
            pull_status(c, q, b"409 Message Size Exceeds MaxBytes")
        else:
            return q
        pull_remove(c, q)
        q = after
    return NULL


cdef void pull_served(Consumer* c, Pull* q, int64_t cost) noexcept nogil:
    # One message was taken: the request goes behind the others, or ends.
    q.batch -= 1
    q.delivered += 1
    q.last = c.env.mono
    if q.has_bytes:
        q.bytes -= cost
    if q.batch > 0 and not (q.has_bytes and q.bytes == 0):
        if c.last != q:
            pull_unlink(c, q)
            pull_enqueue(c, q)
        return
    if q.has_bytes and q.bytes > 0:
        pull_status(c, q, b"409 Batch Completed")
    pull_remove(c, q)


cdef inline bint ends_unserved(const Pull* q) noexcept nogil:
    # Whether the request ends when there is nothing more for it now.
    return q.no_wait and (q.expires == 0 or q.delivered)


cdef void pulls_at_end(Consumer* c) noexcept nogil:
    # Nothing more to deliver now: requests that do not wait end.
    cdef Pull* q = c.first
    cdef Pull* after
    while q != NULL:
        after = q.next
        if ends_unserved(q):
            refuse(c, span(q.reply, q.n_reply), b"404 No Messages")
            pull_remove(c, q)
        q = after


cdef void pulls_sweep(Consumer* c) noexcept nogil:
    # Ends the requests that expired and forgets those that nobody listens for.
    cdef Pull* q = c.first
    cdef Pull* after
    if c.delivering:
        return
    while q != NULL:
        after = q.next
        if q.expires and q.expires <= c.env.mono:
            pull_status(c, q, b"408 Request Timeout")
            pull_remove(c, q)
        elif not c.env.out.has_interest(c.env.out.ctx, c.s.account, span(q.reply, q.n_reply)):
            pull_remove(c, q)
        q = after


cdef void pulls_end(Consumer* c, bint deleted) noexcept nogil:
    while c.first != NULL:
        if deleted:
            refuse(c, span(c.first.reply, c.first.n_reply), b"409 Consumer Deleted")
        else:
            pull_status(c, c.first, b"409 Server Shutdown")
        pull_remove(c, c.first)


cdef void pulls_moved(Consumer* c) noexcept nogil:
    # The consumer is opened again: who waits is to ask again.
    while c.first != NULL:
        refuse(c, span(c.first.reply, c.first.n_reply), b"409 Leadership Change")
        pull_remove(c, c.first)


# ---- what a request asks for ------------------------------------------------------------------------------------

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


cdef bint ask_refused(Consumer* c, const PullAsk* a, Span reply) noexcept nogil:
    # The limits of the consumer; True when a status was sent.
    cdef char text[80]
    cdef char duration[33]
    if a.heartbeat > 0 and (a.expires <= 0 or a.heartbeat > a.expires // 2):
        refuse(c, reply, b"400 Bad Request - heartbeat value too large")
    elif c.cfg.max_batch > 0 and a.batch > c.cfg.max_batch:
        refuse_number(c, reply, b"409 Exceeded MaxRequestBatch of ", c.cfg.max_batch)
    elif c.cfg.max_expires > 0 and a.expires > c.cfg.max_expires:
        duration[put_duration(<uint8_t*>duration, c.cfg.max_expires)] = 0
        snprintf(text, sizeof(text), b"409 Exceeded MaxRequestExpires of %s", duration)
        refuse(c, reply, text)
    elif c.cfg.max_bytes > 0 and a.max_bytes > c.cfg.max_bytes:
        refuse_number(c, reply, b"409 Exceeded MaxRequestMaxBytes of ", c.cfg.max_bytes)
    elif (a.min_pending or a.min_ack_pending) and c.cfg.priority != PRIORITY_OVERFLOW:
        refuse(c, reply, b"400 Bad Request - Not a Overflow Priority consumer")
    elif a.n_id and c.cfg.priority != PRIORITY_PINNED:
        refuse(c, reply, b"400 Bad Request - Not a Pinned Client Priority consumer")
    elif a.priority < 0 or a.priority > 9:
        refuse(c, reply, b"400 Bad Request - Priority must be between 0 and 9")
    else:
        return c.cfg.priority != PRIORITY_NONE and group_refused(c, a, reply)
    return True


cdef bint more_wanted(const Consumer* c, int64_t available) noexcept nogil:
    # Whether the requests that wait want more than that.
    cdef const Pull* q = c.first
    cdef int64_t wanted = 0
    while q != NULL and wanted <= available:
        wanted += min(max(q.batch, <int64_t>1), available + 1)
        q = q.next
    return wanted > available


cdef bint nothing_to_wait_for(Consumer* c, const PullAsk* a, Span reply) noexcept nogil:
    # A request that takes what there is, and cannot be served now.
    cdef int64_t available = max(<int64_t>0, c.num_pending) + c.pending.queue.n
    if not a.no_wait or (available == 0 and a.expires):
        return False
    if available == 0:
        refuse(c, reply, b"404 No Messages")
        return True
    if more_wanted(c, available):
        pulls_sweep(c)
        if more_wanted(c, available):
            refuse(c, reply, b"408 Requests Pending")
            return True
    return False


cdef bint queue_is_full(Consumer* c, const PullAsk* a, Span reply) noexcept nogil:
    if <int64_t>c.n_waiting < c.cfg.max_waiting:
        return False
    if c.env.mono - c.swept >= SWEEP_PAUSE:
        c.swept = c.env.mono
        pulls_sweep(c)
    if <int64_t>c.n_waiting < c.cfg.max_waiting:
        return False
    if a.heartbeat == 0:
        refuse(c, reply, b"409 Exceeded MaxWaiting")
    return True


cdef Pull* pull_new(Consumer* c, Span reply) noexcept nogil:
    # In no queue yet. NULL: no memory
    cdef Pull* q = <Pull*>malloc(sizeof(Pull) + reply.n)
    if q == NULL:
        return NULL
    memset(q, 0, sizeof(Pull))
    q.c = c
    q.timer.fn = pull_due
    q.timer.owner = q
    q.last = c.env.mono
    q.n_reply = reply.n
    memcpy(q.reply, reply.p, reply.n)
    return q


cdef void pull_request(Consumer* c, Span reply, Span header, Span body) noexcept nogil:
    cdef PullAsk a
    cdef Pull* q
    cdef char wrong[WRONG_ROOM]
    cdef char text[WRONG_ROOM + 32]
    if is_push(c):
        refuse(c, reply, b"409 Consumer is push based")
        return
    if header.n and level_too_high(header):
        refuse(c, reply, b"412 Required Api Level")
        return
    if not read_ask(&a, body, wrong):
        snprintf(text, sizeof(text), b"400 Bad Request - %s", wrong)
        refuse(c, reply, text)
        return
    if ask_refused(c, &a, reply) or nothing_to_wait_for(c, &a, reply) or queue_is_full(c, &a, reply):
        return
    if c.paused and a.no_wait and a.expires == 0:
        refuse(c, reply, b"404 No Messages")
        return
    q = pull_new(c, reply)
    if q == NULL:
        refuse(c, reply, b"500 out of memory")
        return
    q.batch = a.batch
    q.bytes = a.max_bytes if a.max_bytes > 0 else 0
    q.has_bytes = a.max_bytes > 0
    q.no_wait = a.no_wait
    if a.expires:                               # less than none: over by now
        q.expires = c.env.mono + min(a.expires, FOREVER) if a.expires > 0 else 1
    q.heartbeat = min(a.heartbeat, FOREVER) if a.heartbeat > 0 else 0
    if c.cfg.priority != PRIORITY_NONE:
        pull_take_group(c, q, &a)
    pull_enqueue(c, q)
    c.n_waiting += 1
    if q.no_wait:
        c.n_no_wait += 1
    pull_arm(c, q)
    c.last_activity = c.env.mono
    wake_delivery(c)


cdef int pull_inbound(void* target, const Msg* m) noexcept nogil:
    if m.reply.n:
        pull_request(<Consumer*>target, m.reply, m.header, m.data)
    return 1
