# The maintenance thread: what may take its time, outside the commit path and, but for short moments, outside the lock.

cdef void* keeper_main(void* arg) noexcept nogil:
    cdef Committer* c = <Committer*> arg
    cdef Block* b
    pthread_mutex_lock(&c.q)
    while not c.stopping:
        if c.sides == NULL:
            st_cond_wait(&c.chores, &c.q, INT64_MAX)
            continue
        b = c.sides
        c.sides = b.next_side
        b.pins -= 1
        if b.gone and b.pins == 0:
            pthread_mutex_unlock(&c.q)
            block_free(b)
            pthread_mutex_lock(&c.q)
    pthread_mutex_unlock(&c.q)
    return NULL


cdef void keeper_turn(Committer* c) noexcept nogil:
    pass


cdef void swap_finish(Committer* c, Store* s, Op* op, int err) noexcept nogil:
    pass


cdef void slim_memory(Task* t) noexcept nogil:
    pass
