# When the disk fails: room and descriptors that are given up for what must be written.

cdef enum:
    FULL_BYTES = 524288         # of the ballast's room, for groups with messages
    FULL_SMALL = 4096           # a group of acks or deletions: it may have all of that room


cdef inline bint is_full(int64_t rc) noexcept nogil:
    return rc == -ENOSPC or rc == -EDQUOT


cdef bint ballast_give(Committer* c, int64_t rc) noexcept nogil:
    # Whether a write that failed for want of room may be tried again, because the ballast was given up for it.
    cdef FileOps* f = c.env.files
    if not is_full(rc) or c.ballast[0] == 0 or st_load(&c.shared.full):
        return False
    if f.unlink(f.ctx, c.ballast) < 0:
        return False
    sync_parent(f, c.ballast)       # what was freed can be used from here on
    c.writing.full_left = FULL_BYTES
    st_store(&c.shared.full, <uint64_t>-rc)
    st_store(&c.shared.done_flag, 1)
    return True


cdef int64_t room_left(Committer* c, uint64_t n) noexcept nogil:
    # Whether a group of so many bytes may be written: 0, or -errno when the ballast was given up, and what is left of its room
    # is for what frees more.
    cdef int64_t error = <int64_t>st_load(&c.shared.full)
    if error == 0 or n <= FULL_SMALL:
        return 0
    if c.writing.full_left < n:
        return -error
    c.writing.full_left -= n
    return 0


cdef int committer_ballast(Committer* c, Span path) noexcept nogil:
    if path.n >= sizeof(c.ballast):
        return -1
    memcpy(c.ballast, path.p, path.n)
    c.ballast[path.n] = 0
    return 0


cdef void committer_has_room(Committer* c) noexcept nogil:
    c.told_full = False
    st_store(&c.shared.full, 0)


cdef void tell_full(Committer* c) noexcept nogil:
    # With the engine lock held: the control plane hears once that nothing more is stored, and makes the ballast again.
    cdef Event e
    cdef uint64_t error = st_load(&c.shared.full)
    if error == 0 or c.told_full or c.env.out.event == NULL:
        return
    c.told_full = True
    memset(&e, 0, sizeof(e))
    e.kind = EV_DISK_FULL
    e.num[0] = <int64_t>error
    c.env.out.event(c.env.out.ctx, &e)


cdef bint fds_give(Committer* c, Round* r, int64_t rc) noexcept nogil:
    # Whether an open that failed for want of descriptors may be tried again: what this round has written is synced
    # and closed, and so is every other file that can be opened again.
    cdef FileOps* f = c.env.files
    cdef Part* p
    cdef Store* s
    cdef Block* b
    cdef Log* g
    cdef ListWalk actives
    cdef uint32_t i, k
    if rc != -EMFILE and rc != -ENFILE:
        return False
    for i in range(r.n_parts):
        p = &r.parts[i]
        for k in range(p.piece, p.piece + p.n):
            b = r.pieces[k].b
            if (b.writing.fd >= 0 and r.pieces[k].wrote and not r.pieces[k].synced and (c.sync_interval <= 0 or p.alone)
                    and p.err == 0):
                p.err = -sync_said(p.s, f.datasync(f.ctx, b.writing.fd))
                r.pieces[k].synced = True
            block_fd_close(b)
        g = p.first_log if p.logs else NULL
        while g != NULL:
            if g.writing.fd >= 0 and g.writing.wrote and c.sync_interval <= 0 and p.err == 0:
                p.err = -sync_said(p.s, f.datasync(f.ctx, g.writing.fd))
            g.writing.wrote = False
            log_fd_close(g)
            g = g.queue.next
    q_lock(c)
    actives = list_walk(&c.queue.active)
    s = <Store*>list_owner(list_step(&actives), &(<Store*>NULL).queue.active)
    while s != NULL:
        b = s.queue.out if not s.queue.busy else NULL
        while b != NULL:
            block_fd_close(b)
            b = b.queue.next_out
        g = s.queue.logs if not s.queue.busy else NULL
        while g != NULL:
            log_fd_close(g)
            g = g.queue.next
        s = <Store*>list_owner(list_step(&actives), &(<Store*>NULL).queue.active)
    q_unlock(c)
    spare_give(c)
    return True


cdef bint may_again(Committer* c, Round* r, int64_t rc) noexcept nogil:
    # Whether a step of a round that failed may be tried again: there are descriptors or there is room now.
    return rc < 0 and (fds_give(c, r, rc) or trash_give(c, rc) or ballast_give(c, rc))


cdef int msgs_sync(Committer* c, Round* r, Store* s) noexcept nogil:
    # The folder of the blocks; 0 or -errno.
    cdef int rc = s.files.sync_dir(s.files.ctx, s.msgs_dir)
    if may_again(c, r, rc):
        rc = s.files.sync_dir(s.files.ctx, s.msgs_dir)
    return rc


cdef void spare_give(Committer* c) noexcept nogil:
    if c.writing.spare >= 0:
        c.env.files.close(c.env.files.ctx, c.writing.spare)
    c.writing.spare = -1


cdef void spare_take(Committer* c) noexcept nogil:
    # One descriptor that the commit thread has for itself, also when all others are taken.
    if c.writing.spare < 0:
        c.writing.spare = c.env.files.open(c.env.files.ctx, "/dev/null", O_RDONLY, 0)


cdef void store_halt(Store* s, int64_t error) noexcept nogil:
    s.io_errno = error


cdef int64_t store_error(const Store* s) noexcept nogil:
    if s.io_errno == 0 and s.storage == STORE_FILE:
        return <int64_t>st_load(&s.com.shared.full)
    return s.io_errno
