# The same without a socket, for what Python serves.

class SessionError(OSError):
    """A peer that broke the protocol; the text says how."""


cdef class Session:
    """A server's end of one connection: the owner of the socket gives it what comes, and sends what it has outgoing.

    It asks for no certificate. Of one thread at a time.
    """

    cdef Link* t
    cdef bint established
    cdef list outward       # ciphertext, in pieces

    def __cinit__(self, SecurityContext context not None):
        self.outward = []
        self.t = link_new(context.x, -1)
        if self.t == NULL:
            raise MemoryError
        self.t.anonymous = True
        SSL_set_verify(self.t.ssl, SSL_VERIFY_NONE, NULL)

    def __dealloc__(self):
        if self.t != NULL:
            link_free(self.t)

    @property
    def ended(self):
        """The peer said that nothing more comes."""
        return bool(self.t.ended)

    def receive(self, bytes data not None):
        """What the peer sent within this ciphertext. SessionError; what is outgoing then tells the peer why."""
        cdef Link* t = self.t
        cdef bytearray plain = bytearray(len(data) + RECORD_ROOM)
        cdef uint8_t* p = <uint8_t*>PyByteArray_AS_STRING(plain)
        cdef ssize_t got = 0
        cdef int rc
        cdef Bytes words
        if t.failed:
            raise SessionError("the session has failed")
        t.inward = <const uint8_t*>PyBytes_AS_STRING(data)
        t.n_inward = <size_t>len(data)
        if not self.established:
            memset(&words, 0, sizeof(words))
            rc = link_handshake(t, &words)
            text = (<const char*>words.data)[:words.n] if words.n else b""
            bytes_free(&words)
            if rc == 0:
                self.established = True
            elif rc != -EAGAIN:
                raise SessionError(text.decode("utf-8", "replace"))
        if self.established:
            got = link_decrypt(t, p, <size_t>len(plain))
        t.inward = NULL
        t.n_inward = 0
        if t.failed:
            raise SessionError("the records cannot be read")
        return bytes(plain[:got])

    def send(self, bytes data not None):
        """Puts this into what is outgoing."""
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef size_t at = 0, n = <size_t>len(data), size
        while at < n:
            size = min(n - at, <size_t>RECORD_MAX)
            ERR_clear_error()
            if SSL_write(self.t.ssl, p + at, <int>size) != <int>size:
                self.t.failed = True
                raise SessionError("nothing can be sent")
            self.collect()
            at += size

    def finish(self):
        """Tells the peer, in what is outgoing, that nothing more comes."""
        if self.established and not self.t.failed:
            ERR_clear_error()
            SSL_shutdown(self.t.ssl)

    cdef int collect(self) except -1:
        cdef Bytes* out = &self.t.out
        if out.n:
            self.outward.append((<const char*>out.data)[:out.n])
            out.n = 0
        return 0

    def outgoing(self):
        """The ciphertext to send; it is given once."""
        self.collect()
        taken = b"".join(self.outward)
        self.outward = []
        return taken
