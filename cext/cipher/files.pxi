# Files that are encrypted by a keystream: byte by byte, so that any part can be written or read by itself. Nothing shows a
# change.

cdef uint32_t stream_iv(CipherKind kind, const uint8_t* nonce, uint64_t at, uint8_t* iv) noexcept nogil:
    # How the keystream begins that covers place `at`; how many of its bytes stand before that.
    cdef uint64_t n = at >> 6 if kind == CIPHER_CHACHA else at >> 4
    cdef uint32_t digit
    cdef int i
    if kind == CIPHER_CHACHA:
        for i in range(4):
            iv[i] = <uint8_t>(n >> (8 * i))     # a file of 256 GiB would repeat it: none is as large
        chacha_iv(nonce, iv + 4)
        return at & 63
    memcpy(iv, nonce, 16)
    i = 15
    digit = 0
    while i >= 0 and (n or digit):
        digit += iv[i] + <uint32_t>(n & 0xff)
        iv[i] = <uint8_t>digit
        digit >>= 8
        n >>= 8
        i -= 1
    return at & 15


cdef int cipher_file(CipherKind kind, const uint8_t* key, const uint8_t* nonce, uint64_t at, const uint8_t* p, size_t n,
                     uint8_t* out) noexcept nogil:
    cdef uint8_t subkey[CIPHER_KEY]
    cdef uint8_t iv[16]
    cdef uint8_t before[64]
    cdef const EVP_CIPHER* cipher = aes_stream
    cdef EVP_CIPHER_CTX* x = EVP_CIPHER_CTX_new()
    cdef uint32_t skip = stream_iv(kind, nonce, at, iv)
    cdef int rc = -1
    if x == NULL:
        return -1
    if kind == CIPHER_CHACHA:
        chacha_subkey(key, nonce, subkey)
        cipher = chacha_stream
        key = subkey
    memset(before, 0, sizeof(before))
    if EVP_CipherInit_ex(x, cipher, NULL, key, iv, True) == 1 and run(x, before, skip, before) and run(x, p, n, out):
        rc = 0
    EVP_CIPHER_CTX_free(x)
    return rc
