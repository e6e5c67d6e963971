# With a sync_interval: what was written and not synced, its sync when that time has come, and what waits for it.
#
# A file that goes, or a record that is overwritten, is gone at once, whatever else reaches the disk. So both wait until what
# took their place is on disk. An erasure that a power cut tears looks like one of the sectors that a cut leaves out of what
# was not synced: it waits until a marker on disk says that all before it had been synced.

cdef enum:
    LATER_MAX = 268435456       # bytes of files that wait to go: with more of them there is a sync
    LOST_MARGIN = 1000000000    # ns by which the time of a file may be behind


cdef uint64_t op_weight(const Op* op) noexcept nogil:
    # Bytes of the files that go with it.
    cdef uint64_t n = 0
    cdef uint32_t i
    if op.kind == OP_DROP:
        n = st_load(&op.block.used)
    elif op.kind == OP_CUT:
        for i in range(op.n):
            n += st_load(&op.blocks[i].used)
    return n


cdef bint waits_for_sync(const Committer* c, const Round* r, const Store* s, Op* op) noexcept nogil:
    # Whether this is for later.
    if c.sync_interval <= 0:
        return False
    if op.kind == OP_ERASE:
        op.after = s.writing.syncs + (0 if r.synced else 1)
        return s.writing.vouched < op.after
    return not r.synced and (op.kind == OP_DROP or op.kind == OP_CUT)


cdef void later_finish(Committer* c, Store* s, int err) noexcept nogil:
    # After a sync, or when the store failed: what has waited for it, in order; but erasures that no marker speaks for.
    cdef Op* op = s.writing.later
    cdef Op* after
    s.writing.later = NULL
    s.writing.later_last = NULL
    while op != NULL:
        after = op.next
        if op.kind == OP_ERASE:
            op.block.writing.erasures -= 1
        if err == 0 and op.kind == OP_ERASE and s.writing.vouched < op.after:
            later_add(s, op)
        else:
            op_finish(c, s, op, err)
            free(op)
        op = after


cdef void later_moot(Committer* c, Store* s) noexcept nogil:
    # After a purge, which is on disk: all that waits is of files that went with it.
    s.writing.vouched = UINT64_MAX
    later_finish(c, s, 0)
    s.writing.vouched = 0
    s.writing.marked = 0


cdef void lazy_note(Committer* c, Round* r, const Part* p) noexcept nogil:
    # What this part has written is to be synced some time.
    cdef const Op* op = p.ops
    cdef bint wrote = p.logs or p.s.writing.later != NULL
    cdef uint32_t k
    for k in range(p.piece, p.piece + p.n):
        wrote = wrote or r.pieces[k].wrote
    while op != NULL:
        wrote = True
        c.writing.later_bytes += op_weight(op)
        r.sync = r.sync or op.kind == OP_SWAP       # it may leave out tombstones for files that are to go
        op = op.next
    if wrote:
        q_lock(c)
        unsynced_note(c, p.s)
        q_unlock(c)


cdef void lazy_round(Committer* c, Round* r, int64_t now) noexcept nogil:
    # Syncs what this round and those before have written, if it is time.
    cdef uint32_t i
    cdef bint any
    for i in range(r.n_parts):
        lazy_note(c, r, &r.parts[i])
    q_lock(c)
    any = not list_empty(&c.queue.unsynced)
    r.sync = r.sync or c.queue.failed
    c.queue.failed = c.queue.failed if any else 0
    q_unlock(c)
    if any and (r.sync or now >= c.writing.synced_at + c.sync_interval or c.writing.later_bytes > LATER_MAX
                or (c.writing.later_bytes and st_load(&c.shared.full))):
        lazy_sync(c, r)


cdef void synced_all(Store* s) noexcept nogil:
    # With q held: all that was written is on disk. A marker says so when the store is idle again.
    cdef Block* b = s.queue.out
    s.writing.vouched = s.writing.marked
    s.writing.syncs += 1
    while b != NULL:
        if b.writing.safe < b.writing.written:
            b.writing.safe = b.writing.written
            b.writing.open_group = True
        b = b.queue.next_out
    if s.queue.list == &s.com.queue.resting:
        active_enter(&s.com.queue.active, s, env_clock(s.env))


cdef void lazy_sync(Committer* c, Round* r) noexcept nogil:
    # Everything on the file system at once. What was written since the last time may be lost after an error.
    cdef FileOps* f = c.env.files
    cdef Store* first = NULL
    cdef Store* s
    cdef uint32_t i
    cdef int fd, rc
    cdef int64_t wall = c.env.system.wall(c.env.system.ctx)
    q_lock(c)
    while not list_empty(&c.queue.unsynced):
        s = <Store*>list_owner(list_pop(&c.queue.unsynced), &(<Store*>NULL).queue.unsynced)
        s.queue.next_syncing = first
        s.queue.busy += 1
        first = s
    q_unlock(c)
    if first == NULL:
        return
    fd = lazy_listen(first)
    rc = -fd if fd < 0 else -f.sync_all(f.ctx, fd)
    c.writing.later_bytes = 0
    c.writing.synced_at = env_clock(c.env)
    q_lock(c)
    rc = rc if rc else c.queue.failed
    c.queue.failed = 0
    s = first
    while s != NULL:
        if rc:
            s.queue.done_seq = max(s.queue.done_seq, kept_seq(s))
            s.queue.uncut_seq = max(s.queue.uncut_seq, s.writing.kept_last)
            store_tell(c, s, rc)
            c.writing.sync_failed = True
        else:
            synced_all(s)
        s = s.queue.next_syncing
    if rc == 0:
        c.queue.synced_wall = wall
    q_unlock(c)
    r.unsynced = first
    r.synced = rc == 0
    for i in range(r.n_parts):
        if rc and r.parts[i].err == 0:
            r.parts[i].err = rc


cdef void lazy_end(Committer* c, Round* r) noexcept nogil:
    # The end of a round with a sync: what has waited for that, also in stores of which the round wrote nothing.
    cdef Store* s = r.unsynced
    cdef Store* after
    while s != NULL:
        later_finish(c, s, 0 if r.synced else EIO)
        s = s.queue.next_syncing
    q_lock(c)
    s = r.unsynced
    while s != NULL:
        after = s.queue.next_syncing
        s.queue.busy -= 1
        if s.writing.later != NULL and not s.stopped:
            unsynced_note(c, s)
        s = after
    q_broadcast(c, &c.idle)
    q_unlock(c)
    r.unsynced = NULL


cdef int file_again(FileOps* f, const char* path, int64_t since) noexcept nogil:
    # Writes what a file has once more, if it was written since then. 0 or -errno.
    cdef int fd = f.open(f.ctx, path, O_RDWR, 0)
    cdef int64_t rc = fd, n = 0, at = 0
    cdef uint8_t* p
    if fd < 0:
        return fd if fd != -ENOENT else 0
    p = <uint8_t*>malloc(LOG_COPY)
    rc = f.time(f.ctx, fd) if p != NULL else -ENOMEM
    n = f.size(f.ctx, fd) if rc >= since else 0
    while at < n and rc >= 0:
        rc = f.pread(f.ctx, fd, p, <size_t>min(n - at, <int64_t>LOG_COPY), <off_t>at)
        if rc == 0:
            break
        if rc > 0:
            rc = f.pwrite(f.ctx, fd, p, <size_t>rc, <off_t>at)
            at += LOG_COPY
    free(p)
    f.close(f.ctx, fd)
    return <int>min(rc, n, <int64_t>0)


cdef int unsynced_again(Store* s) noexcept nogil:
    # After a sync that failed the system takes for written what it had, though it may not be, and no later sync writes it. What
    # it still reads is written again, so that the next one does. 0 or -errno.
    cdef FileOps* f = s.files
    cdef int64_t since = s.queue.lost_since
    cdef char path[4400]
    cdef Bytes names
    cdef const char* name = NULL
    cdef Log* g = s.queue.logs
    cdef int rc = 0
    if s.com.sync_interval <= 0 or since == INT64_MAX:
        return 0
    since -= LOST_MARGIN
    memset(&names, 0, sizeof(names))
    rc = min(f.names(f.ctx, s.msgs_dir, &names), 0)
    name = name_after(&names, NULL)
    while name != NULL and rc == 0:
        if ends_with(name, b".blk"):
            snprintf(path, sizeof(path), "%s/%s", s.msgs_dir, name)
            rc = file_again(f, path, since)
        name = name_after(&names, name)
    bytes_free(&names)
    while g != NULL and rc == 0:
        rc = file_again(f, g.path, since)
        g = g.queue.next
    return rc


cdef int lazy_listen(Store* s) noexcept nogil:
    # The descriptor that is synced, or -errno. It is opened before anything is written: it may be another thread's sync, of a
    # block for its sidecar, that finds that what was written is lost, and the next one of all hears of it.
    cdef Committer* c = s.com
    cdef FileOps* f = s.files
    cdef int fd, kept
    q_lock(c)
    kept = c.queue.sync_fd
    q_unlock(c)
    if kept >= 0 or c.sync_interval <= 0:
        return kept
    fd = f.open(f.ctx, s.dir, O_RDONLY | O_DIRECTORY, 0)
    q_lock(c)
    kept = c.queue.sync_fd
    if kept < 0:
        c.queue.sync_fd = max(fd, -1)
    q_unlock(c)
    if kept < 0:
        return fd
    if fd >= 0:
        f.close(f.ctx, fd)
    return kept


cdef void lazy_open(Store* s) noexcept nogil:
    # A store that was opened: what a killed server left is synced when the time has come.
    cdef Committer* c = s.com
    if c.sync_interval <= 0:
        return
    q_lock(c)
    unsynced_note(c, s)
    if c.queue.sleeping:
        q_signal(c, &c.wake)
    q_unlock(c)
