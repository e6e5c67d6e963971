/* What must hold at a place of the data plane: a build with CHECKED=1 ends there, with the function and a sentence, where it
   does not. It also counts the blocks of memory that each extension has taken and not given back (tests/allocated.py). Others
   leave both out. */

#pragma once

#include <stdint.h>

#ifdef CHECKED

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* What one extension takes another one may free: the sum of all counts. */
__attribute__((weak, visibility("default"))) long jsserver_blocks;

static inline void *counted(void *p) {
    if (p)
        __atomic_add_fetch(&jsserver_blocks, 1, __ATOMIC_RELAXED);
    return p;
}
static inline void *counted_again(void *old, size_t n) {
    void *p = realloc(old, n);
    return old ? p : counted(p);
}
static inline void counted_free(void *p) {
    if (p)
        __atomic_sub_fetch(&jsserver_blocks, 1, __ATOMIC_RELAXED);
    free(p);
}
#define malloc(n) counted(malloc(n))
#define calloc(n, size) counted(calloc(n, size))
#define realloc(old, n) counted_again(old, n)
#define free(p) counted_free(p)

#define invariant(holds, what) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "%s: does not hold: %s\n", __func__, (what)); \
            abort(); \
        } \
    } while (0)

/* Who has a lock. Written by its holder alone, so nobody but the holder finds itself there. */
static inline void holder_enter(uint64_t *holder) { __atomic_store_n(holder, (uint64_t)pthread_self(), __ATOMIC_RELAXED); }
static inline void holder_leave(uint64_t *holder) { __atomic_store_n(holder, 0, __ATOMIC_RELAXED); }
static inline int holder_here(const uint64_t *holder) {
    return __atomic_load_n(holder, __ATOMIC_RELAXED) == (uint64_t)pthread_self();
}

#else

#define invariant(holds, what) ((void)0)
#define holder_enter(holder) ((void)0)
#define holder_leave(holder) ((void)0)
#define holder_here(holder) 1

#endif
