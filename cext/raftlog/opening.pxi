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
        rc = file_take(f, log.path, &found.file)
        if rc < 0:
            break
        if snapshot_read(group_of(log), span(found.file.data, <uint32_t>found.file.n), s) and s.term == term and s.index == index:
            break
        snprintf(aside, sizeof(aside), "snap.%llu.%llu", <unsigned long long>term, <unsigned long long>index)
        rc = aside_put(log, found, name, aside)
    bytes_free(&names)
    if rc >= 0 and s.index:                     # a kill may have come before its name was synced; the log now begins behind it
        path_in(log, "snapshots", path)
        rc = min(f.sync_dir(f.ctx, path), 0)
    return rc


cdef int base_read(RaftLog* log, uint64_t* base) noexcept nogil:
    # The index of the snapshot by which a rescue, or a founding, began the group; 0: none did. 0 or -errno.
    cdef Bytes b
    cdef int rc
    memset(&b, 0, sizeof(Bytes))
    base[0] = 0
    path_in(log, "base", log.path)
    rc = file_take(files_of(log), log.path, &b)
    if rc == 0 and b.n == sizeof(uint64_t):
        memcpy(base, b.data, sizeof(uint64_t))
    bytes_free(&b)
    return 0 if rc == -ENOENT else rc


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
            log.peers_filed = peers_same(at.peers, span(b.data, <uint32_t>b.n))
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


cdef int record_read(RaftLog* log, uint64_t index, Record* r) noexcept nogil:
    # With the lock held, which is let go while the disk brings it. ST_OK | ST_NOT_FOUND | ST_DAMAGED | ST_IO
    cdef Wait w
    cdef int rc
    memset(&w, 0, sizeof(Wait))
    rc = store_load_warm(log.store, index, r, &w)
    while rc == ST_WAIT:
        wait_cancel(&w)
        env_unlock(log.files.env)
        committer_pause(log.files.committer)
        env_lock(log.files.env)
        rc = store_load_warm(log.store, index, r, &w)
    return rc


cdef bint is_next(Span record, uint64_t index, uint64_t term, AppendEntry* m, bint* bad) noexcept nogil:
    # Whether it follows the record of that index and term. bad: it is none at all, not only another leader's.
    bad[0] = not append_entry_read(record, m) or m.n == 0
    return not bad[0] and m.pindex == index and m.pterm == term and m.term >= term


cdef int records_replay(RaftLog* log, const RaftStart* at, uint64_t* last, bint* bad) noexcept nogil:
    # The group hears of the records that follow each other behind the snapshot, up to `last`. The lock is taken for a piece
    # at a time. bad: what stands there, or is not there, is damage. 0 or -errno.
    cdef Env* env = log.files.env
    cdef StoreState s
    cdef Record r
    cdef AppendEntry m
    cdef uint64_t term = at.snapshot_term
    cdef uint64_t bytes = 0
    cdef int rc = 0
    env_lock(env)
    store_state(log.store, &s)
    last[0] = at.snapshot_index
    # Where the last sequence of a store without messages is says nothing: after a kill it takes one that was not used.
    bad[0] = s.msgs and s.first_seq > last[0] + 1
    while not bad[0] and last[0] < s.last_seq:
        if store_next_seq(log.store, NULL, last[0] + 1) == 0:
            break                               # sequences that a store gives to nobody again: here they are
        if record_read(log, last[0] + 1, &r) != ST_OK:
            bad[0] = True
            break
        if not is_next(r.data, last[0], term, &m, bad):
            break
        if not raft_replay(log.raft, r.data):
            rc = -ENOMEM
            break
        term = m.term
        last[0] += 1
        bytes += r.data.n + RECORD_WORTH
        if bytes >= PIECE_BYTES:
            env_unlock(env)
            bytes = 0
            env_lock(env)
    env_unlock(env)
    return rc


cdef int log_fit(RaftLog* log, RaftFound* found, const RaftStart* at, bint* aside) noexcept nogil:
    # The log begins behind the snapshot. aside: its blocks are copied, because it is damaged. 0 or an error.
    cdef Env* env = log.files.env
    cdef StoreState s
    cdef Lost lost
    cdef int64_t rc = 0
    cdef uint32_t i
    env_lock(env)
    store_lost(log.store, &lost)
    aside[0] = lost.n > 0
    for i in range(lost.n_places):
        aside[0] = aside[0] or lost.places[i].kind in (DAMAGE_RECORDS, DAMAGE_BLOCK, DAMAGE_ASIDE)
    env_unlock(env)
    if aside[0]:
        found.lost = True
        rc = log_copy_aside(log, found)
    if rc < 0:
        return <int>rc
    env_lock(env)
    store_state(log.store, &s)
    if s.first_seq <= at.snapshot_index:
        rc = store_purge(log.store, NULL, at.snapshot_index + 1, 0)
    if rc >= 0 and s.last_seq < at.snapshot_index:
        rc = log_begin_behind(log, at.snapshot_index)
    env_unlock(env)
    return <int>min(rc, <int64_t>0)


cdef int raft_begin(RaftLog* log, const RaftConfig* cfg, RaftFound* found, RaftStart* at) noexcept nogil:
    # The group with what its log has; the log ends with the last record that is good. 0 or an error.
    cdef Env* env = log.files.env
    cdef RaftConfig mine = cfg[0]
    cdef StoreState s
    cdef uint64_t last
    cdef bint aside, bad
    cdef int rc = log_fit(log, found, at, &aside)
    if rc < 0:
        return rc
    mine.fresh = found.fresh
    mine.base = 0
    rc = base_read(log, &mine.base) if is_meta(log) else 0
    if rc < 0:
        return rc
    while True:
        mine.lost = found.lost
        log.raft = raft_new(&mine, at, env.mono)
        if log.raft == NULL:
            return -ENOMEM
        rc = records_replay(log, at, &last, &bad)
        if rc < 0 or not bad:
            break
        if not aside:
            aside = True
            rc = log_copy_aside(log, found)
        if rc < 0 or found.lost:
            break
        found.lost = True                       # it begins again, as one that lost something
        raft_free(log.raft)
        log.raft = NULL
    if rc < 0:
        return rc
    found.records = last - at.snapshot_index
    env_lock(env)
    store_state(log.store, &s)
    if aside and s.last_seq == last:            # what is damaged behind it goes, too: the next start is not to find it again
        rc = store_skip_at(log.store, last + 1, env.now)
    if rc >= 0:
        rc = log_end_at(log, last)
    env_unlock(env)
    return rc


cdef bint log_is_empty(RaftLog* log) noexcept nogil:
    # Whether a new group has nothing that a killed server may have left: then there is nothing to sync.
    cdef FileOps* f = files_of(log)
    cdef Bytes names
    cdef char path[PATH_ROOM]
    cdef bint empty
    memset(&names, 0, sizeof(Bytes))
    path_in(log, "msgs", path)
    empty = f.names(f.ctx, path, &names) == 0 and names.n == 0
    bytes_free(&names)
    return empty


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
    free(log)


cdef int opened(RaftLog* log, const RaftConfig* cfg, Span peers, bint synced, RaftFound* found, char* err,
                size_t err_cap) noexcept nogil:
    # 0 or an error; a text in err where more is known.
    cdef StoreConfig sc
    cdef RaftStart at
    cdef Snapshot snap
    cdef int rc = 0
    err[0] = 0
    memset(&at, 0, sizeof(RaftStart))
    path_in(log, "snapshots", log.path)
    if not files_of(log).is_dir(files_of(log).ctx, log.path):
        rc = min(files_of(log).mkdir(files_of(log).ctx, log.path, 0o755), 0)
    if rc < 0:
        return rc
    if log.memory:
        # What is left of an earlier start stands for a log that is gone.
        memset(&snap, 0, sizeof(Snapshot))
        rc = snapshots_forget(log, 0, 0)
    else:
        rc = snapshot_find(log, found, &snap)
    if rc < 0:
        return rc
    at.snapshot_term = snap.term
    at.snapshot_index = snap.index
    at.peers = snap.peers
    rc = small_files_read(log, found, &at, peers)
    if rc < 0:
        return rc
    found.lost = found.lost or log.memory and not found.fresh
    memset(&sc, 0, sizeof(StoreConfig))
    sc.storage = STORE_MEMORY if log.memory else STORE_FILE
    sc.always = True
    sc.synced = synced or found.fresh and log_is_empty(log)
    sc.block_size = META_BLOCK if is_meta(log) else GROUP_BLOCK
    sc.name = group_of(log)
    sc.directory = span(<const uint8_t*>log.dir, <uint32_t>strlen(log.dir))
    sc.max_msgs = sc.max_bytes = sc.max_msgs_per = -1
    log.store = store_open(log.files.env, log.files.committer, &sc, err, err_cap)
    if log.store == NULL:
        return -EIO
    rc = raft_begin(log, cfg, found, &at)
    if rc == 0 and found.lost and not log.memory:
        rc = mark_put(log, "lost", span(NULL, 0))
    if rc == 0 and found.fresh and log.memory:  # by it the next start knows that a log is lost
        rc = mark_put(log, "peers.idx", at.peers)
        log.peers_filed = True
    if rc < 0:
        return rc
    log.snapshot_term = found.snapshot_term = snap.term
    log.snapshot_index = found.snapshot_index = snap.index
    found.state = snap.state
    env_lock(log.files.env)
    if found.fresh and not log.memory:          # on disk together with the first vote, before that is told
        rc = due_set(log, FILE_PEERS, at.peers, 0, 0)
        log.peers_filed = True
    if rc == 0:
        store_listen(log.store, NULL, log_durable, log)
        log.files.open += 1
    env_unlock(log.files.env)
    return rc


cdef RaftLog* raftlog_open(RaftFiles* files, Span directory, Span group, const RaftConfig* cfg, Span peers,
                           bint synced, void (*ready)(void* ctx) noexcept nogil, void* ctx, RaftFound* found, char* err,
                           size_t err_cap) noexcept nogil:
    return log_new(files, directory, group, cfg, False, peers, synced, ready, ctx, found, err, err_cap)


cdef RaftLog* raftlog_open_memory(RaftFiles* files, Span directory, Span group, const RaftConfig* cfg, Span peers,
                                  void (*ready)(void* ctx) noexcept nogil, void* ctx, RaftFound* found, char* err,
                                  size_t err_cap) noexcept nogil:
    return log_new(files, directory, group, cfg, True, peers, False, ready, ctx, found, err, err_cap)


cdef RaftLog* log_new(RaftFiles* files, Span directory, Span group, const RaftConfig* cfg, bint memory, Span peers, bint synced,
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
    log.memory = memory
    log.told.fn = log_told
    log.told.owner = log
    log.ready = ready
    log.ctx = ctx
    memcpy(log.group, group.p, group.n)
    log.n_group = group.n
    memcpy(log.dir, directory.p, directory.n)
    rc = opened(log, cfg, peers, synced, found, err, err_cap)
    if rc < 0:
        if err[0] == 0:
            snprintf(err, err_cap, "%s: error %d", log.path, -rc)
        if log.store != NULL:
            env_lock(files.env)
            store_stop(log.store)
            env_unlock(files.env)
        raftlog_end(log)
        bytes_free(&found.file)
        return NULL
    return log


cdef Raft* raftlog_raft(RaftLog* log) noexcept nogil:
    return log.raft


cdef uint64_t raftlog_bytes(RaftLog* log) noexcept nogil:
    cdef StoreState s
    store_state(log.store, &s)
    return s.bytes


cdef Span raftlog_peers(const RaftLog* log) noexcept nogil:
    return span(log.peers.data, <uint32_t>log.peers.n)


cdef void raftlog_stop(RaftLog* log) noexcept nogil:
    log.stopped = True
    task_cancel(&log.told)
    store_stop(log.store)


cdef void raftlog_close(RaftLog* log) noexcept nogil:
    env_lock(log.files.env)
    while log.files.busy:
        env_wait(log.files.env, &log.files.written, INT64_MAX)
    list_drop(&log.node)
    log.files.open -= 1
    env_unlock(log.files.env)
    raftlog_end(log)
