/* CRC-32C (Castagnoli) with the processor's instruction where there is one, else eight bytes at a time from tables. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc_tables[8][256];

static void crc_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? (c >> 1) ^ 0x82f63b78u : c >> 1;
        crc_tables[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (uint32_t i = 0; i < 256; i++)
            crc_tables[t][i] = (crc_tables[t - 1][i] >> 8) ^ crc_tables[0][crc_tables[t - 1][i] & 0xff];
}

static uint32_t crc_portable(uint32_t crc, const uint8_t *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        v ^= crc;
        crc = crc_tables[7][v & 0xff] ^ crc_tables[6][(v >> 8) & 0xff] ^ crc_tables[5][(v >> 16) & 0xff]
            ^ crc_tables[4][(v >> 24) & 0xff] ^ crc_tables[3][(v >> 32) & 0xff] ^ crc_tables[2][(v >> 40) & 0xff]
            ^ crc_tables[1][(v >> 48) & 0xff] ^ crc_tables[0][v >> 56];
    }
    for (; n; n--) crc = (crc >> 8) ^ crc_tables[0][(crc ^ *p++) & 0xff];
    return crc;
}

#if defined(__x86_64__)

#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_fast(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = crc, v;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        c = _mm_crc32_u64(c, v);
    }
    for (; n; n--) c = _mm_crc32_u8((uint32_t)c, *p++);
    return (uint32_t)c;
}

static int crc_fast_supported(void) { return __builtin_cpu_supports("sse4.2") != 0; }

#else

static uint32_t crc_fast(uint32_t crc, const uint8_t *p, size_t n) { return crc_portable(crc, p, n); }

static int crc_fast_supported(void) { return 0; }

#endif

static uint32_t crc32c(int fast, const uint8_t *p, size_t n) {
    return ~(fast ? crc_fast(~0u, p, n) : crc_portable(~0u, p, n));
}

/* Copies n bytes that start `offset` behind `d`, which they may overlap; may write to up to 15 bytes behind them. */
static inline void copy_back(uint8_t *d, size_t offset, size_t n) {
    const uint8_t *s = d - offset;
    uint8_t *end = d + n;
    if (offset >= 16) {
        do {
            memcpy(d, s, 16);
            d += 16;
            s += 16;
        } while (d < end);
    } else if (offset >= 8) {
        do {
            memcpy(d, s, 8);
            d += 8;
            s += 8;
        } while (d < end);
    } else if (offset == 1) {
        memset(d, *s, n);
    } else {
        while (d < end) *d++ = *s++;
    }
}

/* How many bytes at `a` and `b` agree; `a` is the one behind, and reads stop at its end. */
static inline size_t match_length(const uint8_t *a, const uint8_t *b, const uint8_t *end) {
    const uint8_t *from = a;
    while (end - a >= 8) {
        uint64_t x, y;
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        if (x != y) return (size_t)(a - from) + (size_t)(__builtin_ctzll(x ^ y) >> 3);
        a += 8;
        b += 8;
    }
    while (a < end && *a == *b) {
        a++;
        b++;
    }
    return (size_t)(a - from);
}
