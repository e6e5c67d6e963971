# Where connections come from.

cdef void set_address(Conn* c, const sockaddr_storage* addr) noexcept nogil:
    cdef sockaddr_in* v4
    cdef sockaddr_in6* v6
    cdef uint8_t* bytes6
    c.address[0] = 0
    if addr.ss_family == AF_INET:
        v4 = <sockaddr_in*>addr
        inet_ntop(AF_INET, &v4.sin_addr, c.address, ADDRESS_MAX)
        c.port = ntohs(v4.sin_port)
    elif addr.ss_family == AF_INET6:
        v6 = <sockaddr_in6*>addr
        bytes6 = <uint8_t*>&v6.sin6_addr
        # A dual-stack listener sees IPv4 peers as ::ffff:a.b.c.d; they are shown as they are.
        if memcmp(bytes6, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
            inet_ntop(AF_INET, bytes6 + 12, c.address, ADDRESS_MAX)
        else:
            inet_ntop(AF_INET6, bytes6, c.address, ADDRESS_MAX)
        c.port = ntohs(v6.sin6_port)
    c.n_address = <uint32_t>strlen(c.address)


cdef bint is_from_here(const Conn* c) noexcept nogil:
    return memcmp(c.address, b"127.", 4) == 0 or span_eq(c.base.address, span_c(b"::1"))
