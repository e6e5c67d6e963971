# Keys, and what is sealed with them as a whole: encrypted, and with a tag that shows every change.

cdef uint32_t cipher_nonce(CipherKind kind) noexcept nogil:
    return 24 if kind == CIPHER_CHACHA else 16


cdef int cipher_derive(Span secret, Span info, Span context, uint8_t* key) noexcept nogil:
    cdef Bytes text
    cdef unsigned int n = 0
    cdef int rc = -1
    memset(&text, 0, sizeof(text))
    if bytes_add(&text, info.p, info.n) == 0 and bytes_add(&text, context.p, context.n) == 0:
        if HMAC(EVP_sha256(), secret.p, <int>secret.n, text.data, text.n, key, &n) != NULL and n == CIPHER_KEY:
            rc = 0
    bytes_free(&text)
    return rc


cdef EVP_CIPHER_CTX* sealing(CipherKind kind, const uint8_t* key, const uint8_t* nonce, bint seals) noexcept nogil:
    # NULL: no memory.
    cdef uint8_t subkey[CIPHER_KEY]
    cdef uint8_t iv[12]
    cdef EVP_CIPHER_CTX* x = EVP_CIPHER_CTX_new()
    cdef int ok
    if x == NULL:
        return NULL
    if kind == CIPHER_CHACHA:
        chacha_subkey(key, nonce, subkey)
        chacha_iv(nonce, iv)
        ok = EVP_CipherInit_ex(x, chacha_sealed, NULL, subkey, iv, seals)
    else:
        ok = EVP_CipherInit_ex(x, aes_sealed, NULL, NULL, NULL, seals)
        if ok == 1:
            ok = EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_AEAD_SET_IVLEN, 16, NULL)
        if ok == 1:
            ok = EVP_CipherInit_ex(x, NULL, NULL, key, nonce, seals)
    if ok == 1:
        return x
    EVP_CIPHER_CTX_free(x)
    return NULL


cdef int cipher_seal(CipherKind kind, const uint8_t* key, const uint8_t* nonce, const uint8_t* p, size_t n,
                     uint8_t* out) noexcept nogil:
    cdef EVP_CIPHER_CTX* x = sealing(kind, key, nonce, True)
    cdef int some, rc = -1
    if x == NULL:
        return -1
    if run(x, p, n, out) and EVP_CipherFinal_ex(x, out + n, &some) == 1:
        if EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_AEAD_GET_TAG, CIPHER_TAG, out + n) == 1:
            rc = 0
    EVP_CIPHER_CTX_free(x)
    return rc


cdef int cipher_open(CipherKind kind, const uint8_t* key, const uint8_t* nonce, const uint8_t* p, size_t n,
                     uint8_t* out) noexcept nogil:
    cdef uint8_t tag[CIPHER_TAG]
    cdef EVP_CIPHER_CTX* x
    cdef int some, rc = -1
    if n < CIPHER_TAG:
        return -1
    n -= CIPHER_TAG
    memcpy(tag, p + n, CIPHER_TAG)
    x = sealing(kind, key, nonce, False)
    if x == NULL:
        return -1
    if run(x, p, n, out) and EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_AEAD_SET_TAG, CIPHER_TAG, tag) == 1:
        if EVP_CipherFinal_ex(x, tag, &some) == 1:
            rc = 0
    EVP_CIPHER_CTX_free(x)
    return rc
