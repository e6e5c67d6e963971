# Messages to the other members of a group.

cdef void group_say(Group* g, Span to, Span reply, Span body) noexcept nogil:
    # Nothing is sent twice: the protocol recovers from lost messages.
    cdef Msg m
    cdef Env* env = g.of.env
    memset(&m, 0, sizeof(Msg))
    m.dest = to
    m.subject = to
    m.reply = reply
    m.data = body
    m.kind = KIND_SYSTEM
    m.account = g.of.account
    env.out.send(env.out.ctx, &m)


cdef inline Span subject_of(const Inlet* inlet) noexcept nogil:
    return span(inlet.subject, inlet.n)


cdef Span round_reply(const Group* g, uint64_t round, char* room) noexcept nogil:
    # The inbox of a round, in INLET_ROOM bytes.
    cdef uint32_t n = g.responses.n
    memcpy(room, g.responses.subject, n)
    room[n] = c'.'
    return span(room, n + 1 + put_u64(<uint8_t*>room + n + 1, round))


cdef Span reply_of(const Group* g, RaftReply reply) noexcept nogil:
    if reply == REPLY_VOTES:
        return subject_of(&g.votes)
    if reply == REPLY_RESPONSES:
        return subject_of(&g.responses)
    if reply == REPLY_CATCH_UP:
        return subject_of(&g.catch_up)
    return span(NULL, 0)


cdef int record_again(Group* g, Span record, uint64_t lterm) noexcept nogil:
    # Writes a stored record into g.draft as a message for catching up. Its bytes; 0: the record is damaged; RAFT_NO_MEMORY
    cdef AppendEntry m
    cdef int rc
    if not append_entry_read(record, &m):
        return 0
    m.lterm = lterm
    g.draft.n = 0
    rc = append_entry_write(&g.draft, &m)
    return rc if rc < 0 else <int>g.draft.n


cdef StateWanted* state_before(Group* g, Span to) noexcept nogil:
    # The snapshot that must reach this subject before any record: a member takes no record that leaves a gap.
    cdef StateWanted* w = g.of.sending
    cdef ListNode* at = list_first(&g.of.states)
    while w == NULL or w.group != g or not span_eq(span(w.to, w.n_to), to):
        if at == NULL:
            return NULL
        w = state_at(at)
        at = list_next(&g.of.states, at)
    return w


cdef int record_send(Group* g, const RaftAction* a) noexcept nogil:
    # 0 or an error of the group.
    cdef StateWanted* w = state_before(g, a.to)
    cdef Span record
    cdef int n = 0
    cdef uint64_t peer = a.peer, index = a.index
    if w != NULL:
        w.peer, w.index, w.term = peer, index, a.term
        return 0
    if raftlog_load(g.log, index, &record):
        n = record_again(g, record, a.term)
    if n > 0:
        group_say(g, a.to, subject_of(&g.responses), span(g.draft.data, <uint32_t>n))
    return n if n < 0 else raft_sent(g.raft, peer, index, <uint32_t>n)


cdef int state_want(Group* g, const RaftAction* a) noexcept nogil:
    # Another thread reads the snapshot from disk. A member that gets none asks again.
    cdef StateWanted* w
    if a.to.n > TO_MAX:
        return RAFT_OK
    w = <StateWanted*>calloc(1, sizeof(StateWanted))
    if w == NULL:
        return RAFT_NO_MEMORY
    w.group = g
    w.n_to = a.to.n
    memcpy(w.to, a.to.p, a.to.n)
    list_push_back(&g.of.states, &w.node)
    groups_wake(g.of)
    return RAFT_OK


cdef void groups_wake(void* ctx) noexcept nogil:
    # RaftFiles.wake, too.
    cdef Groups* all = <Groups*>ctx
    all.due = True
    all.env.system.signal(all.env.system.ctx, &all.work)


cdef int state_message(Group* g, Span file, Bytes* out) noexcept nogil:
    # Turns a snapshot's file into the message that carries it. 0 | RAFT_NO_MEMORY | RAFT_TOO_LARGE
    cdef Snapshot s
    cdef Bytes entries
    cdef AppendEntry m
    cdef RaftState now
    cdef int rc
    if not snapshot_read(name_of(g), file, &s):
        return RAFT_TOO_LARGE
    memset(&entries, 0, sizeof(Bytes))
    memset(&m, 0, sizeof(AppendEntry))
    raft_state(g.raft, &now)
    m.leader = g.id
    m.term = now.term
    m.commit = now.commit
    m.pterm = s.term
    m.pindex = s.index
    m.n = 2
    rc = entry_write(&entries, ENTRY_SNAPSHOT, s.state)
    if rc == 0:
        rc = entry_write(&entries, ENTRY_PEER_STATE, s.peers)
    if rc == 0 and entries.n > UINT32_MAX:
        rc = RAFT_TOO_LARGE
    if rc == 0:
        m.entries = span(entries.data, <uint32_t>entries.n)
        rc = append_entry_write(out, &m)
    bytes_free(&entries)
    return rc
