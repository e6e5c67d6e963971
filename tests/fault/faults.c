/* Preloaded into a server: lets file operations below a folder fail as the control file says.
 *
 * The control file, which FAULTS_CONTROL names, holds one line of five 64-bit numbers for each operation:
 * errno (0: they succeed after all), calls that succeed before, calls that fail, calls that failed,
 * whether calls that are to fail wait first. Then comes what paths must contain. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PWRITE, SYNC, OPEN, RENAME, MKDIR, UNLINK, TRUNCATE, PREAD, OPS };
enum { BELOW_MAX = 256 };

struct line {
    int64_t error, after, times, seen, held;
};

struct control {
    struct line lines[OPS];
    char below[BELOW_MAX]; /* ends with a zero; changes only while nothing is to fail */
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_CONTROL");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    control = map == MAP_FAILED ? NULL : map;
}

static int inside(const char *path) {
    return control != NULL && path != NULL && strstr(path, control->below) != NULL;
}

static int inside_fd(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    return inside(path);
}

/* Whether this call fails, errno set. */
static int fails(int op) {
    struct line *l = &control->lines[op];
    if (__atomic_load_n(&l->times, __ATOMIC_SEQ_CST) <= 0)
        return 0;
    if (__atomic_fetch_sub(&l->after, 1, __ATOMIC_SEQ_CST) > 0)
        return 0;
    if (__atomic_fetch_sub(&l->times, 1, __ATOMIC_SEQ_CST) <= 0)
        return 0;
    int error = (int)l->error;
    __atomic_fetch_add(&l->seen, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&l->held, __ATOMIC_SEQ_CST))
        usleep(1000);
    if (error == 0)
        return 0;
    errno = error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *p, size_t n, off_t off) {
    return inside_fd(fd) && fails(PWRITE) ? -1 : REAL(pwrite)(fd, p, n, off);
}
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t off) {
    return inside_fd(fd) && fails(PWRITE) ? -1 : REAL(pwrite64)(fd, p, n, off);
}
ssize_t pread(int fd, void *p, size_t n, off_t off) {
    return inside_fd(fd) && fails(PREAD) ? -1 : REAL(pread)(fd, p, n, off);
}
ssize_t pread64(int fd, void *p, size_t n, off64_t off) {
    return inside_fd(fd) && fails(PREAD) ? -1 : REAL(pread64)(fd, p, n, off);
}
int fdatasync(int fd) { return inside_fd(fd) && fails(SYNC) ? -1 : REAL(fdatasync)(fd); }
int fsync(int fd) { return inside_fd(fd) && fails(SYNC) ? -1 : REAL(fsync)(fd); }
int syncfs(int fd) { return inside_fd(fd) && fails(SYNC) ? -1 : REAL(syncfs)(fd); }
int ftruncate(int fd, off_t n) { return inside_fd(fd) && fails(TRUNCATE) ? -1 : REAL(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) { return inside_fd(fd) && fails(TRUNCATE) ? -1 : REAL(ftruncate64)(fd, n); }
int rename(const char *a, const char *b) { return inside(a) && fails(RENAME) ? -1 : REAL(rename)(a, b); }
int mkdir(const char *path, mode_t mode) { return inside(path) && fails(MKDIR) ? -1 : REAL(mkdir)(path, mode); }
int unlink(const char *path) { return inside(path) && fails(UNLINK) ? -1 : REAL(unlink)(path); }

#define OPENS(name)                                                                                    \
    int name(const char *path, int flags, ...) {                                                       \
        mode_t mode = 0;                                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                           \
            va_list more;                                                                              \
            va_start(more, flags);                                                                     \
            mode = va_arg(more, mode_t);                                                               \
            va_end(more);                                                                              \
        }                                                                                              \
        return inside(path) && fails(OPEN) ? -1 : REAL(name)(path, flags, mode);                       \
    }
OPENS(open)
OPENS(open64)
