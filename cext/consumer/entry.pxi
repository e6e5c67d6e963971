# What the members of a consumer's Raft group tell each other: nats-server's operations, to the byte. Numbers are varints, but for
# the sequences of OP_SKIP and OP_RESET, which take eight bytes.

cdef inline bint entry_number(uint64_t v) noexcept nogil:
    # Whether it can be a sequence: the one after it is one too.
    return 0 < v < UINT64_MAX


cdef bint consumer_entry_get(Span entry, ConsumerEntry* e) noexcept nogil:
    memset(e, 0, sizeof(ConsumerEntry))
    if not get_bytes(&entry, &e.op, 1):
        return False
    if e.op == OP_DELIVERED:
        return (get_uv(&entry, &e.dseq) and get_uv(&entry, &e.sseq) and get_uv(&entry, &e.deliveries)
                and get_sv(&entry, &e.sent) and e.dseq < UINT64_MAX and entry_number(e.sseq))
    if e.op == OP_ACKED:
        return get_uv(&entry, &e.dseq) and get_uv(&entry, &e.sseq) and e.dseq < UINT64_MAX and entry_number(e.sseq)
    if e.op == OP_SKIP or e.op == OP_RESET:
        if not get_bytes(&entry, &e.sseq, 8) or not entry_number(e.sseq):
            return False
        e.reply = entry if e.op == OP_RESET else span(NULL, 0)
        return True
    e.reply = entry
    return (e.op == OP_REQUEST or e.op == OP_REQUEST_ENDS) and entry.n > 0


cdef int consumer_entry_put(const ConsumerEntry* e, Bytes* out) noexcept nogil:
    cdef size_t before = out.n
    cdef int rc = bytes_add(out, &e.op, 1)
    if e.op == OP_DELIVERED:
        rc = rc or add_uv(out, e.dseq) or add_uv(out, e.sseq) or add_uv(out, e.deliveries) or add_sv(out, e.sent)
    elif e.op == OP_ACKED:
        rc = rc or add_uv(out, e.dseq) or add_uv(out, e.sseq)
    elif e.op == OP_SKIP or e.op == OP_RESET:
        rc = rc or bytes_add(out, &e.sseq, 8)
    if e.reply.n:
        rc = rc or add_span(out, e.reply)
    if rc:
        out.n = before
    return rc
