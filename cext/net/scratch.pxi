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


cdef void ws_forget(Reactor* r) noexcept nogil:
    # What a reactor keeps for its connections.
    free(r.packed)
    bytes_free(&r.deflated)
    if r.inflater != NULL:
        inflateEnd(r.inflater)
        free(r.inflater)
    free(r.deflater)
