# What a sublist is made of: its tables and results, their memory, vectors of subscriptions, and what waits for gc.

cdef enum:
    VEC_MAX = 0x40000000        # elements of a vector
    CACHE_WAYS = 4


cdef struct SubVec:
    # Subscriptions in no order; each knows its place. One alone is held in `p` itself.
    void* p
    uint32_t n
    uint32_t cap                # 0: p is the only one, or nothing

cdef struct SubSet:
    # The subscriptions of one pattern.
    SubVec plain
    SubVec queued
    PatternNode* node           # NULL: a literal's

cdef struct QueueName:
    # A queue group's name, shared by its members; stamp and index are match.pxi's scribbles.
    uint64_t stamp
    uint32_t index
    uint32_t members

# Of match.pxi: a remembered result, a set of the cache, a result in the making, and all of them.

cdef struct Cached:
    # One allocation with the arrays of its match and the subject.
    Match match
    Cached* next            # retired: of what gc frees
    uint64_t hash
    uint64_t generation
    Span subject
    uint32_t size           # bytes of the allocation

cdef struct CacheSet:
    uint64_t missed         # hash of the last subject that missed here and was not kept
    Cached* way[CACHE_WAYS]
    uint32_t tag[CACHE_WAYS]
    uint8_t used[CACHE_WAYS]
    uint8_t hand

cdef struct Scratch:
    Match match
    Scratch* next
    Sub** plain
    Sub** queued            # as found; sorted by group they are put behind, at queued + cap_queued
    QueueGroup* groups
    uint32_t n_plain
    uint32_t cap_plain
    uint32_t n_queued
    uint32_t cap_queued
    uint32_t cap_groups

cdef struct Finder:
    CacheSet* sets
    uint32_t n_sets
    uint32_t sweep          # the set that gives way next when the results together are too large
    uint32_t n_cached
    uint64_t cached_bytes
    Cached* last            # what was found last; publishers tend to go on with the same subject
    Cached* retired         # by next; freed by gc
    Scratch* idle
    Scratch* busy           # in use until gc
    uint32_t n_idle
    uint64_t stamp          # of the gathering under way, for QueueName

cdef struct Sublist:
    Table literals
    PatternTrie patterns
    StrMap queues               # name -> QueueName
    uint64_t generation         # of the wildcard patterns: older results in the cache are stale
    uint64_t n_subs
    uint64_t blocks             # allocations it holds now, but subscriptions, tables and nodes of patterns
    uint64_t inserts
    uint64_t removes
    uint64_t matches
    uint64_t hits
    List removed                # Subs; freed by gc
    bint garbage                # gc has something to do
    List* waiting               # of its owner: sublists that gc has something to do for; NULL: nobody collects them
    ListNode node               # of these
    Finder finder


# ---- memory --------------------------------------------------------------------------------------------

cdef inline void* list_alloc(Sublist* l, size_t n) noexcept nogil:
    cdef void* p = calloc(1, n)
    if p != NULL:
        l.blocks += 1
    return p


cdef inline void list_free(Sublist* l, void* p) noexcept nogil:
    if p != NULL:
        l.blocks -= 1
        free(p)


cdef Sub* sub_new(Span subject, Span queue, Span sid) noexcept nogil:
    cdef Sub* s = <Sub*>calloc(1, sizeof(Sub) + <size_t>subject.n + queue.n + sid.n)
    cdef uint8_t* text
    if s == NULL:
        return NULL
    text = <uint8_t*>s + sizeof(Sub)
    s.subject = sub_text(&text, subject)
    s.queue = sub_text(&text, queue)
    s.sid = sub_text(&text, sid)
    s.weight = 1
    return s


cdef inline Span sub_text(uint8_t** to, Span text) noexcept nogil:
    cdef Span copy = span(to[0], text.n)
    if text.n:
        memcpy(to[0], text.p, text.n)
        to[0] += text.n
    return copy


cdef void sub_free(Sub* s) noexcept nogil:
    free(s)


# ---- vectors -------------------------------------------------------------------------------------------

cdef inline Sub** vec_subs(SubVec* v) noexcept nogil:
    return <Sub**>&v.p if v.cap == 0 else <Sub**>v.p


cdef int vec_resize(Sublist* l, SubVec* v, uint32_t cap) noexcept nogil:
    cdef Sub** a
    if v.cap:
        a = <Sub**>realloc(v.p, cap * sizeof(Sub*))
    else:
        a = <Sub**>list_alloc(l, cap * sizeof(Sub*))
        if a != NULL:
            a[0] = <Sub*>v.p
    if a == NULL:
        return -1
    v.p = a
    v.cap = cap
    return 0


cdef int vec_add(Sublist* l, SubVec* v, Sub* s) noexcept nogil:
    if v.n and (v.n == v.cap or v.cap == 0):
        if v.cap >= VEC_MAX or vec_resize(l, v, v.cap * 2 if v.cap else 4) < 0:
            return -1
    vec_subs(v)[v.n] = s
    s.place = v.n
    v.n += 1
    return 0


cdef void vec_remove(Sublist* l, SubVec* v, Sub* s) noexcept nogil:
    cdef Sub** a = vec_subs(v)
    cdef Sub* last
    v.n -= 1
    last = a[v.n]
    a[s.place] = last
    last.place = s.place
    if v.cap == 0:
        return
    if v.n <= 1:
        v.p = a[0] if v.n else NULL
        v.cap = 0
        list_free(l, a)
    elif v.n <= v.cap // 4:
        vec_resize(l, v, v.cap // 2)        # without memory it stays large


# ---- literals ------------------------------------------------------------------------------------------

cdef inline SubSet* literal_find(const Table* t, Span subject, uint64_t hash) noexcept nogil:
    # A set is never empty, so any of its subscriptions tells its subject.
    cdef uint32_t at = 0
    cdef SubSet* set = <SubSet*>table_first(t, hash, &at)
    cdef SubVec* any
    while set != NULL:
        any = &set.plain if set.plain.n else &set.queued
        if span_eq(vec_subs(any)[0].subject, subject):
            break
        set = <SubSet*>table_more(t, hash, &at)
    return set


cdef inline void has_garbage(Sublist* l) noexcept nogil:
    if l.garbage:
        return
    l.garbage = True
    if l.waiting != NULL:
        list_push_front(l.waiting, &l.node)
