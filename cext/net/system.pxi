# The system calls and libraries that reactors and transports use.

cdef extern from "<sys/types.h>" nogil:
    pass

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    cdef struct sockaddr:
        unsigned short sa_family
    cdef struct sockaddr_storage:
        unsigned short ss_family
    int AF_INET, AF_INET6, SOL_SOCKET, SO_ERROR, SO_RCVLOWAT, SO_SNDBUF, SOCK_NONBLOCK, SOCK_CLOEXEC
    int MSG_NOSIGNAL, MSG_DONTWAIT, MSG_PEEK, SHUT_RD, SHUT_WR
    int accept4(int fd, sockaddr* addr, socklen_t* n, int flags)
    int getsockopt(int fd, int level, int name, void* value, socklen_t* n)
    int setsockopt(int fd, int level, int name, const void* value, socklen_t n)
    ssize_t recv(int fd, void* p, size_t n, int flags)
    ssize_t send(int fd, const void* p, size_t n, int flags)
    int shutdown(int fd, int how)

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP
    cdef struct in_addr:
        uint32_t s_addr
    cdef struct in6_addr:
        uint8_t s6_addr[16]
    cdef struct sockaddr_in:
        uint16_t sin_port
        in_addr sin_addr
    cdef struct sockaddr_in6:
        uint16_t sin6_port
        in6_addr sin6_addr
    uint16_t ntohs(uint16_t v)
    uint16_t htons(uint16_t v)

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* addr, char* out, socklen_t n)
    int inet_pton(int family, const char* text, void* addr)

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t writev(int fd, const iovec* iov, int n)

cdef extern from "<sys/epoll.h>" nogil:
    cdef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR, EPOLLET, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CLOEXEC
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* ev)
    int epoll_wait(int epfd, epoll_event* ev, int max, int ms)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_NONBLOCK, EFD_CLOEXEC
    int eventfd(unsigned int value, int flags)

cdef extern from "<zlib.h>" nogil:
    ctypedef struct z_stream:
        uint8_t* next_in
        uint8_t* next_out
        unsigned int avail_in, avail_out
    int Z_OK, Z_STREAM_END, Z_BUF_ERROR, Z_NO_FLUSH
    int inflateInit2(z_stream* z, int bits)
    int inflateReset(z_stream* z)
    int inflate(z_stream* z, int flush)
    int inflateEnd(z_stream* z)

cdef extern from "<isa-l/igzip_lib.h>" nogil:
    cdef struct isal_zstream:
        uint8_t* next_in
        uint8_t* next_out
        uint8_t* level_buf
        uint32_t avail_in, avail_out, level, level_buf_size
        uint16_t end_of_stream, flush, gzip_flag
    int COMP_OK, NO_FLUSH, SYNC_FLUSH, IGZIP_DEFLATE, ISAL_DEF_LVL1_SMALL
    void isal_deflate_init(isal_zstream* z)
    void isal_deflate_reset(isal_zstream* z)
    int isal_deflate(isal_zstream* z)
