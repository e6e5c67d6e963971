# What vouches for the heads of records and for what their checksums leave out: the sequences of their neighbours, and how many
# records their group's marker counts, and their lengths.
#
# A record with a damaged place still has a head, its length and its sequence, and mostly these are as they were: where an
# erasure was torn they always are. They are believed where they fit their neighbours and the group has as many records as its
# marker says. Otherwise one of them may have swallowed others. Where a marker does not vouch for every byte of its group, records
# that are whole may stand where they do not belong: their sequences do not ascend, and they count for bytes that say nothing.

# ---- sequences ------------------------------------------------------------------------------------------------------

cdef uint64_t seq_above(Scan* c, uint64_t at) noexcept nogil:
    # A sequence that is higher than those of all messages before `at`, by what stands there. 0: nothing says one.
    cdef Parsed r
    cdef Mark m
    while at + REC_MIN <= c.size and good_at(c, at, &r):
        if not r.raw_seq & TOMB:
            return r.seq
        if marker_read(c.p + at, &r, &m):
            return m.extent.last + 1 if m.extent.last else 0
        at += r.size
    return 0


cdef uint64_t held_seq(const Scan* c, uint32_t i) noexcept nogil:
    # The sequence of a message that is held; 0: it is none.
    cdef uint64_t seq
    if is_hole(&c.held[i]):
        return 0
    seq = st_get64(c.p + c.held[i].at + 4)
    return 0 if seq & TOMB else seq & ~ERASED


cdef uint64_t seq_below(const Scan* c) noexcept nogil:
    # The highest sequence that is known of the messages before c.at.
    cdef uint32_t i = c.n_held
    while i:
        i -= 1
        if held_seq(c, i):
            return max(held_seq(c, i), c.s.last_seq)
    return c.s.last_seq


# ---- heads ----------------------------------------------------------------------------------------------------------

cdef bint heads_fit(Scan* c, uint64_t end) noexcept nogil:
    # Whether the bytes from c.at to `end` are messages by their lengths and sequences, which lie between those of their
    # neighbours.
    cdef uint64_t at = c.at, size, seq, last = seq_below(c), above = seq_above(c, end)
    while at < end and at + REC_MIN <= c.size:
        size = st_get32(c.p + at) & 0x7fffffff
        seq = st_get64(c.p + at + 4) & ~ERASED
        if size < REC_MIN or size > end - at or not last < seq < above:
            return False
        last = seq
        at += size
    return at == end


cdef bint sequence_mend(Scan* c, uint64_t low, uint64_t high) noexcept nogil:
    # Whether the bytes at c.at are a record but for its sequence, which lies between these; it then is as it was.
    cdef uint8_t* p = c.p + c.at
    cdef uint64_t was = st_get64(p + 4), seq
    cdef Parsed r
    if not record_parse(p, c.size - c.at, &r):
        return False
    for seq in range(low, min(high, low + MEND_MAX)):
        if not paid(&c.search.tries, r.size):
            break
        st_put64(p + 4, seq)
        record_parse(p, c.size - c.at, &r)
        if record_good(c.b.key, p, &r):
            return True
    st_put64(p + 4, was)
    return False


cdef int hold_heads(Scan* c, uint64_t end) noexcept nogil:
    # 1, or an error.
    cdef uint64_t size, last = seq_below(c), above
    cdef int rc = ST_OK
    while rc == ST_OK and c.at < end:
        size = st_get32(c.p + c.at) & 0x7fffffff
        above = st_get64(c.p + c.at + size + 4) & ~ERASED if c.at + size < end else seq_above(c, end)
        rc = hold(c, size, HELD_LOST if sequence_mend(c, last + 1, above) else HELD_HEAD)
        last = st_get64(c.p + c.at + 4) & ~ERASED
        c.at += size
    c.end = c.at
    return 1 if rc == ST_OK else rc


cdef void heads_doubt(Scan* c, uint32_t first, uint32_t end) noexcept nogil:
    # No marker vouches for those of what is held from `first` to `end`: they say nothing. Neighbours make one hole.
    cdef uint32_t i, to
    cdef bint joins = False
    while first < end and c.held[first].why != HELD_HEAD:
        first += 1
    if first >= end:
        return
    to = first
    for i in range(first, c.n_held):
        if i < end and c.held[i].why == HELD_HEAD:
            if joins:
                c.held[to - 1].size += c.held[i].size
                continue
            joins = True
            c.held[i].why = HELD_HOLE
        else:
            joins = False
        c.held[to] = c.held[i]
        to += 1
    c.n_held = to


# ---- order ----------------------------------------------------------------------------------------------------------

cdef void too_low(Scan* c, uint32_t first, uint32_t end, uint64_t low, uint64_t high) noexcept nogil:
    # Messages from `first` to `end` whose sequences are within these are not of this place.
    cdef uint32_t i
    for i in range(first, end):
        if held_seq(c, i) and low <= held_seq(c, i) <= high:
            c.held[i].why = HELD_HOLE
            c.b.damaged = True


cdef void too_high(Scan* c, uint32_t first, uint32_t end, uint64_t above) noexcept nogil:
    # Nor are those from that sequence on, and tombstones for such.
    cdef uint32_t i
    for i in range(first, end):
        if not is_hole(&c.held[i]) and st_get64(c.p + c.held[i].at + 4) & ~(TOMB | ERASED) >= above:
            c.held[i].why = HELD_HOLE
            c.b.damaged = True


cdef uint64_t lowest(const Scan* c, uint32_t first, uint64_t above) noexcept nogil:
    # The sequence of the first message that is held from `first` on, `above` if there is none.
    while first < c.n_held:
        if held_seq(c, first):
            return held_seq(c, first)
        first += 1
    return above


cdef bint cut_is_held(const Scan* c, uint32_t first, uint32_t end) noexcept nogil:
    # Whether there is a record behind which sequences begin again.
    cdef Parsed r
    cdef Cut cut
    cdef uint32_t i
    for i in range(first, end):
        if (c.held[i].why == 0 and st_get64(c.p + c.held[i].at + 4) == TOMB
                and record_parse(c.p + c.held[i].at, c.size - c.held[i].at, &r) and cut_read(c.p + c.held[i].at, &r, &cut)):
            return True
    return False


cdef void order_check(Scan* c, uint32_t first, uint32_t end, uint64_t most) noexcept nogil:
    # Sequences ascend, and of a group none is above that which its marker names, `most`, nor as low as those before it. Where
    # one falls back, the fewer are misplaced: those before that are higher, or those from there on that are lower. most: 0, if
    # there is no marker: then what is as low as those before may be there once more.
    cdef uint64_t seq, last = c.s.last_seq, floor = c.s.last_seq
    cdef uint32_t i = first, k, higher, lower
    if cut_is_held(c, first, end):
        return
    if most:
        too_high(c, first, end, most + 1)
        too_low(c, first, end, 1, floor)
    while i < end:
        seq = held_seq(c, i)
        if seq > last or seq <= floor:
            last = max(last, seq)
            i += 1
            continue
        higher = 0
        lower = 0
        for k in range(first, i):
            higher += held_seq(c, k) >= seq
        k = i
        while k < end and held_seq(c, k) <= last:
            lower += held_seq(c, k) > floor
            k += 1
        if not paid(&c.search.lengths, k - first):
            return
        if higher <= lower:
            too_high(c, first, i, seq)
            last = seq
        else:
            too_low(c, i, k, floor + 1, last)
        i = k if higher > lower else i + 1


# ---- groups ---------------------------------------------------------------------------------------------------------

cdef bint lengths_try(Scan* c, Held* h, uint64_t missing, bint every) noexcept nogil:
    # Whether another value of one of the lengths that this record's checksum leaves out makes the digest fit; it then stays
    # so. Every value is tried, or those that differ in one bit. What misses a record that cannot be parsed misses all of it.
    cdef uint8_t* p = c.p + h.at
    cdef Parsed r
    cdef uint32_t sub = st_get16(p + 20), header, k, n
    cdef uint64_t was, size = h.size
    cdef bint headed
    was = record_mark(p, &r, h.at) if record_parse(p, c.size - h.at, &r) else 0
    n = <uint32_t>min(size, <uint64_t>0x10000) if every else 16
    if every and not paid(&c.search.lengths, n + size):
        return False
    for k in range(n):
        st_put16(p + 20, <uint16_t>(k if every else sub ^ <uint32_t>1 << k))
        if record_parse(p, c.size - h.at, &r) and record_mark(p, &r, h.at) - was == missing:
            return True
    st_put16(p + 20, <uint16_t>sub)
    headed = st_get32(p) & HAS_HEADER != 0
    if not headed or HEAD + <uint64_t>sub + 4 > size:
        return False
    header = st_get32(p + HEAD + sub)
    n = <uint32_t>size if every else 32
    for k in range(n):
        st_put32(p + HEAD + sub, k if every else header ^ <uint32_t>1 << k)
        if record_parse(p, c.size - h.at, &r) and record_mark(p, &r, h.at) - was == missing:
            return True
    st_put32(p + HEAD + sub, header)
    return False


cdef bint lengths_mend(Scan* c, uint32_t first, uint64_t missing) noexcept nogil:
    # Whether the lengths of one of what is held from `first` on were changed, by what its group's digest misses. That one
    # is not served.
    cdef uint32_t i
    cdef int every
    for every in range(2):
        for i in range(first, c.n_held):
            if lengths_try(c, &c.held[i], missing, every != 0):
                c.held[i].why = HELD_LOST
                c.b.damaged = True
                return True
    return False


cdef struct GroupTally:
    # Of what is held of a group.
    uint32_t first
    uint32_t n                  # records
    uint32_t holes
    uint64_t sum
    bint gone                   # some do not say what they were
    bint vague                  # some may not


cdef GroupTally group_tally(const Scan* c, const Mark* m) noexcept nogil:
    cdef GroupTally t
    cdef Parsed r
    cdef const Held* h
    memset(&t, 0, sizeof(GroupTally))
    t.first = c.n_held
    while t.first and c.held[t.first - 1].at >= m.start:
        t.first -= 1
        h = &c.held[t.first]
        if is_hole(h):
            t.holes += 1
            continue
        t.n += 1
        t.gone = t.gone or h.why == HELD_GONE
        t.vague = t.vague or h.why == HELD_HEAD
        if h.why != HELD_GONE and record_parse(c.p + h.at, c.size - h.at, &r):
            t.vague = t.vague or r.raw_seq & ERASED != 0
            t.sum += record_mark(c.p + h.at, &r, h.at)
    return t


cdef void holes_join(Scan* c, uint32_t first) noexcept nogil:
    # From the first hole of what is held from there on to the last one all is one: between them stand records that are none.
    cdef uint32_t last = c.n_held - 1
    cdef Held* hole
    while not is_hole(&c.held[first]):
        first += 1
    while not is_hole(&c.held[last]):
        last -= 1
    hole = &c.held[first]
    hole.size = c.held[last].at + c.held[last].size - hole.at
    hole.why = HELD_HOLE
    memmove(hole + 1, &c.held[last + 1], <size_t>(c.n_held - last - 1) * sizeof(Held))
    c.n_held -= last - first


cdef void group_check(Scan* c, const Mark* m) noexcept nogil:
    # What is held from m.start on is the marker's group: whether its records are as many, and their lengths what they were.
    cdef GroupTally t = group_tally(c, m)
    cdef uint32_t i
    cdef bint summed = m.flags & MARK_SUM != 0
    if summed and t.n == m.count and t.sum == m.digest and t.holes == 0:
        if t.first:
            too_high(c, 0, t.first, lowest(c, t.first, m.extent.last + 1 if m.count else UINT64_MAX))
            order_check(c, 0, t.first, 0)
            heads_doubt(c, 0, t.first)
        return
    # A block that both servers wrote to, and that was compacted, may have more than our markers knew of.
    order_check(c, 0, c.n_held, m.extent.last if m.count and m.flags & MARK_WHOLE == 0 else 0)
    t = group_tally(c, m)
    if summed and t.holes and t.n + t.holes > m.count:
        holes_join(c, t.first)
        t = group_tally(c, m)
    if t.n != m.count:
        heads_doubt(c, t.first, c.n_held)
    elif summed and t.sum != m.digest and t.holes == 0 and not t.gone:
        if not lengths_mend(c, t.first, m.digest - t.sum) and not t.vague:
            c.b.damaged = True
            for i in range(t.first, c.n_held):
                c.held[i].why = HELD_LOST
    heads_doubt(c, 0, t.first)


cdef inline bint is_hole(const Held* h) noexcept nogil:
    return h.why == HELD_HOLE or h.why == HELD_TORN


cdef int hold(Scan* c, uint64_t size, int why) noexcept nogil:
    if array_room(&c.held, &c.cap_held, <uint64_t>c.n_held + 1, sizeof(Held), 64) < 0:
        return ST_NO_MEMORY
    c.held[c.n_held].at = c.at
    c.held[c.n_held].size = size
    c.held[c.n_held].why = why
    c.n_held += 1
    return ST_OK


cdef bint erasure_torn(Scan* c) noexcept nogil:
    # Whether the bytes at c.at are a message that is removed further on, behind which the next record or another such
    # message follows: its length and its sequence are the same before and after it is overwritten, the rest is either.
    cdef Search* k = &c.search
    cdef uint64_t at = c.at, size, seq, last, above
    cdef Parsed r
    if at < k.erased_to:
        return True
    last = seq_below(c)
    while at + REC_MIN <= c.size:
        if at > c.at and good_at(c, at, &r):
            above = seq_above(c, at)
            if above and last >= above:
                return False        # a sequence was changed
            k.erased_to = at
            return True
        size = st_get32(c.p + at) & 0x7fffffff
        seq = st_get64(c.p + at + 4) & ~ERASED
        if (size < REC_MIN or size > c.size - at or seq & TOMB or seq <= last or not removed_behind(k, seq, at + size)
                or not paid(&k.work, size) or swallows(c, at, at + size)):
            return False
        last = seq
        at += size
    return False


cdef bint removed_behind(const Search* k, uint64_t seq, uint64_t at) noexcept nogil:
    # Whether a tombstone from `at` on says that this message was removed.
    cdef uint32_t lo = 0, hi = k.n_removals, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if k.removals[mid].seq < seq or k.removals[mid].seq == seq and k.removals[mid].at < at:
            lo = mid + 1
        else:
            hi = mid
    return lo < k.n_removals and k.removals[lo].seq == seq
