# A queue of bytes in one buffer. What is taken from the front is given back by moving the rest down once it is
# less than half, so that each byte moves at most once on average.

cdef enum:
    FIFO_IDLE = 1 << 16         # an empty queue larger than this gives its memory back


cdef void fifo_compact(Fifo* f) noexcept nogil:
    if f.head > 4096 and f.head > f.b.n // 2:
        memmove(f.b.data, f.b.data + f.head, f.b.n - f.head)
        f.b.n -= f.head
        f.base += f.head
        f.head = 0


cdef uint8_t* fifo_add(Fifo* f, size_t n) noexcept nogil:
    cdef uint8_t* p
    fifo_compact(f)
    if bytes_reserve(&f.b, n) < 0:
        return NULL
    p = f.b.data + f.b.n
    f.b.n += n
    return p


cdef void fifo_drop(Fifo* f, size_t n) noexcept nogil:
    f.head += n
    if f.head >= f.b.n:
        f.base += f.head
        f.head = 0
        f.b.n = 0
        if f.b.cap > FIFO_IDLE:
            bytes_free(&f.b)


cdef void fifo_free(Fifo* f) noexcept nogil:
    f.base += f.b.n
    f.head = 0
    bytes_free(&f.b)
