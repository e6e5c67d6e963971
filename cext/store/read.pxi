# Questions to the store. None changes it, but for caches.

cdef void store_state(Store* s, StoreState* out) noexcept nogil:
    out.msgs = s.msgs
    out.bytes = s.bytes
    out.first_seq = s.first_seq
    out.last_seq = s.last_seq
    out.last_ts = s.last_ts
    out.num_subjects = s.x.n_subjects
    out.num_deleted = s.last_seq + 1 - s.first_seq - s.msgs


cdef uint64_t store_ticket(Store* s) noexcept nogil:
    store_hurry(s)
    return s.shared.ticket


cdef uint64_t store_durable_ticket(Store* s) noexcept nogil:
    return s.shared.ticket if s.storage == STORE_MEMORY else s.durable_ticket


cdef uint64_t store_durable_seq(Store* s) noexcept nogil:
    return s.last_seq if s.storage == STORE_MEMORY else s.durable_seq


cdef bint store_is_synced(const Store* s) noexcept nogil:
    return s.storage == STORE_FILE and s.com.sync_interval <= 0


cdef uint64_t store_torn_from(const Store* s) noexcept nogil:
    return s.recovery.torn


cdef Span store_subject(Store* s, uint64_t seq) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    if i < 0 or b.off[i] == 0:
        return span(NULL, 0)
    return node_text(&s.x, b.sid[i])


cdef int store_load_warm(Store* s, uint64_t seq, Record* out, Wait* w) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    cdef int rc
    if i < 0 or b.off[i] == 0:
        return ST_NOT_FOUND
    if w != NULL and not block_warm(s, b, <uint32_t>i):
        wait_begin(s, b, w)
        out.seq = seq
        return ST_WAIT
    if i == 0:
        trail_drop(s, b)                # readers side by side find the next block mapped
    rc = slot_load(s, b, <uint32_t>i, out)
    if rc == ST_OK and list_linked(&b.lru):
        behind_drop(b, b.off[i] - 1, <uint64_t>(out.data.p + out.data.n - b.data))
    return rc


cdef bint store_warm(Store* s, uint64_t seq, Wait* w) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    if i < 0 or b.off[i] == 0 or block_warm(s, b, <uint32_t>i):
        return True
    wait_begin(s, b, w)
    return False


cdef int store_load(Store* s, uint64_t seq, Record* out) noexcept nogil:
    return store_load_warm(s, seq, out, NULL)


cdef int store_next_warm(Store* s, const Filter* filter, uint64_t start, Record* out, Wait* w) noexcept nogil:
    cdef uint64_t seq = store_next_seq(s, filter, start)
    return store_load_warm(s, seq, out, w) if seq else ST_NOT_FOUND


cdef int store_next_intact(Store* s, const Filter* filter, uint64_t start, Record* out, Wait* w) noexcept nogil:
    cdef int rc = ST_DAMAGED
    while rc == ST_DAMAGED:
        rc = store_next_warm(s, filter, start, out, w)
        start = out.seq + 1
    return rc


cdef int store_next_headed(Store* s, uint64_t start, uint64_t last, Record* out) noexcept nogil:
    cdef uint32_t bi, i, length
    cdef const uint8_t* p
    cdef Block* b
    start = max(start, s.first_seq)
    bi = block_from(s, start) if s.msgs else s.n_blocks
    while bi < s.n_blocks:
        b = block_i(s, bi)
        bi += 1
        if b.base > last:
            break
        p = block_data(b) if b.live else NULL
        if p == NULL:
            continue
        i = st_first_live(b.off, slot_from(b, start), b.n)
        while i < b.n:
            if seq_at(b, i) > last:
                return ST_NOT_FOUND
            memcpy(&length, p + b.off[i] - 1, 4)
            if length & HAS_HEADER and slot_load(s, b, i, out) == ST_OK:
                return ST_OK
            i = st_first_live(b.off, i + 1, b.n)
    return ST_NOT_FOUND


cdef uint64_t next_any(Store* s, uint64_t start) noexcept nogil:
    cdef uint32_t bi, i
    cdef Block* b
    if start <= s.first_seq:
        return s.first_seq if s.msgs else 0
    if start > s.last_seq:
        return 0
    b = s.memo_block
    if b != NULL and b.base <= start <= b.last:
        i = st_first_live(b.off, slot_from(b, start), b.n)
        if i < b.n:
            return seq_at(b, i)
        start = b.last + 1
    bi = block_from(s, start)
    while bi < s.n_blocks:
        b = block_i(s, bi)
        if b.live:
            i = st_first_live(b.off, slot_from(b, start), b.n)
            if i < b.n:
                s.memo_block = b
                return seq_at(b, i)
        bi += 1
    return 0


cdef uint64_t next_by_text(Store* s, const Filter* filter, uint64_t* start, uint64_t tries) noexcept nogil:
    # Without a set of ids: looks at the subjects of `tries` messages. Start becomes what is not looked at, 0 at the end.
    cdef uint64_t seq = next_any(s, start[0])
    while seq and tries:
        if filter_matches(filter, store_subject(s, seq)):
            return seq
        start[0] = seq + 1
        seq = next_any(s, seq + 1)
        tries -= 1
    if seq == 0:
        start[0] = 0
    return 0


cdef inline bint asked_first(const Filter* f) noexcept nogil:
    # Whether this is one of a filter's first questions: the set of what it matches may never pay.
    if f.cache != NULL or f.asked >= FEW_ASKS:
        return False
    (<Filter*>f).asked += 1
    return True


cdef int store_next_some(Store* s, const Filter* filter, uint64_t* start, uint64_t* seq) noexcept nogil:
    cdef IdSet* c = NULL
    cdef uint32_t id
    cdef int rc
    seq[0] = 0
    if matches_all(filter):
        seq[0] = next_any(s, start[0])
        return ST_OK
    if start[0] > s.last_seq or s.msgs == 0:
        return ST_OK
    if filter.literal:
        id = index_find(&s.x, filter.patterns[0])
        seq[0] = next_of_id(s, id, start[0]) if id else 0
        return ST_OK
    start[0] = max(start[0], s.first_seq)
    if asked_first(filter):
        seq[0] = next_by_text(s, filter, start, FEW_SLOTS)
        if seq[0] or start[0] == 0:
            return ST_OK
    rc = ids_step(s, filter, &c)
    if rc == 1:
        return 1
    if rc < 0:
        seq[0] = next_by_text(s, filter, start, TEXT_SLOTS)
        return seq[0] == 0 and start[0] != 0
    if c.covers:
        seq[0] = next_any(s, start[0])
        return ST_OK
    return ST_OK if next_of_set(s, c, start, seq) else 1


cdef uint64_t store_next_seq(Store* s, const Filter* filter, uint64_t start) noexcept nogil:
    cdef uint64_t seq
    while store_next_some(s, filter, &start, &seq) == 1:
        pass
    return seq


# ---- last of --------------------------------------------------------------------------------------------------

cdef uint64_t store_last_of(Store* s, Span literal) noexcept nogil:
    cdef uint32_t id = index_find(&s.x, literal)
    if id == 0 or node_at(&s.x, id).count == 0:
        return 0
    return node_at(&s.x, id).last


cdef bint store_is_last(Store* s, uint64_t seq) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    return i >= 0 and b.off[i] != 0 and node_at(&s.x, b.sid[i]).last == seq


cdef void store_ahead(Store* s, uint64_t seq) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    cdef Node* n
    if i >= 0 and b.off[i]:
        if b.data != NULL:
            st_prefetch(b.data + b.off[i] - 1)
        n = node_at(&s.x, b.sid[i])
        st_prefetch(text_at(&s.x, n.text))
        if s.x.slots != NULL:
            st_prefetch(&s.x.slots[n.hash >> (32 - s.x.bits)])


cdef uint64_t store_count_of(Store* s, Span literal) noexcept nogil:
    cdef uint32_t id = index_find(&s.x, literal)
    return node_at(&s.x, id).count if id else 0


cdef uint64_t last_by_text(Store* s, const Filter* filter, uint32_t tries) noexcept nogil:
    # The newest of the last messages, at most `tries`, that matches (NULL: any); 0 when none does.
    cdef uint32_t bi = s.n_blocks, i
    cdef Block* b
    while bi and s.msgs:
        bi -= 1
        b = block_i(s, bi)
        i = b.n if b.live else 0
        while i and tries:
            i -= 1
            if b.off[i]:
                tries -= 1
                if filter == NULL or filter_matches(filter, node_text(&s.x, b.sid[i])):
                    return seq_at(b, i)
    return 0


cdef uint64_t newest_of_set(Store* s, const IdSet* c) noexcept nogil:
    cdef uint64_t newest = 0, bits
    cdef uint32_t k, w
    cdef Node* n
    for k in range(c.n_pages):
        for w in range(64 if c.pages[k] != NULL else 0):
            bits = c.pages[k][w]
            while bits:
                n = node_at(&s.x, k << 12 | w << 6 | low_bit(bits))
                newest = max(newest, n.last if n.count else 0)
                bits &= bits - 1
    return newest


cdef uint64_t back_of_set(Store* s, const IdSet* c, uint64_t* before, uint64_t down_to, uint32_t* limit) noexcept nogil:
    # Looks at the slots back from below `before`, at most `limit`, to `down_to`; these become what is left to look at.
    cdef uint32_t bi = min(block_from(s, before[0]) + 1, s.n_blocks), i
    cdef Block* b
    while bi:
        bi -= 1
        b = block_i(s, bi)
        i = slot_from(b, before[0]) if b.live else 0
        while i > b.head:
            if seq_at(b, i - 1) < down_to:
                return 0
            if limit[0] == 0:
                return 0
            i -= 1
            limit[0] -= 1
            before[0] = seq_at(b, i)
            if b.off[i] and st_has(c.pages, c.n_pages, b.sid[i]):
                return before[0]
    return 0


cdef int store_last_some(Store* s, const Filter* filter, LastLook* look, uint64_t* seq) noexcept nogil:
    cdef uint32_t left = SCAN_SLOTS
    cdef uint64_t before
    cdef IdSet* c = NULL
    cdef int rc
    if matches_all(filter) or s.msgs == 0:
        seq[0] = last_by_text(s, NULL, 1)
        return ST_OK
    if filter.literal:
        seq[0] = store_last_of(s, filter.patterns[0])
        return ST_OK
    if asked_first(filter):
        seq[0] = last_by_text(s, filter, FEW_SLOTS)
        if seq[0]:
            return ST_OK
    rc = ids_step(s, filter, &c)
    if rc == 1:
        return 1
    if rc < 0:
        seq[0] = last_by_text(s, filter, 0xffffffffU)
        return ST_OK
    if c.covers or c.n_ids <= FEW_IDS:
        seq[0] = last_by_text(s, NULL, 1) if c.covers else newest_of_set(s, c)
        return ST_OK
    if look.top == 0 or look.top > s.last_seq:
        look.before = s.last_seq + 1
    elif look.top < s.last_seq:     # what came since the last piece goes first
        before = s.last_seq + 1
        seq[0] = back_of_set(s, c, &before, look.top + 1, &left)
        if seq[0]:
            return ST_OK
        if left == 0:
            look.top = 0
            return 1
    look.top = s.last_seq
    seq[0] = back_of_set(s, c, &look.before, 0, &left)
    return seq[0] == 0 and left == 0


cdef uint64_t store_last_match(Store* s, const Filter* filter) noexcept nogil:
    cdef LastLook look
    cdef uint64_t seq = 0
    memset(&look, 0, sizeof(LastLook))
    while store_last_some(s, filter, &look, &seq) == 1:
        pass
    return seq


# ---- counts from a sequence on ----------------------------------------------------------------------------------

cdef struct Tally:
    # What to count: all, one id, or a set.
    bint all
    bint one
    uint32_t id
    IdSet* set


cdef inline uint32_t tally(const Tally* t, const Block* b, uint32_t i, uint32_t n) noexcept nogil:
    if t.all:
        return b.live if i <= b.head and n == b.n else st_count_live(b.off, i, n)
    if t.one:
        return st_count_id(b.sid, b.off, i, n, t.id)
    return st_count_set(t.set.pages, t.set.n_pages, b.sid, b.off, i, n)


cdef struct Later:
    Store* s
    uint64_t start
    uint64_t n


cdef int later_visit(void* ctx, Index* x, uint32_t id) noexcept nogil:
    # Counts the messages of a subject from a sequence on, along its chain.
    cdef Later* later = <Later*>ctx
    cdef Node* n = node_at(x, id)
    cdef Block* b
    cdef uint64_t seq
    if later.start <= n.first:
        later.n += n.count
        return 0
    seq = next_of_id(later.s, id, later.start)
    while seq:
        later.n += 1
        b = block_of(later.s, seq)
        seq = chain_next(later.s, b, <uint32_t>slot_of(b, seq), id)
    return 0


cdef bint store_pending_soon(Store* s, const Filter* filter, uint64_t start, uint64_t* n) noexcept nogil:
    cdef uint64_t left = IDS_FIRST, total = index_total(&s.x, filter, &left), at = start
    cdef Node* node
    cdef Later later
    n[0] = 0
    if left == 0:
        return False
    if start <= s.first_seq or total == 0:
        n[0] = total
        return True
    if start > s.last_seq:
        return True
    if not matches_all(filter) and filter.literal:
        node = node_at(&s.x, index_find(&s.x, filter.patterns[0]))
        if start <= node.first or start > node.last:
            n[0] = total if start <= node.first else 0
            return True
    if not matches_all(filter) and total <= IDS_FIRST and total * 64 < s.last_seq - s.first_seq:    # few: walk along them
        memset(&later, 0, sizeof(later))
        later.s = s
        later.start = start
        index_each(&s.x, filter, later_visit, &later, &left)
        n[0] = later.n
        return left != 0
    return store_count_some(s, filter, &at, s.last_seq + 1, n) != 1


cdef int count_by_text(Store* s, const Filter* filter, uint64_t* at, uint64_t end, uint64_t* n) noexcept nogil:
    cdef uint32_t left = TEXT_SLOTS
    cdef uint64_t seq
    while left:
        left -= 1
        seq = next_any(s, at[0])
        if seq == 0 or seq >= end:
            return ST_OK
        n[0] += filter_matches(filter, store_subject(s, seq))
        at[0] = seq + 1
    return 1


cdef int store_count_some(Store* s, const Filter* filter, uint64_t* at, uint64_t end, uint64_t* n) noexcept nogil:
    cdef uint32_t bi, i, k, left = SCAN_SLOTS
    cdef Tally t
    cdef Block* b
    cdef int rc = ST_OK
    if at[0] >= end or s.msgs == 0:
        return ST_OK
    memset(&t, 0, sizeof(t))
    t.all = matches_all(filter)
    if not t.all and filter.literal:
        t.one = True
        t.id = index_find(&s.x, filter.patterns[0])
        if t.id == 0:
            return ST_OK
    elif not t.all:
        rc = ids_step(s, filter, &t.set)
        if rc == 1:
            return 1
        if rc < 0:
            return count_by_text(s, filter, at, end, n)
        t.all = t.set.covers
    bi = block_from(s, at[0])
    while bi < s.n_blocks and left:
        b = block_i(s, bi)
        bi += 1
        if b.base >= end:
            return ST_OK
        i = max(slot_from(b, at[0]), b.head) if b.live else b.n
        k = slot_from(b, end)
        if i < k and not (t.all and i <= b.head and k == b.n):
            k = min(k, i + left)
            left -= k - i
        else:
            left -= min(left, <uint32_t>64)
        if i < k:
            n[0] += tally(&t, b, i, k)
        if k < b.n:
            at[0] = max(at[0], seq_at(b, k))
            if at[0] >= end:
                return ST_OK
            bi -= 1
        else:
            at[0] = max(at[0], b.last + 1)
    return 1 if bi < s.n_blocks else ST_OK


cdef uint64_t store_pending(Store* s, const Filter* filter, uint64_t start) noexcept nogil:
    cdef uint64_t n
    if store_pending_soon(s, filter, start, &n):
        return n
    n = 0
    while store_count_some(s, filter, &start, s.last_seq + 1, &n) == 1:
        pass
    return n


# ---- by time, lists -------------------------------------------------------------------------------------------------

cdef uint64_t store_seq_at(Store* s, int64_t ts) noexcept nogil:
    cdef uint32_t bi, lo, hi, mid, i
    cdef Block* b
    for bi in range(s.n_blocks):
        b = block_i(s, bi)
        if b.live == 0 or b.last_ts < ts:
            continue
        lo = b.head
        hi = b.n
        while lo < hi:      # over live slots: a removed one is judged by the next live
            mid = (lo + hi) >> 1
            i = st_first_live(b.off, mid, hi)
            if i == hi:
                hi = mid
            elif ts_of(b, i) < ts:
                lo = i + 1
            else:
                hi = mid
        i = st_first_live(b.off, lo, b.n)
        if i < b.n:
            return seq_at(b, i)
    return s.last_seq + 1


cdef uint64_t behind_run(const Block* b, uint64_t seq) noexcept nogil:
    # The first sequence behind this one, of a message, that the block does not have as a message.
    cdef uint32_t i
    if b == NULL or seq < b.base or seq > b.last:
        return seq + 1
    if b.live == b.last + 1 - b.base:
        return b.last + 1
    i = slot_from(b, seq)
    while i < b.n and b.off[i] and seq_at(b, i) == seq:
        i += 1
        seq += 1
    return seq


cdef uint64_t store_deleted(Store* s, uint64_t start, uint64_t* out, uint64_t cap) noexcept nogil:
    cdef uint64_t seq = max(start, s.first_seq), n = 0, live
    while seq <= s.last_seq and n < cap:
        live = next_any(s, seq)
        if live == 0:
            live = s.last_seq + 1
        while seq < live and n < cap:
            out[n] = seq
            n += 1
            seq += 1
        if seq == live:
            seq = behind_run(s.memo_block, seq)
    return n
