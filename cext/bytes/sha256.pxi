# SHA-256 (FIPS 180-4), in one call: for keys of checksums, not for bulk data.

cdef uint32_t[64] SHA_K = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
]


@cython.overflowcheck(False)
cdef inline uint32_t rotr32(uint32_t x, uint32_t by) noexcept nogil:
    return (x >> by) | (x << (32 - by))


@cython.overflowcheck(False)
cdef void sha256_block(uint32_t* h, const uint8_t* p) noexcept nogil:
    cdef uint32_t w[64]
    cdef uint32_t v[8]
    cdef uint32_t s0, s1, t1, t2
    cdef int i
    for i in range(16):
        w[i] = ((<uint32_t>p[4 * i] << 24) | (<uint32_t>p[4 * i + 1] << 16)
                | (<uint32_t>p[4 * i + 2] << 8) | p[4 * i + 3])
    for i in range(16, 64):
        s0 = rotr32(w[i - 15], 7) ^ rotr32(w[i - 15], 18) ^ (w[i - 15] >> 3)
        s1 = rotr32(w[i - 2], 17) ^ rotr32(w[i - 2], 19) ^ (w[i - 2] >> 10)
        w[i] = w[i - 16] + s0 + w[i - 7] + s1
    memcpy(v, h, 32)
    for i in range(64):
        s1 = rotr32(v[4], 6) ^ rotr32(v[4], 11) ^ rotr32(v[4], 25)
        t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + SHA_K[i] + w[i]
        s0 = rotr32(v[0], 2) ^ rotr32(v[0], 13) ^ rotr32(v[0], 22)
        t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]))
        v[7] = v[6]
        v[6] = v[5]
        v[5] = v[4]
        v[4] = v[3] + t1
        v[3] = v[2]
        v[2] = v[1]
        v[1] = v[0]
        v[0] = t1 + t2
    for i in range(8):
        h[i] += v[i]


@cython.overflowcheck(False)
cdef void sha256(const uint8_t* p, size_t n, uint8_t* out32) noexcept nogil:
    cdef uint32_t h[8]
    cdef uint8_t tail[128]
    cdef uint64_t bits = <uint64_t>n << 3
    cdef size_t rest, i
    h[0] = 0x6a09e667
    h[1] = 0xbb67ae85
    h[2] = 0x3c6ef372
    h[3] = 0xa54ff53a
    h[4] = 0x510e527f
    h[5] = 0x9b05688c
    h[6] = 0x1f83d9ab
    h[7] = 0x5be0cd19
    while n >= 64:
        sha256_block(h, p)
        p += 64
        n -= 64
    memset(tail, 0, 128)
    if n:
        memcpy(tail, p, n)
    tail[n] = 0x80
    rest = 64 if n < 56 else 128
    for i in range(8):
        tail[rest - 1 - i] = <uint8_t>((bits >> (8 * i)) & 0xff)
    sha256_block(h, tail)
    if rest == 128:
        sha256_block(h, tail + 64)
    for i in range(32):
        out32[i] = <uint8_t>((h[i >> 2] >> (24 - 8 * (i & 3))) & 0xff)
