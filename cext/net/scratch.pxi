# What a reactor keeps for the transports of its connections.

cdef uint8_t* reactor_scratch(Reactor* r) noexcept nogil:
    # The reactor's scratch; NULL: no memory.
    if r.scratch == NULL:
        r.scratch = <uint8_t*>malloc(SCRATCH_SIZE)
    return r.scratch


cdef uint8_t* reactor_packed(Reactor* r) noexcept nogil:
    # Where what comes lies until it is unpacked; its transport has the reactor's scratch. NULL: no memory.
    if r.packed == NULL:
        r.packed = <uint8_t*>malloc(PACKED_SIZE)
    return r.packed


cdef void borrow(Reactor* r, Bytes* b) noexcept nogil:
    # Where there is no buffer, the reactor's becomes the one, if it has one.
    if b.cap == 0:
        b[0] = r.spare
        memset(&r.spare, 0, sizeof(Bytes))


cdef void give_back(Reactor* r, Bytes* b) noexcept nogil:
    # Of a buffer that is empty: the next connection may have it.
    if r.spare.cap or b.cap > SPARE_MAX:
        bytes_free(b)
        return
    r.spare = b[0]
    memset(b, 0, sizeof(Bytes))


cdef void scratch_free(Reactor* r) noexcept nogil:
    # All that a reactor keeps for its connections.
    free(r.scratch)
    free(r.packed)
    s2_room_free(&r.room)
    bytes_free(&r.spare)
    bytes_free(&r.deflated)
    if r.inflater != NULL:
        inflateEnd(r.inflater)
        free(r.inflater)
    free(r.deflater)
