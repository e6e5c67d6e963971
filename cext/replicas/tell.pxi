# News of members for the control plane, and a member's standing.

cdef void replica_tell(Group* g, Event* e, ReplicaNews what) noexcept nogil:
    # The caller sets the texts and the other numbers.
    e.kind = EV_REPLICA
    e.account = g.of.account
    e.num[0] = <int64_t>g.number
    e.num[1] = what
    g.of.env.out.event(g.of.env.out.ctx, e)


cdef void replica_tell_only(Group* g, ReplicaNews what) noexcept nogil:
    cdef Event e
    memset(&e, 0, sizeof(Event))
    replica_tell(g, &e, what)


cdef ReplicaStanding standing_based(ReplicaStanding standing) noexcept nogil:
    # The standing once a state is applied.
    return STANDS_JOINS if standing == STANDS_AWAITS or standing == STANDS_JOINS else STANDS_MEMBER


cdef bint has_joined(ReplicaStanding standing, const RaftState* now, uint64_t applied) noexcept nogil:
    # Whether a joining member has all that the group agreed on.
    return (standing == STANDS_JOINS and now.leader != 0 and not now.behind and applied == now.commit and applied > 0
            and now.last > 0)


cdef void replica_joined(Group* g) noexcept nogil:
    # Allows the member to ask for votes.
    raft_observe(g.raft, False)
    group_due(g)
    replica_tell_only(g, REPLICA_JOINED)


cdef const char* stopped_why(Group* g, ReplicaNews* what) noexcept nogil:
    # Why a group stopped by itself; NULL: this member was removed.
    cdef int error = raftlog_error(g.log)
    if error:
        what[0] = REPLICA_FAILED
        return strerror(error)
    if g.diverged:
        what[0] = REPLICA_DIVERGED
        return b"its log has what the group did not agree on"
    return NULL
