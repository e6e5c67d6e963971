# What OpenSSL reads from and writes to: the bytes of one turn, or the socket while it makes a handshake, which it reads record
# by record, so that nothing of what comes behind it is taken.

cdef enum:
    OUT_MAX = 262144        # bytes of the protocol's own that a peer leaves unread
    IDLE_MAX = 16           # messages of the protocol's own in a row
    NAME_MAX = 256          # bytes of a server's name, with a NUL behind it


cdef int link_bio_read(BIO* b, char* p, int n) noexcept nogil:
    cdef Link* t = <Link*>BIO_get_data(b)
    cdef ssize_t got
    BIO_clear_retry_flags(b)
    if n <= 0:
        return 0
    if t.idle > IDLE_MAX:
        return -1
    if t.n_inward:
        n = <int>min(<size_t>n, t.n_inward)
        memcpy(p, t.inward, n)
        t.inward += n
        t.n_inward -= n
        return n
    if t.fd < 0 or t.allowance == 0:
        BIO_set_retry_read(b)
        return -1
    got = recv(t.fd, p, min(<size_t>n, t.allowance), 0)
    if got > 0:
        t.allowance -= <size_t>got
        return <int>got
    if got == 0:
        t.ended = True
        return 0
    if errno == EAGAIN or errno == EINTR:
        BIO_set_retry_read(b)
    return -1


cdef int link_bio_write(BIO* b, const char* p, int n) noexcept nogil:
    cdef Link* t = <Link*>BIO_get_data(b)
    BIO_clear_retry_flags(b)
    if n <= 0:
        return 0
    if t.into != NULL:
        if <size_t>n > t.room - t.n_into:
            return -1
        memcpy(t.into + t.n_into, p, n)
        t.n_into += n
        return n
    if t.out.n > OUT_MAX or bytes_add(&t.out, p, n) != 0:
        return -1
    return n


cdef long link_bio_ctrl(BIO* b, int what, long n, void* p) noexcept nogil:
    return what == BIO_CTRL_FLUSH


cdef BIO_METHOD* link_method = NULL


cdef void link_message(int out, int version, int kind, const void* p, size_t n, SSL* ssl, void* arg) noexcept nogil:
    # A peer that renews its keys again and again, and sends nothing, only makes work.
    cdef Link* t
    if kind != SSL3_RT_HANDSHAKE or out or n == 0 or (<const uint8_t*>p)[0] != SSL3_MT_KEY_UPDATE:
        return
    t = <Link*>SSL_get_app_data(ssl)
    t.idle += 1


cdef Link* link_new(Context* x, int fd) noexcept nogil:
    # NULL: no memory.
    cdef Link* t = <Link*>calloc(1, sizeof(Link))
    cdef BIO* b
    if t == NULL:
        return NULL
    t.ssl = SSL_new(x.certificates[0])
    b = BIO_new(link_method)
    if t.ssl == NULL or b == NULL:
        SSL_free(t.ssl)
        BIO_free(b)
        free(t)
        return NULL
    t.fd = fd
    t.context = x
    context_hold(&x.security)
    BIO_set_data(b, t)
    BIO_set_init(b, 1)
    SSL_set_app_data(t.ssl, t)
    SSL_set_bio(t.ssl, b, b)
    SSL_set_accept_state(t.ssl)
    return t


cdef Link* link_call(Context* x, int fd, Span name) noexcept nogil:
    # As the side that dials, which speaks first: with a server of that name or address, unless it is empty. NULL: no memory, or a
    # name that nobody has.
    cdef char text[NAME_MAX]
    cdef Link* t
    cdef bint is_named = False
    if name.n >= NAME_MAX:
        return NULL
    t = link_new(x, fd)
    if t == NULL:
        return NULL
    if name.n:
        memcpy(text, name.p, name.n)
        text[name.n] = 0
        is_named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t.ssl), text) != 1
        ERR_clear_error()
    SSL_set_connect_state(t.ssl)
    SSL_set_verify(t.ssl, SSL_VERIFY_NONE if x.trusting else SSL_VERIFY_PEER, NULL)
    if is_named and (SSL_set1_host(t.ssl, text) != 1 or SSL_set_tlsext_host_name(t.ssl, text) != 1):
        link_free(t)
        return NULL
    return t


cdef void link_free(Link* t) noexcept nogil:
    SSL_free(t.ssl)
    context_release(&t.context.security)
    bytes_free(&t.out)
    free(t)


# ---- what went wrong

cdef const char* link_words(Link* t) noexcept nogil:
    # Why the last call failed, as nats-server says it where it has words for that.
    cdef unsigned long e = ERR_peek_error()
    cdef int reason = ERR_GET_REASON(e)
    cdef const char* words
    if t.unstapled:
        return b"the certificate's OCSP response is not valid any more"
    if t.ended:
        return b"EOF"
    if e == 0:
        return b"connection reset by peer" if errno == ECONNRESET else b"EOF"
    if reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return b"tls: client didn't provide a certificate"
    if reason == SSL_R_NO_SHARED_CIPHER:
        return b"tls: no cipher suite supported by both client and server"
    if reason == SSL_R_UNSUPPORTED_PROTOCOL:
        return b"tls: client offered only unsupported versions"
    words = ERR_reason_error_string(e)
    if words == NULL:
        return b"unknown error"
    return words


cdef void fault_words(Bytes* out, const char* before, const char* why) noexcept nogil:
    cdef char text[256]
    snprintf(text, sizeof(text), b"TLS handshake error: %s%s", before, why)
    out.n = 0
    bytes_add(out, text, strlen(text))


# ---- steps

cdef bint link_pinned(Link* t) noexcept nogil:
    # Whether its peer's key is one of those that are trusted.
    cdef X509* cert = SSL_get0_peer_certificate(t.ssl)
    cdef unsigned char* der = NULL
    cdef uint8_t digest[64]
    cdef uint32_t i
    cdef int n
    cdef bint found = False
    if cert == NULL:
        return False
    n = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der)
    if n <= 0:
        return False
    if EVP_Digest(der, n, digest, NULL, EVP_sha256(), NULL) == 1:
        for i in range(t.context.n_pins):
            if CRYPTO_memcmp(t.context.pins + i * DIGEST_SIZE, digest, DIGEST_SIZE) == 0:
                found = True
    OPENSSL_free(der)
    return found


cdef int link_handshake(Link* t, Bytes* words) noexcept nogil:
    # 0 when it is done, -EAGAIN until then; else -errno, and the words for it.
    cdef int rc
    ERR_clear_error()
    errno = 0
    rc = SSL_do_handshake(t.ssl)
    if rc == 1:
        if t.anonymous or not t.context.pinned or link_pinned(t):
            return 0
        fault_words(words, b"", b"certificate not pinned")
    elif SSL_get_error(t.ssl, rc) == SSL_ERROR_WANT_READ and not t.ended:
        return -EAGAIN
    elif ERR_GET_REASON(ERR_peek_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED:
        fault_words(words, b"tls: failed to verify certificate: ", X509_verify_cert_error_string(SSL_get_verify_result(t.ssl)))
    else:
        fault_words(words, b"", link_words(t))
    t.failed = True
    return -EPROTO


cdef ssize_t link_decrypt(Link* t, uint8_t* p, size_t n) noexcept nogil:
    # Takes what is inward; the bytes that came of it, of which there is room for all.
    cdef size_t total = 0
    cdef int got, error
    ERR_clear_error()
    while total < n and (t.n_inward or SSL_pending(t.ssl)):
        got = SSL_read(t.ssl, p + total, <int>min(n - total, <size_t>RECORD_MAX))
        if got > 0:
            total += <size_t>got
            t.idle = 0
            continue
        error = SSL_get_error(t.ssl, got)
        if error == SSL_ERROR_ZERO_RETURN:
            t.ended = True
        elif error != SSL_ERROR_WANT_READ:
            t.failed = True
        break
    if t.idle > IDLE_MAX:
        t.failed = True
    return <ssize_t>total


cdef void link_describe(Link* t, bint first, Bytes* out) noexcept nogil:
    # What monitoring and authentication want to know: the version, the cipher suite and whether the handshake came first, a
    # line each, and the peer's certificates in DER, its own first.
    cdef char text[160]
    cdef X509* own = SSL_get0_peer_certificate(t.ssl)
    cdef X509_stack chain = SSL_get_peer_cert_chain(t.ssl)
    cdef int i
    out.n = 0
    snprintf(text, sizeof(text), b"%s\n%s\n%d\n", SSL_get_version(t.ssl),
             SSL_CIPHER_standard_name(SSL_get_current_cipher(t.ssl)), first)
    bytes_add(out, text, strlen(text))
    if own != NULL:
        link_add_der(own, out)
    if chain != NULL:
        for i in range(sk_X509_num(chain)):
            link_add_der(sk_X509_value(chain, i), out)


cdef void link_chain(Link* t, Bytes* out) noexcept nogil:
    # The certificates that lead from the peer's own to one that is trusted, in DER.
    cdef X509_stack chain = SSL_get0_verified_chain(t.ssl)
    cdef int i
    out.n = 0
    if chain != NULL:
        for i in range(sk_X509_num(chain)):
            link_add_der(sk_X509_value(chain, i), out)


cdef void link_add_der(X509* cert, Bytes* out) noexcept nogil:
    cdef unsigned char* der = NULL
    cdef int n = i2d_X509(cert, &der)
    if n > 0:
        bytes_add(out, der, n)
        OPENSSL_free(der)
