# Files that are read and written whole, and their names.

cdef int file_take(FileOps* f, const char* path, Bytes* out) noexcept nogil:
    # A whole file. 0 or -errno.
    cdef int fd = f.open(f.ctx, path, O_RDONLY, 0)
    cdef int64_t n, rc
    if fd < 0:
        return fd
    out.n = 0
    n = f.size(f.ctx, fd)
    rc = n
    if n > UINT32_MAX:
        rc = -EINVAL
    elif n > 0:
        rc = -ENOMEM
        if bytes_reserve(out, <size_t>n) == 0:
            rc = f.pread(f.ctx, fd, out.data, <size_t>n, 0)
            out.n = <size_t>max(rc, <int64_t>0)
    f.close(f.ctx, fd)
    return <int>min(rc, <int64_t>0)


cdef inline Span group_of(RaftLog* log) noexcept nogil:
    return span(<const uint8_t*>log.group, log.n_group)


cdef inline bint is_meta(const RaftLog* log) noexcept nogil:
    return strcmp(log.group, "_meta_") == 0


cdef inline FileOps* files_of(RaftLog* log) noexcept nogil:
    return log.files.env.files


cdef void path_in(const RaftLog* log, const char* name, char* out) noexcept nogil:
    snprintf(out, PATH_ROOM, "%s/%s", log.dir, name)


cdef void snapshot_path(const RaftLog* log, const char* before, uint64_t term, uint64_t index, char* out) noexcept nogil:
    snprintf(out, PATH_ROOM, "%s/%s%llu.%llu", log.dir, before, <unsigned long long>term, <unsigned long long>index)


cdef void file_path(const RaftLog* log, int kind, const Due* d, bint temporary, char* out) noexcept nogil:
    # While a file is written it has another name, outside of what nats-server reads.
    if kind == FILE_VOTE:
        path_in(log, "tav.idx.new" if temporary else "tav.idx", out)
    elif kind == FILE_PEERS:
        path_in(log, "peers.idx.new" if temporary else "peers.idx", out)
    elif kind == FILE_LOST or kind == FILE_WHOLE:
        path_in(log, "lost.new" if temporary else "lost", out)
    elif temporary:
        path_in(log, "snapshot.new", out)
    else:
        snapshot_path(log, "snapshots/snap.", d.term, d.index, out)


cdef bint number_read(const char** at, uint64_t* out) noexcept nogil:
    # A decimal number as nats-server writes it: without zeros before it.
    cdef const char* p = at[0]
    cdef uint64_t n = 0
    cdef int digits = 0
    while c'0' <= p[digits] <= c'9' and digits < 19:
        n = n * 10 + <uint64_t>(p[digits] - c'0')
        digits += 1
    if digits == 0 or digits > 1 and p[0] == c'0':
        return False
    at[0] = p + digits
    out[0] = n
    return True


cdef bint snapshot_name(const char* name, uint64_t* term, uint64_t* index) noexcept nogil:
    cdef const char* at = name + 5
    if strlen(name) < 8 or name[0] != c's' or name[1] != c'n' or name[2] != c'a' or name[3] != c'p' or name[4] != c'.':
        return False
    if not number_read(&at, term) or at[0] != c'.':
        return False
    at += 1
    return number_read(&at, index) and at[0] == 0


cdef int snapshots_forget(RaftLog* log, uint64_t term, uint64_t index) noexcept nogil:
    # All snapshots but this one go. 0 or -errno.
    cdef FileOps* f = files_of(log)
    cdef Bytes names
    cdef char path[PATH_ROOM]
    cdef uint64_t other_term, other
    cdef size_t at = 0
    cdef int rc
    memset(&names, 0, sizeof(Bytes))
    path_in(log, "snapshots", path)
    rc = f.names(f.ctx, path, &names)
    while rc >= 0 and at < names.n:
        if snapshot_name(<const char*>names.data + at, &other_term, &other) and (other_term != term or other != index):
            snapshot_path(log, "snapshots/snap.", other_term, other, path)
            f.unlink(f.ctx, path)
        at += strlen(<const char*>names.data + at) + 1
    bytes_free(&names)
    return min(rc, 0)
