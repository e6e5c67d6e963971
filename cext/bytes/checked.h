/* What must hold at a place of the data plane: a build with CHECKED=1 ends there, with the function and a sentence, where it
   does not. Others leave it out. */

#pragma once

#include <stdint.h>

#ifdef CHECKED

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

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
