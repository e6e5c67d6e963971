# What the publisher of a fast batch is told. What a message is to its batch stands in its reply:
#
#       <prefix>.<id>.<flow>.<ok|fail>.<number>.<operation>.$FI
#
# and there its answers go: how far the batch is stored (and after how many messages the publisher hears again), what is missing,
# what was refused. As a PubAck, what says that something is stored waits until it is durable; so all answers wait behind it, in
# their order.

cdef enum:
    FAST_PER_STREAM = 1000              # batches; nats-server's defaults
    FAST_TOTAL = 50000
    FAST_START = 0
    FAST_APPEND
    FAST_COMMIT
    FAST_END                            # commits without a message of its own
    FAST_PING
    FAST_FLOW = 500                     # messages between two acks at most, of all batches of a stream together
    FAST_FLOW_UNSAID = 10


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

cdef inline bint ends_fast(Span reply) noexcept nogil:
    return reply.n > 4 and memcmp(reply.p + reply.n - 4, b".$FI", 4) == 0


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
        fast_ack(s, reply, seq, ACK_TEXT, b_span(text))


cdef void fast_ack(Stream* s, Span reply, uint64_t seq, uint32_t flags, Span more) noexcept nogil:
    if s.member != NULL and s.batches.repeated:
        more_unconfirmed(s, reply, seq, flags, more)
    else:
        pub_ack_more(s, reply, seq, flags, more)


cdef void fast_deny(Stream* s, Span reply, const Bytes* text) noexcept nogil:
    # Something is missing, or refused; behind what was said before.
    if s.member == NULL:
        fast_say(s, reply, 0, text)
    elif reply.n:
        answer_unconfirmed(s, reply, b_span(text))


cdef int add_member(Bytes* b, const char* name, uint64_t v) noexcept nogil:
    # ,"name":v
    if add_text(b, b",\"") < 0 or add_text(b, name) < 0 or add_text(b, b"\":") < 0 or add_u64(b, v) < 0:
        return -1
    return 0


cdef int fast_two(Bytes* b, const char* start, const char* first, uint64_t v, const char* second, uint64_t w) noexcept nogil:
    # 0 | -1 no memory
    if (add_text(b, start) < 0 or add_member(b, first, v) < 0 or add_member(b, second, w) < 0 or add_text(b, b"}") < 0):
        return -1
    return 0


cdef void fast_say_flow(Stream* s, const FastBatch* b, Span reply) noexcept nogil:
    cdef Bytes text
    memset(&text, 0, sizeof(Bytes))
    if fast_two(&text, b"{\"type\":\"ack\"", b"seq", b.told, b"msgs", b.flow) == 0:
        fast_say(s, reply, b.stored, &text)
    bytes_free(&text)


cdef void fast_say_gap(Stream* s, Span reply, uint64_t expected, uint64_t came) noexcept nogil:
    cdef Bytes text
    memset(&text, 0, sizeof(Bytes))
    if fast_two(&text, b"{\"type\":\"gap\"", b"last_seq", expected, b"seq", came) == 0:
        fast_deny(s, reply, &text)
    bytes_free(&text)


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
        fast_deny(s, reply, &b)
    s.batches.judged = 0
    bytes_free(&b)


cdef void fast_pub_ack(Stream* s, const FastBatch* b, Span reply, uint64_t seq, uint64_t count, uint32_t flags) noexcept nogil:
    cdef Bytes more
    memset(&more, 0, sizeof(Bytes))
    if reply.n and add_batch_members(&more, batch_id(&b.open), count) == 0:
        fast_ack(s, reply, seq, flags, b_span(&more))
    bytes_free(&more)


# ---- a batch's life --------------------------------------------------------------------------------------------------

cdef void fast_close(FastBatch* b) noexcept nogil:
    cdef Stream* s = b.open.s
    s.place.batch_room.fast -= 1
    batch_close(&s.batches.fast, &b.open)


cdef void fast_drop_all(Stream* s) noexcept nogil:
    while not list_empty(&s.batches.fast.all):
        fast_close(<FastBatch*>batch_at(list_first(&s.batches.fast.all)))


cdef void fast_silent(Timer* t, int64_t now) noexcept nogil:
    cdef FastBatch* b = <FastBatch*>t.owner
    if not batch_waits(&b.open, now):
        fast_close(b)


cdef inline FastBatch* fast_find(Stream* s, Span id) noexcept nogil:
    return <FastBatch*>strmap_get(&s.batches.fast.by_id, id) if s.batches != NULL else NULL


cdef FastBatch* fast_open(Stream* s, const FastReply* f) noexcept nogil:
    # NULL: there can be no further one.
    cdef Batches* all = batches_of(s)
    cdef BatchRoom* room = s.place.batch_room
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
