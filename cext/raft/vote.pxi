# Elections. A vote, also the own one, is on disk before anybody hears of it.

cdef inline bint log_is_empty(const Raft* r) noexcept nogil:
    return r.log.last == 0


cdef inline bint counts_as_empty(const Raft* r) noexcept nogil:
    # Whether this member's vote does.
    return r.lost or log_is_empty(r) and not r.fresh


cdef void older_found(Raft* r) noexcept nogil:
    # Another member's log holds something, so the group is not new, and this member's empty log may have lost what it had.
    r.fresh = False
    if log_is_empty(r):
        r.older = True
        r.follow.seek.on = False


cdef int vote_answer(Raft* r, Span to, bint granted) noexcept nogil:
    cdef VoteResponse answer
    cdef Bytes b
    cdef int rc
    memset(&b, 0, sizeof(Bytes))
    answer.term = r.term
    answer.peer = r.id
    answer.granted = granted
    # A member that lost something counts like an empty one, where all have to vote: it may have voted in this term before,
    # or have had more than the candidate. In a refusal `empty` says only whether the log is.
    answer.empty = counts_as_empty(r) if granted else log_is_empty(r)
    rc = vote_response_write(&b, &answer)
    if rc == RAFT_OK:
        rc = act_send(r, SEND_REPLY, to, REPLY_NONE, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return rc


cdef bint is_asking(const Raft* r, uint32_t others) noexcept nogil:
    # Whether this member of a new group still waits for members to say that their logs are empty.
    return r.role == RAFT_FOLLOWER and r.ballot.n_voters < others and r.now - r.follow.seek.asked_at < SEEK_ASKED


cdef bint is_early(const Raft* r) noexcept nogil:
    # Whether it is too early for a new group without a chosen first leader to begin: a nats-server asks for votes at once. This
    # member asks for votes itself later.
    cdef const Seeking* k = &r.follow.seek
    if not (r.fresh and k.on and k.first == FIRST_ANY) or k.tries:
        return False
    if k.quorum_at == 0 or is_asking(r, k.asked):
        return True
    return k.all_at == 0 and r.now - k.quorum_at < SEEK_ABSENT - SECOND     # less than a candidate waits


cdef int raft_vote_request(Raft* r, Span body, Span reply) noexcept nogil:
    cdef VoteRequest q
    cdef bint free_to, up_to_date
    cdef int rc
    if r.role == RAFT_STOPPED or reply.n == 0 or reply.n > REPLY_MAX or not vote_request_read(body, &q):
        return RAFT_OK
    if q.term and q.last_index < r.base:
        return RAFT_OK                          # an answer would tell a term that outvotes those who have this history
    if q.last_index:
        older_found(r)
    # A request in term 0 only asks whether the log is empty.
    if q.term < r.term or q.term == 0:
        return vote_answer(r, reply, False)
    if q.term > r.term:
        if r.role != RAFT_FOLLOWER:
            rc = become_follower(r, 0)
            if rc < 0:
                return rc
        catching_up_over(r)
        rc = term_take(r, q.term)
        if rc < 0:
            return rc
    free_to = r.vote == 0 or r.vote == q.candidate
    up_to_date = (q.last_term > r.log.last_term
                  or q.last_term == r.log.last_term and q.last_index >= r.log.last)
    if q.last_index == 0 and log_is_empty(r) and (r.older or is_early(r)):
        return vote_answer(r, reply, False)     # a member whose log holds something is to lead
    if not (free_to and up_to_date):
        if r.vote == 0 and r.role == RAFT_FOLLOWER and not r.observer and not r.lost:
            campaign_soon(r)                    # it has more than the candidate
        return vote_answer(r, reply, False)
    r.vote = q.candidate
    r.follow.seek.on = False
    await_leader(r)
    r.ballot.owed_to = q.candidate
    memcpy(r.ballot.reply, reply.p, reply.n)
    r.ballot.n_reply = reply.n
    return act_plain(r, ACT_VOTE, 0, r.term, r.vote)


cdef int raft_voted(Raft* r, uint64_t term, uint64_t vote) noexcept nogil:
    if term != r.term or vote != r.vote or vote == 0 or r.role == RAFT_STOPPED:
        return RAFT_OK                          # another one is on its way to the disk
    if vote != r.id:
        if r.ballot.owed_to != vote:
            return RAFT_OK
        r.ballot.owed_to = 0
        return vote_answer(r, span(r.ballot.reply, r.ballot.n_reply), True)
    if r.role != RAFT_CANDIDATE or not r.ballot.asking:
        return RAFT_OK
    r.ballot.asking = False
    return votes_ask(r)


cdef int votes_ask(Raft* r) noexcept nogil:
    cdef VoteRequest q
    cdef Bytes b
    cdef int rc
    memset(&b, 0, sizeof(Bytes))
    q.term = r.term
    q.last_term = r.log.last_term
    q.last_index = r.log.last
    q.candidate = r.id
    rc = vote_request_write(&b, &q)
    if rc == RAFT_OK:
        rc = act_send(r, SEND_VOTE_REQUEST, span(NULL, 0), REPLY_VOTES, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return rc if rc < 0 else vote_count(r, r.id, counts_as_empty(r))


cdef int campaign(Raft* r) noexcept nogil:
    # A term of its own, and a vote for itself.
    cdef int rc
    invariant(not r.observer, "an observer asks nobody for a vote")
    r.role = RAFT_CANDIDATE
    r.follow.leader = 0
    r.follow.handed = False
    ballot_clear(&r.ballot)
    rc = term_take(r, r.term + 1)
    if rc < 0:
        return rc
    r.vote = r.id
    r.ballot.asking = True
    await_leader(r)
    rc = act_plain(r, ACT_VOTE, 0, r.term, r.vote)
    return rc if rc < 0 else act_role(r)


cdef bint assigned_agree(const Raft* r) noexcept nogil:
    # A leader that is a nats-server counts those that are assigned from the moment at which it knows them, without a word in the
    # log. So who wants to lead needs a quorum of them, too: what such a leader has committed is on one of these.
    cdef const Members* m = &r.members
    cdef uint32_t i, n = 0
    for i in range(r.ballot.n_voters):
        n += is_assigned(m, r.ballot.voters[i])
    return m.n_assigned == 0 or n >= m.n_assigned // 2 + 1


cdef int voter_add(Ballot* b, uint64_t peer) noexcept nogil:
    # 1, 0 where it is there already or there is no room, or RAFT_NO_MEMORY.
    cdef uint64_t* a
    cdef uint32_t i
    for i in range(b.n_voters):
        if b.voters[i] == peer:
            return 0
    if b.n_voters == RAFT_PEERS_MAX:
        return 0
    a = <uint64_t*>realloc(b.voters, (b.n_voters + 1) * sizeof(uint64_t))
    if a == NULL:
        return RAFT_NO_MEMORY
    b.voters = a
    a[b.n_voters] = peer
    b.n_voters += 1
    return 1


cdef int vote_count(Raft* r, uint64_t peer, bint empty) noexcept nogil:
    # Won by a quorum of members whose logs hold something; or by all there are, the empty ones too. So no majority of
    # members that lost their disks elects one of them.
    cdef Ballot* b = &r.ballot
    cdef int rc
    # While a group comes into being not all of its members are known.
    cdef bint counts = peer_find(&r.members, peer) != NULL or r.members.n < r.members.size
    if not counts and not is_assigned(&r.members, peer):
        return RAFT_OK
    rc = voter_add(b, peer)
    if rc <= 0:
        return rc
    b.granted += counts
    empty = empty or not counts
    if not empty:
        b.granted_full += 1
    if b.granted_full >= quorum(&r.members) or b.granted == r.members.size:
        return become_leader(r) if assigned_agree(r) else RAFT_OK
    return RAFT_OK


cdef int raft_vote_response(Raft* r, Span body) noexcept nogil:
    cdef VoteResponse v
    cdef RaftPeer* p
    cdef int rc
    if r.role == RAFT_STOPPED or not vote_response_read(body, &v):
        return RAFT_OK
    if not v.granted and not v.empty and v.peer != r.id and log_is_empty(r):
        older_found(r)
    if r.role == RAFT_FOLLOWER:
        rc = voter_add(&r.ballot, v.peer) if r.follow.seek.on and r.follow.seek.asked else 0
        return min(rc, 0)
    if v.term > r.term:
        rc = term_take(r, v.term)
        return rc if rc < 0 else become_follower(r, 0)
    if r.role != RAFT_CANDIDATE or r.ballot.asking or not v.granted or v.term != r.term:
        return RAFT_OK
    p = peer_find(&r.members, v.peer)
    if p != NULL:
        p.heard = r.now
    return vote_count(r, v.peer, v.empty)
