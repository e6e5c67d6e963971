# What goes wrong with files of a TestEnv.

cdef int fault(void* ctx, int op) noexcept nogil:
    # 0 or -errno.
    cdef TestDisk* d = &(<TestEnv>ctx).disk
    cdef int rc = 0
    posix_system().lock(NULL, &d.mutex)
    if d.after[op] > 0:
        d.after[op] -= 1
    elif d.times[op] > 0:
        d.times[op] -= 1
        rc = -d.faults[op]
    posix_system().unlock(NULL, &d.mutex)
    return rc


cdef int sync_fault(void* ctx) noexcept nogil:
    cdef Mutex* hung = &(<TestEnv>ctx).disk.hung
    posix_system().lock(NULL, hung)
    posix_system().unlock(NULL, hung)
    return fault(ctx, FAULT_DATASYNC)


cdef int test_datasync(void* ctx, int fd) noexcept nogil:
    cdef int rc = sync_fault(ctx)
    return rc if rc < 0 else posix_files().datasync(NULL, fd)


cdef int test_sync_all(void* ctx, int fd) noexcept nogil:
    cdef int rc = sync_fault(ctx)
    return rc if rc < 0 else posix_files().sync_all(NULL, fd)


cdef int64_t test_pwrite(void* ctx, int fd, const void* p, size_t n, off_t off) noexcept nogil:
    cdef int rc = fault(ctx, FAULT_PWRITE)
    return rc if rc < 0 else posix_files().pwrite(NULL, fd, p, n, off)


cdef int test_open(void* ctx, const char* path, int flags, int mode) noexcept nogil:
    cdef int rc = fault(ctx, FAULT_OPEN)
    return rc if rc < 0 else posix_files().open(NULL, path, flags, mode)


cdef int test_truncate(void* ctx, int fd, off_t n) noexcept nogil:
    cdef int rc = fault(ctx, FAULT_TRUNCATE)
    return rc if rc < 0 else posix_files().truncate(NULL, fd, n)
