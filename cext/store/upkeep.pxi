# The maintenance thread: what may take its time, outside the commit path and, but for short moments, outside the lock.

cdef void* keeper_main(void* arg) noexcept nogil:
    cdef Committer* c = <Committer*> arg
    pthread_mutex_lock(&c.q)
    while not c.stopping:
        if c.sides == NULL:
            st_cond_wait(&c.chores, &c.q, INT64_MAX)
            continue
        keeper_side(c)
    pthread_mutex_unlock(&c.q)
    return NULL


cdef void keeper_turn(Committer* c) noexcept nogil:
    """Everything that is due, without a thread."""
    pthread_mutex_lock(&c.q)
    while c.sides != NULL:
        keeper_side(c)
    pthread_mutex_unlock(&c.q)


cdef void keeper_side(Committer* c) noexcept nogil:
    """With q held, which is let go meanwhile: the sidecar of one sealed block. Its pin was taken when it was queued."""
    cdef Block* b = c.sides
    cdef Store* s = b.store
    cdef bint dead = b.dead, last
    c.sides = b.next_side
    b.next_side = NULL
    s.busy += 1
    pthread_mutex_unlock(&c.q)
    if not dead:
        side_build(b)
    pthread_mutex_lock(&c.q)
    b.sided = True
    b.pins -= 1
    last = b.gone and b.pins == 0
    if last:
        pthread_mutex_unlock(&c.q)
        block_free(b)
        pthread_mutex_lock(&c.q)
    s.busy -= 1
    pthread_cond_broadcast(&c.idle)


cdef void swap_finish(Committer* c, Store* s, Op* op, int err) noexcept nogil:
    pass


cdef void slim_memory(Task* t) noexcept nogil:
    pass
