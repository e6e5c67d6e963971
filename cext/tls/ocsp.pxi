# OCSP (RFC 6960): what a responder is asked about a certificate, what its answer says, and the answer that handshakes carry.

class OcspError(ValueError):
    """An answer that cannot be believed, or is none; the text says why."""


# ---- stapled to handshakes

cdef bint staple_ended(Context* x, uint32_t i) noexcept nogil:
    # Whether a certificate has an answer that is no longer valid.
    cdef timespec ts
    cdef bint ended
    clock_gettime(CLOCK_REALTIME, &ts)
    pthread_mutex_lock(&x.stapling)
    ended = x.staples[i].data != NULL and x.staples[i].until < <int64_t>ts.tv_sec * 1000000000 + ts.tv_nsec
    pthread_mutex_unlock(&x.stapling)
    return ended


cdef int staple_status(SSL* ssl, void* arg) noexcept nogil:
    # The client asks for it.
    cdef Link* t = <Link*>SSL_get_app_data(ssl)
    cdef Context* x = t.context
    cdef Staple* s = &x.staples[t.certificate]
    cdef uint8_t* copy = NULL
    cdef int n = 0
    pthread_mutex_lock(&x.stapling)
    if s.data != NULL:
        n = s.n
        copy = <uint8_t*>OPENSSL_malloc(n)
        if copy != NULL:
            memcpy(copy, s.data, n)
    pthread_mutex_unlock(&x.stapling)
    if copy == NULL:
        return SSL_TLSEXT_ERR_NOACK
    if SSL_set_tlsext_status_ocsp_resp(ssl, copy, n) != 1:
        OPENSSL_free(copy)
        return SSL_TLSEXT_ERR_NOACK
    return SSL_TLSEXT_ERR_OK


cdef int staple_put(Context* x, const uint8_t* digest, const uint8_t* p, int n, int64_t until) except -1:
    # Has the certificates with this SHA-256 carry p[0:n].
    cdef uint8_t own[64]
    cdef uint8_t* copy
    cdef uint8_t* before
    cdef uint32_t i
    for i in range(x.n_certificates):
        if X509_digest(SSL_CTX_get0_certificate(x.certificates[i]), EVP_sha256(), own, NULL) != 1:
            raise MemoryError
        if memcmp(own, digest, DIGEST_SIZE) != 0:
            continue
        copy = <uint8_t*>malloc(n)
        if copy == NULL:
            raise MemoryError
        memcpy(copy, p, n)
        pthread_mutex_lock(&x.stapling)
        before = x.staples[i].data
        x.staples[i].data = copy
        x.staples[i].n = n
        x.staples[i].until = until
        pthread_mutex_unlock(&x.stapling)
        free(before)
    return 0


# ---- asked of responders

cdef X509* read_certificate(bytes der) except NULL:
    cdef const unsigned char* p = <const unsigned char*>PyBytes_AS_STRING(der)
    cdef X509* cert = d2i_X509(NULL, &p, <long>len(der))
    if cert == NULL:
        ERR_clear_error()
        raise OcspError("the certificate cannot be read")
    return cert


cdef bytes certificate_der(X509* cert):
    cdef unsigned char* der = NULL
    cdef int n = i2d_X509(cert, &der)
    if n <= 0:
        raise MemoryError
    try:
        return der[:n]
    finally:
        OPENSSL_free(der)


def ocsp_request(bytes certificate not None, bytes issuer not None):
    """What a responder is to be asked about a certificate; all are in DER. OcspError where one cannot be read."""
    cdef X509* cert = read_certificate(certificate)
    cdef X509* authority = NULL
    cdef OCSP_REQUEST* request = NULL
    cdef OCSP_CERTID* about
    cdef unsigned char* der = NULL
    cdef int n
    try:
        authority = read_certificate(issuer)
        request = OCSP_REQUEST_new()
        about = OCSP_cert_to_id(EVP_sha1(), cert, authority)
        if request == NULL or about == NULL or OCSP_request_add0_id(request, about) == NULL:
            OCSP_CERTID_free(about)
            raise MemoryError
        n = i2d_OCSP_REQUEST(request, &der)
        if n <= 0:
            raise MemoryError
        text = der[:n]
        OPENSSL_free(der)
        return text
    finally:
        OCSP_REQUEST_free(request)
        X509_free(authority)
        X509_free(cert)


cdef OCSP_SINGLERESP* ocsp_about(OCSP_BASICRESP* basic, X509* cert, X509* issuer) except? NULL:
    # The part of an answer that is about a certificate; NULL: there is none.
    cdef OCSP_SINGLERESP* single
    cdef OCSP_CERTID* found
    cdef OCSP_CERTID* wanted
    cdef ASN1_OBJECT* hash = NULL
    cdef const EVP_MD* digest
    cdef bint same
    cdef int i
    for i in range(OCSP_resp_count(basic)):
        single = OCSP_resp_get0(basic, i)
        found = <OCSP_CERTID*>OCSP_SINGLERESP_get0_id(single)
        OCSP_id_get0_info(NULL, &hash, NULL, NULL, found)
        digest = EVP_get_digestbyobj(hash)      # the responder's choice
        if digest == NULL:
            continue
        wanted = OCSP_cert_to_id(digest, cert, issuer)
        if wanted == NULL:
            raise MemoryError
        same = OCSP_id_cmp(wanted, found) == 0
        OCSP_CERTID_free(wanted)
        if same:
            return single
    return NULL


cdef int ocsp_believe(OCSP_BASICRESP* basic, X509* issuer) except -1:
    # It is signed by the issuer, or by whom the issuer lets answer for it.
    cdef X509_STORE* store = X509_STORE_new()
    cdef X509_stack known = sk_X509_new_null()
    try:
        if store == NULL or known == NULL or sk_X509_push(known, issuer) <= 0 or X509_STORE_add_cert(store, issuer) != 1:
            raise MemoryError
        X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN)
        if OCSP_basic_verify(basic, known, store, OCSP_TRUSTOTHER) <= 0:
            raise OcspError(f"bad OCSP signature: {last_reason()}")
    finally:
        ERR_clear_error()
        sk_X509_free(known)
        X509_STORE_free(store)
    return 0


def ocsp_answer(bytes response not None, bytes certificate not None, bytes issuer not None):
    """What an answer says of a certificate: 0 (good), 1 (revoked) or 2 (unknown), and from when to when it holds, as ASN.1 has
    times (without an end: b""). All are in DER. OcspError where nobody can say so who may."""
    cdef const unsigned char* p = <const unsigned char*>PyBytes_AS_STRING(response)
    cdef const unsigned char* end = p + len(response)
    cdef X509* cert = read_certificate(certificate)
    cdef X509* authority = NULL
    cdef OCSP_RESPONSE* whole = NULL
    cdef OCSP_BASICRESP* basic = NULL
    cdef OCSP_SINGLERESP* single
    cdef ASN1_GENERALIZEDTIME* begins = NULL
    cdef ASN1_GENERALIZEDTIME* ends = NULL
    cdef int status
    try:
        authority = read_certificate(issuer)
        ERR_clear_error()
        whole = d2i_OCSP_RESPONSE(NULL, &p, <long>len(response))
        if whole == NULL or p != end:
            raise OcspError("the answer is no OCSP response")
        status = OCSP_response_status(whole)
        if status != OCSP_RESPONSE_STATUS_SUCCESSFUL:
            raise OcspError("the responder says " + (<bytes>OCSP_response_status_str(status)).decode("ascii"))
        basic = OCSP_response_get1_basic(whole)
        if basic == NULL:
            raise OcspError("the answer is of an unknown type")
        ocsp_believe(basic, authority)
        single = ocsp_about(basic, cert, authority)
        if single == NULL:
            raise OcspError("the answer is about another certificate")
        if OCSP_SINGLERESP_get_ext_by_critical(single, 1, -1) >= 0:
            raise OcspError("the answer has a critical extension that is not known")
        status = OCSP_single_get0_status(single, NULL, NULL, &begins, &ends)
        if status < 0 or begins == NULL:
            raise OcspError("the answer has no status")
        return status, generalized(begins), generalized(ends) if ends != NULL else b""
    finally:
        ERR_clear_error()
        OCSP_BASICRESP_free(basic)
        OCSP_RESPONSE_free(whole)
        X509_free(authority)
        X509_free(cert)


cdef bytes generalized(const ASN1_GENERALIZEDTIME* t):
    cdef const ASN1_STRING* text = <const ASN1_STRING*>t
    return (<const char*>ASN1_STRING_get0_data(text))[:ASN1_STRING_length(text)]


cdef X509_stack read_chain(bytes text) except NULL:
    # The certificates of a file in PEM.
    cdef X509_stack found = sk_X509_new_null()
    cdef BIO* b
    cdef X509* cert
    if found == NULL:
        raise MemoryError
    try:
        b = read_piece(text)
        while True:
            cert = PEM_read_bio_X509(b, NULL, no_password, NULL)
            if cert == NULL:
                break
            if sk_X509_push(found, cert) <= 0:
                X509_free(cert)
                break
        BIO_free(b)
        ERR_clear_error()
        if sk_X509_num(found) == 0:
            raise OcspError("the file has no certificate")
    except BaseException:
        sk_X509_pop_free(found, X509_free)
        raise
    return found


cdef X509* signer_among(X509* leaf, bytes authorities) except? NULL:
    # The signer of a certificate, of those that are trusted (PEM; empty: the system's), held for the caller; NULL: nobody.
    cdef X509_STORE* store = X509_STORE_new()
    cdef X509_STORE_CTX* search = X509_STORE_CTX_new()
    cdef X509_stack trusted = NULL
    cdef X509* issuer = NULL
    cdef int i
    try:
        if store == NULL or search == NULL:
            raise MemoryError
        if authorities:
            trusted = read_chain(authorities)
            for i in range(sk_X509_num(trusted)):
                X509_STORE_add_cert(store, sk_X509_value(trusted, i))
        elif X509_STORE_set_default_paths(store) != 1:
            raise OcspError("the system's certificate authorities cannot be read")
        if X509_STORE_CTX_init(search, store, leaf, NULL) != 1:
            raise MemoryError
        if X509_STORE_CTX_get1_issuer(&issuer, search, leaf) != 1:
            return NULL
        return issuer
    finally:
        ERR_clear_error()
        X509_STORE_CTX_free(search)
        X509_STORE_free(store)
        sk_X509_pop_free(trusted, X509_free)


def with_issuer(bytes chain not None, bytes authorities not None):
    """A certificate and its issuer's, in DER, of files in PEM: the first of the chain, and the second; where there is no second,
    it is sought among the authorities (empty: the system's). OcspError where it is not there."""
    cdef X509_stack found = read_chain(chain)
    cdef X509* leaf = sk_X509_value(found, 0)
    cdef X509* issuer = NULL
    try:
        if sk_X509_num(found) > 1:
            issuer = sk_X509_value(found, 1)
            X509_up_ref(issuer)
        else:
            issuer = signer_among(leaf, authorities)
        if issuer == NULL or X509_check_issued(issuer, leaf) != X509_V_OK or X509_verify(leaf, X509_get0_pubkey(issuer)) != 1:
            raise OcspError("no issuers found")
        if X509_check_ca(issuer) < 1:
            raise OcspError("the issuer's certificate is not one of an authority")
        return certificate_der(leaf), certificate_der(issuer)
    finally:
        ERR_clear_error()
        X509_free(issuer)
        sk_X509_pop_free(found, X509_free)
