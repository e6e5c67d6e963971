cdef struct Permissions:
    int x
cdef Permissions* perms_new() noexcept nogil:
    return NULL
cdef void perms_free(Permissions* p) noexcept nogil:
    pass
cdef int perms_add(Permissions* p, int which, Span subject, Span queue) noexcept nogil:
    return 0
cdef int perms_set_empty_allow(Permissions* p, int which) noexcept nogil:
    return 0
cdef bint perms_can_publish(const Permissions* p, Span subject) noexcept nogil:
    return True
cdef bint perms_can_subscribe(const Permissions* p, Span subject, Span queue) noexcept nogil:
    return True
cdef bint perms_must_filter(const Permissions* p, Span subject) noexcept nogil:
    return False
cdef bint perms_can_receive(const Permissions* p, Span subject, Span queue) noexcept nogil:
    return True
