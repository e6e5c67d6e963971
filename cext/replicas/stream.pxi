# A turn of a replicated stream: its role, committed entries, proposals.

cdef void stream_halts(ReplicatedStream* r, ReplicaNews what, const char* why) noexcept nogil:
    # Stops a member that cannot go on; the other members do.
    cdef Event e
    if not is_running(r):
        return
    r.halted = what
    snprintf(r.why, sizeof(r.why), b"%s", why)
    stream_rests(r)
    raft_failed(r.g.raft)
    group_due(r.g)
    memset(&e, 0, sizeof(Event))
    e.text[0] = span_c(r.why)
    replica_tell(r.g, &e, what)


cdef void stream_rests(ReplicatedStream* r) noexcept nogil:
    # Stops applying and proposing.
    stream_unled(r)
    r.mode = REPLICA_STOPPED
    catchup_end(r)
    keep_drop(r)
    task_cancel(&r.task)
    timer_cancel(&r.env.timers, &r.timer)


# ---- role --------------------------------------------------------------------------------------------------------------

cdef void stream_unled(ReplicatedStream* r) noexcept nogil:
    if r.mode != REPLICA_LEADS:
        return
    r.mode = REPLICA_FOLLOWS
    r.leaves = False
    r.agrees = False
    r.agreed = 0
    serving_end(r)
    if r.s != NULL:
        member_follow(r.s)


cdef void stream_led(ReplicatedStream* r, const RaftState* now) noexcept nogil:
    # The whole log is agreed on and applied: from here on this member assigns the sequences.
    if serving_begin(r) < 0 or member_lead(r.s) < 0:
        serving_end(r)
        stream_halts(r, REPLICA_FAILED, b"out of memory")
        return
    r.mode = REPLICA_LEADS
    r.term = now.term
    if r.standing == STANDS_BASE:               # a state from before the group: the other members begin with it
        r.agrees = True
        stream_due(r)


cdef void stream_based(ReplicatedStream* r) noexcept nogil:
    cdef bint was = r.standing == STANDS_BASE
    r.standing = standing_based(r.standing)
    if was:
        replica_joined(r.g)


cdef void stream_joins(ReplicatedStream* r) noexcept nogil:
    cdef RaftState now
    raft_state(r.g.raft, &now)
    if r.mode == REPLICA_FOLLOWS and has_joined(r.standing, &now, r.given):
        r.standing = STANDS_MEMBER
        replica_joined(r.g)


cdef void stream_role(ReplicatedStream* r) noexcept nogil:
    # Proposals that were staged in an earlier term are dropped.
    cdef RaftState now
    raft_state(r.g.raft, &now)
    if r.mode == REPLICA_LEADS and (now.role != RAFT_LEADER or now.term != r.term):
        stream_unled(r)
        replica_tell_only(r.g, REPLICA_ROLE)
    if now.leader != r.leader:
        r.leader = now.leader
        replica_tell_only(r.g, REPLICA_ROLE)


cdef void stream_leads(ReplicatedStream* r) noexcept nogil:
    cdef RaftState now
    raft_state(r.g.raft, &now)
    if r.mode == REPLICA_FOLLOWS and now.role == RAFT_LEADER and now.last == r.given:
        stream_led(r, &now)
        replica_tell_only(r.g, REPLICA_ROLE)


# ---- proposals ---------------------------------------------------------------------------------------------------------

cdef void stream_proposed(void* ctx) noexcept nogil:
    stream_due(<ReplicatedStream*>ctx)


cdef void stream_agrees(ReplicatedStream* r, const RaftState* now) noexcept nogil:
    # A member that catches up gets messages as they are now, later than its snapshot. It lacks some that counted for the stream's
    # limits, so it may keep messages that other members removed: all members take over the leader's state. While a batch is held
    # this waits; without memory the next catch-up leads to it again.
    cdef Bytes state
    memset(&state, 0, sizeof(Bytes))
    if member_applied(r.s, r.given) != r.given:
        return
    r.agrees = False
    if stream_state_put(r.s, &state) == ST_OK:
        if group_propose(r.g, ENTRY_SNAPSHOT, span(state.data, <uint32_t>state.n)) == RAFT_OK:
            r.agreed = now.last + 1
    bytes_free(&state)


cdef bint is_agreeing(ReplicatedStream* r) noexcept nogil:
    # Other proposals wait until all earlier records are applied, and until the state, which is a record of its own, is.
    cdef RaftState now
    raft_state(r.g.raft, &now)
    if r.agrees and now.last == r.given:
        stream_agrees(r, &now)
    return r.agrees and now.last > r.given or r.agreed > r.given


cdef void stream_proposes(ReplicatedStream* r) noexcept nogil:
    # A failed proposal is lost with all later ones, which were judged by it: another member leads, or this one once more.
    cdef size_t at = 0
    cdef uint32_t n
    cdef int rc = RAFT_OK
    if r.mode != REPLICA_LEADS or is_agreeing(r):
        return
    member_take(r.s, &r.taken)
    while at < r.taken.n and rc == RAFT_OK:
        memcpy(&n, r.taken.data + at, sizeof(n))
        rc = group_propose(r.g, ENTRY_NORMAL, span(r.taken.data + at + sizeof(n), n))
        at += sizeof(n) + n
    bytes_free(&r.taken)
    if rc != RAFT_OK:
        stream_hands_over(r)
    else:
        stream_asks(r)


cdef void stream_asks(ReplicatedStream* r) noexcept nogil:
    # Refusals of this turn wait until this leader is known to have led now. What was proposed since goes out after them: its
    # commit says so, too.
    cdef RaftState now
    if not member_is_to_ask(r.s):
        return
    raft_state(r.g.raft, &now)
    member_asked(r.s, now.proposed, 0 if now.proposed > now.last else group_ask(r.g))


cdef void stream_confirms(ReplicatedStream* r) noexcept nogil:
    cdef RaftState now
    if r.mode == REPLICA_LEADS and member_owes(r.s):
        raft_state(r.g.raft, &now)
        member_confirmed(r.s, r.given, now.confirmed)


cdef void stream_hands_over(ReplicatedStream* r) noexcept nogil:
    stream_unled(r)
    raft_hand_over(r.g.raft, 0)
    group_due(r.g)
    replica_tell_only(r.g, REPLICA_ROLE)


cdef void stream_leave(ReplicatedStream* r) noexcept nogil:
    # Publishes that were taken are answered before another member leads.
    if r.mode == REPLICA_LEADS:
        r.leaves = True
        member_leave(r.s)
        stream_due(r)


cdef void stream_leaves(ReplicatedStream* r) noexcept nogil:
    cdef RaftState now
    raft_state(r.g.raft, &now)
    if r.mode == REPLICA_LEADS and r.leaves and now.last == r.given and not member_owes(r.s):
        stream_hands_over(r)


# ---- committed entries -------------------------------------------------------------------------------------------------

cdef void stream_answers(ReplicatedStream* r, const Committed* x, const StreamEntry* e) noexcept nogil:
    # A request of the API that is applied: who asked hears of it from the member that proposed it.
    cdef Event ev
    if e.reply.n == 0 or e.change.kind != CHANGE_PURGE and e.change.kind != CHANGE_DELETE:
        return
    memset(&ev, 0, sizeof(Event))
    ev.text[0] = e.reply
    ev.text[1] = e.client
    ev.text[2] = e.api
    ev.num[2] = x.result
    replica_tell(r.g, &ev, REPLICA_PURGED if e.change.kind == CHANGE_PURGE else REPLICA_DELETED)


cdef void stream_asked(ReplicatedStream* r, Committed* entries, size_t n) noexcept nogil:
    cdef StreamEntry e
    cdef Bytes kept
    cdef size_t i
    if r.mode != REPLICA_LEADS and not r.asks:
        return
    memset(&kept, 0, sizeof(Bytes))
    for i in range(n):
        if entries[i].normal and is_request(entries[i].data) and change_get(entries[i].data, &kept, &e) == 1:
            stream_answers(r, &entries[i], &e)
    bytes_free(&kept)


cdef bint stream_did(ReplicatedStream* r, int rc) noexcept nogil:
    # Handles the result of member_apply. Whether this turn may go on.
    cdef char text[100]
    if rc == ST_OK:
        return True
    if rc == ST_WAIT:
        stream_due(r)
    elif rc == MEMBER_DIVERGED:
        stream_halts(r, REPLICA_DIVERGED, b"the stream has other messages than its group agreed on")
    elif rc == ST_UNKNOWN:
        stream_halts(r, REPLICA_FAILED, b"an entry of the group is of a kind that this version does not know, or is damaged")
    else:
        snprintf(text, sizeof(text), b"an entry of the group cannot be applied: error %d of the store", rc)
        stream_halts(r, REPLICA_FAILED, text)
    return False


cdef bint stream_replaced(ReplicatedStream* r, Span state, uint64_t index) noexcept nogil:
    # Brings the stream to the state. Whether it is there already.
    cdef int rc
    r.mode = REPLICA_CATCHES_UP
    member_follow(r.s)                          # its data is outdated
    rc = stream_state_apply(r, state, index)
    if rc != ST_WAIT:
        stream_caught_up(r, rc)
    return rc == ST_OK


cdef uint32_t entries_get(Span* rest, uint64_t index, Committed* out, Span* state) noexcept nogil:
    # Up to APPLY_AT_ONCE entries of a record; a state comes alone.
    cdef Entry e
    cdef uint32_t n = 0
    cdef Span before = rest[0]
    state.n = 0
    while n < APPLY_AT_ONCE and entry_next(rest, &e):
        if e.type == ENTRY_SNAPSHOT and n:
            rest[0] = before
            break
        before = rest[0]
        out[n].index = index
        out[n].normal = e.type == ENTRY_NORMAL
        out[n].data = e.data
        n += 1
        if e.type == ENTRY_SNAPSHOT:
            state[0] = e.data
            break
    return n


cdef bint record_apply(ReplicatedStream* r, const GroupRecord* record) noexcept nogil:
    # Applies a part of a record, from entry r.done on. Whether the record is done.
    cdef Committed entries[APPLY_AT_ONCE]
    cdef Span rest = record.entries, state
    cdef Entry e
    cdef uint32_t n
    cdef size_t done = 0
    cdef int rc
    for n in range(r.done):
        entry_next(&rest, &e)
    n = entries_get(&rest, record.index, entries, &state)
    if state.n:
        r.done += 1
        stream_based(r)
        if r.mode != REPLICA_LEADS and not stream_replaced(r, state, record.index):
            return False
        return rest.n == 0
    rc = member_apply(r.s, entries, n, &done)
    r.done += <uint32_t>done
    stream_asked(r, entries, done)
    if not stream_did(r, rc):
        return False
    if rest.n:
        stream_due(r)
    return rest.n == 0


cdef void record_done(ReplicatedStream* r, const GroupRecord* record) noexcept nogil:
    group_given(r.g)
    r.done = 0
    r.given = record.index
    r.given_term = record.term
    if r.given == r.recovered:
        member_recovered(r.s)


cdef void stream_install(ReplicatedStream* r) noexcept nogil:
    # Takes a leader's snapshot that replaces unapplied entries.
    cdef Bytes state
    cdef uint64_t index, term = 0
    memset(&state, 0, sizeof(Bytes))
    index = group_state_take(r.g, &term, &state)
    if index:
        stream_unled(r)
        r.done = 0
        r.given = index
        r.given_term = term
        keep_drop(r)
        r.kept = index
        store_hurry(r.s.store)                  # the log lets go of what was applied
        member_recovered(r.s)
        stream_based(r)
        catchup_end(r)
        stream_replaced(r, span(state.data, <uint32_t>state.n), index)
        r.kept_refused = member_refused(r.s) if r.s != NULL else 0
    bytes_free(&state)


cdef void stream_applies(ReplicatedStream* r) noexcept nogil:
    cdef GroupRecord record
    cdef uint64_t was = r.given
    cdef uint32_t before, some = 0
    record.damaged = False
    while is_running(r) and r.mode != REPLICA_CATCHES_UP and some < APPLY_AT_ONCE and group_next(r.g, &record):
        before = r.done
        if not record_apply(r, &record):
            break
        some += r.done - before
        record_done(r, &record)
    if record.damaged:
        stream_halts(r, REPLICA_FAILED, b"an entry of the group's log cannot be read")
    if not is_running(r):
        return
    if some >= APPLY_AT_ONCE:
        stream_due(r)
    if r.given != was:
        group_applied(r.g, member_applied(r.s, r.given))
        serving_applied(r)


cdef void stream_caught_up(ReplicatedStream* r, int rc) noexcept nogil:
    r.mode = REPLICA_FOLLOWS
    if rc == ST_NOT_FOUND:
        stream_halts(r, REPLICA_DIVERGED, b"no leader has the messages that the stream lacks")
    elif rc == ST_UNKNOWN:
        stream_halts(r, REPLICA_FAILED, b"the state of a snapshot is damaged")
    elif stream_did(r, rc):
        group_applied(r.g, r.given)
        stream_due(r)


# ---- a turn ------------------------------------------------------------------------------------------------------------

cdef void stream_stopped(ReplicatedStream* r) noexcept nogil:
    # The group was stopped: by its disk, or because this member was removed.
    cdef ReplicaNews what
    cdef const char* why = stopped_why(r.g, &what)
    if why != NULL:
        stream_halts(r, what, why)
    else:
        stream_rests(r)                         # from now on its data gets outdated
        if r.s != NULL:
            member_follow(r.s)
        replica_tell_only(r.g, REPLICA_ROLE)


cdef void stream_answers_reads(ReplicatedStream* r) noexcept nogil:
    # A member that is current answers reads, too. Without memory, the next turn tries again.
    cdef RaftState now
    if r.mode != REPLICA_FOLLOWS or r.standing != STANDS_MEMBER or r.s.direct[0] != NULL:
        return
    raft_state(r.g.raft, &now)
    if now.leader and r.given == now.commit:
        member_answers(r.s)


cdef void stream_turn(void* ctx) noexcept nogil:
    cdef ReplicatedStream* r = <ReplicatedStream*>ctx
    cdef RaftState now
    if not is_running(r):
        return
    raft_state(r.g.raft, &now)
    if now.role == RAFT_STOPPED or r.g.diverged:
        stream_stopped(r)
        return
    stream_role(r)
    stream_install(r)
    stream_applies(r)
    if is_running(r):
        stream_proposes(r)
        stream_confirms(r)
        stream_leaves(r)
        stream_leads(r)
        stream_joins(r)
    if is_running(r):
        stream_answers_reads(r)
        keep_look(r)


cdef void stream_task(Task* t) noexcept nogil:
    stream_turn(t.owner)


cdef void stream_ended(void* ctx) noexcept nogil:
    # Called by the stream: it failed, or is closed.
    cdef ReplicatedStream* r = <ReplicatedStream*>ctx
    stream_halts(r, REPLICA_FAILED, b"the stream ended")
    r.s = NULL
