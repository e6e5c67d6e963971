# A consumer that its Raft group drives: what is committed is applied, its proposals are the group's, and it leads where its group
# does. Everything is called with the lock held.

cdef enum:
    CONSUMER_RECORDS = 256              # of the log, that are applied in a turn
    CONSUMER_KEPT_ENTRIES = 1024        # entries after which its state is kept as a snapshot
    CONSUMER_KEPT_BYTES = 64 << 10      # likewise
    CONSUMER_KEPT_LEAST = 10            # s between two snapshots
    KEEP_SECOND = 1000000000

cdef uint64_t* PROPOSAL_KEY = [0x6a736572766572, 0x726570, 0x636f6e73756d6572, 2]

cdef struct ConsumerMember:
    Env* env
    Group* group
    Consumer* c                 # NULL: it is gone, as its stream was closed
    ReplicaMode mode
    ReplicaStanding standing
    uint64_t term               # in which it leads
    uint64_t applied            # index and term of the last record
    uint64_t applied_term
    uint64_t kept               # index of the last snapshot
    uint64_t entries            # since then
    uint64_t bytes
    int64_t kept_at             # mono
    int64_t kept_pause          # ns after which what changed is kept, however little
    bint keep_soon              # a snapshot is due: it stands on what no log has, or one was asked for
    Bytes proposed              # hashes of its proposals that are not applied, from `proposed_at` on
    size_t proposed_at
    uint64_t told_leader        # what the control plane heard last
    bint told_leads
    ConsumerInfo* led           # borrowed: how it stood when it began to lead
    Task task
    Timer timer
    char why[256]               # it failed


# ---- what the control plane hears -----------------------------------------------------------------------------------

cdef void consumer_tell(ConsumerMember* m, ReplicaNews what, uint64_t seq, Span text) noexcept nogil:
    cdef Event e
    memset(&e, 0, sizeof(Event))
    e.num[2] = <int64_t>seq
    e.text[0] = text
    replica_tell(m.group, &e, what)


cdef void consumer_role_tell(ConsumerMember* m, uint64_t leader) noexcept nogil:
    cdef bint leads = m.mode == REPLICA_LEADS
    if leads != m.told_leads or leader != m.told_leader:
        m.told_leads = leads
        m.told_leader = leader
        consumer_tell(m, REPLICA_ROLE, 0, span(NULL, 0))


# ---- proposals -------------------------------------------------------------------------------------------------------

cdef int consumer_propose(void* ctx, Span entry) noexcept nogil:
    # Of Consumer.group. What cannot be proposed ends the lead, when this turn is over; but for what no quorum answers yet.
    cdef ConsumerMember* m = <ConsumerMember*>ctx
    cdef uint64_t hash = hh64(PROPOSAL_KEY, entry.p, entry.n)
    cdef int rc = RAFT_NO_MEMORY
    if bytes_add(&m.proposed, &hash, sizeof(hash)) == 0:
        rc = group_propose(m.group, ENTRY_NORMAL, entry)
    if rc == RAFT_BUSY:
        m.proposed.n -= sizeof(hash)
        return PROPOSE_LATER
    if rc != RAFT_OK:
        task_post(&m.env.tasks, &m.task)
    return rc


cdef bint is_proposed(ConsumerMember* m, Span entry) noexcept nogil:
    # Whether an entry that is applied is the next one of its own.
    cdef uint64_t hash
    if m.proposed_at == m.proposed.n:
        return False
    memcpy(&hash, m.proposed.data + m.proposed_at, sizeof(hash))
    m.proposed_at += sizeof(hash)
    if m.proposed_at == m.proposed.n:
        m.proposed_at = m.proposed.n = 0
    elif m.proposed_at > 4096 and 2 * m.proposed_at > m.proposed.n:
        m.proposed.n -= m.proposed_at
        memmove(m.proposed.data, m.proposed.data + m.proposed_at, m.proposed.n)
        m.proposed_at = 0
    return hash == hh64(PROPOSAL_KEY, entry.p, entry.n)


# ---- its role --------------------------------------------------------------------------------------------------------

cdef void consumer_step_down(ConsumerMember* m) noexcept nogil:
    if m.mode == REPLICA_LEADS:
        m.mode = REPLICA_FOLLOWS
        consumer_follow(m.c)
    m.proposed.n = m.proposed_at = 0


cdef void consumer_stop(ConsumerMember* m) noexcept nogil:
    # Nothing is applied from now on.
    if m.c != NULL:
        consumer_step_down(m)
    m.mode = REPLICA_STOPPED
    task_cancel(&m.task)
    timer_cancel(&m.env.timers, &m.timer)


cdef void consumer_halts(ConsumerMember* m, ReplicaNews what, const char* why) noexcept nogil:
    # This member cannot go on: others do.
    if m.mode == REPLICA_STOPPED:
        return
    snprintf(m.why, sizeof(m.why), b"%s", why)
    consumer_stop(m)
    raft_failed(m.group.raft)
    group_due(m.group)
    consumer_tell(m, what, 0, span_c(m.why))


cdef void consumer_gone(void* ctx) noexcept nogil:
    # Of Consumer.group.
    cdef ConsumerMember* m = <ConsumerMember*>ctx
    m.c = NULL
    consumer_halts(m, REPLICA_FAILED, b"the consumer ended")


cdef void consumer_stopped(ConsumerMember* m) noexcept nogil:
    # Its group was: by its disk, or as it is no member any more.
    cdef ReplicaNews what
    cdef const char* why = stopped_why(m.group, &what)
    if why != NULL:
        consumer_halts(m, what, why)
    else:
        consumer_step_down(m)
        consumer_role_tell(m, 0)


cdef bint consumer_state_propose(ConsumerMember* m) noexcept nogil:
    # What the consumer had before its group goes into the log: the others begin with it. Before the first of its own entries.
    cdef Bytes state
    cdef int rc
    memset(&state, 0, sizeof(Bytes))
    rc = consumer_encode_state(m.c, &state)
    if rc == 0:
        rc = raft_propose_state(m.group.raft, span(state.data, <uint32_t>state.n))
    group_due(m.group)
    bytes_free(&state)
    return rc == 0


cdef void consumer_based(ConsumerMember* m) noexcept nogil:
    cdef bint was = m.standing == STANDS_BASE
    m.standing = standing_based(m.standing)
    if was:
        replica_joined(m.group)


cdef void consumer_role(ConsumerMember* m) noexcept nogil:
    # It leads when all that the log has is applied: what comes then are its own proposals.
    cdef RaftState s
    raft_state(m.group.raft, &s)
    if m.mode == REPLICA_LEADS and (s.role != RAFT_LEADER or s.term != m.term or m.c.group.refused):
        consumer_step_down(m)
        if s.role == RAFT_LEADER and s.term == m.term:
            raft_hand_over(m.group.raft, 0)
            group_due(m.group)
    elif m.mode == REPLICA_FOLLOWS and s.role == RAFT_LEADER and m.applied == s.last:
        m.term = s.term
        m.mode = REPLICA_LEADS
        if (m.standing == STANDS_BASE and not consumer_state_propose(m)
                or consumer_lead_group(m.c, consumer_propose, m, m.led) < 0):
            m.mode = REPLICA_FOLLOWS
            raft_hand_over(m.group.raft, 0)
            group_due(m.group)
    elif m.mode == REPLICA_FOLLOWS and has_joined(m.standing, &s, m.applied):
        m.standing = STANDS_MEMBER
        replica_joined(m.group)
    consumer_role_tell(m, s.leader)


# ---- what is committed -----------------------------------------------------------------------------------------------

cdef int consumer_entry_take(ConsumerMember* m, Span data) noexcept nogil:
    # 0 | -1 no memory | -2 it is no entry of a consumer
    cdef ConsumerEntry e
    if not consumer_entry_get(data, &e):
        return -2
    if m.mode == REPLICA_LEADS and not is_proposed(m, data):
        consumer_step_down(m)           # another server's: it leads again behind it
    if consumer_apply(m.c, &e) < 0:
        return -1
    if e.op == OP_RESET and m.mode == REPLICA_LEADS and e.reply.n:
        consumer_tell(m, REPLICA_RESET, e.sseq, e.reply)
    return 0


cdef int consumer_record_take(ConsumerMember* m, const GroupRecord* r) noexcept nogil:
    # As consumer_entry_take. A state in the log is of when it was proposed, which others may be past.
    cdef Span rest = r.entries
    cdef Entry e
    cdef int rc = 0
    while rc == 0 and entry_next(&rest, &e):
        m.entries += 1
        m.bytes += e.data.n
        if e.type == ENTRY_NORMAL:
            rc = consumer_entry_take(m, e.data)
        elif e.type == ENTRY_SNAPSHOT:
            consumer_based(m)
            rc = consumer_restore(m.c, e.data, False)
    return rc


cdef int consumer_state_take(ConsumerMember* m) noexcept nogil:
    # A leader's state in place of what is not applied. As consumer_entry_take.
    cdef Bytes state
    cdef uint64_t index, term
    cdef int rc = 0
    memset(&state, 0, sizeof(Bytes))
    index = group_state_take(m.group, &term, &state)
    if index > m.applied:
        consumer_step_down(m)
        consumer_based(m)
        rc = consumer_restore(m.c, span(state.data, <uint32_t>state.n), True)
    if index and rc == 0:
        m.applied = max(m.applied, index)
        m.applied_term = term
        consumer_kept(m, index)
        group_applied(m.group, index)
    bytes_free(&state)
    return rc


cdef void consumer_due(void* ctx) noexcept nogil:
    # Of its group: something is committed, or its role changed.
    cdef ConsumerMember* m = <ConsumerMember*>ctx
    cdef GroupRecord r
    cdef RaftState s
    cdef uint32_t left = CONSUMER_RECORDS
    cdef int rc
    if m.mode == REPLICA_STOPPED:
        return
    raft_state(m.group.raft, &s)
    if s.role == RAFT_STOPPED or m.group.diverged:
        consumer_stopped(m)
        return
    r.damaged = False
    rc = consumer_state_take(m)
    while rc == 0 and left and group_next(m.group, &r):
        left -= 1
        rc = consumer_record_take(m, &r)
        if rc == 0:
            group_given(m.group)
            m.applied = r.index
            m.applied_term = r.term
    if rc < 0:
        consumer_halts(m, REPLICA_FAILED, b"out of memory" if rc == -1 else b"the group's log has what is no entry of a consumer")
        return
    if r.damaged:
        consumer_halts(m, REPLICA_FAILED, b"an entry of the group's log cannot be read")
        return
    if left < CONSUMER_RECORDS:
        group_applied(m.group, m.applied)
    consumer_keep(m)
    if left == 0:
        task_post(&m.env.tasks, &m.task)
    consumer_role(m)


cdef void consumer_turn(Task* t) noexcept nogil:
    consumer_due(t.owner)


# ---- snapshots -------------------------------------------------------------------------------------------------------

cdef void consumer_kept(ConsumerMember* m, uint64_t index) noexcept nogil:
    m.kept = index
    m.kept_at = m.env.mono
    m.keep_soon = False
    m.entries = 0
    m.bytes = 0
    m.kept_pause = keep_pause(m.env)


cdef int64_t consumer_keep_at(const ConsumerMember* m) noexcept nogil:
    # When the next snapshot is due, mono.
    if m.keep_soon:
        return 0
    if m.entries >= CONSUMER_KEPT_ENTRIES or m.bytes > CONSUMER_KEPT_BYTES:
        return m.kept_at + CONSUMER_KEPT_LEAST * <int64_t>KEEP_SECOND
    return m.kept_at + m.kept_pause


cdef void consumer_keep(ConsumerMember* m) noexcept nogil:
    # The state takes the place of the log, when that is due.
    cdef Bytes state
    cdef int64_t at = consumer_keep_at(m)
    cdef int rc = -1
    if m.applied <= m.kept:
        return
    if at > m.env.mono:
        timer_set(&m.env.timers, &m.timer, at)
        return
    memset(&state, 0, sizeof(Bytes))
    if consumer_encode_state(m.c, &state) == 0:
        rc = group_snapshot(m.group, m.applied_term, m.applied, span(state.data, <uint32_t>state.n))
    bytes_free(&state)
    if rc == 0:
        consumer_kept(m, m.applied)
    else:
        timer_set(&m.env.timers, &m.timer, m.env.mono + KEEP_SECOND)


cdef void consumer_keep_due(Timer* t, int64_t now) noexcept nogil:
    consumer_keep(<ConsumerMember*>t.owner)


# ---- beginning and end -----------------------------------------------------------------------------------------------

cdef ConsumerMember* consumer_member_new(Group* g, Consumer* c, ConsumerInfo* led, const RaftFound* found,
                                         ReplicaStanding standing) noexcept nogil:
    # Of a consumer that joined, and has the state of its group's snapshot. NULL: no memory
    cdef ConsumerMember* m = <ConsumerMember*>calloc(1, sizeof(ConsumerMember))
    if m == NULL:
        return NULL
    m.env = g.of.env
    m.group = g
    m.c = c
    m.led = led
    m.mode = REPLICA_FOLLOWS
    m.standing = standing_based(standing) if found.snapshot_index else standing
    m.applied = found.snapshot_index
    m.applied_term = found.snapshot_term
    m.task.fn = consumer_turn
    m.task.owner = m
    m.timer.fn = consumer_keep_due
    m.timer.owner = m
    consumer_kept(m, found.snapshot_index)
    m.keep_soon = found.snapshot_index == 0 and not c.fresh
    c.group.gone = consumer_gone
    c.group.gone_ctx = m
    group_own(g, consumer_due, m)
    group_applied(g, m.applied)                 # so that it may ask for votes
    return m


cdef void consumer_member_free(ConsumerMember* m) noexcept nogil:
    # Its group is stopped, so that it is not called again; its consumer is closed next.
    if m.c != NULL and m.mode == REPLICA_LEADS:
        m.mode = REPLICA_FOLLOWS
        consumer_ends(m.c)
    consumer_stop(m)
    if m.c != NULL:
        m.c.group.gone = NULL
    bytes_free(&m.proposed)
    free(m)
