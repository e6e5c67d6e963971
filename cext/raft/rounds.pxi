# A leader asks whether it still leads: by a heartbeat with a subject of its own for the answers. A member that answers well knew
# of no later term when the heartbeat came. So once a quorum has answered, nobody else led when the leader asked, and what the
# leader has committed by then is all that was committed when it asked (Raft thesis, 6.4).

cdef int rounds_count(Raft* r) noexcept nogil:
    # Counts the answers of a quorum.
    cdef Members* m = &r.members
    cdef uint64_t round = r.lead.confirmed, candidate
    cdef uint32_t i, j, have
    for i in range(m.n):
        candidate = r.round if m.a[i].id == r.id else m.a[i].round
        if candidate <= round:
            continue
        have = 0
        for j in range(m.n):
            if (r.round if m.a[j].id == r.id else m.a[j].round) >= candidate:
                have += 1
        if have >= quorum(m):
            round = candidate
    if round == r.lead.confirmed:
        return RAFT_OK
    r.lead.confirmed = round
    return act_plain(r, ACT_CONFIRMED, 0, 0, 0)


cdef int round_heard(Raft* r, RaftPeer* p, uint64_t round) noexcept nogil:
    if round <= p.round or round > r.round:
        return RAFT_OK
    p.round = round
    return rounds_count(r)


cdef uint64_t raft_ask(Raft* r) noexcept nogil:
    if r.role != RAFT_LEADER:
        return UINT64_MAX
    if r.members.size == 1 and peer_find(&r.members, r.id) != NULL:
        r.round += 1                            # nobody else can lead
        r.lead.confirmed = r.round
        return r.round
    r.lead.asks = True
    return r.round + 1


cdef inline bint round_begins(Raft* r) noexcept nogil:
    # Whether the end of a turn begins a round.
    cdef bint asks = r.lead.asks
    r.lead.asks = False
    r.round += asks
    return asks


cdef inline RaftReply heartbeat_reply(const Raft* r) noexcept nogil:
    # A round that is not confirmed yet goes on with each heartbeat: messages may be lost.
    return REPLY_ROUND if r.round > r.lead.confirmed else REPLY_RESPONSES
