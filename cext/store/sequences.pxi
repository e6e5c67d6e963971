# Where a store goes on that was opened: its last sequence, whatever is gone.

cdef bint stands_behind(const Store* s, uint64_t num) noexcept nogil:
    # Whether the block before this one is there. If it was emptied and removed, nothing else may say which sequences it had.
    cdef uint32_t i
    for i in range(s.n_blocks):
        if block_i(<Store*>s, i).num + 1 == num:
            return True
    return num == 1


cdef bint says_nothing(const Store* s) noexcept nogil:
    # Whether no block has any record.
    cdef uint32_t i
    for i in range(s.n_blocks):
        if block_i(<Store*>s, i).used:
            return False
    return True


cdef int sequences_restore(Opening* o) noexcept nogil:
    # The last sequence does not fall back, whatever is gone: from the checkpoint, the holes, sequence.jsr and the markers. 0, or
    # an error.
    cdef Store* s = o.s
    cdef StoreRecovery* r = &s.recovery
    cdef Damage* d = &r.hole
    cdef uint64_t last = 0, was, upto
    cdef int rc = 0
    cdef bint doubt
    cdef bint known = r.stale != NULL and not o.foreign and stale_read(s, &last)
    if known:
        s.last_seq = max(s.last_seq, last)
        if s.recovery.shorter:
            rest_aside(s, d)
        memset(d, 0, sizeof(Damage))
    if d.kind:
        was = s.last_seq
        if not o.before.doubt:
            upto = d.first + d.count - 1
            s.last_seq = max(was, min(upto, d.last) if d.last else upto)
        lost_place(s, d.kind, d.block, d.at, d.size, was + 1 if s.last_seq > was else 0, s.last_seq, s.last_seq - was)
        o.before.doubt = o.before.doubt or d.last == 0 and not stands_behind(s, d.block)
        memset(d, 0, sizeof(Damage))
    doubt = not known and (o.before.doubt or o.before.sealed or says_nothing(s)) and not o.foreign
    if r.reserve == RESERVE_LOST and doubt or r.reserve == RESERVE_FLOOR_LOST and not known:
        snprintf(o.err, o.err_cap, "%s/sequence.jsr: damaged, so sequences that were acked might be used again: a repair makes "
                 "the file anew", s.dir)
        return ST_IO
    if doubt and s.writing.reserved > s.last_seq:
        if says_nothing(s) and s.com.sync_interval <= 0:
            lost_add(s, s.last_seq + 1, 0)      # something had been acked; how much is not known
        if s.writing.reserved > s.writing.floor:       # else an earlier start has told of it
            lost_place(s, DAMAGE_SEQUENCES, 0, 0, 0, max(s.last_seq, s.writing.floor) + 1, s.writing.reserved, 0)
            rc = floor_write(s, s.writing.reserved)
        s.last_seq = s.writing.reserved
    elif o.foreign and s.writing.floor:
        rc = floor_write(s, 0)      # nats-server has gone on from where it found the blocks
    if s.writing.floor > s.last_seq and lost_list(s) != NULL:
        s.lost.floored = s.last_seq + 1
    s.last_seq = max(s.last_seq, s.writing.floor)
    last = max(s.writing.extent.last, s.writing.extent.first - 1 if s.writing.extent.first else 0)
    if last > s.last_seq:
        # What is below the first one is gone by right. So is what a marker names that stands where all of it had been: blocks
        # leave, or are compacted, without their removed messages. Another marker may have known of a block that is missing.
        was = max(s.last_seq, r.told, s.writing.extent.first - 1 if s.writing.extent.first else 0) + 1
        if was <= last:
            lost_place(s, DAMAGE_SEQUENCES, 0, 0, 0, was, last, 0)
        s.last_seq = last
    if s.writing.extent.last == s.last_seq:
        s.last_ts = s.writing.extent.last_ts
    if s.msgs == 0:
        s.first_seq = s.last_seq + 1
    if rc < 0:
        snprintf(o.err, o.err_cap, "%s/sequence.jsr: cannot be written: %s", s.dir, strerror(-rc))
        return ST_IO
    return ST_OK
