# Opens and closes a group; what all groups of a server share.

cdef Groups* groups_new(Env* env, Committer* committer, void* account) noexcept nogil:
    cdef Groups* all = <Groups*>calloc(1, sizeof(Groups))
    if all == NULL:
        return NULL
    all.env = env
    all.account = account
    all.files = raft_files_new(env, committer, groups_wake, all)
    if all.files == NULL:
        free(all)
        return NULL
    cond_init(&all.work)
    return all


cdef void groups_free(Groups* all) noexcept nogil:
    invariant(list_empty(&all.all), "groups are closed before what they share")
    raft_files_free(all.files)
    cond_free(&all.work)
    free(all)


cdef void groups_end(Groups* all) noexcept nogil:
    all.ending = True
    all.env.system.broadcast(all.env.system.ctx, &all.work)


cdef int state_sent(StateWanted* w, bint sent) noexcept nogil:
    # The record that waited behind the snapshot is sent, or is due again. 0 or an error of the group.
    cdef RaftAction a
    memset(&a, 0, sizeof(RaftAction))
    a.peer, a.index, a.term = w.peer, w.index, w.term
    a.to = span(w.to, w.n_to)
    group_due(w.group)
    return record_send(w.group, &a) if sent else raft_sent(w.group.raft, w.peer, w.index, 0)


cdef void state_send(Groups* all, StateWanted* w) noexcept nogil:
    # WITHOUT the lock: group_close waits while w is all.sending. A snapshot that cannot be read is asked for again.
    cdef Group* g = w.group
    cdef Bytes file, message
    cdef int rc
    cdef bint sent = False
    memset(&file, 0, sizeof(Bytes))
    memset(&message, 0, sizeof(Bytes))
    rc = raftlog_snapshot_file(g.log, &file)
    env_lock(all.env)
    if rc == 0 and not g.stopped and state_message(g, span(file.data, <uint32_t>file.n), &message) == 0:
        group_say(g, span(w.to, w.n_to), subject_of(&g.responses), span(message.data, <uint32_t>message.n))
        sent = True
    all.sending = NULL
    if w.index and not g.stopped and state_sent(w, sent) < 0:
        raft_failed(g.raft)
    all.env.system.broadcast(all.env.system.ctx, &all.work)
    env_unlock(all.env)
    bytes_free(&file)
    bytes_free(&message)
    free(w)


cdef bint groups_round(Groups* all) noexcept nogil:
    cdef StateWanted* w
    cdef bint ending
    env_lock(all.env)
    while not all.due and not all.ending and list_empty(&all.states):
        env_wait(all.env, &all.work, INT64_MAX)
    all.due = False
    ending = all.ending
    w = state_at(list_pop(&all.states))
    all.sending = w
    env_unlock(all.env)
    if w != NULL:
        state_send(all, w)
    raft_files_write(all.files)
    return not ending


# ---- a group ---------------------------------------------------------------------------------------------

cdef Group* group_open(Groups* all, Span directory, Span name, const RaftConfig* cfg, Span peers, bint memory, bint synced,
                       RaftFound* found, char* err, size_t err_cap) noexcept nogil:
    cdef Group* g
    cdef RaftConfig mine = cfg[0]
    cdef uint64_t[4] key = [0, 0, 0, 0]
    cdef bint heard
    if name.n == 0 or name.n > GROUP_NAME_MAX:
        snprintf(err, err_cap, "the group's name is too long")
        return NULL
    g = <Group*>calloc(1, sizeof(Group))
    if g == NULL:
        snprintf(err, err_cap, "no memory")
        return NULL
    g.of = all
    g.id = cfg.id
    mine.turns = hh64(key, name.p, name.n)
    g.n_name = name.n
    memcpy(g.name, name.p, name.n)
    g.timer.fn = group_tick
    g.timer.owner = g
    g.task.fn = group_pump
    g.task.owner = g
    g.stopped = True                            # until it has subscribed
    if memory:
        g.log = raftlog_open_memory(all.files, directory, name, &mine, peers, group_ready, g, found, err, err_cap)
    else:
        g.log = raftlog_open(all.files, directory, name, &mine, peers, synced, group_ready, g, found, err, err_cap)
    if g.log == NULL:
        free(g)
        return NULL
    g.raft = raftlog_raft(g.log)
    g.commit = g.given = found.snapshot_index
    g.look_pause = LOOK_MIN
    env_lock(all.env)
    all.last += 1
    g.number = all.last
    g.stopped = False
    list_push_back(&all.all, &g.node)
    heard = listen_all(g)
    if heard:
        group_due(g)
    else:
        group_stop(g)
    env_unlock(all.env)
    if not heard:
        group_close(g)
        snprintf(err, err_cap, "no memory")
        return NULL
    return g


cdef void group_stop(Group* g) noexcept nogil:
    cdef ListNode* at = list_first(&g.of.states)
    cdef ListNode* after
    if g.stopped:
        return
    g.stopped = True
    raft_stop(g.raft)
    listen_to_none(g)
    timer_cancel(&g.of.env.timers, &g.timer)
    task_cancel(&g.task)
    while at != NULL:
        after = list_next(&g.of.states, at)
        if state_at(at).group == g:
            list_remove(at)
            free(state_at(at))
        at = after
    raftlog_stop(g.log)


cdef void group_close(Group* g) noexcept nogil:
    env_lock(g.of.env)
    while g.of.sending != NULL and g.of.sending.group == g:
        env_wait(g.of.env, &g.of.work, INT64_MAX)
    list_remove(&g.node)
    env_unlock(g.of.env)
    raftlog_close(g.log)
    bytes_free(&g.draft)
    bytes_free(&g.state)
    free(g)
