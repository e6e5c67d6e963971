# The log: records of a store without subjects, whose sequences are the indexes.

cdef int errno_of(const RaftLog* log, int rc) noexcept nogil:
    # Of an error of the store, or of the group.
    cdef int error = <int>store_error(log.store)
    if rc == RAFT_NO_MEMORY or error == 0:
        return ENOMEM
    return error


cdef void raftlog_fail(RaftLog* log, int error) noexcept nogil:
    # The disk or the memory refuses: the group hands over and stops.
    if log.failed or log.stopped:
        return
    log.failed = error
    raft_failed(log.raft)
    if log.ready != NULL:
        log.ready(log.ctx)


cdef int raftlog_error(const RaftLog* log) noexcept nogil:
    return log.failed


cdef int mark_add(RaftLog* log, uint64_t generation, uint64_t index) noexcept nogil:
    cdef Mark m
    cdef Mark* last = <Mark*>(log.marks.data + log.marks.n - sizeof(Mark)) if log.marks.n else NULL
    m.ticket = store_ticket(log.store)
    m.generation = generation
    m.index = index
    if log.memory:
        task_post(&log.files.env.tasks, &log.told)
    if last != NULL and last.ticket == m.ticket:
        last[0] = m
        return RAFT_OK
    return RAFT_NO_MEMORY if bytes_add(&log.marks, &m, sizeof(Mark)) < 0 else RAFT_OK


cdef void log_told(Task* t) noexcept nogil:
    # Of a log in memory.
    cdef RaftLog* log = <RaftLog*>t.owner
    log_durable(log, 0, store_durable_ticket(log.store), 0)


cdef void log_durable(void* ctx, uint64_t seq, uint64_t ticket, int error) noexcept nogil:
    cdef RaftLog* log = <RaftLog*>ctx
    cdef Mark m
    cdef size_t at = 0
    if log.stopped or log.failed:
        return
    if error:
        raftlog_fail(log, error)
        return
    while at < log.marks.n and (<Mark*>(log.marks.data + at)).ticket <= ticket:
        memcpy(&m, log.marks.data + at, sizeof(Mark))
        at += sizeof(Mark)
    if at == 0:
        return
    memmove(log.marks.data, log.marks.data + at, log.marks.n - at)
    log.marks.n -= at
    if raft_stored(log.raft, m.generation, m.index) < 0:
        raftlog_fail(log, ENOMEM)
    elif log.ready != NULL:
        log.ready(log.ctx)


cdef int record_add(RaftLog* log, uint64_t generation, uint64_t index, Span body) noexcept nogil:
    # 0 | an error of the store or the group: all of them are the end of it
    cdef Span none = span(NULL, 0)
    cdef int rc = store_append_at(log.store, index, log.files.env.now, none, none, body)
    return rc if rc < 0 else mark_add(log, generation, index)


cdef int log_end_at(RaftLog* log, uint64_t index) noexcept nogil:
    cdef StoreState s
    store_state(log.store, &s)
    return store_truncate(log.store, index, NULL, NULL) if s.last_seq > index else ST_OK


cdef int log_begin_behind(RaftLog* log, uint64_t index) noexcept nogil:
    # Empty: the next record is the one behind that index. 0 | an error of the store
    cdef StoreState s
    cdef int64_t rc = log_end_at(log, index)
    if rc >= 0:
        rc = store_purge(log.store, NULL, 0, 0)
    if rc < 0:
        return <int>rc
    store_state(log.store, &s)
    return store_skip_at(log.store, index, log.files.env.now) if s.last_seq < index else ST_OK


cdef int snapshot_told(RaftLog* log, uint64_t term, uint64_t index) noexcept nogil:
    # A snapshot is on disk: the log lets go what it stands for.
    cdef int64_t rc
    log.snapshot_term = term
    log.snapshot_index = index
    if log.installing and index == log.install_index:
        return install_end(log)
    rc = store_purge(log.store, NULL, index + 1, 0)
    return raft_snapshotted(log.raft, term, index) if rc >= 0 else <int>rc


cdef int install_end(RaftLog* log) noexcept nogil:
    # The log begins behind a leader's snapshot, and what came meanwhile follows.
    cdef Held h
    cdef size_t at = 0
    cdef int rc = log_begin_behind(log, log.install_index)
    if rc >= 0:
        rc = mark_add(log, log.install_generation, log.install_index)
    while rc >= 0 and at < log.held.n:
        memcpy(&h, log.held.data + at, sizeof(Held))
        at += sizeof(Held)
        if h.cut:
            rc = log_end_at(log, h.index)
            rc = rc if rc < 0 else mark_add(log, h.generation, h.index)
        else:
            rc = record_add(log, h.generation, h.index, span(log.held.data + at, h.n))
        at += h.n
    bytes_free(&log.held)
    log.installing = False
    return rc


cdef int hold(RaftLog* log, const RaftAction* a) noexcept nogil:
    cdef Held h
    if log.held.n + a.body.n > HELD_MAX or bytes_reserve(&log.held, sizeof(Held) + <size_t>a.body.n) < 0:
        return RAFT_NO_MEMORY
    memset(&h, 0, sizeof(Held))
    h.index = a.index
    h.generation = a.term
    h.cut = a.act == ACT_CUT
    h.n = 0 if h.cut else a.body.n
    bytes_add(&log.held, &h, sizeof(Held))
    bytes_add(&log.held, a.body.p, h.n)
    return RAFT_OK


cdef int install_begin(RaftLog* log, const RaftAction* a) noexcept nogil:
    cdef Snapshot s
    cdef int rc
    s.term = a.term
    s.index = a.index
    s.state = a.body
    s.peers = span(log.peers.data, <uint32_t>log.peers.n)
    rc = snapshot_write(group_of(log), &log.due[FILE_SNAPSHOT].data, &s)
    if rc < 0:
        return rc
    log.due[FILE_SNAPSHOT].term = s.term
    log.due[FILE_SNAPSHOT].index = s.index
    log.installing = True
    log.install_generation = a.count
    log.install_index = a.index
    log.held.n = 0
    files_due(log, FILE_SNAPSHOT)
    return RAFT_OK


cdef int act_on_log(RaftLog* log, const RaftAction* a) noexcept nogil:
    cdef int rc
    if log.installing:
        return hold(log, a)
    if a.act == ACT_STORE:
        return record_add(log, a.term, a.index, a.body)
    rc = log_end_at(log, a.index)
    return rc if rc < 0 else mark_add(log, a.term, a.index)


cdef int peers_put(RaftLog* log, Span peers) noexcept nogil:
    # The set that is committed. Each leader says it anew, mostly as the file has it. 0 | RAFT_NO_MEMORY
    if log.peers_filed and peers_same(span(log.peers.data, <uint32_t>log.peers.n), peers):
        return RAFT_OK
    log.peers.n = 0
    if bytes_add(&log.peers, peers.p, peers.n) < 0:
        return RAFT_NO_MEMORY
    log.peers_filed = True
    return due_set(log, FILE_PEERS, peers, 0, 0)


cdef bint raftlog_act(RaftLog* log, const RaftAction* a) noexcept nogil:
    cdef int rc = RAFT_OK
    if a.act not in (ACT_VOTE, ACT_STORE, ACT_CUT, ACT_INSTALL, ACT_PEERS, ACT_LOST, ACT_WHOLE):
        return False
    if log.failed or log.stopped:
        return True
    if a.act == ACT_VOTE:
        rc = vote_due(log, a.term, a.peer)
    elif a.act == ACT_PEERS:
        rc = peers_put(log, a.body)
    elif a.act == ACT_LOST:
        log.due[FILE_WHOLE].on = False          # the later one of the two counts
        files_due(log, FILE_LOST)
    elif a.act == ACT_WHOLE:
        log.due[FILE_LOST].on = False
        files_due(log, FILE_WHOLE)
    elif a.act == ACT_INSTALL:
        rc = install_begin(log, a)
    else:
        rc = act_on_log(log, a)
    if rc < 0:
        raftlog_fail(log, errno_of(log, rc))
    return True


cdef bint raftlog_load(RaftLog* log, uint64_t index, Span* out) noexcept nogil:
    cdef Record r
    cdef Held h
    cdef size_t at = 0
    cdef bint found = False
    if not log.installing:
        if store_load(log.store, index, &r) != ST_OK:
            return False
        out[0] = r.data
        return True
    while at < log.held.n:                        # the last one counts: there may be a cut between
        memcpy(&h, log.held.data + at, sizeof(Held))
        at += sizeof(Held)
        if h.cut and h.index < index:
            found = False
        elif not h.cut and h.index == index:
            found = True
            out[0] = span(log.held.data + at, h.n)
        at += h.n
    return found


cdef int raftlog_snapshot(RaftLog* log, const Snapshot* s) noexcept nogil:
    cdef Due* d = &log.due[FILE_SNAPSHOT]
    cdef int rc
    if log.installing or d.on or log.writing[FILE_SNAPSHOT].on or log.stopped or log.failed:
        return RAFT_BUSY
    if s.index <= log.snapshot_index:
        return RAFT_OK
    rc = snapshot_write(group_of(log), &d.data, s)
    if rc < 0:
        return rc
    d.term = s.term
    d.index = s.index
    files_due(log, FILE_SNAPSHOT)
    return RAFT_OK


cdef int raftlog_snapshot_file(RaftLog* log, Bytes* out) noexcept nogil:
    cdef char path[PATH_ROOM]
    env_lock(log.files.env)
    snapshot_path(log, "snapshots/snap.", log.snapshot_term, log.snapshot_index, path)
    env_unlock(log.files.env)
    return file_take(files_of(log), path, out)
