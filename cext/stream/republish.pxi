# Messages that are published again once they are stored, where the configuration says so (ADR-28): in their order, with where
# they stand in their headers. They wait in a queue, in a stream that syncs until they are durable: what comes of one of them may
# lead back to this stream, which is in the middle of a change.

cdef enum:
    REPUBLISH_ROOM = 4096       # messages up to here are copied to the stack before they are sent
    REPUBLISH_PIECE = 500       # messages that are sent at a time: others have their turns, too
    REPUBLISH_MAX = 256 << 20   # bytes that wait in a stream; what comes beyond is not published again


cdef struct RepublishHead:
    # One waiting message in the queue; destination, header and body follow.
    uint64_t seq
    uint32_t n_dest
    uint32_t n_header
    uint32_t n_data


cdef inline void draft_text(Draft* d, const char* text) noexcept nogil:
    draft_add(d, text, strlen(text))


cdef void republish_header(Stream* s, const Change* c, uint64_t before, Draft* d) noexcept nogil:
    # The message's own, followed by what is said of it.
    cdef uint8_t text[40]
    if c.header.n > 2:
        draft_add(d, c.header.p, c.header.n - 2)
    else:
        draft_text(d, b"NATS/1.0\r\n")
    draft_text(d, b"Nats-Stream: ")
    draft_add(d, s.cfg.name.p, s.cfg.name.n)
    draft_text(d, b"\r\nNats-Subject: ")
    draft_add(d, c.subject.p, c.subject.n)
    draft_text(d, b"\r\nNats-Sequence: ")
    draft_number(d, c.seq)
    draft_text(d, b"\r\nNats-Time-Stamp: ")
    draft_add(d, text, put_time(text, c.ts, &s.second))
    draft_text(d, b"\r\nNats-Last-Sequence: ")
    draft_number(d, before)
    if s.cfg.flags & STREAM_REPUBLISH_HEADERS_ONLY:
        draft_text(d, b"\r\nNats-Msg-Size: ")
        draft_number(d, c.data.n)
    draft_text(d, b"\r\n\r\n")


cdef void republish_keep(Stream* s, const Change* c, Span dest, Span header) noexcept nogil:
    # Without memory, or room in the queue, it is not published: subscribers see a gap in the sequences.
    cdef RepublishHead h
    cdef Span data = span(NULL, 0) if s.cfg.flags & STREAM_REPUBLISH_HEADERS_ONLY else c.data
    cdef uint8_t* p = NULL
    if s.republished.b.n - s.republished.head <= REPUBLISH_MAX:
        p = fifo_add(&s.republished, sizeof(RepublishHead) + <size_t>dest.n + header.n + data.n)
    if p == NULL:
        republish_left_out(s)
        return
    h.seq = c.seq
    h.n_dest = dest.n
    h.n_header = header.n
    h.n_data = data.n
    memcpy(p, &h, sizeof(RepublishHead))
    put_bytes(put_bytes(put_bytes(p + sizeof(RepublishHead), dest), header), data)
    if not is_shown_synced(s):
        task_post(&s.env.tasks, &s.republish)


cdef void republish_left_out(Stream* s) noexcept nogil:
    cdef char text[400]
    snprintf(text, sizeof(text), b"stream %.*s: messages are not republished: too many wait for it", <int>s.cfg.name.n,
             <const char*>s.cfg.name.p)
    log_at_times(s, &s.republish_told, text, False)


cdef void republish_refused(Stream* s, Span dest) noexcept nogil:
    # The log says now and then that a message would go to a subject that is none.
    cdef char text[600]
    snprintf(text, sizeof(text), b"stream %.*s: a message is not republished to an invalid subject: '%.*s'",
             <int>s.cfg.name.n, <const char*>s.cfg.name.p, <int>min(dest.n, <uint32_t>200), <const char*>dest.p)
    log_at_times(s, &s.republish_told, text, False)


cdef void republish(Stream* s, const Change* c, uint64_t before) noexcept nogil:
    # before: the sequence of the message before it on its subject
    cdef Draft dest, header
    draft_open(&dest)
    if transform_match(s.cfg.republish, s.env, c.subject, &dest):
        # What is sent to _R_ is an answer to a service's request, which only the service may send.
        if dest.failed or not is_subject(draft_span(&dest)) or starts_with(draft_span(&dest), b"_R_."):
            republish_refused(s, draft_span(&dest))
        else:
            draft_open(&header)
            republish_header(s, c, before, &header)
            if not header.failed:
                republish_keep(s, c, draft_span(&dest), draft_span(&header))
            draft_free(&header)
    draft_free(&dest)


cdef void republish_send(Stream* s, const RepublishHead* h, const uint8_t* p) noexcept nogil:
    cdef Span header = span(p + h.n_dest, h.n_header)
    send_message(s, KIND_JETSTREAM, span(p, h.n_dest), header, span(header.p + h.n_header, h.n_data))


cdef uint64_t republish_upto(Stream* s, uint64_t seq, uint64_t most) noexcept nogil:
    # Of those that wait now, so many at most; each is taken out before it is sent. Up to which sequence none waits any more.
    cdef Fifo* q = &s.republished
    cdef uint64_t end = q.base + q.b.n, left = most
    cdef RepublishHead h
    cdef uint8_t room[REPUBLISH_ROOM]
    cdef uint8_t* p
    cdef size_t n
    while q.head < q.b.n and q.base + q.head < end and left:
        memcpy(&h, q.b.data + q.head, sizeof(RepublishHead))
        if h.seq > seq:
            break
        left -= 1
        n = <size_t>h.n_dest + h.n_header + h.n_data
        p = &room[0] if n <= REPUBLISH_ROOM else <uint8_t*>malloc(n)
        if p != NULL:
            memcpy(p, q.b.data + q.head + sizeof(RepublishHead), n)
        fifo_drop(q, sizeof(RepublishHead) + n)
        if p != NULL:
            republish_send(s, &h, p)
        if p != room:
            free(p)
    if q.head == q.b.n:
        return UINT64_MAX
    memcpy(&h, q.b.data + q.head, sizeof(RepublishHead))
    return h.seq - 1


cdef void republish_cut(Stream* s, uint64_t seq) noexcept nogil:
    # Nothing behind it was stored.
    cdef Fifo* q = &s.republished
    cdef RepublishHead h
    cdef size_t at = q.head
    while at < q.b.n:
        memcpy(&h, q.b.data + at, sizeof(RepublishHead))
        if h.seq > seq:
            break
        at += sizeof(RepublishHead) + <size_t>h.n_dest + h.n_header + h.n_data
    q.b.n = at
    fifo_drop(q, 0)


cdef void republish_drop(Stream* s) noexcept nogil:
    task_cancel(&s.republish)
    fifo_free(&s.republished)
