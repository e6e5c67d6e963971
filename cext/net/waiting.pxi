# What a connection waits for.

cdef void conn_want(Conn* c, bint read, bint write) noexcept nogil:
    # Tells the transport what this connection waits for.
    if c.approach == DIALLING or (read == c.wants.reading and write == c.wants.writing):
        return
    c.wants.reading = read
    c.wants.writing = write
    c.transport.want(c, read, write)
    if read and c.input.more:
        conn_read_again(c)


cdef void conn_read_again(Conn* c) noexcept nogil:
    # Its reactor reads it again without an event.
    if not list_linked(&c.input.again):
        list_push_front(&c.reactor.again, &c.input.again)
