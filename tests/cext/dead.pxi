# Files as they are for a process that was killed: nothing is written or changed any more, though all seems well to it.

cdef int dead_open(void* ctx, const char* path, int flags, int mode) noexcept nogil:
    return -EIO


cdef int64_t dead_pwrite(void* ctx, int fd, const void* p, size_t n, off_t off) noexcept nogil:
    return <int64_t>n


cdef int dead_sync(void* ctx, int fd) noexcept nogil:
    return 0


cdef int dead_truncate(void* ctx, int fd, off_t n) noexcept nogil:
    return 0


cdef int dead_set_time(void* ctx, int fd, int64_t time) noexcept nogil:
    return 0


cdef int dead_rename(void* ctx, const char* a, const char* b) noexcept nogil:
    return 0


cdef int dead_path(void* ctx, const char* path) noexcept nogil:
    return 0


cdef int dead_mkdir(void* ctx, const char* path, int mode) noexcept nogil:
    return 0


cdef void files_die(FileOps* f) noexcept nogil:
    # From now on. What is open can be read and closed.
    f.open = dead_open
    f.pwrite = dead_pwrite
    f.datasync = dead_sync
    f.sync_all = dead_sync
    f.truncate = dead_truncate
    f.set_time = dead_set_time
    f.rename = dead_rename
    f.unlink = dead_path
    f.rmdir = dead_path
    f.sync_dir = dead_path
    f.mkdir = dead_mkdir
