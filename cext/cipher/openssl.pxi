# What we use of OpenSSL 3.

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_CIPHER
    ctypedef struct EVP_CIPHER_CTX
    ctypedef struct EVP_MD
    ctypedef struct ENGINE
    EVP_CIPHER* EVP_CIPHER_fetch(void* library, const char* name, const char* properties)
    EVP_CIPHER_CTX* EVP_CIPHER_CTX_new()
    void EVP_CIPHER_CTX_free(EVP_CIPHER_CTX* x)
    int EVP_CIPHER_CTX_ctrl(EVP_CIPHER_CTX* x, int what, int n, void* p)
    int EVP_CipherInit_ex(EVP_CIPHER_CTX* x, const EVP_CIPHER* c, ENGINE* e, const uint8_t* key, const uint8_t* iv, int encrypts)
    int EVP_CipherUpdate(EVP_CIPHER_CTX* x, uint8_t* out, int* n_out, const uint8_t* p, int n)
    int EVP_CipherFinal_ex(EVP_CIPHER_CTX* x, uint8_t* out, int* n_out)
    const EVP_MD* EVP_sha256()
    int EVP_CTRL_AEAD_SET_IVLEN, EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG

cdef extern from "<openssl/hmac.h>" nogil:
    uint8_t* HMAC(const EVP_MD* md, const void* key, int n_key, const uint8_t* p, size_t n, uint8_t* out, unsigned int* n_out)

cdef extern from "<errno.h>" nogil:
    int ENOKEY, EKEYREJECTED

cdef enum:
    CALL_MAX = 1 << 30          # bytes handed to OpenSSL at once: it counts in int

# Fetched once: looking for one costs more than a small text.
cdef EVP_CIPHER* chacha_sealed = NULL
cdef EVP_CIPHER* chacha_stream = NULL
cdef EVP_CIPHER* aes_sealed = NULL
cdef EVP_CIPHER* aes_stream = NULL


def fetch_all() -> None:
    global chacha_sealed, chacha_stream, aes_sealed, aes_stream
    chacha_sealed = EVP_CIPHER_fetch(NULL, b"ChaCha20-Poly1305", NULL)
    chacha_stream = EVP_CIPHER_fetch(NULL, b"ChaCha20", NULL)
    aes_sealed = EVP_CIPHER_fetch(NULL, b"AES-256-GCM", NULL)
    aes_stream = EVP_CIPHER_fetch(NULL, b"AES-256-CTR", NULL)
    if chacha_sealed == NULL or chacha_stream == NULL or aes_sealed == NULL or aes_stream == NULL:
        raise ImportError("OpenSSL has no ChaCha20 or no AES-256")


cdef bint run(EVP_CIPHER_CTX* x, const uint8_t* p, size_t n, uint8_t* out) noexcept nogil:
    # All of these bytes through the cipher.
    cdef int some
    while n:
        if EVP_CipherUpdate(x, out, &some, p, <int>min(n, <size_t>CALL_MAX)) != 1:
            return False
        p += some
        out += some
        n -= <size_t>some
    return True
