# What the engine leaves for the commit thread: tickets of changes, and what is to be done to files.

cdef void commit_wanted(Store* s) noexcept nogil:
    # Puts the store before the commit thread, waking it if it sleeps.
    cdef Committer* c = s.com
    cdef bint wake
    q_lock(c)
    wake = dirty_push(s)
    q_unlock(c)
    if wake:    # only now, or it would wake to find the mutex taken
        q_signal(c, &c.wake)


cdef void committer_hold(Committer* c) noexcept nogil:
    invariant(env_held(c.env) and not c.holding, "one turn at a time holds what it changes")
    c.holding = True


cdef void committer_let(Committer* c) noexcept nogil:
    cdef Store* s
    cdef bint wake = False
    c.holding = False
    if c.held == NULL:
        return
    q_lock(c)
    while c.held != NULL:
        s = c.held
        c.held = s.hold.next
        s.hold.listed = False
        wake = dirty_push(s) or wake
    q_unlock(c)
    if wake:
        q_signal(c, &c.wake)


cdef inline void publish(Store* s) noexcept nogil:
    # One more change, whose bytes the commit thread may take from now on.
    invariant(s.stopped or env_held(s.env), "a store changes under the engine lock")
    if s.hold.depth:
        s.hold.late = True
        return
    s.shown_first = s.first_seq
    st_release(&s.shared.floor, s.first_seq)
    st_release(&s.shared.shown_seq, s.last_seq)
    if s.com == NULL or s.storage == STORE_MEMORY:
        s.shared.ticket += 1
        return
    # Stored with a barrier: it must be seen before this side looks at `dirty`.
    st_store(&s.shared.ticket, s.shared.ticket + 1)
    if st_load(&s.shared.dirty) == 0:
        if s.stopped or not s.com.holding:
            commit_wanted(s)
        elif not s.hold.listed:
            s.hold.listed = True
            s.hold.next = s.com.held
            s.com.held = s


cdef void store_hold(Store* s) noexcept nogil:
    s.hold.depth += 1


cdef void store_let(Store* s) noexcept nogil:
    s.hold.depth -= 1
    if not s.hold.unhurried:
        store_hurry(s)


cdef void store_unhurried(Store* s, bint on) noexcept nogil:
    s.hold.unhurried = on


cdef void store_hurry(Store* s) noexcept nogil:
    if s.hold.late and s.hold.depth == 0:
        s.hold.late = False
        publish(s)


cdef Op* op_new(OpKind kind, Block* b, uint64_t off, uint64_t size, uint64_t seq) noexcept nogil:
    cdef Op* op = <Op*>calloc(1, sizeof(Op))
    if op != NULL:
        op.kind = kind
        op.block = b
        op.off = off
        op.size = size
        op.seq = seq
    return op


cdef void op_push(Store* s, OpKind kind, Block* b, uint64_t off, uint64_t size, uint64_t seq) noexcept nogil:
    # What follows from a change that was made: where it cannot be noted the files no longer follow, and the store
    # takes nothing more.
    cdef Op* op = op_new(kind, b, off, size, seq)
    if op == NULL:
        s.io_errno = ENOMEM
    else:
        op_queue(s, op)


cdef inline void ops_add(Store* s, Op* op) noexcept nogil:
    # With q held.
    if s.queue.ops_tail != NULL:
        s.queue.ops_tail.next = op
    else:
        s.queue.ops = op
    s.queue.ops_tail = op


cdef void op_stage(Store* s, Op* op) noexcept nogil:
    # For a round that something else asks for.
    q_lock(s.com)
    ops_add(s, op)
    q_unlock(s.com)


cdef void op_queue(Store* s, Op* op) noexcept nogil:
    op_stage(s, op)
    if st_load(&s.shared.dirty) == 0:
        commit_wanted(s)


cdef void out_push(Store* s, Block* b) noexcept nogil:
    q_lock(s.com)
    if s.queue.out_tail != NULL:
        s.queue.out_tail.queue.next_out = b
    else:
        s.queue.out = b
    s.queue.out_tail = b
    q_unlock(s.com)
