# Finding the way on in a block with damaged places: where the next record starts, which bit of one was changed, and what
# stands further on that says what the damaged bytes were.
#
# All of it together takes time in proportion to the block, however many places are damaged: what stands further on is
# looked up once, and bytes that only look like a record are hashed as long as the budgets last. Their lengths may be
# chance, or written to mislead: each could claim the rest of the block. When a budget is used up, markers are still found.

cdef enum:
    MEND_MAX = 4096             # records up to here are searched for a changed bit in all their bytes
    ANY_SIZE = 65536            # records up to here are checked at every place where one should be
    SHORT = 128                 # no tombstone and no marker is longer
    FOLLOWED = 4                # heads in a row that are more than chance

cdef uint64_t NEARBY = 1ULL << 40       # no farther apart are the sequences of a block


cdef void search_begin(Scan* c) noexcept nogil:
    c.search.work = c.size * 32 + (1 << 24)
    c.search.doubtful = c.search.work
    c.search.unlikely = c.search.work
    c.search.tries = c.search.work
    c.search.lengths = c.size * 2 + (1 << 22)
    c.search.inside = c.size * 16 + (1 << 22)
    c.search.seq = c.s.last_seq


cdef bint paid(uint64_t* purse, uint64_t bytes) noexcept nogil:
    # Whether there is so much left of a budget, which is then spent.
    if purse[0] < bytes:
        return False
    purse[0] -= bytes
    return True


# ---- the next record ------------------------------------------------------------------------------------------------

cdef bint plausible(const Parsed* r, uint64_t near) noexcept nogil:
    # Whether what was parsed has the form of a record of a block with a sequence like this one.
    if r.raw_seq & (TOMB | ERASED) and (r.subject.n or r.headed):
        return False
    if r.raw_seq & TOMB and r.size > SHORT or r.seq == 0 and r.raw_seq != TOMB:
        return False
    return r.seq == 0 or r.seq - near + NEARBY < 2 * NEARBY


cdef bint followed(const Scan* c, uint64_t at) noexcept nogil:
    # Whether that is so here, and of what seems to stand behind it, or nothing does.
    cdef Parsed r
    cdef int i
    for i in range(FOLLOWED):
        if at + REC_MIN > c.size:
            return i > 0 and at == c.size
        if st_get32(c.p + at) == 0:
            return i > 0 and st_get64(c.p + c.size - 8) == 0        # written ahead
        if not record_parse(c.p + at, c.size - at, &r) or not plausible(&r, c.search.seq):
            return False
        at += r.size
    return True


cdef inline bint fits_or_costs(Scan* c, uint64_t at, const Parsed* r, uint64_t* purse) noexcept nogil:
    # Whether the checksum of what was parsed here fits; hashing what does not is paid for.
    if record_good(c.b.key, c.p + at, r):
        c.search.seq = r.seq if r.seq else c.search.seq
        return True
    purse[0] -= min(purse[0], <uint64_t>r.size)
    return False


cdef bint good_at(Scan* c, uint64_t at, Parsed* r) noexcept nogil:
    # Whether a good record stands where one should.
    cdef uint64_t* purse = &c.search.work
    if not record_parse(c.p + at, c.size - at, r):
        return False
    if r.size > ANY_SIZE and c.search.begun:
        purse = &c.search.work if plausible(r, c.search.seq) else &c.search.unlikely
        if r.size > purse[0]:
            return False
    return fits_or_costs(c, at, r, purse)


cdef bint found_at(Scan* c, uint64_t at, uint64_t sure) noexcept nogil:
    # Whether a good record stands where anything may: one that others follow, or a marker. With `sure`, where the next of
    # those begins, whether it is any other; what reaches beyond that is hardly one.
    cdef uint64_t* purse = &c.search.work
    cdef Parsed r
    cdef bint marker
    if at + REC_MIN > c.size or st_get32(c.p + at) == 0 or not record_parse(c.p + at, c.size - at, &r):
        return False
    marker = r.raw_seq == TOMB and r.size <= MARKER     # it costs little, and there is one behind every group
    if marker or followed(c, at):
        if sure:
            return False        # it was looked at
    elif sure == 0:
        return False
    else:
        purse = &c.search.doubtful if at + r.size <= sure and plausible(&r, c.search.seq) else &c.search.unlikely
    if r.size > purse[0] and not marker:
        return False
    return fits_or_costs(c, at, &r, purse)


cdef uint64_t next_good(Scan* c, uint64_t at) noexcept nogil:
    # Where the next record starts whose checksum fits; size when there is none.
    cdef Search* k = &c.search
    if not k.sure_from <= at <= k.sure:
        k.sure_from = at
        k.sure = at
        while k.sure + REC_MIN <= c.size and not found_at(c, k.sure, 0):
            k.sure += 1
        if k.sure + REC_MIN > c.size:
            k.sure = c.size
    while at < k.sure and not found_at(c, at, k.sure):
        at += 1
    return at


cdef bint leads_to(Scan* c, uint64_t at, uint64_t end) noexcept nogil:
    # Whether what stands from here to `end` has the form of records.
    cdef Parsed r
    while at < end:
        if not record_parse(c.p + at, end - at, &r) or not plausible(&r, c.search.seq) or not paid(&c.search.inside, 1):
            return False
        at += r.size
    return True


cdef bint swallows(Scan* c, uint64_t at, uint64_t end) noexcept nogil:
    # Whether a record of a damaged length, which would reach up to `end`, holds others that end there. What a payload
    # holds ends before, for its record's checksum follows.
    cdef Parsed r
    if not paid(&c.search.inside, end - at):
        return False
    at += 1
    while at + REC_MIN <= end:
        if leads_to(c, at, end) and good_at(c, at, &r):
            return True
        at += 1
    return False


cdef uint64_t behind_bad(Scan* c, uint64_t at) noexcept nogil:
    # Where to go on behind bytes that are no record.
    cdef Parsed r
    cdef uint64_t next
    if record_parse(c.p + at, c.size - at, &r) and at + r.size + REC_MIN <= c.size:
        next = at + r.size
        if good_at(c, next, &r) and not swallows(c, at, next):      # its length is as it was
            return next
    return next_good(c, at + 1)


# ---- a changed bit --------------------------------------------------------------------------------------------------

cdef bint bit_try(Scan* c, uint64_t bit, Parsed* r) noexcept nogil:
    # Whether the bytes at c.at are a good record with that bit changed; it then stays so.
    cdef uint8_t* p = c.p + c.at + (bit >> 3)
    cdef uint8_t mask = <uint8_t>(1 << (bit & 7))
    p[0] ^= mask
    # With another length, what follows has to fit it. Tombstones and markers are short: each of them is searched.
    if (record_parse(c.p + c.at, c.size - c.at, r) and (bit >= 32 or followed(c, c.at))
            and (r.size <= SHORT or paid(&c.search.tries, r.size)) and record_good(c.b.key, c.p + c.at, r)):
        return True
    p[0] ^= mask
    return False


cdef bint mend(Scan* c, Parsed* r) noexcept nogil:
    # Whether the bytes at c.at are a record but for one bit; r: as it was.
    cdef uint64_t bit, size = st_get32(c.p + c.at) & 0x7fffffff
    for bit in range(32):
        if bit_try(c, bit, r):
            return True
    if size < REC_MIN or size > c.size - c.at:
        return False
    for bit in range(32, min(size, <uint64_t>MEND_MAX) * 8):
        if size > SHORT and size > c.search.tries:
            return False
        if bit_try(c, bit, r):
            return True
    return False


# ---- what stands further on -----------------------------------------------------------------------------------------

cdef int compare_removals(const void* a, const void* b) noexcept nogil:
    cdef const Removal* x = <const Removal*>a
    cdef const Removal* y = <const Removal*>b
    if x.seq != y.seq:
        return -1 if x.seq < y.seq else 1
    return -1 if x.at < y.at else x.at > y.at


cdef int removal_add(Search* k, uint64_t seq, uint64_t at) noexcept nogil:
    if array_room(&k.removals, &k.cap_removals, <uint64_t>k.n_removals + 1, sizeof(Removal), 64) < 0:
        return ST_NO_MEMORY
    k.removals[k.n_removals].seq = seq
    k.removals[k.n_removals].at = at
    k.n_removals += 1
    return ST_OK


cdef int survey(Scan* c) noexcept nogil:
    # At the first damaged place: what the rest of the block says of its own bytes.
    cdef Search* k = &c.search
    cdef uint64_t at = c.at
    cdef Parsed r
    cdef Mark m
    if k.begun:
        return ST_OK
    k.begun = True
    k.spoiled = marker_spoiled(c)
    while at + REC_MIN <= c.size:
        if not good_at(c, at, &r):
            at = behind_bad(c, at)
            continue
        if r.raw_seq & TOMB and r.seq and removal_add(k, r.seq, at) < 0:
            return ST_NO_MEMORY
        if marker_read(c.p + at, &r, &m):
            k.marked_at = at
            if m.flags & MARK_LAZY:
                k.lazy_at = at
            k.vouches = k.vouches or m.flags & MARK_LAZY == 0 or m.durable > 0
            k.started = max(k.started, m.start)
            if m.durable <= at:
                k.durable = max(k.durable, m.durable)
        at += r.size
    if k.n_removals:
        qsort(k.removals, k.n_removals, sizeof(Removal), compare_removals)
    return ST_OK


cdef bint unfinished(const Scan* c, uint64_t at) noexcept nogil:
    # Whether no marker from `at` on says that the bytes at c.at were on disk before something else was written.
    return c.search.durable <= c.at and c.search.lazy_at < at


cdef bint last_group(const Scan* c) noexcept nogil:
    # Whether c.at is in the last group that has a marker, or behind it. What closed an idle group before counts to it: that
    # is on disk with it.
    cdef const Search* k = &c.search
    return k.started <= c.at or (k.durable <= c.at and (k.started - c.at) % MARKER == 0)
