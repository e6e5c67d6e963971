# Which subscriptions a subject has. Literal ones live in a hash table by their whole subject, those with
# wildcards among the patterns of `bytes`; match.pxi gathers and caches results. What a result may still name
# when it is removed (subscriptions, results) is kept until sublist_gc.

# ---- the sets of patterns ------------------------------------------------------------------------------

cdef SubSet* wild_set(Sublist* l, Span pattern) noexcept nogil:
    # The set of a pattern, made if it is missing. NULL: no memory, and nothing has changed.
    cdef PatternNode* at
    cdef void** place = patterns_place(&l.patterns, pattern, &at)
    if place == NULL:
        return NULL
    if place[0] == NULL:
        place[0] = list_alloc(l, sizeof(SubSet))
        if place[0] == NULL:
            patterns_prune(&l.patterns, at)
            return NULL
        (<SubSet*>place[0]).node = at
    return <SubSet*>place[0]


cdef SubSet* literal_set(Sublist* l, Span subject, uint64_t hash) noexcept nogil:
    cdef SubSet* set = literal_find(&l.literals, subject, hash)
    if set == NULL:
        set = <SubSet*>list_alloc(l, sizeof(SubSet))
        if set != NULL and table_add(&l.literals, hash, set) < 0:
            list_free(l, set)
            return NULL
    return set


cdef void set_prune(Sublist* l, SubSet* set, uint64_t hash) noexcept nogil:
    # Frees a set that has become empty, and its place.
    cdef PatternNode* at = set.node
    if set.plain.n or set.queued.n:
        return
    if at == NULL:
        table_remove(&l.literals, hash, set)
    elif at.tail == set:
        at.tail = NULL
    else:
        at.here = NULL
    list_free(l, set)
    if at != NULL:
        patterns_prune(&l.patterns, at)


# ---- queue names ---------------------------------------------------------------------------------------

cdef QueueName* queue_join(Sublist* l, Span name) noexcept nogil:
    cdef QueueName* q = <QueueName*>strmap_get(&l.queues, name)
    if q == NULL:
        q = <QueueName*>list_alloc(l, sizeof(QueueName))
        if q == NULL:
            return NULL
        if strmap_put(&l.queues, name, q) < 0:
            list_free(l, q)
            return NULL
    q.members += 1
    return q


cdef void queue_leave(Sublist* l, QueueName* q, Span name) noexcept nogil:
    q.members -= 1
    if q.members == 0:
        strmap_del(&l.queues, name)
        if l.queues.n == 0:
            strmap_free(&l.queues)
        list_free(l, q)


# ---- insert and remove ---------------------------------------------------------------------------------

cdef Sublist* sublist_new(List* waiting) noexcept nogil:
    cdef Sublist* made = <Sublist*>calloc(1, sizeof(Sublist))
    if made != NULL:
        made.waiting = waiting
    return made


cdef int sublist_insert(Sublist* l, Sub* s) noexcept nogil:
    cdef bint wild = not subject_is_literal(s.subject)
    cdef SubSet* set
    s.hash = table_hash(s.subject.p, s.subject.n)
    if s.queue.n:
        s.group = queue_join(l, s.queue)
        if s.group == NULL:
            return -1
    set = wild_set(l, s.subject) if wild else literal_set(l, s.subject, s.hash)
    if set == NULL or vec_add(l, &set.queued if s.queue.n else &set.plain, s) < 0:
        if set != NULL:
            set_prune(l, set, s.hash)
        if s.group != NULL:
            queue_leave(l, s.group, s.queue)
            s.group = NULL
        return -1
    s.home = set
    s.closed = False
    l.n_subs += 1
    l.inserts += 1
    sublist_changed(l, s, wild)
    return 0


cdef void sublist_remove(Sublist* l, Sub* s) noexcept nogil:
    cdef SubSet* set = s.home
    cdef bint wild
    if s.closed or set == NULL:
        return
    wild = set.node != NULL
    vec_remove(l, &set.queued if s.queue.n else &set.plain, s)
    set_prune(l, set, s.hash)
    if s.group != NULL:
        queue_leave(l, s.group, s.queue)
        s.group = NULL
    s.home = NULL
    s.closed = True
    list_push_front(&l.removed, &s.node)
    has_garbage(l)
    l.n_subs -= 1
    l.removes += 1
    sublist_changed(l, s, wild)


cdef inline void sublist_changed(Sublist* l, const Sub* s, bint wild) noexcept nogil:
    # Drops the cached results that its coming or going makes wrong.
    if wild:
        l.generation += 1
    else:
        cache_drop(l, s.subject, s.hash)


cdef void sublist_reweighed(Sublist* l, Sub* s) noexcept nogil:
    sublist_changed(l, s, s.home.node != NULL)


cdef void subs_free(List* subs) noexcept nogil:
    cdef Sub* s = sub_at(list_pop(subs))
    while s != NULL:
        free(s)
        s = sub_at(list_pop(subs))


cdef void sublist_gc(Sublist* l) noexcept nogil:
    if not l.garbage:
        return
    l.garbage = False
    subs_free(&l.removed)
    finder_gc(l)


cdef void sublists_gc(List* waiting) noexcept nogil:
    while not list_empty(waiting):
        sublist_gc(<Sublist*>list_owner(list_pop(waiting), &(<Sublist*>NULL).node))


cdef void sub_remove_each(void* ctx, Sub* s) noexcept nogil:
    # Links all, for sublist_free: removing one by one would walk the structure while it changes.
    list_drop(&s.node)              # its client's, which is gone
    list_push_front(<List*>ctx, &s.node)


cdef void stop_waiting(Sublist* l) noexcept nogil:
    # Its owner's list does not name it any more, nor will it.
    list_drop(&l.node)
    l.waiting = NULL


cdef void sublist_free(Sublist* l) noexcept nogil:
    cdef List all
    cdef Sub* s
    if l == NULL:
        return
    stop_waiting(l)
    subs_free(&l.removed)
    memset(&all, 0, sizeof(List))
    sublist_each(l, sub_remove_each, &all)
    s = sub_at(list_pop(&all))
    while s != NULL:
        sublist_remove(l, s)
        s = sub_at(list_pop(&all))
    sublist_gc(l)
    finder_free(l)
    free(l)


# ---- looking at all of it ------------------------------------------------------------------------------

cdef struct Each:
    sub_fn fn
    void* ctx


cdef int set_each(void* each, void* kept) noexcept nogil:
    cdef const Each* e = <const Each*>each
    cdef SubSet* set = <SubSet*>kept
    cdef uint32_t i
    for i in range(set.plain.n):
        e.fn(e.ctx, vec_subs(&set.plain)[i])
    for i in range(set.queued.n):
        e.fn(e.ctx, vec_subs(&set.queued)[i])
    return 0


cdef void sublist_each(Sublist* l, sub_fn fn, void* ctx) noexcept nogil:
    cdef uint32_t i
    cdef Each each
    each.fn = fn
    each.ctx = ctx
    for i in range(l.literals.cap):
        if l.literals.a[i].item != NULL:
            set_each(&each, l.literals.a[i].item)
    patterns_each(&l.patterns, set_each, &each)


cdef void sublist_stats(Sublist* l, SublistStats* out) noexcept nogil:
    out.subs = l.n_subs
    out.blocks = l.blocks + l.patterns.n + (l.literals.cap != 0) + (l.patterns.edges.cap != 0)
    out.cached_bytes = l.finder.cached_bytes
    out.inserts = l.inserts
    out.removes = l.removes
    out.matches = l.matches
    out.cache_hits = l.hits
    cache_stats(l, out)
