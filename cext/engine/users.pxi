# What a user may do, made once for the connections of that user.

cdef class PermissionSet:
    """What one user may publish and subscribe to; built once, shared by the user's connections.

    Lists hold (subject, queue) pairs of bytes; None: no such list (everything allowed). responses: None, or
    (messages, seconds) of allow_responses; a negative number of messages means unlimited.
    """

    cdef Permissions* perms
    cdef bint responses
    cdef int32_t responses_max
    cdef int64_t responses_ttl

    def __cinit__(self, publish_allow=None, publish_deny=None, subscribe_allow=None, subscribe_deny=None,
                  responses=None):
        cdef int which = 0
        cdef int rc = 0
        self.perms = perms_new()
        if self.perms == NULL:
            raise MemoryError
        for entries in (publish_allow, publish_deny, subscribe_allow, subscribe_deny):
            if entries is not None:
                if not entries:
                    rc |= perms_set_empty_allow(self.perms, which)
                for subject, queue in entries:
                    rc |= perms_add(self.perms, which, span_of(subject), span_of(queue))
            which += 1
        if responses is not None:
            self.responses = True
            self.responses_max = responses[0]
            self.responses_ttl = <int64_t>(responses[1] * 1e9)
            if publish_allow is None:
                rc |= perms_set_empty_allow(self.perms, PERM_PUB_ALLOW)
        if rc != 0:
            raise MemoryError

    def __dealloc__(self):
        perms_release(self.perms)


cdef struct Rights:
    # What a PermissionSet says; its holders keep it. No perms: everything is allowed.
    Permissions* perms
    bint responses
    int32_t responses_max
    int64_t responses_ttl


cdef Rights rights_of(PermissionSet permissions):
    cdef Rights rights
    memset(&rights, 0, sizeof(rights))
    if permissions is not None:
        rights.perms = permissions.perms
        rights.responses = permissions.responses
        rights.responses_max = permissions.responses_max
        rights.responses_ttl = permissions.responses_ttl
    return rights


cdef void client_may(Client* c, const Rights* rights) noexcept nogil:
    client_restrict(c, rights.perms)
    if c.opts != NULL:
        c.opts.responses = rights.responses
        c.opts.responses_max = rights.responses_max
        c.opts.responses_ttl = rights.responses_ttl
