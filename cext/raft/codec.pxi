# nats-server's Raft messages, byte for byte. Nothing in what comes is trusted.

cdef enum:
    APPEND_BASE = 42            # leader, term, commit, pterm, pindex, n
    RESPONSE_BYTES = 25
    VOTE_REQUEST_BYTES = 32
    VOTE_RESPONSE_BYTES = 17
    PEER_BYTES = 8
    VOTE_GRANTED = 1
    VOTE_EMPTY = 2
    ENTRY_BYTES_MAX = 0x7FFFFFFF


cdef inline uint64_t read_u64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint32_t read_u32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint16_t read_u16(const uint8_t* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


cdef inline int add_u64(Bytes* b, uint64_t v) noexcept nogil:
    return bytes_add(b, &v, 8)


cdef inline int add_u32(Bytes* b, uint32_t v) noexcept nogil:
    return bytes_add(b, &v, 4)


cdef inline int add_u16(Bytes* b, uint16_t v) noexcept nogil:
    return bytes_add(b, &v, 2)


cdef bint append_entry_read(Span body, AppendEntry* out) noexcept nogil:
    cdef Span rest
    cdef uint32_t i, n
    if body.n < APPEND_BASE:
        return False
    out.leader = read_u64(body.p)
    out.term = read_u64(body.p + 8)
    out.commit = read_u64(body.p + 16)
    out.pterm = read_u64(body.p + 24)
    out.pindex = read_u64(body.p + 32)
    out.n = read_u16(body.p + 40)
    if out.pindex == UINT64_MAX or out.pindex == 0 and out.pterm:
        return False                            # it could have no index; before the first entry there is no term
    rest = span(body.p + APPEND_BASE, body.n - APPEND_BASE)
    out.entries = rest
    for i in range(out.n):
        if rest.n < 4:
            return False
        n = read_u32(rest.p)
        if n == 0 or n > rest.n - 4:
            return False
        rest = span(rest.p + 4 + n, rest.n - 4 - n)
    out.entries.n -= rest.n
    # Old servers send no lterm; what stands behind it is for newer ones.
    out.lterm = 0
    get_uv(&rest, &out.lterm)
    return True


cdef bint entry_next(Span* rest, Entry* out) noexcept nogil:
    cdef uint32_t n
    if rest.n < 5:
        return False
    n = read_u32(rest.p)
    out.type = <EntryType>rest.p[4]
    out.data = span(rest.p + 5, n - 1)
    rest[0] = span(rest.p + 4 + n, rest.n - 4 - n)
    return True


cdef int entry_write(Bytes* b, EntryType type, Span data) noexcept nogil:
    cdef uint8_t kind = <uint8_t>type
    if data.n >= ENTRY_BYTES_MAX:
        return RAFT_TOO_LARGE
    if bytes_reserve(b, 5 + <size_t>data.n) < 0:
        return RAFT_NO_MEMORY
    add_u32(b, data.n + 1)
    bytes_add(b, &kind, 1)
    bytes_add(b, data.p, data.n)
    return RAFT_OK


cdef int append_entry_write(Bytes* b, const AppendEntry* m) noexcept nogil:
    cdef uint8_t lterm[10]
    cdef uint32_t n = put_uv(lterm, m.lterm)
    if bytes_reserve(b, APPEND_BASE + <size_t>m.entries.n + n) < 0:
        return RAFT_NO_MEMORY
    add_u64(b, m.leader)
    add_u64(b, m.term)
    add_u64(b, m.commit)
    add_u64(b, m.pterm)
    add_u64(b, m.pindex)
    add_u16(b, m.n)
    bytes_add(b, m.entries.p, m.entries.n)
    bytes_add(b, lterm, n)
    return RAFT_OK


cdef bint append_response_read(Span body, AppendResponse* out) noexcept nogil:
    if body.n != RESPONSE_BYTES:
        return False
    out.term = read_u64(body.p)
    out.index = read_u64(body.p + 8)
    out.peer = read_u64(body.p + 16)
    out.success = body.p[24] == 1
    return True


cdef int append_response_write(Bytes* b, const AppendResponse* m) noexcept nogil:
    cdef uint8_t success = m.success
    if bytes_reserve(b, RESPONSE_BYTES) < 0:
        return RAFT_NO_MEMORY
    add_u64(b, m.term)
    add_u64(b, m.index)
    add_u64(b, m.peer)
    bytes_add(b, &success, 1)
    return RAFT_OK


cdef bint vote_request_read(Span body, VoteRequest* out) noexcept nogil:
    if body.n != VOTE_REQUEST_BYTES:
        return False
    out.term = read_u64(body.p)
    out.last_term = read_u64(body.p + 8)
    out.last_index = read_u64(body.p + 16)
    out.candidate = read_u64(body.p + 24)
    return True


cdef int vote_request_write(Bytes* b, const VoteRequest* m) noexcept nogil:
    if bytes_reserve(b, VOTE_REQUEST_BYTES) < 0:
        return RAFT_NO_MEMORY
    add_u64(b, m.term)
    add_u64(b, m.last_term)
    add_u64(b, m.last_index)
    add_u64(b, m.candidate)
    return RAFT_OK


cdef bint vote_response_read(Span body, VoteResponse* out) noexcept nogil:
    if body.n != VOTE_RESPONSE_BYTES:
        return False
    out.term = read_u64(body.p)
    out.peer = read_u64(body.p + 8)
    out.granted = (body.p[16] & VOTE_GRANTED) != 0
    out.empty = (body.p[16] & VOTE_EMPTY) != 0
    return True


cdef int vote_response_write(Bytes* b, const VoteResponse* m) noexcept nogil:
    cdef uint8_t flags = (VOTE_GRANTED if m.granted else 0) | (VOTE_EMPTY if m.empty else 0)
    if bytes_reserve(b, VOTE_RESPONSE_BYTES) < 0:
        return RAFT_NO_MEMORY
    add_u64(b, m.term)
    add_u64(b, m.peer)
    bytes_add(b, &flags, 1)
    return RAFT_OK


cdef bint peer_state_read(Span body, PeerState* out) noexcept nogil:
    cdef uint16_t extension
    if body.n < 8:
        return False
    out.size = read_u32(body.p)
    out.n = read_u32(body.p + 4)
    if out.n > (body.n - 8) // PEER_BYTES or out.n > RAFT_PEERS_MAX:
        return False
    out.ids = body.p + 8
    out.extension = EXTENDS_UNKNOWN
    if body.n - 8 - out.n * PEER_BYTES >= 2:    # old servers leave it out
        extension = read_u16(out.ids + out.n * PEER_BYTES)
        if extension <= EXTENDS_NOT:
            out.extension = <DomainExtension>extension
    return True


cdef int peer_state_write(Bytes* b, uint32_t size, const uint8_t* ids, uint32_t n,
                          DomainExtension extension) noexcept nogil:
    if bytes_reserve(b, 10 + <size_t>n * PEER_BYTES) < 0:
        return RAFT_NO_MEMORY
    add_u32(b, size)
    add_u32(b, n)
    bytes_add(b, ids, n * PEER_BYTES)
    add_u16(b, <uint16_t>extension)
    return RAFT_OK
