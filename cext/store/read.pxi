# Questions to the store. None changes it, but for caches.

cdef void store_state(Store* s, StoreState* out) noexcept nogil:
    out.msgs = s.msgs
    out.bytes = s.bytes
    out.first_seq = s.first_seq
    out.first_ts = first_time(s)
    out.last_seq = s.last_seq
    out.last_ts = s.last_ts
    out.num_subjects = s.x.n_subjects
    out.num_deleted = s.last_seq + 1 - s.first_seq - s.msgs


cdef uint64_t store_ticket(Store* s) noexcept nogil:
    return s.shared.ticket


cdef uint64_t store_durable_ticket(Store* s) noexcept nogil:
    return s.shared.ticket if s.storage == STORE_MEMORY else s.durable_ticket


cdef uint64_t store_durable_seq(Store* s) noexcept nogil:
    return s.last_seq if s.storage == STORE_MEMORY else s.durable_seq


cdef bint store_is_synced(const Store* s) noexcept nogil:
    return s.storage == STORE_FILE and s.com.sync_interval <= 0


cdef Span store_subject(Store* s, uint64_t seq) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    if i < 0 or b.off[i] == 0:
        return span(NULL, 0)
    return node_text(&s.x, b.sid[i])


cdef bint slot_fits(Store* s, Block* b, uint32_t i, const uint8_t* bytes, Parsed* r) noexcept nogil:
    """Whether the record of that slot stands in the block's bytes. Its checksum leaves the lengths out, so these are compared
    with what the index knows of the subject, and with where a header ends."""
    cdef const Node* node = node_at(&s.x, b.sid[i])
    cdef uint64_t at = b.off[i] - 1, used = st_load(&b.used)
    cdef const uint8_t* p = bytes + at
    st_prefetch(node)
    if at >= used or not record_parse(p, used - at, r) or r.raw_seq != seq_at(b, i) or not record_good(b.key, p, r):
        return False
    return node.len == r.subject.n and (not r.headed or header_ends(r) or header_vouched(b, bytes, at))


cdef bint header_vouched(Block* b, const uint8_t* bytes, uint64_t at) noexcept nogil:
    """Of a record whose header does not show its end: whether the group's marker says that its lengths are right."""
    if b.region:
        return True
    if b.vouched == 0:
        b.vouched = 1 if groups_fit(b.key, bytes, b.used, UINT64_MAX, True) else 2
    return b.vouched == 1 or groups_fit(b.key, bytes, b.used, at, True)


cdef inline bint slot_ours(const Block* b, uint32_t i) noexcept nogil:
    """Whether the slot's record stands in memory as it was staged, not in a file."""
    return b.region and b.off[i] > b.lean


cdef int slot_load(Store* s, Block* b, uint32_t i, Record* out) noexcept nogil:
    cdef const uint8_t* p = block_data(b)
    cdef uint64_t at = b.off[i] - 1
    cdef Parsed r
    out.seq = seq_at(b, i)
    if p == NULL:
        return ST_IO
    if slot_ours(b, i):
        record_parse(p + at, st_load(&b.used) - at, &r)
    elif not slot_fits(s, b, i, p, &r):
        slot_damaged(s, b, i)
        return ST_DAMAGED
    out.ts = r.ts
    out.subject = r.subject
    out.header = r.header
    out.data = r.data
    return ST_OK


cdef int store_load_warm(Store* s, uint64_t seq, Record* out, Wait* w) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    cdef int rc
    if i < 0 or b.off[i] == 0:
        return ST_NOT_FOUND
    if w != NULL and not block_warm(s, b, <uint32_t> i):
        wait_begin(s, b, w)
        out.seq = seq
        return ST_WAIT
    if i == 0:
        trail_drop(s, b)                # readers side by side find the next block mapped
    rc = slot_load(s, b, <uint32_t> i, out)
    if rc == ST_OK and b.in_lru:
        behind_drop(b, b.off[i] - 1, <uint64_t> (out.data.p + out.data.n - b.data))
    return rc


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


cdef uint64_t next_of_id(Store* s, uint32_t id, uint64_t start) noexcept nogil:
    """The first message of a subject from a sequence on: along its chain if it is sparse, else by scanning."""
    cdef Node* n = node_at(&s.x, id)
    cdef uint64_t seq, steps
    cdef Block* b
    cdef int64_t i
    if n.count == 0 or n.last < start:
        return 0
    if start <= n.first:
        return n.first
    if start == n.last:
        return start
    b = block_of(s, start - 1)      # a consumer asks right behind the message it had
    i = slot_of(b, start - 1) if b != NULL else -1
    if i >= 0 and b.sid[i] == id:
        return chain_next(s, b, <uint32_t> i, id)
    if <uint64_t> n.count * 128 > n.last - n.first:
        return scan_id(s, id, start)
    seq = n.first
    steps = n.count
    while seq and seq < start and steps:
        b = block_of(s, seq)
        seq = chain_next(s, b, <uint32_t> slot_of(b, seq), id)
        steps -= 1
    return seq


cdef uint64_t next_by_text(Store* s, const Filter* filter, uint64_t* start, uint64_t tries) noexcept nogil:
    """Without a set of ids: looks at the subjects of `tries` messages. Start becomes what is not looked at, 0 at the end."""
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


cdef uint64_t pending_by_text(Store* s, const Filter* filter, uint64_t start) noexcept nogil:
    cdef uint64_t n = 0, seq = next_by_text(s, filter, &start, UINT64_MAX)
    while seq:
        n += 1
        start = seq + 1
        seq = next_by_text(s, filter, &start, UINT64_MAX)
    return n


cdef inline bint asked_first(const Filter* f) noexcept nogil:
    """Whether this is one of a filter's first questions: the set of what it matches may never pay."""
    if f.cache != NULL or f.asked >= FEW_ASKS:
        return False
    (<Filter*> f).asked += 1
    return True


cdef uint64_t store_next_seq(Store* s, const Filter* filter, uint64_t start) noexcept nogil:
    cdef IdSet* c
    cdef uint32_t id
    cdef uint64_t seq
    if matches_all(filter):
        return next_any(s, start)
    if start > s.last_seq or s.msgs == 0:
        return 0
    if filter.literal:
        id = index_find(&s.x, filter.patterns[0])
        return next_of_id(s, id, start) if id else 0
    start = max(start, s.first_seq)
    if asked_first(filter):
        seq = next_by_text(s, filter, &start, FEW_SLOTS)
        if seq or start == 0:
            return seq
    c = filter_ids(s, filter)
    if c == NULL:
        return next_by_text(s, filter, &start, UINT64_MAX)
    return next_any(s, start) if c.covers else next_of_set(s, c, start)


# ---- last of --------------------------------------------------------------------------------------------------

cdef uint64_t store_last_of(Store* s, Span literal) noexcept nogil:
    cdef uint32_t id = index_find(&s.x, literal)
    if id == 0 or node_at(&s.x, id).count == 0:
        return 0
    return node_at(&s.x, id).last


cdef uint64_t store_count_of(Store* s, Span literal) noexcept nogil:
    cdef uint32_t id = index_find(&s.x, literal)
    return node_at(&s.x, id).count if id else 0


cdef int newest_visit(void* ctx, Index* x, uint32_t id) noexcept nogil:
    if node_at(x, id).last > (<uint64_t*> ctx)[0]:
        (<uint64_t*> ctx)[0] = node_at(x, id).last
    return 0


cdef uint64_t last_by_text(Store* s, const Filter* filter, uint32_t tries) noexcept nogil:
    """The newest of the last messages, at most `tries`, that matches (NULL: any); 0 when none does."""
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


cdef uint64_t store_last_match(Store* s, const Filter* filter) noexcept nogil:
    cdef uint64_t newest = 0
    cdef uint32_t bi = s.n_blocks, i, tries = 0
    cdef IdSet* c
    cdef Block* b
    if matches_all(filter):
        return last_by_text(s, NULL, 1)
    if filter.literal:
        return store_last_of(s, filter.patterns[0])
    if asked_first(filter):
        newest = last_by_text(s, filter, FEW_SLOTS)
        if newest:
            return newest
    c = filter_ids(s, filter)
    if c != NULL and c.covers:
        return last_by_text(s, NULL, 1)
    if c != NULL and c.n_ids > FEW_IDS:     # many subjects: the newest is likely near the end
        while bi and tries < 100000:
            bi -= 1
            b = block_i(s, bi)
            i = b.n if b.live else 0
            tries += i
            while i:
                i -= 1
                if b.off[i] and st_has(c.pages, c.n_pages, b.sid[i]):
                    return seq_at(b, i)
    index_each(&s.x, filter, newest_visit, &newest)
    return newest


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
    """Counts the messages of a subject from a sequence on, along its chain."""
    cdef Later* later = <Later*> ctx
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
        seq = chain_next(later.s, b, <uint32_t> slot_of(b, seq), id)
    return 0


cdef uint64_t store_pending(Store* s, const Filter* filter, uint64_t start) noexcept nogil:
    cdef uint64_t total = index_total(&s.x, filter), n = 0
    cdef uint32_t bi, k
    cdef Tally t
    cdef Block* b
    cdef bint tail_side
    cdef Node* node
    cdef Later later
    if start <= s.first_seq or total == 0:
        return total
    if start > s.last_seq:
        return 0
    memset(&t, 0, sizeof(t))
    t.all = matches_all(filter)
    if not t.all and total * 64 < s.last_seq - s.first_seq:     # few: walk along them
        memset(&later, 0, sizeof(later))
        later.s = s
        later.start = start
        index_each(&s.x, filter, later_visit, &later)
        return later.n
    if not t.all and filter.literal:
        t.one = True
        t.id = index_find(&s.x, filter.patterns[0])
        node = node_at(&s.x, t.id)
        if start <= node.first:
            return total
        if start > node.last:
            return 0
    elif not t.all:
        t.set = filter_ids(s, filter)
        if t.set == NULL:
            return pending_by_text(s, filter, start)
        t.all = t.set.covers
    tail_side = s.last_seq - start < start - s.first_seq
    bi = block_from(s, start)
    if tail_side:
        for k in range(bi, s.n_blocks):
            b = block_i(s, k)
            if b.live:
                n += tally(&t, b, slot_from(b, start) if k == bi else 0, b.n)
        return n
    for k in range(min(bi + 1, s.n_blocks)):
        b = block_i(s, k)
        if b.live:
            n += tally(&t, b, b.head, slot_from(b, start))
    return total - n


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
            seq += 1
    return n
