# Out buffers: what waits to be written to a client, as a chain of chunks that goes back to the
# engine's free lists once it is written, so that an idle connection holds none.

cdef enum:
    SMALL_CHUNK = 2048       # the first of a chain: most flushes fit
    LARGE_CHUNK = 65536
    FREE_SMALL_MAX = 4096
    FREE_LARGE_MAX = 256


cdef Chunk* chunk_new(Engine* e, bint first, size_t need) noexcept nogil:
    # A chunk with room for at least `need` bytes; NULL when memory ran out.
    cdef Chunk* c
    cdef size_t cap
    if first and need <= SMALL_CHUNK - sizeof(Chunk):
        if e.free_small != NULL:
            c = e.free_small
            e.free_small = c.next
            e.n_free_small -= 1
        else:
            c = <Chunk*>malloc(SMALL_CHUNK)
            if c == NULL:
                return NULL
            c.cap = <uint32_t>(SMALL_CHUNK - sizeof(Chunk))
    elif need <= LARGE_CHUNK - sizeof(Chunk):
        if e.free_large != NULL:
            c = e.free_large
            e.free_large = c.next
            e.n_free_large -= 1
        else:
            c = <Chunk*>malloc(LARGE_CHUNK)
            if c == NULL:
                return NULL
            c.cap = <uint32_t>(LARGE_CHUNK - sizeof(Chunk))
    else:
        cap = need
        if cap > 0x7fffffff:
            return NULL
        c = <Chunk*>malloc(sizeof(Chunk) + cap)
        if c == NULL:
            return NULL
        c.cap = <uint32_t>cap
    c.next = NULL
    c.start = 0
    c.end = 0
    return c


cdef void chunk_release(Engine* e, Chunk* c) noexcept nogil:
    if c.cap == SMALL_CHUNK - sizeof(Chunk) and e.n_free_small < FREE_SMALL_MAX:
        c.next = e.free_small
        e.free_small = c
        e.n_free_small += 1
    elif c.cap == LARGE_CHUNK - sizeof(Chunk) and e.n_free_large < FREE_LARGE_MAX:
        c.next = e.free_large
        e.free_large = c
        e.n_free_large += 1
    else:
        free(c)


cdef inline void client_mark_dirty(Client* c) noexcept nogil:
    if not c.dirty:
        c.dirty = True
        c.next_dirty = c.engine.dirty
        c.engine.dirty = c


cdef bint client_grow(Client* c, size_t need) noexcept nogil:
    cdef Chunk* k = chunk_new(c.engine, c.head == NULL, need)
    if k == NULL:
        client_close(c, CLOSE_WRITE_ERROR)
        return False
    if c.head == NULL:
        c.head = k
    else:
        c.tail.next = k
    c.tail = k
    c.chunks_queued += 1
    return True


cdef inline uint8_t* client_reserve(Client* c, size_t n) noexcept nogil:
    # n contiguous bytes at the end of the buffer, to be confirmed with client_commit; NULL: no memory.
    if c.tail == NULL or c.tail.cap - c.tail.end < n:
        if not client_grow(c, n):
            return NULL
    return chunk_data(c.tail) + c.tail.end


cdef inline void client_commit(Client* c, size_t n) noexcept nogil:
    c.tail.end += <uint32_t>n
    c.queued += n


cdef void client_write(Client* c, const void* p, size_t n) noexcept nogil:
    # Copies n bytes behind what already waits, over as many chunks as it takes.
    cdef const uint8_t* src = <const uint8_t*>p
    cdef size_t room
    if c.closing:
        return
    client_mark_dirty(c)
    while n:
        if c.tail == NULL or c.tail.end == c.tail.cap:
            if not client_grow(c, 1 if c.head == NULL and n <= 512 else LARGE_CHUNK - sizeof(Chunk)):
                return
        room = c.tail.cap - c.tail.end
        if room > n:
            room = n
        memcpy(chunk_data(c.tail) + c.tail.end, src, room)
        client_commit(c, room)
        src += room
        n -= room


cdef void client_error(Client* c, const char* text) noexcept nogil:
    # Sends -ERR 'text'.
    client_write(c, b"-ERR '", 6)
    client_write(c, text, strlen(text))
    client_write(c, b"'\r\n", 3)
    if c.engine.trace:
        trace_line(c, TRACE_OUT, b"-ERR", span_c(text))


cdef void client_ok(Client* c) noexcept nogil:
    client_write(c, b"+OK\r\n", 5)
    if c.engine.trace:
        trace_line(c, TRACE_OUT, b"OK", span(NULL, 0))
