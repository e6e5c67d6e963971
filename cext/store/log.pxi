# Append-only logs beside the blocks, written in the same commit groups: u32 length, u64 checksum, entry.
# The checksum covers length and entry. On opening, damaged entries are passed over and all others shown; only an end that
# was never finished is cut, and put aside.
#
# A position in a log is a number of bytes since its beginning as it was opened. It stays valid whatever is cut off before it:
# `base` is the position of the file's first byte. So what the engine stages and what the commit thread writes meet at the
# same position, after all changes of the file that come before.

cdef enum:
    LOG_HEAD = 12
    LOG_COPY = 1 << 18          # bytes copied at once


cdef uint64_t log_hash(const Store* s, Span entry) noexcept nogil:
    cdef HHState h
    hh_init(&h, s.key)
    hh_update(&h, <const uint8_t*>&entry.n, 4)
    hh_update(&h, entry.p, entry.n)
    return hh_final(&h)


cdef int log_frame(const Store* s, Bytes* out, Span entry) noexcept nogil:
    cdef uint8_t head[LOG_HEAD]
    st_put32(head, entry.n)
    st_put64(head + 4, log_hash(s, entry))
    if bytes_reserve(out, LOG_HEAD + entry.n) < 0:
        return ST_NO_MEMORY
    bytes_add(out, head, LOG_HEAD)
    bytes_add(out, entry.p, entry.n)
    return ST_OK


cdef bint entry_at(const Store* s, const uint8_t* p, uint64_t left, Span* entry) noexcept nogil:
    # Whether a whole entry stands at p.
    if left < LOG_HEAD:
        return False
    entry[0] = span(p + LOG_HEAD, st_get32(p))
    return entry.n and entry.n <= left - LOG_HEAD and st_get64(p + 4) == log_hash(s, entry[0])


cdef bint entry_mend(const Store* s, uint8_t* p, uint64_t left, uint64_t* work, Span* entry) noexcept nogil:
    # Whether it is one but for a single bit, which is then changed.
    cdef uint64_t bit, n = 32, cost
    cdef uint8_t mask
    if left < LOG_HEAD:
        return False
    if st_get32(p) <= left - LOG_HEAD:
        n = (LOG_HEAD + <uint64_t>st_get32(p)) * 8
    for bit in range(n):
        mask = <uint8_t>(1 << (bit & 7))
        p[bit >> 3] ^= mask
        cost = min(<uint64_t>st_get32(p), left)
        if work[0] < cost:
            p[bit >> 3] ^= mask
            return False
        work[0] -= cost
        if entry_at(s, p, left, entry):
            return True
        p[bit >> 3] ^= mask
    return False


cdef uint64_t entry_next(const Store* s, const uint8_t* p, uint64_t at, uint64_t size, uint64_t* work) noexcept nogil:
    # Where the next whole entry starts; size when there is none.
    cdef Span entry
    cdef uint64_t n
    while at + LOG_HEAD < size:
        n = st_get32(p + at)
        if n and n <= size - at - LOG_HEAD:
            if work[0] < n:
                return size
            work[0] -= n
            if entry_at(s, p + at, size - at, &entry):
                return at
        at += 1
    return size


cdef int log_aside(Log* log, const uint8_t* p, uint64_t n) noexcept nogil:
    # Keeps what is cut off the log beside it. 0 or -errno.
    cdef char path[4300]
    snprintf(path, sizeof(path), "%s.damaged", log.path)
    return file_write(log.store.files, path, p, n)


cdef int64_t log_walk(Log* log, uint8_t* p, uint64_t size, int (*replay)(void* ctx, Span entry) noexcept nogil,
                      void* ctx) noexcept nogil:
    # Shows every whole entry, and an empty one for what cannot be read; where the log goes on, or an error.
    cdef Store* s = log.store
    cdef Span entry
    cdef uint64_t at = 0, next, work = size * 32 + (1 << 26)
    cdef int rc
    while at < size:
        if not entry_at(s, p + at, size - at, &entry):
            if all_zero(p + at, size - at):
                return <int64_t>at
            if not entry_mend(s, p + at, size - at, &work, &entry):
                next = entry_next(s, p, at + 1, size, &work)
                lost_place(s, DAMAGE_LOG, 0, at, next - at, 0, 0, 0)
                if replay != NULL:
                    replay(ctx, span(NULL, 0))
                if next == size:
                    rc = log_aside(log, p + at, size - at)
                    return <int64_t>at if rc == 0 else rc
                at = next
                continue
            lost_place(s, DAMAGE_LOG, 0, at, LOG_HEAD + entry.n, 0, 0, 0)
        if replay != NULL and replay(ctx, entry) != 0:
            lost_place(s, DAMAGE_LOG, 0, at, LOG_HEAD + entry.n, 0, 0, 0)
        at += LOG_HEAD + entry.n
    return <int64_t>at


cdef int64_t log_replay(Log* log, int (*replay)(void* ctx, Span entry) noexcept nogil, void* ctx) noexcept nogil:
    # Shows every whole entry; the bytes that stay, or an error.
    cdef FileOps* f = log.store.files
    cdef int64_t size = f.size(f.ctx, log.writing.fd), rc
    cdef uint8_t* p
    if size <= 0:
        return size
    p = <uint8_t*>malloc(<size_t>size)
    if p == NULL:
        return ST_NO_MEMORY
    rc = f.pread(f.ctx, log.writing.fd, p, <size_t>size, 0)
    rc = log_walk(log, p, <uint64_t>size, replay, ctx) if rc == size else (rc if rc < 0 else -EIO)
    free(p)
    return rc


cdef int log_fd(Log* log) noexcept nogil:
    # 0 or -errno. Idle logs are closed, as idle blocks are.
    if log.writing.fd < 0:
        log.writing.fd = log.store.files.open(log.store.files.ctx, log.path, O_RDWR | O_CREAT, 0o600)
    return min(log.writing.fd, 0)


cdef void log_fd_close(Log* log) noexcept nogil:
    if log.writing.fd >= 0:
        log.store.files.close(log.store.files.ctx, log.writing.fd)
    log.writing.fd = -1


cdef void log_free(Log* log) noexcept nogil:
    log_fd_close(log)
    bytes_free(&log.queue.staged)
    bytes_free(&log.writing.bytes)
    free(log.path)
    free(log)


cdef int64_t log_begin(Log* log, Span first) noexcept nogil:
    # A new log has its first entry on disk before anything else is done with it: an empty one has lost what it had. Bytes or
    # -errno.
    cdef FileOps* f = log.store.files
    cdef Bytes b
    cdef int64_t rc = 0
    memset(&b, 0, sizeof(Bytes))
    if first.n:
        rc = log_frame(log.store, &b, first)
        rc = f.pwrite(f.ctx, log.writing.fd, b.data, b.n, 0) if rc == ST_OK else -ENOMEM
        rc = f.datasync(f.ctx, log.writing.fd) if rc >= 0 else rc
    rc = <int64_t>b.n if rc >= 0 else rc
    bytes_free(&b)
    return rc


cdef Log* log_open(Store* s, Span path, Span first, bint expected, int (*replay)(void* ctx, Span entry) noexcept nogil,
                   void* ctx, char* err, size_t err_cap) noexcept nogil:
    cdef Log* log = <Log*>calloc(1, sizeof(Log))
    cdef FileOps* f = s.files
    cdef int64_t found, size
    if log == NULL:
        snprintf(err, err_cap, "no memory for a log")
        return NULL
    log.store = s
    log.path = <char*>calloc(path.n + 1, 1)
    log.writing.fd = -1
    if log.path == NULL or s.storage == STORE_MEMORY:
        snprintf(err, err_cap, "a log needs file storage")
        log_free(log)
        return NULL
    memcpy(log.path, path.p, path.n)
    log.writing.fd = f.open(f.ctx, log.path, O_RDWR | O_CREAT, 0o600)
    found = f.size(f.ctx, log.writing.fd) if log.writing.fd >= 0 else log.writing.fd
    size = log_replay(log, replay, ctx) if log.writing.fd >= 0 else log.writing.fd
    if size == 0:
        size = log_begin(log, first)
    if size < 0:
        snprintf(err, err_cap, "%s: cannot be opened or read (%d)", log.path, <int>-size)
        log_free(log)
        return NULL
    if found <= 0 and expected and s.recovery.own and not s.recovery.foreign:
        lost_place(s, DAMAGE_LOG, 0, 0, 0, 0, 0, 0)
    f.truncate(f.ctx, log.writing.fd, <off_t>size)
    # Its name is on disk before anything is written. After a kill that may not be so: not of a file that was replaced.
    if found <= 0 or s.map == NULL:
        sync_parent(f, log.path)
    log_fd_close(log)
    log.writing.written = <uint64_t>size
    log.writing.durable = <uint64_t>size
    log.end = <uint64_t>size
    q_lock(s.com)
    log.queue.next = s.queue.logs
    s.queue.logs = log
    q_unlock(s.com)
    return log


cdef int log_takes(const Log* log) noexcept nogil:
    if log.store.stopped:
        return ST_CLOSED
    return ST_IO if log.store.io_errno else ST_OK


cdef int log_append(Log* log, Span entry) noexcept nogil:
    cdef Store* s = log.store
    cdef int r = log_takes(log)
    if r < 0:
        return r
    q_lock(s.com)
    r = log_frame(s, &log.queue.staged, entry)
    log.queue.dirty = log.queue.dirty or r == ST_OK
    q_unlock(s.com)
    if r == ST_OK:
        log.end += LOG_HEAD + entry.n
        publish(s)
    return r


cdef void log_follows(Log* log) noexcept nogil:
    q_lock(log.store.com)
    log.queue.follows = True
    q_unlock(log.store.com)


cdef void log_change(Log* log, Op* op) noexcept nogil:
    # With q held: the file is changed before what is staged, of which only what comes behind the change is left.
    op.log = log
    log.queue.dirty = log.queue.staged.n > 0
    ops_add(log.store, op)


cdef int log_rewrite(Log* log, Span entries) noexcept nogil:
    # The log becomes this one entry, which must say what all earlier ones said; later ones follow it.
    cdef Store* s = log.store
    cdef Op* op
    cdef int rc = log_takes(log)
    if rc < 0:
        return rc
    op = op_new(OP_LOG, NULL, log.end, log.end, 0)
    if op == NULL:
        return ST_NO_MEMORY
    if log_frame(s, &op.bytes, entries) < 0:
        free(op)
        return ST_NO_MEMORY
    log.begin = log.end
    log.end += op.bytes.n
    q_lock(s.com)
    log.queue.staged.n = 0
    log_change(log, op)
    q_unlock(s.com)
    publish(s)
    return ST_OK


cdef int log_cut_tail(Log* log, uint64_t at) noexcept nogil:
    # What stands in the file is cut before anything more is written, what is staged at once.
    cdef Store* s = log.store
    cdef uint64_t start
    cdef Op* op = NULL
    cdef int rc = log_takes(log)
    if rc < 0 or at >= log.end:
        return rc
    at = max(at, log.begin)
    q_lock(s.com)
    start = log.end - log.queue.staged.n
    if at < start:
        op = op_new(OP_LOG, NULL, 0, at, 0)
        if op == NULL:
            q_unlock(s.com)
            return ST_NO_MEMORY
        log.queue.staged.n = 0
        log_change(log, op)
    else:
        log.queue.staged.n = at - start
    q_unlock(s.com)
    log.end = at
    publish(s)
    return ST_OK


cdef int log_cut_head(Log* log, uint64_t at) noexcept nogil:
    # The file is written again without its head.
    cdef Store* s = log.store
    cdef uint64_t start
    cdef Op* op
    cdef int rc = log_takes(log)
    if rc < 0 or at <= log.begin:
        return rc
    at = min(at, log.end)
    op = op_new(OP_LOG, NULL, at, UINT64_MAX, 0)
    if op == NULL:
        return ST_NO_MEMORY
    q_lock(s.com)
    start = log.end - log.queue.staged.n
    if at > start:
        log.queue.staged.n -= at - start
        memmove(log.queue.staged.data, log.queue.staged.data + (at - start), log.queue.staged.n)
    log_change(log, op)
    q_unlock(s.com)
    log.begin = at
    publish(s)
    return ST_OK


cdef uint64_t log_end(const Log* log) noexcept nogil:
    return log.end


cdef uint64_t log_size(const Log* log) noexcept nogil:
    return log.end - log.begin


cdef void log_close(Log* log) noexcept nogil:
    # What was appended is still written; the log itself must not be used any more.
    commit_wanted(log.store)


# ---- the commit thread's side ---------------------------------------------------------------------------------

cdef int log_write(Log* log, const Bytes* b) noexcept nogil:
    cdef FileOps* f = log.store.files
    cdef int64_t rc = log_fd(log)
    if rc == 0:
        rc = min(f.pwrite(f.ctx, log.writing.fd, b.data, b.n, <off_t>log.writing.written), <int64_t>0)
    if rc < 0:
        return <int>rc
    log.writing.written += b.n
    log.writing.wrote = True
    return 0


cdef int log_shorten(Log* log, uint64_t size) noexcept nogil:
    # Cuts the file, and has that on disk: what is written next must not stand before what was cut. 0 or -errno.
    cdef FileOps* f = log.store.files
    cdef int rc = log_fd(log)
    if rc == 0:
        rc = f.truncate(f.ctx, log.writing.fd, <off_t>size)
    if rc < 0:
        return rc
    log.writing.written = size
    log.writing.durable = min(log.writing.durable, size)
    return sync_said(log.store, f.datasync(f.ctx, log.writing.fd))


cdef int log_copy(Log* log, int to, uint64_t at, uint64_t end) noexcept nogil:
    # [at, end) of the file to the start of another one. 0 or -errno.
    cdef FileOps* f = log.store.files
    cdef uint64_t start = at, n
    cdef int64_t rc = 0
    cdef uint8_t* p
    if at == end:
        return 0
    rc = log_fd(log)
    p = <uint8_t*>malloc(LOG_COPY)
    if p == NULL:
        return -ENOMEM
    while at < end and rc >= 0:
        n = min(end - at, <uint64_t>LOG_COPY)
        rc = f.pread(f.ctx, log.writing.fd, p, n, <off_t>at)
        if rc >= 0 and <uint64_t>rc != n:
            rc = -EIO
        if rc >= 0:
            rc = f.pwrite(f.ctx, to, p, n, <off_t>(at - start))
        at += n
    free(p)
    return <int>min(rc, <int64_t>0)


cdef int log_restart(Op* op) noexcept nogil:
    # The log becomes what stands in it from one position to another, and the op's bytes. Where only a tail goes the file
    # is cut, otherwise a new one is written beside it and renamed over it. 0 or -errno: it may be tried again.
    cdef Log* log = op.log
    cdef FileOps* f = log.store.files
    cdef uint64_t end = min(max(op.size, log.writing.base) - log.writing.base, log.writing.written)
    cdef uint64_t at = min(max(op.off, log.writing.base) - log.writing.base, end)
    cdef char path[4200]
    cdef int fd
    cdef int64_t rc
    rc = journal_forget_file(log.store.com, log.path, &log.writing.jot)
    if rc < 0:
        return <int>rc
    if op.off <= log.writing.base and op.bytes.n == 0:
        return log_shorten(log, end)
    snprintf(path, sizeof(path), "%s.tmp", log.path)
    fd = file_new(f, path)
    if fd < 0:
        return fd
    rc = log_copy(log, fd, at, end)
    if rc == 0 and op.bytes.n:
        rc = min(f.pwrite(f.ctx, fd, op.bytes.data, op.bytes.n, <off_t>(end - at)), <int64_t>0)
    if rc == 0:
        rc = f.datasync(f.ctx, fd)
    if rc == 0:
        rc = f.rename(f.ctx, path, log.path)
    if rc < 0:
        f.close(f.ctx, fd)
        return <int>rc
    log_fd_close(log)
    log.writing.fd = fd
    log.writing.base = op.off
    log.writing.written = end - at + op.bytes.n
    log.writing.durable = log.writing.written
    sync_parent(f, log.path)
    return 0
