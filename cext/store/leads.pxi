# The next message of a set of subjects. Where the set is dense every slot is looked at, which costs about a nanosecond a
# slot; where it is sparse, each subject's next message is kept in a heap and found again along the subject's chain, which
# costs memory and time by subjects. Slots are looked at until that has cost as much as the heap would.

cdef enum:
    NEAR = 512                  # slots that are looked at in any case
    LEAD_SLOTS = 64             # slots that are looked at in the time that a subject takes in the making of the heap
    CHAIN_SLOTS = 16            # ... that a step along a chain takes
    SCAN_SLOTS = 262144         # slots that a piece of a search or a count looks at


cdef void leads_free(Leads* h) noexcept nogil:
    free(h.a)
    memset(h, 0, sizeof(Leads))


cdef int leads_push(Leads* h, uint32_t id) noexcept nogil:
    """One more subject, behind the heap."""
    cdef uint32_t cap = h.cap * 2 if h.cap else 16
    cdef Lead* a
    if h.n == h.cap:
        a = <Lead*> realloc(h.a, cap * sizeof(Lead))
        if a == NULL:
            return -1
        h.a = a
        h.cap = cap
    h.a[h.n].id = id
    h.a[h.n].seq = 0
    h.n += 1
    return 0


cdef void leads_down(Leads* h, uint32_t i) noexcept nogil:
    cdef Lead e = h.a[i]
    cdef uint32_t k
    while True:
        k = 2 * i + 1
        if k >= h.n_heap:
            break
        if k + 1 < h.n_heap and h.a[k + 1].seq < h.a[k].seq:
            k += 1
        if h.a[k].seq >= e.seq:
            break
        h.a[i] = h.a[k]
        i = k
    h.a[i] = e


cdef void leads_in(Leads* h, uint32_t k, uint64_t seq) noexcept nogil:
    """Takes one from behind the heap into it."""
    cdef Lead e = h.a[k]
    cdef uint32_t i = h.n_heap, up
    e.seq = seq
    h.a[k] = h.a[i]
    h.n_heap += 1
    while i:
        up = (i - 1) >> 1
        if h.a[up].seq <= seq:
            break
        h.a[i] = h.a[up]
        i = up
    h.a[i] = e


cdef void leads_out(Leads* h) noexcept nogil:
    """Puts the first one behind the heap."""
    cdef Lead e = h.a[0]
    h.n_heap -= 1
    h.a[0] = h.a[h.n_heap]
    h.a[h.n_heap] = e
    leads_down(h, 0)


cdef uint64_t lead_next(Store* s, Lead* e, uint64_t start) noexcept nogil:
    """The first message from `start` on of a subject that had the one of the lead; 0 when there is none."""
    cdef Node* n = node_at(&s.x, e.id)
    cdef uint64_t seq = e.seq
    cdef uint32_t steps
    cdef Block* b
    cdef int64_t i
    if n.count == 0 or n.last < start:
        return 0
    if start <= n.first:
        return n.first
    for steps in range(8):
        b = block_of(s, seq) if seq else NULL
        i = slot_of(b, seq) if b != NULL else -1
        if i < 0 or b.sid[i] != e.id:
            break
        seq = chain_next(s, b, <uint32_t> i, e.id)
        if seq == 0 or seq >= start:
            return seq
    return next_of_id(s, e.id, start)


cdef int leads_build(Store* s, IdSet* c, uint64_t start) noexcept nogil:
    cdef Leads* h = &c.leads
    cdef uint32_t k, w, i
    cdef uint64_t bits, seq
    h.n = 0
    h.n_heap = 0
    for k in range(c.n_pages):
        for w in range(64 if c.pages[k] != NULL else 0):
            bits = c.pages[k][w]
            while bits:
                if leads_push(h, k << 12 | w << 6 | st_low_bit(bits)) < 0:
                    leads_free(h)
                    return -1
                bits &= bits - 1
    for i in range(h.n):
        seq = lead_next(s, &h.a[i], start)
        if seq:
            leads_in(h, i, seq)
    h.from_ = start
    h.upto = s.last_seq
    return 0


cdef bint lead_lives(Store* s, const Lead* e) noexcept nogil:
    cdef Block* b = block_of(s, e.seq)
    cdef int64_t i = slot_of(b, e.seq) if b != NULL else -1
    return i >= 0 and b.sid[i] == e.id and b.off[i]


cdef int64_t leads_next(Store* s, IdSet* c, uint64_t start) noexcept nogil:
    """The set's first message from `start` on, 0 when there is none; ST_NO_MEMORY."""
    cdef Leads* h = &c.leads
    cdef uint64_t seq
    cdef uint32_t i
    if h.a == NULL or start < h.from_ or s.last_seq < h.upto or h.n > 2 * c.n_ids + 64:
        if leads_build(s, c, start) < 0:
            return ST_NO_MEMORY
    h.from_ = start
    while True:
        while h.n_heap and (h.a[0].seq < start or not lead_lives(s, &h.a[0])):
            seq = 0
            if st_has(c.pages, c.n_pages, h.a[0].id):
                seq = lead_next(s, &h.a[0], max(start, h.a[0].seq + 1))
            if seq:
                h.a[0].seq = seq
                leads_down(h, 0)
            else:
                leads_out(h)
        if (h.n_heap and h.a[0].seq <= h.upto) or s.last_seq == h.upto:
            return <int64_t> h.a[0].seq if h.n_heap else 0
        for i in range(h.n_heap, h.n):      # those that had no more may have newer ones
            if st_has(c.pages, c.n_pages, h.a[i].id):
                seq = lead_next(s, &h.a[i], max(start, h.upto + 1))
                if seq:
                    leads_in(h, i, seq)
        h.upto = s.last_seq


cdef uint64_t scan_set(Store* s, IdSet* c, uint64_t* start, uint64_t* limit) noexcept nogil:
    """Looks at the slots from `start` on, at most `limit`; these become what is left to look at."""
    cdef uint32_t bi = block_from(s, max(start[0], s.first_seq)), i, end, hit
    cdef Block* b
    while bi < s.n_blocks:
        b = block_i(s, bi)
        if b.live:
            i = max(slot_from(b, start[0]), b.head)
            end = <uint32_t> min(<uint64_t> b.n, i + limit[0])
            hit = st_find_set(c.pages, c.n_pages, b.sid, b.off, i, end)
            limit[0] -= hit - i
            if hit < end:
                return seq_at(b, hit)
            if limit[0] == 0:
                start[0] = max(start[0], seq_at(b, end - 1) + 1) if end else start[0]
                return 0
        bi += 1
    return 0


cdef bint next_of_set(Store* s, IdSet* c, uint64_t* start, uint64_t* seq) noexcept nogil:
    """A piece of the search; True: it ends, with the sequence or 0."""
    cdef Leads* h = &c.leads
    cdef uint64_t given = NEAR, piece, left, cost
    cdef int64_t next
    if start[0] + NEAR > s.last_seq:
        left = NEAR
        seq[0] = scan_set(s, c, start, &left)
        return True
    if not h.on:
        cost = NEAR + <uint64_t> c.n_ids * LEAD_SLOTS + (c.n_msgs * CHAIN_SLOTS if start[0] > s.first_seq else 0)
        given += cost - h.looked if cost > h.looked else 0
        piece = min(given, <uint64_t> SCAN_SLOTS)
        left = piece
        seq[0] = scan_set(s, c, start, &left)
        if piece - left > NEAR:
            h.looked += piece - left
        if seq[0] or left:
            return True
        if piece < given:
            return False
        h.on = True
    next = leads_next(s, c, start[0])
    if next < 0:
        left = SCAN_SLOTS
        seq[0] = scan_set(s, c, start, &left)
        return seq[0] != 0 or left != 0
    if next and <uint64_t> next < start[0] + NEAR // 8:
        h.on = False
        h.looked = 0
    seq[0] = <uint64_t> next
    return True
