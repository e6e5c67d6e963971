# A consumer of a Raft group: applies committed entries, passes proposals to the group, and leads while the group's member leads.
# All with the lock held.

cdef enum:
    CONSUMER_RECORDS = 256              # records to apply in a turn
    CONSUMER_KEPT_ENTRIES = 1024        # entries after which a snapshot is due
    CONSUMER_KEPT_BYTES = 64 << 10      # the same in bytes
    CONSUMER_KEPT_LEAST = 10            # s at least between two snapshots
    KEEP_SECOND = 1000000000

cdef uint64_t* PROPOSAL_KEY = [0x6a736572766572, 0x726570, 0x636f6e73756d6572, 2]

cdef struct ConsumerMember:
    Env* env
    Group* group
    Consumer* c                 # NULL: closed with its stream
    ReplicaMode mode
    ReplicaStanding standing
    uint64_t term               # in which it leads
    uint64_t applied            # index of the last applied record
    uint64_t applied_term
    uint64_t kept               # index of the last snapshot
    uint64_t entries            # since that snapshot
    uint64_t bytes
    int64_t kept_at             # mono
    int64_t kept_pause          # ns after which any change is worth a snapshot
    bint keep_soon              # a snapshot is due: the state is from before the log, or a snapshot was asked for
    Bytes proposed              # hashes of its own proposals that are not applied, from `proposed_at` on
    size_t proposed_at
    bint asks                   # it has proposed resets: it tells their results, whichever member leads by then
    uint64_t told_leader        # what the control plane was last told
    bint told_leads
    ConsumerInfo* led           # borrowed: the state when it began to lead
    Task task
    Timer timer
    ReplicaNews halted          # REPLICA_FAILED or REPLICA_DIVERGED; 0: running
    char why[256]               # why it failed


# ---- news for the control plane -------------------------------------------------------------------------------------

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

cdef void consumer_refuse(void* ctx) noexcept nogil:
    # Called by Consumer.group: the lead ends at the end of this turn.
    cdef ConsumerMember* m = <ConsumerMember*>ctx
    task_post(&m.env.tasks, &m.task)


cdef int consumer_propose(void* ctx, Span entry) noexcept nogil:
    # Called by Consumer.group. A failed proposal ends the lead at the end of this turn, unless a quorum is only missing for now.
    cdef ConsumerMember* m = <ConsumerMember*>ctx
    cdef uint64_t hash = hh64(PROPOSAL_KEY, entry.p, entry.n)
    cdef int rc = RAFT_NO_MEMORY
    if bytes_add(&m.proposed, &hash, sizeof(hash)) == 0:
        rc = group_propose(m.group, ENTRY_NORMAL, entry)
    if rc == RAFT_BUSY:
        m.proposed.n -= sizeof(hash)
        return PROPOSE_LATER
    if rc != RAFT_OK:
        consumer_refuse(m)
    return rc


cdef bint is_proposed(ConsumerMember* m, Span entry) noexcept nogil:
    # Whether an applied entry is the next one of this leader's own proposals.
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


# ---- role ------------------------------------------------------------------------------------------------------------

cdef void consumer_step_down(ConsumerMember* m) noexcept nogil:
    if m.mode == REPLICA_LEADS:
        m.mode = REPLICA_FOLLOWS
        consumer_follow(m.c)
    m.proposed.n = m.proposed_at = 0


cdef void consumer_stop(ConsumerMember* m) noexcept nogil:
    # Stops applying entries.
    if m.c != NULL:
        consumer_step_down(m)
    m.mode = REPLICA_STOPPED
    task_cancel(&m.task)
    timer_cancel(&m.env.timers, &m.timer)


cdef void consumer_halts(ConsumerMember* m, ReplicaNews what, const char* why) noexcept nogil:
    # Stops a member that cannot go on; the other members do.
    if m.mode == REPLICA_STOPPED:
        return
    m.halted = what
    snprintf(m.why, sizeof(m.why), b"%s", why)
    consumer_stop(m)
    raft_failed(m.group.raft)
    group_due(m.group)
    consumer_tell(m, what, 0, span_c(m.why))


cdef void consumer_gone(void* ctx) noexcept nogil:
    # Called by Consumer.group: the consumer is closed.
    cdef ConsumerMember* m = <ConsumerMember*>ctx
    m.c = NULL
    consumer_halts(m, REPLICA_FAILED, b"the consumer ended")


cdef void consumer_stopped(ConsumerMember* m) noexcept nogil:
    # The group was stopped: by its disk, or because this member was removed.
    cdef ReplicaNews what
    cdef const char* why = stopped_why(m.group, &what)
    if why != NULL:
        consumer_halts(m, what, why)
    else:
        consumer_step_down(m)
        consumer_role_tell(m, 0)


cdef bint consumer_state_propose(ConsumerMember* m) noexcept nogil:
    # Writes the state from before the group into the log, before any other entry: the other members begin with it.
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
    # Leads once the whole log is applied: all later entries are its own proposals.
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
                or consumer_lead_group(m.c, consumer_propose, consumer_refuse, m, m.led) < 0):
            m.mode = REPLICA_FOLLOWS
            raft_hand_over(m.group.raft, 0)
            group_due(m.group)
    elif m.mode == REPLICA_FOLLOWS and has_joined(m.standing, &s, m.applied):
        m.standing = STANDS_MEMBER
        replica_joined(m.group)
    consumer_role_tell(m, s.leader)


# ---- committed entries -----------------------------------------------------------------------------------------------

cdef int consumer_entry_take(ConsumerMember* m, Span data) noexcept nogil:
    # 0 | -1 no memory | -2 not an entry of a consumer
    cdef ConsumerEntry e
    if not consumer_entry_get(data, &e):
        return -2
    if m.mode == REPLICA_LEADS and not is_proposed(m, data):
        consumer_step_down(m)           # an earlier leader's entry: leads again once it is applied
    if consumer_apply(m.c, &e) < 0:
        return -1
    if e.op == OP_RESET and e.reply.n and (m.mode == REPLICA_LEADS or m.asks):
        consumer_tell(m, REPLICA_RESET, e.sseq, e.reply)
    return 0


cdef int consumer_record_take(ConsumerMember* m, const GroupRecord* r) noexcept nogil:
    # As consumer_entry_take. A state in the log may be older than this member's; it changes nothing then.
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
    # Takes a leader's state that replaces unapplied entries. As consumer_entry_take.
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
    # Called by the group: records are committed, or the role has changed.
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
    # When the next snapshot is due; mono.
    if m.keep_soon:
        return 0
    if m.entries >= CONSUMER_KEPT_ENTRIES or m.bytes > CONSUMER_KEPT_BYTES:
        return m.kept_at + CONSUMER_KEPT_LEAST * <int64_t>KEEP_SECOND
    return m.kept_at + m.kept_pause


cdef void consumer_keep(ConsumerMember* m) noexcept nogil:
    # Replaces the log by a snapshot, if one is due.
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
    # For a consumer that is joined and has the state of the group's snapshot. NULL: no memory
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
    group_applied(g, m.applied)                 # allows it to ask for votes
    return m


cdef void consumer_member_free(ConsumerMember* m) noexcept nogil:
    # The group is stopped already, so it calls no more; the consumer is closed next.
    if m.c != NULL and m.mode == REPLICA_LEADS:
        m.mode = REPLICA_FOLLOWS
        consumer_ends(m.c)
    consumer_stop(m)
    if m.c != NULL:
        m.c.group.gone = NULL
    bytes_free(&m.proposed)
    free(m)
