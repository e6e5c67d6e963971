/* HighwayHash's two inner steps with AVX2: a state of 16 words (v0, v1, mul0, mul1) is one register each.
 * hash.pxi holds the portable form of the same. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define HIGHWAY_AVX2 __attribute__((target("avx2")))

typedef struct { __m256i v0, v1, mul0, mul1; } highway_regs;

static int highway_simd_supported(void) { return __builtin_cpu_supports("avx2") != 0; }

HIGHWAY_AVX2 static inline highway_regs highway_load(const uint64_t *state) {
    const __m256i *s = (const __m256i *)state;
    highway_regs r = {_mm256_loadu_si256(s), _mm256_loadu_si256(s + 1), _mm256_loadu_si256(s + 2),
                      _mm256_loadu_si256(s + 3)};
    return r;
}

HIGHWAY_AVX2 static inline __m256i highway_zipper(__m256i v) {
    const __m256i order = _mm256_setr_epi8(
        3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7,
        3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7);
    return _mm256_shuffle_epi8(v, order);
}

HIGHWAY_AVX2 static inline void highway_step(highway_regs *r, __m256i lanes) {
    r->v1 = _mm256_add_epi64(r->v1, _mm256_add_epi64(r->mul0, lanes));
    r->mul0 = _mm256_xor_si256(r->mul0, _mm256_mul_epu32(r->v1, _mm256_srli_epi64(r->v0, 32)));
    r->v0 = _mm256_add_epi64(r->v0, r->mul1);
    r->mul1 = _mm256_xor_si256(r->mul1, _mm256_mul_epu32(r->v0, _mm256_srli_epi64(r->v1, 32)));
    r->v0 = _mm256_add_epi64(r->v0, highway_zipper(r->v1));
    r->v1 = _mm256_add_epi64(r->v1, highway_zipper(r->v0));
}

/* Takes n packets of 32 bytes. */
HIGHWAY_AVX2 static void highway_packets(uint64_t *state, const uint8_t *p, size_t n) {
    highway_regs r = highway_load(state);
    __m256i *s = (__m256i *)state;
    for (; n; n--, p += 32)
        highway_step(&r, _mm256_loadu_si256((const __m256i *)p));
    _mm256_storeu_si256(s, r.v0);
    _mm256_storeu_si256(s + 1, r.v1);
    _mm256_storeu_si256(s + 2, r.mul0);
    _mm256_storeu_si256(s + 3, r.mul1);
}

/* Takes the last packet, padded, of n bytes (0: there is none), and returns the hash. */
HIGHWAY_AVX2 static uint64_t highway_finish(const uint64_t *state, const uint8_t *padded, uint32_t n) {
    highway_regs r = highway_load(state);
    if (n) {
        r.v0 = _mm256_add_epi64(r.v0, _mm256_set1_epi32((int)n));
        r.v1 = _mm256_or_si256(_mm256_sll_epi32(r.v1, _mm_cvtsi32_si128((int)n)),
                               _mm256_srl_epi32(r.v1, _mm_cvtsi32_si128(32 - (int)n)));
        highway_step(&r, _mm256_loadu_si256((const __m256i *)padded));
    }
    for (int i = 0; i < 4; i++)
        highway_step(&r, _mm256_shuffle_epi32(_mm256_permute4x64_epi64(r.v0, 0x4e), 0xb1));
    __m256i sum = _mm256_add_epi64(_mm256_add_epi64(r.v0, r.v1), _mm256_add_epi64(r.mul0, r.mul1));
    return (uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128(sum));
}

#else

static int highway_simd_supported(void) { return 0; }
static void highway_packets(uint64_t *state, const uint8_t *p, size_t n) { (void)state; (void)p; (void)n; }
static uint64_t highway_finish(const uint64_t *state, const uint8_t *padded, uint32_t n) {
    (void)state; (void)padded; (void)n;
    return 0;
}

#endif
