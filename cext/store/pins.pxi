# Blocks that another thread is at work on: who lets one go, who frees it, and what the commit thread waits for.

cdef enum:
    AHEAD_FROM = 262144         # a block this far filled is worth zeros ahead
    ZERO_AHEAD_MAX = 4194304


cdef void unpin(Committer* c, Block* b) noexcept nogil:
    # With q held: frees a block that has left when this was the last pin.
    b.queue.pins -= 1
    if b.queue.state == BLOCK_GONE and b.queue.pins == 0:
        q_unlock(c)
        block_free(b)
        q_lock(c)


cdef void unpin_later(Block* b, List* gone) noexcept nogil:
    # As unpin, but q is held throughout: a block to be freed is put in a list, for blocks_free.
    b.queue.pins -= 1
    if b.queue.state == BLOCK_GONE and b.queue.pins == 0:
        list_push_front(gone, &b.queue.side)


cdef void blocks_free(List* gone) noexcept nogil:
    # Without q: those of unpin_later.
    while not list_empty(gone):
        block_free(<Block*>list_owner(list_pop(gone), &(<Block*>NULL).queue.side))


cdef void placing_wait(Committer* c, const Store* s) noexcept nogil:
    # The commit thread, before files of blocks that have left go: no sidecar of this store is just getting its name.
    q_lock(c)
    while c.queue.placing == s:
        q_wait(c, &c.idle, INT64_MAX)
    q_unlock(c)


cdef void ahead_check(Committer* c, Block* b) noexcept nogil:
    # After a group: a well-used tail gets zeros written ahead, so that its commits change no file size and no extent.
    cdef uint64_t end = b.store.block_size + SLACK, written = b.writing.written
    if written < AHEAD_FROM or b.store.files.once:
        return
    q_lock(c)
    if (is_sealed(b) or b.queue.zeroing or st_load(&c.shared.full) or b.writing.zeroed >= end
            or b.writing.zeroed > written + min(written, <uint64_t>ZERO_AHEAD_MAX) // 2):
        q_unlock(c)
        return
    b.queue.zero_from = page_up(max(b.writing.zeroed, written + AHEAD_FROM))
    b.queue.zero_to = min(b.queue.zero_from + min(written, <uint64_t>ZERO_AHEAD_MAX), page_up(end))
    if b.queue.zero_from < b.queue.zero_to and not c.queue.stopping:
        b.queue.zeroing = True
        b.queue.pins += 1
        list_push_front(&c.queue.zeros, &b.queue.zero)
        q_signal(c, &c.chores)
    q_unlock(c)


cdef void ahead_wait(Committer* c, Block* b, uint64_t end) noexcept nogil:
    # The commit thread must not write where zeros are being written.
    cdef List gone
    if not b.queue.zeroing or end <= b.queue.zero_from:
        return
    memset(&gone, 0, sizeof(List))
    q_lock(c)
    zeros_cancel(c, NULL, b, &gone)
    while b.queue.zeroing:
        q_wait(c, &c.idle, INT64_MAX)
    q_unlock(c)
    blocks_free(&gone)


cdef void zeros_cancel(Committer* c, Store* s, Block* b, List* gone) noexcept nogil:
    # With q held throughout: a block, or all of a store, need no zeros any more. gone: as unpin_later.
    cdef ListWalk zeros = list_walk(&c.queue.zeros)
    cdef Block* z = <Block*>list_owner(list_step(&zeros), &(<Block*>NULL).queue.zero)
    while z != NULL:
        if z == b or z.store == s:
            list_remove(&z.queue.zero)
            z.queue.zeroing = False
            unpin_later(z, gone)
        z = <Block*>list_owner(list_step(&zeros), &(<Block*>NULL).queue.zero)
