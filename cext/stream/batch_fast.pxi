# Fast batches: messages that are stored as they come, and acked now and then. What a message is to its batch stands in its reply:
#
#       <prefix>.<id>.<flow>.<ok|fail>.<number>.<operation>.$FI
#
# and there its answers go: how far the batch is stored (and after how many messages the publisher hears again), what is missing,
# what was refused. With `fail` the first gap or refusal ends the batch, with `ok` it goes on. As a PubAck, what says that
# something is stored waits until it is durable; so all answers wait behind it, in their order.

cdef enum:
    FAST_START = 0
    FAST_APPEND
    FAST_COMMIT
    FAST_END                            # commits without a message of its own
    FAST_PING
    FAST_FLOW = 500                     # messages between two acks at most, of all batches of a stream together
    FAST_FLOW_UNSAID = 10
    FAST_HURRY = 1000000                # ns that a message waits at most for those that are acked with it


cdef PubHeaders no_headers              # all zeros


cdef struct FastReply:
    Span id
    uint64_t number
    uint32_t flow
    int operation
    bint gap_ok


cdef struct FastBatch:
    OpenBatch open
    uint64_t stored                     # the stream's sequence of the last one that was stored
    uint64_t done                       # up to this number all that will be stored is
    uint64_t told                       # up to this one the publisher knows it
    uint32_t pending                    # staged, not applied yet
    uint32_t flow                       # messages from one ack to the next
    uint32_t flow_max                   # what the publisher wants at most
    bint gap_ok
    bint committed                      # it ends when nothing is pending


# ---- what a reply says -----------------------------------------------------------------------------------------------

cdef bint cut_token(Span* s, Span* token) noexcept nogil:
    # Takes the last token and its dot away. False: there is no dot
    cdef uint32_t i = s.n
    while i and s.p[i - 1] != c'.':
        i -= 1
    if i == 0:
        return False
    token[0] = span(s.p + i, s.n - i)
    s.n = i - 1
    return True


cdef bint read_fast(Span reply, FastReply* f) noexcept nogil:
    # False: it is malformed
    cdef Span rest = span(reply.p, reply.n - 4)
    cdef Span token
    cdef uint64_t v
    if not cut_token(&rest, &token) or not get_u64(token, &v) or v > FAST_PING:
        return False
    f.operation = <int>v
    if not cut_token(&rest, &token) or not get_u64(token, &f.number) or f.number == 0 or f.number == UINT64_MAX:
        return False
    if f.number == 1 and (f.operation == FAST_APPEND or f.operation == FAST_END):
        return False
    if f.operation == FAST_START and f.number != 1:
        return False
    if not cut_token(&rest, &token):
        return False
    f.gap_ok = span_eq(token, span_c(b"ok"))
    if not f.gap_ok and not span_eq(token, span_c(b"fail")):
        return False
    if not cut_token(&rest, &token):
        return False
    f.flow = FAST_FLOW_UNSAID
    if get_u64(token, &v) and v:
        f.flow = <uint32_t>min(v, <uint64_t>65535)
    return cut_token(&rest, &f.id)


# ---- answers ---------------------------------------------------------------------------------------------------------

cdef void fast_say(Stream* s, Span reply, uint64_t seq, const Bytes* text) noexcept nogil:
    # Once the message with this sequence is durable, and behind what was said before.
    if reply.n:
        pub_ack_more(s, reply, seq, ACK_TEXT, span(text.data, <uint32_t>text.n))


cdef int add_member(Bytes* b, const char* name, uint64_t v) noexcept nogil:
    # ,"name":v
    if add_text(b, b",\"") < 0 or add_text(b, name) < 0 or add_text(b, b"\":") < 0 or add_u64(b, v) < 0:
        return -1
    return 0


cdef void fast_say_two(Stream* s, Span reply, uint64_t seq, const char* type, const char* first, uint64_t v, const char* second,
                       uint64_t w) noexcept nogil:
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if (add_text(&b, b"{\"type\":\"") == 0 and add_text(&b, type) == 0 and add_text(&b, b"\"") == 0
            and add_member(&b, first, v) == 0 and add_member(&b, second, w) == 0 and add_text(&b, b"}") == 0):
        fast_say(s, reply, seq, &b)
    bytes_free(&b)


cdef void fast_say_flow(Stream* s, const FastBatch* b, Span reply) noexcept nogil:
    fast_say_two(s, reply, b.stored, b"ack", b"seq", b.told, b"msgs", b.flow)


cdef void fast_say_gap(Stream* s, Span reply, uint64_t expected, uint64_t came) noexcept nogil:
    fast_say_two(s, reply, 0, b"gap", b"last_seq", expected, b"seq", came)


cdef inline bint fast_judged(const Stream* s) noexcept nogil:
    return s.batches.judged != 0


cdef void fast_error(Stream* s, Span reply, const ApiError* error, Span text) noexcept nogil:
    # Why the message that is being checked is refused.
    cdef Bytes b
    cdef char start[ERROR_START]
    memset(&b, 0, sizeof(Bytes))
    error_start(start, error)
    if (add_text(&b, b"{\"type\":\"err\"") == 0 and add_member(&b, b"seq", s.batches.judged) == 0 and add_text(&b, b",") == 0
            and add_text(&b, start) == 0 and add_json_text(&b, text) == 0 and add_text(&b, b"\"}}") == 0):
        s.batches.judged = 0
        fast_say(s, reply, 0, &b)
    s.batches.judged = 0
    bytes_free(&b)


cdef void fast_pub_ack(Stream* s, const FastBatch* b, Span reply, uint64_t seq, uint64_t count, uint32_t flags) noexcept nogil:
    cdef Bytes more
    memset(&more, 0, sizeof(Bytes))
    if reply.n and add_batch_members(&more, batch_id(&b.open), count) == 0:
        pub_ack_more(s, reply, seq, flags, span(more.data, <uint32_t>more.n))
    bytes_free(&more)


# ---- a batch's life --------------------------------------------------------------------------------------------------

cdef void fast_close(FastBatch* b) noexcept nogil:
    cdef Stream* s = b.open.s
    s.cfg.batch_room.fast -= 1
    batch_close(&s.batches.fast, &b.open)


cdef void fast_drop_all(Stream* s) noexcept nogil:
    while s.batches.fast.first != NULL:
        fast_close(<FastBatch*>s.batches.fast.first)


cdef void fast_silent(Timer* t, int64_t now) noexcept nogil:
    cdef FastBatch* b = <FastBatch*>t.owner
    if not batch_waits(&b.open, now):
        fast_close(b)


cdef inline FastBatch* fast_find(Stream* s, Span id) noexcept nogil:
    return <FastBatch*>strmap_get(&s.batches.fast.by_id, id) if s.batches != NULL else NULL


cdef FastBatch* fast_open(Stream* s, const FastReply* f) noexcept nogil:
    # NULL: there can be no further one.
    cdef Batches* all = batches_of(s)
    cdef BatchRoom* room = s.cfg.batch_room
    cdef FastBatch* b
    if (all == NULL or all.fast.by_id.n >= at_most(room.max_per_stream, FAST_PER_STREAM)
            or room.fast >= at_most(room.max_total, FAST_TOTAL)):
        return NULL
    b = <FastBatch*>batch_open(s, &all.fast, sizeof(FastBatch), f.id, fast_silent)
    if b == NULL:
        return NULL
    room.fast += 1
    b.gap_ok = f.gap_ok
    b.flow_max = f.flow
    b.flow = min(f.flow, <uint32_t>FAST_FLOW) if all.fast.by_id.n == 1 else 1
    return b


cdef bint fast_flow(Stream* s, FastBatch* b, Span reply) noexcept nogil:
    # Tells the publisher how far the batch is, if it is time to. What it may send until then comes nearer to its share.
    cdef uint32_t share = min(b.flow_max, max(<uint32_t>FAST_FLOW // s.batches.fast.by_id.n, <uint32_t>1))
    if b.done < b.told + b.flow:
        return False
    task_post(&s.env.tasks, &s.batches.settle)
    b.told += (b.done - b.told) // b.flow * b.flow
    if b.flow < share:
        b.flow = min(b.flow * 2, share)
    elif b.flow > share:
        b.flow = max(b.flow // 2, share)
    fast_say_flow(s, b, reply)
    return True


cdef bint fast_commit(Stream* s, FastBatch* b, Span reply) noexcept nogil:
    # Takes no more; ended and acked now, if nothing of it is on its way.
    b.committed = True
    if b.open.last != b.done:
        return False
    task_post(&s.env.tasks, &s.batches.settle)
    fast_pub_ack(s, b, reply, b.stored, b.open.last, 0)
    fast_close(b)
    return True


cdef void fast_hurry(Timer* t, int64_t now) noexcept nogil:
    store_hurry((<Stream*>t.owner).store)


cdef void fast_settle(Task* t) noexcept nogil:
    store_hurry((<Stream*>t.owner).store)


cdef int fast_change(Stream* s, const Change* c) noexcept nogil:
    # Nobody waits for a message before the next ack: until the end of the turn that brings that, it makes no round of its own.
    cdef int rc
    store_unhurried(s.store, s.synced)
    rc = <int>stream_change(s, c)
    store_unhurried(s.store, False)
    if s.synced and s.batches.hurry.pos == 0 and timer_set(&s.env.timers, &s.batches.hurry, s.env.mono + FAST_HURRY) < 0:
        store_hurry(s.store)
    return rc


cdef void fast_stored(Stream* s, FastBatch* b, Span reply, uint64_t number, uint64_t seq) noexcept nogil:
    if b.pending:
        b.pending -= 1
    b.stored = seq
    b.done = number if b.pending else b.open.last
    if not b.committed or not fast_commit(s, b, reply):
        fast_flow(s, b, reply)


# ---- what was staged -------------------------------------------------------------------------------------------------

cdef bint fast_applied(Stream* s, Span reply, uint64_t seq) noexcept nogil:
    # A staged message is stored; whether it is of a fast batch, which answers for it.
    cdef FastReply f
    cdef FastBatch* b
    if s.batches == NULL or not ends_fast(reply) or not read_fast(reply, &f):
        return False
    b = fast_find(s, f.id)
    if b != NULL:
        fast_stored(s, b, reply, f.number, seq)
    return True


cdef void fast_refused(Stream* s, Span reply) noexcept nogil:
    # A staged message never comes: its batch has a hole.
    cdef FastReply f
    cdef FastBatch* b
    if s.batches != NULL and ends_fast(reply) and read_fast(reply, &f):
        b = fast_find(s, f.id)
        if b != NULL:
            fast_close(b)


# ---- a message that comes --------------------------------------------------------------------------------------------

cdef Span imported_reply(const Msg* m, uint8_t* room, uint32_t n) noexcept nogil:
    # The reply that a publisher gave who came by an import, where it is of a fast batch: those who ask are told of with it.
    # Empty: it is none
    cdef JsonReader r
    cdef JsonItem key, val
    cdef Span said = span(NULL, 0)
    if m.reply.n < 4 or memcmp(m.reply.p, b"_R_.", 4) != 0:
        return said
    json_open(&r, header_get(m.header, b"Nats-Request-Info"))
    if not json_enter_object(&r):
        return said
    while json_next_member(&r, &key, &val) == 1:
        if json_key_is(&key, b"reply") and val.kind == JSON_STRING:
            said = span(room, <uint32_t>max(json_text(&val, room, n), 0))
            break
    return said if ends_fast(said) else span(NULL, 0)


cdef void fast_ping(Stream* s, FastBatch* b, const FastReply* f, Span reply) noexcept nogil:
    # How far the batch is; and a gap, if more was sent than came.
    if f.number > b.open.last:
        fast_say_gap(s, reply, b.open.last + 1, f.number + 1)
        if b.gap_ok:
            b.open.last = f.number
            b.done = b.done if b.pending else f.number
            if fast_flow(s, b, reply):
                return
        elif fast_commit(s, b, reply):
            return
    fast_say_flow(s, b, reply)


cdef bint fast_numbered(Stream* s, FastBatch* b, const FastReply* f, Span reply) noexcept nogil:
    # Whether the message is taken by its number. If not, the batch ends with what it has.
    if f.number > b.open.last + 1:
        fast_say_gap(s, reply, b.open.last + 1, f.number)
        if b.gap_ok:
            b.open.last = f.number
            return True
    elif f.number == b.open.last + 1:
        b.open.last = f.number
        return True
    b.done = b.done if b.pending else b.open.last
    fast_commit(s, b, reply)
    return False


cdef void fast_not_stored(Stream* s, FastBatch* b, const FastReply* f, const Msg* m, Judged how, uint64_t seq) noexcept nogil:
    # The message is refused, which its publisher has heard, or a duplicate of the one with this sequence.
    cdef bint commits = f.operation == FAST_COMMIT
    if how == JUDGED_DUPLICATE:
        if b.pending == 0:
            b.done = f.number
            fast_flow(s, b, m.reply)
        if not commits:
            return
        if not b.gap_ok and b.open.last == 1:
            fast_pub_ack(s, b, m.reply, seq, f.number, ACK_DUPLICATE)
            fast_close(b)
            return
    elif not b.gap_ok and b.open.last == 1:
        fast_close(b)
        return
    elif b.gap_ok and not commits:
        return
    else:
        b.open.last -= 1
        b.done = b.done if b.pending else b.open.last
    fast_commit(s, b, m.reply)


cdef int fast_store(Stream* s, FastBatch* b, const FastReply* f, const Msg* m, const PubHeaders* asked) noexcept nogil:
    # As it came, but where the stream makes something else of it.
    cdef Msg one
    cdef PubHeaders h
    cdef BatchMade made
    cdef int rc
    if not batch_makes(s):
        return fast_store_made(s, b, f, <Msg*>m, <PubHeaders*>asked, NULL)
    memset(&made, 0, sizeof(BatchMade))
    one = m[0]
    h = asked[0]
    rc = fast_store_made(s, b, f, &one, &h, &made)
    made_free(&made)
    return rc


cdef Judged fast_judge(Stream* s, FastBatch* b, const FastReply* f, Msg* m, PubHeaders* h, const StoreState* state,
                       uint64_t* seq, BatchMade* made) noexcept nogil:
    cdef BatchDiff d
    cdef Span last_id = span(s.last_id.data, <uint32_t>s.last_id.n)
    cdef uint64_t size
    cdef Judged how
    memset(&d, 0, sizeof(BatchDiff))
    d.by_subject = s.cfg.discard_new_per
    if s.staging != NULL and s.staging.n:
        last_id = span(s.staging.last_id.data, <uint32_t>s.staging.last_id.n)
    # the first one of a batch that is to have no gaps is refused as any publish is
    s.batches.judged = 0 if b.open.last == 1 and not b.gap_ok else f.number
    how = judge(s, &d, m, h, state, seq, made)
    if how == JUDGED_GOOD and h.last_msg_id.n and not span_eq(h.last_msg_id, last_id):
        how = refused(publish_failed_with(s, m, &ERR_STREAM_WRONG_LAST_MSG_ID, last_id))
    if how == JUDGED_GOOD:
        size = <uint64_t>d.bytes
        if over(s.cfg.account_usage, size if s.staging == NULL else staged_more(s.staging, size)):
            how = refused(publish_failed(s, m, &ERR_ACCOUNT_RESOURCES_EXCEEDED))
    s.batches.judged = 0
    diff_free(&d)
    return how


cdef int fast_store_made(Stream* s, FastBatch* b, const FastReply* f, Msg* m, PubHeaders* h, BatchMade* made) noexcept nogil:
    cdef StoreState state
    cdef Change c
    cdef uint64_t seq = 0
    cdef Judged how
    cdef int rc
    store_state(s.store, &state)
    if s.staging != NULL:
        overlay_state(s.staging, &state)
    how = fast_judge(s, b, f, m, h, &state, &seq, made)
    if how != JUDGED_GOOD:
        fast_not_stored(s, b, f, m, how, seq)
        return 1
    batch_change(s, m, h, state.last_seq + 1, &c)
    if s.staging != NULL:
        b.pending += 1
        rc = ST_TOO_LARGE
        if s.staging.changes.n + m.subject.n + m.header.n + m.data.n <= STAGED_MAX:
            rc = ST_OK if overlay_add(s, m.reply, &c, span(NULL, 0)) == 0 else ST_NO_MEMORY
    else:
        rc = fast_change(s, &c)
        if rc == ST_OK:
            fast_stored(s, b, m.reply, f.number, c.seq)
    if rc != ST_OK:
        fast_close(b)
        return store_refused(s, m, rc)
    return 1


cdef int publish_fast(Stream* s, const Msg* m, Span said) noexcept nogil:
    # said: the reply as the publisher sent it
    cdef BatchHeaders own
    cdef PubHeaders h
    cdef FastReply f
    cdef FastBatch* b
    if batch_taken(s, m):
        return 1
    if not s.cfg.allow_batched:
        return publish_failed(s, m, &ERR_BATCH_PUBLISH_DISABLED)
    if not read_fast(said, &f):
        return publish_failed(s, m, &ERR_BATCH_PUBLISH_INVALID_PATTERN)
    if f.id.n > BATCH_ID_MAX:
        return publish_failed(s, m, &ERR_BATCH_PUBLISH_INVALID_BATCH_ID)
    b = fast_find(s, f.id)
    if b == NULL and f.number != 1:
        return publish_failed(s, m, &ERR_BATCH_PUBLISH_UNKNOWN_BATCH_ID)
    if b == NULL:
        b = fast_open(s, &f)
        if b == NULL:
            return publish_failed(s, m, &ERR_BATCH_PUBLISH_TOO_MANY_INFLIGHT)
    if m.header.n == 0:
        return fast_take(s, b, &f, m, &no_headers)
    read_headers(&h, m.header)
    read_batch_headers(&own, m.header)
    if own.level.n and level_too_high(m.header):
        fast_close(b)
        return publish_failed(s, m, &ERR_REQUIRED_API_LEVEL)
    if own.level.n or h.request_info or has_status(m.header):
        return fast_take_clean(s, b, &f, m)
    return fast_take(s, b, &f, m, &h)


cdef int fast_take_clean(Stream* s, FastBatch* b, const FastReply* f, const Msg* m) noexcept nogil:
    # Without the headers that are not stored.
    cdef Msg clean = m[0]
    cdef PubHeaders h
    cdef Bytes header
    memset(&header, 0, sizeof(Bytes))
    if batch_header(m.header, &header) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY))
    else:
        clean.header = span(header.data, <uint32_t>header.n)
        read_headers(&h, clean.header)
        fast_take(s, b, f, &clean, &h)
    bytes_free(&header)
    return 1


cdef int fast_take(Stream* s, FastBatch* b, const FastReply* f, const Msg* m, const PubHeaders* h) noexcept nogil:
    b.open.heard = s.env.mono
    if f.operation == FAST_PING:
        fast_ping(s, b, f, m.reply)
        return 1
    if b.committed or not fast_numbered(s, b, f, m.reply):
        return 1
    if f.operation == FAST_END:
        b.open.last -= 1
        b.done = b.done if b.pending else b.open.last
        fast_commit(s, b, m.reply)
        return 1
    b.committed = f.operation == FAST_COMMIT
    if f.number == 1 and not s.cfg.no_ack and not b.committed:
        fast_say_flow(s, b, m.reply)
    return fast_store(s, b, f, m, h)
