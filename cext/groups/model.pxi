# What groups are made of beside their contract: what is in the making.

cdef enum:
    # Which messages groups hear: other servers', by whatever link they come. Never this server's own, and no client's.
    HEARS_SERVERS = 1 << KIND_ROUTER | 1 << KIND_GATEWAY | 1 << KIND_LEAF | 1 << KIND_HUB

cdef enum:
    TOKEN = 8                   # characters of an inbox's last token
    TO_MAX = 512                # bytes of a subject that a state goes to

cdef int64_t LOOK_MIN = 500000          # ns between two looks at who else is there; twice as many each time
cdef int64_t LOOK_MAX = 50000000

cdef struct StateWanted:
    # A member lacks what is in the log no more: the snapshot goes to it, and then the record behind it.
    ListNode node
    Group* group
    uint64_t peer               # of the record
    uint64_t index              # 0: there is none yet
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
