# What a member does with a leader's messages, in nats-server's order of checks (processAppendEntry).

cdef inline uint64_t leader_term(const AppendEntry* m) noexcept nogil:
    return m.lterm if m.lterm else m.term


cdef inline uint64_t named(const AppendEntry* m) noexcept nogil:
    # The last index that a message tells of the leader's log.
    return m.pindex + (1 if m.n else 0)


cdef int answer(Raft* r, uint64_t term, uint64_t index, bint success, Span to, RaftReply reply) noexcept nogil:
    cdef AppendResponse said
    cdef Bytes b
    cdef int rc
    if to.n == 0:
        return RAFT_OK
    memset(&b, 0, sizeof(Bytes))
    said.term = term
    said.index = index
    said.peer = r.id
    said.success = success
    rc = append_response_write(&b, &said)
    if rc == RAFT_OK:
        rc = act_send(r, SEND_REPLY, to, reply, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return rc


cdef int catch_up_ask(Raft* r, const AppendEntry* m, uint64_t after, Span reply) noexcept nogil:
    # Asks the leader for what it has behind an index of this log and before this message, to a new inbox.
    cdef Behind* b = &r.follow.behind
    cdef int rc
    b.term = m.pterm
    b.index = m.pindex
    if r.log.last == 0 and not r.lost:
        # It may have had what it lacks, and have said so, on a disk that is gone: with a part of that it is not whole.
        r.lost = r.older = b.marking = True
        r.fresh = False
        rc = act_plain(r, ACT_LOST, 0, 0, 0)
        if rc < 0:
            return rc
    b.state = CATCHING_SOON if b.marking else CATCHING_UP
    if b.marking:
        return RAFT_OK
    b.inbox += 1
    b.active = r.now
    b.bytes = 0
    return answer(r, term_at(&r.log, after), after, False, reply, REPLY_CATCH_UP)


cdef int lost_over(Raft* r) noexcept nogil:
    r.lost = False
    r.follow.behind.marking = False
    return act_plain(r, ACT_WHOLE, 0, 0, 0)


cdef int raft_marked(Raft* r) noexcept nogil:
    cdef Behind* b = &r.follow.behind
    cdef AppendEntry m
    b.marking = False
    if b.state != CATCHING_SOON or r.role != RAFT_FOLLOWER:
        return RAFT_OK
    memset(&m, 0, sizeof(AppendEntry))
    m.pterm = b.term
    m.pindex = b.index
    return catch_up_ask(r, &m, r.log.last, span(r.follow.answer, r.follow.n_answer))


cdef int raft_append(Raft* r, Span body, Span reply, uint64_t catch_up) noexcept nogil:
    cdef AppendEntry m
    cdef int rc
    if r.role == RAFT_STOPPED or reply.n > REPLY_MAX or not append_entry_read(body, &m) or m.pterm > m.term:
        return RAFT_OK                          # terms only grow: a log that says otherwise ends there at its next start
    if named(&m) < r.base and not catch_up:
        return RAFT_OK                          # it leads servers that began with empty directories
    # An inbox of a former catch-up may still fill up from a server that does not say its term.
    if catch_up and (m.lterm == 0 or m.pindex < r.log.last) and not is_inbox(r, catch_up):
        return RAFT_OK
    if leader_term(&m) < r.term:
        return RAFT_OK if catch_up else answer(r, r.term, r.log.last, False, reply, REPLY_NONE)
    if leader_term(&m) > r.term:
        if not catch_up:
            catching_up_over(r)                 # another leader may have less than this member was to fetch
        rc = term_take(r, leader_term(&m))
        if rc < 0:
            return rc
    if r.role != RAFT_FOLLOWER:
        rc = become_follower(r, m.leader)
        if rc < 0:
            return rc
    r.follow.seek.on = False
    r.follow.led = r.now
    await_leader(r)
    if named(&m) >= r.apply.commit:
        r.follow.short_since = 0
    if r.follow.behind.state == CATCHING_UP:
        if has_caught_up(r):
            catching_up_over(r)
        elif not catch_up:
            if r.now - r.follow.behind.active < STALLED:
                return RAFT_OK
            return catch_up_ask(r, &m, r.log.last, reply)
    if not catch_up:
        rc = leader_heard(r, &m, reply)
        if rc < 0:
            return rc
        if asks_back(r, &m):
            return catch_up_ask(r, &m, max(r.log.last, <uint64_t>1) - 1, reply)
    if is_overrun(r):
        return RAFT_OK
    if catch_up and is_snapshot(&m):
        return snapshot_take(r, &m)
    if m.pindex == r.log.last and m.pterm == r.log.last_term:
        return entries_take(r, &m, body, reply, catch_up)
    if m.pindex <= r.log.last:
        return overlap_take(r, &m, body, reply, catch_up)
    if catch_up:                                # a record is missing before this one
        catching_up_over(r)
        return RAFT_OK
    return catch_up_ask(r, &m, r.log.last, reply)


cdef bint asks_back(Raft* r, const AppendEntry* m) noexcept nogil:
    # Whether this member was removed before it was opened: who asks a leader for entries joins again, also on nats-servers. What
    # it asks for it has, because a nats-server that is asked for an entry behind its last one gives up the lead.
    cdef Following* f = &r.follow
    cdef bint outside = not r.managed and not r.observer and is_outside(r)
    f.returns = outside and (f.returns or f.met == 0)
    if f.met == 0:
        f.met = named(m)
    return f.returns and r.now - f.behind.active >= STALLED


cdef inline bint is_inbox(const Raft* r, uint64_t inbox) noexcept nogil:
    return r.follow.behind.state == CATCHING_UP and r.follow.behind.inbox == inbox


cdef inline bint has_caught_up(const Raft* r) noexcept nogil:
    return r.log.last_term >= r.follow.behind.term and r.log.last >= r.follow.behind.index


cdef int leader_heard(Raft* r, const AppendEntry* m, Span reply) noexcept nogil:
    cdef RaftPeer* p = peer_find(&r.members, m.leader)
    cdef bint changed = r.follow.leader != m.leader
    if p != NULL:
        p.heard = r.now
    if reply.n:
        memcpy(r.follow.answer, reply.p, reply.n)
    r.follow.n_answer = reply.n
    r.follow.leader = m.leader
    if changed:
        r.follow.short_since = 0
    elif r.follow.short_since == 0 and named(m) < r.apply.commit:
        r.follow.short_since = r.now
    return act_role(r) if changed else RAFT_OK


cdef bint is_short(const Raft* r) noexcept nogil:
    # Whether the leader's log ends before what is committed here. A leader begins its term with all that was committed before:
    # each of its messages names at least that. Only where entries of its term are in this log may more be committed by now, and
    # a message that names less be an old one; or the leader has lost its log since, and leads again in the same term.
    cdef int64_t patience = LATE if r.log.last_term == r.term else QUORUM_LOST
    return r.follow.short_since != 0 and r.now - r.follow.short_since >= patience


cdef bint is_overrun(Raft* r) noexcept nogil:
    # What is committed here waits too long to be applied: more of it would only wait, too. The leader then sends its state.
    cdef uint64_t waiting = r.apply.commit - r.apply.applied if r.apply.commit > r.apply.applied else 0
    r.apply.overrun = waiting > (OVERRUN_OVER if r.apply.overrun else OVERRUN)
    if r.apply.overrun:
        catching_up_over(r)
    return r.apply.overrun


cdef int cut(Raft* r, uint64_t index) noexcept nogil:
    # The log ends with an index that is not below the commit.
    cdef int rc
    invariant(index >= r.apply.commit, "what is committed stays")
    log_cut(&r.log, index)
    rc = pending_cut(r, index)
    return rc if rc < 0 else act_plain(r, ACT_CUT, index, r.log.generation, 0)


cdef int overlap_take(Raft* r, const AppendEntry* m, Span body, Span reply, uint64_t catch_up) noexcept nogil:
    # A message for an index that this log has. No answer, unless it is stored: one for what was there before could make a
    # quorum of a log that is not the leader's.
    cdef uint64_t term, after
    cdef int rc
    if m.pindex < r.apply.commit:
        if not catch_up and is_short(r):
            return act_plain(r, ACT_DIVERGED, m.pindex, m.pterm, m.leader)     # the leader never had it, or has lost it
        return RAFT_OK                          # it was taken before
    term = term_at(&r.log, m.pindex)
    if term == m.pterm and (term or m.pindex == 0):
        # What came twice, or late, is here already. To cut it off and take it again, as nats-server does, would take
        # back entries that a quorum was made of.
        if m.n == 0 or m.pindex < r.log.last and term_at(&r.log, m.pindex + 1) == m.term:
            rc = commit_take(r, min(m.commit, named(m)))
            if rc < 0:
                return rc
            return catch_up_took(r, m, body, reply) if catch_up else repeated_answer(r, m, reply)
        rc = cut(r, m.pindex)
        return rc if rc < 0 else entries_take(r, m, body, reply, catch_up)
    catching_up_over(r)
    if m.pindex == r.apply.commit:              # one of the two lost what it had promised
        return act_plain(r, ACT_DIVERGED, m.pindex, m.pterm, m.leader)
    # What has this term here may all be another leader's. It is asked for again, and not cut off before it is known to be:
    # a quorum may have been made of it.
    after = max(r.apply.commit, era_start(&r.log, m.pindex) - 1)
    rc = cut(r, m.pindex - 1)
    return rc if rc < 0 else catch_up_ask(r, m, min(after, r.log.last), reply)


cdef int repeated_answer(Raft* r, const AppendEntry* m, Span reply) noexcept nogil:
    # The log is the leader's up to this message; what of that is on disk counts.
    cdef uint64_t index = min(named(m), r.log.stored)
    return answer(r, term_at(&r.log, index), index, True, reply, REPLY_NONE)


cdef bint is_snapshot(const AppendEntry* m) noexcept nogil:
    # A leader that has no entries so old sends its state and the set of peers in their place.
    cdef Span rest = m.entries
    cdef Entry state, peers
    cdef PeerState members
    return (m.n == 2 and entry_next(&rest, &state) and entry_next(&rest, &peers)
            and state.type == ENTRY_SNAPSHOT and peers.type == ENTRY_PEER_STATE
            and peer_state_read(peers.data, &members))


cdef int snapshot_take(Raft* r, const AppendEntry* m) noexcept nogil:
    cdef Span rest = m.entries
    cdef Entry state, peers
    cdef RaftAction a
    cdef int rc
    if r.follow.behind.state != CATCHING_UP or m.pindex <= r.apply.commit:
        return RAFT_OK
    r.follow.behind.active = r.now
    if m.pindex <= r.log.last and term_at(&r.log, m.pindex) == m.pterm:
        return commit_take(r, m.pindex)         # it is what this log leads to
    entry_next(&rest, &state)
    entry_next(&rest, &peers)
    rc = members_take(r, peers.data)
    if rc < 0:
        return rc
    log_reset(&r.log, m.pindex, m.pterm)
    r.log.stored = 0
    r.log.snapshot_index = m.pindex
    r.log.snapshot_term = m.pterm
    r.apply.commit = m.pindex
    r.fresh = False
    memset(&a, 0, sizeof(RaftAction))
    a.act = ACT_INSTALL
    a.index = m.pindex
    a.term = m.pterm
    a.count = r.log.generation
    a.body = state.data
    return act(r, &a)


cdef int entries_take(Raft* r, const AppendEntry* m, Span body, Span reply, uint64_t catch_up) noexcept nogil:
    # The message is the next one of the log.
    cdef RaftAction a
    cdef int rc
    if not catch_up and r.lost and r.whole_at == 0:
        r.whole_at = named(m)
    if m.n == 0:
        rc = whole_look(r)
        if rc < 0:
            return rc
        rc = commit_take(r, m.commit)
        # What is said is on disk: a heartbeat that overtakes the sync is answered with what is there.
        if rc < 0 or catch_up:
            return rc
        return answer(r, term_at(&r.log, r.log.stored), r.log.stored, True, reply, REPLY_NONE)
    rc = log_add(&r.log, m.pindex + 1, m.term)
    if rc < 0:
        return rc
    r.fresh = False
    if catch_up:
        r.log.quiet = r.log.last
    memset(&a, 0, sizeof(RaftAction))
    a.act = ACT_STORE
    a.index = r.log.last
    a.term = r.log.generation
    a.body = body
    rc = act(r, &a)
    if rc < 0:
        return rc
    rc = entries_heed(r, m.entries, r.log.last, not catch_up)
    if rc < 0:
        return rc
    if r.follow.behind.state == CATCHING_UP and has_caught_up(r):
        catching_up_over(r)
    rc = commit_take(r, m.commit)
    return rc if rc < 0 or not catch_up else catch_up_took(r, m, body, reply)


cdef int catch_up_took(Raft* r, const AppendEntry* m, Span body, Span reply) noexcept nogil:
    # The leader sends so many bytes and then waits for two seconds for answers that nobody gives: this member asks again
    # as soon as that many have come.
    cdef Behind* b = &r.follow.behind
    cdef AppendEntry target
    if b.state != CATCHING_UP:
        return RAFT_OK
    b.active = r.now
    b.bytes += body.n
    if b.bytes <= CATCH_UP_WINDOW:
        return RAFT_OK
    target = m[0]
    target.pterm = b.term
    target.pindex = b.index
    return catch_up_ask(r, &target, min(m.pindex + 1, r.log.last), reply)


cdef int whole_look(Raft* r) noexcept nogil:
    # A member that had lost something votes fully again when it has on disk all that a leader had; but not in that leader's
    # term.
    cdef int rc
    if not r.lost or r.whole_at == 0 or r.log.stored < r.whole_at:
        return RAFT_OK
    if r.vote == 0:
        r.vote = r.follow.leader
    rc = act_plain(r, ACT_VOTE, 0, r.term, r.vote)
    if rc == RAFT_OK:
        rc = lost_over(r)
    await_leader(r)
    return rc


cdef int entries_heed(Raft* r, Span entries, uint64_t index, bint live) noexcept nogil:
    # What holds from its append on: changes of the members, and the wish for another leader.
    cdef Entry e
    cdef int rc = RAFT_OK
    while rc >= 0 and entry_next(&entries, &e):
        if e.type == ENTRY_PEER_STATE:
            rc = pending_add(r, index, e.type, e.data)
        if e.data.n != PEER_BYTES:
            continue
        if e.type == ENTRY_ADD_PEER or e.type == ENTRY_REMOVE_PEER:
            rc = pending_add(r, index, e.type, e.data)
        elif e.type == ENTRY_LEADER_TRANSFER and live:
            take_lead(r, read_u64(e.data.p))
    return rc


cdef void take_lead(Raft* r, uint64_t to) noexcept nogil:
    # The leader has stepped down, and wishes for this one.
    if to != r.id or r.observer:
        return
    r.follow.election = r.now                   # nats-server's waits for 10 ms
    r.follow.handed = True


cdef int commit_take(Raft* r, uint64_t commit) noexcept nogil:
    # A leader's commit, as far as this log goes.
    return commit_to(r, min(commit, r.log.last))


cdef int commit_to(Raft* r, uint64_t commit) noexcept nogil:
    cdef int rc
    if commit <= r.apply.commit:
        return RAFT_OK
    r.apply.commit = commit
    rc = act_plain(r, ACT_COMMIT, commit, 0, 0)
    return rc if rc < 0 else pending_commit(r, commit)
