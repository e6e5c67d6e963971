# Brings a member to the state of a snapshot: removes what the snapshot does not have, and gets missing messages from the leader.
# Entries that the group agrees on meanwhile wait in the log.

cdef enum CatchStep:
    CATCH_PURGES                # removes messages before the first sequence
    CATCH_REMOVES               # ... and deleted ones
    CATCH_WAITS                 # waits for a leader, or for the next attempt
    CATCH_TAKES                 # has asked the leader
    CATCH_FAILED                # the leader did not send all

cdef enum:
    CATCH_PIECE = 4096          # sequences to remove in a turn
    CATCH_ATTEMPTS = 6          # without any message, before it gives up
    CATCH_TERMS = 2             # in which it led all members without what damage has cost, before it takes none to have that
    ASKED_ROOM = 192            # bytes of a request

cdef extern from *:
    """
    static const int64_t CATCH_LOOK = 250000000;
    static const int64_t CATCH_AGAIN = 2000000000;
    static const int64_t CATCH_FIRST = 5000000000;
    static const int64_t CATCH_NEXT = 30000000000;
    """
    const int64_t CATCH_LOOK    # ns between two checks of the time and the leader
    const int64_t CATCH_AGAIN   # ns between attempts
    const int64_t CATCH_FIRST   # ns to wait for the first message
    const int64_t CATCH_NEXT    # ns to wait for the next message

cdef struct CatchUp:
    ReplicatedStream* r
    Bytes state                 # head and holes are views of it
    StateHead head
    HoleWalk holes
    uint64_t hole               # the run being removed: from here
    uint64_t hole_end           # ... to before here
    uint64_t index              # the snapshot's
    CatchStep step
    Purge purge
    int result                  # ST_WAIT: not over
    Task task
    Timer timer
    int64_t until               # mono: the end of the present wait
    uint64_t leader             # the asked leader
    uint64_t had                # last sequence when it was asked
    uint32_t attempts
    uint64_t term               # in which this member last led all others, though damage has cost it messages
    uint32_t terms              # ... and so many such terms
    Bytes kept                  # for change_get
    void* sub
    uint32_t n_inbox
    char inbox[32]


cdef uint64_t last_of(ReplicatedStream* r) noexcept nogil:
    cdef StoreState state
    store_state(r.s.store, &state)
    return state.last_seq


cdef int catch_look(CatchUp* c) noexcept nogil:
    # Checks again soon.
    return timer_set(&c.r.env.timers, &c.timer, c.r.env.mono + CATCH_LOOK)


cdef void catch_soon(CatchUp* c) noexcept nogil:
    task_post(&c.r.env.tasks, &c.task)


# ---- removing what the snapshot does not have ---------------------------------------------------------------------------

cdef int catch_skip(CatchUp* c, uint64_t seq) noexcept nogil:
    cdef Change x
    memset(&x, 0, sizeof(Change))
    x.kind = CHANGE_SKIP
    x.seq = seq
    x.ts = c.r.env.now
    return <int>stream_apply(c.r.s, &x)


cdef int catch_remove(CatchUp* c, uint64_t seq) noexcept nogil:
    cdef Change x
    cdef int rc
    memset(&x, 0, sizeof(Change))
    x.kind = CHANGE_DELETE
    x.seq = seq
    x.ts = c.r.env.now
    rc = <int>stream_apply(c.r.s, &x)
    return ST_OK if rc == ST_NOT_FOUND or rc == ST_DAMAGED else rc


cdef int catch_removes(CatchUp* c) noexcept nogil:
    # A piece of the work. ST_OK: that was the last | ST_WAIT | another ST_*
    cdef uint64_t count, seq, last = last_of(c.r)
    cdef uint32_t work = CATCH_PIECE
    cdef int rc = ST_OK
    while work and rc == ST_OK:
        work -= 1
        seq = store_next_seq(c.r.s.store, NULL, c.hole) if c.hole < c.hole_end else 0
        if seq and seq < c.hole_end and seq <= last:
            c.hole = seq + 1
            rc = catch_remove(c, seq)
        elif holes_next(&c.holes, &c.hole, &count) == 1:
            c.hole_end = c.hole + count if count <= UINT64_MAX - c.hole else UINT64_MAX
        else:
            return ST_OK
    return ST_WAIT if rc == ST_OK else rc


cdef int catch_purges(CatchUp* c) noexcept nogil:
    # A piece of the work. Returns as catch_removes.
    if c.purge.more:
        purge_step(&c.purge)
    if c.purge.more:
        return ST_WAIT
    return <int>min(c.purge.gone, <int64_t>ST_OK)


cdef bint has_all(CatchUp* c) noexcept nogil:
    return c.r.lost == 0 and last_of(c.r) >= c.head.last


cdef int catch_on(CatchUp* c) noexcept nogil:
    # ST_OK: the stream has the snapshot's state | ST_WAIT: not yet | another ST_*
    cdef int rc = ST_OK if c.step == CATCH_REMOVES else ST_WAIT
    if c.step == CATCH_PURGES:
        rc = catch_purges(c)
        if rc == ST_OK:
            c.step = CATCH_REMOVES
    if c.step == CATCH_REMOVES:
        rc = catch_removes(c)
        if rc == ST_OK and c.head.first > last_of(c.r) + 1:
            rc = catch_skip(c, c.head.first - 1)
        if rc == ST_OK and has_all(c):
            return ST_OK
        if rc == ST_OK:
            catch_wait(c, 0)
            rc = catch_asks(c)
    elif c.step == CATCH_FAILED:
        rc = catch_again(c)
    if c.step <= CATCH_REMOVES and rc == ST_WAIT:
        catch_soon(c)
    return rc


# ---- getting what the member lacks --------------------------------------------------------------------------------------

cdef void catch_wait(CatchUp* c, int64_t ns) noexcept nogil:
    group_deaf(c.r.g, &c.sub)
    c.step = CATCH_WAITS
    c.until = c.r.env.mono + ns


cdef int stream_cut(ReplicatedStream* r, uint64_t seq) noexcept nogil:
    # Removes what is behind that sequence. ST_*
    cdef Change x
    memset(&x, 0, sizeof(Change))
    x.kind = CHANGE_TRUNCATE
    x.seq = seq
    x.ts = r.env.now
    return <int>stream_apply(r.s, &x)


cdef void lost_set(ReplicatedStream* r, uint64_t seq) noexcept nogil:
    r.lost = seq
    member_lacks(r.s, seq)


cdef int catch_gives_up(CatchUp* c) noexcept nogil:
    # No member has the messages that damage has cost. What survived stays; what is behind the snapshot comes again from the log.
    cdef int rc = ST_OK
    if last_of(c.r) > c.head.last:
        rc = stream_cut(c.r, c.head.last)
    elif last_of(c.r) < c.head.last:
        rc = catch_skip(c, c.head.last)
    if rc == ST_OK:
        lost_set(c.r, 0)
    return rc


cdef int catch_again(CatchUp* c) noexcept nogil:
    # An attempt that brought messages does not count as failed. Nor does one without an answer, where damage has cost messages:
    # others have them.
    if c.r.lost == 0 and last_of(c.r) > c.had:
        c.attempts = 1
    elif c.r.lost == 0 or c.step == CATCH_FAILED:
        c.attempts += 1
    if c.attempts >= CATCH_ATTEMPTS:
        return ST_NOT_FOUND
    catch_wait(c, CATCH_AGAIN)
    return ST_WAIT if catch_look(c) == 0 else ST_NO_MEMORY


cdef void catch_request(CatchUp* c, uint64_t leader) noexcept nogil:
    cdef char text[ASKED_ROOM]
    cdef char id[9]
    cdef int n
    memcpy(id, &c.r.g.id, 8)
    id[8] = 0
    c.had = c.r.lost - 1 if c.r.lost else last_of(c.r)
    n = snprintf(text, sizeof(text),
                 b"{\"peer\":\"%s\",\"first_seq\":%llu,\"last_seq\":%llu,\"delete_ranges\":true,\"min_applied\":%llu}", id,
                 <unsigned long long>(c.had + 1), <unsigned long long>c.head.last, <unsigned long long>c.index)
    c.leader = leader
    c.step = CATCH_TAKES
    c.until = c.r.env.mono + CATCH_FIRST
    group_say(c.r.g, span(c.r.sync, c.r.n_sync), span(c.inbox, c.n_inbox), span(text, <uint32_t>n))


cdef int catch_asks(CatchUp* c) noexcept nogil:
    # Asks the leader, once there is one. If this member leads it hands over, because it lacks messages.
    cdef RaftState now
    raft_state(c.r.g.raft, &now)
    if now.role == RAFT_LEADER:
        raft_hand_over(c.r.g.raft, 0)
        group_due(c.r.g)
    elif now.leader and now.role == RAFT_FOLLOWER:
        group_deaf(c.r.g, &c.sub)
        c.n_inbox = inbox_new(c.r.env, b"$JSC.R.", c.inbox)
        c.sub = group_hear(c.r.g, span(c.inbox, c.n_inbox), catch_in, c)
        if c.sub == NULL:
            return ST_NO_MEMORY
        catch_request(c, now.leader)
    return ST_WAIT if catch_look(c) == 0 else ST_NO_MEMORY


cdef int catch_lets_go(CatchUp* c, const StreamEntry* e) noexcept nogil:
    # Drops what lies behind damage, but only once the leader sends it again. ST_*
    cdef int rc
    if c.r.lost == 0:
        return ST_OK
    if c.r.lost != (e.change.seq if e.change.kind == CHANGE_SKIP and e.change.most else e.lseq):
        return ST_ORDER
    rc = stream_cut(c.r, c.r.lost - 1)
    if rc == ST_OK:
        lost_set(c.r, 0)
    return rc


cdef int catch_in(void* target, const Msg* m) noexcept nogil:
    # A message from the leader. Each is acked, because the leader sends only so many without an ack.
    cdef CatchUp* c = <CatchUp*>target
    cdef StreamEntry e
    cdef Span none = span(NULL, 0)
    cdef int rc
    if c.step != CATCH_TAKES:
        return 1
    rc = change_get(m.data, &c.kept, &e) if m.data.n else 0
    if rc == 1:
        rc = catch_lets_go(c, &e)
        if rc == ST_OK:
            rc = member_caught(c.r.s, &e)
    elif rc == 0:
        rc = ST_ORDER               # the end before all came, or a malformed message
    c.until = c.r.env.mono + CATCH_NEXT
    if rc == ST_OK and has_all(c):
        c.result = ST_OK
        c.step = CATCH_WAITS
    elif rc == ST_ORDER or rc == ST_UNKNOWN:
        c.step = CATCH_FAILED
    elif rc != ST_OK:
        c.result = rc
        c.step = CATCH_WAITS
    if m.reply.n:
        group_say(c.r.g, m.reply, none, none if rc == ST_OK else span_c(b"the message cannot be stored"))
    if c.step != CATCH_TAKES:
        catch_soon(c)
    return 1


cdef bint nobody_has(CatchUp* c, const RaftState* now) noexcept nogil:
    # Whether damage has cost all members messages. One that has them leads once it has the log that this member had when it was
    # elected: if not, this member is elected again.
    cdef RaftPeerState peer
    cdef uint32_t n = 0
    if c.r.lost == 0 or now.term == c.term or (now.role != RAFT_ELECTED and now.role != RAFT_LEADER):
        return False
    while raft_peer(c.r.g.raft, n, &peer):
        if peer.match < now.last:
            return False
        n += 1
    c.term = now.term
    c.terms += 1
    return c.terms >= CATCH_TERMS


cdef int catch_timed(CatchUp* c) noexcept nogil:
    # ST_WAIT | as catch_on
    cdef RaftState now
    raft_state(c.r.g.raft, &now)
    if nobody_has(c, &now):
        return catch_gives_up(c)
    if c.step == CATCH_WAITS and c.r.env.mono >= c.until:
        return catch_asks(c)
    if c.step == CATCH_TAKES and now.leader != c.leader and (now.leader or now.role == RAFT_LEADER):
        return catch_asks(c)        # the next leader goes on where the last one stopped
    if c.step == CATCH_TAKES and c.r.env.mono >= c.until:
        return catch_again(c)
    return ST_WAIT if catch_look(c) == 0 else ST_NO_MEMORY


# ---- beginning and end ------------------------------------------------------------------------------------------------

cdef void catch_ended(CatchUp* c, int rc) noexcept nogil:
    cdef ReplicatedStream* r = c.r
    if rc == ST_WAIT:
        return
    catchup_end(r)
    r.caught_up(r, rc)


cdef void catch_task(Task* t) noexcept nogil:
    cdef CatchUp* c = <CatchUp*>t.owner
    catch_ended(c, c.result if c.result != ST_WAIT else catch_on(c))


cdef void catch_tick(Timer* t, int64_t now) noexcept nogil:
    # Only posts the task: the end frees the timer, which is in use here.
    cdef CatchUp* c = <CatchUp*>t.owner
    if c.result == ST_WAIT:
        c.result = catch_timed(c)
    if c.result != ST_WAIT:
        catch_soon(c)


cdef void catchup_end(ReplicatedStream* r) noexcept nogil:
    cdef CatchUp* c = r.catch_up
    if c == NULL:
        return
    r.catch_up = NULL
    group_deaf(r.g, &c.sub)
    task_cancel(&c.task)
    timer_cancel(&r.env.timers, &c.timer)
    purge_free(&c.purge)
    bytes_free(&c.kept)
    bytes_free(&c.state)
    free(c)


cdef CatchUp* catch_new(ReplicatedStream* r, Span state, uint64_t index) noexcept nogil:
    # NULL: no memory.
    cdef CatchUp* c = <CatchUp*>calloc(1, sizeof(CatchUp))
    if c == NULL:
        return NULL
    c.r = r
    c.index = index
    c.step = CATCH_PURGES
    c.result = ST_WAIT
    c.task.fn = catch_task
    c.task.owner = c
    c.timer.fn = catch_tick
    c.timer.owner = c
    r.catch_up = c
    if bytes_add(&c.state, state.p, state.n) < 0:
        catchup_end(r)
        return NULL
    return c


cdef uint64_t lost_of(ReplicatedStream* r, const StateHead* head) noexcept nogil:
    # The first sequence of a state that was lost to damage; 0: none.
    cdef uint64_t seq = store_lost_from(r.s.store, max(head.first, 1))
    return seq if seq <= head.last else 0


cdef int stream_state_apply(ReplicatedStream* r, Span state, uint64_t index) noexcept nogil:
    cdef CatchUp* c
    cdef StoreState had
    cdef uint64_t refused
    cdef int rc
    catchup_end(r)
    if not stream_state_refused(state, &refused):
        return ST_UNKNOWN
    c = catch_new(r, state, index)
    if c == NULL:
        return ST_NO_MEMORY
    state_head_get(span(c.state.data, <uint32_t>c.state.n), &c.head)
    holes_begin(&c.holes, &c.head)
    member_installed(r.s, refused, c.head.last)
    if r.lost:
        lost_set(r, lost_of(r, &c.head))
    store_state(r.s.store, &had)
    if had.first_seq < c.head.first:
        purge_begin(&c.purge, r.s, span(NULL, 0), c.head.first, 0, False)
    rc = catch_on(c)
    if rc != ST_WAIT:
        catchup_end(r)
    return rc
