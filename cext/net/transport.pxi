# The plain transport: a socket as it is.

cdef enum:
    SCRAP_READS = 64        # of unread input, before a close
    GATHER_MAX = 4096       # bytes that a piece of their own costs less than to copy


cdef inline size_t transport_slack(const Conn* c, const Transport* t) noexcept nogil:
    return t.slack(c) if t.slack != NULL else 0


cdef size_t gather(const iovec* iov, int n, int* i, size_t* at, size_t most, uint8_t* to,
                   const uint8_t** piece) noexcept nogil:
    # The next `most` bytes of what is to be written, or fewer: a large part as it lies, others copied together to `to`. How many
    # they are.
    cdef size_t size = 0, part
    cdef bint whole = False
    piece[0] = to
    while i[0] < n and size < most and not whole:
        part = min(iov[i[0]].iov_len - at[0], most - size)
        whole = size == 0 and part >= GATHER_MAX
        if whole:
            piece[0] = <const uint8_t*>iov[i[0]].iov_base + at[0]
        else:
            memcpy(to + size, <const uint8_t*>iov[i[0]].iov_base + at[0], part)
        size += part
        at[0] += part
        if at[0] == iov[i[0]].iov_len:
            i[0] += 1
            at[0] = 0
    return size


cdef int plain_establish(Conn* c) noexcept nogil:
    cdef int error = 0
    cdef socklen_t n = sizeof(error)
    if getsockopt(c.fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0:
        return -errno
    return -error


cdef ssize_t plain_read(Conn* c, void* p, size_t n) noexcept nogil:
    cdef ssize_t got = recv(c.fd, p, n, 0)
    return got if got >= 0 else -errno


cdef ssize_t plain_write(Conn* c, const iovec* iov, int n) noexcept nogil:
    cdef ssize_t sent
    while True:
        sent = writev(c.fd, iov, n) if n > 1 else send(c.fd, iov[0].iov_base, iov[0].iov_len, MSG_NOSIGNAL)
        if sent >= 0:
            return sent
        if errno != EINTR:
            return -errno


cdef int plain_want(Conn* c, bint read, bint write) noexcept nogil:
    cdef epoll_event ev
    ev.events = (EPOLLIN if read else 0) | (EPOLLOUT if write else 0)
    ev.data.ptr = &c.head
    if epoll_ctl(c.reactor.epoll, EPOLL_CTL_MOD if c.wants.polled else EPOLL_CTL_ADD, c.fd, &ev) != 0:
        return -errno
    c.wants.polled = True
    return 0


cdef void plain_shutdown(Conn* c) noexcept nogil:
    # Unread input would turn the close into a reset, and the peer would lose our last words.
    cdef uint8_t scrap[4096]
    cdef int i
    shutdown(c.fd, SHUT_WR)
    for i in range(SCRAP_READS):
        if recv(c.fd, scrap, sizeof(scrap), MSG_DONTWAIT) <= 0:
            break
    close(c.fd)
    c.fd = -1


cdef Transport plain_transport

plain_transport.establish = plain_establish
plain_transport.read = plain_read
plain_transport.write = plain_write
plain_transport.want = plain_want
plain_transport.shutdown = plain_shutdown
