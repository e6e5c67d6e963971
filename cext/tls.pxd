"""TLS as a transport: what connections are secured by, and the state of one."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jsserver.cext.bytes cimport Bytes, Mutex
from jsserver.cext.net cimport Conn, Security


cdef extern from "<openssl/ssl.h>" nogil:
    ctypedef struct SSL
    ctypedef struct SSL_CTX

cdef enum:
    RECORD_MAX = 16384          # bytes of plaintext in a record
    RECORD_ROOM = 16704         # more than a record can have on the wire
    DIGEST_SIZE = 32            # SHA-256

cdef struct Staple:
    # The OCSP response that a certificate's handshakes carry.
    uint8_t* data               # NULL: none
    int n
    int64_t until               # wall; no handshake is made beyond it

cdef struct Context:
    # Held by its maker, by listeners and by connections; freed with the last of them, in any thread.
    Security security           # first: a Security* of ours is a Context*
    int refs                    # atomic
    SSL_CTX** certificates      # one for each certificate; the first is what connections begin with
    uint32_t n_certificates
    Staple* staples             # one for each certificate
    Mutex stapling              # guards them; held for a copy
    bint verify                 # clients must have a certificate
    bint trusting               # servers need none that is trusted
    bint inquires               # the control plane decides about those that are trusted
    bint pinned
    uint8_t* pins               # SHA-256 of SubjectPublicKeyInfos, of which one must be its key's
    uint32_t n_pins
    int64_t rate                # handshakes that may begin in a second; 0: without a limit
    int64_t rate_until          # atomic, mono: the end of the second that is counted
    int64_t rate_count          # atomic

cdef struct Link:
    # What OpenSSL is joined to. Its connection's reactor alone uses it.
    SSL* ssl
    Context* context            # held
    int fd                      # what a handshake reads from; -1: it has only what is in `inward`
    size_t allowance            # bytes that it may still read in this turn
    const uint8_t* inward       # ciphertext that has come
    size_t n_inward
    uint8_t* into               # where records go that are written together; NULL: to `out`
    size_t n_into
    size_t room
    Bytes out                   # ciphertext that is not sent yet
    size_t out_at
    size_t claimed              # bytes of plaintext that are in it, and in the connection's out buffer still
    bint ended                  # the peer says that nothing more comes
    bint failed
    bint asked                  # the control plane decides about its peer's certificates
    bint anonymous              # the peer needs no certificate, whatever the context says
    uint32_t certificate        # number of the one that was chosen
    bint unstapled              # its OCSP response is not valid any more
    uint32_t idle               # messages of the protocol's own since the last data
