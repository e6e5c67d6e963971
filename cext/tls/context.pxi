# Contexts: certificates and rules, for listeners and the connections that they accept.

cdef void context_hold(Security* s) noexcept nogil:
    atomic_add_int(&(<Context*>s).refs, 1)


cdef void context_release(Security* s) noexcept nogil:
    cdef Context* x = <Context*>s
    cdef uint32_t i
    if atomic_add_int(&x.refs, -1) > 0:
        return
    for i in range(x.n_certificates):
        SSL_CTX_free(x.certificates[i])
        free(x.staples[i].data)
    pthread_mutex_destroy(&x.stapling)
    free(x.certificates)
    free(x.staples)
    free(x.pins)
    free(x)


cdef int choose_certificate(SSL* ssl, int* alert, void* arg) noexcept nogil:
    # The first certificate for the name that the client asks for; else the first of all. One whose OCSP response is not valid
    # any more is not shown to anybody.
    cdef Link* t = <Link*>SSL_get_app_data(ssl)
    cdef Context* x = t.context
    cdef const char* name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name)
    cdef uint32_t i
    if not SSL_is_server(ssl):
        return SSL_TLSEXT_ERR_OK        # it asked for that name
    if name != NULL:
        for i in range(x.n_certificates):
            if X509_check_host(SSL_CTX_get0_certificate(x.certificates[i]), name, strlen(name), 0, NULL) == 1:
                SSL_set_SSL_CTX(ssl, x.certificates[i])
                t.certificate = i
                break
    if staple_ended(x, t.certificate):
        t.unstapled = True
        alert[0] = SSL_AD_INTERNAL_ERROR
        return SSL_TLSEXT_ERR_ALERT_FATAL
    return SSL_TLSEXT_ERR_OK


cdef int use_pair(SSL_CTX* x, bytes chain, bytes key) except -1:
    # The certificate that comes first in the chain, those behind it, and its key; in PEM.
    cdef BIO* b = read_piece(chain)
    cdef X509* cert
    cdef EVP_PKEY* private
    cdef bint first = True
    try:
        while True:
            ERR_clear_error()
            cert = PEM_read_bio_X509(b, NULL, no_password, NULL)
            if cert == NULL:
                break
            ok = SSL_CTX_use_certificate(x, cert) if first else SSL_CTX_add1_chain_cert(x, cert)
            reason = "" if ok == 1 else last_reason()
            X509_free(cert)
            if ok != 1:
                raise ContextError(f"tls: failed to parse certificate: {reason}")
            first = False
    finally:
        BIO_free(b)
    if first:
        raise ContextError(f"tls: failed to parse certificate: {last_reason()}")
    b = read_piece(key)
    ERR_clear_error()
    private = PEM_read_bio_PrivateKey(b, NULL, no_password, NULL)
    BIO_free(b)
    if private == NULL:
        raise ContextError("tls: failed to parse private key")
    try:
        if X509_check_private_key(SSL_CTX_get0_certificate(x), private) != 1:
            raise ContextError("tls: private key does not match public key")
        if SSL_CTX_use_PrivateKey(x, private) != 1:
            raise ContextError(f"tls: failed to use private key: {last_reason()}")
    finally:
        EVP_PKEY_free(private)
    return 0


cdef int use_authorities(SSL_CTX* x, bytes authorities) except -1:
    # The authorities of clients' certificates: each is trusted by itself, whatever signed it.
    cdef X509_STORE* store = SSL_CTX_get_cert_store(x)
    cdef BIO* b = read_piece(authorities)
    cdef X509* cert
    cdef int found = 0
    try:
        while True:
            cert = PEM_read_bio_X509(b, NULL, no_password, NULL)
            if cert == NULL:
                break
            X509_STORE_add_cert(store, cert)
            SSL_CTX_add_client_CA(x, cert)
            X509_free(cert)
            found += 1
    finally:
        BIO_free(b)
    if not found:
        raise ContextError("failed to parse root ca certificate")
    X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN)
    return 0


cdef void make_full(SSL_CTX* x) noexcept:
    # No session is resumed: every handshake shows the client's certificates and has them verified at that time. OpenSSL
    # believes a resumed session whatever has expired since, and also one that was made where no certificate is asked for
    # (monitoring, with the same context).
    SSL_CTX_set_options(x, SSL_OP_NO_TICKET)
    SSL_CTX_set_num_tickets(x, 0)


cdef SSL_CTX* make_certificate(bytes chain, bytes key, bytes authorities, bint verify, bint dials, int min_version, bytes ciphers,
                               bytes groups) except NULL:
    cdef SSL_CTX* x = SSL_CTX_new(TLS_method())
    if x == NULL:
        raise MemoryError
    try:
        # What a client may be asked to do again and again is refused; what only looks unusual is not: an old certificate's
        # key, or an end that is not announced.
        SSL_CTX_set_options(x, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_COMPRESSION
                            | SSL_OP_PRIORITIZE_CHACHA | SSL_OP_IGNORE_UNEXPECTED_EOF)
        SSL_CTX_set_security_level(x, 1)
        SSL_CTX_set_min_proto_version(x, min_version)
        # Sessions are the clients' to keep, in tickets that end with the context; with `verify` there are none.
        SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF)
        SSL_CTX_set_session_id_context(x, b"jsserver", 8)
        SSL_CTX_set_num_tickets(x, 1)
        SSL_CTX_set_msg_callback(x, link_message)
        # Those of TLS 1.3 in nats-server's order: the cheaper one first that is strong enough.
        SSL_CTX_set_ciphersuites(x, b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256")
        if SSL_CTX_set_cipher_list(x, ciphers) != 1:
            raise ContextError("OpenSSL has none of the configured cipher suites")
        if SSL_CTX_set1_groups_list(x, groups) != 1:
            raise ContextError("OpenSSL has not all of the configured curves")
        if chain is not None:
            use_pair(x, chain, key)
        if authorities:
            use_authorities(x, authorities)
        elif (verify or dials) and SSL_CTX_set_default_verify_paths(x) != 1:
            raise ContextError("the system's certificate authorities cannot be read")
        if verify:
            SSL_CTX_set_verify(x, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL)
            make_full(x)
        SSL_CTX_set_tlsext_servername_callback(x, choose_certificate)
        SSL_CTX_set_tlsext_status_cb(x, staple_status)
    except BaseException:
        SSL_CTX_free(x)
        raise
    return x


def has_group(str name):
    """Whether OpenSSL knows a curve or another group for key exchange."""
    cdef bytes text = name.encode()
    cdef SSL_CTX* x = SSL_CTX_new(TLS_method())
    if x == NULL:
        raise MemoryError
    try:
        return SSL_CTX_set1_groups_list(x, text) == 1
    finally:
        ERR_clear_error()
        SSL_CTX_free(x)


cdef class SecurityContext:
    """What connections are secured by: certificates with their keys, and rules.

    pairs: for each certificate its chain and its key, in PEM. verify: clients need a certificate from one of the authorities
    (PEM; empty: the system's). min_version: 0x303 for TLS 1.2, 0x304. ciphers are of TLS 1.2, by OpenSSL's names, groups
    likewise, both with colons between. pins: SHA-256 of the keys of which clients must have one; None: any. first, optional,
    fallback and timeout (ns): see Security of net.pxd. rate: handshakes that may begin in a second, 0: without a limit. inquires:
    with verify, each comes as INBOX_PEER (see DataPlane.answer_peer) before its connection is one. dials: it also secures
    connections to others, which need certificates from one of the authorities, unless it is trusting; there may be no pair, then.
    ContextError where that cannot be had.
    """

    cdef Context* x

    def __cinit__(self, list pairs not None, *, bytes authorities=b"", bint verify=False, int min_version=0x303, str ciphers,
                  str groups, list pins=None, bint first=False, bint optional=False, int64_t fallback=0, int64_t timeout,
                  int64_t rate=0, bint inquires=False, bint dials=False, bint trusting=False):
        cdef Context* x = <Context*>calloc(1, sizeof(Context))
        cdef uint32_t i
        cdef bytes pin
        if x == NULL:
            raise MemoryError
        self.x = x
        x.refs = 1
        pthread_mutex_init(&x.stapling, NULL)
        x.security.hold = context_hold
        x.security.release = context_release
        x.security.transport = &hello_transport
        x.security.caller = &call_transport
        x.security.first = first
        x.security.admits = hello_admits
        x.security.optional = optional
        x.security.fallback = fallback
        x.security.timeout = timeout
        x.verify = verify
        x.trusting = trusting
        x.rate = rate
        x.inquires = inquires and verify
        if not pairs and not dials:
            raise ValueError("who accepts connections has a certificate")
        pairs = pairs or [(None, None)]
        x.certificates = <SSL_CTX**>calloc(len(pairs), sizeof(SSL_CTX*))
        x.staples = <Staple*>calloc(len(pairs), sizeof(Staple))
        if x.certificates == NULL or x.staples == NULL:
            raise MemoryError
        for chain, key in pairs:
            x.certificates[x.n_certificates] = make_certificate(chain, key, authorities, verify, dials, min_version,
                                                                ciphers.encode(), groups.encode())
            x.n_certificates += 1
        if pins is not None:
            x.pinned = True
            x.pins = <uint8_t*>calloc(max(len(pins), 1), DIGEST_SIZE)
            if x.pins == NULL:
                raise MemoryError
            for i in range(len(pins)):
                pin = pins[i]
                if len(pin) != DIGEST_SIZE:
                    raise ValueError(f"a pin has {DIGEST_SIZE} bytes")
                memcpy(x.pins + i * DIGEST_SIZE, <const char*>pin, DIGEST_SIZE)
            x.n_pins = <uint32_t>len(pins)

    def __dealloc__(self):
        if self.x != NULL:
            context_release(&self.x.security)

    def staple(self, bytes digest not None, bytes response not None, int64_t until):
        """Has the certificate with this SHA-256, if it is among them, shown with this OCSP response, and only until then (ns
        since the epoch)."""
        if len(digest) != DIGEST_SIZE:
            raise ValueError(f"a digest has {DIGEST_SIZE} bytes")
        if not 0 < len(response) <= PIECE_MAX:
            raise ValueError("the response has no fitting size")
        staple_put(self.x, <const uint8_t*>PyBytes_AS_STRING(digest), <const uint8_t*>PyBytes_AS_STRING(response),
                   <int>len(response), until)

    def security(self):
        """For DataPlane.secure, as long as this is held."""
        return PyCapsule_New(&self.x.security, b"jsserver.Security", NULL)
