# A leader: sends entries to its log and to all members, counts their answers, and hands over.

cdef int message_send(Raft* r, Span entries, uint32_t n) noexcept nogil:
    # Sends n entries as one message to all, and stores them in this log unless n is 0. The message goes out before it is on disk
    # here: the leader counts itself once its own copy is (Raft thesis, 10.2.1).
    cdef AppendEntry m
    cdef RaftAction a
    cdef Bytes b
    cdef Span body
    cdef int rc
    memset(&b, 0, sizeof(Bytes))
    memset(&m, 0, sizeof(AppendEntry))
    m.leader = r.id
    m.term = r.term
    m.commit = r.apply.commit
    m.pterm = r.log.last_term
    m.pindex = r.log.last
    m.n = <uint16_t>n
    m.entries = entries
    rc = append_entry_write(&b, &m)
    if rc == RAFT_OK and n:
        rc = log_add(&r.log, r.log.last + 1, r.term)
    if rc < 0:
        bytes_free(&b)
        return rc
    body = span(b.data, <uint32_t>b.n)
    if n:
        memset(&a, 0, sizeof(RaftAction))
        a.act = ACT_STORE
        a.index = r.log.last
        a.term = r.log.generation
        a.body = body
        rc = act(r, &a)
    if rc == RAFT_OK:
        rc = act_send(r, SEND_APPEND, span(NULL, 0), REPLY_RESPONSES if n else heartbeat_reply(r), body)
    bytes_free(&b)
    if rc < 0:
        return rc
    r.fresh = False
    r.lead.said = r.now
    r.lead.said_commit = r.apply.commit
    return entries_heed(r, entries, r.log.last, False) if n else RAFT_OK


cdef int entry_send(Raft* r, EntryType type, Span data) noexcept nogil:
    # Sends a single entry, behind all earlier proposals.
    cdef Bytes b
    cdef int rc = proposals_send(r)
    if rc < 0:
        return rc
    memset(&b, 0, sizeof(Bytes))
    rc = entry_write(&b, type, data)
    if rc == RAFT_OK:
        rc = message_send(r, span(b.data, <uint32_t>b.n), 1)
    bytes_free(&b)
    return rc


cdef int proposals_send(Raft* r) noexcept nogil:
    cdef Proposals* p = &r.lead.proposals
    cdef int rc
    if p.n == 0:
        return RAFT_OK
    rc = message_send(r, span(p.entries.data, <uint32_t>p.entries.n), p.n)
    if rc == RAFT_OK:
        p.entries.n = 0
        p.n = 0
    return rc


cdef int set_send(Raft* r) noexcept nogil:
    # Sends the set of members as an entry.
    cdef Bytes b, ids
    cdef uint32_t i
    cdef int rc = RAFT_OK
    memset(&b, 0, sizeof(Bytes))
    memset(&ids, 0, sizeof(Bytes))
    for i in range(r.members.n):
        rc = add_u64(&ids, r.members.a[i].id)
        if rc < 0:
            break
    if rc == RAFT_OK:
        rc = peer_state_write(&b, r.members.size, ids.data, r.members.n, r.members.extension)
    bytes_free(&ids)
    if rc == RAFT_OK:
        rc = entry_send(r, ENTRY_PEER_STATE, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return rc


cdef int become_leader(Raft* r) noexcept nogil:
    # Elected. It leads once the first entry of its term is applied, because all earlier entries are applied then.
    cdef int rc
    r.role = RAFT_ELECTED
    r.follow.leader = r.id
    r.follow.handed = False
    catching_up_over(r)
    ballot_clear(&r.ballot)
    leading_clear(r)
    r.lead.heartbeat = r.now + HEARTBEAT
    r.lead.quorum_look = r.now + QUORUM_LOST
    r.lead.grown = r.now                        # nobody has had the time to answer
    r.lead.lacks = r.apply.applied < r.apply.commit
    rc = act_role(r)
    if rc == RAFT_OK and r.lost:                # elected by all: their logs are all there is
        rc = lost_over(r)
    if rc == RAFT_OK:
        rc = set_send(r)
    r.lead.ready_at = r.log.last
    if r.follow.met == 0:
        r.follow.met = r.log.last
    return rc


cdef int raft_propose(Raft* r, uint64_t term, EntryType type, Span data) noexcept nogil:
    cdef Proposals* p = &r.lead.proposals
    cdef int rc
    if r.role != RAFT_LEADER or term != r.term:
        return RAFT_NOT_LEADER
    if r.log.last - r.apply.commit > OVERRUN:   # no quorum answers
        return RAFT_BUSY
    if p.n == RAFT_BATCH_ENTRIES or p.n and p.entries.n + data.n > RAFT_BATCH_BYTES:
        rc = proposals_send(r)
        if rc < 0:
            return rc
    rc = entry_write(&p.entries, type, data)
    if rc == RAFT_OK:
        p.n += 1
    return rc


cdef int raft_turn_end(Raft* r) noexcept nogil:
    # Sends the turn's proposals as one message, and a heartbeat for a round, or if a commit was not sent with any message.
    cdef int rc
    if not is_leading(r):
        return RAFT_OK
    rc = proposals_send(r)
    if rc == RAFT_OK:
        rc = members_look(r)
    if rc == RAFT_OK and is_leading(r) and (round_begins(r) or r.apply.commit > r.lead.said_commit):
        rc = message_send(r, span(NULL, 0), 0)
    return rc


cdef int raft_stored(Raft* r, uint64_t generation, uint64_t index) noexcept nogil:
    cdef uint64_t i
    cdef int rc = RAFT_OK
    if generation != r.log.generation or index <= r.log.stored:
        return RAFT_OK
    i = max(max(r.log.stored, r.log.quiet) + 1, r.log.first)
    r.log.stored = index
    if is_leading(r):
        return commit_count(r)
    rc = whole_look(r)
    if r.role != RAFT_FOLLOWER:
        return RAFT_OK
    while rc == RAFT_OK and i <= index:         # one answer each: a nats-server counts answers by index
        rc = answer(r, term_at(&r.log, i), i, True, span(r.follow.answer, r.follow.n_answer), REPLY_NONE)
        i += 1
    return rc


cdef int commit_count(Raft* r) noexcept nogil:
    # Commits what a quorum has on disk up to an entry of this term; older entries commit with it.
    cdef Members* m = &r.members
    cdef uint64_t index = 0, candidate
    cdef uint32_t i, j, have
    cdef int rc
    for i in range(m.n):
        candidate = r.log.stored if m.a[i].id == r.id else m.a[i].match
        if candidate <= index or candidate <= r.apply.commit:
            continue
        have = 0
        for j in range(m.n):
            if (r.log.stored if m.a[j].id == r.id else m.a[j].match) >= candidate:
                have += 1
        if have >= quorum(m):
            index = candidate
    if index <= r.apply.commit or term_at(&r.log, index) != r.term:
        return RAFT_OK
    rc = commit_to(r, index)
    return rc if rc < 0 else removed_look(r)


cdef int removed_look(Raft* r) noexcept nogil:
    # A leader whose own removal is committed tells the others so, and stops.
    cdef int rc
    if not is_leading(r) or change_pends(r, r.id) or not is_outside(r):
        return RAFT_OK
    rc = message_send(r, span(NULL, 0), 0)
    raft_stop(r)
    return rc if rc < 0 else act_role(r)


cdef int raft_applied(Raft* r, uint64_t index) noexcept nogil:
    if index <= r.apply.applied:
        return RAFT_OK
    r.apply.applied = index
    r.apply.moved = r.now
    if r.role == RAFT_ELECTED and index >= r.lead.ready_at:
        r.role = RAFT_LEADER
        return act_role(r)
    if is_leading(r) and r.apply.commit > index and r.apply.commit - index > OVERRUN:
        return raft_hand_over(r, 0)
    return RAFT_OK


cdef int raft_hand_over(Raft* r, uint64_t to) noexcept nogil:
    # Steps down at once; the entry names the preferred successor.
    cdef RaftPeer* p = peer_find(&r.members, to)
    cdef uint64_t match = 0
    cdef uint32_t i
    cdef int rc = RAFT_OK
    if not is_leading(r):
        return RAFT_NOT_LEADER
    if to == 0 or p == NULL or to == r.id:
        to = 0
        for i in range(r.members.n):
            p = &r.members.a[i]
            if p.id != r.id and p.heard and r.now - p.heard < CURRENT and p.match >= match:
                match = p.match
                to = p.id
    if to:
        rc = entry_send(r, ENTRY_LEADER_TRANSFER, span(&to, PEER_BYTES))
    return rc if rc < 0 else become_follower(r, 0)


cdef int raft_failed(Raft* r) noexcept nogil:
    # This member's disk fails: it stops, answers and votes no more, and hands over if it leads.
    cdef int rc = raft_hand_over(r, 0) if is_leading(r) else RAFT_OK
    raft_stop(r)
    return rc if rc < 0 else act_role(r)


cdef int membership_propose(Raft* r, EntryType type, uint64_t peer) noexcept nogil:
    if not is_leading(r):
        return RAFT_NOT_LEADER
    # Until an entry of this term is committed, a former leader's change of members may be pending, with another quorum. A new
    # group has no former leader: its first entry waits for members to be added.
    if change_pends(r, 0) or r.apply.commit < r.lead.ready_at and r.members.n >= r.members.size:
        return RAFT_BUSY
    if (peer_find(&r.members, peer) != NULL) == (type == ENTRY_ADD_PEER):
        return RAFT_OK
    if type == ENTRY_REMOVE_PEER and r.members.n == 1:
        return RAFT_LAST
    return entry_send(r, type, span(&peer, PEER_BYTES))


cdef int raft_forwarded(Raft* r, Span body) noexcept nogil:
    cdef int rc = raft_propose(r, r.term, ENTRY_NORMAL, body)
    return RAFT_OK if rc == RAFT_NOT_LEADER or rc == RAFT_BUSY else rc


cdef int raft_forwarded_removal(Raft* r, Span body) noexcept nogil:
    cdef int rc
    if body.n != PEER_BYTES:
        return RAFT_OK
    rc = raft_remove_peer(r, read_u64(body.p))
    return rc if rc == RAFT_NO_MEMORY else RAFT_OK


cdef int raft_add_peer(Raft* r, uint64_t peer) noexcept nogil:
    return membership_propose(r, ENTRY_ADD_PEER, peer)


cdef int raft_remove_peer(Raft* r, uint64_t peer) noexcept nogil:
    return membership_propose(r, ENTRY_REMOVE_PEER, peer)


cdef bint may_join(Raft* r, const AppendResponse* m) noexcept nogil:
    # Whether a member that answers joins the group. In a managed group: an assigned one whose log has caught up with this one.
    # Late answers of a member that was removed do not count, unless it has asked for what it lacks since.
    if r.managed:
        return m.success and is_assigned(&r.members, m.peer)
    return not removed_lately(&r.members, m.peer, r.now) or has_come_back(r, m.peer)


cdef int peer_joins(Raft* r, uint64_t peer) noexcept nogil:
    # While another change of members is under way the peer has to wait.
    cdef int rc = raft_add_peer(r, peer)
    cdef CatchUp* c = catch_up_find(&r.lead, peer)
    if rc == RAFT_OK and c != NULL:
        c.returns = False
    return RAFT_OK if rc == RAFT_BUSY else rc


cdef int returned_join(Raft* r) noexcept nogil:
    # Adds a peer that was sent what it lacked: it may have nothing to answer for a long time.
    cdef uint32_t i
    for i in range(r.lead.n_catch_ups):
        if not r.managed and has_come_back(r, r.lead.catch_ups[i].id):
            return peer_joins(r, r.lead.catch_ups[i].id)
    return RAFT_OK


cdef int members_look(Raft* r) noexcept nogil:
    # Removes members that are not assigned, one after another, once all assigned members have joined.
    cdef Members* m = &r.members
    cdef uint64_t id
    cdef int rc
    if m.n_assigned == 0 or m.n < m.n_assigned or change_pends(r, 0) or not all_assigned_in(m):
        return RAFT_OK
    id = member_too_many(m, r.id)
    if id == 0:
        return RAFT_OK
    if id == r.id:
        return raft_hand_over(r, 0)             # the next leader removes this one
    rc = raft_remove_peer(r, id)
    return RAFT_OK if rc == RAFT_BUSY else rc


cdef int raft_assign(Raft* r, const uint64_t* peers, uint32_t n) noexcept nogil:
    cdef uint64_t* a
    if n > RAFT_PEERS_MAX:
        return RAFT_TOO_LARGE
    a = <uint64_t*>realloc(r.members.assigned, max(n, <uint32_t>1) * sizeof(uint64_t))
    if a == NULL:
        return RAFT_NO_MEMORY
    memcpy(a, peers, n * sizeof(uint64_t))
    r.members.assigned = a
    r.members.n_assigned = n
    return RAFT_OK


cdef int raft_propose_state(Raft* r, Span state) noexcept nogil:
    return entry_send(r, ENTRY_SNAPSHOT, state) if r.role == RAFT_LEADER else RAFT_NOT_LEADER


cdef int raft_response(Raft* r, Span body, Span reply, uint64_t round) noexcept nogil:
    cdef AppendResponse m
    cdef RaftPeer* p
    cdef int rc
    if not is_leading(r) or not append_response_read(body, &m):
        return RAFT_OK
    p = peer_find(&r.members, m.peer)
    if p != NULL:
        p.heard = r.now
    elif may_join(r, &m):
        rc = peer_joins(r, m.peer)
        if rc < 0:
            return rc
        p = peer_find(&r.members, m.peer)
    if not m.success:
        if reply.n:
            return catch_up_begin(r, &m, reply) if reply.n <= REPLY_MAX else RAFT_OK
        if m.term > r.term:
            rc = term_take(r, m.term)
            return rc if rc < 0 else become_follower(r, 0)
        return RAFT_OK
    rc = catch_up_confirmed(r, m.peer, m.index)
    if rc == RAFT_OK and p != NULL:
        rc = round_heard(r, p, round)
    if rc < 0 or p == NULL or m.term != r.term or m.index > r.log.last or m.index <= p.match:
        return rc
    p.match = m.index
    return commit_count(r)
