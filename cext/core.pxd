"""Routing: sublists, permissions, accounts, and the engine that ties subscriptions to receivers."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from jsserver.cext.bytes cimport Span, inbound_fn


# ---- subscriptions -------------------------------------------------------------------------------

cdef struct Sub:
    # One subscription, allocated with its texts in one piece (sub_new). Once removed it is `closed`
    # and stays readable until sublist_gc, because a match result in use may still name it.
    Span subject
    Span queue              # .n == 0: a plain subscription
    Span sid
    void* client            # Client*; NULL for the server's own
    inbound_fn fn           # the server's own: who takes the message
    void* target
    uint64_t delivered      # messages since SUB
    uint64_t max            # UNSUB max; 0: none
    bint closed
    Sub* next               # list of its client's subscriptions; after removal: of what gc frees
    Sub* prev
    uint64_t hash

cdef Sub* sub_new(Span subject, Span queue, Span sid) noexcept nogil     # NULL: no memory
cdef void sub_free(Sub* s) noexcept nogil                                # only if it was never inserted


# ---- sublist: which subscriptions match a subject --------------------------------------------------

cdef struct QueueGroup:
    Span name               # borrowed from a member
    Sub** subs
    uint32_t n

cdef struct Match:
    Sub** plain
    uint32_t n_plain
    QueueGroup* groups      # one for each distinct queue name, over all matching patterns
    uint32_t n_groups

cdef struct SublistStats:
    uint64_t subs
    uint64_t cache          # entries now
    uint64_t inserts
    uint64_t removes
    uint64_t matches
    uint64_t cache_hits
    uint32_t max_fanout     # over the cached results
    double avg_fanout

cdef struct Sublist

cdef Sublist* sublist_new() noexcept nogil
cdef void sublist_free(Sublist* l) noexcept nogil                         # and every sub still in it
cdef int sublist_insert(Sublist* l, Sub* s) noexcept nogil                # 0 | -1 no memory
cdef void sublist_remove(Sublist* l, Sub* s) noexcept nogil               # marks it closed; gc frees it
# Every subscription whose subject matches the literal `subject` (whose own * and > count as literals, but
# equal patterns match). The result is valid until sublist_gc. NULL only when memory ran out.
cdef const Match* sublist_match(Sublist* l, Span subject) noexcept nogil
# Frees removed subscriptions and retired results; call it when no result is in use.
cdef void sublist_gc(Sublist* l) noexcept nogil
cdef void sublist_stats(Sublist* l, SublistStats* out) noexcept nogil
# Calls fn for each subscription (monitoring).
cdef void sublist_each(Sublist* l, void (*fn)(void* ctx, Sub* s) noexcept nogil, void* ctx) noexcept nogil


# ---- permissions -----------------------------------------------------------------------------------

cdef struct Permissions     # of one user, shared by its connections; immutable once built

# Entries of subscribe lists may be "subject queue". NULL lists mean: no such list; n 0 with a non-NULL list: none allowed.
cdef Permissions* perms_new() noexcept nogil
cdef void perms_free(Permissions* p) noexcept nogil
cdef int perms_add(Permissions* p, int which, Span subject, Span queue) noexcept nogil  # which: PERM_*
cdef int perms_set_empty_allow(Permissions* p, int which) noexcept nogil
cdef bint perms_can_publish(const Permissions* p, Span subject) noexcept nogil
cdef bint perms_can_subscribe(const Permissions* p, Span subject, Span queue) noexcept nogil
# Whether a deny entry lies inside a wildcard subscription, so that deliveries must be checked one by one.
cdef bint perms_must_filter(const Permissions* p, Span subject) noexcept nogil
cdef bint perms_can_receive(const Permissions* p, Span subject, Span queue) noexcept nogil

cdef enum:
    PERM_PUB_ALLOW = 0
    PERM_PUB_DENY = 1
    PERM_SUB_ALLOW = 2
    PERM_SUB_DENY = 3
