# Overwriting a removed record in its block's file, when its tombstone is on disk (commit thread).

cdef bint end_again(Store* s, Block* b) noexcept nogil:
    # Writes the marker that closed a block once more, whose file is open: a sync of it that failed, such as that for its
    # sidecar, took it for written.
    cdef FileOps* f = s.files
    cdef uint8_t mark[MARKER]
    cdef off_t at = <off_t>(b.writing.written - MARKER)
    cdef Parsed r
    if b.writing.file != FILE_ENDED:
        return True         # the start synced it
    return (f.pread(f.ctx, b.writing.fd, mark, MARKER, at) == MARKER and record_parse(mark, MARKER, &r) and is_marker(mark, &r)
            and record_good(b.key, mark, &r) and f.pwrite(f.ctx, b.writing.fd, mark, MARKER, at) == MARKER)


cdef void record_blank(const Block* b, uint8_t* p, const Parsed* was, uint64_t off) noexcept nogil:
    # Makes the record at p, which stands at `off` of the block, noise of the same length that every reader takes for an
    # erased one.
    cdef uint64_t size = was.size, mark = record_mark(p, was, off)
    cdef System* system = b.store.env.system
    cdef Parsed r
    system.random(system.ctx, p + HEAD, size - HEAD)
    if size >= REC_MIN + 8:
        st_put64(p + HEAD, mark)
    st_put32(p, <uint32_t>size)
    st_put64(p + 4, (st_get64(p + 4) & ~(TOMB | ERASED)) | ERASED)
    st_put64(p + 12, 0)
    st_put16(p + 20, 0)
    record_parse(p, size, &r)
    st_put64(p + size - 8, record_hash(b.key, p, &r))


cdef void block_erase(Store* s, const Op* op) noexcept nogil:
    # Overwrites a removed record; a compressed file is for the maintenance thread to rewrite.
    #
    # Its tombstone is on disk by now, so a torn write here costs nothing. Where the block was compacted since, something
    # else stands there, and the record was left out or is erased by a request of its own.
    cdef FileOps* f = s.files
    cdef Block* b = op.block
    cdef uint64_t off = op.off, size = op.size
    cdef uint8_t* p
    cdef char path[4300]
    cdef bint made = False, opened = b.writing.fd < 0
    cdef Parsed r
    invariant(op.kind == OP_ERASE and b != NULL and b.store == s, "an erasure is of a block of its store")
    if size < REC_MIN or b.queue.state == BLOCK_GONE or not has_file(b) or f.once:      # never written: a purge took it
        return
    p = <uint8_t*>malloc(size)
    if p == NULL or block_fd(s, b, s.msgs_dir, &made) < 0 or not block_direct(s.com, b, False):
        free(p)
        return
    b.writing.page_at = UINT64_MAX
    st_add(&b.writing.erased, 1)
    if is_compressed(f, b.writing.fd):
        free(p)
        if opened:
            block_fd_close(b)
        q_lock(s.com)
        b.queue.rewrite = True
        if not s.stopped:               # store_close sees to it
            side_queue(s.com, b)
        q_unlock(s.com)
        return
    block_path(s, b, ".blk", path, sizeof(path))
    if journal_forget_file(s.com, path, &b.writing.jot) < 0:    # it would bring the record back
        free(p)
        if opened:
            block_fd_close(b)
        return
    # Its tombstone may stand in a later block. Then only the marker that closed this one says that a torn erasure is not
    # a torn group, of which nothing takes anything away. Without it the record stays, until the block is compacted or goes.
    if ((b.writing.file == FILE_CLOSED or b.writing.file == FILE_ENDED) and end_again(s, b)
            and sync_said(s, f.datasync(f.ctx, b.writing.fd)) == 0):
        b.writing.file = FILE_PROVEN
    if ((b.writing.file == FILE_PROVEN or b.writing.file == FILE_OPEN)
            and f.pread(f.ctx, b.writing.fd, p, size, <off_t>off) == <int64_t>size
            and record_parse(p, size, &r) and r.size == size and r.raw_seq == op.seq and record_good(b.key, p, &r)):
        record_blank(b, p, &r, off)
        f.pwrite(f.ctx, b.writing.fd, p, size, <off_t>off)
    free(p)
    if opened:
        block_fd_close(b)
