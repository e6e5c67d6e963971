# Groups that another layer owns: it is called at the end of a turn, and reads committed records in place.

cdef void group_own(Group* g, void (*due)(void* ctx) noexcept nogil, void* ctx) noexcept nogil:
    g.owner_due = due
    g.owner_ctx = ctx
    owner_tell(g)                               # entries may be committed already


cdef bint group_next(Group* g, GroupRecord* out) noexcept nogil:
    cdef Span record
    cdef AppendEntry m
    out.damaged = False
    if g.stopped or g.state_index or g.given >= g.commit:
        return False
    if not raftlog_load(g.log, g.given + 1, &record) or not append_entry_read(record, &m):
        out.damaged = True
        return False
    out.index = g.given + 1
    out.term = m.term
    out.entries = m.entries
    return True


cdef void group_given(Group* g) noexcept nogil:
    g.given += 1


cdef void group_applied(Group* g, uint64_t index) noexcept nogil:
    if g.stopped:
        return
    if raft_applied(g.raft, index) < 0:
        raft_failed(g.raft)
    group_due(g)


cdef uint64_t group_state_take(Group* g, uint64_t* term, Bytes* state) noexcept nogil:
    cdef uint64_t index = g.state_index
    bytes_free(state)
    state[0] = g.state
    term[0] = g.state_term
    memset(&g.state, 0, sizeof(Bytes))
    g.state_index = 0
    return index


cdef int group_propose(Group* g, EntryType type, Span data) noexcept nogil:
    cdef RaftState s
    cdef int rc
    if g.stopped:
        return RAFT_NOT_LEADER
    raft_state(g.raft, &s)
    rc = raft_propose(g.raft, s.term, type, data)
    if rc == RAFT_NO_MEMORY:
        raft_failed(g.raft)
    group_due(g)
    return rc


cdef uint64_t group_ask(Group* g) noexcept nogil:
    if g.stopped:
        return UINT64_MAX
    group_due(g)
    return raft_ask(g.raft)


cdef int group_snapshot(Group* g, uint64_t term, uint64_t index, Span state) noexcept nogil:
    cdef Snapshot s
    s.term, s.index, s.state = term, index, state
    s.peers = raftlog_peers(g.log)
    return raftlog_snapshot(g.log, &s)
