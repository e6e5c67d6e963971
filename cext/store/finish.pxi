# What a change leads to once the group that made it is on disk (commit thread): files go, and blocks with them.

cdef enum:
    TRASH_FROM = 1048576        # bytes of a file; a smaller one goes at once


cdef void op_finish(Committer* c, Store* s, Op* op, int err) noexcept nogil:
    cdef uint32_t i
    cdef char path[4200]
    if op.kind == OP_DROP:
        if err == 0:
            # Its tombstones may be for files that are gone, and its cut record speaks of those before it.
            if (op.block.tombs or op.block.cut) and not unlinks_sync(s):
                unlink_later(s, op.block.num)
            else:
                block_unlink(s, op.block)
        block_leave(c, op.block, err)
    elif op.kind == OP_PURGE:
        for i in range(op.n):
            block_leave(c, op.blocks[i], err)
        free(op.blocks)
        if err == 0:
            snprintf(path, sizeof(path), "%s/__msgs__", s.dir)
            if not trash_put(s, path):
                tree_remove(s.files, path)
    elif op.kind == OP_CUT:
        for i in range(op.n):
            if err == 0:
                block_unlink(s, op.blocks[i])
            block_leave(c, op.blocks[i], err)
        free(op.blocks)
        unlinks_sync(s)             # none of them comes back when what replaced them is gone or changed
    elif op.kind == OP_ERASE and err == 0:
        block_erase(s, op)
    elif op.kind == OP_SWAP or op.kind == OP_COMPRESS:
        swap_finish(s, op, err)
    bytes_free(&op.bytes)


cdef bint unlinks_sync(Store* s) noexcept nogil:
    # Whether no file that was to go is there or comes back by a power cut. What could not be unlinked is tried again.
    cdef Bytes left = s.writing.stuck
    cdef uint64_t num
    cdef size_t at = 0
    memset(&s.writing.stuck, 0, sizeof(Bytes))
    while at < left.n:
        memcpy(&num, left.data + at, 8)
        num_unlink(s, num, 0)
        at += 8
    bytes_free(&left)
    if s.writing.unlinked:
        s.writing.unlinked = s.files.sync_dir(s.files.ctx, s.msgs_dir) != 0
    return not s.writing.unlinked and s.writing.stuck.n == 0


cdef void unlink_later(Store* s, uint64_t num) noexcept nogil:
    bytes_add(&s.writing.stuck, &num, 8)    # without memory it stays until the next start


cdef void num_unlink(Store* s, uint64_t num, uint64_t size) noexcept nogil:
    cdef FileOps* f = s.files
    cdef char path[4200]
    cdef int rc
    # The sidecar first: one without its block says that the block is missing.
    snprintf(path, sizeof(path), "%s/%llu.jsx", s.msgs_dir, <unsigned long long>num)
    rc = f.unlink(f.ctx, path)
    if rc == 0 or rc == -ENOENT:
        snprintf(path, sizeof(path), "%s/%llu.blk", s.msgs_dir, <unsigned long long>num)
        rc = 0 if size >= TRASH_FROM and trash_put(s, path) else f.unlink(f.ctx, path)
    s.writing.unlinked = True
    if rc < 0 and rc != -ENOENT:
        unlink_later(s, num)


cdef void block_unlink(Store* s, Block* b) noexcept nogil:
    placing_wait(s.com, s)
    num_unlink(s, b.num, st_load(&b.used))


cdef void block_leave(Committer* c, Block* b, int err) noexcept nogil:
    # A block that its store let go of. After an error the store is opened again from files that still have it.
    cdef Store* s = b.store
    erasures_forget(s, b)
    if err == 0 or is_closed(b):
        block_release(c, b)
        return
    q_lock(c)
    out_remove(s, b)
    b.queue.next_out = s.queue.cuts
    s.queue.cuts = b
    q_unlock(c)


cdef void block_release(Committer* c, Block* b) noexcept nogil:
    # Frees a block that has left the store, at once or when the last pin goes.
    cdef bint now
    q_lock(c)
    invariant(b.queue.state != BLOCK_GONE, "a block's files are dealt with once")
    b.queue.state = BLOCK_GONE
    now = b.queue.pins == 0
    out_remove(b.store, b)
    q_unlock(c)
    if now:
        block_free(b)


cdef void out_remove(Store* s, Block* b) noexcept nogil:
    cdef Block** at = &s.queue.out
    cdef Block* last = NULL
    while at[0] != NULL:
        if at[0] == b:
            at[0] = b.queue.next_out
            break
        last = at[0]
        at = &at[0].queue.next_out
    if s.queue.out_tail == b:
        s.queue.out_tail = last


cdef void swap_finish(Store* s, Op* op, int err) noexcept nogil:
    # The commit thread's part: the new file takes the old one's name, unless the block is gone.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef char temp[4300]
    cdef char side[4300]
    cdef bint ok = op.kind == OP_SWAP or st_load(&op.block.writing.erased) == op.after
    cdef int rc = 0
    block_path(s, op.block, ".blk", path, sizeof(path))
    block_path(s, op.block, ".blk.tmp", temp, sizeof(temp))
    # The new file may leave out tombstones for files that are gone.
    ok = ok and err == 0 and op.block.queue.state != BLOCK_GONE and unlinks_sync(s)
    ok = ok and journal_forget_file(s.com, path, &op.block.writing.jot) == 0
    if ok:
        block_fd_close(op.block)
        block_path(s, op.block, ".jsx", side, sizeof(side))
        if op.kind == OP_SWAP:
            rc = f.unlink(f.ctx, side)      # it knows another file, which would look damaged
        ok = (rc == 0 or rc == -ENOENT) and f.rename(f.ctx, temp, path) == 0
    if ok:
        s.writing.unlinked = f.sync_dir(f.ctx, s.msgs_dir) != 0
    else:
        f.unlink(f.ctx, temp)
    op.answer[0] = 1 if ok else 2


cdef void later_add(Store* s, Op* op) noexcept nogil:
    op.next = NULL
    if op.kind == OP_ERASE:
        op.block.writing.erasures += 1
    if s.writing.later_last != NULL:
        s.writing.later_last.next = op
    else:
        s.writing.later = op
    s.writing.later_last = op


cdef void erasures_forget(Store* s, Block* b) noexcept nogil:
    # Those that wait to be made in a block that goes.
    cdef Op* op = s.writing.later
    cdef Op* after
    if b.writing.erasures == 0:
        return
    s.writing.later = NULL
    s.writing.later_last = NULL
    while op != NULL:
        after = op.next
        if op.kind == OP_ERASE and op.block == b:
            free(op)
        else:
            if op.kind == OP_ERASE:
                op.block.writing.erasures -= 1
            later_add(s, op)
        op = after
