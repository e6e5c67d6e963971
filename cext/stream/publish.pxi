# A publish: the checks in the order in which clients see their errors, then the store, the ack and the consumers.

cdef enum:
    BARE_HEADER = 12                    # of a header block without a line
    IMPORTED_REPLY = 4096               # a longer one is none of a fast batch
    TOLD_SECONDS = 10              # between two lines of the log about one thing


cdef bint last_of_pattern(Stream* s, Span pattern, uint64_t* seq) noexcept nogil:
    # The last sequence on a subject, which may have wildcards; 0 if there is none. False: it has to be looked for in turns.
    cdef PatternLook look
    seq[0] = 0
    if subject_is_literal(pattern):
        seq[0] = overlay_last(s, pattern) if s.staging != NULL else store_last_of(s.store, pattern)
        return True
    if s.dedupe.look != NULL and s.dedupe.look.known:
        seq[0] = s.dedupe.look.seq
        pattern_free(s)
        return True
    memset(&look, 0, sizeof(PatternLook))
    if filter_init(&look.filter, &pattern, 1) != ST_OK:
        return True
    if s.staging != NULL:
        seq[0] = overlay_last_match(s, &look.filter)
    elif store_last_some(s.store, &look.filter, &look.at, seq) == 1:
        if pattern_keep(s, &look):
            return False
        seq[0] = store_last_match(s.store, &look.filter)
    filter_free(&look.filter)
    return True


# ---- checks: 0 goes on, 1 has been answered, PUBLISH_LATER ----------------------------------------------------------------

cdef int check_expected(Stream* s, const Msg* m, const PubHeaders* h, uint64_t last) noexcept nogil:
    cdef uint64_t want, have
    cdef int64_t ttl
    if h.stream.n and not span_eq(h.stream, s.cfg.name):
        return publish_failed(s, m, &ERR_STREAM_NOT_MATCH)
    if h.ttl.n and not s.cfg.allow_ttl and get_ttl(h.ttl, &ttl) and ttl:
        return publish_failed(s, m, &ERR_MESSAGE_TTL_DISABLED)
    if h.subject_seq.n:
        if not last_of_pattern(s, h.subject_seq_of if h.subject_seq_of.n else m.subject, &have):
            return PUBLISH_LATER
        if not get_u64(h.subject_seq, &want) or want != have:
            return publish_failed_seq(s, m, have)
    elif h.subject_seq_of.n:
        return publish_failed(s, m, &ERR_STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
    if h.last_seq.n and (not get_u64(h.last_seq, &want) or want != last):
        return publish_failed_seq(s, m, last)
    if h.schedule.n or h.scheduler.n or h.schedule_next.n or h.zone.p != NULL:
        return check_schedule(s, m, h)
    return 0


cdef int check_duplicate(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef uint64_t seq
    cdef Span last_id
    if h.msg_id.n and s.cfg.window > 0:
        dedupe_read(s)
        if dedupe_find(&s.dedupe, h.msg_id, &seq):
            pub_ack(s, m.reply, seq, True)
            return 1
        if s.staging != NULL and overlay_id(s.staging, h.msg_id, &seq):
            return publish_repeated(s, m.reply, seq)
    last_id = span(s.last_id.data, <uint32_t>s.last_id.n)
    if s.staging != NULL and s.staging.n:
        last_id = span(s.staging.last_id.data, <uint32_t>s.staging.last_id.n)
    if h.last_msg_id.n and not span_eq(h.last_msg_id, last_id):
        return publish_failed_with(s, m, &ERR_STREAM_WRONG_LAST_MSG_ID, last_id)
    return 0


cdef int check_rollup(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef Bytes text
    if h.rollup.n == 0:
        return 0
    if not s.cfg.allow_rollup or s.cfg.deny_purge:
        return publish_failed_as(s, m, &ERR_STREAM_ROLLUP_FAILED, b"rollup not permitted")
    if key_is(h.rollup, b"sub") or key_is(h.rollup, b"all"):
        return 0
    memset(&text, 0, sizeof(Bytes))
    if (add_text(&text, b"rollup value invalid: \"") == 0 and add_span(&text, h.rollup) == 0
            and add_text(&text, b"\"") == 0):
        send_pub_error(s, m.reply, &ERR_STREAM_ROLLUP_FAILED, span(text.data, <uint32_t>text.n))
    bytes_free(&text)
    return 1


cdef bint over(const Usage* u, uint64_t more) noexcept nogil:
    return u != NULL and u.max >= 0 and u.used + <int64_t>more > u.max


cdef void log_line(Stream* s, const char* text, bint error) noexcept nogil:
    cdef Event e
    memset(&e, 0, sizeof(Event))
    e.kind = EV_LOG
    e.account = s.account
    e.text[0] = span_c(text)
    e.num[0] = error
    s.env.out.event(s.env.out.ctx, &e)


cdef bint log_at_times(Stream* s, int64_t* told, const char* text, bint error) noexcept nogil:
    # A line of the log about one thing, unless there was one a moment ago: told (mono; 0: never). Whether it was written.
    if told[0] and s.env.mono - told[0] <= TOLD_SECONDS * <int64_t>1000000000:
        return False
    told[0] = s.env.mono
    log_line(s, text, error)
    return True


cdef void put_size(char* to, size_t cap, int64_t bytes) noexcept nogil:
    # A number of bytes as the log shows it: 512 B, 1.00 KB, 17.66 GB (powers of 1024).
    cdef double size = <double>bytes
    cdef uint32_t power = 0
    if bytes < 1024:
        snprintf(to, cap, b"%lld B", <long long>bytes)
        return
    while size >= 1024 and power < 6:
        size /= 1024
        power += 1
    snprintf(to, cap, b"%.2f %cB", size, <int>b"BKMGTPE"[power])


cdef bint server_full(Stream* s) noexcept nogil:
    # Once it has passed its limit; the log says so now and then, and which option limits it.
    cdef Usage* u = s.cfg.server_usage
    cdef bint memory = s.cfg.directory.n == 0
    cdef char used[32]
    cdef char most[32]
    cdef char text[160]
    if u == NULL or u.max < 0 or u.used <= u.max:
        return False
    if log_at_times(s, &u.told, b"JetStream memory resource limits exceeded for server" if memory
                    else b"JetStream file resource limits exceeded for server", True):
        put_size(used, sizeof(used), u.used)
        put_size(most, sizeof(most), u.max)
        snprintf(text, sizeof(text), b"Publishes are refused (10023): %s: %s used of %s",
                 <const char*>b"max_memory_store" if memory else <const char*>b"max_file_store", used, most)
        log_line(s, text, False)
    return True


cdef int check_sizes(Stream* s, const Msg* m) noexcept nogil:
    if s.cfg.max_msg_size >= 0 and <int64_t>m.header.n + m.data.n > s.cfg.max_msg_size:
        return publish_failed(s, m, &ERR_STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    if m.header.n > 65535:
        return publish_failed(s, m, &ERR_STREAM_HEADER_EXCEEDS_MAXIMUM)
    if server_full(s):
        return publish_failed(s, m, &ERR_INSUFFICIENT_RESOURCES)
    return 0


cdef uint64_t count_of(Stream* s, Span subject) noexcept nogil:
    return overlay_count(s, subject) if s.staging != NULL else store_count_of(s.store, subject)


cdef uint64_t oldest_size(Stream* s, Span subject) noexcept nogil:
    # What a subject's oldest message counts in bytes.
    cdef uint64_t size = 0
    cdef Record oldest
    cdef Filter f
    if s.staging != NULL:
        return overlay_oldest_size(s, subject)
    if filter_init(&f, &subject, 1) == ST_OK:
        if store_next_intact(s.store, &f, 0, &oldest, NULL) == ST_OK:
            size = store_size_of(s.store, oldest.subject, oldest.header, oldest.data)
        filter_free(&f)
    return size


cdef int check_discard_new(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    cdef bint full_subject = (s.cfg.max_msgs_per > 0
                              and count_of(s, m.subject) >= <uint64_t>s.cfg.max_msgs_per)
    cdef uint64_t size, freed = 0
    if full_subject and s.cfg.discard_new_per and h.rollup.n == 0:
        return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"maximum messages per subject exceeded")
    if s.cfg.max_msgs >= 0 and state.msgs >= <uint64_t>s.cfg.max_msgs and not full_subject:
        return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"maximum messages exceeded")
    if s.cfg.max_bytes < 0:
        return 0
    size = store_size_of(s.store, m.subject, m.header, m.data)
    if state.bytes + size <= <uint64_t>s.cfg.max_bytes:
        return 0
    if full_subject:
        freed = oldest_size(s, m.subject)
    if freed < size:
        return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"maximum bytes exceeded")
    return 0


# ---- storing ------------------------------------------------------------------------------------------------------

cdef const char* store_text(int rc) noexcept nogil:
    if rc == ST_TOO_LARGE:
        return b"message too large"
    if rc == ST_NO_MEMORY:
        return b"out of memory"
    return b"store is closed"


cdef int store_refused(Stream* s, const Msg* m, int rc) noexcept nogil:
    # The store did not take it.
    if rc == ST_IO:
        stream_fail(s, <int>store_error(s.store))
    if rc == ST_IO or rc == ST_FULL:
        return publish_down(s, m)
    return publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(rc))


cdef int publish_change(Stream* s, const Msg* m, const Change* c) noexcept nogil:
    # It passed all checks.
    cdef int rc
    if s.staging != NULL:
        return publish_staged(s, m, c)
    if c.rollup == ROLLUP_SUBJECT and store_count_of(s.store, c.subject) > PURGE_PIECE:
        return roll_up_in_pieces(s, m, c)
    rc = <int>stream_change(s, c)
    if rc != ST_OK:
        return store_refused(s, m, rc)
    if s.cfg.allow_counter:
        counter_ack(s, m.reply, c.seq, c.data)
    else:
        pub_ack(s, m.reply, c.seq, False)
    return 1


cdef int publish_checked(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef StoreState state
    cdef int rc
    store_state(s.store, &state)
    if s.staging != NULL:
        overlay_state(s.staging, &state)
    if s.cfg.sealed:
        return publish_failed(s, m, &ERR_STREAM_SEALED)
    if h.incr.n and check_increment(s, m, h):
        return 1
    rc = check_expected(s, m, h, state.last_seq)
    if rc:
        return rc
    if h.schedule.n:
        return publish_schedule(s, m, h, &state)
    return publish_entered(s, m, h, &state)


cdef int publish_entered(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # Where what a stream publishes itself comes in.
    if check_duplicate(s, m, h) or check_rollup(s, m, h):
        return 1
    if s.cfg.allow_counter:
        return publish_counter(s, m, h, state)
    return publish_sized(s, m, h, state)


cdef int publish_sized(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # As it will be stored.
    cdef Change c
    cdef uint64_t size
    cdef int64_t ttl
    if check_sizes(s, m):
        return 1
    c.kind = CHANGE_MESSAGE
    c.seq = state.last_seq + 1
    c.ts = s.env.now
    c.subject = m.subject
    c.header = m.header
    c.data = m.data
    c.id = h.msg_id
    c.said = h
    c.keep = 0
    c.erase = False
    c.rollup = rollup_of(h.rollup) if h.rollup.n else ROLLUP_NONE
    if s.cfg.retention == RETAIN_INTEREST and not watched(&s.watchers, m.subject):
        c.kind = CHANGE_SKIP        # nobody is interested: the sequence is used up
        return publish_change(s, m, &c)
    size = store_size_of(s.store, m.subject, m.header, m.data)
    if over(s.cfg.account_usage, size if s.staging == NULL else staged_more(s.staging, size)):
        return publish_failed(s, m, &ERR_ACCOUNT_RESOURCES_EXCEEDED)
    if h.ttl.n:
        if not get_ttl(h.ttl, &ttl):
            return publish_failed(s, m, &ERR_MESSAGE_TTL_INVALID)
        if s.cfg.marker_ttl and too_short(s, ttl):
            return publish_longer(s, m, h, state, &c)
    if s.cfg.discard_new and check_discard_new(s, m, h, state):
        return 1
    return publish_change(s, m, &c)


cdef int publish_longer(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state, Change* c) noexcept nogil:
    # With the shortest time that a message may have here.
    cdef Msg longer = m[0]
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if header_with_ttl(&b, m.header, s.cfg.marker_ttl // SECOND) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY))
    else:
        longer.header = span(b.data, <uint32_t>b.n)
        c.header = longer.header
        c.said = NULL
        if not (s.cfg.discard_new and check_discard_new(s, &longer, h, state)):
            publish_change(s, &longer, c)
    bytes_free(&b)
    return 1


# ---- headers that are stored changed -----------------------------------------------------------------------------

cdef bint has_status(Span block) noexcept nogil:
    # Whether something stands between the version and the end of its line.
    cdef const uint8_t* cr
    if block.n <= 8 or memcmp(block.p, b"NATS/1.0", 8) != 0:
        return False
    cr = <const uint8_t*>memchr(block.p, c'\r', block.n)
    return cr != NULL and cr > block.p + 8


cdef int rewrite_headers(Span block, Bytes* b) noexcept nogil:
    # The block without a status and without Nats-Request-Info; empty when no line is left. All else stays as
    # it came, well formed or not. 0 | -1 no memory
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    if has_status(block):
        if bytes_add(b, p, 8) < 0:
            return -1
        p = <const uint8_t*>memchr(p, c'\r', block.n)
    while p < end:
        stop = line_end(p, end)
        stop = stop + 2 if stop < end else end
        if not (p > block.p and stop - p > 18 and memcmp(p, b"Nats-Request-Info:", 18) == 0):
            if bytes_add(b, p, stop - p) < 0:
                return -1
        p = stop
    if b.n <= BARE_HEADER:
        b.n = 0
    return 0


cdef int publish_rewritten(Stream* s, const Msg* m) noexcept nogil:
    cdef Msg clean = m[0]
    cdef PubHeaders h
    cdef Bytes b
    cdef int rc = 1
    memset(&b, 0, sizeof(Bytes))
    if rewrite_headers(m.header, &b) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"out of memory")
    else:
        clean.header = span(b.data, <uint32_t>b.n)
        read_headers(&h, clean.header)
        rc = publish_checked(s, &clean, &h)
    bytes_free(&b)
    return rc


cdef inline bint ends_fast(Span reply) noexcept nogil:
    return reply.n > 4 and memcmp(reply.p + reply.n - 4, b".$FI", 4) == 0


cdef int stream_rename(Stream* s, Span* subject, Draft* d) noexcept nogil:
    if s.cfg.transform != NULL and transform_match(s.cfg.transform, s.env, subject[0], d):
        subject[0] = draft_span(d)
    return -1 if d.failed else 0


cdef int publish_renamed(Stream* s, const Msg* m, const PubHeaders* h, Span fast) noexcept nogil:
    # Under the subject that it is stored under.
    cdef Msg renamed = m[0]
    cdef Draft d
    cdef int rc = 1
    draft_open(&d)
    if stream_rename(s, &renamed.subject, &d) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_TOO_LARGE))
    else:
        rc = publish_named(s, &renamed, h, fast)
    draft_free(&d)
    return rc


cdef int stream_publish(Stream* s, const Msg* m) noexcept nogil:
    cdef bint asks = s.dedupe.unread != 0 and m.header.n and header_get(m.header, b"Nats-Msg-Id").n
    cdef int rc
    if (asks or s.dedupe.reading) and publish_waits(s, m, asks):
        return 1
    rc = publish_now(s, m)
    return rc if rc != PUBLISH_LATER else publish_later(s, m)


cdef int publish_now(Stream* s, const Msg* m) noexcept nogil:
    cdef uint8_t room[IMPORTED_REPLY]
    cdef PubHeaders h
    cdef Span fast = span(NULL, 0)
    if s.failed or s.halted:
        return publish_down(s, m)
    if m.reply.n and ends_fast(m.reply):
        fast = m.reply
    elif m.header.n == 0:
        memset(&h, 0, sizeof(PubHeaders))
    else:
        read_headers(&h, m.header)
        if h.request_info:              # it came from another account
            fast = imported_reply(m, room, IMPORTED_REPLY)
        if h.batch.n and fast.n == 0:
            return publish_atomic(s, m, &h)         # renamed at the commit
    return publish_renamed(s, m, &h, fast) if s.cfg.transform != NULL else publish_named(s, m, &h, fast)


cdef int publish_named(Stream* s, const Msg* m, const PubHeaders* h, Span fast) noexcept nogil:
    # h: not looked at in a fast batch, whose reply is the last argument
    if fast.n:
        return publish_fast(s, m, fast)
    if m.header.n and (h.request_info or has_status(m.header)):
        return publish_rewritten(s, m)
    return publish_checked(s, m, h)


cdef int publish_inbound(void* target, const Msg* m) noexcept nogil:
    # Not of what this stream delivers itself, whose bytes may move while it stores.
    cdef Stream* s = <Stream*>target
    return 0 if s.lent else stream_publish(s, m)
