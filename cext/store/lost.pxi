# What a store knows to be lost: the sequences of messages that cannot be served, and the places where its files are damaged.

cdef enum:
    LOST_MAX = 65536            # sequences that are told apart
    PLACES_MAX = 64             # places that are remembered

cdef struct LostList:
    uint64_t bytes
    uint64_t* seqs              # ascending
    uint32_t n
    uint32_t cap
    uint64_t floored            # the first sequence that this start passed over because of what an earlier one told; 0: none
    uint32_t n_places
    Damage places[PLACES_MAX]


cdef LostList* lost_list(Store* s) noexcept nogil:
    if s.lost == NULL:
        s.lost = <LostList*>calloc(1, sizeof(LostList))
    return s.lost


cdef void lost_free(Store* s) noexcept nogil:
    if s.lost != NULL:
        free(s.lost.seqs)
        free(s.lost)
    s.lost = NULL


cdef uint32_t lost_find(const LostList* t, uint64_t seq) noexcept nogil:
    # Where a sequence stands, or would.
    cdef uint32_t lo = 0, hi = t.n, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if t.seqs[mid] < seq:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef bint lost_add(Store* s, uint64_t seq, uint64_t bytes) noexcept nogil:
    # A message that cannot be served; whether that is news.
    cdef LostList* t = lost_list(s)
    cdef uint32_t i
    if t == NULL or t.n >= LOST_MAX:
        return False
    i = lost_find(t, seq)
    if i < t.n and t.seqs[i] == seq:
        return False
    if array_room(&t.seqs, &t.cap, <uint64_t>t.n + 1, 8, 16) < 0:
        return False
    memmove(t.seqs + i + 1, t.seqs + i, <size_t>(t.n - i) * 8)
    t.seqs[i] = seq
    t.n += 1
    t.bytes += bytes
    return True


cdef void lost_drop(Store* s, uint64_t seq) noexcept nogil:
    # It was removed on request: nobody misses it.
    cdef LostList* t = s.lost
    cdef uint32_t i = lost_find(t, seq)
    if i < t.n and t.seqs[i] == seq:
        t.n -= 1
        memmove(t.seqs + i, t.seqs + i + 1, <size_t>(t.n - i) * 8)


cdef void lost_drop_below(Store* s, uint64_t seq) noexcept nogil:
    cdef LostList* t = s.lost
    cdef uint32_t i = lost_find(t, seq) if t != NULL else 0
    if i:
        t.n -= i
        memmove(t.seqs, t.seqs + i, <size_t>t.n * 8)


cdef uint64_t store_lost_from(Store* s, uint64_t seq) noexcept nogil:
    cdef const LostList* t = s.lost
    cdef uint64_t found = 0, first
    cdef uint32_t i = lost_find(t, seq) if t != NULL else 0
    if t == NULL:
        return 0
    if i < t.n:
        found = t.seqs[i]
    if t.floored >= seq and t.floored and (found == 0 or t.floored < found):
        found = t.floored
    for i in range(t.n_places):
        first = max(t.places[i].first, seq) if t.places[i].first and max(t.places[i].first, t.places[i].last) >= seq else 0
        if first and (found == 0 or first < found):
            found = first
    return found


cdef void lost_place(Store* s, DamageKind kind, uint64_t block, uint64_t at, uint64_t size, uint64_t first,
                     uint64_t last, uint64_t count) noexcept nogil:
    # A place where something is damaged, and the messages that it costs.
    cdef LostList* t = lost_list(s)
    cdef Damage d
    s.damage += 1
    d.kind = kind
    d.block = block
    d.at = at
    d.size = size
    d.first = first
    d.last = last
    d.count = count
    if t != NULL and t.n_places < PLACES_MAX:
        t.places[t.n_places] = d
        t.n_places += 1
    if s.on_damaged != NULL and kind == DAMAGE_MESSAGE:
        s.on_damaged(s.ctx, &d)


cdef void erasures_end(Store* s) noexcept nogil:
    # After the replay: a message that is erased in part and was not removed is damaged.
    cdef const Bytes* list = &s.recovery.erasures
    cdef size_t at = 0
    cdef uint32_t i
    cdef Damage d
    while at < list.n:
        memcpy(&d, list.data + at, sizeof(Damage))
        i = lost_find(s.lost, d.first) if s.lost != NULL else 0
        if s.lost == NULL or s.lost.n == LOST_MAX or i < s.lost.n and s.lost.seqs[i] == d.first:
            lost_place(s, d.kind, d.block, d.at, d.size, d.first, d.first, 1)
        at += sizeof(Damage)
    bytes_free(&s.recovery.erasures)


cdef void slot_damaged(Store* s, Block* b, uint32_t i) noexcept nogil:
    # A message whose record does not fit what is known of it; it stays listed, and is not served.
    cdef uint64_t seq = seq_at(b, i), size = b.len[i]
    if lost_add(s, seq, size):
        lost_place(s, DAMAGE_MESSAGE, b.num, b.off[i] - 1, size, seq, seq, 1)


cdef void store_lost(Store* s, Lost* out) noexcept nogil:
    cdef LostList* t = s.lost
    memset(out, 0, sizeof(Lost))
    out.damage = s.damage
    if t != NULL:
        out.seqs = t.seqs
        out.n = t.n
        out.bytes = t.bytes
        out.places = t.places
        out.n_places = t.n_places


cdef void lost_cut(Store* s, uint64_t behind) noexcept nogil:
    while s.lost != NULL and s.lost.n and s.lost.seqs[s.lost.n - 1] > behind:
        lost_drop(s, s.lost.seqs[s.lost.n - 1])
