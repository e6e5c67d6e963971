# A group from what the disk has to its end, and what it is told by its member.

cdef Raft* raft_new(const RaftConfig* cfg, const RaftStart* at, int64_t now) noexcept nogil:
    cdef Raft* r = <Raft*>calloc(1, sizeof(Raft))
    if r == NULL:
        return NULL
    r.id = cfg.id
    r.observer = cfg.observer
    r.managed = cfg.managed
    r.fresh = cfg.fresh
    r.lost = cfg.lost
    r.base = cfg.base if cfg.base <= at.snapshot_index else 0    # the rescue was cut short, and did not begin it
    r.random = cfg.seed
    r.turns = cfg.turns
    r.now = r.follow.led = now
    r.role = RAFT_FOLLOWER
    r.term = at.term
    r.vote = at.vote
    log_reset(&r.log, at.snapshot_index, at.snapshot_term)
    r.log.snapshot_index = at.snapshot_index
    r.log.snapshot_term = at.snapshot_term
    r.apply.commit = at.snapshot_index
    r.members.size = 1
    if base_take(r, at.peers) < 0 or members_rebuild(r) < 0:
        raft_free(r)
        return NULL
    r.follow.seek.first = FIRST_OTHER
    r.follow.seek.on = r.members.n == r.members.size and not (r.lost or r.fresh and r.members.n == 1)
    await_leader(r)
    return r


cdef void raft_free(Raft* r) noexcept nogil:
    if r == NULL:
        return
    catch_ups_end(&r.lead)
    free(r.members.a)
    free(r.members.removed)
    free(r.members.assigned)
    bytes_free(&r.members.base)
    bytes_free(&r.members.pending)
    free(r.log.eras)
    free(r.ballot.voters)
    bytes_free(&r.lead.proposals.entries)
    bytes_free(&r.queue)
    free(r)


cdef bint raft_replay(Raft* r, Span record) noexcept nogil:
    cdef AppendEntry m
    if (not append_entry_read(record, &m) or m.n == 0 or m.pindex != r.log.last or m.pterm != r.log.last_term
            or m.term < m.pterm or log_add(&r.log, m.pindex + 1, m.term) < 0):
        return False
    r.log.stored = r.log.quiet = r.log.last
    r.fresh = False
    if m.term > r.term:                         # the log was synced with it, the vote file was not
        r.term = m.term
        r.vote = 0
    if entries_heed(r, m.entries, r.log.last, False) < 0 or commit_to(r, min(m.commit, r.log.last)) < 0:
        return False
    return True


cdef int raft_snapshotted(Raft* r, uint64_t term, uint64_t index) noexcept nogil:
    if index <= r.log.snapshot_index:
        return RAFT_OK
    r.log.snapshot_term = term
    r.log.snapshot_index = index
    log_compact(&r.log, index)
    return RAFT_OK


cdef int raft_set_peers(Raft* r, const uint64_t* peers, uint32_t n) noexcept nogil:
    cdef Bytes b
    cdef int rc
    if not is_leading(r):
        return RAFT_NOT_LEADER
    if n == 0:
        return RAFT_LAST
    if n > RAFT_PEERS_MAX:
        return RAFT_TOO_LARGE
    memset(&b, 0, sizeof(Bytes))
    rc = peer_state_write(&b, n, <const uint8_t*>peers, n, r.members.extension)
    if rc == RAFT_OK:
        rc = entry_send(r, ENTRY_PEER_STATE, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return rc


cdef int raft_observe(Raft* r, bint observer) noexcept nogil:
    r.observer = observer
    if observer and r.role == RAFT_CANDIDATE:
        return become_follower(r, 0)
    if observer and is_leading(r):
        return raft_hand_over(r, 0)
    await_leader(r)
    return RAFT_OK


cdef void raft_state(const Raft* r, RaftState* out) noexcept nogil:
    out.role = r.role
    out.term = r.term
    out.leader = r.follow.leader
    out.first = r.log.first
    out.last = r.log.last
    out.last_term = r.log.last_term
    out.commit = r.apply.commit
    out.applied = r.apply.applied
    out.stored = r.log.stored
    out.generation = r.log.generation
    out.size = r.members.size
    out.quorum = quorum(&r.members)
    out.members = r.members.n
    out.lost = r.lost
    out.behind = r.follow.behind.state == CATCHING_UP
    out.vote = r.vote
    out.proposed = r.log.last + (1 if r.lead.proposals.n else 0)
    out.confirmed = r.lead.confirmed
    out.met = r.follow.met


cdef bint raft_peer(const Raft* r, uint32_t n, RaftPeerState* out) noexcept nogil:
    cdef const RaftPeer* p
    if n >= r.members.n:
        return False
    p = &r.members.a[n]
    out.id = p.id
    out.heard = p.heard
    out.match = r.log.stored if p.id == r.id else p.match
    out.leads = r.follow.leader == p.id
    return True
