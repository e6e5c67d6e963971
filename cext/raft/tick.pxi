# Time: elections, heartbeats, a quorum that is not heard any more.

cdef int64_t raft_deadline(const Raft* r) noexcept nogil:
    if r.role == RAFT_STOPPED:
        return INT64_MAX
    if is_leading(r):
        return min(r.lead.heartbeat, r.lead.quorum_look)
    return INT64_MAX if r.observer else r.follow.election


cdef bint quorum_heard(const Raft* r) noexcept nogil:
    cdef uint32_t i, n = 0
    cdef const RaftPeer* p
    for i in range(r.members.n):
        p = &r.members.a[i]
        if p.id == r.id or p.heard and r.now - p.heard < QUORUM_LOST:
            n += 1
    return n >= quorum(&r.members)


cdef bint is_behind(const Raft* r) noexcept nogil:
    return r.apply.applied < r.apply.commit


cdef bint is_stuck(const Raft* r) noexcept nogil:
    # Whether a member lacks committed state and no leader comes to send it. A member that has the state may have a shorter log,
    # so that nobody elects it: this member is to lead until all have its log.
    return is_behind(r) and r.now - max(r.follow.led, r.apply.moved) >= LEADERLESS


cdef bint all_have_log(const Raft* r) noexcept nogil:
    # Whether the members that answer have all that was in the log when this member was elected.
    cdef uint32_t i
    cdef const RaftPeer* p
    for i in range(r.members.n):
        p = &r.members.a[i]
        if p.id != r.id and p.heard and r.now - p.heard < CURRENT and p.match < r.lead.ready_at:
            return False
    return r.apply.commit >= r.lead.ready_at


cdef int lead_tick(Raft* r) noexcept nogil:
    cdef int rc = RAFT_OK
    cdef bint late = r.now >= r.lead.quorum_look
    if late:
        r.lead.quorum_look = r.now + QUORUM_LOST
        if r.now - r.lead.grown >= QUORUM_LOST and not quorum_heard(r):
            return become_follower(r, 0)
    if r.lead.lacks and r.role == RAFT_ELECTED and (late or r.now >= r.lead.heartbeat and all_have_log(r)):
        return become_follower(r, 0)            # a member that has the state asks for votes before this one does again
    if r.now >= r.lead.heartbeat:
        r.lead.heartbeat = r.now + HEARTBEAT
        catch_ups_look(r)
        rc = returned_join(r)
        if rc == RAFT_OK and r.now - r.lead.said > HEARTBEAT:
            rc = message_send(r, span(NULL, 0), 0)
    return rc


cdef int raft_tick(Raft* r, int64_t now) noexcept nogil:
    r.now = max(r.now, now)
    if r.role == RAFT_STOPPED:
        return RAFT_OK
    if is_leading(r):
        return lead_tick(r)
    if r.observer or r.now < r.follow.election:
        return RAFT_OK
    r.follow.seek.on = False
    if r.follow.behind.state == CATCHING_UP and r.role == RAFT_FOLLOWER:
        if r.now - r.follow.behind.active >= STALLED:
            catching_up_over(r)
        r.follow.handed = False
        await_leader(r)
        return RAFT_OK
    # One whose removal is not committed may have what the others need (Raft thesis, 4.2.2).
    if is_outside(r) and not change_pends(r, r.id):
        r.follow.handed = False
        await_leader(r)
        return RAFT_OK
    if is_behind(r) and not is_stuck(r):        # it would lead without knowing what it has
        r.follow.election = r.now + CAMPAIGN_BEHIND
        return RAFT_OK
    return campaign(r)


cdef int raft_campaign(Raft* r) noexcept nogil:
    if r.role == RAFT_FOLLOWER and not r.observer and not r.lost:
        r.follow.election = min(r.follow.election, r.now + campaign_pause(r))
    return RAFT_OK


cdef int raft_gone(Raft* r, uint64_t peer) noexcept nogil:
    cdef RaftPeer* p = peer_find(&r.members, peer)
    if p != NULL:
        p.heard = 0
    return raft_campaign(r) if peer and r.follow.leader == peer else RAFT_OK
