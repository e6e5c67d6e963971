# With a sync_interval: what was written and not synced, and its sync when that time has come.

cdef void lazy_note(Committer* c, const Round* r, const Part* p) noexcept nogil:
    """In lazy mode: what this part has written is to be synced some time."""
    cdef FileOps* f = c.env.files
    cdef Store* s = p.s
    cdef bint wrote = p.logs
    cdef uint32_t k
    for k in range(p.piece, p.piece + p.n):
        wrote = wrote or r.pieces[k].wrote
    if not wrote:
        return
    c.writing.unsynced = True
    if c.writing.sync_fd < 0:
        c.writing.sync_fd = f.open(f.ctx, s.dir, O_RDONLY | O_DIRECTORY, 0)
    q_lock(c)
    if not s.queue.unsynced:
        s.queue.unsynced = True
        s.queue.next_unsynced = c.queue.unsynced
        c.queue.unsynced = s
    q_unlock(c)


cdef void lazy_sync(Committer* c, Round* r) noexcept nogil:
    """Everything on the file system at once. What was written since the last time may be lost after an error."""
    cdef FileOps* f = c.env.files
    cdef Store* s
    cdef uint32_t i
    cdef int rc
    rc = -c.writing.sync_fd if c.writing.sync_fd < 0 else -f.sync_all(f.ctx, c.writing.sync_fd)
    q_lock(c)
    while c.queue.unsynced != NULL:
        s = c.queue.unsynced
        c.queue.unsynced = s.queue.next_unsynced
        s.queue.unsynced = False
        if rc:
            store_tell(c, s, rc)
            c.writing.sync_failed = True
    q_unlock(c)
    for i in range(r.n_parts):
        if rc and r.parts[i].err == 0:
            r.parts[i].err = rc
