# The files of a store's directory: their names, and files that are read and written whole.

cdef bint ends_with(const char* name, const char* suffix) noexcept nogil:
    cdef size_t n = strlen(name), k = strlen(suffix)
    return n >= k and memcmp(name + n - k, suffix, k) == 0


cdef uint64_t file_number(const char* name, const char* suffix) noexcept nogil:
    # N of a name made of N, as it is written without zeros before it, and the suffix; else 0.
    cdef uint64_t n = 0
    cdef size_t i = 0
    while c'0' <= name[i] <= c'9' and i < 18:
        n = n * 10 + <uint64_t>(name[i] - c'0')
        i += 1
    return n if name[0] != c'0' and i and strcmp(name + i, suffix) == 0 else 0


cdef void tail_path(const Store* s, uint64_t num, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/damaged-%llu.tail", s.msgs_dir, <unsigned long long>num)


cdef uint64_t tail_size(const Scan* c) noexcept nogil:
    # Bytes behind what is good, but for zeros.
    cdef uint64_t n = c.size - c.end
    while n and c.p[c.end + n - 1] == 0:
        n -= 1
    return n


cdef void block_path(const Store* s, const Block* b, const char* suffix, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/%llu%s", s.msgs_dir, <unsigned long long>b.num, suffix)


cdef void checkpoint_path(const Store* s, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/checkpoint.jss", s.msgs_dir)


cdef int file_write(FileOps* f, const char* path, const uint8_t* p, uint64_t n) noexcept nogil:
    # A file of these bytes alone, not synced. 0 or -errno.
    cdef int fd = file_new(f, path)
    cdef int64_t rc
    if fd < 0:
        return fd
    rc = f.pwrite(f.ctx, fd, p, n, 0)
    f.close(f.ctx, fd)
    return <int>min(rc, <int64_t>0)


cdef int file_load(FileOps* f, const char* path, uint8_t** out, uint64_t* size) noexcept nogil:
    # A whole file in memory of its own, to be given back by pages_free; NULL when it is empty. 0 or -errno, then with NULL.
    cdef int fd = f.open(f.ctx, path, O_RDONLY, 0)
    cdef int64_t n, rc
    out[0] = NULL
    size[0] = 0
    if fd < 0:
        return fd
    n = f.size(f.ctx, fd)
    rc = min(n, <int64_t>0)
    if n > 0:
        out[0] = <uint8_t*>pages_new(<size_t>n)
        rc = f.pread(f.ctx, fd, out[0], <size_t>n, 0) if out[0] != NULL else -ENOMEM
        if rc != n:
            rc = rc if rc < 0 else -EIO
            if out[0] != NULL:
                pages_free(out[0], <size_t>n)
            out[0] = NULL
    f.close(f.ctx, fd)
    size[0] = <uint64_t>n if out[0] != NULL else 0
    return <int>min(rc, <int64_t>0)


cdef uint8_t* file_read(FileOps* f, const char* path, uint64_t* size) noexcept nogil:
    # As file_load; NULL when it is empty, too, or cannot be read.
    #
    # Caches are read so: what is checked is what is used, whatever becomes of the file meanwhile.
    cdef uint8_t* p
    file_load(f, path, &p, size)
    return p


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
