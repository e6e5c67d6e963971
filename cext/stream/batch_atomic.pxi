# Atomic batches: messages with the header Nats-Batch-Id wait, numbered from 1 on, until one commits them. Then all of them are
# checked as they are to be stored, one behind the other, and stored as a whole (changes_store), or the first error is the answer.
#
# They wait in memory: until they are committed nobody has been promised anything, and a start knows nothing of them. A batch is
# bounded by what one round of the disk takes (STAGED_MAX), all of the server's by BATCHES_BYTES.

cdef struct AtomicBatch:
    OpenBatch open
    Bytes changes               # Staged, as they came; those of the store's making are filled in at the commit
    size_t newest               # where the last one stands
    bint by_subject             # a message asks for what was stored on a subject, as a schedule does


cdef void atomic_close(AtomicBatch* b) noexcept nogil:
    cdef Stream* s = b.open.s
    s.place.batch_room.bytes -= b.changes.n
    s.place.batch_room.atomic -= 1
    bytes_free(&b.changes)
    batch_close(&s.batches.atomic, &b.open)


cdef void atomic_drop_all(Stream* s) noexcept nogil:
    while not list_empty(&s.batches.atomic.all):
        atomic_close(<AtomicBatch*>batch_at(list_first(&s.batches.atomic.all)))


cdef void atomic_silent(Timer* t, int64_t now) noexcept nogil:
    cdef AtomicBatch* b = <AtomicBatch*>t.owner
    if not batch_waits(&b.open, now):
        batch_abandoned(b.open.s, batch_id(&b.open), b"timeout")
        atomic_close(b)


cdef int atomic_end(AtomicBatch* b, const Msg* m, const ApiError* error, const char* reason) noexcept nogil:
    # The batch is dropped, and its publisher hears of it. reason: for the advisory, if there is one.
    cdef Stream* s = b.open.s
    if reason != NULL:
        batch_abandoned(s, batch_id(&b.open), reason)
    atomic_close(b)
    return publish_failed(s, m, error)


cdef int64_t atomic_size_max(const Stream* s) noexcept nogil:
    return at_most(s.place.batch_room.max_size, ATOMIC_SIZE)


cdef int too_many_messages(Stream* s, const Msg* m) noexcept nogil:
    cdef uint8_t digits[U64_DIGITS_MAX]
    return publish_failed_with(s, m, &ERR_ATOMIC_PUBLISH_TOO_LARGE_BATCH,
                               span(digits, put_u64(digits, <uint64_t>atomic_size_max(s))))


cdef bint is_too_many(const Stream* s, uint64_t number, bint eob) noexcept nogil:
    # A message that only ends the batch does not count.
    return number - eob > <uint64_t>atomic_size_max(s)


cdef AtomicBatch* atomic_open(Stream* s, Span id, const ApiError** error) noexcept nogil:
    # NULL, with the error, when there can be no further one.
    cdef Batches* all = batches_of(s)
    cdef BatchRoom* room = s.place.batch_room
    cdef OpenBatch* b
    error[0] = &ERR_ATOMIC_PUBLISH_INCOMPLETE_BATCH
    if all == NULL:
        return NULL
    if (all.atomic.by_id.n >= at_most(room.max_per_stream, ATOMIC_PER_STREAM)
            or room.atomic >= at_most(room.max_total, ATOMIC_TOTAL)):
        error[0] = &ERR_ATOMIC_PUBLISH_TOO_MANY_INFLIGHT
        return NULL
    b = batch_open(s, &all.atomic, sizeof(AtomicBatch), id, atomic_silent)
    if b != NULL:
        room.atomic += 1
    return <AtomicBatch*>b


cdef int atomic_stage(AtomicBatch* b, const Msg* m, const PubHeaders* h, bint rewrite) noexcept nogil:
    # ST_OK; ST_FULL: there is no room for it; or another ST_*
    cdef Stream* s = b.open.s
    cdef BatchRoom* room = s.place.batch_room
    cdef size_t was = b.changes.n
    cdef size_t size = sizeof(Staged) + <size_t>m.subject.n + m.header.n + m.data.n + h.msg_id.n
    cdef Change c
    cdef Bytes header
    cdef int rc = store_fits(m.subject, m.header, m.data)
    if rc != ST_OK:
        return rc
    if was + size > STAGED_MAX or room.bytes + size > BATCHES_BYTES:
        return ST_FULL
    memset(&header, 0, sizeof(Bytes))
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_MESSAGE
    c.subject = m.subject
    c.header = m.header
    c.data = m.data
    c.id = h.msg_id
    if rewrite:
        rc = batch_header(m.header, &header)
        c.header = span(header.data, <uint32_t>header.n)
    if rc < 0 or staged_put(&b.changes, span(NULL, 0), &c, asks_nothing(h), span(NULL, 0)) < 0:
        rc = ST_NO_MEMORY
    bytes_free(&header)
    b.newest = was
    b.by_subject = b.by_subject or h.subject_seq.n or h.rollup.n or h.schedule.n
    room.bytes += b.changes.n - was
    return rc


cdef int publish_atomic(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef BatchHeaders own
    cdef AtomicBatch* b
    cdef const ApiError* error
    cdef uint64_t number
    cdef bint eob, commits
    cdef int rc
    if batch_taken(s, m):
        return 1
    if not s.cfg.flags & STREAM_ALLOW_ATOMIC:
        return publish_failed(s, m, &ERR_ATOMIC_PUBLISH_DISABLED)
    if h.batch.n > BATCH_ID_MAX:
        return publish_failed(s, m, &ERR_ATOMIC_PUBLISH_INVALID_BATCH_ID)
    read_batch_headers(&own, m.header)
    if not get_u64(own.seq, &number):
        return publish_failed(s, m, &ERR_ATOMIC_PUBLISH_MISSING_SEQ)
    commits = own.commit.p != NULL
    eob = span_eq(own.commit, span_c(b"eob"))
    b = <AtomicBatch*>strmap_get(&s.batches.atomic.by_id, h.batch) if s.batches != NULL else NULL
    if b == NULL and number != 1:
        if is_too_many(s, number, eob):
            return too_many_messages(s, m)
        return publish_failed(s, m, &ERR_ATOMIC_PUBLISH_INCOMPLETE_BATCH)
    if b == NULL:
        b = atomic_open(s, h.batch, &error)
        if b == NULL:
            return publish_failed(s, m, error)
    if commits and not eob and not span_eq(own.commit, span_c(b"1")):
        return atomic_end(b, m, &ERR_ATOMIC_PUBLISH_INVALID_BATCH_COMMIT, NULL)
    if own.level.n and level_too_high(m.header):
        return atomic_end(b, m, &ERR_REQUIRED_API_LEVEL, b"unsupported")
    b.open.heard = s.env.mono
    b.open.last += 1
    if b.open.last != number or (number == 1 and eob):
        return atomic_end(b, m, &ERR_ATOMIC_PUBLISH_INCOMPLETE_BATCH, b"incomplete")
    if is_too_many(s, number, eob):
        batch_abandoned(s, batch_id(&b.open), b"large")
        atomic_close(b)
        return too_many_messages(s, m)
    rc = ST_OK if eob else atomic_stage(b, m, h, own.level.n or h.request_info or has_status(m.header))
    if rc == ST_FULL:
        batch_abandoned(s, batch_id(&b.open), b"large")
        atomic_close(b)
        return publish_failed_with(s, m, &ERR_ATOMIC_PUBLISH_TOO_LARGE_BATCH, span_c(b"no room for its bytes"))
    if rc != ST_OK:
        return atomic_end(b, m, &ERR_ATOMIC_PUBLISH_INCOMPLETE_BATCH, b"incomplete")
    if commits:
        return atomic_commit(b, m, eob)
    if m.reply.n and not s.cfg.flags & STREAM_NO_ACK:
        send_text(s, m.reply, NULL, 0)
    return 1


# ---- the commit ------------------------------------------------------------------------------------------------------

cdef int atomic_mark_last(AtomicBatch* b) noexcept nogil:
    # A batch that is ended by a message of its own: the one before is the last, and says so. 0 | -1 no memory
    cdef Staged head
    cdef Change c
    cdef Span reply
    cdef Bytes copy
    cdef size_t was = b.changes.n
    cdef int rc
    memset(&copy, 0, sizeof(Bytes))
    staged_at(&b.changes, b.newest, &head, &reply, &c)
    if (add_span(&copy, c.subject) < 0 or bytes_add(&copy, c.header.p, c.header.n - 2) < 0
            or add_text(&copy, b"Nats-Batch-Commit: 1\r\n\r\n") < 0 or add_span(&copy, c.data) < 0 or add_span(&copy, c.id) < 0):
        bytes_free(&copy)
        return -1
    c.subject = span(copy.data, head.n_subject)
    c.header = span(copy.data + head.n_subject, head.n_header + 22)
    c.data = span(c.header.p + c.header.n, head.n_data)
    c.id = span(c.data.p + c.data.n, head.n_id)
    b.changes.n = b.newest
    rc = staged_put(&b.changes, span(NULL, 0), &c, head.plain, span(NULL, 0))
    b.changes.n = b.changes.n if rc == 0 else was
    b.open.s.place.batch_room.bytes += b.changes.n - was
    bytes_free(&copy)
    return rc


cdef struct AtomicLook:
    # A batch at its commit; freed with atomic_look_free.
    BatchDiff diff
    BatchMade made
    bint makes                  # messages may be stored as others than they came, or
    bint renames                # under other subjects: then
    Bytes all                   # has what is stored
    uint64_t size               # what that takes


cdef void atomic_look_free(AtomicLook* look) noexcept nogil:
    diff_free(&look.diff)
    made_free(&look.made)
    bytes_free(&look.all)


cdef Judged atomic_make(Stream* s, AtomicLook* look, Msg* m, PubHeaders* h, const StoreState* state) noexcept nogil:
    # As it will be stored, and added to look.all next.
    cdef size_t place = <size_t>strmap_get(&look.diff.sums, m.subject) if s.cfg.flags & STREAM_ALLOW_MSG_COUNTER else 0
    cdef Staged head
    cdef Change c
    cdef Record before
    cdef Span none
    cdef uint64_t seq
    cdef Judged how
    if place:
        staged_at(&look.all, place - 1, &head, &none, &c)
        before.header = c.header
        before.data = c.data
        look.made.before = &before
    how = judge(s, &look.diff, m, h, state, &seq, &look.made if look.makes else NULL)
    look.made.before = NULL
    if (how == JUDGED_GOOD and s.cfg.flags & STREAM_ALLOW_MSG_COUNTER
            and strmap_put(&look.diff.sums, m.subject, <void*>(look.all.n + 1)) < 0):
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY)))
    return how


cdef Judged atomic_judge_one(AtomicBatch* b, AtomicLook* look, size_t at, Staged* head, Msg* m, PubHeaders* h,
                             const StoreState* state, Span came) noexcept nogil:
    # Checks the message that stands at a place of the batch, and fills in what it is to be. came: the subject before the stream's
    # transform; empty: there is none
    cdef Stream* s = b.open.s
    cdef Change c
    cdef Judged how
    if h.last_msg_id.n:
        return refused(publish_failed_with(s, m, &ERR_ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH,
                                           span_c(b"Nats-Expected-Last-Msg-Id")))
    how = atomic_make(s, look, m, h, state)
    if how != JUDGED_GOOD:
        return how
    batch_change(s, m, h, state.last_seq + look.diff.n, &c)
    if c.kind == CHANGE_MESSAGE:
        look.size += store_size_of(s.store, c.subject, c.header, c.data)
    if not (look.makes or look.renames):
        head.kind = c.kind
        head.rollup = c.rollup
        head.seq = c.seq
        head.ts = c.ts
        memcpy(b.changes.data + at, head, sizeof(Staged))
        return JUDGED_GOOD
    if look.all.n + sizeof(Staged) + <size_t>c.subject.n + c.header.n + c.data.n + c.id.n > STAGED_MAX:
        return refused(publish_failed_with(s, m, &ERR_ATOMIC_PUBLISH_TOO_LARGE_BATCH, span_c(b"no room for its bytes")))
    if staged_put(&look.all, span(NULL, 0), &c, head.plain, came) < 0:
        return refused(publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY)))
    return JUDGED_GOOD


cdef Judged atomic_judge_named(AtomicBatch* b, AtomicLook* look, size_t at, Staged* head, Msg* m, PubHeaders* h,
                               const StoreState* state) noexcept nogil:
    # Under the subject that the stream as it is now stores it under.
    cdef Span came = m.subject
    cdef Draft d
    cdef Judged how
    draft_open(&d)
    if stream_rename(b.open.s, &m.subject, &d) < 0:
        how = refused(publish_failed_as(b.open.s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_TOO_LARGE)))
    else:
        how = atomic_judge_one(b, look, at, head, m, h, state, came)
    draft_free(&d)
    return how


cdef Judged atomic_judge(AtomicBatch* b, const Msg* m, StoreState* state, uint64_t* size) noexcept nogil:
    # Checks all, and fills in what they are to be. size: bytes that they will take
    cdef Stream* s = b.open.s
    cdef AtomicLook look
    cdef PubHeaders h
    cdef Staged head
    cdef Change c
    cdef Span reply
    cdef Msg one
    cdef Judged how = JUDGED_GOOD
    cdef size_t at = 0, next
    memset(&look, 0, sizeof(AtomicLook))
    memset(&h, 0, sizeof(PubHeaders))
    memset(&one, 0, sizeof(Msg))
    look.diff.by_subject = b.by_subject or s.cfg.flags & STREAM_DISCARD_NEW_PER_SUBJECT != 0
    look.makes = batch_makes(s)
    look.renames = s.cfg.subject_transform != NULL
    one.reply = m.reply
    while at < b.changes.n and how == JUDGED_GOOD:
        next = staged_at(&b.changes, at, &head, &reply, &c)
        one.subject = c.subject
        one.header = c.header
        one.data = c.data
        if not head.plain:
            read_headers(&h, c.header)
        if look.renames:
            how = atomic_judge_named(b, &look, at, &head, &one, &h, state)
        else:
            how = atomic_judge_one(b, &look, at, &head, &one, &h, state, span(NULL, 0))
        memset(&h, 0, sizeof(PubHeaders))
        at = next
    size[0] = look.size
    state.last_seq += look.diff.n
    if (look.makes or look.renames) and how == JUDGED_GOOD:
        s.place.batch_room.bytes += look.all.n - b.changes.n
        bytes_free(&b.changes)
        b.changes = look.all
        memset(&look.all, 0, sizeof(Bytes))
    atomic_look_free(&look)
    if how == JUDGED_DUPLICATE:
        return refused(publish_failed(s, m, &ERR_ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE))
    return how


cdef int atomic_restage(AtomicBatch* b, Span reply, Span more) noexcept nogil:
    # A stream whose publishes are staged: the batch follows them. ST_OK or ST_*
    cdef Stream* s = b.open.s
    cdef Staged head
    cdef Change c
    cdef Span none
    cdef size_t at = 0
    cdef uint64_t number = 1
    cdef bint last
    cdef int rc = ST_OK
    if staged_size(s.staging) + b.changes.n > STAGED_MAX:
        return ST_TOO_LARGE
    while at < b.changes.n:
        at = staged_at(&b.changes, at, &head, &none, &c)
        last = at == b.changes.n
        if s.member != NULL:
            rc = atomic_propose(b, reply if last else none, &head, &c, number, last)
            number += 1
        elif overlay_add(s, reply if last else none, &c, more if last else none) < 0:
            rc = ST_NO_MEMORY
        if rc != ST_OK:                 # what is staged of it cannot be taken back alone
            staged_drop(s, store_text(rc))
            if s.member != NULL:        # what is staged is not what was proposed any more
                stream_fail(s, ENOMEM)
            return rc
    return ST_OK


cdef int atomic_propose(AtomicBatch* b, Span reply, const Staged* head, const Change* c, uint64_t number,
                        bint ends) noexcept nogil:
    # ST_OK or ST_*
    cdef Stream* s = b.open.s
    cdef StreamEntry e
    cdef int rc
    memset(&e, 0, sizeof(StreamEntry))
    e.change = c[0]
    e.reply = reply
    e.batch = batch_id(&b.open)
    e.batch_seq = number
    e.batch_ends = ends
    came_to(s, staged_tail(head, c))
    rc = message_propose(s, &e)
    came_to(s, span(NULL, 0))
    return rc


cdef int atomic_commit(AtomicBatch* b, const Msg* m, bint eob) noexcept nogil:
    cdef Stream* s = b.open.s
    cdef StoreState state
    cdef Bytes more
    cdef uint64_t size, count = b.open.last - eob
    cdef size_t end = 0
    cdef int rc
    memset(&more, 0, sizeof(Bytes))
    if (eob and atomic_mark_last(b) < 0) or add_batch_members(&more, batch_id(&b.open), count) < 0:
        bytes_free(&more)
        return atomic_end(b, m, &ERR_ATOMIC_PUBLISH_INCOMPLETE_BATCH, NULL)
    store_state(s.store, &state)
    if s.staging != NULL:
        overlay_state(s.staging, &state)
    if atomic_judge(b, m, &state, &size) != JUDGED_GOOD:
        pass
    elif over(s.place.account_usage, size if s.staging == NULL else staged_more(s.staging, size)):
        publish_failed(s, m, &ERR_ACCOUNT_RESOURCES_EXCEEDED)
    elif s.staging != NULL:
        rc = atomic_restage(b, m.reply, span(more.data, <uint32_t>more.n))
        if rc != ST_OK:
            publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(rc))
    else:
        rc = changes_store(s, &b.changes, count, &end)
        if rc != ST_OK:
            store_refused(s, m, rc)
        elif m.reply.n and not s.cfg.flags & STREAM_NO_ACK:
            pub_ack_more(s, m.reply, state.last_seq, 0, span(more.data, <uint32_t>more.n))
    atomic_close(b)
    bytes_free(&more)
    return 1
