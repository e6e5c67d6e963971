# When a group could not be written: the way back to what was durable before it.

cdef int cut_sync(FileOps* f, int fd) noexcept nogil:
    # 0 or -errno. The first sync may tell of what was written and is cut off by now.
    cdef int rc = f.datasync(f.ctx, fd)
    return f.datasync(f.ctx, fd) if rc < 0 else rc


cdef int block_cut(Store* s, Block* b, bint* unlinked) noexcept nogil:
    # 0 or -errno.
    cdef FileOps* f = s.files
    cdef char path[4200]
    cdef int rc
    if not b.created:
        return 0
    if b.durable == 0:
        block_fd_close(b)
        block_path(s, b, ".blk", path, sizeof(path))
        rc = f.unlink(f.ctx, path)
        unlinked[0] = True
        return 0 if rc == -ENOENT else rc
    rc = block_fd(s, b, s.msgs_dir, unlinked)
    rc = f.truncate(f.ctx, b.fd, <off_t>b.durable) if rc == 0 else rc
    rc = cut_sync(f, b.fd) if rc == 0 else rc
    block_fd_close(b)
    return rc


cdef int log_cut(Log* g) noexcept nogil:
    # 0 or -errno.
    cdef FileOps* f = g.store.files
    cdef int rc = log_fd(g)
    rc = f.truncate(f.ctx, g.writing.fd, <off_t>g.writing.durable) if rc == 0 else rc
    rc = cut_sync(f, g.writing.fd) if rc == 0 else rc
    log_fd_close(g)
    return rc


cdef int blocks_undo(Store* s, Block* b, bint* unlinked) noexcept nogil:
    # Of a chain by next_out those of which nothing is durable: their files go. 0 or -errno.
    cdef int rc = 0
    while b != NULL and rc == 0:
        rc = block_cut(s, b, unlinked) if b.durable == 0 else 0
        b = b.next_out
    return rc


cdef int store_retreat(Store* s) noexcept nogil:
    cdef Block* b
    cdef Log* g
    cdef bint unlinked = not s.writing.caches_gone     # caches that were removed, too: which failed at last
    cdef int rc = 0
    store_detach(s, False)
    later_finish(s.com, s, EIO)
    ops_discard(s)
    # What a batch had in new blocks goes before its beginning: one that ends in the middle is not taken for whole.
    rc = blocks_undo(s, s.queue.out, &unlinked)
    rc = blocks_undo(s, s.queue.cuts, &unlinked) if rc == 0 else rc
    if unlinked and rc == 0:
        rc = s.files.sync_dir(s.files.ctx, s.msgs_dir)
        unlinked = False
    b = s.queue.out
    while b != NULL and rc == 0:
        rc = block_cut(s, b, &unlinked)
        b = b.next_out
    while s.queue.cuts != NULL and rc == 0:
        b = s.queue.cuts
        rc = block_cut(s, b, &unlinked)
        rc = rc if rc != -ENOENT else 0     # it went with the directory that a purge replaced before something else failed
        if rc == 0:
            s.queue.cuts = b.next_out
            block_free(b)
    g = s.queue.logs
    while g != NULL and rc == 0:
        rc = log_cut(g)
        g = g.queue.next
    if unlinked and rc == 0:
        rc = s.files.sync_dir(s.files.ctx, s.msgs_dir)
    if rc == 0:
        rc = unsynced_again(s)
    if rc == 0:         # which sequences were used is known, though blocks that should follow are not there
        reserve_write(s, s.queue.done_seq)
    return -rc


cdef void store_forget(Store* s) noexcept nogil:
    store_dispose(s)
