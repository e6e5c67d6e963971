# Reading a block from its first byte: its records group by group, what is damaged, and where it ends.
#
# The records of a group are held until its marker has been seen, whose digest covers what their checksums leave out. One
# damaged record costs one record: a single changed bit is looked for and found by the checksums, so that a record's
# length, or which message a tombstone was for, is not lost with it. Such a message is withheld all the same. What cannot
# be made out that way is passed over up to the next good record. The file stays as it is.

cdef int release(Scan* c) noexcept nogil:
    # What is held is entered.
    cdef Parsed r
    cdef Held* h
    cdef uint64_t seq
    cdef uint32_t i
    cdef int rc = ST_OK
    for i in range(c.n_held):
        h = &c.held[i]
        if rc < 0:
            break
        if is_hole(h):
            hole_begin(c, h)
            continue
        if h.why == HELD_GONE:
            c.b.ghosts += 1
            seq = st_get64(c.p + h.at + 4) & ~(TOMB | ERASED)
            if seq > c.s.last_seq:
                skip_to(c.s, c.b, seq)
            continue
        if h.why == HELD_LOST or h.why == HELD_HEAD:
            scan_lost(c, h)
            continue
        record_parse(c.p + h.at, c.size - h.at, &r)
        hole_end(c, r.raw_seq)
        rc = scan_record(c, h.at, &r)
    c.n_held = 0
    return rc


# ---- damage -------------------------------------------------------------------------------------------------------

cdef bint torn_aside(Scan* c, const Held* h) noexcept nogil:
    # Puts the bytes of a hole in the last block aside. Later starts, for which another block is the last, find them there:
    # whether it is one that a crash left.
    cdef FileOps* f = c.s.files
    cdef char path[4300]
    cdef int fd
    snprintf(path, sizeof(path), "%s/damaged-%llu-%llu.tail", c.s.msgs_dir, <unsigned long long>c.b.num,
             <unsigned long long>h.at)
    fd = f.open(f.ctx, path, O_RDWR, 0)
    if fd >= 0 or not c.is_last:
        if fd >= 0:
            f.close(f.ctx, fd)
        return fd >= 0
    if file_write(f, path, c.p + h.at, h.size) < 0:
        return False
    c.aside = True
    return True


cdef void hole_begin(Scan* c, const Held* h) noexcept nogil:
    # Bytes that say nothing: which sequences they held shows the next message.
    cdef Store* s = c.s
    cdef Damage* d = &s.recovery.hole
    cdef uint64_t most = h.size // REC_MIN + (h.size % REC_MIN != 0)
    if d.kind == DAMAGE_RECORDS and d.block == c.b.num and h.why == HELD_HOLE:
        d.size += h.size                # no message stood between them
        d.count += most
        d.last = 0
        return
    hole_close(s, s.last_seq + 1)
    d.kind = DAMAGE_TAIL if h.why == HELD_TORN and torn_aside(c, h) else DAMAGE_RECORDS
    d.block = c.b.num
    d.at = h.at
    d.size = h.size
    d.first = s.last_seq + 1
    d.last = 0
    d.count = most


cdef void hole_end(Scan* c, uint64_t raw_seq) noexcept nogil:
    if c.s.recovery.hole.kind and not raw_seq & TOMB and raw_seq & ~ERASED > c.s.last_seq:
        hole_close(c.s, raw_seq & ~ERASED)


cdef bint erasure_note(Scan* c, const Held* h, uint64_t seq) noexcept nogil:
    # An erasure that did not come to its end, where a later block says that the message is removed: only that one tells.
    cdef Damage d
    if c.s.recovery.erasures.n >= LOST_MAX * sizeof(Damage):
        return False
    memset(&d, 0, sizeof(Damage))
    d.kind = DAMAGE_RECORDS
    d.block = c.b.num
    d.at = h.at
    d.size = h.size
    d.first = seq
    return bytes_add(&c.s.recovery.erasures, &d, sizeof(Damage)) == 0


cdef void scan_lost(Scan* c, const Held* h) noexcept nogil:
    # A message that is known, and cannot be served.
    cdef uint64_t raw_seq = st_get64(c.p + h.at + 4), seq = raw_seq & ~(TOMB | ERASED)
    hole_end(c, raw_seq)
    if seq <= c.s.last_seq:
        return
    if c.b.n == 0 and c.b.last < c.b.base:
        c.b.base = seq
        c.b.last = seq - 1
    skip_to(c.s, c.b, seq)
    lost_add(c.s, seq, h.size)
    if h.why == HELD_LOST or raw_seq & ERASED == 0 or not erasure_note(c, h, seq):
        lost_place(c.s, DAMAGE_RECORDS, c.b.num, h.at, h.size, seq, seq, 1)


cdef bint closing_torn(Scan* c) noexcept nogil:
    # Whether the bytes at c.at are what a power cut left of the marker that closed a block before another, which is not
    # synced. They follow a marker, and one sector of them is missing, or zeros stand to the end; of a group there would be more,
    # or a record that arrived.
    cdef const uint8_t* p = c.p + c.at
    cdef uint64_t left = c.size - c.at, first = min(SECTOR - c.at % SECTOR, left), there = min(first, <uint64_t>MARKER)
    cdef uint8_t head[12]
    if c.is_last or not c.mark.seen or c.n_held:
        return False
    if left > MARKER and not all_zero(p + MARKER, left - MARKER):
        return False
    while there and p[there - 1] == 0:
        there -= 1
    st_put32(head, MARKER)
    st_put64(head + 4, TOMB)
    if there == MARKER or memcmp(p, head, min(there, <uint64_t>12)):
        return False
    return next_good(c, c.at + 1) == c.size


cdef int scan_bad(Scan* c) noexcept nogil:
    # At bytes that are no record: 1 to go on, 0 at the end of what is good, or an error.
    cdef uint64_t next
    cdef Parsed r
    cdef bint torn_group
    cdef int rc, loose
    invariant(c.fate == FATE_KEPT, "what becomes of a block's end is said once")
    if all_zero(c.p + c.at, c.size - c.at) or (not c.is_last and hole_behind(c)):
        return 0            # preallocated
    if closing_torn(c):
        return 0
    rc = survey(c)
    if rc < 0:
        return rc
    loose = unsynced(c)
    if loose < 0:
        return loose
    if erasure_torn(c) and (not loose or removal_follows(c)):
        rc = hold(c, st_get32(c.p + c.at) & 0x7fffffff, HELD_GONE)
        c.at += c.held[c.n_held - 1].size if rc == 0 else 0
        c.end = c.at
        return 1 if rc == 0 else rc
    if c.mark.whole and c.is_last and last_group(c):
        c.fate = FATE_UNDONE
        return 0
    if c.at + REC_MIN <= c.size and mend(c, &r):
        c.b.damaged = True
        if r.raw_seq & TOMB or r.raw_seq & ERASED:
            lost_place(c.s, DAMAGE_RECORDS, c.b.num, c.at, r.size, 0, 0, 0)
            return 1        # what it said is known
        rc = hold(c, r.size, HELD_LOST)
        c.good += 1
        c.at += r.size
        c.end = c.at
        return 1 if rc == 0 else rc
    if loose:
        c.fate = FATE_UNDONE if c.mark.whole else FATE_UNSYNCED
        return 0
    next = behind_bad(c, c.at)
    torn_group = next < c.size and unfinished(c, next)
    if next == c.size and c.is_last and (torn(c) and not c.search.spoiled or arrived_torn(c, c.size)):
        c.fate = FATE_CUT
        return 0
    c.unsure = c.unsure or torn_group
    c.b.damaged = True
    if next == c.size:
        c.fate = FATE_BLIND
    if not torn_group and heads_fit(c, next):
        return hold_heads(c, next)
    rc = hold(c, next - c.at, HELD_TORN if torn_group and arrived_torn(c, next) else HELD_HOLE)
    c.at = next
    c.end = next
    return rc if rc < 0 else next < c.size


# ---- groups -------------------------------------------------------------------------------------------------------

cdef uint64_t last_live(Store* s) noexcept nogil:
    # The last message that was entered and is there, 0: none.
    cdef uint32_t k = s.n_blocks, i
    cdef Block* b
    while k:
        k -= 1
        b = block_i(s, k)
        i = b.n if b.live else 0
        while i:
            i -= 1
            if b.off[i]:
                return seq_at(b, i)
    return 0


cdef void note_torn(Scan* c, uint64_t start) noexcept nogil:
    # Of what is held, that before `start` has no marker that came with it, or all where a part is missing. Messages of a whole
    # group behind it say that a start dealt with that.
    #
    # nats-server writes no markers: what stands before the first one may be its, unless the groups of a store that reserves its
    # sequences before it writes do not wait for their sync.
    cdef Store* s = c.s
    cdef bint own = c.mark.seen or s.writing.extent.last > 0 or (s.writing.reserve_number > 0 and lazily(c))
    cdef uint32_t i
    for i in range(c.n_held):
        if c.held[i].at < start or c.unsure:
            if s.recovery.torn == 0 and own:
                s.recovery.torn = last_live(s)
                s.recovery.torn = s.recovery.torn if s.recovery.torn else 1
        elif c.held[i].why == HELD_LOST or (c.held[i].why == 0 and st_get64(c.p + c.held[i].at + 4) & TOMB == 0):
            s.recovery.torn = 0
            return


cdef void mark_close(Scan* c, const Mark* m) noexcept nogil:
    # The marker behind a hole says which message was the last in it. That of no records may be newer than the next block, and so
    # may that of a compacted block, which has all that its markers said.
    cdef const Damage* d = &c.s.recovery.hole
    if m.count and m.flags & MARK_WHOLE == 0 and d.kind and d.kind != DAMAGE_BLOCK and m.extent.last >= d.first:
        hole_close(c.s, m.extent.last + 1)
        skip_to(c.s, c.b, m.extent.last)


cdef int scan_mark(Scan* c, const Parsed* r) noexcept nogil:
    # 1 when this is a marker, 0 when not, or an error.
    cdef Mark m
    cdef int rc
    if not marker_read(c.p + c.at, r, &m) or not c.mark.end <= m.start <= c.at:
        return 0
    c.mark.end = c.at + r.size
    c.o.batches = c.o.batches or m.flags & (MARK_BATCH | MARK_OPEN) != 0
    if m.flags & MARK_OPEN and batches_count(c):
        rc = batch_closed(c, c.at + r.size)
        if rc <= 0:
            c.fate = FATE_UNDONE if rc == 0 else c.fate
            c.mark.unit = max(c.mark.unit, m.durable)     # a purge has synced the first record by itself
            return rc if rc < 0 else 1
    if m.flags & MARK_WHOLE == 0:
        c.o.lazy = m.flags & MARK_LAZY != 0
        c.s.writing.group = m.group         # the next one follows on the last that is there
    c.mark.group = m.group
    c.mark.shut = m.flags & (MARK_SEALED | MARK_WHOLE) != 0
    c.mark.sealed = m.flags & MARK_SEALED != 0
    c.mark.proven = m.durable >= c.at or m.flags & MARK_LAZY != 0
    c.mark.whole = m.flags & (MARK_BATCH | MARK_OPEN) != 0 and crash_left(c.o)
    c.mark.unit = c.at + r.size
    group_check(c, &m)
    note_torn(c, m.start)
    c.mark.seen = True
    rc = release(c)
    mark_close(c, &m)
    if not c.unsure:
        extent_join(&c.s.writing.extent, &m.extent)     # it says how its group leaves the stream
        if not c.mark.shut:
            c.s.recovery.told = max(c.s.recovery.told, m.extent.last)
            c.s.recovery.hole.last = m.extent.last      # of what stands before this marker nothing went beyond that
    return 1 if rc == 0 else rc


cdef int scan_block(Scan* c) noexcept nogil:
    cdef Parsed r
    cdef int rc = 1
    search_begin(c)
    while rc > 0 and c.at + REC_MIN <= c.size:
        if not good_at(c, c.at, &r):
            rc = scan_bad(c)
            continue
        rc = scan_mark(c, &r) if r.raw_seq == TOMB else 0
        if c.fate == FATE_UNDONE:
            break
        if rc == 0:
            c.mark.sealed = False
            c.mark.shut = False
            c.mark.proven = False
            rc = hold(c, r.size, 0)
        if rc >= 0:
            c.good += 1
            c.at += r.size
            c.end = c.at
            rc = 1
    if rc > 0 and c.at < c.size and c.fate != FATE_UNDONE:
        rc = scan_bad(c)
    if rc >= 0 and c.fate != FATE_UNDONE and c.fate != FATE_UNSYNCED:
        rc = ends_early(c)
        c.fate = FATE_UNSYNCED if rc > 0 else c.fate
    c.is_last = c.is_last or c.fate == FATE_UNSYNCED
    if rc >= 0 and (c.fate == FATE_UNDONE or c.mark.whole and c.is_last and c.n_held):
        batch_drop(c)
    c.b.writing.open_group = c.n_held > 0
    order_check(c, 0, c.n_held, 0)
    heads_doubt(c, 0, c.n_held)
    note_torn(c, UINT64_MAX)
    return min(release(c), 0) if rc >= 0 else rc


cdef bint is_kept(const Scan* c, const Scan* next, bint is_last) noexcept nogil:
    # Whether this start surely keeps something of a later block, which has bytes. It does not where a kill came before the end
    # of the first record in it, nor may it where a batch goes on there, or its first record did not reach the disk.
    cdef Parsed r
    if c.mark.whole or is_last and torn(next) and begins_group(next):
        return False
    return not lazily(c) or record_parse(next.p, next.size, &r) and record_good(next.b.key, next.p, &r)


cdef int any_behind(const Scan* c) noexcept nogil:
    # Whether a later block is kept: 1, 0 or an error. A kill may have come between the making of the next block's file and its
    # first group; of what was not synced nothing is kept behind such a block.
    cdef Opening* o = c.o
    cdef int64_t i = o.at + 1
    cdef int rc = 0
    cdef bint empty = True
    cdef Scan next
    while i < o.n and rc >= 0 and empty:
        rc = ahead_read(o, o.nums[i], &next)
        empty = (rc == 0 or rc == 1 and all_zero(next.p, next.size)) and not lazily(c)
        if rc == 1:
            rc = not all_zero(next.p, next.size) and is_kept(c, &next, i + 1 == o.n)
        elif rc == ST_NOT_FOUND:
            rc = 1              # a sidecar knows what it had
            empty = False
        ahead_free(&next)
        i += 1
    return rc


cdef int block_prove(const Scan* c, int fd) noexcept nogil:
    # What is kept of a block is known to be whole from here on: whatever a power cut tears later, behind the block's end or of
    # what is erased in the block, is not taken for a part of its last group. Where there is no room for the marker the block
    # stays as it is, and so does a block of nats-server's that is not written to. 0, or an error.
    cdef Store* s = c.s
    cdef Block* b = c.b
    cdef uint8_t mark[MARKER]
    cdef int sealed = 0
    if c.good == 0 or c.mark.proven or b.damaged or not (c.mark.seen or c.is_last):
        return ST_OK
    if not c.is_last:
        sealed = any_behind(c)
        if sealed < 0:
            return sealed
    if s.last_seq > s.writing.extent.last:      # what stands before it is newer than the marker before
        s.writing.extent.last = s.last_seq
        s.writing.extent.last_ts = s.last_ts
    group_seal(s, b, b.used, b.used, 0, MARK_SEALED if sealed else 0, mark)
    if s.files.pwrite(s.files.ctx, fd, mark, MARKER, <off_t>b.used) < 0:
        s.files.truncate(s.files.ctx, fd, <off_t>b.used)
        s.writing.group -= not sealed
        return ST_OK
    b.used += MARKER
    b.writing.written = b.used
    b.writing.durable = b.used
    b.writing.open_group = False
    return ST_OK


# ---- records -------------------------------------------------------------------------------------------------------

cdef int scan_record(Scan* c, uint64_t at, const Parsed* r) noexcept nogil:
    cdef Store* s = c.s
    cdef Block* b = c.b
    cdef Cut cut
    cdef int64_t id
    if r.raw_seq & TOMB:
        if r.seq == 0:
            if cut_read(c.p + at, r, &cut) and not c.unsure and cut_whole(c.p, c.size, b, &cut):
                b.tombs += 1
                cut_replay(s, b, &cut)
            return ST_OK
        if r.seq > s.last_seq:
            skip_to(s, b, r.seq)
            s.last_ts = r.ts
        return ST_OK if c.unsure else replay_tomb(s, b, r.seq)
    if r.raw_seq & ERASED:
        b.ghosts += r.size > REC_MIN    # its noise may not be on disk yet
    if r.seq == 0 or r.seq <= s.last_seq:
        return ST_OK
    if r.raw_seq & ERASED:
        skip_to(s, b, r.seq)
        s.last_ts = r.ts if r.ts else s.last_ts
        return ST_OK
    if b.n == 0:
        b.base = r.seq
        b.last = r.seq - 1
    id = index_intern(&s.x, r.subject)
    if id < 0:
        return <int>id
    if block_room(b, r.seq) != ST_OK:
        return ST_NO_MEMORY
    count_in(s, b, r.seq, r.ts, <uint32_t>at, <uint32_t>id, r.size)
    return ST_OK
