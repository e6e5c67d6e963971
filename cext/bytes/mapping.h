/* Mappings of files whose pages may not be there when they are touched.
 *
 * A file that was cut, or a disk that cannot read a page, answers a touch of the mapping with SIGBUS. The handler puts a
 * page of zeros in that place, which no checksum fits: the reader meets damage instead of the process its end. */
#ifndef BYTES_MAPPING_H
#define BYTES_MAPPING_H

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* Room for twice the mappings that Linux allows a process by default (vm.max_map_count). Only what is used of it takes memory. */
enum { GUARDED_MAX = 131072, GUARDED_TRIES = 64, GUARDED_PAGE = 4096 };
enum { WARM_PART = 128 << 10 };

struct guarded { uintptr_t start, end; };
static struct guarded guarded_all[GUARDED_MAX];
static struct sigaction bus_before;
static int bus_ready;

static void on_bus(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (int i = 0; i < GUARDED_MAX; i++) {
        uintptr_t start = __atomic_load_n(&guarded_all[i].start, __ATOMIC_ACQUIRE);
        uintptr_t end = __atomic_load_n(&guarded_all[i].end, __ATOMIC_ACQUIRE);
        if (start && at >= start && at < end) {
            void *page = (void *)(at & ~(uintptr_t)(GUARDED_PAGE - 1));
            if (mmap(page, GUARDED_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page)
                return;
        }
    }
    sigaction(number, &bus_before, NULL);    /* not ours: it comes again, for the handler before */
}

static void bus_install(void) {
    struct sigaction action;
    int expected = 0;
    if (!__atomic_compare_exchange_n(&bus_ready, &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    action.sa_sigaction = on_bus;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGBUS, &action, &bus_before);
}

/* Where the table has no room the mapping is not guarded. */
static void guard(void *p, size_t n) {
    uintptr_t start = (uintptr_t)p;
    uintptr_t home = start / GUARDED_PAGE * 0x9e3779b97f4a7c15ULL >> 40;
    bus_install();
    for (int i = 0; i < GUARDED_TRIES; i++) {
        struct guarded *m = &guarded_all[(home + i) % GUARDED_MAX];
        uintptr_t expected = 0;
        if (__atomic_compare_exchange_n(&m->end, &expected, start + n, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            __atomic_store_n(&m->start, start, __ATOMIC_RELEASE);
            return;
        }
    }
}

static void unguard(void *p) {
    uintptr_t start = (uintptr_t)p;
    uintptr_t home = start / GUARDED_PAGE * 0x9e3779b97f4a7c15ULL >> 40;
    for (int i = 0; i < GUARDED_TRIES; i++) {
        struct guarded *m = &guarded_all[(home + i) % GUARDED_MAX];
        if (__atomic_load_n(&m->start, __ATOMIC_ACQUIRE) == start) {
            __atomic_store_n(&m->start, 0, __ATOMIC_RELEASE);
            __atomic_store_n(&m->end, 0, __ATOMIC_RELEASE);
            return;
        }
    }
}

/* 0 or -errno. fd -1: of a file that is gone, all zeros. */
static int file_map(int fd, size_t n, int own, uint8_t **out) {
    int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : own ? MAP_PRIVATE : MAP_SHARED;
    void *p = mmap(NULL, n, own || fd < 0 ? PROT_READ | PROT_WRITE : PROT_READ, kind, fd, 0);
    *out = NULL;
    if (p == MAP_FAILED) return -errno;
    if (fd >= 0) guard(p, n);
    *out = p;
    return 0;
}

static int file_map_over(void *p, int fd, size_t n) {
    void *r = mmap(p, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0);
    if (r == MAP_FAILED) return -errno;
    unguard(p);
    guard(p, n);
    return 0;
}

static int file_resident(const void *p, size_t n) {
    unsigned char pages[256];
    while (n) {
        size_t part = n < sizeof(pages) * GUARDED_PAGE ? n : sizeof(pages) * GUARDED_PAGE;
        size_t count = (part + GUARDED_PAGE - 1) / GUARDED_PAGE;
        if (mincore((void *)p, part, pages) < 0) return 1;
        for (size_t i = 0; i < count; i++)
            if (!(pages[i] & 1)) return 0;
        p = (const char *)p + part;
        n -= part;
    }
    return 1;
}

/* In parts, one after another: what others ask of the disk meanwhile waits for one of them at most. */
static void file_warm(const void *p, size_t n) {
    volatile const char *at = p;
    for (size_t done = 0; done < n; done += WARM_PART) {
        size_t part = n - done < WARM_PART ? n - done : WARM_PART;
        madvise((char *)p + done, part, MADV_WILLNEED);
        for (size_t i = 0; i < part; i += GUARDED_PAGE) (void)at[done + i];
    }
}

static void file_unmap(void *p, size_t n) {
    unguard(p);
    munmap(p, n);
}

#endif
