# The thread that fetches: it brings pages of sealed blocks from the disk.

cdef void* fetcher_main(void* arg) noexcept nogil:
    cdef Committer* c = <Committer*>arg
    q_lock(c)
    while not c.queue.stopping or c.queue.fetches != NULL:
        if c.queue.fetches == NULL:
            q_wait(c, &c.fetch, INT64_MAX)
        else:
            fetch_block(c)
    q_unlock(c)
    return NULL


cdef void fetch_pieces(FileOps* f, const uint8_t* data, uint64_t size, uint64_t pieces) noexcept nogil:
    cdef uint64_t start = 0
    while pieces and start < size:
        if pieces & 1:
            f.warm(f.ctx, data + start, min(size - start, <uint64_t>PIECE))
        pieces >>= 1
        start += PIECE


cdef void fetch_block(Committer* c) noexcept nogil:
    # With q held, which is let go meanwhile: maps what waits longest, and brings its pieces into memory.
    cdef Block* b = c.queue.fetches
    cdef Store* s = b.store
    cdef const uint8_t* data
    cdef Opened o
    cdef uint64_t size, pieces
    cdef bint on, again, called, wanted
    c.queue.fetches = b.queue.next_fetch
    b.queue.next_fetch = NULL
    s.queue.busy += 1
    q_unlock(c)
    env_lock(c.env)
    pieces = b.asked
    b.asked = 0
    data = b.data
    size = b.data_cap
    wanted = wants_bytes(b)
    on = not s.stopped and not has_left(b)
    env_unlock(c.env)
    memset(&o, 0, sizeof(o))
    if on and wanted:
        block_open(b, &o)
        data = o.p
        size = o.size
    if on and data != NULL:
        fetch_pieces(s.files, data, size, pieces)
    env_lock(c.env)
    if o.p != NULL:
        opened_take(b, &o)
    # Also where that failed: the reader meets the error then.
    b.warm |= pieces
    b.warm_at = c.env.mono
    called = waits_end(s, b)
    again = b.asked != 0 and on
    b.work = WORK_FETCH if again else WORK_NONE
    env_unlock(c.env)
    opened_free(s.files, &o)
    if called and c.wake_fd >= 0:
        tell_driver(c)
    q_lock(c)
    if again:
        fetch_queue(c, b)
    else:
        unpin(c, b)
    s.queue.busy -= 1
    q_broadcast(c, &c.idle)
