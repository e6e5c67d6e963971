# Follower, candidate, leader: what each change of the role takes along, and the times until the next one.

cdef uint64_t random_below(Raft* r, uint64_t n) noexcept nogil:
    # For times that members choose apart: nothing that anybody must not guess.
    return split_mix(&r.random) % n


cdef void await_leader(Raft* r) noexcept nogil:
    # A whole election timeout from now on.
    if not r.follow.handed:
        r.follow.election = (r.now + ELECTION_MIN + <int64_t>random_below(r, ELECTION_SPREAD)
                             + (ELECTION_LOST if r.lost else 0))


cdef int64_t campaign_pause(Raft* r) noexcept nogil:
    # How long a member waits that is to ask for votes soon, each for another time.
    return CAMPAIGN_MIN + <int64_t>random_below(r, CAMPAIGN_SPREAD)


cdef void campaign_soon(Raft* r) noexcept nogil:
    r.follow.election = r.now + campaign_pause(r)


cdef inline bint is_leading(const Raft* r) noexcept nogil:
    return r.role == RAFT_ELECTED or r.role == RAFT_LEADER


cdef void catching_up_over(Raft* r) noexcept nogil:
    r.follow.behind.state = CATCHING_NOT


cdef void ballot_clear(Ballot* b) noexcept nogil:
    b.n_voters = b.granted_full = b.granted = 0
    b.asking = False


cdef void leading_clear(Raft* r) noexcept nogil:
    # What a leader knows of others, and what it has not said yet, goes with its term.
    cdef uint32_t i
    r.lead.proposals.entries.n = 0
    r.lead.proposals.n = 0
    catch_ups_end(&r.lead)
    r.lead.asks = False
    r.lead.confirmed = r.round
    for i in range(r.members.n):
        r.members.a[i].match = 0


cdef void raft_stop(Raft* r) noexcept nogil:
    if is_leading(r):
        leading_clear(r)
    ballot_clear(&r.ballot)
    r.role = RAFT_STOPPED


cdef int term_take(Raft* r, uint64_t term) noexcept nogil:
    # A greater term: nobody has this member's vote in it.
    invariant(term > r.term, "terms only grow")
    r.term = term
    r.vote = 0
    r.ballot.owed_to = 0
    return act_plain(r, ACT_VOTE, 0, term, 0)


cdef int become_follower(Raft* r, uint64_t leader) noexcept nogil:
    # leader: 0, not known.
    cdef bint changed = r.role != RAFT_FOLLOWER or r.follow.leader != leader
    if r.role == RAFT_STOPPED:
        return RAFT_OK
    if is_leading(r):
        leading_clear(r)
        r.follow.led = r.now
    ballot_clear(&r.ballot)
    r.role = RAFT_FOLLOWER
    r.follow.leader = leader
    r.follow.handed = False
    await_leader(r)
    return act_role(r) if changed else RAFT_OK
