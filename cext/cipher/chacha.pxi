# Nonces of 24 bytes for ChaCha20, which takes 12: HChaCha20 makes a key of the first 16 (draft-irtf-cfrg-xchacha).

cdef inline uint32_t turned(uint32_t x, uint32_t by) noexcept nogil:
    return (x << by) | (x >> (32 - by))


@cython.overflowcheck(False)
cdef inline void quarter(uint32_t* s, int a, int b, int c, int d) noexcept nogil:
    s[a] += s[b]
    s[d] = turned(s[d] ^ s[a], 16)
    s[c] += s[d]
    s[b] = turned(s[b] ^ s[c], 12)
    s[a] += s[b]
    s[d] = turned(s[d] ^ s[a], 8)
    s[c] += s[d]
    s[b] = turned(s[b] ^ s[c], 7)


cdef inline uint32_t word(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef void chacha_subkey(const uint8_t* key, const uint8_t* nonce, uint8_t* out) noexcept nogil:
    # HChaCha20 of a key and 16 bytes.
    cdef uint32_t s[16]
    cdef int i
    s[0] = 0x61707865
    s[1] = 0x3320646e
    s[2] = 0x79622d32
    s[3] = 0x6b206574
    for i in range(8):
        s[4 + i] = word(key + 4 * i)
    for i in range(4):
        s[12 + i] = word(nonce + 4 * i)
    for i in range(10):
        quarter(s, 0, 4, 8, 12)
        quarter(s, 1, 5, 9, 13)
        quarter(s, 2, 6, 10, 14)
        quarter(s, 3, 7, 11, 15)
        quarter(s, 0, 5, 10, 15)
        quarter(s, 1, 6, 11, 12)
        quarter(s, 2, 7, 8, 13)
        quarter(s, 3, 4, 9, 14)
    for i in range(32):
        out[i] = <uint8_t>(s[(i >> 2) + (0 if i < 16 else 8)] >> (8 * (i & 3)))


cdef void chacha_iv(const uint8_t* nonce, uint8_t* iv) noexcept nogil:
    # The 12 bytes for ChaCha20 of what HChaCha20 has not taken.
    memset(iv, 0, 4)
    memcpy(iv + 4, nonce + 16, 8)
