# What the log is told about clients: errors, refusals and traces, each with who it is about.

cdef enum:
    NOTE_TEXTS = 4          # of a note's own


cdef int note_client(Client* c, int kind, const Span* texts, uint32_t n, int64_t number) noexcept nogil:
    # numbers: port, account, `number`, the connection's kind; texts: address, CONNECT's options once they are accepted,
    # `texts`. As inbox_put.
    cdef Span all[2 + NOTE_TEXTS]
    cdef int64_t num[4]
    cdef uint32_t i
    all[0] = c.address
    all[1] = c.options
    for i in range(n):
        all[2 + i] = texts[i]
    num[0] = c.port
    num[1] = c.account.id
    num[2] = number
    num[3] = c.kind
    return inbox_put(&c.engine.inbox, kind, c.cid, all, 2 + n, num, 4)


cdef void note_error(Client* c, const char* before, Span quoted, const char* after) noexcept nogil:
    # An error line, some of the client's own bytes within it in quotes.
    cdef Span texts[3]
    texts[0] = span_c(before)
    texts[1] = quoted
    texts[2] = span_c(after)
    note_client(c, IN_ERROR, texts, 3, NOTE_QUOTED)


cdef void note_text(Client* c, const char* text) noexcept nogil:
    note_span(c, span_c(text), NOTE_LINE)


cdef void note_span(Client* c, Span text, int form) noexcept nogil:
    note_client(c, IN_ERROR, &text, 1, form)


cdef void trace_line(Client* c, int way, const char* verb, Span rest) noexcept nogil:
    cdef Span texts[2]
    texts[0] = span_c(verb)
    texts[1] = rest
    note_client(c, IN_TRACE, texts, 2, way)


cdef void trace_message(Client* c, int way, const char* verb, Span rest, Span header, Span data) noexcept nogil:
    cdef Span texts[4]
    texts[0] = span_c(verb)
    texts[1] = rest
    texts[2] = header
    texts[3] = data
    note_client(c, IN_TRACE, texts, 4, way)
