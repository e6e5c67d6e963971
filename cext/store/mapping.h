/* Mappings of files whose pages may not be there when they are touched.
 *
 * A file that was cut, or a disk that cannot read a page, answers a touch of the mapping with SIGBUS. The handler puts a
 * page of zeros in that place, which no checksum fits: the reader meets damage instead of the process its end. */
#ifndef STORE_MAPPING_H
#define STORE_MAPPING_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* Room for twice the mappings that Linux allows a process by default (vm.max_map_count). Only what is used of it takes memory. */
enum { ST_MAPPINGS = 131072, ST_MAPPING_TRIES = 64, ST_MAPPING_PAGE = 4096 };

struct st_mapping { uintptr_t start, end; };
static struct st_mapping st_mappings[ST_MAPPINGS];
static struct sigaction st_bus_before;
static int st_bus_ready;

static void st_bus(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (int i = 0; i < ST_MAPPINGS; i++) {
        uintptr_t start = __atomic_load_n(&st_mappings[i].start, __ATOMIC_ACQUIRE);
        uintptr_t end = __atomic_load_n(&st_mappings[i].end, __ATOMIC_ACQUIRE);
        if (start && at >= start && at < end) {
            void *page = (void *)(at & ~(uintptr_t)(ST_MAPPING_PAGE - 1));
            if (mmap(page, ST_MAPPING_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page)
                return;
        }
    }
    sigaction(number, &st_bus_before, NULL);    /* not ours: it comes again, for whoever was there before */
}

static void st_bus_install(void) {
    struct sigaction action;
    int expected = 0;
    if (!__atomic_compare_exchange_n(&st_bus_ready, &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    action.sa_sigaction = st_bus;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGBUS, &action, &st_bus_before);
}

/* Where the table has no room the mapping is not guarded. */
static void st_guard(void *p, size_t n) {
    uintptr_t start = (uintptr_t)p;
    uintptr_t home = start / ST_MAPPING_PAGE * 0x9e3779b97f4a7c15ULL >> 40;
    st_bus_install();
    for (int i = 0; i < ST_MAPPING_TRIES; i++) {
        struct st_mapping *m = &st_mappings[(home + i) % ST_MAPPINGS];
        uintptr_t expected = 0;
        if (__atomic_compare_exchange_n(&m->end, &expected, start + n, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            __atomic_store_n(&m->start, start, __ATOMIC_RELEASE);
            return;
        }
    }
}

static void st_unguard(void *p) {
    uintptr_t start = (uintptr_t)p;
    uintptr_t home = start / ST_MAPPING_PAGE * 0x9e3779b97f4a7c15ULL >> 40;
    for (int i = 0; i < ST_MAPPING_TRIES; i++) {
        struct st_mapping *m = &st_mappings[(home + i) % ST_MAPPINGS];
        if (__atomic_load_n(&m->start, __ATOMIC_ACQUIRE) == start) {
            __atomic_store_n(&m->start, 0, __ATOMIC_RELEASE);
            __atomic_store_n(&m->end, 0, __ATOMIC_RELEASE);
            return;
        }
    }
}

static void *st_map(int fd, size_t n, int private) {
    void *p = mmap(NULL, n, private ? PROT_READ | PROT_WRITE : PROT_READ, private ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return NULL;
    st_guard(p, n);
    return p;
}

/* Puts the file's first n bytes (whole pages) in place of the anonymous pages at p, private to us. */
static int st_map_over(void *p, int fd, size_t n) {
    void *r = mmap(p, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0);
    if (r == MAP_FAILED) return -errno;
    st_unguard(p);
    st_guard(p, n);
    return 0;
}

/* Ends any of them, or what was reserved. */
static int st_unmap(void *p, size_t n) {
    st_unguard(p);
    return munmap(p, n);
}

#endif
