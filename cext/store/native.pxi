# What Cython has no word for: atomics, prefetches and the loops that the compiler should vectorise.

from libc.errno cimport (
    EDQUOT, EEXIST, EINVAL, EIO, EISDIR, EMFILE, ENAMETOOLONG, ENFILE, ENOENT, ENOMEM, ENOSPC, ENOTDIR,
    EOPNOTSUPP, EPROTONOSUPPORT,
)
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport bsearch, calloc, free, malloc, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strcmp, strerror, strlen, strncmp
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR
from posix.types cimport off_t

from .bytes cimport (
    EV_DISK_FULL, S2_CHUNK_MAX, S2_HEAD, S2_SLACK, Bytes, Cond, Env, Event, FileOps, HHState, List, ListNode, ListWalk,
    Mutex, Span, StrMap, System, Task, Thread, Timer, Tokens, all_zero, array_room, bytes_add, bytes_free, bytes_reserve,
    compare_u64, cond_free, cond_init, elapsed, env_clock, env_held, env_lock, env_unlock, file_new,
    get_uv, has_empty_token, hh64, hh_final, hh_init, hh_update, invariant, is_star, list_drop, list_empty, list_first,
    list_last, list_linked, list_owner, list_pop, list_push_back, list_push_front, list_remove, list_step, list_take,
    list_walk, low_bit, mutex_free, mutex_init, name_after, pages_free, pages_new, place_text, posix_files, put_uv,
    s2_chunk, s2_claim, s2_pack, s2_said, s2_store, same_token, sha256, span, span_eq, strmap_free, strmap_get, strmap_put,
    subject_is_literal, subject_matches, subjects_overlap, task_cancel, task_post, task_queued, timer_cancel,
    timer_set, tokens_cut, tokens_of,
)


cdef extern from "<errno.h>" nogil:
    int EKEYREJECTED        # of FileOps.open: a block that is encrypted, and whose key is damaged

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <stdint.h>
    #include <string.h>
    #include "bytes/words.h"

    static inline uint64_t st_load(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
    static inline void st_store(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
    static inline void st_release(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int st_cas(uint64_t *p, uint64_t expected, uint64_t v) {
        return __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    static inline uint64_t st_add(uint64_t *p, uint64_t v) { return __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST); }
    static inline void st_prefetch(const void *p) { __builtin_prefetch(p); }

    static inline uint64_t st_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
    static inline uint32_t st_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
    static inline uint16_t st_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
    static inline void st_put64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }
    static inline void st_put32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
    static inline void st_put16(uint8_t *p, uint16_t v) { memcpy(p, &v, 2); }

    /* One number of a record's checksum, lengths and place: their sum tells groups apart, and a difference which differs. */
    static inline uint64_t st_mark(uint64_t hash, uint32_t size, uint32_t subject, uint32_t header, uint64_t at) {
        uint64_t v = mul_fold(hash ^ 0xa0761d6478bd642fULL, ((uint64_t)subject << 32 | size) ^ 0xe7037ed1a0b428dbULL);
        return mul_fold(v ^ at ^ 0x8ebc6af09c88c6e3ULL, ((uint64_t)header << 32) ^ v ^ 0x589965cc75374cc3ULL);
    }
    /* A keyed multiply-fold hash for tables whose seed is kept with them on disk. Every 16 bytes are folded into h but the
       last, which may be fewer: so the hashes of all beginnings of a text are had in one pass over it. */
    typedef struct { uint64_t h; uint32_t at; } StPrefix;      /* h: of the first `at` bytes */
    /* The hash of p[:n]; n not below that of the call before. */
    static inline uint32_t st_hash_next(uint64_t seed, StPrefix *s, const uint8_t *p, uint32_t n) {
        uint64_t h = s->h, a = 0, b = 0;
        uint32_t at = s->at, left;
        for (; n - at > 16; at += 16) h = mul_fold(st_get64(p + at) ^ 0xa0761d6478bd642fULL, st_get64(p + at + 8) ^ h);
        s->h = h;
        s->at = at;
        left = n - at;
        p += at;
        if (left >= 8) { a = st_get64(p); b = st_get64(p + left - 8); }
        else if (left >= 4) { a = st_get32(p); b = st_get32(p + left - 4); }
        else if (left) { a = ((uint64_t)p[0] << 16) | ((uint64_t)p[left >> 1] << 8) | p[left - 1]; }
        h = mul_fold(a ^ 0xe7037ed1a0b428dbULL, b ^ h);
        return (uint32_t)(mul_fold(h ^ 0x8ebc6af09c88c6e3ULL, seed ^ 0x589965cc75374cc3ULL ^ n) >> 32);
    }
    static inline uint32_t st_hash(uint64_t seed, const uint8_t *p, uint32_t n) {
        StPrefix s = {seed, 0};
        return st_hash_next(seed, &s, p, n);
    }
    /* How many bytes two texts have in common from their beginning. */
    static inline uint32_t st_common(const uint8_t *a, const uint8_t *b, uint32_t n) {
        uint32_t i = 0;
        while (n - i >= 8 && st_get64(a + i) == st_get64(b + i)) i += 8;
        while (i < n && a[i] == b[i]) i++;
        return i;
    }

    /* The first i in [i, n) with a[i] == v and live[i] != 0, or n. */
    static uint32_t st_find(const uint32_t *a, const uint32_t *live, uint32_t i, uint32_t n, uint32_t v) {
        while (i < n) {
            if (n - i >= 32) {
                uint32_t any = 0;
                for (int j = 0; j < 32; j++) any |= (uint32_t)(a[i + j] == v);
                if (!any) { i += 32; continue; }
            }
            uint32_t end = n - i >= 32 ? i + 32 : n;
            for (; i < end; i++) if (a[i] == v && live[i]) return i;
        }
        return n;
    }
    /* The last i in [0, n) with a[i] == v and live[i] != 0; UINT32_MAX when none. */
    static uint32_t st_find_back(const uint32_t *a, const uint32_t *live, uint32_t n, uint32_t v) {
        while (n > 0) {
            if (n >= 32) {
                uint32_t any = 0;
                for (int j = 1; j <= 32; j++) any |= (uint32_t)(a[n - j] == v);
                if (!any) { n -= 32; continue; }
            }
            uint32_t end = n >= 32 ? n - 32 : 0;
            while (n > end) { n--; if (a[n] == v && live[n]) return n; }
        }
        return UINT32_MAX;
    }
    static uint32_t st_first_live(const uint32_t *live, uint32_t i, uint32_t n) {
        while (i < n) {
            if (n - i >= 16) {
                uint32_t any = 0;
                for (int j = 0; j < 16; j++) any |= live[i + j];
                if (!any) { i += 16; continue; }
            }
            if (live[i]) return i;
            i++;
        }
        return n;
    }
    static uint32_t st_count_live(const uint32_t *live, uint32_t i, uint32_t n) {
        uint32_t c = 0;
        for (; i < n; i++) c += live[i] != 0;
        return c;
    }
    static uint32_t st_count_id(const uint32_t *a, const uint32_t *live, uint32_t i, uint32_t n, uint32_t v) {
        uint32_t c = 0;
        for (; i < n; i++) c += (uint32_t)(a[i] == v) & (uint32_t)(live[i] != 0);
        return c;
    }
    /* Sets of ids: pages of 4096 bits, NULL where none is set. */
    static inline int st_has(uint64_t *const *pages, uint32_t n_pages, uint32_t id) {
        uint32_t k = id >> 12;
        if (k >= n_pages || !pages[k]) return 0;
        return (pages[k][(id >> 6) & 63] >> (id & 63)) & 1;
    }
    static uint32_t st_count_set(uint64_t *const *pages, uint32_t n_pages, const uint32_t *a, const uint32_t *live,
                                 uint32_t i, uint32_t n) {
        uint32_t c = 0;
        for (; i < n; i++) c += (uint32_t)st_has(pages, n_pages, a[i]) & (uint32_t)(live[i] != 0);
        return c;
    }
    static uint32_t st_find_set(uint64_t *const *pages, uint32_t n_pages, const uint32_t *a, const uint32_t *live,
                                uint32_t i, uint32_t n) {
        for (; i < n; i++) if (live[i] && st_has(pages, n_pages, a[i])) return i;
        return n;
    }
    """
    uint64_t st_load(const uint64_t* p)
    void st_store(uint64_t* p, uint64_t v)
    void st_release(uint64_t* p, uint64_t v)
    bint st_cas(uint64_t* p, uint64_t expected, uint64_t v)
    uint64_t st_add(uint64_t* p, uint64_t v)
    void st_prefetch(const void* p)
    uint64_t st_get64(const uint8_t* p)
    uint32_t st_get32(const uint8_t* p)
    uint16_t st_get16(const uint8_t* p)
    void st_put64(uint8_t* p, uint64_t v)
    void st_put32(uint8_t* p, uint32_t v)
    void st_put16(uint8_t* p, uint16_t v)
    uint64_t st_mark(uint64_t hash, uint32_t size, uint32_t subject, uint32_t header, uint64_t at)
    ctypedef struct StPrefix:
        uint64_t h
        uint32_t at
    uint32_t st_hash_next(uint64_t seed, StPrefix* s, const uint8_t* p, uint32_t n)
    uint32_t st_hash(uint64_t seed, const uint8_t* p, uint32_t n)
    uint32_t st_common(const uint8_t* a, const uint8_t* b, uint32_t n)
    uint32_t st_find(const uint32_t* a, const uint32_t* live, uint32_t i, uint32_t n, uint32_t v)
    uint32_t st_find_back(const uint32_t* a, const uint32_t* live, uint32_t n, uint32_t v)
    uint32_t st_first_live(const uint32_t* live, uint32_t i, uint32_t n)
    uint32_t st_count_live(const uint32_t* live, uint32_t i, uint32_t n)
    uint32_t st_count_id(const uint32_t* a, const uint32_t* live, uint32_t i, uint32_t n, uint32_t v)
    bint st_has(uint64_t** pages, uint32_t n_pages, uint32_t id)
    uint32_t st_count_set(uint64_t** pages, uint32_t n_pages, const uint32_t* a, const uint32_t* live, uint32_t i, uint32_t n)
    uint32_t st_find_set(uint64_t** pages, uint32_t n_pages, const uint32_t* a, const uint32_t* live, uint32_t i, uint32_t n)
    void* memmem(const void* p, size_t n, const void* what, size_t k)
    void* aligned_alloc(size_t alignment, size_t n)


cdef enum:
    PAGE = 4096
