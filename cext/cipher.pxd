"""Ciphers of stores that are encrypted: keys, what is sealed with them, and the keystream of a file."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jsserver.cext.bytes cimport FileOps, Span, System


cdef enum CipherKind:
    # As nats-server names them.
    CIPHER_CHACHA = 1           # chacha: XChaCha20-Poly1305, files by XChaCha20
    CIPHER_AES = 2              # aes: AES-256-GCM with nonces of 16 bytes, files by AES-256 in counter mode

cdef enum:
    CIPHER_KEY = 32
    CIPHER_TAG = 16

cdef uint32_t cipher_nonce(CipherKind kind) noexcept nogil      # bytes of its nonces
# The key that a secret gives for a context: HMAC-SHA256 of both parts, one behind the other. 0 | -1 no memory
cdef int cipher_derive(Span secret, Span info, Span context, uint8_t* key) noexcept nogil
# Seals n bytes at p into out: as many, and the tag. 0 | -1 no memory
cdef int cipher_seal(CipherKind kind, const uint8_t* key, const uint8_t* nonce, const uint8_t* p, size_t n,
                     uint8_t* out) noexcept nogil
# Opens what was sealed, n bytes with the tag. 0 | -1 it was not sealed so, or no memory
cdef int cipher_open(CipherKind kind, const uint8_t* key, const uint8_t* nonce, const uint8_t* p, size_t n,
                     uint8_t* out) noexcept nogil
# n bytes that stand at `at` of a file, encrypted or decrypted: one is the other. out may be p. 0 | -1 no memory
cdef int cipher_file(CipherKind kind, const uint8_t* key, const uint8_t* nonce, uint64_t at, const uint8_t* p, size_t n,
                     uint8_t* out) noexcept nogil

# ---- the files of encrypted streams ------------------------------------------------------------------------------
# A table of file operations in front of another one: its users see plain files. Of what account and stream a file is
# its path says: ACCOUNT/streams/STREAM/msgs/N.blk.
cdef struct Encrypted
# NULL: no memory
cdef Encrypted* encrypted_new(FileOps* inner, System* system, CipherKind kind, Span secret, Span before) noexcept nogil
cdef void encrypted_free(Encrypted* e) noexcept nogil                           # when no file of it is open
cdef FileOps* encrypted_files(Encrypted* e) noexcept nogil
