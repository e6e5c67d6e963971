/* Little-endian words read in place, bits of one, and the folded product that hashes of tables stand on. */

#pragma once

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the data plane reads little-endian words in place"
#endif

static inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline uint32_t load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }

/* The number of the lowest bit that is set; one is. */
static inline uint32_t low_bit(uint64_t v) { return (uint32_t)__builtin_ctzll(v); }

/* Both halves of the 128-bit product, folded. */
static inline uint64_t mul_fold(uint64_t a, uint64_t b) {
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}
