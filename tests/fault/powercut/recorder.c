/* Preloaded into a server: logs everything it does to the files below $RECORD_ROOT into $RECORD_LOG.
 *
 * A record is a Head, two paths, then data; see log.py. Writes and syncs are logged when they have
 * returned; a sync also says which record was the last one when it began, because only what was
 * complete by then is certain to be on disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, TRUNCATE, SYNC, SYNC_ALL, RENAME, UNLINK, MKDIR, RMDIR };

struct Head {
    uint32_t size;
    uint32_t kind;
    int64_t time;
    uint64_t inode;
    uint64_t offset;
    uint64_t mark;
    uint32_t path, path2, data, flags;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static uint64_t count;
static char root[4096];
static size_t root_len;
static uint64_t inodes[65536];

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *f = dlsym(RTLD_NEXT, name);
    if (!f) abort();
    return f;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("RECORD_LOG"), *top = getenv("RECORD_ROOT");
    if (!path || !top || strlen(top) >= sizeof root) return;
    strcpy(root, top);
    root_len = strlen(root);
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* With the lock held. */
static void put(uint32_t kind, uint64_t inode, uint64_t offset, uint64_t mark, uint32_t flags,
                const char *path, const char *path2, const void *data, size_t n) {
    struct Head h;
    struct iovec parts[4];
    memset(&h, 0, sizeof h);
    h.kind = kind;
    h.time = now();
    h.inode = inode;
    h.offset = offset;
    h.mark = mark;
    h.flags = flags;
    h.path = path ? strlen(path) : 0;
    h.path2 = path2 ? strlen(path2) : 0;
    h.data = n;
    h.size = sizeof h + h.path + h.path2 + n;
    parts[0] = (struct iovec){&h, sizeof h};
    parts[1] = (struct iovec){(void *)path, h.path};
    parts[2] = (struct iovec){(void *)path2, h.path2};
    parts[3] = (struct iovec){(void *)data, n};
    if (syscall(SYS_writev, log_fd, parts, 4) != (long)h.size) abort();
    count++;
}

/* The absolute path if it lies below the root, else NULL. */
static const char *watched(int dir, const char *path, char *out, size_t cap) {
    char base[4096], link[64];
    ssize_t n;
    if (log_fd < 0) return NULL;
    if (path[0] == '/') {
        snprintf(out, cap, "%s", path);
    } else {
        if (dir == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return NULL;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            n = readlink(link, base, sizeof base - 1);
            if (n < 0) return NULL;
            base[n] = 0;
        }
        if (snprintf(out, cap, "%s/%s", base, path) >= (int)cap) return NULL;
    }
    return strncmp(out, root, root_len) == 0 && (out[root_len] == '/' || !out[root_len]) ? out : NULL;
}

static int open_as(int dir, const char *path, int flags, mode_t mode) {
    static int (*call)(int, const char *, int, ...);
    char full[8192];
    const char *seen = watched(dir, path, full, sizeof full);
    struct stat st;
    int fd, existed;
    if (!call) call = real("openat");
    if (!seen) return call(dir, path, flags, mode);
    pthread_mutex_lock(&lock);
    existed = fstatat(dir, path, &st, 0) == 0;
    fd = call(dir, path, flags, mode);
    if (fd >= 0 && fd < 65536 && fstat(fd, &st) == 0) {
        inodes[fd] = st.st_ino;
        if (!existed)
            put(OPEN, st.st_ino, 0, 0, 1, seen, NULL, NULL, 0);
        else if (flags & O_TRUNC)
            put(TRUNCATE, st.st_ino, 0, 0, 0, seen, NULL, NULL, 0);
        else
            put(OPEN, st.st_ino, 0, 0, 0, seen, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;
}

#define OPENER(name)                                     \
    int name(const char *path, int flags, ...) {         \
        va_list more;                                    \
        va_start(more, flags);                           \
        mode_t mode = mode_of(flags, more);              \
        va_end(more);                                    \
        return open_as(AT_FDCWD, path, flags, mode);     \
    }
#define OPENER_AT(name)                                  \
    int name(int dir, const char *path, int flags, ...) { \
        va_list more;                                    \
        va_start(more, flags);                           \
        mode_t mode = mode_of(flags, more);              \
        va_end(more);                                    \
        return open_as(dir, path, flags, mode);          \
    }
OPENER(open)
OPENER(open64)
OPENER_AT(openat)
OPENER_AT(openat64)

int close(int fd) {
    static int (*call)(int);
    if (!call) call = real("close");
    if (fd >= 0 && fd < 65536) inodes[fd] = 0;
    return call(fd);
}

static uint64_t inode_of(int fd) { return log_fd >= 0 && fd >= 0 && fd < 65536 ? inodes[fd] : 0; }

static ssize_t wrote(int fd, const void *data, ssize_t n, uint64_t offset) {
    uint64_t inode = inode_of(fd);
    if (n > 0 && inode) {
        pthread_mutex_lock(&lock);
        put(WRITE, inode, offset, 0, 0, NULL, NULL, data, n);
        pthread_mutex_unlock(&lock);
    }
    return n;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    static ssize_t (*call)(int, const void *, size_t, off_t);
    if (!call) call = real("pwrite");
    return wrote(fd, data, call(fd, data, n, offset), offset);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset) {
    return pwrite(fd, data, n, offset);
}

ssize_t write(int fd, const void *data, size_t n) {
    static ssize_t (*call)(int, const void *, size_t);
    ssize_t done;
    if (!call) call = real("write");
    done = call(fd, data, n);
    if (done > 0 && inode_of(fd)) return wrote(fd, data, done, lseek(fd, 0, SEEK_CUR) - done);
    return done;
}

int ftruncate(int fd, off_t size) {
    static int (*call)(int, off_t);
    int rc;
    if (!call) call = real("ftruncate");
    rc = call(fd, size);
    if (rc == 0 && inode_of(fd)) {
        pthread_mutex_lock(&lock);
        put(TRUNCATE, inode_of(fd), size, 0, 0, NULL, NULL, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return rc;
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

static uint64_t begun(void) {
    uint64_t mark;
    pthread_mutex_lock(&lock);
    mark = count;
    pthread_mutex_unlock(&lock);
    return mark;
}

static int synced(int fd, const char *name, int (*call)(int), uint32_t kind) {
    uint64_t inode = inode_of(fd), mark = inode ? begun() : 0;
    int rc = call(fd);
    (void)name;
    if (rc == 0 && inode) {
        pthread_mutex_lock(&lock);
        put(kind, inode, 0, mark, 0, NULL, NULL, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return rc;
}

int fsync(int fd) { return synced(fd, "fsync", REAL(fsync), SYNC); }
int fdatasync(int fd) { return synced(fd, "fdatasync", REAL(fdatasync), SYNC); }
/* The whole file system: also by a descriptor that is the copy of one. */
int syncfs(int fd) {
    char full[8192];
    struct stat st;
    if (log_fd >= 0 && fd >= 0 && fd < 65536 && !inode_of(fd) && watched(fd, "", full, sizeof full) &&
        fstat(fd, &st) == 0)
        inodes[fd] = st.st_ino;
    return synced(fd, "syncfs", REAL(syncfs), SYNC_ALL);
}

static int named(int rc, uint32_t kind, const char *seen, const char *seen2, uint64_t inode) {
    if (rc == 0 && seen) put(kind, inode, 0, 0, 0, seen, seen2, NULL, 0);
    pthread_mutex_unlock(&lock);
    return rc;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    char a[8192], b[8192];
    const char *seen = watched(from_dir, from, a, sizeof a), *seen2 = watched(to_dir, to, b, sizeof b);
    int (*call)(int, const char *, int, const char *) = real("renameat");
    if (!seen || !seen2) return call(from_dir, from, to_dir, to);
    pthread_mutex_lock(&lock);
    return named(call(from_dir, from, to_dir, to), RENAME, seen, seen2, 0);
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int dir, const char *path, int flags) {
    char full[8192];
    const char *seen = watched(dir, path, full, sizeof full);
    int (*call)(int, const char *, int) = real("unlinkat");
    if (!seen) return call(dir, path, flags);
    pthread_mutex_lock(&lock);
    return named(call(dir, path, flags), flags & AT_REMOVEDIR ? RMDIR : UNLINK, seen, NULL, 0);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int dir, const char *path, mode_t mode) {
    char full[8192];
    const char *seen = watched(dir, path, full, sizeof full);
    int (*call)(int, const char *, mode_t) = real("mkdirat");
    struct stat st;
    int rc;
    if (!seen) return call(dir, path, mode);
    pthread_mutex_lock(&lock);
    rc = call(dir, path, mode);
    if (rc != 0 || fstatat(dir, path, &st, 0) != 0) {
        pthread_mutex_unlock(&lock);
        return rc;
    }
    return named(rc, MKDIR, seen, NULL, st.st_ino);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
