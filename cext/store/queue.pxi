# The mutex q of a committer, what its holders wait for, and the lists below it by which threads hand work to each other.

cdef inline void q_lock(Committer* c) noexcept nogil:
    c.env.system.lock(c.env.system.ctx, &c.q)


cdef inline void q_unlock(Committer* c) noexcept nogil:
    c.env.system.unlock(c.env.system.ctx, &c.q)


cdef inline void q_wait(Committer* c, Cond* what, int64_t deadline) noexcept nogil:
    c.env.system.wait(c.env.system.ctx, what, &c.q, deadline)


cdef inline void q_signal(Committer* c, Cond* what) noexcept nogil:
    c.env.system.signal(c.env.system.ctx, what)


cdef inline void q_broadcast(Committer* c, Cond* what) noexcept nogil:
    c.env.system.broadcast(c.env.system.ctx, what)


cdef inline bint dirty_push(Store* s) noexcept nogil:
    # With q held: puts the store before the commit thread; whether that is to be woken.
    cdef Committer* c = s.com
    cdef bint wake
    if s.shared.dirty:
        return False
    st_store(&s.shared.dirty, 1)
    s.queue.next_dirty = c.queue.dirty
    c.queue.dirty = s
    wake = c.queue.sleeping
    c.queue.sleeping = False
    return wake


cdef void chore_wanted(Committer* c) noexcept nogil:
    q_lock(c)
    c.queue.chore = True
    q_signal(c, &c.chores)
    q_unlock(c)


cdef void side_queue(Committer* c, Block* b) noexcept nogil:
    # With q held: the block's sidecar is to be written.
    if b.cut or b.queue.siding:
        return
    b.queue.siding = True
    b.queue.pins += 1
    b.queue.next_side = c.queue.sides
    c.queue.sides = b
    q_signal(c, &c.chores)


cdef void list_remove(Store* s) noexcept nogil:
    cdef StoreList* stores = s.queue.list
    if stores == NULL:
        return
    if s.queue.active_prev != NULL:
        s.queue.active_prev.queue.active_next = s.queue.active_next
    else:
        stores.head = s.queue.active_next
    if s.queue.active_next != NULL:
        s.queue.active_next.queue.active_prev = s.queue.active_prev
    else:
        stores.last = s.queue.active_prev
    s.queue.active_next = NULL
    s.queue.active_prev = NULL
    s.queue.list = NULL


cdef void list_front(StoreList* stores, Store* s, int64_t now) noexcept nogil:
    list_remove(s)
    s.queue.active_at = now
    s.queue.active_next = stores.head
    if stores.head != NULL:
        stores.head.queue.active_prev = s
    else:
        stores.last = s
    stores.head = s
    s.queue.list = stores


cdef void store_tell(Committer* c, Store* s, int err) noexcept nogil:
    # With q held: committer_poll hears of this store. What has failed stays so, whatever is still written.
    if err:
        s.queue.done_errno = err
        s.queue.lost_since = min(s.queue.lost_since, c.queue.synced_wall)
    if not s.queue.listed:
        s.queue.listed = True
        s.queue.next_done = c.queue.done
        c.queue.done = s


cdef uint64_t kept_seq(const Store* s) noexcept nogil:
    # With q held, when a group failed: up to where the groups before it hold all messages. They may hold some that came while
    # they were written. These are acked: to refuse what stays would lose what it pushed out.
    cdef uint64_t seq = min(s.writing.kept_last, st_load(&s.shared.shown_seq))
    return min(seq, s.queue.cut_seq) if s.queue.done_ticket < s.queue.cut_ticket else seq
