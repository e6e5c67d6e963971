# Carries out a group's actions, once at the end of a turn.

cdef void group_ready(void* ctx) noexcept nogil:
    # The log calls it when something has reached the disk.
    group_due(<Group*>ctx)


cdef void owner_tell(Group* g) noexcept nogil:
    # Calls another layer at the end of the turn; tells the control plane once, until it takes the entries.
    cdef Event ev
    g.news = True
    if g.owner_due != NULL or g.told:
        return
    g.told = True
    memset(&ev, 0, sizeof(Event))
    ev.kind = EV_GROUP
    ev.account = g.of.account
    ev.num[0] = <int64_t>g.number
    g.of.env.out.event(g.of.env.out.ctx, &ev)


cdef int state_take_over(Group* g, const RaftAction* a) noexcept nogil:
    # A leader's state replaces all that was not given to the owner yet.
    g.state.n = 0
    if bytes_add(&g.state, a.body.p, a.body.n) < 0:
        return RAFT_NO_MEMORY
    g.state_index = a.index
    g.state_term = a.term
    g.given = a.index
    g.commit = max(g.commit, a.index)
    owner_tell(g)
    return RAFT_OK


cdef int said(Group* g, const RaftAction* a) noexcept nogil:
    cdef char room[INLET_ROOM]
    if a.reply == REPLY_CATCH_UP and not catch_up_listen(g, a.index):
        return RAFT_NO_MEMORY
    if a.reply == REPLY_ROUND:
        if not rounds_listen(g):
            return RAFT_NO_MEMORY
        group_say(g, subject_of(&g.appends), round_reply(g, a.index, room), a.body)
    elif a.what == SEND_VOTE_REQUEST:
        group_say(g, subject_of(&g.vote_requests), reply_of(g, a.reply), a.body)
    elif a.what == SEND_APPEND:
        group_say(g, subject_of(&g.appends), reply_of(g, a.reply), a.body)
    else:
        group_say(g, a.to, reply_of(g, a.reply), a.body)
    return RAFT_OK


cdef int carry_out(Group* g, const RaftAction* a) noexcept nogil:
    # 0 or an error of the group.
    if a.act == ACT_SEND:
        return said(g, a)
    if a.act == ACT_CONFIRMED:
        owner_tell(g)
        return RAFT_OK
    if a.act == ACT_COMMIT:
        g.commit = max(g.commit, a.index)
        owner_tell(g)
    elif a.act == ACT_RECORD:
        return record_send(g, a)
    elif a.act == ACT_STATE:
        return state_want(g, a)
    elif a.act == ACT_ROLE:
        owner_tell(g)
        if not listen_by_role(g):
            return RAFT_NO_MEMORY
    elif a.act == ACT_DIVERGED:
        g.diverged = True
        owner_tell(g)
    elif a.act == ACT_INSTALL and state_take_over(g, a) < 0:
        return RAFT_NO_MEMORY
    raftlog_act(g.log, a)
    return RAFT_OK


cdef void group_pump(Task* t) noexcept nogil:
    cdef Group* g = <Group*>t.owner
    cdef RaftAction a
    cdef int64_t at
    if g.stopped:
        return
    if raft_turn_end(g.raft) < 0:
        raft_failed(g.raft)
    while raft_next_action(g.raft, &a):
        if carry_out(g, &a) < 0:
            raft_failed(g.raft)
    at = raft_deadline(g.raft)
    if raft_seeks(g.raft):
        at = min(at, g.look)
    if at == INT64_MAX:
        timer_cancel(&g.of.env.timers, &g.timer)
    elif timer_set(&g.of.env.timers, &g.timer, at) < 0:
        raft_failed(g.raft)
    if g.news and g.owner_due != NULL:
        g.news = False
        g.owner_due(g.owner_ctx)                # last: it may have stopped the group


cdef void group_tick(Timer* t, int64_t now) noexcept nogil:
    cdef Group* g = <Group*>t.owner
    if raft_tick(g.raft, now) < 0:
        raft_failed(g.raft)
    if raft_seeks(g.raft) and now >= g.look and look_around(g) < 0:
        raft_failed(g.raft)
    group_due(g)


cdef bint records_take(Group* g, Bytes* out, size_t most) noexcept nogil:
    # Adds committed records that were not given yet, about `most` bytes, each with its length before it. False: one cannot be
    # read.
    cdef Span record
    cdef uint64_t length
    cdef size_t before = out.n
    g.told = False
    while g.given < g.commit and out.n < most:
        before = out.n
        if not raftlog_load(g.log, g.given + 1, &record):
            return False
        length = record.n
        if bytes_add(out, &length, 8) < 0 or bytes_add(out, record.p, record.n) < 0:
            out.n = before
            return False
        g.given += 1
    g.told = g.given < g.commit                 # the taker comes back by itself
    return True
