# Frames around the bytes of a connection: they are wrapped around it, begin, and end.

cdef int ws_wrap(Conn* c, int64_t patience) noexcept nogil:
    # Has frames follow what comes before the bytes of a connection that nobody knows yet; `patience`: ns until the request for
    # them must have come. -1: no memory.
    cdef Ws* w = <Ws*>calloc(1, sizeof(Ws))
    if w == NULL:
        return -1
    w.patience = patience
    w.answered.fn = ws_answered
    w.answered.owner = c
    c.ws = w
    return 0


cdef int ws_request(Ws* w, Span request) noexcept nogil:
    # This server is the one that asks for frames. -1: no memory.
    w.dials = True
    return bytes_add(&w.ahead, request.p, request.n)


cdef void ws_begin(Conn* c) noexcept nogil:
    # From here on what comes is its request, or the answer to this server's, and then frames.
    c.ws.below = c.transport
    c.ws.state = WS_REQUEST
    c.transport = &ws_transport
    c.approach = UPGRADING
    if c.ws.dials:
        c.output.owes = True
        conn_want(c, True, c.wants.writing)
        conn_flush_soon(c)


cdef void ws_free(Conn* c) noexcept nogil:
    cdef Ws* w = c.ws
    if w == NULL:
        return
    inflate_over(c)
    bytes_free(&w.answer)
    bytes_free(&w.request)
    bytes_free(&w.held)
    bytes_free(&w.ahead)
    bytes_free(&w.behind)
    free(w)
    c.ws = NULL
