# What a sweep of subjects found, in their order: of each the count, the length of its text (32 bits), and that.

cdef int compare_found(const void* a, const void* b) noexcept nogil:
    cdef const uint8_t* x = (<const uint8_t**>a)[0]
    cdef const uint8_t* y = (<const uint8_t**>b)[0]
    cdef uint32_t n, m
    cdef int order
    memcpy(&n, x + 8, 4)
    memcpy(&m, y + 8, 4)
    order = memcmp(x + 12, y + 12, min(n, m))
    return order if order else <int>(n > m) - <int>(n < m)


cdef const uint8_t** found_in_order(const Bytes* b, uint64_t n) noexcept nogil:
    # Where each subject that a sweep found stands, by their texts; NULL: no memory
    cdef const uint8_t** places = <const uint8_t**>malloc((n + 1) * sizeof(uint8_t*))
    cdef size_t at = 0
    cdef uint64_t i
    cdef uint32_t size
    if places == NULL:
        return NULL
    for i in range(n):
        places[i] = b.data + at
        memcpy(&size, b.data + at + 8, 4)
        at += 12 + <size_t>size
    qsort(places, n, sizeof(uint8_t*), compare_found)
    return places
