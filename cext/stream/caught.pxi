# A member that lacks messages takes them from its leader's store: unchanged, with their sequences and times.

cdef void member_installed(Stream* s, uint64_t refused, uint64_t last) noexcept nogil:
    held_drop(&s.member.held)
    s.member.strays.n = 0
    s.member.position = last
    s.member.id_unknown = s.member.id_unknown or is_last_gone(s)
    s.member.abandoned = 0
    s.member.refused = refused


cdef int member_caught(Stream* s, StreamEntry* e) noexcept nogil:
    cdef Change* c = &e.change
    cdef StoreState state
    cdef PubHeaders h
    store_state(s.store, &state)
    if e.batch.n or (c.kind != CHANGE_MESSAGE and c.kind != CHANGE_SKIP):
        return ST_UNKNOWN
    if c.kind == CHANGE_SKIP and c.most:
        if c.seq != state.last_seq + 1 or c.most > UINT64_MAX - c.seq:
            return ST_ORDER
        return skip_to(s, c.seq + c.most - 1)
    if e.lseq != state.last_seq + 1:
        return ST_ORDER
    if c.kind == CHANGE_SKIP:
        return skip_to(s, e.lseq)
    read_headers(&h, c.header)
    c.seq = e.lseq
    c.said = &h
    c.id = h.msg_id
    return <int>stream_apply(s, c)
