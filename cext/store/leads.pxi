# The next message of a set of subjects. Where the set is dense every slot is looked at, which costs about a nanosecond a
# slot; where it is sparse, each subject's next message is kept in a heap and found again along the subject's chain, which
# costs memory and time by subjects. Slots are looked at until that has cost as much as the heap would. The heap is made, and
# brought up to date, in pieces.

cdef enum:
    NEAR = 512                  # slots that are looked at in any case
    LEAD_SLOTS = 64             # slots that are looked at in the time that a subject takes in the making of the heap
    CHAIN_SLOTS = 16            # ... that a step along a chain takes
    SCAN_SLOTS = 262144         # slots that a piece of a search or a count looks at
    LEADS_TURN = 2048           # subjects whose next message a piece looks for


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
    # Takes one from behind the heap into it.
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
    # Puts the first one behind the heap.
    cdef Lead e = h.a[0]
    h.n_heap -= 1
    h.a[0] = h.a[h.n_heap]
    h.a[h.n_heap] = e
    leads_down(h, 0)


cdef uint64_t lead_next(Store* s, Lead* e, uint64_t start) noexcept nogil:
    # The first message from `start` on of a subject that had the one of the lead; 0 when there is none.
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
        seq = chain_next(s, b, <uint32_t>i, e.id)
        if seq == 0 or seq >= start:
            return seq
    return next_of_id(s, e.id, start)


cdef void leads_begin(Store* s, Leads* h, uint64_t start) noexcept nogil:
    h.n = 0
    h.n_heap = 0
    h.made = 0
    h.making = True
    h.goal = 0
    h.from_ = start
    h.upto = s.last_seq


cdef inline uint32_t lead_cost(const Store* s, uint32_t id) noexcept nogil:
    # What looking for a subject's next message counts of a piece: its chain may be walked.
    return 1 + min(node_at(&s.x, id).count, <uint32_t>1024) // 8


cdef int leads_make(Store* s, IdSet* c, uint64_t start) noexcept nogil:
    # A piece of the heap's making: 1, ST_OK when it is made, ST_NO_MEMORY. Who is born meanwhile may be in it twice.
    cdef Leads* h = &c.leads
    cdef uint32_t left = LEADS_TURN, id
    cdef uint64_t bits, seq
    if h.a == NULL or start < h.from_ or s.last_seq < h.upto or h.n > 2 * c.n_ids + 64:
        leads_begin(s, h, start)
        if leads_room(h) < 0:       # from now on births are noted there
            return ST_NO_MEMORY
    while h.making:
        if h.made >> 12 >= c.n_pages:
            h.making = False
            break
        if c.pages[h.made >> 12] == NULL:
            h.made = ((h.made >> 12) + 1) << 12
            continue
        bits = c.pages[h.made >> 12][(h.made >> 6) & 63] >> (h.made & 63)
        if bits == 0:
            h.made = (h.made | 63) + 1
            continue
        if left == 0:
            return 1
        h.made += low_bit(bits)
        id = <uint32_t>h.made
        if leads_push(h, id) < 0:
            leads_free(h)
            return ST_NO_MEMORY
        seq = lead_next(s, &h.a[h.n - 1], start)
        if seq:
            leads_in(h, h.n - 1, seq)
        h.made += 1
        left -= min(left, lead_cost(s, id))
    return ST_OK


cdef bint lead_lives(Store* s, const Lead* e) noexcept nogil:
    cdef Block* b = block_of(s, e.seq)
    cdef int64_t i = slot_of(b, e.seq) if b != NULL else -1
    return i >= 0 and b.sid[i] == e.id and b.off[i]


cdef bint leads_newer(Store* s, IdSet* c, uint64_t start, uint32_t* left) noexcept nogil:
    # Those that had no more may have newer ones: a piece of the look for them; whether it came to its end.
    cdef Leads* h = &c.leads
    cdef uint64_t seq
    cdef uint32_t id
    if h.goal == 0:
        h.goal = s.last_seq
        h.newer = h.n_heap
    while h.newer < h.n:
        if left[0] == 0:
            return False
        id = h.a[h.newer].id
        if st_has(c.pages, c.n_pages, id):
            seq = lead_next(s, &h.a[h.newer], max(start, h.upto + 1))
            if seq:
                leads_in(h, h.newer, seq)
        h.newer += 1
        left[0] -= min(left[0], lead_cost(s, id))
    h.upto = h.goal
    h.goal = 0
    return True


cdef int leads_next(Store* s, IdSet* c, uint64_t* start, uint64_t* seq) noexcept nogil:
    # A piece of the search for the set's first message from `start` on: 1, `start` may have moved on; ST_OK: it, or 0;
    # ST_NO_MEMORY.
    cdef Leads* h = &c.leads
    cdef uint32_t left = LEADS_TURN, id
    cdef uint64_t next
    cdef int rc = leads_make(s, c, start[0])
    if rc != ST_OK:
        return rc
    h.from_ = start[0]
    while h.n_heap and (h.a[0].seq < start[0] or not lead_lives(s, &h.a[0])):
        if left == 0:
            return 1
        id = h.a[0].id
        next = 0
        if st_has(c.pages, c.n_pages, id):
            next = lead_next(s, &h.a[0], max(start[0], h.a[0].seq + 1))
        if next:
            h.a[0].seq = next
            leads_down(h, 0)
        else:
            leads_out(h)
        left -= min(left, lead_cost(s, id))
    if (h.n_heap == 0 or h.a[0].seq > h.upto) and s.last_seq != h.upto:
        if not leads_newer(s, c, start[0], &left):
            return 1
        if (h.n_heap == 0 or h.a[0].seq > h.upto) and s.last_seq != h.upto:
            start[0] = max(start[0], h.upto + 1)    # what came meanwhile is looked at by its slots
            h.on = False
            h.looked = 0
            return 1
    seq[0] = h.a[0].seq if h.n_heap else 0
    return ST_OK


cdef uint64_t scan_set(Store* s, IdSet* c, uint64_t* start, uint64_t* limit) noexcept nogil:
    # Looks at the slots from `start` on, at most `limit`; these become what is left to look at.
    cdef uint32_t bi = block_from(s, max(start[0], s.first_seq)), i, end, hit
    cdef Block* b
    while bi < s.n_blocks:
        b = block_i(s, bi)
        if b.live:
            i = max(slot_from(b, start[0]), b.head)
            end = <uint32_t>min(<uint64_t>b.n, i + limit[0])
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
    # A piece of the search; True: it ends, with the sequence or 0.
    cdef Leads* h = &c.leads
    cdef uint64_t given = NEAR, piece, left, cost
    cdef int rc
    if start[0] + NEAR > s.last_seq:
        left = NEAR
        seq[0] = scan_set(s, c, start, &left)
        return True
    if not h.on:
        cost = NEAR + <uint64_t>c.n_ids * LEAD_SLOTS + (c.n_msgs * CHAIN_SLOTS if start[0] > s.first_seq else 0)
        given += cost - h.looked if cost > h.looked else 0
        piece = min(given, <uint64_t>SCAN_SLOTS)
        left = piece
        seq[0] = scan_set(s, c, start, &left)
        if piece - left > NEAR:
            h.looked += piece - left
        if seq[0] or left:
            return True
        if piece < given:
            return False
        h.on = True
    rc = leads_next(s, c, start, seq)
    if rc == 1:
        return False
    if rc < 0:
        left = SCAN_SLOTS
        seq[0] = scan_set(s, c, start, &left)
        return seq[0] != 0 or left != 0
    if seq[0] and seq[0] < start[0] + NEAR // 8:
        h.on = False
        h.looked = 0
    return True
