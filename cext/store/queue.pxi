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
    list_push_front(&c.queue.dirty, &s.queue.dirty)
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
    if b.cut or list_linked(&b.queue.side):
        return
    b.queue.pins += 1
    list_push_front(&c.queue.sides, &b.queue.side)
    q_signal(c, &c.chores)


cdef void active_leave(Store* s) noexcept nogil:
    # The list of active or of resting stores, if it is in one.
    list_drop(&s.queue.active)
    s.queue.list = NULL


cdef void active_enter(List* stores, Store* s, int64_t now) noexcept nogil:
    # The front of one of these lists.
    active_leave(s)
    s.queue.active_at = now
    list_push_front(stores, &s.queue.active)
    s.queue.list = stores


cdef inline Store* store_idle_longest(const List* stores) noexcept nogil:
    return <Store*>list_owner(list_last(stores), &(<Store*>NULL).queue.active)


cdef void store_tell(Committer* c, Store* s, int err) noexcept nogil:
    # With q held: committer_poll hears of this store. What has failed stays so, whatever is still written.
    if err:
        s.queue.done_errno = err
        s.queue.lost_since = min(s.queue.lost_since, c.queue.synced_wall)
    if not list_linked(&s.queue.done):
        list_push_front(&c.queue.done, &s.queue.done)


cdef uint64_t kept_seq(const Store* s) noexcept nogil:
    # With q held, when a group failed: up to where the groups before it hold all messages. They may hold some that came while
    # they were written. These are acked: to refuse what stays would lose what it pushed out.
    cdef uint64_t seq = min(s.writing.kept_last, st_load(&s.shared.shown_seq))
    return min(seq, s.queue.cut_seq) if s.queue.done_ticket < s.queue.cut_ticket else seq
