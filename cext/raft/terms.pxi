# Which term each index of the log has: a list of eras, as terms only grow.

cdef uint64_t term_at(const Log* l, uint64_t index) noexcept nogil:
    # 0 where neither a record nor the snapshot has the index.
    cdef uint32_t low = 0, high = l.n_eras, middle
    if index == l.snapshot_index:
        return l.snapshot_term
    if index < l.first or index > l.last:
        return 0
    while low < high:
        middle = (low + high) // 2
        if l.eras[middle].start <= index:
            low = middle + 1
        else:
            high = middle
    return l.eras[low - 1].term if low else 0


cdef uint64_t era_start(const Log* l, uint64_t index) noexcept nogil:
    # The first index of the same term as this one has.
    cdef uint32_t i = l.n_eras
    while i and l.eras[i - 1].start > index:
        i -= 1
    return l.eras[i - 1].start if i else l.first


cdef int log_add(Log* l, uint64_t index, uint64_t term) noexcept nogil:
    # A record goes behind the last one. 0 | RAFT_NO_MEMORY
    invariant(index == l.last + 1, "a record goes behind the last one")
    if l.n_eras == 0 or l.eras[l.n_eras - 1].term != term:
        if array_room(&l.eras, &l.cap_eras, <uint64_t>l.n_eras + 1, sizeof(Era), 8) < 0:
            return RAFT_NO_MEMORY
        l.eras[l.n_eras].start = index
        l.eras[l.n_eras].term = term
        l.n_eras += 1
    l.last = index
    l.last_term = term
    return RAFT_OK


cdef void log_cut(Log* l, uint64_t index) noexcept nogil:
    # The log ends with an index that a record or the snapshot has, or that is the one before its first.
    l.last_term = term_at(l, index)
    while l.n_eras and l.eras[l.n_eras - 1].start > index:
        l.n_eras -= 1
    l.last = index
    l.stored = min(l.stored, index)
    l.quiet = min(l.quiet, index)
    l.generation += 1


cdef void log_reset(Log* l, uint64_t index, uint64_t term) noexcept nogil:
    # Empty, behind an index of this term.
    l.n_eras = 0
    l.first = index + 1
    l.last = index
    l.last_term = term
    l.stored = index
    l.quiet = index
    l.generation += 1


cdef void log_compact(Log* l, uint64_t index) noexcept nogil:
    # The log begins behind an index.
    cdef uint32_t n = 0
    if index < l.first:
        return
    l.first = index + 1
    while n + 1 < l.n_eras and l.eras[n + 1].start <= l.first:
        n += 1
    if n:
        memmove(l.eras, l.eras + n, (l.n_eras - n) * sizeof(Era))
        l.n_eras -= n
