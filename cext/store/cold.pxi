# Sealed blocks whose pages may not be in memory: a thread brings them from the disk, so that no reader waits for a disk
# under the engine lock.
#
# What is in memory is known by pieces of a mapping, for a second: then the system is asked again. A reader that meets
# a piece that is not there leaves its Wait with the store and is called when it is; the piece behind a reader's is fetched
# before it is asked for. While a block is being fetched it is neither unmapped nor compacted, and it is pinned.

cdef enum:
    PIECES = 64                     # of a block: what is beyond is read without looking

cdef int64_t WARM_FOR = 1000000000  # ns


cdef inline uint64_t pieces_of(const Block* b, uint32_t i) noexcept nogil:
    # The pieces in which slot i's record stands, a bit each.
    cdef uint64_t start = b.off[i] - 1
    cdef uint64_t end = b.used
    cdef uint64_t last
    if b.len[i] != 65535:
        end = start + b.len[i]
    elif i + 1 < b.n and b.off[i + 1]:
        end = b.off[i + 1] - 1
    start //= PIECE
    last = (max(end, <uint64_t>1) - 1) // PIECE
    if start >= PIECES:
        return 0
    last = min(last, <uint64_t>(PIECES - 1)) - start
    return (((<uint64_t>2) << last) - 1) << start


cdef bint piece_there(Block* b, uint64_t piece) noexcept nogil:
    # Whether this piece of the mapping is in memory; true of what lies behind its end.
    cdef FileOps* f = b.store.files
    cdef uint64_t start = piece * PIECE
    if start >= b.data_cap:
        return True
    if b.chunks != NULL and not chunks_have(b.chunks, start, PIECE):
        return False
    return f.resident(f.ctx, b.data + start, min(b.data_cap - start, <uint64_t>PIECE))


cdef void fetch_queue(Committer* c, Block* b) noexcept nogil:
    # With q held.
    b.queue.next_fetch = NULL
    if c.queue.fetches == NULL:
        c.queue.fetches = b
    else:
        c.queue.fetches_last.queue.next_fetch = b
    c.queue.fetches_last = b


cdef void fetch_ask(Committer* c, Block* b, uint64_t pieces) noexcept nogil:
    # With the engine lock held.
    b.asked |= pieces
    if b.work == WORK_FETCH:
        return
    invariant(b.work == WORK_NONE, "a block that is compacted is not fetched")
    b.work = WORK_FETCH
    q_lock(c)
    b.queue.pins += 1
    fetch_queue(c, b)
    q_signal(c, &c.fetch)
    q_unlock(c)


cdef void fetch_ahead(Committer* c, Store* s, Block* b, uint64_t piece) noexcept nogil:
    # The piece behind that one is wanted next by a reader that reads on.
    cdef uint32_t at
    if (piece + 1) * PIECE >= b.used:
        at = block_from(s, b.last) + 1
        if at >= s.n_blocks:
            return
        b = block_i(s, at)
        piece = 0
    else:
        piece += 1
    if b.bytes == BYTES_REGION or b.work == WORK_COMPACT or piece >= PIECES or b.warm & <uint64_t>1 << piece:
        return
    if b.data == NULL or not piece_there(b, piece):
        fetch_ask(c, b, <uint64_t>1 << piece)


cdef bint block_warm(Store* s, Block* b, uint32_t i) noexcept nogil:
    # Whether slot i's record can be read without waiting for the disk; if not, it is being fetched.
    cdef Committer* c = s.com
    cdef uint64_t pieces, missing, piece
    if b.bytes == BYTES_REGION or s.storage == STORE_MEMORY or not c.fetcher_runs or b.work == WORK_COMPACT:
        return True
    if b.warm and s.env.mono - b.warm_at > WARM_FOR:
        b.warm = 0
    pieces = pieces_of(b, i)
    missing = pieces & ~b.warm
    if missing == 0:
        return True
    if b.warm == 0:
        b.warm_at = s.env.mono
    piece = 0
    while b.data != NULL and missing >> piece:
        if missing >> piece & 1 and piece_there(b, piece):
            b.warm |= <uint64_t>1 << piece
            fetch_ahead(c, s, b, piece)
        piece += 1
        if piece == PIECES:
            break
    missing &= ~b.warm
    if missing:
        fetch_ask(c, b, missing)
    return missing == 0


cdef void wait_begin(Store* s, Block* b, Wait* w) noexcept nogil:
    wait_cancel(w)
    w.block = b
    list_push_front(&s.waits, &w.node)


cdef void wait_cancel(Wait* w) noexcept nogil:
    list_drop(&w.node)


cdef bint waits_end(Store* s, const Block* b) noexcept nogil:
    # With the engine lock held: waits for that block, or for any (NULL), are over and called. Whether there was one.
    cdef bint any = False
    cdef ListWalk waits = list_walk(&s.waits)
    cdef Wait* w = <Wait*>list_owner(list_step(&waits), &(<Wait*>NULL).node)
    while w != NULL:
        if b == NULL or w.block == b:
            wait_cancel(w)
            task_post(&s.env.tasks, w.task)
            any = True
        w = <Wait*>list_owner(list_step(&waits), &(<Wait*>NULL).node)
    return any


cdef void fetches_cancel(Committer* c, Store* s, List* gone) noexcept nogil:
    # With q held throughout: nobody reads that store any more. gone: as unpin_later.
    cdef Block* b = c.queue.fetches
    cdef Block* after
    c.queue.fetches = NULL
    while b != NULL:
        after = b.queue.next_fetch
        if b.store == s:
            unpin_later(b, gone)
        else:
            fetch_queue(c, b)
        b = after


cdef void committer_pause(Committer* c) noexcept nogil:
    q_lock(c)
    q_wait(c, &c.idle, env_clock(c.env) + 1000000)
    q_unlock(c)
