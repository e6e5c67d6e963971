# Batches (ADR-50): of atomic ones the messages wait, to be stored together (batch_atomic.pxi); of fast ones they are stored
# as they come, and acked now and then (batch_fast.pxi). What both have: limits, and the checks of their messages, which are
# nats-server's for what is proposed to a cluster, in its order.

cdef enum:
    ATOMIC_PER_STREAM = 50              # batches; nats-server's defaults, likewise the next
    ATOMIC_TOTAL = 1000
    ATOMIC_SIZE = 1000                  # messages
    BATCHES_BYTES = 256 << 20           # staged in all streams

cdef enum Judged:
    JUDGED_GOOD = 0
    JUDGED_REFUSED                      # the publisher has heard why
    JUDGED_DUPLICATE


cdef struct BatchHeaders:
    Span seq
    Span commit
    Span level


cdef struct BatchDiff:
    # What the messages of a batch before the one that is checked will have done.
    uint64_t n
    int64_t msgs
    int64_t bytes
    bint by_subject                     # somebody asks for:
    StrMap subjects                     # subject -> how many messages
    StrMap ids
    StrMap sums                         # counter -> one more than where its last message stands


cdef struct BatchMade:
    # What is stored in place of what came: a sum and headers; freed with made_free.
    Bytes body
    Bytes header
    const Record* before                # the counter's last message, if it is of the same batch


# ---- a message that comes --------------------------------------------------------------------------------------------

cdef int batch_taken(Stream* s, const Msg* m) noexcept nogil:
    # Whether the stream takes any message like this now. 0 goes on, 1 has been answered
    if s.cfg.flags & STREAM_SEALED:
        return publish_failed(s, m, &ERR_STREAM_SEALED)
    if server_full(s):
        return publish_failed(s, m, &ERR_INSUFFICIENT_RESOURCES)
    if over(s.place.account_usage, store_size_of(s.store, m.subject, m.header, m.data)):
        return publish_failed(s, m, &ERR_ACCOUNT_RESOURCES_EXCEEDED)
    if s.cfg.max_msg_size >= 0 and <int64_t>m.header.n + m.data.n > s.cfg.max_msg_size:
        return publish_failed(s, m, &ERR_STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    return 0


cdef void read_batch_headers(BatchHeaders* h, Span block) noexcept nogil:
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    cdef Span line
    memset(h, 0, sizeof(BatchHeaders))
    p = line_end(p, end) + 2
    while p < end:
        stop = line_end(p, end)
        line = span(p, <uint32_t>(stop - p))
        if line.n > 8 and memcmp(p, b"Nats-", 5) == 0:
            if p[5] == c'B':
                if not name_is(line, b"Nats-Batch-Sequence:", 20, &h.seq):
                    name_is(line, b"Nats-Batch-Commit:", 18, &h.commit)
            elif p[5] == c'R':
                name_is(line, b"Nats-Required-Api-Level:", 24, &h.level)
        p = stop + 2


cdef int batch_header(Span block, Bytes* b) noexcept nogil:
    # The block as it is stored. 0 | -1 no memory
    cdef Bytes clean
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* stop
    cdef int rc
    memset(&clean, 0, sizeof(Bytes))
    rc = rewrite_headers(block, &clean)
    p = clean.data
    end = p + clean.n
    while rc == 0 and p < end:
        stop = line_end(p, end)
        stop = stop + 2 if stop < end else end
        if not (stop - p > 24 and memcmp(p, b"Nats-Required-Api-Level:", 24) == 0):
            rc = bytes_add(b, p, stop - p)
        p = stop
    if b.n <= BARE_HEADER:
        b.n = 0
    bytes_free(&clean)
    return rc


cdef inline bint asks_nothing(const PubHeaders* h) noexcept nogil:
    # Whether no check concerns these headers, but that for the length.
    return (h.msg_id.n == 0 and h.stream.n == 0 and h.last_seq.n == 0 and h.subject_seq.n == 0
            and h.subject_seq_of.n == 0 and h.last_msg_id.n == 0 and h.rollup.n == 0 and h.ttl.n == 0
            and h.incr.n == 0 and h.schedule.n == 0 and h.scheduler.n == 0 and h.schedule_next.n == 0 and h.zone.p == NULL)


# ---- the checks ------------------------------------------------------------------------------------------------------

cdef void diff_free(BatchDiff* d) noexcept nogil:
    strmap_free(&d.subjects)
    strmap_free(&d.ids)
    strmap_free(&d.sums)


cdef inline uint64_t diff_count(BatchDiff* d, Span subject) noexcept nogil:
    return <uint64_t><size_t>strmap_get(&d.subjects, subject)


cdef Judged refused(int answered) noexcept nogil:
    return JUDGED_REFUSED if answered else JUDGED_GOOD


cdef Judged judge_id(Stream* s, BatchDiff* d, const Msg* m, Span id, uint64_t* seq) noexcept nogil:
    # seq: of the message that had the id; 0: one of the same batch
    seq[0] = 0
    if strmap_get(&d.ids, id) != NULL:
        return JUDGED_DUPLICATE
    if s.cfg.duplicate_window > 0:
        dedupe_read(s)
        if dedupe_find(&s.dedupe, id, seq) or (s.staging != NULL and overlay_id(s.staging, id, seq)):
            return JUDGED_DUPLICATE
    if strmap_put(&d.ids, id, d) < 0:
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY)))
    return JUDGED_GOOD


cdef uint64_t last_at_once(Stream* s, Span pattern) noexcept nogil:
    # The last sequence on a subject, which may have wildcards: what is judged as a whole is judged in one turn. 0: none
    cdef Filter f
    cdef uint64_t seq
    if subject_is_literal(pattern):
        return overlay_last(s, pattern) if s.staging != NULL else store_last_of(s.store, pattern)
    if filter_init(&f, &pattern, 1) != ST_OK:
        return 0
    seq = overlay_last_match(s, &f) if s.staging != NULL else store_last_match(s.store, &f)
    filter_free(&f)
    return seq


cdef Judged judge_sequences(Stream* s, BatchDiff* d, const Msg* m, const PubHeaders* h, uint64_t last) noexcept nogil:
    cdef uint64_t want, have
    cdef Span subject
    if h.last_seq.n:
        if not get_u64(h.last_seq, &want) or want != last:
            return refused(publish_failed_seq(s, m, last))
        if d.n:
            return refused(publish_failed(s, m, &ERR_STREAM_WRONG_LAST_SEQUENCE_CONSTANT))
    if h.subject_seq.n:
        subject = h.subject_seq_of if h.subject_seq_of.n else m.subject
        if diff_count(d, subject):
            return refused(publish_failed(s, m, &ERR_STREAM_WRONG_LAST_SEQUENCE_CONSTANT))
        have = last_at_once(s, subject)
        if not get_u64(h.subject_seq, &want) or want != have:
            return refused(publish_failed_seq(s, m, have))
    elif h.subject_seq_of.n:
        return refused(publish_failed(s, m, &ERR_STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID))
    return JUDGED_GOOD


cdef Judged judge_rollup(Stream* s, BatchDiff* d, const Msg* m, const PubHeaders* h) noexcept nogil:
    if check_rollup(s, m, h):
        return JUDGED_REFUSED
    if key_is(h.rollup, b"sub") and diff_count(d, m.subject):
        return refused(publish_failed_as(s, m, &ERR_STREAM_ROLLUP_FAILED, b"batch rollup sub invalid"))
    if key_is(h.rollup, b"all") and d.n:
        return refused(publish_failed_as(s, m, &ERR_STREAM_ROLLUP_FAILED, b"batch rollup all invalid"))
    return JUDGED_GOOD


cdef Judged judge_claims(Stream* s, BatchDiff* d, const Msg* m, const PubHeaders* h, uint64_t* seq) noexcept nogil:
    # What headers say of the message alone.
    cdef int64_t ttl = 0
    cdef bint timed = h.ttl.n and (not get_ttl(h.ttl, &ttl) or ttl != 0)
    if h.incr.n and check_increment(s, m, h):
        return JUDGED_REFUSED
    if h.stream.n and not span_eq(h.stream, s.cfg.name):
        return refused(publish_failed(s, m, &ERR_STREAM_NOT_MATCH))
    if timed and not s.cfg.flags & STREAM_ALLOW_MSG_TTL:
        return refused(publish_failed(s, m, &ERR_MESSAGE_TTL_DISABLED))
    if timed and not get_ttl(h.ttl, &ttl):
        return refused(publish_failed(s, m, &ERR_MESSAGE_TTL_INVALID))
    return judge_id(s, d, m, h.msg_id, seq) if h.msg_id.n else JUDGED_GOOD


cdef Judged judge_order(Stream* s, BatchDiff* d, const Msg* m, const PubHeaders* h, uint64_t last) noexcept nogil:
    # What headers say of other messages.
    cdef Judged how = judge_sequences(s, d, m, h, last)
    if how != JUDGED_GOOD:
        return how
    if check_schedule(s, m, h):
        return JUDGED_REFUSED
    return judge_rollup(s, d, m, h) if h.rollup.n else JUDGED_GOOD


cdef Judged judge_room(Stream* s, BatchDiff* d, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # Of a stream that refuses what is new at its limits. d: with this message.
    if s.cfg.max_msgs > 0 and <int64_t>state.msgs + d.msgs > s.cfg.max_msgs:
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"maximum messages exceeded"))
    if s.cfg.max_bytes > 0 and <int64_t>state.bytes + d.bytes > s.cfg.max_bytes:
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"maximum bytes exceeded"))
    if (s.cfg.flags & STREAM_DISCARD_NEW_PER_SUBJECT and s.cfg.max_msgs_per_subject > 0 and h.rollup.n == 0
            and count_of(s, m.subject) + diff_count(d, m.subject) > <uint64_t>s.cfg.max_msgs_per_subject):
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"maximum messages per subject exceeded"))
    return JUDGED_GOOD


cdef inline bint batch_makes(const Stream* s) noexcept nogil:
    # Whether messages may be stored as others than they came.
    return s.cfg.flags & (STREAM_ALLOW_MSG_COUNTER | STREAM_ALLOW_MSG_SCHEDULES) or s.cfg.subject_delete_marker_ttl > 0


cdef Judged made_sizes(Stream* s, const Msg* m) noexcept nogil:
    # Of what is stored in place of what came.
    return refused(check_size(s, m))


cdef Judged make_sum(Stream* s, Msg* m, const PubHeaders* h, BatchMade* made) noexcept nogil:
    cdef const ApiError* error = counter_sum(s, m, h, made.before, &made.body, &made.header)
    if error != NULL:
        return refused(publish_failed(s, m, error))
    m.data = span(made.body.data, <uint32_t>made.body.n)
    if made.header.n:
        m.header = span(made.header.data, <uint32_t>made.header.n)
    return made_sizes(s, m)


cdef Judged make_header(Stream* s, Msg* m, const PubHeaders* h, BatchMade* made) noexcept nogil:
    # A schedule that is the only one, a life as long as a marker's.
    cdef bint rolled = h.schedule.n and header_get(m.header, b"Nats-Rollup").n == 0
    cdef int64_t ttl
    cdef int rc
    if rolled:
        rc = header_rolled(&made.header, m.header)
    elif h.ttl.n and get_ttl(h.ttl, &ttl) and too_short(s, ttl):
        rc = header_with_ttl(&made.header, m.header, s.cfg.subject_delete_marker_ttl // SECOND)
    else:
        return JUDGED_GOOD
    if rc < 0:
        return refused(publish_failed(s, m, &ERR_INSUFFICIENT_RESOURCES))
    m.header = span(made.header.data, <uint32_t>made.header.n)
    return made_sizes(s, m) if rolled else JUDGED_GOOD


cdef void made_free(BatchMade* made) noexcept nogil:
    bytes_free(&made.body)
    bytes_free(&made.header)


cdef Judged judge(Stream* s, BatchDiff* d, Msg* m, PubHeaders* h, const StoreState* state, uint64_t* seq,
                  BatchMade* made) noexcept nogil:
    # Whether a message may be stored with those of its batch before it, which d tells; d then has it, too, and m is what is
    # stored, with texts in `made` until the next one (NULL: as it came). seq: of a duplicate the sequence that its id had, if
    # it is stored. state: before the batch.
    cdef Judged how = JUDGED_GOOD
    cdef int rc = store_fits(m.subject, m.header, m.data)
    cdef bint asks = m.header.n and not asks_nothing(h)
    if made != NULL:
        made.body.n = 0
        made.header.n = 0
    if rc != ST_OK:
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(rc)))
    if h.schedule.n and h.rollup.n == 0 and s.cfg.flags & STREAM_ALLOW_MSG_SCHEDULES:
        h.rollup = span_c(b"sub")               # there is one on a subject
    if m.header.n > 65535:
        return refused(publish_failed(s, m, &ERR_STREAM_HEADER_EXCEEDS_MAXIMUM))
    if asks:
        how = judge_claims(s, d, m, h, seq)
    if how == JUDGED_GOOD and s.cfg.flags & STREAM_ALLOW_MSG_COUNTER:
        how = make_sum(s, m, h, made)
    if how == JUDGED_GOOD and asks:
        how = judge_order(s, d, m, h, state.last_seq + d.n)
    if how == JUDGED_GOOD and asks and made != NULL and not s.cfg.flags & STREAM_ALLOW_MSG_COUNTER:
        how = make_header(s, m, h, made)
    if how != JUDGED_GOOD:
        return how
    d.n += 1
    d.msgs += 1
    d.bytes += <int64_t>store_size_of(s.store, m.subject, m.header, m.data)
    if d.by_subject and strmap_put(&d.subjects, m.subject, <void*><size_t>(diff_count(d, m.subject) + 1)) < 0:
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY)))
    return judge_room(s, d, m, h, state) if s.cfg.discard == DISCARD_NEW else JUDGED_GOOD


cdef void batch_change(Stream* s, const Msg* m, const PubHeaders* h, uint64_t seq, Change* c) noexcept nogil:
    # What becomes of a message that passed.
    c.kind = CHANGE_SKIP if is_unwanted(s, m.subject) else CHANGE_MESSAGE
    c.seq = seq
    c.ts = s.env.now
    c.subject = m.subject
    c.header = m.header
    c.data = m.data
    c.id = h.msg_id
    c.said = NULL               # it may be kept
    c.keep = 0
    c.erase = False
    c.rollup = rollup_of(h.rollup) if h.rollup.n else ROLLUP_NONE
