# Out buffers: what waits to be written to a client, as a chain of chunks that goes back to the
# engine's free lists once it is written, so that an idle connection holds none.

cdef enum:
    SMALL_WRITE = 512       # what goes into a small chunk where a new one begins


cdef uint32_t[CHUNK_SIZES] CHUNK_BYTES
cdef uint32_t[CHUNK_SIZES] FREE_MAX

CHUNK_BYTES[<int>CHUNK_TINY], FREE_MAX[<int>CHUNK_TINY] = 256, 8192
CHUNK_BYTES[<int>CHUNK_SMALL], FREE_MAX[<int>CHUNK_SMALL] = 2048, 4096
CHUNK_BYTES[<int>CHUNK_LARGE], FREE_MAX[<int>CHUNK_LARGE] = 65536, 256


cdef Chunk* chunk_new(Engine* e, int size, size_t need) noexcept nogil:
    # A chunk of at least this size with room for `need` bytes; NULL when memory ran out.
    cdef Chunk* c
    cdef size_t bytes
    while size < CHUNK_SIZES and need > CHUNK_BYTES[size] - sizeof(Chunk):
        size += 1
    if size < CHUNK_SIZES and e.free_chunks[size] != NULL:
        c = e.free_chunks[size]
        e.free_chunks[size] = c.next
        e.n_free_chunks[size] -= 1
    else:
        bytes = CHUNK_BYTES[size] if size < CHUNK_SIZES else sizeof(Chunk) + need
        if bytes > 0x7fffffff:
            return NULL
        c = <Chunk*>malloc(bytes)
        if c == NULL:
            return NULL
        c.size = size
    c.cap = <uint32_t>((CHUNK_BYTES[size] if size < CHUNK_SIZES else sizeof(Chunk) + need) - sizeof(Chunk))
    c.next = NULL
    c.shared = NULL
    c.start = 0
    c.end = 0
    return c


cdef void chunk_release(Engine* e, Chunk* c) noexcept nogil:
    if c.shared != NULL:
        payload_release(e, c.shared)
    if c.size < CHUNK_SIZES and e.n_free_chunks[c.size] < FREE_MAX[c.size]:
        c.next = e.free_chunks[c.size]
        e.free_chunks[c.size] = c
        e.n_free_chunks[c.size] += 1
    else:
        free(c)


cdef void chunks_free(Engine* e) noexcept nogil:
    # Of the free lists.
    cdef Chunk* c
    cdef int size
    for size in range(CHUNK_SIZES):
        while e.free_chunks[size] != NULL:
            c = e.free_chunks[size]
            e.free_chunks[size] = c.next
            free(c)


# ---- payloads that several out buffers share

cdef Payload* payload_new(Engine* e, Span data) noexcept nogil:
    # With its CRLF, and one reference; NULL: no memory.
    cdef size_t need = sizeof(Payload) + data.n + 2
    cdef bint small = need <= CHUNK_BYTES[<int>CHUNK_SMALL] - sizeof(Chunk)
    cdef Chunk* home = chunk_new(e, CHUNK_SMALL if small else CHUNK_SIZES, need)
    cdef Payload* p
    if home == NULL:
        return NULL
    p = <Payload*>chunk_data(home)
    p.home = home
    p.refs = 1
    p.n = data.n + 2
    memcpy(payload_data(p), data.p, data.n)
    memcpy(payload_data(p) + data.n, b"\r\n", 2)
    e.n_payloads += 1
    return p


cdef void payload_release(Engine* e, Payload* p) noexcept nogil:
    invariant(p.refs > 0, "a payload is released once for each that took it")
    p.refs -= 1
    if p.refs == 0:
        e.n_payloads -= 1
        chunk_release(e, p.home)


cdef inline void client_share(Client* c, Payload* p) noexcept nogil:
    # Puts it behind the last chunk, which takes nothing more.
    p.refs += 1
    c.tail.shared = p
    c.tail.shared_at = 0
    c.tail.cap = c.tail.end
    c.queued += p.n


# ---- writing

cdef inline void client_mark_dirty(Client* c) noexcept nogil:
    if not list_linked(&c.dirty):
        list_push_front(&c.work.dirty, &c.dirty)


cdef inline bint client_begins(const Client* c) noexcept nogil:
    # A small chunk is enough for what usually follows.
    return c.head == NULL or c.tail.shared != NULL


cdef bint client_grow(Client* c, int size, size_t need) noexcept nogil:
    cdef Chunk* k = chunk_new(c.engine, size, need)
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


cdef inline size_t client_room(const Client* c) noexcept nogil:
    return 0 if c.tail == NULL else c.tail.cap - c.tail.end


cdef inline uint8_t* client_reserve(Client* c, size_t n) noexcept nogil:
    # n contiguous bytes at the end of the buffer, to be confirmed with client_commit; NULL: no memory.
    if client_room(c) < n or c.tail == NULL:
        if not client_grow(c, CHUNK_SMALL if client_begins(c) else CHUNK_LARGE, n):
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
        if client_room(c) == 0:
            if not client_grow(c, CHUNK_SMALL if client_begins(c) and n <= SMALL_WRITE else CHUNK_LARGE, 1):
                return
        room = min(client_room(c), n)
        memcpy(chunk_data(c.tail) + c.tail.end, src, room)
        client_commit(c, room)
        src += room
        n -= room


cdef inline uint64_t full_pending(const Engine* e) noexcept nogil:
    # Where there is a choice, a client with more is sent to only when half of it is written.
    return <uint64_t>(e.limits.max_pending // 4)
