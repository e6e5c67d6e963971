# Unfinished work of groups.

cdef enum:
    # Kinds of links whose messages groups hear: other servers' only, never this server's own, and no client's.
    HEARS_SERVERS = 1 << KIND_ROUTER | 1 << KIND_GATEWAY | 1 << KIND_LEAF | 1 << KIND_HUB

cdef enum:
    TOKEN = 8                   # characters of an inbox's last token
    TO_MAX = 512                # bytes at most of the subject that a snapshot is sent to

cdef int64_t LOOK_MIN = 500000          # ns between two looks for other members; doubles with each look
cdef int64_t LOOK_MAX = 50000000

cdef struct StateWanted:
    # A member lacks entries that the log no longer has: the snapshot is sent to it, and then the record after the snapshot.
    ListNode node
    Group* group
    uint64_t peer               # the record's receiver
    uint64_t index              # of the record; 0: none is due yet
    uint64_t term
    uint32_t n_to
    char to[TO_MAX]


cdef inline StateWanted* state_at(ListNode* n) noexcept nogil:
    return <StateWanted*>list_owner(n, &(<StateWanted*>NULL).node)


cdef inline Span name_of(const Group* g) noexcept nogil:
    return span(g.name, g.n_name)


cdef void group_due(Group* g) noexcept nogil:
    if not g.stopped:
        task_post(&g.of.env.tasks, &g.task)
