# A round on the files: what was taken is written and synced, then what may only follow the sync is done (closing,
# unlinking, erasing).

cdef enum:
    SYNC_EACH = 4               # more files than this, and no journal: one syncfs


cdef int caches_remove(Store* s) noexcept nogil:
    # nats-server's index.db and our checkpoint describe the blocks as they were: gone before a block changes. 0 or -errno.
    cdef char path[4200]
    cdef int a, b, rc = 0
    # What nats-server knows of TTLs and schedules up to some sequence; it reads them anew.
    snprintf(path, sizeof(path), "%s/thw.db", s.msgs_dir)
    s.files.unlink(s.files.ctx, path)
    snprintf(path, sizeof(path), "%s/sched.db", s.msgs_dir)
    s.files.unlink(s.files.ctx, path)
    snprintf(path, sizeof(path), "%s/index.db", s.msgs_dir)
    a = s.files.unlink(s.files.ctx, path)
    checkpoint_path(s, path, sizeof(path))
    b = s.files.unlink(s.files.ctx, path)
    s.writing.caches_doubt = s.writing.caches_doubt or a == 0 or b == 0
    # A directory of that name is never read as a cache.
    if a != 0 and a != -ENOENT and a != -EISDIR:
        rc = a
    elif b != 0 and b != -ENOENT and b != -EISDIR:
        rc = b
    elif s.writing.caches_doubt:
        rc = s.files.sync_dir(s.files.ctx, s.msgs_dir)
        s.writing.caches_doubt = rc != 0
    s.writing.caches_gone = rc == 0
    return rc


cdef void group_seal(Store* s, Block* b, uint64_t start, uint64_t end, uint64_t first, uint32_t flags,
                     uint8_t* mark) noexcept nogil:
    # Puts the checksums into the records [start, end) of the region and makes the marker.
    cdef Parsed r
    cdef Mark m
    cdef Cut cut
    cdef uint8_t* p
    cdef uint64_t at = start
    cdef Extent* e = &s.writing.extent
    m.count = 0
    m.digest = 0
    while at < end:
        p = b.data + at
        if not record_parse(p, end - at, &r):
            break       # cannot be: these bytes were staged by record_write
        st_put64(p + r.size - 8, record_hash(b.key, p, &r))
        m.digest += record_mark(p, &r, at)
        m.count += 1
        at += r.size
        if r.raw_seq == TOMB and cut_read(p, &r, &cut):
            cut_extent(&cut, e)
        if r.seq > e.last:
            e.last = r.seq
            e.last_ts = r.ts
    # What closes a block has no number of its own: the first group of the next block, which may be written before, follows
    # on the last one of this.
    if not flags & MARK_SEALED:
        st_store(&s.writing.group, s.writing.group + 1)
    e.first = max(e.first, first)
    m.extent = e[0]
    m.group = s.writing.group
    m.start = start
    m.durable = b.writing.durable
    if s.com.sync_interval > 0:
        m.durable = b.writing.safe
        if flags & MARK_SEALED:
            memset(&m.extent, 0, sizeof(Extent))    # it may be on disk before the next block, which moved that
        elif b.writing.safe:
            s.writing.marked = s.writing.syncs
    m.flags = MARK_SUM | (MARK_LAZY if s.com.sync_interval > 0 else 0) | flags
    marker_write(b.key, mark, &m)


cdef int piece_write(Committer* c, Round* r, Part* p, Piece* piece, bint closing) noexcept nogil:
    # Writes what the block has staged, and its marker; 0 or -errno. closing: the last one, it says that another block
    # follows.
    #
    # Only the last block's marker says what is gone by now: what took it away may stand there. That of another one says what
    # was when the block was full; what closes it comes behind the next one's, which may have set that back.
    cdef Store* s = p.s
    cdef Block* b = piece.b
    cdef uint64_t start = b.writing.written, end = piece.end
    cdef uint64_t first = p.first if piece == &r.pieces[p.piece + p.n - 1] else 0 if closing else b.floor
    cdef uint64_t synced = s.writing.synced_first
    cdef uint32_t flags = (MARK_SEALED if closing else 0) | (MARK_OPEN if piece.open else 0)
    cdef int rc
    if not piece.due:
        return 0
    rc = piece_ready(c, r, p, b, first)
    if rc == 0:
        # What closes a block comes behind the round's frame, and needs no sync.
        rc = group_put(c, r, b, end, first, flags | (MARK_BATCH if s.writing.whole else 0),
                       &piece.noted if p.journal and not closing else NULL)
    if rc < 0:
        return rc
    piece.wrote = piece.wrote or end > start or (first > synced and not p.close)
    b.writing.open_group = end > start
    b.writing.opens = b.writing.opens or piece.open
    if piece.wrote:
        r.wrote = True
    return 0


cdef int piece_ready(Committer* c, Round* r, Part* p, Block* b, uint64_t first) noexcept nogil:
    # Before a block's file is written to; 0 or -errno.
    cdef Store* s = p.s
    cdef int rc = reserve_before(c, s, b)
    if rc == 0 and first > s.writing.extent.first and not s.writing.caches_gone:
        rc = caches_remove(s)       # the checkpoint would miss what aged
    if rc == 0:
        rc = block_fd(s, b, s.msgs_dir, &p.sync_dir)
    if may_again(c, r, rc):
        rc = reserve_before(c, s, b)
        rc = block_fd(s, b, s.msgs_dir, &p.sync_dir) if rc == 0 else rc
    return rc


cdef int group_put(Committer* c, Round* r, Block* b, uint64_t end, uint64_t first, uint32_t flags,
                   bint* noted) noexcept nogil:
    # Writes what the block has staged up to `end`, and there its marker; 0 or -errno. noted: whether the journal has it, too;
    # NULL: it is not to.
    cdef uint64_t start = b.writing.written
    cdef char path[4300]
    cdef uint8_t mark[MARKER]
    cdef int rc = <int>room_left(c, end - start)
    if rc < 0:
        return rc
    group_seal(b.store, b, start, end, first, flags, mark)
    ahead_wait(c, b, end + MARKER)
    rc = group_write(c, r, b, start, end, mark)
    if rc < 0 and ballast_give(c, rc):
        rc = <int>room_left(c, end - start)
        rc = group_write(c, r, b, start, end, mark) if rc == 0 else rc
    if rc == 0:
        b.writing.written = end + MARKER
    if rc == 0 and noted != NULL:
        block_path(b.store, b, ".blk", path, sizeof(path))
        noted[0] = (unsynced_jot(c, r, b, path, start)
                    and journal_note(c, path, start, b.data + start, end - start, mark, MARKER, &b.writing.jot))
        b.store.writing.jot = max(b.store.writing.jot, b.writing.jot)
    return rc


cdef bint unsynced_jot(Committer* c, Round* r, Block* b, const char* path, uint64_t start) noexcept nogil:
    # Puts into the journal what stands before a group and was not synced, a marker that closed an idle group: without it a power
    # cut would leave a hole there, which looks like damage. False: the journal cannot have it.
    cdef FileOps* f = b.store.files
    cdef uint64_t from_at = b.writing.durable, n = start - b.writing.durable
    if n == 0:
        return True
    return (n <= SCRATCH and r.scratch != NULL and f.pread(f.ctx, b.writing.fd, r.scratch, n, <off_t>from_at) == <int64_t>n
            and journal_note(c, path, from_at, r.scratch, n, NULL, 0, &b.writing.jot))


cdef int piece_sync(Committer* c, Round* r, Part* p, Piece* piece) noexcept nogil:
    # Before the next block is written: that may say what the messages in this one take away. 0 or -errno.
    cdef int rc
    if not piece.wrote or piece.synced:
        return 0
    piece.synced = True
    rc = sync_said(p.s, p.s.files.datasync(p.s.files.ctx, piece.b.writing.fd))
    if rc == 0 and p.sync_dir:
        p.sync_dir = False
        rc = msgs_sync(c, r, p.s)
    return rc


cdef void part_write(Committer* c, Round* r, Part* p) noexcept nogil:
    cdef Store* s = p.s
    cdef uint32_t i
    cdef int rc
    p.err = <int>s.queue.done_errno
    if p.err:
        return
    p.journal = r.journal and not part_changes_files(p)
    if not s.writing.caches_gone and not p.close:
        rc = caches_remove(s)
        if may_again(c, r, rc):
            rc = caches_remove(s)
        p.err = -rc
    ops_start(c, r, p, False)
    for i in range(p.piece, p.piece + p.n):
        if p.err:
            return
        if i > p.piece and (c.sync_interval <= 0 or p.alone):
            p.err = -piece_sync(c, r, p, &r.pieces[i - 1])
        if p.err == 0:
            p.err = -batch_announce(c, r, p, &r.pieces[i])
        if p.err == 0:
            p.err = -piece_write(c, r, p, &r.pieces[i], False)
    if p.journal and p.sync_dir and p.err == 0:
        p.sync_dir = False          # what the journal has of a file that is not there counts for nothing
        p.err = -msgs_sync(c, r, s)
    if p.journal and p.err == 0 and logs_note(c, r, p):
        return
    p.journal = False
    if p.alone if c.sync_interval > 0 else logs_follow(p):
        for i in range(p.piece, p.piece + p.n):
            if p.err == 0:
                p.err = -piece_sync(c, r, p, &r.pieces[i])
    part_logs(c, r, p)


cdef void part_logs(Committer* c, Round* r, Part* p) noexcept nogil:
    cdef Log* g = p.first_log
    cdef int rc
    ops_start(c, r, p, True)
    while g != NULL and p.logs and p.err == 0:
        if g.writing.bytes.n:
            rc = log_write(g, &g.writing.bytes)
            if may_again(c, r, rc):
                rc = log_write(g, &g.writing.bytes)
            p.err = -rc
            r.wrote = True
        g = g.queue.next


cdef bint part_changes_files(const Part* p) noexcept nogil:
    # Whether its files are cut or replaced, or what it does needs syncs in between: then each is synced by itself.
    cdef const Op* op = p.ops
    while op != NULL:
        if op.kind == OP_PURGE or op.kind == OP_SWAP or op.kind == OP_COMPRESS or op.kind == OP_LOG or op.kind == OP_CUT:
            return True
        op = op.next
    return False


cdef bint log_note(Committer* c, Log* g, const Bytes* b) noexcept nogil:
    # What is to be written to a log, behind what was noted before.
    cdef bint ok = journal_note(c, g.path, g.writing.written + g.writing.noted, b.data, b.n, NULL, 0, &g.writing.jot)
    g.writing.noted += b.n
    g.store.writing.jot = max(g.store.writing.jot, g.writing.jot)
    return ok


cdef bint logs_note(Committer* c, Round* r, Part* p) noexcept nogil:
    # Puts all that is for its logs into the journal. They are written when that is synced: a log may say what became of messages
    # in the blocks, which have to be on disk before. False: they go their own way.
    cdef Log* g = p.first_log if p.logs else NULL
    cdef const Op* op = p.ops
    cdef uint64_t start = c.journal.n
    cdef bint ok = True
    cdef uint32_t i
    while g != NULL:
        g.writing.noted = 0
        g = g.queue.next
    for i in range(p.piece, p.piece + p.n):
        ok = ok and (r.pieces[i].noted or r.pieces[i].synced or not r.pieces[i].wrote)
    while op != NULL and ok:
        ok = op.kind != OP_APPEND or log_note(c, op.log, &op.bytes)
        op = op.next
    g = p.first_log if p.logs else NULL
    while g != NULL and ok:
        ok = g.writing.bytes.n == 0 or log_note(c, g, &g.writing.bytes)
        g = g.queue.next
    if not ok:
        c.journal.n = start
    r.wrote = r.wrote or (ok and p.logs)
    return ok


cdef bint logs_follow(const Part* p) noexcept nogil:
    # Whether a log says what became of messages, which a power cut could bring back.
    cdef const Op* op = p.ops
    cdef const Log* g = p.first_log if p.logs else NULL
    while op != NULL:
        if op.kind == OP_LOG or (op.kind == OP_APPEND and op.n):
            return True
        op = op.next
    while g != NULL:
        if g.writing.bytes.n and g.writing.follows:
            return True
        g = g.queue.next
    return False


cdef void ops_start(Committer* c, Round* r, Part* p, bint logs) noexcept nogil:
    cdef Op* op = p.ops
    while op != NULL and p.err == 0:
        if (op.kind == OP_LOG or op.kind == OP_APPEND) == logs:
            p.err = -op_start(p.s, op)
            if may_again(c, r, -p.err):
                p.err = -op_start(p.s, op)
            r.wrote = r.wrote or op.kind == OP_APPEND
        op = op.next


cdef int op_start(Store* s, Op* op) noexcept nogil:
    # A purge before the group's records, what changes logs behind them. 0 or -errno.
    if op.kind == OP_PURGE:
        return purge_switch(s, op.block)
    if op.kind == OP_LOG:
        return log_restart(op)
    if op.kind == OP_APPEND:
        return log_write(op.log, &op.bytes)
    return 0


cdef void round_write(Committer* c, Round* r, int64_t now) noexcept nogil:
    # Everything on disk, or the reason why not in each part's err.
    cdef uint32_t i
    cdef uint64_t noted
    cdef Part* p
    journal_lock(c)
    r.journal = round_journal(c, r)
    for i in range(r.n_parts):
        noted = c.journal.n
        part_write(c, r, &r.parts[i])
        if r.parts[i].err:
            c.journal.n = min(c.journal.n, noted)       # nothing of what is refused
    if c.sync_interval > 0:
        lazy_round(c, r, now)
    else:
        round_sync(c, r)
    for i in range(r.n_parts):
        p = &r.parts[i]
        if p.sync_dir and p.err == 0:
            p.err = -msgs_sync(c, r, p.s)
        if p.err == 0:
            p.err = -reserve_behind(c, r, p)
    for i in range(r.n_parts):
        part_finish(c, r, &r.parts[i], now)
    if r.unsynced != NULL:
        lazy_end(c, r)
    spare_take(c)
    journal_unlock(c)


cdef bint round_journal(Committer* c, Round* r) noexcept nogil:
    # Whether it touches so many files that one append to the journal is quicker than their syncs.
    cdef uint64_t n = 0, size = c.journal.n + FRAME_HEAD
    cdef uint32_t i
    cdef Log* g
    if c.journal.state == JOURNAL_OFF or c.sync_interval > 0:
        return False
    if st_load(&c.shared.full):
        if c.journal.state == JOURNAL_OPEN:
            journal_broke(c)        # its room is for what frees more
        return False
    invariant(c.journal.n <= FRAME_HEAD, "what a round puts into the journal it appends, or takes back")
    if st_load(&c.shared.doubt):
        journal_clear(c)
    for i in range(r.n_pieces):
        if r.pieces[i].due:
            n += 1
            size += 3 * (ENTRY_HEAD + JOURNAL_PATH // 8) + r.pieces[i].end + MARKER - r.pieces[i].b.writing.durable
    for i in range(r.n_parts):
        g = r.parts[i].first_log if r.parts[i].logs else NULL
        while g != NULL:
            n += g.writing.bytes.n > 0
            size += g.writing.bytes.n + ENTRY_HEAD + JOURNAL_PATH // 8
            g = g.queue.next
    return n > c.journal.above and journal_ready(c, min(size, <uint64_t>FRAME_MAX))


cdef void round_sync(Committer* c, Round* r) noexcept nogil:
    # By one append to the journal, and each file that the journal does not have in turn. Without a journal many files are synced
    # by one call for the file system.
    cdef bint noted = r.journal and journal_commit(c)
    cdef int fd = -1
    cdef uint32_t i, k
    cdef Part* p
    cdef Piece* piece
    cdef Log* g
    cdef FileOps* f = c.env.files
    if not r.wrote:
        return
    if not r.journal and round_unsynced(r, &fd) > SYNC_EACH and fd >= 0:
        round_syncfs(r, fd)
        return
    for i in range(r.n_parts):
        p = &r.parts[i]
        f = p.s.files
        for k in range(p.piece, p.piece + p.n):
            piece = &r.pieces[k]
            if piece.wrote and not piece.synced and not (noted and piece.noted) and p.err == 0:
                p.err = -sync_said(p.s, f.datasync(f.ctx, piece.b.writing.fd))
        if p.journal and p.err == 0:
            part_logs(c, r, p)
        g = p.first_log if p.logs else NULL
        while g != NULL and p.err == 0:
            if g.writing.wrote and not (noted and p.journal):
                p.err = -sync_said(p.s, f.datasync(f.ctx, g.writing.fd))
            g = g.queue.next


cdef uint32_t round_unsynced(const Round* r, int* fd) noexcept nogil:
    # How many files are to be synced, and the descriptor of one.
    cdef const Part* p
    cdef uint32_t n = 0, i, k
    for i in range(r.n_parts):
        p = &r.parts[i]
        for k in range(p.piece, p.piece + p.n):
            if r.pieces[k].wrote and not r.pieces[k].synced:
                n += 1
                fd[0] = r.pieces[k].b.writing.fd
        n += p.logs
    return n


cdef void round_syncfs(Round* r, int fd) noexcept nogil:
    cdef FileOps* f = r.parts[0].s.files
    cdef int rc = f.sync_all(f.ctx, fd)
    cdef uint32_t i
    for i in range(r.n_parts):
        if r.parts[i].err == 0:
            r.parts[i].err = -sync_said(r.parts[i].s, rc)


# ---- after the sync -----------------------------------------------------------------------------------------------------

cdef void part_finish(Committer* c, Round* r, Part* p, int64_t now) noexcept nogil:
    # What may only happen once the group is on disk: closing sealed files, unlinking, erasing.
    cdef Store* s = p.s
    cdef Op* op
    cdef Block* b
    cdef Log* g
    cdef uint32_t i
    for i in range(p.piece, p.piece + p.n if p.err == 0 else 0):
        if r.pieces[i].wrote:       # the marker that only closes an idle group is not synced
            r.pieces[i].b.writing.durable = r.pieces[i].b.writing.written
            s.writing.synced_first = s.writing.extent.first
            s.writing.kept_last = s.writing.extent.last
    for i in range(p.piece, p.piece + p.n):
        b = r.pieces[i].b
        if p.err == 0:
            if r.pieces[i].sealed:
                # Not before the next one's file is there: its absence would be damage.
                if i + 1 < p.piece + p.n and r.pieces[i + 1].b.writing.durable:
                    piece_close(c, r, p, &r.pieces[i])
            elif r.pieces[i].wrote and c.sync_interval <= 0 and c.keeper_runs:
                ahead_check(c, b)
            elif p.close:
                block_fd_close(b)
    if p.err or r.synced:
        later_finish(c, s, p.err)       # what has waited for the sync comes first
    while p.ops != NULL:
        op = p.ops
        p.ops = op.next
        if p.err == 0 and op.kind == OP_PURGE:
            later_moot(c, s)
        if p.err == 0 and waits_for_sync(c, r, s, op):
            later_add(s, op)
            continue
        op_finish(c, s, op, p.err)
        free(op)
    g = p.first_log if p.logs or p.close else NULL
    while g != NULL:
        if p.err == 0:
            g.writing.durable = g.writing.written
        g.writing.wrote = False
        bytes_free(&g.writing.bytes)
        if p.close:
            log_fd_close(g)
        g = g.queue.next


cdef void piece_close(Committer* c, Round* r, Part* p, Piece* piece) noexcept nogil:
    # A sealed block whose bytes are all on disk: closed by a last empty marker and cut to its size.
    cdef Block* b = piece.b
    cdef FileOps* f = p.s.files
    if b.writing.written == 0:
        b.writing.file = FILE_CLOSED if has_file(b) else FILE_NEVER
        return
    if st_load(&b.used) != b.writing.written or block_fd(p.s, b, p.s.msgs_dir, &p.sync_dir) < 0:
        return
    piece.open = False
    piece.due = marker_place(p.s, b, 0, p.close, True, &piece.end)
    if piece_write(c, r, p, piece, True) < 0:
        st_store(&b.used, b.writing.written)        # the next round tries again: nothing is appended to it
        return
    if b.writing.opens:
        # Whatever becomes of the blocks behind it, it is known that there was more.
        sync_said(p.s, f.datasync(f.ctx, b.writing.fd))
    ahead_wait(c, b, UINT64_MAX)
    f.truncate(f.ctx, b.writing.fd, <off_t>b.writing.written)
    block_fd_close(b)
    b.writing.file = FILE_ENDED


cdef const Op* batch_in(const Part* p, const Block* b) noexcept nogil:
    # The first batch that begins in that block, NULL when there is none.
    cdef const Op* op = p.ops if p.alone else NULL
    while op != NULL and (op.kind != OP_BATCH or op.block != b):
        op = op.next
    return op


cdef bint marker_place(Store* s, Block* b, uint64_t first, bint close, bint closing, uint64_t* end) noexcept nogil:
    # Reserves the place of the marker behind what the block has; False: nothing is to be written. closing: it says that
    # another block follows.
    cdef uint64_t start = b.writing.written
    # What an idle group's end names is not synced: a client that waits for a change waits for a marker that is.
    cdef uint64_t known = s.writing.extent.first if close else s.writing.synced_first
    while True:
        end[0] = st_load(&b.used)
        if end[0] == start and first <= known and not closing and not (b.writing.open_group and close):
            return False
        if st_cas(&b.used, end[0], end[0] + MARKER):
            return True


cdef int batch_announce(Committer* c, Round* r, Part* p, Piece* piece) noexcept nogil:
    # Where the part's first batch begins in this block: what stands before it is written, and a marker that says that what
    # follows counts as a whole; both are synced before anything of the batch is written. 0 or -errno.
    #
    # A store that syncs each group says so with every marker from then on: for its next batches this is done.
    cdef const Op* op = batch_in(p, piece.b) if not p.begun else NULL
    cdef Block* b = piece.b
    cdef int rc
    if op == NULL:
        return 0
    p.begun = True
    rc = piece_ready(c, r, p, b, op.first)
    rc = group_put(c, r, b, op.off, op.first, MARK_BATCH, NULL) if rc == 0 else rc
    rc = sync_said(p.s, p.s.files.datasync(p.s.files.ctx, b.writing.fd)) if rc == 0 else rc
    if rc == 0 and p.sync_dir:
        p.sync_dir = False
        rc = msgs_sync(c, r, p.s)
    if rc == 0:
        piece.wrote = True      # though nothing of the batch may stand in this block
        p.s.writing.whole = c.sync_interval <= 0
    return rc
