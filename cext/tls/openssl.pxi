# What we use of OpenSSL 3.

cdef extern from "<openssl/ssl.h>" nogil:
    ctypedef struct SSL_METHOD
    ctypedef struct SSL_CIPHER
    ctypedef struct X509
    ctypedef struct X509_STORE
    ctypedef struct X509_STORE_CTX
    ctypedef struct X509_PUBKEY
    ctypedef struct EVP_PKEY
    ctypedef struct EVP_MD
    ctypedef struct BIO
    ctypedef struct BIO_METHOD
    ctypedef struct OPENSSL_STACK
    ctypedef OPENSSL_STACK* X509_stack "STACK_OF(X509) *"
    ctypedef struct X509_VERIFY_PARAM
    const SSL_METHOD* TLS_method()
    SSL_CTX* SSL_CTX_new(const SSL_METHOD* m)
    void SSL_CTX_free(SSL_CTX* x)
    uint64_t SSL_CTX_set_options(SSL_CTX* x, uint64_t options)
    int SSL_free_buffers(SSL* s)
    int SSL_CTX_set_min_proto_version(SSL_CTX* x, int version)
    void SSL_CTX_set_security_level(SSL_CTX* x, int level)
    long SSL_CTX_set_session_cache_mode(SSL_CTX* x, long mode)
    int SSL_CTX_set_session_id_context(SSL_CTX* x, const unsigned char* id, unsigned int n)
    int SSL_CTX_set_num_tickets(SSL_CTX* x, size_t n)
    int SSL_CTX_set_cipher_list(SSL_CTX* x, const char* names)
    int SSL_CTX_set_ciphersuites(SSL_CTX* x, const char* names)
    int SSL_CTX_set1_groups_list(SSL_CTX* x, const char* names)
    int SSL_CTX_use_certificate(SSL_CTX* x, X509* cert)
    int SSL_CTX_add1_chain_cert(SSL_CTX* x, X509* cert)
    int SSL_CTX_use_PrivateKey(SSL_CTX* x, EVP_PKEY* key)
    X509* SSL_CTX_get0_certificate(const SSL_CTX* x)
    X509_STORE* SSL_CTX_get_cert_store(const SSL_CTX* x)
    int SSL_CTX_set_default_verify_paths(SSL_CTX* x)
    void SSL_CTX_set_verify(SSL_CTX* x, int mode, void* fn)
    int SSL_CTX_add_client_CA(SSL_CTX* x, X509* cert)
    long SSL_CTX_set_tlsext_status_cb(SSL_CTX* x, int (*fn)(SSL* s, void* arg) noexcept nogil)
    long SSL_set_tlsext_status_ocsp_resp(SSL* s, void* p, long n)
    long SSL_CTX_set_tlsext_servername_callback(SSL_CTX* x, int (*fn)(SSL* s, int* alert, void* arg) noexcept nogil)
    void SSL_CTX_set_msg_callback(SSL_CTX* x, void (*fn)(int out, int version, int kind, const void* p, size_t n, SSL* s,
                                                         void* arg) noexcept nogil)
    SSL* SSL_new(SSL_CTX* x)
    void SSL_free(SSL* s)
    SSL_CTX* SSL_set_SSL_CTX(SSL* s, SSL_CTX* x)
    int SSL_set_app_data(SSL* s, void* p)
    void* SSL_get_app_data(const SSL* s)
    void SSL_set_bio(SSL* s, BIO* r, BIO* w)
    void SSL_set_accept_state(SSL* s)
    void SSL_set_connect_state(SSL* s)
    int SSL_is_server(const SSL* s)
    int SSL_set1_host(SSL* s, const char* name)
    long SSL_set_tlsext_host_name(SSL* s, const char* name)
    X509_VERIFY_PARAM* SSL_get0_param(SSL* s)
    int X509_VERIFY_PARAM_set1_ip_asc(X509_VERIFY_PARAM* p, const char* address)
    void SSL_set_verify(SSL* s, int mode, void* fn)
    int SSL_do_handshake(SSL* s)
    int SSL_read(SSL* s, void* p, int n)
    int SSL_write(SSL* s, const void* p, int n)
    int SSL_shutdown(SSL* s)
    int SSL_pending(const SSL* s)
    int SSL_is_init_finished(const SSL* s)
    int SSL_get_error(const SSL* s, int rc)
    long SSL_get_verify_result(const SSL* s)
    const char* SSL_get_version(const SSL* s)
    const char* SSL_get_servername(const SSL* s, int kind)
    const SSL_CIPHER* SSL_get_current_cipher(const SSL* s)
    const char* SSL_CIPHER_standard_name(const SSL_CIPHER* c)
    X509* SSL_get0_peer_certificate(const SSL* s)
    X509_stack SSL_get_peer_cert_chain(const SSL* s)
    X509_stack SSL_get0_verified_chain(const SSL* s)
    X509_stack sk_X509_new_null()
    int sk_X509_push(X509_stack k, X509* x)
    void sk_X509_free(X509_stack k)
    void sk_X509_pop_free(X509_stack k, void (*fn)(X509* x) noexcept nogil)
    int sk_X509_num(X509_stack k)
    X509* sk_X509_value(X509_stack k, int i)
    uint64_t SSL_OP_NO_RENEGOTIATION, SSL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_NO_COMPRESSION, SSL_OP_PRIORITIZE_CHACHA
    uint64_t SSL_OP_IGNORE_UNEXPECTED_EOF, SSL_OP_NO_TICKET
    long SSL_SESS_CACHE_OFF
    int SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    int SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN
    int SSL_TLSEXT_ERR_OK, SSL_TLSEXT_ERR_NOACK, SSL_TLSEXT_ERR_ALERT_FATAL, SSL_AD_INTERNAL_ERROR, TLSEXT_NAMETYPE_host_name
    int SSL3_RT_HANDSHAKE, SSL3_MT_KEY_UPDATE
    int SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, SSL_R_NO_SHARED_CIPHER, SSL_R_UNSUPPORTED_PROTOCOL
    int SSL_R_CERTIFICATE_VERIFY_FAILED

cdef extern from "<openssl/bio.h>" nogil:
    BIO* BIO_new(const BIO_METHOD* m)
    BIO* BIO_new_mem_buf(const void* p, int n)
    int BIO_free(BIO* b)
    void BIO_set_data(BIO* b, void* p)
    void* BIO_get_data(BIO* b)
    void BIO_set_init(BIO* b, int on)
    void BIO_set_retry_read(BIO* b)
    void BIO_clear_retry_flags(BIO* b)
    int BIO_get_new_index()
    BIO_METHOD* BIO_meth_new(int kind, const char* name)
    int BIO_meth_set_read(BIO_METHOD* m, int (*fn)(BIO* b, char* p, int n) noexcept nogil)
    int BIO_meth_set_write(BIO_METHOD* m, int (*fn)(BIO* b, const char* p, int n) noexcept nogil)
    int BIO_meth_set_ctrl(BIO_METHOD* m, long (*fn)(BIO* b, int what, long n, void* p) noexcept nogil)
    int BIO_CTRL_FLUSH, BIO_TYPE_SOURCE_SINK

cdef extern from "<openssl/pem.h>" nogil:
    X509* PEM_read_bio_X509(BIO* b, X509** x, int (*ask)(char* p, int n, int rw, void* arg) noexcept nogil, void* arg)
    EVP_PKEY* PEM_read_bio_PrivateKey(BIO* b, EVP_PKEY** x, int (*ask)(char* p, int n, int rw, void* arg) noexcept nogil,
                                      void* arg)

cdef extern from "<openssl/x509.h>" nogil:
    void X509_free(X509* x)
    int X509_up_ref(X509* x)
    X509* d2i_X509(X509** x, const unsigned char** p, long n)
    int X509_digest(const X509* x, const EVP_MD* m, unsigned char* out, unsigned int* n_out)
    EVP_PKEY* X509_get0_pubkey(const X509* x)
    int X509_verify(X509* x, EVP_PKEY* key)
    int i2d_X509(X509* x, unsigned char** out)
    X509_PUBKEY* X509_get_X509_PUBKEY(const X509* x)
    int i2d_X509_PUBKEY(X509_PUBKEY* k, unsigned char** out)
    int X509_check_private_key(const X509* x, const EVP_PKEY* key)
    X509_STORE* X509_STORE_new()
    void X509_STORE_free(X509_STORE* s)
    int X509_STORE_add_cert(X509_STORE* s, X509* x)
    int X509_STORE_set_default_paths(X509_STORE* s)
    X509_STORE_CTX* X509_STORE_CTX_new()
    void X509_STORE_CTX_free(X509_STORE_CTX* x)
    int X509_STORE_CTX_init(X509_STORE_CTX* x, X509_STORE* s, X509* leaf, X509_stack others)
    int X509_STORE_CTX_get1_issuer(X509** issuer, X509_STORE_CTX* x, X509* leaf)
    int X509_STORE_set_flags(X509_STORE* s, unsigned long flags)
    const char* X509_verify_cert_error_string(long n)
    unsigned long X509_V_FLAG_PARTIAL_CHAIN
    int X509_V_OK

cdef extern from "<openssl/x509v3.h>" nogil:
    int X509_check_host(X509* x, const char* name, size_t n, unsigned int flags, char** peer)

    int X509_check_issued(X509* issuer, X509* subject)
    int X509_check_ca(X509* x)

cdef extern from "<openssl/asn1.h>" nogil:
    ctypedef struct ASN1_OBJECT
    ctypedef struct ASN1_STRING
    ctypedef struct ASN1_GENERALIZEDTIME
    const unsigned char* ASN1_STRING_get0_data(const ASN1_STRING* s)
    int ASN1_STRING_length(const ASN1_STRING* s)

cdef extern from "<openssl/ocsp.h>" nogil:
    ctypedef struct OCSP_CERTID
    ctypedef struct OCSP_ONEREQ
    ctypedef struct OCSP_REQUEST
    ctypedef struct OCSP_RESPONSE
    ctypedef struct OCSP_BASICRESP
    ctypedef struct OCSP_SINGLERESP
    OCSP_CERTID* OCSP_cert_to_id(const EVP_MD* m, const X509* subject, const X509* issuer)
    void OCSP_CERTID_free(OCSP_CERTID* id)
    int OCSP_id_cmp(const OCSP_CERTID* a, const OCSP_CERTID* b)
    int OCSP_id_get0_info(ASN1_STRING** name, ASN1_OBJECT** hash, ASN1_STRING** key, ASN1_STRING** serial, OCSP_CERTID* id)
    OCSP_REQUEST* OCSP_REQUEST_new()
    void OCSP_REQUEST_free(OCSP_REQUEST* r)
    OCSP_ONEREQ* OCSP_request_add0_id(OCSP_REQUEST* r, OCSP_CERTID* id)
    int i2d_OCSP_REQUEST(const OCSP_REQUEST* r, unsigned char** out)
    OCSP_RESPONSE* d2i_OCSP_RESPONSE(OCSP_RESPONSE** r, const unsigned char** p, long n)
    void OCSP_RESPONSE_free(OCSP_RESPONSE* r)
    int OCSP_response_status(OCSP_RESPONSE* r)
    const char* OCSP_response_status_str(long status)
    OCSP_BASICRESP* OCSP_response_get1_basic(OCSP_RESPONSE* r)
    void OCSP_BASICRESP_free(OCSP_BASICRESP* r)
    int OCSP_basic_verify(OCSP_BASICRESP* r, X509_stack known, X509_STORE* s, unsigned long flags)
    int OCSP_resp_count(OCSP_BASICRESP* r)
    OCSP_SINGLERESP* OCSP_resp_get0(OCSP_BASICRESP* r, int i)
    const OCSP_CERTID* OCSP_SINGLERESP_get0_id(const OCSP_SINGLERESP* s)
    int OCSP_SINGLERESP_get_ext_by_critical(OCSP_SINGLERESP* s, int critical, int last)
    int OCSP_single_get0_status(OCSP_SINGLERESP* s, int* reason, ASN1_GENERALIZEDTIME** revoked, ASN1_GENERALIZEDTIME** begins,
                                ASN1_GENERALIZEDTIME** ends)
    int OCSP_RESPONSE_STATUS_SUCCESSFUL
    unsigned long OCSP_TRUSTOTHER

cdef extern from "<openssl/evp.h>" nogil:
    const EVP_MD* EVP_sha1()
    const EVP_MD* EVP_get_digestbyobj(const ASN1_OBJECT* o)
    void EVP_PKEY_free(EVP_PKEY* k)
    const EVP_MD* EVP_sha256()
    int EVP_Digest(const void* p, size_t n, unsigned char* out, unsigned int* n_out, const EVP_MD* m, void* engine)

cdef extern from "<openssl/crypto.h>" nogil:
    void* OPENSSL_malloc(size_t n)
    void OPENSSL_free(void* p)
    int CRYPTO_memcmp(const void* a, const void* b, size_t n)

cdef extern from "<openssl/err.h>" nogil:
    void ERR_clear_error()
    unsigned long ERR_peek_last_error()
    unsigned long ERR_peek_error()
    const char* ERR_reason_error_string(unsigned long e)
    int ERR_GET_REASON(unsigned long e)

cdef extern from *:
    """
    #define atomic_add(p, n) __atomic_add_fetch((p), (n), __ATOMIC_ACQ_REL)
    #define atomic_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define atomic_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    static inline int atomic_swap_if(int64_t *p, int64_t was, int64_t is)
    {
        return __atomic_compare_exchange_n(p, &was, is, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    """
    int atomic_add_int "atomic_add" (int* p, int n) noexcept nogil
    int64_t atomic_add_long "atomic_add" (int64_t* p, int64_t n) noexcept nogil
    int64_t atomic_load(int64_t* p) noexcept nogil
    void atomic_store(int64_t* p, int64_t v) noexcept nogil
    bint atomic_swap_if(int64_t* p, int64_t was, int64_t now) noexcept nogil
