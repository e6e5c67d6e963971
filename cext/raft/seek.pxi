# A member that was just opened looks for a leader. nats-server's members wait for 4 to 9 seconds even when all of them are up
# without a leader, and a candidate that asked too early waits once more. This member sees by the subscriptions of the others how
# many are up, and whether one leads. It never challenges a live leader.

cdef bint raft_seeks(const Raft* r) noexcept nogil:
    # A candidate keeps looking, because votes may be split; the chosen first leader has no rival.
    cdef const Seeking* k = &r.follow.seek
    if not k.on or r.observer:
        return False
    return r.role == RAFT_FOLLOWER or r.role == RAFT_CANDIDATE and not r.ballot.asking and k.first != FIRST_OWN


cdef void raft_choose(Raft* r, FirstLeader first) noexcept nogil:
    r.follow.seek.first = first
    if first == FIRST_ANY and r.fresh and not r.lost:
        r.follow.seek.on = True                 # the others' ids are not known yet, only the least number of members
        r.follow.seek.pause = campaign_pause(r)         # as long as nats-server's members wait in this case


cdef uint64_t turn_of(const Raft* r, uint64_t id) noexcept nogil:
    # The order differs from group to group, so that no server leads most groups of the same members.
    cdef uint64_t z = id ^ r.turns
    return split_mix(&z)


cdef int64_t turn_wait(const Raft* r) noexcept nogil:
    # Members ask in turns: if all asked at once, the vote would be split.
    cdef uint64_t own = turn_of(r, r.id)
    cdef uint32_t i
    cdef int64_t before = 0
    for i in range(r.members.n):
        if turn_of(r, r.members.a[i].id) < own:
            before += 1
    return before * SEEK_TURN


cdef int logs_ask(Raft* r, uint32_t others) noexcept nogil:
    # Asks all members whether their logs are empty, before this one takes the group to be new: by a request for votes in term 0.
    # No member gives its vote then but a nats-server that is new, too; and each member that has an older term says in its refusal
    # whether its log is empty.
    cdef VoteRequest q
    cdef Bytes b
    cdef int rc
    memset(&b, 0, sizeof(Bytes))
    memset(&q, 0, sizeof(VoteRequest))
    q.candidate = r.id
    r.follow.seek.asked = others
    r.follow.seek.asked_at = r.now
    ballot_clear(&r.ballot)
    rc = vote_request_write(&b, &q)
    if rc == RAFT_OK:
        rc = act_send(r, SEND_VOTE_REQUEST, span(NULL, 0), REPLY_VOTES, span(b.data, <uint32_t>b.n))
    bytes_free(&b)
    return rc


cdef bint may_begin(const Raft* r, uint32_t others) noexcept nogil:
    # Whether a new group without a chosen first leader may begin: the others have said that their logs are empty, or have had the
    # time to, and members that are not there yet have had the time to come.
    cdef const Seeking* k = &r.follow.seek
    if is_asking(r, others):
        return False
    return r.now - k.quorum_at >= k.pause + (0 if k.all_at or k.tries else SEEK_ABSENT)


cdef bint is_turn(const Raft* r, uint32_t others) noexcept nogil:
    # For a member that sees a quorum and no leader. In a new group the chosen first leader asks at once, and the others leave it
    # time for that; without a chosen one, any member asks soon.
    cdef const Seeking* k = &r.follow.seek
    if r.fresh and k.first == FIRST_ANY:
        return may_begin(r, others)
    if r.members.size == 1:
        return True
    if r.fresh and k.first == FIRST_OWN and (k.all_at or r.now - k.quorum_at >= SEEK_CHOSEN):
        return True
    if k.all_at and not r.fresh and r.now - k.all_at >= SEEK_ALL + turn_wait(r):
        return True
    return r.now - k.quorum_at >= SEEK_QUORUM + turn_wait(r)


cdef int raft_seen(Raft* r, int64_t now, uint32_t others, bint led) noexcept nogil:
    cdef Seeking* k = &r.follow.seek
    r.now = max(r.now, now)
    if not raft_seeks(r):
        return RAFT_OK
    if led and r.members.size > 1 or others + 1 < quorum(&r.members):
        k.all_at = k.quorum_at = 0
        return RAFT_OK
    if k.quorum_at == 0:
        k.quorum_at = r.now
    if others + 1 < r.members.size:
        k.all_at = 0
    elif k.all_at == 0:
        k.all_at = r.now
    if r.fresh and k.first == FIRST_ANY and r.role == RAFT_FOLLOWER:
        k.asked = min(k.asked, others)          # a member that comes back is another one
        await_leader(r)                         # until this member may begin
        if others > k.asked:
            return logs_ask(r, others)
    if not is_turn(r, others) or is_outside(r) or r.apply.applied < r.apply.commit:
        return RAFT_OK
    k.tries += 1
    k.on = k.tries < SEEK_TRIES                 # tries again after a split vote or a greater term
    k.all_at = k.quorum_at = 0
    k.pause = campaign_pause(r)
    return campaign(r)
