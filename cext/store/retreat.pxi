# A store's end: no thread is at work on it any more, what it staged is forgotten, its files are as they were durable.

cdef bint must_sync(const Store* s) noexcept nogil:
    # With q held, of a store that is closed: whether a sync is still wanted.
    return list_linked(&s.queue.unsynced) and s.queue.done_errno == 0


cdef void chores_cancel(Committer* c, Store* s, List* gone) noexcept nogil:
    # With q held throughout: its blocks off every list of what is to be done. Those that nothing holds any more are added to
    # the ones that are to be freed without q.
    cdef ListWalk sides = list_walk(&c.queue.sides)
    cdef Block* b = <Block*>list_owner(list_step(&sides), &(<Block*>NULL).queue.side)
    zeros_cancel(c, s, NULL, gone)
    fetches_cancel(c, s, gone)
    trash_unlist(c, s)
    while b != NULL:
        if b.store == s:
            list_remove(&b.queue.side)
            unpin_later(b, gone)
        b = <Block*>list_owner(list_step(&sides), &(<Block*>NULL).queue.side)


cdef void store_unqueue(Committer* c, Store* s) noexcept nogil:
    # With q held: off every list of stores.
    list_drop(&s.queue.dirty)
    st_store(&s.shared.dirty, 0)
    active_leave(s)
    list_drop(&s.queue.done)
    list_drop(&s.queue.unsynced)


cdef void store_detach(Store* s, bint drop) noexcept nogil:
    # Waits until no thread knows the store: what is staged is on disk, or failed. drop: it is not waited for.
    cdef Committer* c = s.com
    cdef List gone
    invariant(not s.hold.listed, "no store is closed within a turn's changes")
    memset(&gone, 0, sizeof(List))
    q_lock(c)
    q_broadcast(c, &c.idle)     # to threads that wait for a round of this store
    while True:
        if not drop and must_sync(s):
            c.queue.sync_now = True
            c.queue.due = 0
            q_signal(c, &c.wake)
        if (st_load(&s.shared.dirty) or c.queue.sync_now) and not c.queue.running and not drop:
            q_unlock(c)
            commit_inline(c, 0)
            q_lock(c)
            if must_sync(s):
                continue                # what that wrote
        chores_cancel(c, s, &gone)
        # A thread that is busy with the store may have staged something, which is waited for, too.
        if (drop or s.queue.withheld or not c.queue.running
                or not (st_load(&s.shared.dirty) or s.queue.ops != NULL or must_sync(s))):
            store_unqueue(c, s)
            if not s.queue.busy:
                break
        q_wait(c, &c.idle, INT64_MAX)
    q_unlock(c)
    blocks_free(&gone)


cdef void block_undo(Store* s, Block* b) noexcept nogil:
    # A block that was to leave with a group that is not written: what of it is not durable is still to be cut off.
    out_remove(s, b)
    if is_closed(b):
        block_free(b)
    else:
        b.queue.next_out = s.queue.cuts
        s.queue.cuts = b


cdef void ops_discard(Store* s) noexcept nogil:
    cdef Op* op
    cdef uint32_t i
    while s.queue.ops != NULL:
        op = s.queue.ops
        s.queue.ops = op.next
        if op.kind == OP_DROP:
            block_undo(s, op.block)
        elif op.kind == OP_PURGE or op.kind == OP_CUT:
            for i in range(op.n):
                block_undo(s, op.blocks[i])
            free(op.blocks)
        bytes_free(&op.bytes)
        free(op)
    s.queue.ops_tail = NULL


cdef void store_dispose(Store* s) noexcept nogil:
    # Frees everything; no thread may know the store any more.
    cdef uint32_t i
    cdef Block* b
    cdef Log* log
    leftovers_free(s)
    for i in range(s.n_blocks):
        block_free(block_i(s, i))
    while s.queue.cuts != NULL:
        b = s.queue.cuts
        s.queue.cuts = b.queue.next_out
        block_free(b)
    while s.recovery.void_blocks != NULL:
        b = s.recovery.void_blocks
        s.recovery.void_blocks = b.queue.next_out
        block_free(b)
    while s.queue.logs != NULL:
        log = s.queue.logs
        s.queue.logs = log.queue.next
        log_free(log)
    free(s.blocks)
    bytes_free(&s.writing.stuck)
    bytes_free(&s.recovery.erasures)
    index_free(&s.x)
    if s.map != NULL:
        pages_free(s.map, s.map_size)
    lost_free(s)
    free(s.keeping.known)
    free(s.name)
    free(s.dir)
    free(s.msgs_dir)
    free(s)


cdef int cut_sync(FileOps* f, int fd) noexcept nogil:
    # 0 or -errno. The first sync may tell of what was written and is cut off by now.
    cdef int rc = f.datasync(f.ctx, fd)
    return f.datasync(f.ctx, fd) if rc < 0 else rc


cdef int block_cut(Store* s, Block* b, bint* unlinked) noexcept nogil:
    # 0 or -errno.
    cdef FileOps* f = s.files
    cdef char path[4200]
    cdef int rc
    if not has_file(b):
        return 0
    if b.writing.durable == 0:
        block_fd_close(b)
        block_path(s, b, ".blk", path, sizeof(path))
        rc = f.unlink(f.ctx, path)
        unlinked[0] = True
        return 0 if rc == -ENOENT else rc
    rc = block_fd(s, b, s.msgs_dir, unlinked)
    rc = f.truncate(f.ctx, b.writing.fd, <off_t>b.writing.durable) if rc == 0 else rc
    rc = cut_sync(f, b.writing.fd) if rc == 0 else rc
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
        rc = block_cut(s, b, unlinked) if b.writing.durable == 0 else 0
        b = b.queue.next_out
    return rc


cdef int store_retreat(Store* s) noexcept nogil:
    cdef Block* b
    cdef Log* g
    cdef bint unlinked = not s.writing.caches_gone     # caches that were removed, too: which failed at last
    cdef int rc = 0
    store_detach(s, False)
    later_finish(s.com, s, EIO)
    ops_discard(s)
    rc = journal_forget_store(s)
    if rc < 0:
        return -rc
    # What a batch had in new blocks goes before its beginning: one that ends in the middle is not taken for whole.
    rc = blocks_undo(s, s.queue.out, &unlinked)
    rc = blocks_undo(s, s.queue.cuts, &unlinked) if rc == 0 else rc
    if unlinked and rc == 0:
        rc = s.files.sync_dir(s.files.ctx, s.msgs_dir)
        unlinked = False
    b = s.queue.out
    while b != NULL and rc == 0:
        rc = block_cut(s, b, &unlinked)
        b = b.queue.next_out
    while s.queue.cuts != NULL and rc == 0:
        b = s.queue.cuts
        rc = block_cut(s, b, &unlinked)
        rc = rc if rc != -ENOENT else 0     # it went with the directory that a purge replaced before something else failed
        if rc == 0:
            s.queue.cuts = b.queue.next_out
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
