# The small files of a group, byte for byte as nats-server's. All numbers are little endian.

cdef enum:
    SNAPSHOT_HEAD = 20          # term, index, bytes of the set
    SNAPSHOT_HASH = 8
    VOTE_BYTES = 16
    PEER_BYTES = 8


cdef inline uint64_t group_hash(Span group, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t key[4]
    store_key(group, key)
    return hh64(key, p, n)


cdef bint peers_same(Span a, Span b) noexcept nogil:
    # Whether both name the same members, in whichever order.
    cdef PeerState x, y
    cdef uint32_t i, k
    cdef bint found = peer_state_read(a, &x) and peer_state_read(b, &y)
    found = found and x.size == y.size and x.n == y.n and x.extension == y.extension
    for i in range(x.n if found else 0):
        k = 0
        while k < y.n and memcmp(x.ids + i * PEER_BYTES, y.ids + k * PEER_BYTES, PEER_BYTES) != 0:
            k += 1
        found = found and k < y.n
    return found


cdef bint snapshot_read(Span group, Span file, Snapshot* out) noexcept nogil:
    cdef uint32_t n
    cdef uint64_t said
    cdef PeerState members
    if file.n < SNAPSHOT_HEAD + SNAPSHOT_HASH:
        return False
    memcpy(&said, file.p + file.n - SNAPSHOT_HASH, 8)
    if group_hash(group, file.p, file.n - SNAPSHOT_HASH) != said:
        return False
    memcpy(&out.term, file.p, 8)
    memcpy(&out.index, file.p + 8, 8)
    memcpy(&n, file.p + 16, 4)
    if n > file.n - SNAPSHOT_HEAD - SNAPSHOT_HASH or out.index == 0:
        return False
    out.peers = span(file.p + SNAPSHOT_HEAD, n)
    out.state = span(file.p + SNAPSHOT_HEAD + n, file.n - SNAPSHOT_HEAD - SNAPSHOT_HASH - n)
    return peer_state_read(out.peers, &members)


cdef int snapshot_write(Span group, Bytes* b, const Snapshot* s) noexcept nogil:
    cdef size_t n = SNAPSHOT_HEAD + <size_t>s.peers.n + s.state.n
    cdef uint64_t hash
    if n + SNAPSHOT_HASH > UINT32_MAX:
        return RAFT_TOO_LARGE
    b.n = 0
    if bytes_reserve(b, n + SNAPSHOT_HASH) < 0:
        return RAFT_NO_MEMORY
    bytes_add(b, &s.term, 8)
    bytes_add(b, &s.index, 8)
    bytes_add(b, &s.peers.n, 4)
    bytes_add(b, s.peers.p, s.peers.n)
    bytes_add(b, s.state.p, s.state.n)
    hash = group_hash(group, b.data, n)
    bytes_add(b, &hash, 8)
    return RAFT_OK


cdef bint vote_read(Span file, uint64_t* term, uint64_t* vote) noexcept nogil:
    vote[0] = 0
    if file.n < 8:
        return False
    memcpy(term, file.p, 8)
    if file.n >= VOTE_BYTES:
        memcpy(vote, file.p + 8, 8)
    return True
