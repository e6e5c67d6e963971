# The sublist: which subscriptions match a subject.

cdef struct QueueGroup:
    Span name               # borrowed from a member
    Sub** subs
    uint32_t n
    uint32_t near           # those of this cluster and its leaf nodes, which come first; the others are of gateways
    uint64_t weight         # of the near ones together

cdef struct Match:
    Sub** plain
    uint32_t n_plain
    QueueGroup* groups      # one for each distinct queue name, over all matching patterns
    uint32_t n_groups

cdef struct SublistStats:
    uint64_t subs
    uint64_t blocks         # allocations that it holds now, subscriptions aside
    uint64_t cache          # entries now
    uint64_t cached_bytes
    uint64_t inserts
    uint64_t removes
    uint64_t matches
    uint64_t cache_hits
    uint32_t max_fanout     # over the cached results
    double avg_fanout

ctypedef void (*sub_fn)(void* ctx, Sub* s) noexcept nogil

# waiting: where it links itself when sublist_gc has something to do; NULL: its owner knows by itself.
cdef Sublist* sublist_new(List* waiting) noexcept nogil
cdef void sublist_free(Sublist* l) noexcept nogil                         # and every sub still in it
cdef int sublist_insert(Sublist* l, Sub* s) noexcept nogil                # 0 | -1 no memory
cdef void sublist_reweighed(Sublist* l, Sub* s) noexcept nogil            # its weight is another one; no result is in use
cdef void sublist_remove(Sublist* l, Sub* s) noexcept nogil               # marks it closed; gc frees it
# Every subscription whose subject matches the literal `subject` (whose own * and > count as literals, but
# equal patterns match). The result is valid until sublist_gc or match_done. NULL only when memory ran out.
cdef const Match* sublist_match(Sublist* l, Span subject) noexcept nogil
cdef void match_done(Sublist* l, const Match* found) noexcept nogil       # nobody looks at the result any more
cdef void sublist_gc(Sublist* l) noexcept nogil     # frees what was removed and retired; no result may be in use
cdef void sublists_gc(List* waiting) noexcept nogil                       # of all that wait there
cdef void sublist_stats(Sublist* l, SublistStats* out) noexcept nogil
# Calls fn, which must not change the sublist, for each subscription.
cdef void sublist_each(Sublist* l, sub_fn fn, void* ctx) noexcept nogil

cdef struct SubCursor:
    # How far a look at a sublist in pieces has come; it begins with zeros.
    int part                # of the sublist
    uint64_t at             # a place there
    uint32_t set            # of the sets there
    bint inside             # of that set, the first of these are still to come:
    uint32_t plain
    uint32_t queued

# Likewise, a piece: it lowers *room by what it looks at, and ends when that is gone. True: it has come to the end. Between two
# pieces the sublist may change. A subscription that is there from the first piece to the last is told: once, but perhaps
# twice where another one of exactly its subject ends in between.
cdef bint sublist_some(Sublist* l, SubCursor* c, int64_t* room, sub_fn fn, void* ctx) noexcept nogil
