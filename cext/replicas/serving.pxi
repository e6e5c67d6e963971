# A leader sends messages from its store to members that lack them: to several at a time, to each as fast as it acks.

cdef enum:
    SEND_AT_ONCE = 128          # messages to a member in a turn
    SEND_BYTES = 8 << 20        # unacked bytes to a member
    SEND_MESSAGES = 262144      # unacked messages to a member
    SEND_PASSES = 10            # times that the lead is handed over for a damaged message, before nobody is taken to have it
    SEND_MEMBERS = 32           # members that this server sends to at a time; others wait

cdef extern from *:
    """
    static const int64_t SEND_LOOK = 500000000;
    static const int64_t SEND_SILENT = 30000000000;
    """
    const int64_t SEND_LOOK     # ns between two checks for room
    const int64_t SEND_SILENT   # ns without an ack before a member is given up

cdef struct Serving:
    ReplicatedStream* r
    void* sub                   # for members' requests
    List all                    # of Sending
    Bytes draft                 # a message being written

cdef struct Sending:
    # Messages for one member.
    Serving* of
    ListNode node               # in Serving.all
    char peer[8]
    uint64_t next               # the next sequence to send
    uint64_t last
    uint64_t min_applied        # index that this server must have applied first
    bint ranges                 # whether the member understands runs of deleted sequences
    bint holes                  # whether it was sent deleted sequences
    bint begun
    bint ended                  # the member reports an error
    uint64_t bytes              # unacked
    uint64_t messages
    int64_t heard               # mono
    Wait wait                   # for a message to be read from disk
    Task task
    Timer timer
    void* sub                   # for acks
    uint32_t n_acks
    char acks[48]               # their subject, up to its last token, which is the acked size
    uint32_t n_to
    char to[INBOX_MAX]


cdef inline Sending* sending_at(ListNode* n) noexcept nogil:
    return <Sending*>list_owner(n, &(<Sending*>NULL).node)


cdef void sending_end(Sending* x) noexcept nogil:
    cdef ReplicatedStream* r = x.of.r
    group_deaf(r.g, &x.sub)
    wait_cancel(&x.wait)
    task_cancel(&x.task)
    timer_cancel(&r.env.timers, &x.timer)
    list_drop(&x.node)
    r.g.of.serving_bytes -= x.bytes
    r.g.of.serving -= x.begun
    free(x)


# ---- sending -----------------------------------------------------------------------------------------------------------

cdef int send_entry(Sending* x, StreamEntry* e, bint acked) noexcept nogil:
    # ST_*
    cdef Bytes* draft = &x.of.draft
    cdef Span reply = span(NULL, 0)
    cdef int rc
    draft.n = 0
    rc = change_put(e, draft)
    if rc != ST_OK:
        return rc
    if acked:
        reply = span(x.acks, x.n_acks + put_u64(<uint8_t*>x.acks + x.n_acks, draft.n))
        x.bytes += draft.n
        x.messages += 1
        x.of.r.g.of.serving_bytes += draft.n
    group_say(x.of.r.g, span(x.to, x.n_to), reply, span(draft.data, <uint32_t>draft.n))
    return ST_OK


cdef int send_hole(Sending* x, uint64_t end) noexcept nogil:
    # Sends that sequences from x.next to end have no message; only x.next, if the member does not understand runs.
    cdef StreamEntry e
    cdef int rc
    memset(&e, 0, sizeof(StreamEntry))
    e.change.kind = CHANGE_SKIP
    x.holes = True
    if x.ranges and end > x.next:
        e.change.seq = x.next
        e.change.most = end - x.next + 1
        x.next = end + 1
        return send_entry(x, &e, False)
    e.lseq = x.next
    rc = send_entry(x, &e, True)
    x.next += 1
    return rc


cdef bint passes_on(ReplicatedStream* r, uint64_t seq) noexcept nogil:
    # Whether another member is to lead and send this message, which is damaged here.
    if r.passed != seq:
        r.passed = seq
        r.passes = 0
    r.passes += 1
    return r.passes <= SEND_PASSES


cdef int send_next(Sending* x) noexcept nogil:
    # ST_OK | ST_WAIT: the message is being read from disk | ST_NOT_FOUND: another member has to send it | another ST_*. A message
    # that no member can read is sent as a deleted sequence.
    cdef StreamEntry e
    cdef Record record
    cdef int rc = store_next_warm(x.of.r.s.store, NULL, x.next, &record, &x.wait)
    if rc == ST_NOT_FOUND or (rc == ST_OK or rc == ST_DAMAGED) and record.seq > x.last:
        return send_hole(x, x.last)
    if (rc == ST_OK or rc == ST_DAMAGED) and record.seq > x.next:
        return send_hole(x, record.seq - 1)
    if rc == ST_DAMAGED and passes_on(x.of.r, record.seq):
        return ST_NOT_FOUND
    if rc == ST_DAMAGED:
        return send_hole(x, record.seq)
    if rc != ST_OK:
        return rc
    memset(&e, 0, sizeof(StreamEntry))
    e.change.kind = CHANGE_MESSAGE
    e.lseq = record.seq
    e.change.ts = record.ts
    e.change.subject = record.subject
    e.change.header = record.header
    e.change.data = record.data
    x.next = record.seq + 1
    return send_entry(x, &e, True)


# ---- a member's turn ---------------------------------------------------------------------------------------------------

cdef bint has_limits(const Stream* s) noexcept nogil:
    return s.cfg.max_msgs > 0 or s.cfg.max_bytes > 0 or s.cfg.max_msgs_per_subject > 0


cdef void sending_done(Sending* x) noexcept nogil:
    # All is sent. If messages of the member's snapshot were removed since, the leader proposes its own state.
    cdef ReplicatedStream* r = x.of.r
    group_say(r.g, span(x.to, x.n_to), span(NULL, 0), span(NULL, 0))
    if x.holes and r.given > x.min_applied and has_limits(r.s):
        r.agrees = True
        stream_due(r)
    sending_end(x)


cdef void leader_lacks(ReplicatedStream* r) noexcept nogil:
    # Another member may have the requested messages.
    raft_hand_over(r.g.raft, 0)
    group_due(r.g)


cdef int sending_begins(Sending* x) noexcept nogil:
    # ST_OK | ST_WAIT | ST_NOT_FOUND: this server lacks the messages
    cdef ReplicatedStream* r = x.of.r
    cdef RaftState now
    raft_state(r.g.raft, &now)
    if x.min_applied > r.given and x.min_applied <= now.last:
        return ST_WAIT
    if x.min_applied > r.given or last_of(r) < x.last:
        return ST_NOT_FOUND
    if r.g.of.serving >= SEND_MEMBERS:
        return ST_WAIT
    x.begun = True
    r.g.of.serving += 1
    return ST_OK


cdef bint is_room(const Sending* x) noexcept nogil:
    return (x.bytes < SEND_BYTES and x.messages < SEND_MESSAGES
            and x.of.r.g.of.serving_bytes < x.of.r.g.of.serving_most)


cdef void sending_task(Task* t) noexcept nogil:
    cdef Sending* x = <Sending*>t.owner
    cdef ReplicatedStream* r = x.of.r
    cdef uint32_t left = SEND_AT_ONCE
    cdef int rc = ST_OK
    if x.ended or r.env.mono - x.heard >= SEND_SILENT:
        sending_end(x)
        return
    if not x.begun:
        rc = sending_begins(x)
    while rc == ST_OK and left and x.next <= x.last and is_room(x):
        left -= 1
        rc = send_next(x)
    if rc == ST_NOT_FOUND:
        leader_lacks(r)
    if rc == ST_OK and x.next > x.last:
        sending_done(x)
    elif rc != ST_OK and rc != ST_WAIT:
        sending_end(x)
    elif left == 0:
        task_post(&r.env.tasks, &x.task)


cdef void sending_tick(Timer* t, int64_t now) noexcept nogil:
    # Without memory for the timer, the member is given up.
    cdef Sending* x = <Sending*>t.owner
    x.ended = x.ended or timer_set(&x.of.r.env.timers, &x.timer, now + SEND_LOOK) < 0
    task_post(&x.of.r.env.tasks, &x.task)


cdef int ack_in(void* target, const Msg* m) noexcept nogil:
    # An ack is empty and its subject ends in the acked size; a text is an error.
    cdef Sending* x = <Sending*>target
    cdef uint64_t size
    if m.subject.n <= x.n_acks or not get_u64(span(m.subject.p + x.n_acks, m.subject.n - x.n_acks), &size):
        return 1
    size = min(size, x.bytes)
    x.bytes -= size
    x.messages -= x.messages > 0
    x.of.r.g.of.serving_bytes -= size
    x.heard = x.of.r.env.mono
    x.ended = x.ended or m.data.n > 0
    task_post(&x.of.r.env.tasks, &x.task)
    return 1


# ---- requests ----------------------------------------------------------------------------------------------------------

cdef bint sync_request_get(Span text, Sending* x) noexcept nogil:
    cdef JsonReader r
    cdef JsonItem key, val
    cdef int more
    cdef bint good = True
    json_open(&r, text)
    if not json_enter_object(&r):
        return False
    more = json_next_member(&r, &key, &val)
    while more > 0 and good:
        if json_key_is(&key, b"peer"):
            good = json_text(&val, <uint8_t*>x.peer, sizeof(x.peer)) >= 0
        elif json_key_is(&key, b"first_seq"):
            good = json_uint(&val, &x.next)
        elif json_key_is(&key, b"last_seq"):
            good = json_uint(&val, &x.last)
        elif json_key_is(&key, b"min_applied"):
            good = json_uint(&val, &x.min_applied)
        elif json_key_is(&key, b"delete_ranges"):
            good = json_bool(&val, &x.ranges)
        more = json_next_member(&r, &key, &val)
    return good and more == 0 and x.next and x.last < UINT64_MAX


cdef void sending_replaces(const Sending* x) noexcept nogil:
    # A member's new request replaces its earlier one.
    cdef ListWalk all = list_walk(&x.of.all)
    cdef ListNode* n = list_step(&all)
    while n != NULL:
        if sending_at(n) != x and memcmp(sending_at(n).peer, x.peer, sizeof(x.peer)) == 0:
            sending_end(sending_at(n))
        n = list_step(&all)


cdef bint sending_opens(Sending* x, Span to) noexcept nogil:
    # False: no memory.
    cdef ReplicatedStream* r = x.of.r
    memcpy(x.to, to.p, to.n)
    x.n_to = to.n
    x.task.fn = sending_task
    x.task.owner = x
    x.timer.fn = sending_tick
    x.timer.owner = x
    x.wait.task = &x.task
    x.heard = r.env.mono
    x.n_acks = inbox_new(r.env, b"$JSC.ACK.", x.acks)
    memcpy(x.acks + x.n_acks, b".*", 2)
    x.sub = group_hear(r.g, span(x.acks, x.n_acks + 2), ack_in, x)
    x.n_acks += 1
    return x.sub != NULL and timer_set(&r.env.timers, &x.timer, r.env.mono + SEND_LOOK) == 0


cdef int sync_in(void* target, const Msg* m) noexcept nogil:
    # A member without an answer asks again.
    cdef Serving* of = <Serving*>target
    cdef Sending* x
    if m.reply.n == 0 or m.reply.n > INBOX_MAX:
        return 1
    x = <Sending*>calloc(1, sizeof(Sending))
    if x == NULL:
        return 1
    x.of = of
    list_push_back(&of.all, &x.node)
    if not sync_request_get(m.data, x) or not sending_opens(x, m.reply):
        sending_end(x)
        return 1
    sending_replaces(x)
    task_post(&of.r.env.tasks, &x.task)
    return 1


# ---- while leading -----------------------------------------------------------------------------------------------------

cdef int serving_begin(ReplicatedStream* r) noexcept nogil:
    r.serving = <Serving*>calloc(1, sizeof(Serving))
    if r.serving == NULL:
        return -1
    r.serving.r = r
    r.serving.sub = group_hear(r.g, span(r.sync, r.n_sync), sync_in, r.serving)
    return 0 if r.serving.sub != NULL else -1


cdef void serving_end(ReplicatedStream* r) noexcept nogil:
    cdef Serving* of = r.serving
    if of == NULL:
        return
    r.serving = NULL
    group_deaf(r.g, &of.sub)
    while not list_empty(&of.all):
        sending_end(sending_at(list_first(&of.all)))
    bytes_free(&of.draft)
    free(of)


cdef void serving_applied(ReplicatedStream* r) noexcept nogil:
    cdef ListWalk all
    cdef ListNode* n
    if r.serving == NULL:
        return
    all = list_walk(&r.serving.all)
    n = list_step(&all)
    while n != NULL:
        if not sending_at(n).begun:
            task_post(&r.env.tasks, &sending_at(n).task)
        n = list_step(&all)
