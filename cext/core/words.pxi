# What clients are told beside messages: -ERR and +OK.

cdef void client_refuse(Client* c, int reason, Span text) noexcept nogil:
    # Protocol.refuse of clients: -ERR 'text'.
    client_write(c, b"-ERR '", 6)
    client_write(c, text.p, text.n)
    client_write(c, b"'\r\n", 3)
    if c.engine.trace:
        trace_line(c, TRACE_OUT, b"-ERR", text)
    if reason:
        client_close(c, reason)


cdef void client_error(Client* c, const char* text) noexcept nogil:
    # Sends -ERR 'text'.
    client_refuse(c, 0, span_c(text))


cdef void client_accepted(Client* c) noexcept nogil:
    # Protocol.accepted of clients.
    if c.opts.verbose:
        client_ok(c)


cdef void client_ok(Client* c) noexcept nogil:
    client_write(c, b"+OK\r\n", 5)
    if c.engine.trace:
        trace_line(c, TRACE_OUT, b"OK", span(NULL, 0))
