# Messages of other members.

cdef int heard(Group* g, int rc) noexcept nogil:
    # After a message was handled.
    if rc == RAFT_NO_MEMORY:
        raft_failed(g.raft)
    group_due(g)
    return 1


cdef inline Group* listener_of(void* target) noexcept nogil:
    # The group that a message is for, its clock set to now; NULL: the group is stopped.
    cdef Group* g = (<Inlet*>target).group
    if g.stopped or raft_tick(g.raft, g.of.env.mono) < 0:
        return NULL
    return g


cdef int vote_request_in(void* target, const Msg* m) noexcept nogil:
    cdef Group* g = listener_of(target)
    return heard(g, raft_vote_request(g.raft, m.data, m.reply)) if g != NULL else 0


cdef int vote_in(void* target, const Msg* m) noexcept nogil:
    cdef Group* g = listener_of(target)
    return heard(g, raft_vote_response(g.raft, m.data)) if g != NULL else 0


cdef int append_in(void* target, const Msg* m) noexcept nogil:
    cdef Group* g = listener_of(target)
    return heard(g, raft_append(g.raft, m.data, m.reply, 0)) if g != NULL else 0


cdef int catch_up_in(void* target, const Msg* m) noexcept nogil:
    cdef Group* g = listener_of(target)
    return heard(g, raft_append(g.raft, m.data, m.reply, g.catch_up_number)) if g != NULL else 0


cdef int response_in(void* target, const Msg* m) noexcept nogil:
    cdef Group* g = listener_of(target)
    return heard(g, raft_response(g.raft, m.data, m.reply, 0)) if g != NULL else 0


cdef int round_in(void* target, const Msg* m) noexcept nogil:
    # The round's number is the subject's last token.
    cdef Group* g = listener_of(target)
    cdef uint64_t round
    cdef uint32_t before
    if g == NULL:
        return 0
    before = g.responses.n + 1
    if m.dest.n <= before or not get_u64(span(m.dest.p + before, m.dest.n - before), &round):
        return 1
    return heard(g, raft_response(g.raft, m.data, m.reply, round))


cdef bint leads(const Group* g) noexcept nogil:
    cdef RaftState s
    raft_state(g.raft, &s)
    return s.role == RAFT_LEADER


cdef int proposal_in(void* target, const Msg* m) noexcept nogil:
    # A proposal with a reply is answered once the leader has it in its log.
    cdef Group* g = listener_of(target)
    cdef int rc
    if g == NULL:
        return 0
    rc = raft_forwarded(g.raft, m.data)
    if rc == 0 and m.reply.n and leads(g):
        group_say(g, m.reply, span(NULL, 0), span(NULL, 0))
    return heard(g, rc)


cdef int removal_in(void* target, const Msg* m) noexcept nogil:
    cdef Group* g = listener_of(target)
    return heard(g, raft_forwarded_removal(g.raft, m.data)) if g != NULL else 0


# ---- subscriptions -----------------------------------------------------------------------------------------

cdef void* group_hear(Group* g, Span subject, inbound_fn fn, void* target) noexcept nogil:
    return g.of.env.out.subscribe(g.of.env.out.ctx, g.of.account, subject, HEARS_SERVERS, fn, target)


cdef void group_deaf(Group* g, void** sub) noexcept nogil:
    if sub[0] != NULL:
        g.of.env.out.unsubscribe(g.of.env.out.ctx, sub[0])
        sub[0] = NULL


cdef bint listen(Group* g, Inlet* inlet, const char* prefix, Span last, inbound_fn fn) noexcept nogil:
    # False: no memory.
    cdef uint32_t n = <uint32_t>strlen(prefix)
    inlet.group = g
    memcpy(inlet.subject, prefix, n)
    memcpy(inlet.subject + n, last.p, last.n)
    inlet.n = n + last.n
    inlet.sub = group_hear(g, subject_of(inlet), fn, inlet)
    return inlet.sub != NULL


cdef bint listen_inbox(Group* g, Inlet* inlet, const char* prefix, inbound_fn fn) noexcept nogil:
    cdef uint8_t token[TOKEN]
    env_token(g.of.env, token, TOKEN)
    return listen(g, inlet, prefix, span(token, TOKEN), fn)


cdef bint catch_up_listen(Group* g, uint64_t number) noexcept nogil:
    # Each catch-up has its own inbox, so that late messages of an earlier catch-up reach nobody.
    if number == g.catch_up_number and g.catch_up.sub != NULL:
        return True
    group_deaf(g, &g.catch_up.sub)
    g.catch_up_number = number
    return listen_inbox(g, &g.catch_up, "$NRG.CR.", catch_up_in)


cdef bint rounds_listen(Group* g) noexcept nogil:
    # Subscribes before the first round of a leader. False: no memory.
    cdef char prefix[INLET_ROOM]
    if g.rounds.sub != NULL:
        return True
    memcpy(prefix, g.responses.subject, g.responses.n)
    prefix[g.responses.n] = 0
    return listen(g, &g.rounds, prefix, span_c(b".*"), round_in)


cdef bint listen_all(Group* g) noexcept nogil:
    cdef Span name = name_of(g)
    return (listen(g, &g.vote_requests, "$NRG.V.", name, vote_request_in)
            and listen(g, &g.appends, "$NRG.AE.", name, append_in)
            and listen_inbox(g, &g.votes, "$NRG.R.", vote_in)
            and listen_inbox(g, &g.responses, "$NRG.R.", response_in))


cdef bint listen_by_role(Group* g) noexcept nogil:
    # Subscribes to what only a leader hears. False: no memory.
    cdef Span name = name_of(g)
    cdef RaftState s
    raft_state(g.raft, &s)
    if s.role != RAFT_ELECTED and s.role != RAFT_LEADER:
        group_deaf(g, &g.proposals.sub)
        group_deaf(g, &g.removals.sub)
        group_deaf(g, &g.rounds.sub)
        return True
    return (g.proposals.sub != NULL
            or listen(g, &g.proposals, "$NRG.P.", name, proposal_in) and listen(g, &g.removals, "$NRG.RP.", name, removal_in))


cdef int look_around(Group* g) noexcept nogil:
    # Counts the other members by their subscriptions. 0 or an error of the group.
    cdef char subject[INLET_ROOM]
    cdef Outlet* out = &g.of.env.out
    cdef uint32_t others, n = strlen("$NRG.P.")
    g.look_pause = min(2 * g.look_pause, LOOK_MAX)
    g.look = g.of.env.mono + g.look_pause
    others = out.heard_by(out.ctx, g.of.account, subject_of(&g.vote_requests))
    memcpy(subject, <const char*>"$NRG.P.", n)
    memcpy(subject + n, g.name, g.n_name)
    return raft_seen(g.raft, g.of.env.mono, others, out.heard_by(out.ctx, g.of.account, span(subject, n + g.n_name)) > 0)


cdef void listen_to_none(Group* g) noexcept nogil:
    group_deaf(g, &g.vote_requests.sub)
    group_deaf(g, &g.appends.sub)
    group_deaf(g, &g.proposals.sub)
    group_deaf(g, &g.removals.sub)
    group_deaf(g, &g.votes.sub)
    group_deaf(g, &g.responses.sub)
    group_deaf(g, &g.rounds.sub)
    group_deaf(g, &g.catch_up.sub)
