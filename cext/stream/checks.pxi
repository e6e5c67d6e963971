# The checks of a publish, each of which lets it go on (0), has answered it (1), or has begun a look (PUBLISH_LATER). Their order
# stands in publish.pxi.

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


cdef int check_expected_stream(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    if h.stream.n and not span_eq(h.stream, s.cfg.name):
        return publish_failed(s, m, &ERR_STREAM_NOT_MATCH)
    return 0


cdef int check_ttl_allowed(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef int64_t ttl
    if h.ttl.n and not s.cfg.flags & STREAM_ALLOW_MSG_TTL and get_ttl(h.ttl, &ttl) and ttl:
        return publish_failed(s, m, &ERR_MESSAGE_TTL_DISABLED)
    return 0


cdef int check_expected_subject_sequence(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef uint64_t want, have
    if h.subject_seq.n:
        if not last_of_pattern(s, h.subject_seq_of if h.subject_seq_of.n else m.subject, &have):
            return PUBLISH_LATER
        if not get_u64(h.subject_seq, &want) or want != have:
            return publish_failed_seq(s, m, have)
    elif h.subject_seq_of.n:
        return publish_failed(s, m, &ERR_STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
    return 0


cdef int check_expected_sequence(Stream* s, const Msg* m, const PubHeaders* h, uint64_t last) noexcept nogil:
    cdef uint64_t want
    if h.last_seq.n and (not get_u64(h.last_seq, &want) or want != last):
        return publish_failed_seq(s, m, last)
    return 0


cdef int check_duplicate(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef uint64_t seq
    if h.msg_id.n and s.cfg.duplicate_window > 0:
        dedupe_read(s)
        if dedupe_find(&s.dedupe, h.msg_id, &seq):
            pub_ack(s, m.reply, seq, True)
            return 1
        if s.staging != NULL and overlay_id(s.staging, h.msg_id, &seq):
            return publish_repeated(s, m.reply, seq)
    return 0


cdef int check_expected_id(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef Span last_id = span(s.last_id.data, <uint32_t>s.last_id.n)
    if s.staging != NULL and s.staging.n:
        last_id = span(s.staging.last_id.data, <uint32_t>s.staging.last_id.n)
    if h.last_msg_id.n and not span_eq(h.last_msg_id, last_id):
        return publish_failed_with(s, m, &ERR_STREAM_WRONG_LAST_MSG_ID, last_id)
    return 0


cdef int check_rollup(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef Bytes text
    if h.rollup.n == 0:
        return 0
    if not s.cfg.flags & STREAM_ALLOW_ROLLUP_HDRS or s.cfg.flags & STREAM_DENY_PURGE:
        return publish_failed_as(s, m, &ERR_STREAM_ROLLUP_FAILED, b"rollup not permitted")
    if key_is(h.rollup, b"sub") or key_is(h.rollup, b"all"):
        return 0
    memset(&text, 0, sizeof(Bytes))
    if (add_text(&text, b"rollup value invalid: \"") == 0 and add_span(&text, h.rollup) == 0
            and add_text(&text, b"\"") == 0):
        send_pub_error(s, m.reply, &ERR_STREAM_ROLLUP_FAILED, span(text.data, <uint32_t>text.n))
    bytes_free(&text)
    return 1


cdef int check_size(Stream* s, const Msg* m) noexcept nogil:
    if s.cfg.max_msg_size >= 0 and <int64_t>m.header.n + m.data.n > s.cfg.max_msg_size:
        return publish_failed(s, m, &ERR_STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    if m.header.n > 65535:
        return publish_failed(s, m, &ERR_STREAM_HEADER_EXCEEDS_MAXIMUM)
    return 0


cdef int check_ttl(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef int64_t ttl
    if h.ttl.n and not get_ttl(h.ttl, &ttl):
        return publish_failed(s, m, &ERR_MESSAGE_TTL_INVALID)
    return 0


# ---- room ------------------------------------------------------------------------------------------------------------

cdef int check_server_room(Stream* s, const Msg* m) noexcept nogil:
    return publish_failed(s, m, &ERR_INSUFFICIENT_RESOURCES) if server_full(s) else 0


cdef int check_account_room(Stream* s, const Msg* m) noexcept nogil:
    cdef uint64_t size
    if s.place.account_usage == NULL:
        return 0
    size = store_size_of(s.store, m.subject, m.header, m.data)
    if over(s.place.account_usage, size if s.staging == NULL else staged_more(s.staging, size)):
        return publish_failed(s, m, &ERR_ACCOUNT_RESOURCES_EXCEEDED)
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


cdef int check_stream_room(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # Of a stream that refuses what is new at its limits.
    cdef bint full_subject = (s.cfg.max_msgs_per_subject > 0
                              and count_of(s, m.subject) >= <uint64_t>s.cfg.max_msgs_per_subject)
    cdef uint64_t size, freed = 0
    if full_subject and s.cfg.flags & STREAM_DISCARD_NEW_PER_SUBJECT and h.rollup.n == 0:
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


# ---- where it is stored ----------------------------------------------------------------------------------------------

cdef int stream_rename(Stream* s, Span* subject, Draft* d) noexcept nogil:
    if s.cfg.subject_transform != NULL and transform_match(s.cfg.subject_transform, s.env, subject[0], d):
        subject[0] = draft_span(d)
    return -1 if d.failed else 0
