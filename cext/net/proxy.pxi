# PROXY headers, versions 1 and 2 (haproxy.org, proxy-protocol.txt): whom a proxy connects for, before anything else. They are
# only looked at until they are whole: what comes behind is the next transport's to read.

cdef extern from "<poll.h>" nogil:
    ctypedef unsigned long nfds_t
    cdef struct pollfd:
        int fd
        short events
        short revents
    short POLLRDHUP
    int poll(pollfd* fds, nfds_t n, int ms)

cdef extern from "<string.h>" nogil:
    void* memmem(const void* p, size_t n, const void* what, size_t k)

cdef enum:
    PROXY_LINE_MAX = 107    # of version 1, with CRLF
    PROXY_FIELDS = 5
    PROXY_FIELDS_SEEN = 6   # one more is too many


cdef int proxy_fault(Conn* c, const char* words) noexcept nogil:
    c.secured.n = 0
    bytes_add(&c.secured, words, strlen(words))
    return -EPROTO


cdef int proxy_more(Conn* c, int n) noexcept nogil:
    # Waits until n bytes have come, which are not taken before.
    cdef pollfd p
    p.fd = c.fd
    p.events = POLLRDHUP
    p.revents = 0
    if poll(&p, 1, 0) > 0 and p.revents & POLLRDHUP:
        return proxy_fault(c, b"failed to read protocol version: unexpected EOF")
    setsockopt(c.fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n))
    return -EAGAIN


cdef int proxy_skip(Conn* c) noexcept nogil:
    cdef uint8_t scrap[4096]
    cdef ssize_t got
    while c.coming.to_skip:
        got = recv(c.fd, scrap, min(sizeof(scrap), c.coming.to_skip), 0)
        if got == 0:
            return proxy_fault(c, b"failed to read address data: unexpected EOF")
        if got < 0:
            return -EAGAIN if errno == EAGAIN or errno == EINTR else proxy_fault(c, b"failed to read address data")
        c.coming.to_skip -= <uint32_t>got
    return 0


cdef int proxy_take(Conn* c, size_t n, size_t more) noexcept nogil:
    # The header ends behind n bytes that were looked at, and `more` that were not.
    cdef uint8_t scrap[PROXY_LINE_MAX]
    cdef int one = 1
    setsockopt(c.fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one))
    if recv(c.fd, scrap, n, 0) != <ssize_t>n:
        return proxy_fault(c, b"failed to read the header")
    c.coming.to_skip = <uint32_t>more
    return proxy_skip(c)


cdef void proxy_source(Conn* c, int family, const void* ip, uint16_t port) noexcept nogil:
    # Keeps where the connection comes from until the engine lock is held; the port as it is on the wire.
    cdef sockaddr_storage addr
    cdef sockaddr_in* v4 = <sockaddr_in*>&addr
    cdef sockaddr_in6* v6 = <sockaddr_in6*>&addr
    memset(&addr, 0, sizeof(addr))
    addr.ss_family = <unsigned short>family
    if family == AF_INET:
        memcpy(&v4.sin_addr, ip, 4)
        v4.sin_port = port
    else:
        memcpy(&v6.sin6_addr, ip, 16)
        v6.sin6_port = port
    c.secured.n = 0
    bytes_add(&c.secured, &addr, sizeof(addr))


# ---- version 1: a line

cdef inline bint proxy_blank(uint8_t ch) noexcept nogil:
    return ch == c' ' or c'\t' <= ch <= c'\r'


cdef int proxy_port(const char* text) noexcept nogil:
    # A port, or -1.
    cdef int v = 0
    cdef size_t i = 0
    while text[i]:
        if not c'0' <= text[i] <= c'9':
            return -1
        v = v * 10 + (text[i] - c'0')
        if v > 65535:
            return -1
        i += 1
    return v if i else -1


cdef int proxy_ip(const char* text, uint8_t* ip) noexcept nogil:
    # The family of an address; 0: it is none.
    if strchr(text, c':') != NULL:
        return AF_INET6 if inet_pton(AF_INET6, text, ip) == 1 else 0
    return AF_INET if inet_pton(AF_INET, text, ip) == 1 else 0


cdef int proxy_line(Conn* c, char* line, size_t n) noexcept nogil:
    # line[0:n] stands between "PROXY " and CRLF; it is cut into words.
    cdef char* words[PROXY_FIELDS_SEEN]
    cdef uint8_t source[16]
    cdef uint8_t target[16]
    cdef size_t i
    cdef int count = 0, source_family, target_family, port
    cdef bint within = False
    for i in range(n):
        if proxy_blank(line[i]):
            line[i] = 0
            within = False
        elif not within:
            within = True
            if count < PROXY_FIELDS_SEEN:
                words[count] = line + i
                count += 1
    line[n] = 0
    if count == 0:
        return proxy_fault(c, b"invalid PROXY protocol header: invalid v1 format")
    if strcmp(words[0], b"UNKNOWN") == 0:
        return 0
    if count != PROXY_FIELDS:
        return proxy_fault(c, b"invalid PROXY protocol header: invalid v1 format")
    source_family = proxy_ip(words[1], source)
    target_family = proxy_ip(words[2], target)
    if source_family == 0 or target_family == 0:
        return proxy_fault(c, b"invalid PROXY protocol header: invalid address")
    port = proxy_port(words[3])
    if port < 0:
        return proxy_fault(c, b"invalid source port")
    if proxy_port(words[4]) < 0:
        return proxy_fault(c, b"invalid dest port")
    if strcmp(words[0], b"TCP4") == 0:
        if source_family != AF_INET or target_family != AF_INET:
            return proxy_fault(c, b"invalid PROXY protocol header: TCP4 with IPv6 address")
    elif strcmp(words[0], b"TCP6") == 0:
        if source_family != AF_INET6 or target_family != AF_INET6:
            return proxy_fault(c, b"invalid PROXY protocol header: TCP6 with IPv4 address")
    else:
        return proxy_fault(c, b"invalid PROXY protocol header: invalid protocol")
    proxy_source(c, source_family, source, htons(<uint16_t>port))
    return 0


cdef int proxy_v1(Conn* c, uint8_t* head, size_t n) noexcept nogil:
    cdef const uint8_t* end = <const uint8_t*>memmem(head, n, b"\r\n", 2)
    cdef size_t size
    cdef int rc
    if end == NULL:
        if n >= PROXY_LINE_MAX:
            return proxy_fault(c, b"invalid PROXY protocol header: v1 line too long")
        return proxy_more(c, <int>n + 1)
    size = end - head
    rc = proxy_line(c, <char*>head + 6, size - 6)
    return rc if rc != 0 else proxy_take(c, size + 2, 0)


# ---- version 2: numbers

cdef const char* PROXY_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


cdef int proxy_v2(Conn* c, const uint8_t* head, size_t n) noexcept nogil:
    cdef char text[96]
    cdef size_t size
    cdef int family
    cdef uint16_t port
    if n < 16:
        return proxy_more(c, 16)
    if memcmp(head, PROXY_SIGNATURE, 12) != 0:
        return proxy_fault(c, b"invalid PROXY protocol header: invalid signature")
    if head[12] & 0xF0 != 0x20:
        snprintf(text, sizeof(text), b"invalid PROXY protocol header: invalid version 0x%02x", <int>head[12] & 0xF0)
        return proxy_fault(c, text)
    size = <size_t>head[14] << 8 | head[15]
    if head[12] & 0x0F == 0:            # LOCAL: the proxy's own, to see whether we are there
        return proxy_take(c, 16, size)
    if head[12] & 0x0F != 1:
        snprintf(text, sizeof(text), b"unknown PROXY protocol command: 0x%02x", <int>head[12] & 0x0F)
        return proxy_fault(c, text)
    if head[13] & 0x0F != 1:
        return proxy_fault(c, b"unsupported PROXY protocol feature: only STREAM protocol supported")
    family = head[13] & 0xF0
    if family == 0:
        return proxy_take(c, 16, size)
    if family == 0x10:
        if size < 12:
            snprintf(text, sizeof(text), b"IPv4 address data too short: %d bytes", <int>size)
            return proxy_fault(c, text)
        if n < 28:
            return proxy_more(c, 28)
        memcpy(&port, head + 24, 2)
        proxy_source(c, AF_INET, head + 16, port)
        return proxy_take(c, 28, size - 12)
    if family == 0x20:
        if size < 36:
            snprintf(text, sizeof(text), b"IPv6 address data too short: %d bytes", <int>size)
            return proxy_fault(c, text)
        if n < 52:
            return proxy_more(c, 52)
        memcpy(&port, head + 48, 2)
        proxy_source(c, AF_INET6, head + 16, port)
        return proxy_take(c, 52, size - 36)
    snprintf(text, sizeof(text), b"unsupported PROXY protocol feature: unsupported address family 0x%02x", family)
    return proxy_fault(c, text)


# ---- the transport until the header has come

cdef int proxy_establish(Conn* c) noexcept nogil:
    # 0 where there is none, too: then the connection is what it seems to be.
    cdef uint8_t head[PROXY_LINE_MAX + 1]
    cdef ssize_t got
    cdef size_t start
    if c.coming.to_skip:
        return proxy_skip(c)
    got = recv(c.fd, head, PROXY_LINE_MAX, MSG_PEEK)
    if got == 0:
        return proxy_fault(c, b"failed to read protocol version: EOF")
    if got < 0:
        if errno == EAGAIN or errno == EINTR:
            return -EAGAIN
        return proxy_fault(c, b"failed to read protocol version: connection reset by peer")
    start = min(<size_t>got, <size_t>6)
    if memcmp(head, b"PROXY ", start) == 0:
        return proxy_v1(c, head, <size_t>got) if start == 6 else proxy_more(c, 6)
    if memcmp(head, PROXY_SIGNATURE, start) == 0:
        return proxy_v2(c, head, <size_t>got) if start == 6 else proxy_more(c, 6)
    return 0


cdef bint proxy_next(Conn* c) noexcept nogil:
    # It comes from where the header says, and goes on as any other.
    cdef sockaddr_storage addr
    if c.secured.n == sizeof(addr):
        memcpy(&addr, c.secured.data, sizeof(addr))
        set_address(c, &addr)
        c.base.address = span(c.address, c.n_address)
        c.base.port = c.port
    c.secured.n = 0
    if c.security == NULL:
        c.transport = &plain_transport
        return False
    c.transport = c.security.transport
    c.approach = HANDSHAKING
    return True


cdef int64_t proxy_patience(Conn* c) noexcept nogil:
    cdef int64_t ns = greets_after(c)
    return ns if ns else PROXY_TIMEOUT_NS


cdef void proxy_late(Conn* c) noexcept nogil:
    if greet_after_all(c):
        return
    note_span(&c.base, span_c(b"failed to read protocol version: i/o timeout"), NOTE_PROXY)
    client_close(&c.base, CLOSE_PROTOCOL_VIOLATION)


cdef void proxy_failed(Conn* c, int rc) noexcept nogil:
    note_span(&c.base, span(c.secured.data, <uint32_t>c.secured.n), NOTE_PROXY)
    client_close(&c.base, CLOSE_PROTOCOL_VIOLATION)


cdef Transport proxy_transport

proxy_transport.establish = proxy_establish
proxy_transport.write = plain_write
proxy_transport.want = plain_want
proxy_transport.shutdown = plain_shutdown
proxy_transport.patience = proxy_patience
proxy_transport.late = proxy_late
proxy_transport.failed = proxy_failed
proxy_transport.next = proxy_next
