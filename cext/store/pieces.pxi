# Long work in pieces: each takes a moment under the lock, which is let go between them, so that everybody else has his turn.
# Where the next one goes on is a sequence or the number of an index node; neither changes its meaning meanwhile.

cdef enum:
    TURN_MSGS = 1000            # messages that are removed, or passed one by one
    TURN_SLOTS = 65536          # slots or nodes that are looked at


# ---- limits ----------------------------------------------------------------------------------------------------------

cdef void limits_of(Limits* to, const StoreConfig* cfg) noexcept nogil:
    to.max_msgs = cfg.max_msgs
    to.max_bytes = cfg.max_bytes
    to.max_age = cfg.max_age
    to.max_msgs_per = cfg.max_msgs_per
    to.trim = cfg.trim


cdef int settle(Store* s, bint changed) noexcept nogil:
    # Has a marker say what is gone, if that or anything else changed since the last ticket.
    if s.storage == STORE_FILE and s.n_blocks and (changed or s.first_seq != s.shown_first):
        if s.tail == NULL and tail_for(s, REC_MIN, 0) < 0:
            return ST_NO_MEMORY
        publish(s)
    return ST_OK


cdef int store_update(Store* s, const StoreConfig* cfg) noexcept nogil:
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    age_trim(s, 0xffffffffU)
    s.compress = cfg.compress
    s.trim.phase = TRIM_SUBJECTS
    subjects_begin(s)
    limits_of(&s.trim.wanted, cfg)
    s.limits.max_msgs_per = s.trim.wanted.max_msgs_per
    return ST_OK


cdef int store_trim(Store* s) noexcept nogil:
    cdef uint64_t msgs = s.msgs
    cdef bint more
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    if s.trim.phase == TRIM_SUBJECTS:
        # Before the others: what subjects have too much of shall not cost another its only message.
        more = s.limits.max_msgs_per > 0 and trim_subjects(s)
        if s.empties != NULL:
            reap(s)             # what is empty is not compacted
        if more:
            return 1
        s.limits = s.trim.wanted
        s.trim.phase = TRIM_HEAD
    elif s.trim.phase == TRIM_NONE:
        return ST_OK
    trim_head(s, TURN_MSGS)
    age_trim(s, TURN_MSGS)
    if msgs - s.msgs >= TURN_MSGS:
        return 1
    s.trim.phase = TRIM_NONE
    age_arm(s)
    return settle(s, True)


cdef void subjects_begin(Store* s) noexcept nogil:
    s.trim.at = 0
    s.trim.end = s.x.n_nodes


cdef bint trim_subjects(Store* s) noexcept nogil:
    # A piece of the way through the subjects; False at the end.
    cdef uint64_t msgs = s.msgs
    cdef uint32_t nodes = TURN_SLOTS
    while s.trim.at < min(s.trim.end, s.x.n_nodes):
        if nodes == 0 or msgs - s.msgs >= TURN_MSGS:
            return True
        nodes -= 1
        if node_at(&s.x, s.trim.at).count > <uint64_t>s.limits.max_msgs_per:
            if keep_subject(s, s.trim.at, TURN_MSGS):
                return True
        s.trim.at += 1
    return False


# ---- where a purge ends ------------------------------------------------------------------------------------------------

cdef uint64_t back_along(Store* s, uint32_t id, uint64_t before, uint64_t* keep) noexcept nogil:
    # store_back for one subject.
    cdef uint32_t left = TURN_MSGS
    while keep[0] and left and before:
        before = scan_id_back(s, id, before)
        keep[0] -= 1
        left -= 1
    return before


cdef uint64_t store_back(Store* s, const Filter* filter, uint64_t before, uint64_t* keep) noexcept nogil:
    cdef uint32_t left = TURN_SLOTS, bi, i
    cdef bint all = matches_all(filter)
    cdef IdSet* c = NULL
    cdef Block* b
    if not all and filter.literal:
        return back_along(s, index_find(&s.x, filter.patterns[0]), before, keep)
    if not all:
        c = filter_ids(s, filter)
        all = c != NULL and c.covers
    bi = min(block_from(s, before) + 1, s.n_blocks)
    while bi:
        bi -= 1
        b = block_i(s, bi)
        if all and b.last < before and b.live < keep[0]:
            keep[0] -= b.live
            before = b.base
            continue
        i = slot_from(b, before)
        while i > b.head:
            if left == 0:
                return before
            i -= 1
            left -= 1
            before = seq_at(b, i)
            if b.off[i] == 0 or not (all or (st_has(c.pages, c.n_pages, b.sid[i]) if c != NULL
                                             else filter_matches(filter, node_text(&s.x, b.sid[i])))):
                continue
            keep[0] -= 1
            if keep[0] == 0:
                return before
    return 0
