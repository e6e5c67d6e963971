# Files as POSIX gives them: interrupted calls are repeated, short ones continued, errors are -errno.

from posix.fcntl cimport F_SETFL, O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, fcntl
from posix.fcntl cimport open as c_open
from posix.stat cimport S_ISDIR, fstat, mkdir, stat, struct_stat
from posix.unistd cimport close as c_close
from posix.unistd cimport fdatasync, fsync, ftruncate, rmdir, unlink
from posix.unistd cimport pread as c_pread
from posix.unistd cimport pwrite as c_pwrite


cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dirent.h>
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <unistd.h>
    #include "bytes/mapping.h"

    static int64_t file_time(const struct stat *st) {
        return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    }
    static int file_set_time(int fd, int64_t time) {
        struct timespec t[2] = {{time / 1000000000, time % 1000000000}, {time / 1000000000, time % 1000000000}};
        return futimens(fd, t);
    }
    /* 1 and a name, 0 at the end, or -errno. */
    static int dir_next(DIR *d, const char **name) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (e == NULL) return -errno;
        *name = e->d_name;
        return 1;
    }
    static void *new_pages(size_t n) {
        void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return NULL;
        madvise(p, n, MADV_NOHUGEPAGE);
        return p;
    }
    """
    ctypedef struct DIR:
        pass
    DIR* opendir(const char* path)
    int dir_next(DIR* d, const char** name)
    int closedir(DIR* d)
    int syncfs(int fd)
    int sync_file_range(int fd, off_t begin, off_t n, unsigned int flags)
    enum:
        SYNC_FILE_RANGE_WRITE
    int munmap(void* p, size_t n)
    int madvise(void* p, size_t n, int advice)
    int64_t file_time(const struct_stat* st)
    int file_set_time(int fd, int64_t time)
    int file_map(int fd, size_t n, bint own, uint8_t** out)
    int file_map_over(void* p, int fd, size_t n)
    void file_unmap(void* p, size_t n)
    bint file_resident(const void* p, size_t n)
    void file_warm(const void* p, size_t n)
    void* new_pages(size_t n)
    int MADV_DONTNEED
    int O_CLOEXEC
    int O_DIRECT

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


cdef int posix_sync_all(void* ctx, int fd) noexcept nogil:
    return 0 if syncfs(fd) == 0 else -errno


cdef int64_t posix_time(void* ctx, int fd) noexcept nogil:
    cdef struct_stat st
    if fstat(fd, &st) < 0:
        return -errno
    return file_time(&st)


cdef int posix_identity(void* ctx, int fd, uint64_t* out) noexcept nogil:
    cdef struct_stat st
    if fstat(fd, &st) < 0:
        return -errno
    out[0] = <uint64_t>st.st_ino
    return 0


cdef int posix_set_time(void* ctx, int fd, int64_t time) noexcept nogil:
    return 0 if file_set_time(fd, time) == 0 else -errno


cdef int posix_direct(void* ctx, int fd, bint on) noexcept nogil:
    return 0 if fcntl(fd, F_SETFL, O_DIRECT if on else 0) == 0 else -errno


cdef int posix_mkdir(void* ctx, const char* path, int mode) noexcept nogil:
    return 0 if mkdir(path, mode) == 0 else -errno


cdef int posix_rmdir(void* ctx, const char* path) noexcept nogil:
    return 0 if rmdir(path) == 0 else -errno


cdef int posix_is_dir(void* ctx, const char* path) noexcept nogil:
    cdef struct_stat st
    return stat(path, &st) == 0 and S_ISDIR(st.st_mode)


cdef int posix_names(void* ctx, const char* path, Bytes* names) noexcept nogil:
    cdef DIR* d = opendir(path)
    cdef const char* name = NULL
    cdef int rc
    if d == NULL:
        return -errno
    while True:
        rc = dir_next(d, &name)
        if rc <= 0:
            break
        if strcmp(name, b".") and strcmp(name, b"..") and bytes_add(names, name, strlen(name) + 1) < 0:
            rc = -ENOMEM
            break
    closedir(d)
    return rc


cdef int posix_map(void* ctx, int fd, size_t n, bint own, uint8_t** out) noexcept nogil:
    return file_map(fd, n, own, out)


cdef int posix_map_over(void* ctx, uint8_t* p, int fd, size_t n) noexcept nogil:
    return file_map_over(p, fd, n)


cdef void posix_unmap(void* ctx, uint8_t* p, size_t n) noexcept nogil:
    file_unmap(p, n)


cdef bint posix_resident(void* ctx, const uint8_t* p, size_t n) noexcept nogil:
    return file_resident(p, n)


cdef void posix_warm(void* ctx, const uint8_t* p, size_t n) noexcept nogil:
    file_warm(p, n)


cdef void posix_cool(void* ctx, uint8_t* p, size_t n) noexcept nogil:
    madvise(p, n, MADV_DONTNEED)


# ---- directories that appear as a whole --------------------------------------------------------------------

cdef enum:
    NEW_PARTS = 4               # folders, and files, of a directory that is made


cdef struct NewDirectory:
    # Its path, those of what stands in it, what the files hold; and descriptors of itself and of its files.
    const char* path
    const char* folders[NEW_PARTS]
    uint32_t n_folders
    const char* files[NEW_PARTS]
    Span bodies[NEW_PARTS]
    uint32_t n_files
    int opened[NEW_PARTS + 1]
    uint32_t n_opened


cdef void descriptors_close(const int* opened, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        posix_close(NULL, opened[i])


cdef int new_open(NewDirectory* d, const char* path, int flags) noexcept nogil:
    cdef int fd = posix_open(NULL, path, flags, 0o600)
    if fd >= 0:
        d.opened[d.n_opened] = fd
        d.n_opened += 1
    return fd


cdef int directory_make(NewDirectory* d) noexcept nogil:
    # Nothing of it is synced. 0 | -errno: what was made stays, and nothing is open
    cdef uint32_t i
    cdef int64_t rc = posix_mkdir(NULL, d.path, 0o700)
    for i in range(d.n_folders):
        if rc >= 0:
            rc = posix_mkdir(NULL, d.folders[i], 0o700)
    if rc >= 0:
        rc = new_open(d, d.path, O_RDONLY | O_DIRECTORY)
    for i in range(d.n_files):
        if rc >= 0:
            rc = new_open(d, d.files[i], O_WRONLY | O_CREAT | O_EXCL)
        if rc >= 0:
            rc = posix_pwrite(NULL, <int>rc, d.bodies[i].p, d.bodies[i].n, 0)
    if rc < 0:
        descriptors_close(d.opened, d.n_opened)
        d.n_opened = 0
    return <int>min(rc, <int64_t>0)


cdef int directory_place(const char* path, const char* name, const char* parent) noexcept nogil:
    # Gives it another name. A descriptor of that one's directory, still to be synced | -errno: it keeps the old one
    cdef int fd = posix_open(NULL, parent, O_RDONLY | O_DIRECTORY, 0)
    cdef int rc = c_rename(path, name) if fd >= 0 else 0
    if rc < 0:
        rc = -errno
        posix_close(NULL, fd)
        return rc
    return fd


cdef void* pages_new(size_t n) noexcept nogil:
    return new_pages(n)


cdef void pages_free(void* p, size_t n) noexcept nogil:
    munmap(p, n)


cdef FileOps posix_ops
posix_ops.open = posix_open
posix_ops.close = posix_close
posix_ops.pwrite = posix_pwrite
posix_ops.pread = posix_pread
posix_ops.datasync = posix_datasync
posix_ops.sync_all = posix_sync_all
posix_ops.truncate = posix_truncate
posix_ops.size = posix_size
posix_ops.time = posix_time
posix_ops.identity = posix_identity
posix_ops.set_time = posix_set_time
posix_ops.direct = posix_direct
posix_ops.rename = posix_rename
posix_ops.unlink = posix_unlink
posix_ops.mkdir = posix_mkdir
posix_ops.rmdir = posix_rmdir
posix_ops.sync_dir = posix_sync_dir
posix_ops.is_dir = posix_is_dir
posix_ops.names = posix_names
posix_ops.map = posix_map
posix_ops.map_over = posix_map_over
posix_ops.unmap = posix_unmap
posix_ops.cool = posix_cool
posix_ops.resident = posix_resident
posix_ops.warm = posix_warm
posix_ops.ctx = NULL


cdef FileOps* posix_files() noexcept nogil:
    return &posix_ops


cdef const char* name_after(const Bytes* names, const char* name) noexcept nogil:
    cdef const uint8_t* at = names.data
    if name != NULL:
        at = <const uint8_t*>name + strlen(name) + 1
    return <const char*>at if at != NULL and at < names.data + names.n else NULL


# ---- files that are written whole

cdef int file_fresh(FileOps* f, const char* path) noexcept nogil:
    # Of a file that an earlier attempt left, a power cut may have made both names of a rename, or could bring back what it had
    # under the name that the new one gets. 0 or -errno.
    cdef int rc = f.unlink(f.ctx, path)
    return rc if rc != -ENOENT else 0


cdef int file_new(FileOps* f, const char* path) noexcept nogil:
    cdef int rc = file_fresh(f, path)
    return f.open(f.ctx, path, O_RDWR | O_CREAT | O_TRUNC, 0o600) if rc == 0 else rc


cdef int file_begin(FileOps* f, const char* path, Span data) noexcept nogil:
    cdef int fd = file_new(f, path)
    cdef int64_t rc
    if fd < 0:
        return fd
    rc = f.pwrite(f.ctx, fd, data.p, data.n, 0)
    if rc < 0:
        f.close(f.ctx, fd)
        return <int>rc
    return fd


cdef int file_put(FileOps* f, const char* path, Span data) noexcept nogil:
    cdef int fd = file_begin(f, path, data)
    cdef int rc
    if fd < 0:
        return fd
    rc = f.datasync(f.ctx, fd)
    f.close(f.ctx, fd)
    return min(rc, 0)
