# Fast batches: messages that are stored as they come, and acked now and then (fast_acks.pxi). With `fail` in its reply the
# first gap or refusal ends a batch, with `ok` it goes on.

cdef enum:
    FAST_HURRY = 1000000                # ns that a message waits at most for those that are acked with it


cdef PubHeaders no_headers              # all zeros


cdef int fast_change(Stream* s, const Change* c) noexcept nogil:
    # Nobody waits for a message before the next ack: until the end of the turn that brings that, it makes no round of its own.
    cdef int rc
    store_unhurried(s.store, s.synced)
    rc = stream_append(s, c)
    store_unhurried(s.store, False)
    if s.synced and s.batches.hurry.pos == 0 and timer_set(&s.env.timers, &s.batches.hurry, s.env.mono + FAST_HURRY) < 0:
        store_hurry(s.store)
    return rc


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
    d.by_subject = s.cfg.flags & STREAM_DISCARD_NEW_PER_SUBJECT != 0
    if s.staging != NULL and s.staging.n:
        last_id = span(s.staging.last_id.data, <uint32_t>s.staging.last_id.n)
    # the first one of a batch that is to have no gaps is refused as any publish is
    s.batches.judged = 0 if b.open.last == 1 and not b.gap_ok else f.number
    how = judge(s, &d, m, h, state, seq, made)
    if how == JUDGED_GOOD and h.last_msg_id.n and not span_eq(h.last_msg_id, last_id):
        how = refused(publish_failed_with(s, m, &ERR_STREAM_WRONG_LAST_MSG_ID, last_id))
    if how == JUDGED_GOOD:
        size = <uint64_t>d.bytes
        if over(s.place.account_usage, size if s.staging == NULL else staged_more(s.staging, size)):
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
        s.batches.repeated = how == JUDGED_DUPLICATE
        fast_not_stored(s, b, f, m, how, seq)
        s.batches.repeated = False
        return 1
    batch_change(s, m, h, state.last_seq + 1, &c)
    if s.staging != NULL:
        b.pending += 1
        rc = change_stage(s, m.reply, &c)
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
    if not s.cfg.flags & STREAM_ALLOW_BATCHED:
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
    if f.number == 1 and not s.cfg.flags & STREAM_NO_ACK and not b.committed:
        fast_say_flow(s, b, m.reply)
    return fast_store(s, b, f, m, h)
