# Files as POSIX gives them: interrupted calls are repeated, short ones continued, errors are -errno.

from posix.fcntl cimport O_DIRECTORY, O_RDONLY
from posix.fcntl cimport open as c_open
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as c_close
from posix.unistd cimport fdatasync, fsync, ftruncate, unlink
from posix.unistd cimport pread as c_pread
from posix.unistd cimport pwrite as c_pwrite


cdef extern from "fcntl.h" nogil:
    int O_CLOEXEC

cdef extern from "stdio.h" nogil:
    int c_rename "rename"(const char* a, const char* b)


cdef int posix_open(void* ctx, const char* path, int flags, int mode) noexcept nogil:
    cdef int fd
    while True:
        fd = c_open(path, flags | O_CLOEXEC, mode)
        if fd >= 0:
            return fd
        if errno != EINTR:
            return -errno


cdef int posix_close(void* ctx, int fd) noexcept nogil:
    # Linux closes even when interrupted; repeating could close somebody else's file.
    if c_close(fd) < 0 and errno != EINTR:
        return -errno
    return 0


cdef int64_t posix_pwrite(void* ctx, int fd, const void* p, size_t n, off_t off) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t got
    if off < 0 or n > <size_t>(INT64_MAX - off):
        return -EINVAL
    while done < n:
        got = c_pwrite(fd, <const uint8_t*>p + done, n - done, off + <off_t>done)
        if got > 0:
            done += <size_t>got
        elif got == 0:
            return -EIO
        elif errno != EINTR:
            return -errno
    return <int64_t>done


cdef int64_t posix_pread(void* ctx, int fd, void* p, size_t n, off_t off) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t got
    if off < 0 or n > <size_t>(INT64_MAX - off):
        return -EINVAL
    while done < n:
        got = c_pread(fd, <uint8_t*>p + done, n - done, off + <off_t>done)
        if got > 0:
            done += <size_t>got
        elif got == 0:
            break
        elif errno != EINTR:
            return -errno
    return <int64_t>done


cdef int posix_datasync(void* ctx, int fd) noexcept nogil:
    while fdatasync(fd) < 0:
        if errno != EINTR:
            return -errno
    return 0


cdef int posix_truncate(void* ctx, int fd, off_t n) noexcept nogil:
    while ftruncate(fd, n) < 0:
        if errno != EINTR:
            return -errno
    return 0


cdef int64_t posix_size(void* ctx, int fd) noexcept nogil:
    cdef struct_stat st
    if fstat(fd, &st) < 0:
        return -errno
    return st.st_size


cdef int posix_rename(void* ctx, const char* a, const char* b) noexcept nogil:
    return 0 if c_rename(a, b) == 0 else -errno


cdef int posix_unlink(void* ctx, const char* path) noexcept nogil:
    return 0 if unlink(path) == 0 else -errno


cdef int posix_sync_dir(void* ctx, const char* path) noexcept nogil:
    cdef int rc = 0
    cdef int fd = posix_open(ctx, path, O_RDONLY | O_DIRECTORY, 0)
    if fd < 0:
        return fd
    while fsync(fd) < 0:
        if errno != EINTR:
            rc = -errno
            break
    posix_close(ctx, fd)
    return rc


cdef FileOps posix_ops
posix_ops.open = posix_open
posix_ops.close = posix_close
posix_ops.pwrite = posix_pwrite
posix_ops.pread = posix_pread
posix_ops.datasync = posix_datasync
posix_ops.truncate = posix_truncate
posix_ops.size = posix_size
posix_ops.rename = posix_rename
posix_ops.unlink = posix_unlink
posix_ops.sync_dir = posix_sync_dir
posix_ops.ctx = NULL


cdef FileOps* posix_files() noexcept nogil:
    return &posix_ops
