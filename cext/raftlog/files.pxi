# The small files of all groups: what is due is written in one go.

cdef RaftFiles* raft_files_new(Env* env, Committer* committer, void (*wake)(void* ctx) noexcept nogil, void* ctx) noexcept nogil:
    cdef RaftFiles* f = <RaftFiles*>calloc(1, sizeof(RaftFiles))
    if f == NULL:
        return NULL
    f.env = env
    f.committer = committer
    f.wake = wake
    f.ctx = ctx
    cond_init(&f.written)
    return f


cdef void raft_files_free(RaftFiles* f) noexcept nogil:
    invariant(f.open == 0, "groups are closed before their files are")
    cond_free(&f.written)
    free(f)


cdef inline RaftLog* log_at(ListNode* n) noexcept nogil:
    return <RaftLog*>list_owner(n, &(<RaftLog*>NULL).node)


cdef RaftLog* round_take(RaftFiles* f, int* n) noexcept nogil:
    # With the lock held: the groups of which something is due, chained, and how many files that are.
    cdef RaftLog* first = NULL
    cdef RaftLog* log = log_at(list_pop(&f.due))
    cdef Due* d
    cdef Bytes old
    cdef int k
    n[0] = 0
    while log != NULL:
        log.next = first
        first = log
        for k in range(FILE_KINDS):
            d = &log.due[k]
            log.writing[k].on = d.on and not log.stopped
            if not log.writing[k].on:
                continue
            old = log.writing[k].data
            log.writing[k] = d[0]
            d.data = old
            d.on = False
            n[0] += 1
        log = log_at(list_pop(&f.due))
    return first


ctypedef void (*part_fn)(RaftLog* log, int kind) noexcept nogil


cdef void parts_do(RaftLog* first, part_fn do) noexcept nogil:
    cdef RaftLog* log = first
    cdef int k
    while log != NULL:
        for k in range(FILE_KINDS):
            if log.writing[k].on:
                do(log, k)
        log = log.next


cdef void part_begin(RaftLog* log, int kind) noexcept nogil:
    cdef Due* d = &log.writing[kind]
    cdef char path[PATH_ROOM]
    d.fd = -1
    d.error = 0
    if kind == FILE_WHOLE:
        return
    file_path(log, kind, d, True, path)
    d.fd = file_begin(files_of(log), path, span(d.data.data, <uint32_t>d.data.n))
    d.error = min(d.fd, 0)


cdef void part_sync(RaftLog* log, int kind) noexcept nogil:
    cdef Due* d = &log.writing[kind]
    cdef FileOps* f = files_of(log)
    if d.fd >= 0:
        d.error = min(f.datasync(f.ctx, d.fd), 0)


cdef void part_close(RaftLog* log, int kind) noexcept nogil:
    cdef Due* d = &log.writing[kind]
    cdef FileOps* f = files_of(log)
    if d.fd >= 0:
        f.close(f.ctx, d.fd)
        d.fd = -1


cdef void part_place(RaftLog* log, int kind) noexcept nogil:
    cdef Due* d = &log.writing[kind]
    cdef FileOps* f = files_of(log)
    cdef char path[PATH_ROOM]
    cdef char temporary[PATH_ROOM]
    cdef int rc
    if d.error:
        return
    file_path(log, kind, d, False, path)
    if kind == FILE_WHOLE:
        rc = f.unlink(f.ctx, path)
        d.error = rc if rc < 0 and rc != -ENOENT else 0
        return
    file_path(log, kind, d, True, temporary)
    d.error = min(f.rename(f.ctx, temporary, path), 0)


cdef void place_sync(RaftLog* log) noexcept nogil:
    # The names of what is written of one group.
    cdef FileOps* f = files_of(log)
    cdef char path[PATH_ROOM]
    cdef int k, rc = 0
    if log.writing[FILE_SNAPSHOT].on:
        path_in(log, "snapshots", path)
        rc = f.sync_dir(f.ctx, path)
    if rc == 0:
        rc = f.sync_dir(f.ctx, log.dir)
    for k in range(FILE_KINDS):
        if log.writing[k].on and log.writing[k].error == 0:
            log.writing[k].error = min(rc, 0)


cdef int sync_together(RaftLog* first, int n) noexcept nogil:
    # Many files, or their names: one call for the file system. False: they are few, or it does not say which one failed.
    cdef RaftLog* log = first
    cdef FileOps* f = files_of(first)
    cdef int k
    while log != NULL and n > SYNC_EACH:
        for k in range(FILE_KINDS):
            if log.writing[k].on and log.writing[k].fd >= 0:
                return f.sync_all(f.ctx, log.writing[k].fd) == 0
        log = log.next
    return False


cdef void round_write(RaftLog* first, int n) noexcept nogil:
    # WITHOUT the lock: everything on disk, or the reason why not in each part's error.
    cdef RaftLog* log = first
    parts_do(first, part_begin)
    if not sync_together(first, n):
        parts_do(first, part_sync)
    parts_do(first, part_place)
    if not sync_together(first, n):
        while log != NULL:
            place_sync(log)
            log = log.next
    parts_do(first, part_close)
    log = first
    while log != NULL:
        if log.writing[FILE_SNAPSHOT].on and log.writing[FILE_SNAPSHOT].error == 0:
            snapshots_forget(log, log.writing[FILE_SNAPSHOT].term, log.writing[FILE_SNAPSHOT].index)
        log = log.next


cdef int raft_files_write(RaftFiles* f) noexcept nogil:
    cdef RaftLog* first
    cdef int n
    env_lock(f.env)
    while f.busy:
        env_wait(f.env, &f.written, INT64_MAX)
    f.woken = False
    first = round_take(f, &n)
    f.busy = n > 0
    env_unlock(f.env)
    if n == 0:
        return 0
    round_write(first, n)
    env_lock(f.env)
    parts_do(first, part_told)
    f.busy = False
    f.env.system.broadcast(f.env.system.ctx, &f.written)
    env_unlock(f.env)
    return n


cdef void part_told(RaftLog* log, int kind) noexcept nogil:
    # With the lock held: what is on disk may be said.
    cdef Due* d = &log.writing[kind]
    cdef int rc = RAFT_OK
    d.on = False
    if log.stopped or log.failed:
        return
    if d.error:
        # A snapshot of what is applied may be written another time: until then the log stays as long as it is.
        if kind != FILE_SNAPSHOT or log.installing:
            raftlog_fail(log, -d.error)
        return
    if kind == FILE_VOTE:
        rc = raft_voted(log.raft, d.term, d.index)
    elif kind == FILE_LOST:
        rc = raft_marked(log.raft)
    elif kind == FILE_SNAPSHOT:
        rc = snapshot_told(log, d.term, d.index)
    if rc < 0:
        raftlog_fail(log, errno_of(log, rc))
    elif log.ready != NULL:
        log.ready(log.ctx)
