# A directory from what it has. What is damaged is put aside, and the member then is one that lost something.

cdef int aside_put(RaftLog* log, RaftFound* found, const char* name, const char* to) noexcept nogil:
    # 0 or -errno.
    cdef FileOps* f = files_of(log)
    cdef char path[PATH_ROOM]
    cdef char aside[PATH_ROOM]
    path_in(log, name, path)
    snprintf(aside, PATH_ROOM, "%s/damaged-%s", log.dir, to)
    found.aside += 1
    found.lost = True
    return min(f.rename(f.ctx, path, aside), 0)


cdef int snapshot_find(RaftLog* log, RaftFound* found, Snapshot* s) noexcept nogil:
    # The newest snapshot that is whole; index 0: there is none. 0 or -errno.
    cdef FileOps* f = files_of(log)
    cdef Bytes names
    cdef char path[PATH_ROOM]
    cdef char name[80]
    cdef char aside[80]
    cdef uint64_t term, index
    cdef size_t at
    cdef int rc = 0
    memset(&names, 0, sizeof(Bytes))
    memset(s, 0, sizeof(Snapshot))
    path_in(log, "snapshots", path)
    if not f.is_dir(f.ctx, path):
        return min(f.mkdir(f.ctx, path, 0o755), 0)
    while rc >= 0:
        memset(s, 0, sizeof(Snapshot))
        names.n = at = 0
        rc = min(f.names(f.ctx, path, &names), 0)
        while rc >= 0 and at < names.n:
            if snapshot_name(<const char*>names.data + at, &term, &index):
                if index and (term > s.term or term == s.term and index > s.index):
                    s.term = term
                    s.index = index
            at += strlen(<const char*>names.data + at) + 1
        if rc < 0 or s.index == 0:
            break
        term = s.term
        index = s.index
        snprintf(name, sizeof(name), "snapshots/snap.%llu.%llu", <unsigned long long>term, <unsigned long long>index)
        path_in(log, name, log.path)
        rc = file_take(f, log.path, &log.opened)
        if rc < 0:
            break
        if snapshot_read(group_of(log), span(log.opened.data, <uint32_t>log.opened.n), s) and s.term == term and s.index == index:
            break
        snprintf(aside, sizeof(aside), "snap.%llu.%llu", <unsigned long long>term, <unsigned long long>index)
        rc = aside_put(log, found, name, aside)
    bytes_free(&names)
    return rc


cdef int small_files_read(RaftLog* log, RaftFound* found, RaftStart* at, Span given) noexcept nogil:
    # Votes, members and the mark of a lost member. 0 or -errno.
    cdef FileOps* f = files_of(log)
    cdef Bytes b
    cdef PeerState members
    cdef int rc
    memset(&b, 0, sizeof(Bytes))
    path_in(log, "lost", log.path)
    rc = file_take(f, log.path, &b)
    found.lost = found.lost or rc == 0
    path_in(log, "tav.idx", log.path)
    rc = file_take(f, log.path, &b)
    if rc == 0 and not vote_read(span(b.data, <uint32_t>b.n), &at.term, &at.vote):
        rc = aside_put(log, found, "tav.idx", "tav.idx")
    if rc == 0 or rc == -ENOENT:
        path_in(log, "peers.idx", log.path)
        b.n = 0
        rc = file_take(f, log.path, &b)
        found.fresh = rc == -ENOENT and at.peers.n == 0
        if rc == 0 and not peer_state_read(span(b.data, <uint32_t>b.n), &members):
            rc = aside_put(log, found, "peers.idx", "peers.idx")
            b.n = 0
        if rc == 0 or rc == -ENOENT:
            if at.peers.n == 0:                 # the snapshot's come first
                at.peers = span(b.data, <uint32_t>b.n) if b.n else given
            log.peers.n = 0
            rc = -ENOMEM if bytes_add(&log.peers, at.peers.p, at.peers.n) < 0 else 0
            at.peers = span(log.peers.data, <uint32_t>log.peers.n)
    bytes_free(&b)
    return rc


cdef int mark_put(RaftLog* log, const char* name, Span data) noexcept nogil:
    # A small file that is on disk before the group begins. 0 or -errno.
    cdef FileOps* f = files_of(log)
    cdef char temporary[PATH_ROOM]
    cdef int rc
    path_in(log, "opening.new", temporary)
    path_in(log, name, log.path)
    rc = file_put(f, temporary, data)
    if rc == 0:
        rc = f.rename(f.ctx, temporary, log.path)
    return rc if rc < 0 else min(f.sync_dir(f.ctx, log.dir), 0)


cdef int log_copy_aside(RaftLog* log, RaftFound* found) noexcept nogil:
    # The log's blocks as they are, before something of them is cut. 0 or -errno.
    cdef FileOps* f = files_of(log)
    cdef Bytes names, b
    cdef char to[PATH_ROOM]
    cdef const char* name
    cdef size_t at = 0, n
    cdef int rc
    memset(&names, 0, sizeof(Bytes))
    memset(&b, 0, sizeof(Bytes))
    path_in(log, "msgs", log.path)
    rc = min(f.names(f.ctx, log.path, &names), 0)
    while rc >= 0 and at < names.n:
        name = <const char*>names.data + at
        n = strlen(name)
        at += n + 1
        if n < 5 or name[n - 1] != c'k' or name[n - 4] != c'.':
            continue
        snprintf(log.path, PATH_ROOM, "%s/msgs/%s", log.dir, name)
        snprintf(to, PATH_ROOM, "%s/damaged-%s", log.dir, name)
        rc = file_take(f, log.path, &b)
        if rc == 0:
            rc = file_put(f, to, span(b.data, <uint32_t>b.n))
        found.aside += 1
    bytes_free(&names)
    bytes_free(&b)
    return rc if rc < 0 else min(f.sync_dir(f.ctx, log.dir), 0)


cdef void log_measure(RaftLog* log, uint64_t term, uint64_t* last, bint* bad) noexcept nogil:
    # How far the records follow each other behind the snapshot. bad: the one after that is none, not only another's.
    cdef StoreState s
    cdef Record r
    cdef AppendEntry m
    store_state(log.store, &s)
    bad[0] = s.msgs and s.first_seq > last[0] + 1
    while not bad[0] and last[0] < s.last_seq:
        if store_next_seq(log.store, NULL, last[0] + 1) == 0:
            break                               # sequences that a store gives to nobody again: here they are
        if store_load(log.store, last[0] + 1, &r) != ST_OK or not append_entry_read(r.data, &m) or m.n == 0:
            bad[0] = True
            break
        if m.pindex != last[0] or m.pterm != term or m.term < m.pterm:
            break
        term = m.term
        last[0] += 1


cdef int log_fit(RaftLog* log, RaftFound* found, const RaftStart* at, uint64_t* last) noexcept nogil:
    # The log begins behind the snapshot and ends with its last good record. 0 or an error.
    cdef StoreState s
    cdef Lost lost
    cdef bint bad
    cdef int64_t rc = 0
    cdef uint32_t i
    last[0] = at.snapshot_index
    store_lost(log.store, &lost)
    bad = lost.n > 0
    for i in range(lost.n_places):
        bad = bad or lost.places[i].kind in (DAMAGE_RECORDS, DAMAGE_BLOCK, DAMAGE_ASIDE)
    if bad:
        found.lost = True
        rc = log_copy_aside(log, found)
    store_state(log.store, &s)
    if rc >= 0 and s.first_seq <= at.snapshot_index:
        rc = store_purge(log.store, NULL, at.snapshot_index + 1, 0)
    if rc >= 0 and s.last_seq < at.snapshot_index:
        rc = log_begin_behind(log, at.snapshot_index)
    if rc < 0:
        return <int>rc
    log_measure(log, at.snapshot_term, last, &bad)
    store_state(log.store, &s)
    if bad and not found.lost:
        rc = log_copy_aside(log, found)
    found.lost = found.lost or bad
    found.records = last[0] - at.snapshot_index
    if rc >= 0 and s.last_seq > last[0]:
        # An empty log that ends behind its snapshot: what it stood for is gone with a newer one.
        found.lost = found.lost or s.msgs == 0
        rc = log_end_at(log, last[0])
    return <int>min(rc, <int64_t>0)


cdef int raft_begin(RaftLog* log, const RaftConfig* cfg, RaftFound* found, RaftStart* at, uint64_t last) noexcept nogil:
    cdef RaftConfig mine = cfg[0]
    cdef Record r
    cdef uint64_t index
    mine.lost = found.lost
    mine.fresh = found.fresh
    log.raft = raft_new(&mine, at, log.files.env.mono)
    if log.raft == NULL:
        return -ENOMEM
    for index in range(at.snapshot_index + 1, last + 1):
        if store_load(log.store, index, &r) != ST_OK or not raft_replay(log.raft, r.data):
            return -EIO
    return 0


cdef void raftlog_end(RaftLog* log) noexcept nogil:
    cdef int k
    if log.store != NULL:
        store_close(log.store, False)
    if log.raft != NULL:
        raft_free(log.raft)
    for k in range(FILE_KINDS):
        bytes_free(&log.due[k].data)
        bytes_free(&log.writing[k].data)
    bytes_free(&log.held)
    bytes_free(&log.marks)
    bytes_free(&log.peers)
    bytes_free(&log.opened)
    free(log)


cdef int opened(RaftLog* log, const RaftConfig* cfg, Span peers, RaftFound* found, char* err,
                size_t err_cap) noexcept nogil:
    # 0 or an error; a text in err where more is known.
    cdef StoreConfig sc
    cdef RaftStart at
    cdef Snapshot snap
    cdef uint64_t last
    cdef int rc
    err[0] = 0
    memset(&at, 0, sizeof(RaftStart))
    rc = snapshot_find(log, found, &snap)
    if rc < 0:
        return rc
    at.snapshot_term = snap.term
    at.snapshot_index = snap.index
    at.peers = snap.peers
    rc = small_files_read(log, found, &at, peers)
    if rc < 0:
        return rc
    memset(&sc, 0, sizeof(StoreConfig))
    sc.storage = STORE_FILE
    sc.name = group_of(log)
    sc.directory = span(<const uint8_t*>log.dir, <uint32_t>strlen(log.dir))
    sc.synced = True
    sc.max_msgs = sc.max_bytes = sc.max_msgs_per = -1
    log.store = store_open(log.files.env, log.files.committer, &sc, err, err_cap)
    if log.store == NULL:
        return -EIO
    env_lock(log.files.env)
    rc = log_fit(log, found, &at, &last)
    if rc == 0:
        rc = raft_begin(log, cfg, found, &at, last)
    env_unlock(log.files.env)
    if rc == 0 and found.lost:
        rc = mark_put(log, "lost", span(NULL, 0))
    if rc == 0 and found.fresh:
        rc = mark_put(log, "peers.idx", at.peers)
    if rc < 0:
        return rc
    log.snapshot_term = snap.term
    log.snapshot_index = found.snapshot_index = snap.index
    found.state = snap.state
    env_lock(log.files.env)
    store_listen(log.store, NULL, log_durable, log)
    log.next = log.files.logs
    log.files.logs = log
    env_unlock(log.files.env)
    return 0


cdef RaftLog* raftlog_open(RaftFiles* files, Span directory, Span group, const RaftConfig* cfg, Span peers,
                           void (*ready)(void* ctx) noexcept nogil, void* ctx, RaftFound* found, char* err,
                           size_t err_cap) noexcept nogil:
    cdef RaftLog* log
    cdef int rc
    memset(found, 0, sizeof(RaftFound))
    if group.n == 0 or group.n >= 256 or directory.n >= PATH_ROOM - 300:
        snprintf(err, err_cap, "the group's name or directory is too long")
        return NULL
    log = <RaftLog*>calloc(1, sizeof(RaftLog))
    if log == NULL:
        snprintf(err, err_cap, "no memory")
        return NULL
    log.files = files
    log.ready = ready
    log.ctx = ctx
    memcpy(log.group, group.p, group.n)
    log.n_group = group.n
    memcpy(log.dir, directory.p, directory.n)
    rc = opened(log, cfg, peers, found, err, err_cap)
    if rc < 0:
        if err[0] == 0:
            snprintf(err, err_cap, "%s: error %d", log.path, -rc)
        if log.store != NULL:
            env_lock(files.env)
            store_stop(log.store)
            env_unlock(files.env)
        raftlog_end(log)
        return NULL
    return log


cdef Raft* raftlog_raft(RaftLog* log) noexcept nogil:
    return log.raft


cdef void raftlog_stop(RaftLog* log) noexcept nogil:
    log.stopped = True
    store_stop(log.store)


cdef void raftlog_close(RaftLog* log) noexcept nogil:
    cdef RaftLog** at
    env_lock(log.files.env)
    while log.files.busy:
        env_wait(log.files.env, &log.files.written, INT64_MAX)
    at = &log.files.logs
    while at[0] != log:
        at = &at[0].next
    at[0] = log.next
    env_unlock(log.files.env)
    raftlog_end(log)
