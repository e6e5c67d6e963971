# The members of a group: the set that is committed, and what the log changes of it already.

cdef RaftPeer* peer_find(const Members* m, uint64_t id) noexcept nogil:
    cdef uint32_t i
    for i in range(m.n):
        if m.a[i].id == id:
            return &m.a[i]
    return NULL


cdef inline uint32_t quorum(const Members* m) noexcept nogil:
    return m.size // 2 + 1


cdef inline bint is_outside(const Raft* r) noexcept nogil:
    # While a group comes into being its first members do not know all of the others, or themselves.
    return r.members.n >= r.members.size and peer_find(&r.members, r.id) == NULL


cdef int peer_add(Members* m, uint64_t id) noexcept nogil:
    # 0 | RAFT_NO_MEMORY | RAFT_TOO_LARGE
    if peer_find(m, id) != NULL:
        return RAFT_OK
    if m.n == RAFT_PEERS_MAX:
        return RAFT_TOO_LARGE
    if array_room(&m.a, &m.cap, <uint64_t>m.n + 1, sizeof(RaftPeer), 4) < 0:
        return RAFT_NO_MEMORY
    memset(&m.a[m.n], 0, sizeof(RaftPeer))
    m.a[m.n].id = id
    m.n += 1
    return RAFT_OK


cdef int removed_note(Members* m, uint64_t id, int64_t now) noexcept nogil:
    # 0 | RAFT_NO_MEMORY
    cdef uint32_t i
    for i in range(m.n_removed):
        if m.removed[i].id == id or now - m.removed[i].at >= REMOVED:
            m.removed[i].id = id
            m.removed[i].at = now
            return RAFT_OK
    if m.n_removed == RAFT_PEERS_MAX:
        return RAFT_OK                          # a peer that is forgotten may come back sooner
    if array_room(&m.removed, &m.cap_removed, <uint64_t>m.n_removed + 1, sizeof(Removed), 4) < 0:
        return RAFT_NO_MEMORY
    m.removed[m.n_removed].id = id
    m.removed[m.n_removed].at = now
    m.n_removed += 1
    return RAFT_OK


cdef void removed_forget(Members* m, uint64_t id) noexcept nogil:
    cdef uint32_t i
    for i in range(m.n_removed):
        if m.removed[i].id == id:
            m.n_removed -= 1
            m.removed[i] = m.removed[m.n_removed]
            return


cdef bint removed_lately(const Members* m, uint64_t id, int64_t now) noexcept nogil:
    cdef uint32_t i
    for i in range(m.n_removed):
        if m.removed[i].id == id:
            return now - m.removed[i].at < REMOVED
    return False


# ---- those that the group is to have

cdef bint is_assigned(const Members* m, uint64_t id) noexcept nogil:
    cdef uint32_t i
    for i in range(m.n_assigned):
        if m.assigned[i] == id:
            return True
    return False


cdef bint all_assigned_in(const Members* m) noexcept nogil:
    cdef uint32_t i
    for i in range(m.n_assigned):
        if peer_find(m, m.assigned[i]) == NULL:
            return False
    return True


cdef uint64_t member_too_many(const Members* m, uint64_t own) noexcept nogil:
    # A member that the group is to have no more, the own one last; 0: there is none.
    cdef uint32_t i
    cdef uint64_t found = 0
    for i in range(m.n):
        if not is_assigned(m, m.a[i].id) and (found == 0 or found == own):
            found = m.a[i].id
    return found


# ---- entries in the log that change the set

cdef struct Pending:
    # Before the data of an entry, which are filled up to a multiple of 8 bytes.
    uint64_t index
    uint32_t type
    uint32_t n


cdef inline size_t padded(uint32_t n) noexcept nogil:
    return (<size_t>n + 7) & ~<size_t>7


cdef bint pending_next(const Bytes* b, size_t* at, Pending* head, Span* data) noexcept nogil:
    if at[0] == b.n:
        return False
    memcpy(head, b.data + at[0], sizeof(Pending))
    data[0] = span(b.data + at[0] + sizeof(Pending), head.n)
    at[0] += sizeof(Pending) + padded(head.n)
    return True


cdef bint change_pends(const Raft* r, uint64_t peer) noexcept nogil:
    # A member that is added or removed, and not committed yet; 0: any.
    cdef size_t at = 0
    cdef Pending head
    cdef Span data
    while pending_next(&r.members.pending, &at, &head, &data):
        if head.type != ENTRY_PEER_STATE and (peer == 0 or read_u64(data.p) == peer):
            return True
    return False


cdef int set_change(Bytes* ids, uint32_t type, uint64_t peer) noexcept nogil:
    # Adds an id to a list of them, or takes it out. 0 | RAFT_NO_MEMORY
    cdef size_t at = 0
    while at < ids.n and read_u64(ids.data + at) != peer:
        at += PEER_BYTES
    if type == ENTRY_ADD_PEER:
        return add_u64(ids, peer) if at == ids.n and at < RAFT_PEERS_MAX * PEER_BYTES else RAFT_OK
    if at < ids.n:
        memmove(ids.data + at, ids.data + at + PEER_BYTES, ids.n - at - PEER_BYTES)
        ids.n -= PEER_BYTES
    return RAFT_OK


cdef int set_fill(Raft* r, const Bytes* ids) noexcept nogil:
    # These are the members; what is known of those that stay is kept. 0 | RaftError
    cdef Members* m = &r.members
    cdef uint64_t id
    cdef uint32_t i, j, n = <uint32_t>(ids.n // PEER_BYTES)
    cdef bint stays
    cdef int rc
    for j in range(n):
        id = read_u64(ids.data + j * PEER_BYTES)
        removed_forget(m, id)
        rc = peer_add(m, id)
        if rc < 0:
            return rc
    i = 0
    while i < m.n:
        stays = False
        for j in range(n):
            stays = stays or read_u64(ids.data + j * PEER_BYTES) == m.a[i].id
        if stays:
            i += 1
            continue
        rc = removed_note(m, m.a[i].id, r.now)
        if rc < 0:
            return rc
        m.n -= 1
        m.a[i] = m.a[m.n]
    return RAFT_OK


cdef int members_rebuild(Raft* r) noexcept nogil:
    # The committed set, and on top of that what the log adds and removes: that holds from its append on. 0 | RaftError
    cdef Members* m = &r.members
    cdef PeerState base
    cdef Pending head
    cdef Bytes ids
    cdef Span data
    cdef size_t at = 0
    cdef uint32_t size
    cdef int rc
    if not peer_state_read(span(m.base.data, <uint32_t>m.base.n), &base):
        return RAFT_OK
    memset(&ids, 0, sizeof(Bytes))
    size = base.size
    rc = bytes_add(&ids, base.ids, base.n * PEER_BYTES)
    while rc == RAFT_OK and pending_next(&m.pending, &at, &head, &data):
        if head.type != ENTRY_PEER_STATE:
            rc = set_change(&ids, head.type, read_u64(data.p))
            size = <uint32_t>(ids.n // PEER_BYTES)
    if rc == RAFT_OK:
        rc = set_fill(r, &ids)
    bytes_free(&ids)
    size = max(max(min(size, <uint32_t>RAFT_PEERS_MAX), m.n), <uint32_t>1)
    if size > m.size:
        r.lead.grown = r.now
    m.size = size
    m.extension = base.extension
    return rc


cdef int pending_add(Raft* r, uint64_t index, EntryType type, Span data) noexcept nogil:
    # An entry that changes the set is in the log. 0 | RaftError
    cdef Pending head
    cdef Bytes* b = &r.members.pending
    if bytes_reserve(b, sizeof(Pending) + padded(data.n)) < 0:
        return RAFT_NO_MEMORY
    head.index = index
    head.type = type
    head.n = data.n
    bytes_add(b, &head, sizeof(Pending))
    bytes_add(b, data.p, data.n)
    b.n += padded(data.n) - data.n
    return RAFT_OK if type == ENTRY_PEER_STATE else members_rebuild(r)


cdef int pending_cut(Raft* r, uint64_t index) noexcept nogil:
    # The log ends with index: what was behind it changes nothing. 0 | RaftError
    cdef Pending head
    cdef Span data
    cdef size_t at = 0, before = 0
    while pending_next(&r.members.pending, &at, &head, &data):
        if head.index > index:
            r.members.pending.n = before
            return members_rebuild(r)
        before = at
    return RAFT_OK


cdef int base_take(Raft* r, Span data) noexcept nogil:
    # A whole set is the committed one; one that cannot be read changes nothing. 0 | RAFT_NO_MEMORY
    cdef Bytes* base = &r.members.base
    cdef PeerState state
    cdef DomainExtension extension = r.members.extension
    if not peer_state_read(data, &state):
        return RAFT_OK
    if state.extension != EXTENDS_UNKNOWN:
        extension = state.extension
    base.n = 0
    return peer_state_write(base, max(state.size, state.n), state.ids, state.n, extension)


cdef int base_change(Raft* r, uint32_t type, uint64_t peer) noexcept nogil:
    # One member more or less is committed. 0 | RAFT_NO_MEMORY
    cdef PeerState state
    cdef Bytes ids
    cdef int rc
    if not peer_state_read(span(r.members.base.data, <uint32_t>r.members.base.n), &state):
        return RAFT_OK
    memset(&ids, 0, sizeof(Bytes))
    rc = bytes_add(&ids, state.ids, state.n * PEER_BYTES)
    if rc == RAFT_OK:
        rc = set_change(&ids, type, peer)
    r.members.base.n = 0
    if rc == RAFT_OK:
        state.n = <uint32_t>(ids.n // PEER_BYTES)
        rc = peer_state_write(&r.members.base, state.n, ids.data, state.n, state.extension)
    bytes_free(&ids)
    return rc


cdef int act_peers(Raft* r) noexcept nogil:
    cdef RaftAction a
    memset(&a, 0, sizeof(RaftAction))
    a.act = ACT_PEERS
    a.body = span(r.members.base.data, <uint32_t>r.members.base.n)
    return act(r, &a)


cdef int members_take(Raft* r, Span data) noexcept nogil:
    # The set that comes with a snapshot; what the log said of it is gone. 0 | RaftError
    cdef int rc = base_take(r, data)
    r.members.pending.n = 0
    if rc == RAFT_OK:
        rc = members_rebuild(r)
    return rc if rc < 0 else act_peers(r)


cdef int pending_commit(Raft* r, uint64_t index) noexcept nogil:
    # What changes the set up to an index is committed. 0 | RaftError
    cdef Bytes* b = &r.members.pending
    cdef Pending head
    cdef Span data
    cdef size_t at = 0, done = 0
    cdef int rc = RAFT_OK
    while rc == RAFT_OK and pending_next(b, &at, &head, &data) and head.index <= index:
        if head.type == ENTRY_PEER_STATE:
            rc = base_take(r, data)
        else:
            rc = base_change(r, head.type, read_u64(data.p))
        done = at
    if rc < 0 or done == 0:
        return rc
    memmove(b.data, b.data + done, b.n - done)
    b.n -= done
    rc = members_rebuild(r)
    return rc if rc < 0 else act_peers(r)
