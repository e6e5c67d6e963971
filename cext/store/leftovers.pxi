# The memory of what has left at once: blocks of a memory store and whole indexes. It is given back in pieces, because that takes
# time by the page.

cdef enum:
    LEFTOVER_TURN = 512         # chunks of an index that a turn frees
    LEFTOVER_BLOCK = 16         # of which a block costs so many


cdef void leftover_block(Store* s, Block* b) noexcept nogil:
    b.next_empty = s.left.blocks
    s.left.blocks = b
    if not task_queued(&s.left.task):
        task_post(&s.env.tasks, &s.left.task)


cdef void index_replace(Store* s, const Index* fresh) noexcept nogil:
    cdef Leftover* one = <Leftover*>malloc(sizeof(Leftover)) if s.x.n_chunks + s.x.n_texts > LEFTOVER_TURN else NULL
    if one == NULL:
        index_free(&s.x)
    else:
        one.x = s.x
        one.next = s.left.indexes
        s.left.indexes = one
        if not task_queued(&s.left.task):
            task_post(&s.env.tasks, &s.left.task)
    s.x = fresh[0]


cdef bint leftovers_piece(Store* s, uint32_t left) noexcept nogil:
    # Whether there is more.
    cdef Leftover* one
    cdef Block* b
    cdef void* p
    while left and s.left.blocks != NULL:
        b = s.left.blocks
        s.left.blocks = b.next_empty
        block_free(b)
        left -= min(left, <uint32_t>LEFTOVER_BLOCK)
    while left and s.left.indexes != NULL:
        one = s.left.indexes
        left -= 1
        if one.x.n_chunks:
            one.x.n_chunks -= 1
            p = one.x.nodes[one.x.n_chunks]
        elif one.x.n_texts:
            one.x.n_texts -= 1
            p = one.x.texts[one.x.n_texts]
        else:
            s.left.indexes = one.next
            index_free(&one.x)
            free(one)
            continue
        if index_owns(&one.x, p):
            free(p)
    return s.left.blocks != NULL or s.left.indexes != NULL


cdef void leftovers_turn(Task* t) noexcept nogil:
    cdef Store* s = <Store*>t.owner
    if leftovers_piece(s, LEFTOVER_TURN):
        task_post(&s.env.tasks, t)


cdef void leftovers_free(Store* s) noexcept nogil:
    while leftovers_piece(s, 0xffffffffU):
        pass
