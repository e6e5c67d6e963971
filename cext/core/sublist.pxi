cdef struct Sublist:
    int x
cdef Sub* sub_new(Span subject, Span queue, Span sid) noexcept nogil:
    return NULL
cdef void sub_free(Sub* s) noexcept nogil:
    pass
cdef Sublist* sublist_new() noexcept nogil:
    return NULL
cdef void sublist_free(Sublist* l) noexcept nogil:
    pass
cdef int sublist_insert(Sublist* l, Sub* s) noexcept nogil:
    return -1
cdef void sublist_remove(Sublist* l, Sub* s) noexcept nogil:
    pass
cdef const Match* sublist_match(Sublist* l, Span subject) noexcept nogil:
    return NULL
cdef void sublist_gc(Sublist* l) noexcept nogil:
    pass
cdef void sublist_stats(Sublist* l, SublistStats* out) noexcept nogil:
    pass
cdef void sublist_each(Sublist* l, void (*fn)(void* ctx, Sub* s) noexcept nogil, void* ctx) noexcept nogil:
    pass
