# Compression of a sealed block (maintenance thread): its file is copied in the compressed form to N.blk.tmp, which the commit
# thread renames between its groups. At each instant one form is there whole, and both have the same bytes.
#
# Where messages of a compressed block are to be erased, its file is replaced in the same way, and all that has left is noise.

cdef enum:
    COMPRESS_FROM = 4096        # bytes of a block


cdef int temp_write(Block* b, const uint8_t* p, uint64_t n) noexcept nogil:
    # What is to take the place of the block's file, on disk under its temporary name. 0 or -1.
    cdef FileOps* f = b.store.files
    cdef char path[4300]
    cdef int64_t rc
    cdef int fd
    block_path(b.store, b, ".blk.tmp", path, sizeof(path))
    fd = file_new(f, path)
    if fd < 0:
        return -1
    rc = f.pwrite(f.ctx, fd, p, n, 0)
    if rc >= 0:
        rc = f.datasync(f.ctx, fd)
    f.close(f.ctx, fd)
    return 0 if rc >= 0 else -1


cdef bint op_take_back(Store* s, Op* op) noexcept nogil:
    # With q held: whether no round has taken the request; then none will.
    cdef Op** at = &s.queue.ops
    cdef Op* last = NULL
    while at[0] != NULL and at[0] != op:
        last = at[0]
        at = &at[0].next
    if at[0] == NULL:
        return False
    at[0] = op.next
    if s.queue.ops_tail == op:
        s.queue.ops_tail = last
    free(op)
    return True


cdef bint temp_place(Committer* c, Block* b, OpKind kind, uint64_t erased) noexcept nogil:
    # Has the commit thread rename what temp_write has written; whether it did. erased: of OP_COMPRESS.
    cdef Store* s = b.store
    cdef uint64_t answer = 0
    cdef Op* op = <Op*>calloc(1, sizeof(Op))
    if op == NULL:
        return False
    op.kind = kind
    op.block = b
    op.after = erased
    op.answer = &answer
    op_queue(s, op)
    if not c.queue.running and not c.keeper_runs:
        commit_inline(c, 0)
    q_lock(c)
    while answer == 0 and not ((s.stopped or not c.queue.running) and op_take_back(s, op)):
        q_wait(c, &c.idle, INT64_MAX)
    q_unlock(c)
    return answer == 1


cdef bint compress_worth(Store* s, Block* b) noexcept nogil:
    # With the engine lock held: of the blocks that were closed in this life. Not the last one,
    # which nats-server appends to.
    return (s.compress and not s.stopped and not s.io_errno and is_sealed(b) and not has_left(b) and not b.damaged and not b.cut
            and b.writing.file >= FILE_ENDED and b.used >= COMPRESS_FROM and b != last_written(s))


cdef void mapping_leave(Committer* c, Block* b) noexcept nogil:
    # Without locks: the file that was replaced is not kept by a mapping of it.
    cdef Opened o
    memset(&o, 0, sizeof(o))
    env_lock(c.env)
    if b.data != NULL and b.bytes == BYTES_MAPPED and b.work == WORK_NONE and not has_left(b) and list_linked(&b.lru):
        o = block_closed(b)
    env_unlock(c.env)
    opened_free(b.store.files, &o)


cdef void block_compress(Committer* c, Block* b) noexcept nogil:
    # Without locks, the block pinned and the store busy; all that it has, and what its last group has elsewhere, is on disk.
    cdef Store* s = b.store
    cdef uint64_t used, erased = st_load(&b.writing.erased)
    cdef bint worth
    cdef Opened o
    cdef Bytes out
    env_lock(c.env)
    worth = compress_worth(s, b)
    used = b.used
    env_unlock(c.env)
    if not worth or not block_open(b, &o):
        return
    memset(&out, 0, sizeof(out))
    worth = not o.packed and o.size == used and compressed_make(o.p, o.size, &out) == 0
    opened_free(s.files, &o)
    if worth and temp_write(b, out.data, out.n) == 0 and temp_place(c, b, OP_COMPRESS, erased):
        mapping_leave(c, b)
    bytes_free(&out)


cdef bint ghosts_blank(Block* b, uint8_t* p, uint64_t size) noexcept nogil:
    # Erases all messages in a block's bytes that have left the store. False: these are no records.
    cdef Parsed r
    cdef uint64_t at = 0
    cdef int64_t i
    while at + REC_MIN <= size:
        if not record_parse(p + at, size - at, &r) or not record_good(b.key, p + at, &r):
            return False
        if r.raw_seq & (TOMB | ERASED) == 0 and r.seq:
            i = slot_of(b, r.seq)
            if i < 0 or b.off[i] != at + 1:
                record_blank(b, p + at, &r, at)
        at += r.size
    return at == size


cdef bint rewrite_write(Block* b, uint64_t used) noexcept nogil:
    # Writes the block without what is to be erased under its temporary name.
    cdef Opened o
    cdef Bytes out
    cdef int rc = -1
    if not block_open(b, &o):
        return False
    memset(&out, 0, sizeof(out))
    if o.packed and o.size == used and ghosts_blank(b, o.p, used):
        rc = compressed_make(o.p, used, &out)
        if rc >= 0:
            rc = temp_write(b, out.data, out.n) if rc == 0 else temp_write(b, o.p, used)
    opened_free(b.store.files, &o)
    bytes_free(&out)
    return rc == 0


cdef void block_rewrite(Committer* c, Block* b) noexcept nogil:
    # As block_compress. Of one that is damaged nothing is erased.
    cdef uint64_t used, erased = st_load(&b.writing.erased)
    env_lock(c.env)
    used = b.used if not has_left(b) and not b.damaged else 0
    env_unlock(c.env)
    if used and rewrite_write(b, used) and removals_wait(c, b.store):
        temp_place(c, b, OP_COMPRESS, erased)


cdef void rewrites_finish(Store* s) noexcept nogil:
    # At a clean stop, when nobody else knows the store: what the maintenance thread did not come to.
    cdef uint64_t answer
    cdef uint32_t i
    cdef Block* b
    cdef Op op
    for i in range(s.n_blocks):
        b = block_i(s, i)
        if not b.queue.rewrite or b.damaged or not rewrite_write(b, b.used):
            continue
        memset(&op, 0, sizeof(op))
        op.kind = OP_COMPRESS
        op.block = b
        op.after = st_load(&b.writing.erased)
        op.answer = &answer
        swap_finish(s, &op, 0)
