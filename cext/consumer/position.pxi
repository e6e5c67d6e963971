# Where a consumer stands in its stream: what it has still to deliver.

cdef enum Counting:
    COUNT_NONE = 0
    COUNT_LAST = 1                      # the last message is looked for
    COUNT_LASTS = 2                     # ... of each subject
    COUNT_SKIP = 3                      # those that are still there are counted
    COUNT_REST = 4                      # what matches behind them, or from the beginning


cdef inline bint placing(const Consumer* c) noexcept nogil:
    # Where it starts is not known yet.
    return c.count.phase == COUNT_LAST or c.count.phase == COUNT_LASTS


cdef inline const Filter* filter_of(const Consumer* c) noexcept nogil:
    if c.filter.all:
        return NULL
    return &c.filter


cdef bint undelivered(const Consumer* c, uint64_t seq) noexcept nogil:
    # Whether a message that matches is still to be delivered for the first time.
    cdef uint64_t low, high, middle
    if c.skip.seqs == NULL:
        return seq >= c.next
    if seq >= c.skip.resume:
        return True
    low = c.skip.at
    high = c.skip.n
    while low < high:
        middle = low + (high - low) // 2
        if c.skip.seqs[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low < c.skip.n and c.skip.seqs[low] == seq


cdef bint needs(Consumer* c, uint64_t seq) noexcept nogil:
    # Whether a message that matches is still to be delivered, or acked. A delivery that is proposed to the group may never be.
    cdef uint64_t deliveries
    cdef bint proposed = c.group != NULL and c.delivered_seq < seq < c.next
    return (placing(c) or undelivered(c, seq) or proposed or pending_find(&c.pending, seq) != 0
            or u64map_get(&c.exhausted, seq, &deliveries))


cdef void skip_end(Consumer* c) noexcept nogil:
    free(c.skip.seqs)
    c.skip.seqs = NULL
    c.skip.n = 0
    c.skip.at = 0
    c.next = max(c.next, c.skip.resume)


cdef void step_over(Consumer* c, uint64_t seq) noexcept nogil:
    # seq is being delivered for the first time, or cannot be read.
    if c.skip.seqs != NULL:
        c.skip.at += 1
        c.next = seq + 1
        if c.skip.at >= c.skip.n:
            skip_end(c)
    else:
        c.next = seq + 1
    c.num_pending -= 1


cdef bint still_stored(Consumer* c, uint64_t seq) noexcept nogil:
    return store_next_seq(c.s.store, NULL, seq) == seq


cdef uint64_t start_bound(const Consumer* c, uint64_t last) noexcept nogil:
    # How far it may be in a stream that ends there: one that begins at a sequence to come is in front of that.
    if c.dseq <= 1 and c.reset_to:
        return max(last, c.reset_to - 1)
    if (c.dseq <= 1 and c.cfg.deliver_policy == DELIVER_POLICY_BY_START_SEQUENCE and c.cfg.opt_start_seq
            and not c.cfg.flags & CONSUMER_DIRECT):
        return max(last, c.cfg.opt_start_seq - 1)
    return last


cdef void skip_from(Consumer* c, uint64_t seq) noexcept nogil:
    # Of the last messages that it started with those from this sequence on.
    c.skip.at = 0
    while c.skip.at < c.skip.n and c.skip.seqs[c.skip.at] < seq:
        c.skip.at += 1
    if c.skip.at < c.skip.n:
        c.next = c.skip.seqs[c.skip.at]
    elif c.skip.seqs != NULL:
        skip_end(c)
