# Direct gets: reads that are answered here, one message, a batch, or the last messages of many subjects.
# Long answers are given in turns, so that nobody waits for them.

cdef enum:
    DIRECT_PREFIX = 19                  # bytes of $JS.API.DIRECT.GET.
    DIRECT_SUBJECTS = 1024              # subjects that a multi_last request may match
    DIRECT_TURN = 256                   # messages a turn
    DIRECT_MAX_BYTES = 64 << 20         # of a batch that does not say
    DIRECT_COLD = 1024                  # requests that may wait for the disk; with more it is waited for here
    DIRECT_ADDED = 192                  # bytes that an answer's own headers take at most, names and values


cdef struct Look:
    # For the message that a request asks for, in pieces.
    Filter filter
    bint filtered
    uint64_t at                         # the next sequence
    LastLook last


cdef struct DirectJob:
    # A batch or multi answer under way.
    Task task
    Wait cold                           # for the next message's bytes
    ListNode node                       # its stream's
    Stream* s
    Filter filter
    bint filtered
    bint no_hdr
    Sweep* sweep                        # multi: looks for the last messages
    uint64_t* seqs                      # what to send; NULL for a batch
    uint64_t n_seqs
    uint64_t at                         # index into seqs, or the next sequence
    uint64_t left                       # messages still allowed
    uint64_t pending                    # matching messages not yet sent
    uint64_t last                       # sequence of the previous message of this answer
    uint64_t up_to                      # multi: the bound
    uint64_t counted                    # the last sequence when `pending` was counted
    bint waited                         # something of it waited for the disk
    int64_t bytes_left
    uint64_t sent
    bint counting                       # a batch: what is pending below `count_at` is counted
    uint64_t count_at
    bint single                         # a get of one message that takes longer: `one`, its texts in `header`
    DirectGet one
    Look look
    uint64_t start
    Bytes header                        # of the message under way; kept, so that a batch allocates once
    uint32_t n_reply
    uint8_t reply[1]


# ---- answers -----------------------------------------------------------------------------------------------

cdef void direct_status(Stream* s, Span reply, const char* status) noexcept nogil:
    cdef char text[160]
    cdef int n = snprintf(text, sizeof(text), b"NATS/1.0 %s\r\n\r\n", status)
    send_message(s, KIND_JETSTREAM, reply, span(text, <uint32_t>min(n, <int>sizeof(text) - 1)), span(NULL, 0))


cdef int add_header(Bytes* b, const char* name, Span value) noexcept nogil:
    if add_text(b, name) < 0 or add_span(b, value) < 0:
        return -1
    return bytes_add(b, b"\r\n", 2)


cdef int add_header_u64(Bytes* b, const char* name, uint64_t value) noexcept nogil:
    cdef uint8_t digits[U64_DIGITS_MAX]
    return add_header(b, name, span(digits, put_u64(digits, value)))


cdef int direct_headers(Stream* s, Bytes* b, const Record* r) noexcept nogil:
    # The stored headers and where the message lies, without the blank line at the end.
    cdef Span stored = r.header
    cdef uint8_t* p
    if stored.n > 2:
        stored.n -= 2                           # the blank line, whatever stands in its place
    else:
        stored = span(b"NATS/1.0\r\n", 10)
    # One look for room: the names below, two numbers' digits and a time's stay under DIRECT_ADDED.
    if bytes_reserve(b, <size_t>stored.n + s.cfg.name.n + r.subject.n + DIRECT_ADDED) < 0:
        return -1
    p = put_bytes(b.data + b.n, stored)
    p = put_bytes(p, span(b"Nats-Stream: ", 13))
    p = put_bytes(p, s.cfg.name)
    p = put_bytes(p, span(b"\r\nNats-Subject: ", 16))
    p = put_bytes(p, r.subject)
    p = put_bytes(p, span(b"\r\nNats-Sequence: ", 17))
    p += put_u64(p, r.seq)
    p = put_bytes(p, span(b"\r\nNats-Time-Stamp: ", 19))
    p += put_time(p, r.ts, &s.second)
    p = put_bytes(p, span(b"\r\n", 2))
    b.n = p - b.data
    return 0


cdef int direct_batch_headers(Bytes* b, uint64_t pending, uint64_t last) noexcept nogil:
    # What follows in a batch: how much is left, and which message came before.
    cdef uint8_t* p
    if bytes_reserve(b, DIRECT_ADDED) < 0:
        return -1
    p = put_bytes(b.data + b.n, span(b"Nats-Num-Pending: ", 18))
    p += put_u64(p, pending)
    p = put_bytes(p, span(b"\r\nNats-Last-Sequence: ", 22))
    p += put_u64(p, last)
    p = put_bytes(p, span(b"\r\n\r\n", 4))
    b.n = p - b.data
    return 0


cdef void direct_send(Stream* s, Span reply, Span header, Span data, uint64_t ticket) noexcept nogil:
    # Now, or with a ticket when that is durable.
    if ticket == 0:
        send_message(s, KIND_JETSTREAM, reply, header, data)
    elif answers_full(s) or answer_later(s, ticket, ANSWER_GET, reply, header, data, span(NULL, 0)) < 0:
        direct_status(s, reply, b"500 too many answers wait for the disk")


cdef void direct_failed(Stream* s, Span reply, const char* reason) noexcept nogil:
    cdef char text[200]
    snprintf(text, sizeof(text), b"500 %s", reason)
    direct_status(s, reply, text)


cdef void direct_none(Stream* s, Span reply, const char* status) noexcept nogil:
    # That something is not there is said when its removal is durable.
    cdef char text[80]
    cdef int n = snprintf(text, sizeof(text), b"NATS/1.0 %s\r\n\r\n", status)
    direct_send(s, reply, span(text, <uint32_t>min(n, <int>sizeof(text) - 1)), span(NULL, 0), stream_unsettled(s, 0))


cdef void direct_single(Stream* s, Span reply, const Record* r, bint no_hdr) noexcept nogil:
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if no_hdr or (direct_headers(s, &b, r) == 0 and bytes_add(&b, b"\r\n", 2) == 0):
        direct_send(s, reply, b_span(&b), r.data, stream_unsettled(s, r.seq))
    bytes_free(&b)


# ---- longer answers, in turns --------------------------------------------------------------------------------

cdef void job_free(DirectJob* j) noexcept nogil:
    list_remove(&j.node)
    wait_cancel(&j.cold)
    task_cancel(&j.task)
    sweep_free(j.sweep)
    if j.filtered:
        filter_free(&j.filter)
    if j.single:
        j.s.n_cold -= 1
        look_free(&j.look)
    bytes_free(&j.header)
    free(j.seqs)
    free(j)


cdef inline DirectJob* job_step(ListWalk* jobs) noexcept nogil:
    return <DirectJob*>list_owner(list_step(jobs), &(<DirectJob*>NULL).node)


cdef void direct_stop(Stream* s) noexcept nogil:
    cdef ListWalk jobs = list_walk(&s.jobs)
    cdef DirectJob* j = job_step(&jobs)
    while j != NULL:
        job_free(j)
        j = job_step(&jobs)


cdef uint64_t job_waits(const DirectJob* j, uint64_t seq) noexcept nogil:
    # As stream_unsettled, and behind what was sent of the job before.
    if j.waited and j.s.answers.b.n:
        return store_ticket(j.s.store)
    return stream_unsettled(j.s, seq)


cdef void job_end(DirectJob* j) noexcept nogil:
    # The end of the batch, or that there was nothing.
    cdef Stream* s = j.s
    cdef Span reply = span(j.reply, j.n_reply)
    cdef Bytes b
    if j.sent == 0 and j.left and j.seqs == NULL:
        direct_none(s, reply, b"404 Message Not Found")
        job_free(j)
        return
    memset(&b, 0, sizeof(Bytes))
    if (add_text(&b, b"NATS/1.0 204 EOB\r\n") == 0 and add_header_u64(&b, b"Nats-Num-Pending: ", j.pending) == 0
            and add_header_u64(&b, b"Nats-Last-Sequence: ", j.last) == 0
            and (j.seqs == NULL or add_header_u64(&b, b"Nats-UpTo-Sequence: ", j.up_to) == 0)
            and add_text(&b, b"\r\n") == 0):
        direct_send(s, reply, b_span(&b), span(NULL, 0), job_waits(j, j.counted))
    bytes_free(&b)
    job_free(j)


cdef int job_next(DirectJob* j, Record* r) noexcept nogil:
    # ST_OK, ST_WAIT, 1: later, or another error at the end.
    cdef uint64_t seq
    cdef int rc
    if j.seqs == NULL:
        rc = store_next_some(j.s.store, &j.filter if j.filtered else NULL, &j.at, &seq)
        if rc == ST_OK:
            rc = store_load_warm(j.s.store, seq, r, &j.cold) if seq else ST_NOT_FOUND
        if rc == ST_OK or rc == ST_DAMAGED:
            j.at = seq + 1
        return 1 if rc == ST_DAMAGED else rc
    while j.at < j.n_seqs:
        rc = store_load_warm(j.s.store, j.seqs[j.at], r, &j.cold)
        if rc == ST_WAIT:
            return rc
        j.at += 1
        if rc == ST_OK:
            return rc
        j.pending -= 1 if j.pending else 0
    return ST_NOT_FOUND


cdef bint job_send(DirectJob* j, const Record* r) noexcept nogil:
    cdef Bytes* b = &j.header
    cdef uint64_t ticket = job_waits(j, max(r.seq, j.counted))
    cdef bint ok
    b.n = 0
    if j.pending and not (j.no_hdr and j.seqs == NULL):    # without headers nothing is counted
        j.pending -= 1
    ok = j.no_hdr or (direct_headers(j.s, b, r) == 0 and direct_batch_headers(b, j.pending, j.last) == 0)
    j.last = r.seq
    j.sent += 1
    j.left -= 1
    j.bytes_left -= <int64_t>r.subject.n + r.header.n + r.data.n
    j.waited = j.waited or ticket
    if ok:
        direct_send(j.s, span(j.reply, j.n_reply), b_span(b), r.data, ticket)
    return ok


cdef void job_run(Task* t) noexcept nogil:
    cdef DirectJob* j = <DirectJob*>t.owner
    cdef Record r
    cdef int i, rc
    for i in range(DIRECT_TURN):
        if answers_full(j.s):
            return                          # direct_resume goes on
        rc = job_next(j, &r) if j.left and j.bytes_left > 0 else ST_NOT_FOUND
        if rc == ST_WAIT:
            return
        if rc == 1:
            break
        if rc != ST_OK or not job_send(j, &r):
            job_end(j)
            return
    task_post(&j.s.env.tasks, t)


cdef void direct_resume(Stream* s) noexcept nogil:
    # Answers were sent: there is room for those of jobs.
    cdef ListWalk jobs = list_walk(&s.jobs)
    cdef DirectJob* j = job_step(&jobs)
    while j != NULL:
        task_post(&s.env.tasks, &j.task)
        j = job_step(&jobs)


cdef void direct_cut(Stream* s, uint64_t seq) noexcept nogil:
    # What is behind seq is gone, and other messages get these sequences.
    cdef ListWalk jobs = list_walk(&s.jobs)
    cdef DirectJob* j = job_step(&jobs)
    while j != NULL:
        while j.n_seqs > j.at and j.seqs[j.n_seqs - 1] > seq:
            j.n_seqs -= 1
            j.pending -= 1 if j.pending else 0
        if j.counting:
            j.pending = 0
            j.count_at = j.at
        j = job_step(&jobs)


cdef bint one_pending(DirectJob* j) noexcept nogil:
    # Whether what a batch has counted is still there, after everything went at once but one message, or that too.
    cdef StoreState state
    store_state(j.s.store, &state)
    return (state.msgs and j.at <= state.first_seq < j.count_at
            and (not j.filtered or filter_matches(&j.filter, store_subject(j.s.store, state.first_seq))))


cdef void direct_removed(Stream* s, uint64_t seq, Span subject) noexcept nogil:
    # A message is gone, with seq 0 all but the first one: what batches have counted of it is not pending any more.
    cdef ListWalk jobs = list_walk(&s.jobs)
    cdef DirectJob* j = job_step(&jobs)
    while j != NULL:
        if j.counting and seq == 0:
            j.pending = one_pending(j)
        elif j.counting and j.at <= seq < j.count_at and (not j.filtered or filter_matches(&j.filter, subject)):
            j.pending -= 1
        j = job_step(&jobs)


cdef DirectJob* job_new(Stream* s, Span reply, const DirectGet* g) noexcept nogil:
    cdef DirectJob* j = <DirectJob*>calloc(1, sizeof(DirectJob) + reply.n)
    cdef StoreState state
    if j == NULL:
        return NULL
    store_state(s.store, &state)
    j.counted = state.last_seq
    j.task.fn = job_run
    j.task.owner = j
    j.cold.task = &j.task
    j.s = s
    # As in nats-server: a batch of less than none is its end alone, and less than no bytes end one after a message.
    j.left = UINT64_MAX if g.n_multi and g.batch <= 0 else <uint64_t>max(g.batch, <int64_t>0)
    j.bytes_left = max(g.max_bytes, <int64_t>1) if g.max_bytes else DIRECT_MAX_BYTES
    j.n_reply = reply.n
    memcpy(j.reply, reply.p, reply.n)
    list_push_front(&s.jobs, &j.node)
    return j


# ---- kinds of requests -----------------------------------------------------------------------------------------

cdef void direct_batch(Stream* s, Span reply, const DirectGet* g, uint64_t start) noexcept nogil:
    cdef DirectJob* j = job_new(s, reply, g)
    if j == NULL:
        direct_status(s, reply, b"500 out of memory")
        return
    if g.next_by.n:
        if filter_init(&j.filter, &g.next_by, 1) != ST_OK:
            job_free(j)
            direct_status(s, reply, b"500 out of memory")
            return
        j.filtered = True
    j.no_hdr = g.no_hdr
    j.at = start
    if store_pending_soon(s.store, &j.filter if j.filtered else NULL, start, &j.pending):
        job_run(&j.task)
        return
    j.counting = True
    j.count_at = start
    j.pending = 0
    j.task.fn = batch_count
    task_post(&s.env.tasks, &j.task)


cdef void batch_count(Task* t) noexcept nogil:
    # Counts what is pending, to the end of the stream as it is then.
    cdef DirectJob* j = <DirectJob*>t.owner
    cdef StoreState state
    store_state(j.s.store, &state)
    if store_count_some(j.s.store, &j.filter if j.filtered else NULL, &j.count_at, state.last_seq + 1, &j.pending) == 1:
        task_post(&j.s.env.tasks, t)
        return
    j.counting = False
    j.counted = state.last_seq
    j.task.fn = job_run
    job_run(t)


cdef void direct_multi(Stream* s, Span reply, const DirectGet* g, uint64_t start) noexcept nogil:
    cdef DirectJob* j
    cdef StoreState state
    cdef uint64_t up_to = g.up_to_seq
    store_state(s.store, &state)
    if g.has_up_to_time:
        up_to = store_seq_at(s.store, g.up_to_time)
        up_to -= 1 if up_to else 0
    elif up_to == 0 or up_to > state.last_seq:
        up_to = state.last_seq
    j = job_new(s, reply, g)
    if j != NULL and filter_init(&j.filter, g.multi, g.n_multi) == ST_OK:
        j.filtered = True
        filter_loosen(&j.filter)
        j.sweep = sweep_lasts(s.store, &j.filter, up_to, DIRECT_SUBJECTS)
    if j == NULL or j.sweep == NULL:
        if j != NULL:
            job_free(j)
        direct_status(s, reply, b"500 out of memory")
        return
    j.start = start
    j.up_to = up_to
    j.task.fn = multi_run
    multi_run(&j.task)


cdef void multi_run(Task* t) noexcept nogil:
    # Looks for the last messages, then sends them.
    cdef DirectJob* j = <DirectJob*>t.owner
    cdef Span reply = span(j.reply, j.n_reply)
    cdef int rc = sweep_step(j.sweep)
    cdef Bytes found
    if rc == 1:
        task_post(&j.s.env.tasks, t)
        return
    memset(&found, 0, sizeof(Bytes))
    if rc == ST_OK:
        j.n_seqs = sweep_take(j.sweep, &found)
        j.seqs = <uint64_t*>found.data
    if rc != ST_OK or j.n_seqs == 0 or j.n_seqs > DIRECT_SUBJECTS:
        if rc == ST_OK and j.n_seqs == 0:
            direct_none(j.s, reply, b"404 No Results")
        else:
            direct_status(j.s, reply, b"500 reading failed" if rc != ST_OK else b"413 Too Many Results")
        job_free(j)
        return
    while j.at < j.n_seqs and j.seqs[j.at] < j.start:
        j.at += 1
    j.pending = j.n_seqs - j.at
    j.task.fn = job_run
    job_run(t)


cdef void look_free(Look* k) noexcept nogil:
    if k.filtered:
        filter_free(&k.filter)
    k.filtered = False


cdef int one_look(Stream* s, const DirectGet* g, Look* k, Record* r, Wait* w) noexcept nogil:
    # A piece of the way to the message: 1: there is more to do; ST_OK, ST_WAIT or another error.
    cdef uint64_t seq = g.seq
    cdef int rc = ST_OK
    if g.last_by.n and not k.filtered:
        seq = store_last_of(s.store, g.last_by)
    elif g.last_by.n:
        rc = store_last_some(s.store, &k.filter, &k.last, &seq)
    elif g.next_by.n or g.has_start:
        rc = store_next_some(s.store, &k.filter if k.filtered else NULL, &k.at, &seq)
    if rc == ST_OK:
        rc = store_load_warm(s.store, seq, r, w) if seq else ST_NOT_FOUND
        if rc == ST_DAMAGED and (g.next_by.n or g.has_start):
            k.at = seq + 1
            return 1
    return rc


cdef void one_later(Stream* s, Span reply, const DirectGet* g, Look* k) noexcept nogil:
    # What is left of the way is gone in turns, and when the message is not in memory it is waited for.
    cdef DirectJob* j = job_new(s, reply, g)
    cdef Span text = g.last_by if g.last_by.n else g.next_by
    if j == NULL or bytes_add(&j.header, text.p, text.n) < 0:
        if j != NULL:
            job_free(j)
        direct_status(s, reply, b"500 out of memory")
        return
    j.one = g[0]
    j.one.last_by.p = j.header.data
    j.one.next_by.p = j.header.data
    j.one.multi = NULL
    j.one.room = NULL
    j.look = k[0]
    k.filtered = False
    j.single = True
    s.n_cold += 1
    j.task.fn = one_run
    one_run(&j.task)


cdef void one_run(Task* t) noexcept nogil:
    cdef DirectJob* j = <DirectJob*>t.owner
    cdef Record r
    cdef int rc = one_look(j.s, &j.one, &j.look, &r, &j.cold)
    if rc == 1:
        task_post(&j.s.env.tasks, t)
    elif rc != ST_WAIT:
        one_answer(j.s, span(j.reply, j.n_reply), &j.one, rc, &r)
        job_free(j)


cdef void one_answer(Stream* s, Span reply, const DirectGet* g, int rc, const Record* r) noexcept nogil:
    if rc == ST_OK:
        direct_single(s, reply, r, g.no_hdr)
    elif rc == ST_DAMAGED:
        direct_status(s, reply, b"500 Message Damaged")
    else:
        direct_none(s, reply, b"404 Message Not Found")


cdef void direct_one(Stream* s, Span reply, const DirectGet* g, uint64_t start) noexcept nogil:
    cdef Span text = g.last_by if g.last_by.n else g.next_by
    cdef Record r
    cdef Look k
    cdef Wait w
    cdef int rc
    memset(&w, 0, sizeof(Wait))
    memset(&k, 0, sizeof(Look))
    k.at = start
    k.filtered = g.next_by.n or (g.last_by.n and not subject_is_literal(text))
    if k.filtered and filter_init(&k.filter, &text, 1) != ST_OK:
        direct_status(s, reply, b"500 out of memory")
        return
    rc = one_look(s, g, &k, &r, &w)
    wait_cancel(&w)
    while rc == 1 and s.n_cold >= DIRECT_COLD:
        rc = one_look(s, g, &k, &r, NULL)
    if rc == ST_WAIT and s.n_cold >= DIRECT_COLD:
        rc = store_load(s.store, r.seq, &r)
    if rc == 1 or rc == ST_WAIT:
        one_later(s, reply, g, &k)
    else:
        one_answer(s, reply, g, rc, &r)
    look_free(&k)


cdef bint direct_conflict(const DirectGet* g) noexcept nogil:
    cdef bint last = g.last_by.n > 0, follows = g.next_by.n > 0, multi = g.n_multi > 0
    return ((g.seq and last) or (g.seq and g.has_start) or (g.has_start and last) or (last and follows)
            or (last and g.batch > 0) or (last and multi) or (follows and multi)
            or (g.up_to_seq and g.has_up_to_time))


cdef void direct_answer(Stream* s, Span reply, const DirectGet* g) noexcept nogil:
    cdef uint64_t start = g.seq
    if g.seq == 0 and not g.has_start and g.last_by.n == 0 and g.next_by.n == 0 and g.n_multi == 0:
        direct_status(s, reply, b"408 Empty Request")
        return
    if direct_conflict(g):
        direct_status(s, reply, b"408 Bad Request")
        return
    if g.has_start:
        start = store_seq_at(s.store, g.start_time)
    if g.n_multi:
        direct_multi(s, reply, g, start)
    elif g.batch:
        direct_batch(s, reply, g, start)
    else:
        direct_one(s, reply, g, start)


# ---- requests --------------------------------------------------------------------------------------------------------


cdef void direct_request(Stream* s, const Msg* m, Span subject) noexcept nogil:
    # subject: of the form with a subject at its end; empty for the other.
    cdef DirectGet g
    cdef char reason[REASON_ROOM]
    if s.failed:
        stream_reason(s, reason, sizeof(reason))
        direct_failed(s, m.reply, reason)
        return
    if m.header.n and level_too_high(m.header):
        direct_status(s, m.reply, b"412 Required Api Level")
        return
    if subject.n == 0 and m.data.n == 0:
        direct_status(s, m.reply, b"408 Empty Request")
        return
    memset(&g, 0, sizeof(DirectGet))
    g.room_left = m.data.n + 8
    if m.data.n and not read_direct(m.data, &g):
        direct_status(s, m.reply, b"500 out of memory" if g.no_memory else b"408 Malformed Request")
    elif subject.n == 0:
        direct_answer(s, m.reply, &g)
    elif (g.seq or g.has_start or g.last_by.n or g.next_by.n or g.n_multi or g.batch or g.up_to_seq
            or g.has_up_to_time):
        direct_status(s, m.reply, b"408 Bad Request")
    else:
        g.last_by = subject
        direct_answer(s, m.reply, &g)
    free(g.multi)
    free(g.room)


cdef int direct_inbound(void* target, const Msg* m) noexcept nogil:
    cdef Stream* s = <Stream*>target
    if m.reply.n:
        direct_request(s, m, span(NULL, 0))
    return 1


cdef int direct_subject_inbound(void* target, const Msg* m) noexcept nogil:
    # $JS.API.DIRECT.GET.<name>.<subject>
    cdef Stream* s = <Stream*>target
    cdef uint32_t at = DIRECT_PREFIX
    while at < m.dest.n and m.dest.p[at] != c'.':
        at += 1
    if m.reply.n and at + 1 < m.dest.n:
        direct_request(s, m, span(m.dest.p + at + 1, m.dest.n - at - 1))
    return 1
