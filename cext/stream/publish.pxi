# A publish: the checks in the order in which clients see their errors, then the store, the ack and the consumers.

cdef enum:
    IMPORTED_REPLY = 4096               # a longer one is none of a fast batch
    MADE_MAX = 5                        # texts that one publish needs in place of its own


cdef struct Publish:
    # A message on its way through the checks.
    const Msg* m                        # as it is to be stored
    const PubHeaders* h                 # what its headers ask for
    ChangeKind kind                     # what it leads to
    bint own                            # the stream publishes it itself
    bint longer                         # its time is another one than `h` says
    StoreState state                    # of the stream, with what is staged
    Msg stored                          # what `m` points to, where something else than what came is stored
    PubHeaders asked                    # likewise of `h`
    uint32_t n_made
    Bytes made[MADE_MAX]                # texts of `stored`


# ---- what is stored in place of what came: 0 goes on, 1 has been answered ------------------------------------------------

cdef Msg* publish_stored(Publish* p) noexcept nogil:
    # The message, to be changed.
    if p.m != &p.stored:
        p.stored = p.m[0]
        p.m = &p.stored
    return &p.stored


cdef Bytes* publish_text(Publish* p) noexcept nogil:
    # An empty text, freed at the end.
    cdef Bytes* b = &p.made[p.n_made]
    memset(b, 0, sizeof(Bytes))
    p.n_made += 1
    return b


cdef int publish_no_memory(Stream* s, const Publish* p) noexcept nogil:
    return publish_failed_as(s, p.m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY))


cdef int make_clean_header(Stream* s, Publish* p) noexcept nogil:
    # Without a status, and without what the server says of the publisher.
    cdef Bytes* b
    if not (p.h.request_info or has_status(p.m.header)):
        return 0
    b = publish_text(p)
    if rewrite_headers(p.m.header, b) < 0:
        return publish_no_memory(s, p)
    publish_stored(p).header = b_span(b)
    read_headers(&p.asked, p.m.header)
    p.h = &p.asked
    return 0


cdef int make_only_schedule(Stream* s, Publish* p) noexcept nogil:
    # There is one schedule on a subject.
    cdef Bytes* b
    if p.h.schedule.n == 0 or p.h.rollup.n:
        return 0
    b = publish_text(p)
    if header_rolled(b, p.m.header) < 0:
        return publish_no_memory(s, p)
    publish_stored(p).header = b_span(b)
    if p.h != &p.asked:
        p.asked = p.h[0]
        p.h = &p.asked
    p.asked.rollup = span_c(b"sub")
    return 0


cdef int make_counted(Stream* s, Publish* p) noexcept nogil:
    # Of a counter.
    cdef Bytes* body
    cdef Bytes* header
    cdef const ApiError* error
    if not s.cfg.flags & STREAM_ALLOW_MSG_COUNTER:
        return 0
    body = publish_text(p)
    header = publish_text(p)
    error = counter_sum(s, p.m, p.h, NULL, body, header)
    if error != NULL:
        return publish_failed(s, p.m, error)
    publish_stored(p).data = b_span(body)
    if header.n:
        p.stored.header = b_span(header)
    return 0


cdef int make_longer_ttl(Stream* s, Publish* p) noexcept nogil:
    # No message is gone before the marker that would stand for the one before it.
    cdef int64_t ttl
    cdef Bytes* b
    if p.h.ttl.n == 0 or s.cfg.subject_delete_marker_ttl == 0 or not get_ttl(p.h.ttl, &ttl) or not too_short(s, ttl):
        return 0
    b = publish_text(p)
    if header_with_ttl(b, p.m.header, s.cfg.subject_delete_marker_ttl // SECOND) < 0:
        return publish_no_memory(s, p)
    publish_stored(p).header = b_span(b)
    p.longer = True
    return 0


# ---- the order -----------------------------------------------------------------------------------------------------------
#
# Where several things are wrong with a publish, its publisher hears of the first in this order:
#
#   publish_now                 nothing can be written; then batches go their own ways (batch_atomic.pxi, batch_fast.pxi)
#   publish_renamed             the subject that it is stored under is too long
#   check_sealed                the stream is sealed
#   check_increment             Nats-Incr is none, is not allowed, or comes with what counters do not take
#   check_expected_stream       Nats-Expected-Stream names another stream
#   check_ttl_allowed           Nats-TTL is not allowed
#   check_expected_subject_sequence     Nats-Expected-Last-Subject-Sequence is another one
#   check_expected_sequence     Nats-Expected-Last-Sequence is another one
#   check_schedule              the headers of a schedule are wrong or not allowed
#   check_duplicate             Nats-Msg-Id is known: the ack says so
#   check_expected_id           Nats-Expected-Last-Msg-Id is another one
#   check_rollup                Nats-Rollup is none, or is not allowed
#   make_counted                    a counter without an increment, or its sum cannot be made
#   check_size                  the message or its headers are too long
#   check_server_room           the server's limit is reached
#   check_account_room          the account's limit is reached; from here on only where somebody wants the message
#   check_ttl                   Nats-TTL is none
#   check_stream_room           the stream refuses what is new at its limits

cdef inline int check_sealed(Stream* s, const Msg* m) noexcept nogil:
    return publish_failed(s, m, &ERR_STREAM_SEALED) if s.cfg.flags & STREAM_SEALED else 0


cdef int publish_refused(Stream* s, Publish* p) noexcept nogil:
    # 0: it is to be stored, 1: it has been answered, PUBLISH_LATER
    cdef bint asks = p.m.header.n != 0          # checks that headers ask for cost other messages nothing
    cdef int rc = 0
    if not p.own:
        rc = (make_clean_header(s, p) if asks else 0) or check_sealed(s, p.m)
    if asks and rc == 0 and not p.own:
        rc = ((p.h.incr.n and check_increment(s, p.m, p.h))
              or check_expected_stream(s, p.m, p.h)
              or check_ttl_allowed(s, p.m, p.h)
              or check_expected_subject_sequence(s, p.m, p.h)
              or check_expected_sequence(s, p.m, p.h, p.state.last_seq)
              or check_schedule(s, p.m, p.h)
              or make_only_schedule(s, p))
    if asks and rc == 0:
        rc = (check_duplicate(s, p.m, p.h)
              or check_expected_id(s, p.m, p.h)
              or check_rollup(s, p.m, p.h))
    if rc == 0:
        rc = (make_counted(s, p)
              or check_size(s, p.m)
              or check_server_room(s, p.m))
    p.kind = CHANGE_SKIP if rc == 0 and is_unwanted(s, p.m.subject) else CHANGE_MESSAGE
    if rc == 0 and p.kind == CHANGE_MESSAGE:
        rc = (check_account_room(s, p.m)
              or check_ttl(s, p.m, p.h)
              or make_longer_ttl(s, p)
              or (s.cfg.discard == DISCARD_NEW and check_stream_room(s, p.m, p.h, &p.state)))
    return rc


cdef int publish_passed(Stream* s, const Publish* p) noexcept nogil:
    cdef Change c
    c.kind = p.kind
    c.seq = p.state.last_seq + 1
    c.ts = s.env.now
    c.subject = p.m.subject
    c.header = p.m.header
    c.data = p.m.data
    c.id = p.h.msg_id
    c.said = p.h if not p.longer else NULL
    c.keep = 0
    c.erase = False
    c.rollup = rollup_of(p.h.rollup) if p.h.rollup.n else ROLLUP_NONE
    return publish_change(s, p.m, &c)


cdef int publish_checked(Stream* s, const Msg* m, const PubHeaders* h, bint own) noexcept nogil:
    # own: the stream publishes it itself
    cdef Publish p
    cdef uint32_t i
    cdef int rc
    p.m = m
    p.h = h
    p.own = own
    p.longer = False
    p.n_made = 0
    state_staged(s, &p.state)
    rc = publish_refused(s, &p)
    if rc == 0:
        rc = publish_passed(s, &p)
    for i in range(p.n_made):
        bytes_free(&p.made[i])
    return rc


# ---- what comes ----------------------------------------------------------------------------------------------------------

cdef int publish_renamed(Stream* s, const Msg* m, const PubHeaders* h, Span fast) noexcept nogil:
    # Under the subject that it is stored under.
    cdef Msg renamed = m[0]
    cdef Draft d
    cdef int rc = 1
    draft_open(&d)
    if stream_rename(s, &renamed.subject, &d) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_TOO_LARGE))
    else:
        came_to(s, m.subject)
        rc = publish_named(s, &renamed, h, fast)
        came_to(s, span(NULL, 0))
    draft_free(&d)
    return rc


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
    return publish_renamed(s, m, &h, fast) if s.cfg.subject_transform != NULL else publish_named(s, m, &h, fast)


cdef int publish_named(Stream* s, const Msg* m, const PubHeaders* h, Span fast) noexcept nogil:
    # h: not looked at in a fast batch, whose reply is the last argument
    if fast.n:
        return publish_fast(s, m, fast)
    return publish_checked(s, m, h, False)
