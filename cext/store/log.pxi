# Append-only logs beside the blocks, written in the same commit groups: u32 length, u64 checksum, entry.
# The checksum covers length and entry. A tail that does not fit is cut on opening.

cdef enum:
    LOG_HEAD = 12


cdef uint64_t log_hash(const Store* s, Span entry) noexcept nogil:
    cdef HHState h
    hh_init(&h, s.key)
    hh_update(&h, <const uint8_t*> &entry.n, 4)
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


cdef int64_t log_replay(Log* log, int (*replay)(void* ctx, Span entry) noexcept nogil, void* ctx) noexcept nogil:
    """Shows every whole entry; the bytes they take, or an error."""
    cdef FileOps* f = log.store.files
    cdef int64_t size = f.size(f.ctx, log.fd)
    cdef uint64_t at = 0
    cdef uint8_t* p
    cdef Span entry
    if size <= 0:
        return size
    p = <uint8_t*> malloc(<size_t> size)
    if p == NULL:
        return ST_NO_MEMORY
    if f.pread(f.ctx, log.fd, p, <size_t> size, 0) != size:
        free(p)
        return ST_IO
    while at + LOG_HEAD <= <uint64_t> size:
        entry = span(p + at + LOG_HEAD, st_get32(p + at))
        if entry.n > <uint64_t> size - at - LOG_HEAD or st_get64(p + at + 4) != log_hash(log.store, entry):
            break
        if replay != NULL and replay(ctx, entry) != 0:
            break
        at += LOG_HEAD + entry.n
    free(p)
    return <int64_t> at


cdef void log_free(Log* log) noexcept nogil:
    if log.fd >= 0:
        log.store.files.close(log.store.files.ctx, log.fd)
    bytes_free(&log.staged)
    bytes_free(&log.writing)
    free(log.path)
    free(log)


cdef Log* log_open(Store* s, Span path, int (*replay)(void* ctx, Span entry) noexcept nogil, void* ctx,
                   char* err, size_t err_cap) noexcept nogil:
    cdef Log* log = <Log*> calloc(1, sizeof(Log))
    cdef FileOps* f = s.files
    cdef int64_t size
    if log == NULL:
        snprintf(err, err_cap, "no memory for a log")
        return NULL
    log.store = s
    log.path = <char*> calloc(path.n + 1, 1)
    log.fd = -1
    if log.path == NULL or s.storage == STORE_MEMORY:
        snprintf(err, err_cap, "a log needs file storage")
        log_free(log)
        return NULL
    memcpy(log.path, path.p, path.n)
    log.fd = f.open(f.ctx, log.path, O_RDWR | O_CREAT, 0o600)
    size = log_replay(log, replay, ctx) if log.fd >= 0 else log.fd
    if size < 0:
        snprintf(err, err_cap, "%s: cannot be opened or read (%d)", log.path, <int> -size)
        log_free(log)
        return NULL
    f.truncate(f.ctx, log.fd, <off_t> size)
    sync_parent(f, log.path)
    log.written = <uint64_t> size
    log.size = <uint64_t> size
    pthread_mutex_lock(&s.com.q)
    log.next = s.logs
    s.logs = log
    pthread_mutex_unlock(&s.com.q)
    return log


cdef void sync_parent(FileOps* f, const char* path) noexcept nogil:
    cdef char dir[4200]
    cdef size_t n = strlen(path)
    while n and path[n - 1] != c'/':
        n -= 1
    if n == 0 or n > sizeof(dir) - 1:
        return
    memcpy(dir, path, n)
    dir[n] = 0
    f.sync_dir(f.ctx, dir)


cdef int log_append(Log* log, Span entry) noexcept nogil:
    cdef Store* s = log.store
    cdef int r
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    pthread_mutex_lock(&s.com.q)
    r = log_frame(s, &log.staged, entry)
    log.dirty = log.dirty or r == ST_OK
    pthread_mutex_unlock(&s.com.q)
    if r == ST_OK:
        log.size += LOG_HEAD + entry.n
        publish(s)
    return r


cdef int log_rewrite(Log* log, Span entries) noexcept nogil:
    """The log becomes this one entry, which must say what all earlier ones said; later ones follow it."""
    cdef Store* s = log.store
    cdef Op* op
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    op = <Op*> calloc(1, sizeof(Op))
    if op == NULL:
        return ST_NO_MEMORY
    if log_frame(s, &op.bytes, entries) < 0:
        free(op)
        return ST_NO_MEMORY
    op.kind = OP_LOG
    op.log = log
    log.size = op.bytes.n
    pthread_mutex_lock(&s.com.q)
    log.staged.n = 0
    log.dirty = False
    ops_add(s, op)
    pthread_mutex_unlock(&s.com.q)
    publish(s)
    return ST_OK


cdef uint64_t log_size(Log* log) noexcept nogil:
    return log.size


cdef void log_close(Log* log) noexcept nogil:
    """What was appended is still written; the log itself must not be used any more."""
    cdef Store* s = log.store
    pthread_mutex_lock(&s.com.q)
    log.gone = True
    pthread_mutex_unlock(&s.com.q)
    commit_wanted(s)


# ---- the commit thread's side ---------------------------------------------------------------------------------

cdef int log_write(Log* log) noexcept nogil:
    cdef FileOps* f = log.store.files
    cdef int64_t rc = f.pwrite(f.ctx, log.fd, log.writing.data, log.writing.n, <off_t> log.written)
    if rc < 0:
        return <int> rc
    log.written += log.writing.n
    return 0


cdef int log_restart(Op* op) noexcept nogil:
    """Writes the new file beside the old one and renames it over. 0 or -errno."""
    cdef Log* log = op.log
    cdef FileOps* f = log.store.files
    cdef char path[4200]
    cdef int fd
    cdef int64_t rc
    snprintf(path, sizeof(path), "%s.tmp", log.path)
    fd = f.open(f.ctx, path, O_RDWR | O_CREAT | O_TRUNC, 0o600)
    if fd < 0:
        return fd
    rc = min(f.pwrite(f.ctx, fd, op.bytes.data, op.bytes.n, 0), <int64_t> 0)
    if rc == 0:
        rc = f.datasync(f.ctx, fd)
    if rc == 0:
        rc = f.rename(f.ctx, path, log.path)
    if rc < 0:
        f.close(f.ctx, fd)
        return <int> rc
    f.close(f.ctx, log.fd)
    log.fd = fd
    log.written = op.bytes.n
    sync_parent(f, log.path)
    return 0


cdef void logs_sweep(Store* s) noexcept nogil:
    """With q held, after a round: frees closed logs that have nothing left to write."""
    cdef Log** at = &s.logs
    cdef Log* log
    cdef Op* op
    while at[0] != NULL:
        log = at[0]
        op = s.ops
        while op != NULL and op.log != log:
            op = op.next
        if log.gone and not log.dirty and op == NULL:
            at[0] = log.next
            log_free(log)
        else:
            at = &log.next
