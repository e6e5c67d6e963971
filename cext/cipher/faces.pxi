# Python's side: keys and files that are handled whole, by starts and by tools.

CHACHA = int(CIPHER_CHACHA)
AES = int(CIPHER_AES)
KINDS = {"chacha": CHACHA, "aes": AES}
NONCES = {CHACHA: int(cipher_nonce(CIPHER_CHACHA)), AES: int(cipher_nonce(CIPHER_AES))}
KEY_BYTES = int(CIPHER_KEY)
TAG_BYTES = int(CIPHER_TAG)


cdef Span view_of(bytes text):
    return span(<const uint8_t*><const char*>text, <uint32_t>len(text))


def derive(bytes secret not None, bytes info not None, bytes context not None) -> bytes:
    """The key of 32 bytes that a server's key gives for a file: HMAC-SHA256(secret, info + context)."""
    cdef uint8_t key[CIPHER_KEY]
    if cipher_derive(view_of(secret), view_of(info), view_of(context), key) < 0:
        raise MemoryError
    return (<const char*>key)[:CIPHER_KEY]


cdef int check(int kind, bytes key, size_t n_nonce) except -1:
    if kind not in NONCES:
        raise ValueError("no such cipher")
    if len(key) != CIPHER_KEY or n_nonce != NONCES[kind]:
        raise ValueError("a key or nonce of another size")
    return 0


def seal(int kind, bytes key not None, bytes data not None) -> bytes:
    """A new random nonce, and what it seals: as many bytes as `data`, and a tag."""
    cdef bytes nonce = os.urandom(NONCES[kind])
    cdef bytearray out = bytearray(len(data) + CIPHER_TAG)
    cdef uint8_t[::1] to = out
    cdef const uint8_t* p = data
    cdef const uint8_t* k = key
    cdef const uint8_t* v = nonce
    cdef size_t n = len(data)
    cdef int rc
    check(kind, key, len(nonce))
    with nogil:
        rc = cipher_seal(<CipherKind>kind, k, v, p, n, &to[0])
    if rc < 0:
        raise MemoryError
    return nonce + bytes(out)


def unseal(int kind, bytes key not None, bytes sealed not None) -> bytes | None:
    """What was sealed, out of a nonce and what follows it; None: not with this key, or it was changed since."""
    cdef size_t skip = NONCES[kind]
    cdef size_t n = len(sealed)
    cdef const uint8_t* p = sealed
    cdef const uint8_t* k = key
    cdef bytearray out
    cdef uint8_t[::1] to
    cdef int rc
    check(kind, key, skip)
    if n < skip + CIPHER_TAG:
        return None
    out = bytearray(n - skip)
    to = out
    with nogil:
        rc = cipher_open(<CipherKind>kind, k, p, p + skip, n - skip, &to[0])
    return bytes(out[:n - skip - CIPHER_TAG]) if rc == 0 else None


def crypt_file(int kind, bytes key not None, bytes nonce not None, uint64_t at, bytes data not None) -> bytes:
    """Bytes that stand at `at` of a file, encrypted or decrypted."""
    cdef bytearray out = bytearray(len(data) or 1)
    cdef uint8_t[::1] to = out
    cdef const uint8_t* p = data
    cdef const uint8_t* k = key
    cdef const uint8_t* v = nonce
    cdef size_t n = len(data)
    cdef int rc
    check(kind, key, len(nonce))
    with nogil:
        rc = cipher_file(<CipherKind>kind, k, v, at, p, n, &to[0])
    if rc < 0:
        raise MemoryError
    return bytes(out[:n])


cdef class EncryptedFiles:
    """What reaches the files of streams, so that all that is on the disk is encrypted.

    secret: the server's key. before: the one that it had before, b"" for none, with which files are still opened that were
    not converted. kind: the cipher of what is written from now on."""

    cdef Encrypted* e

    def __cinit__(self, int kind, bytes secret not None, bytes before=b""):
        if kind not in NONCES:
            raise ValueError("no such cipher")
        if not secret:
            raise ValueError("no key")
        self.e = encrypted_new(posix_files(), posix_system(), <CipherKind>kind, view_of(secret), view_of(before))
        if self.e == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.e != NULL:
            encrypted_free(self.e)

    def files(self):
        """For DataPlane.open_store, whose files are closed before this may go."""
        return PyCapsule_New(encrypted_files(self.e), b"jsserver.FileOps", NULL)
