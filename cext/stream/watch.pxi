# Who wants to know of which messages, found by the message's subject in time of the matching watchers:
# a list of those that want all, a table of literal subjects, and the patterns.

# ---- one pattern's watchers -------------------------------------------------------------------------------

cdef int spot_add(Spot* spot, Watcher* w, uint32_t entry) noexcept nogil:
    if array_room(&spot.items, &spot.cap, <uint64_t>spot.n + 1, sizeof(SpotItem), 1) < 0:
        return -1
    spot.items[spot.n].w = w
    spot.items[spot.n].entry = entry
    w.entries[entry].spot = spot
    w.entries[entry].slot = spot.n
    spot.n += 1
    return 0


cdef void spot_remove(Spot* spot, uint32_t slot) noexcept nogil:
    spot.n -= 1
    if slot != spot.n:
        spot.items[slot] = spot.items[spot.n]
        spot.items[slot].w.entries[spot.items[slot].entry].slot = slot


cdef Spot* spot_new(PatternNode* node) noexcept nogil:
    cdef Spot* spot = <Spot*>calloc(1, sizeof(Spot))
    if spot != NULL:
        spot.node = node
    return spot


cdef void spot_free(Spot* spot) noexcept nogil:
    if spot != NULL:
        free(<void*>spot.literal.p)
        free(spot.items)
        free(spot)


cdef inline Watcher* watcher_step(ListWalk* all) noexcept nogil:
    return <Watcher*>list_owner(list_step(all), &(<Watcher*>NULL).node)


cdef int watch_match(WatchIndex* x, Span subject, pattern_fn fn, void* ctx) noexcept nogil:
    # Calls fn with each matching Spot, until it returns other than 0; and returns that.
    cdef Spot* spot
    cdef int rc = fn(ctx, x.all) if x.all != NULL else 0
    if rc == 0 and x.literals.n:
        spot = <Spot*>strmap_get(&x.literals, subject)
        if spot != NULL:
            rc = fn(ctx, spot)
    if rc == 0 and (x.wild.n or x.wild.root.tail != NULL):
        rc = patterns_match(&x.wild, subject, fn, ctx)
    return rc


# ---- attaching and detaching -----------------------------------------------------------------------------------

cdef Spot* literal_spot(WatchIndex* x, Span pattern) noexcept nogil:
    cdef Spot* spot = <Spot*>strmap_get(&x.literals, pattern)
    if spot != NULL:
        return spot
    spot = spot_new(NULL)
    if spot == NULL:
        return NULL
    spot.literal.p = <const uint8_t*>malloc(pattern.n + 1)
    if spot.literal.p == NULL or strmap_put(&x.literals, pattern, spot) < 0:
        spot_free(spot)
        return NULL
    memcpy(<void*>spot.literal.p, pattern.p, pattern.n)
    spot.literal.n = pattern.n
    return spot


cdef Spot* wild_spot(WatchIndex* x, Span pattern) noexcept nogil:
    cdef PatternNode* node
    cdef void** place = patterns_place(&x.wild, pattern, &node)
    if place == NULL:
        return NULL
    if place[0] == NULL:
        place[0] = spot_new(node)
    if place[0] == NULL:
        patterns_prune(&x.wild, node)
        return NULL
    return <Spot*>place[0]


cdef void spot_drop(WatchIndex* x, Spot* spot) noexcept nogil:
    # Frees a pattern that nobody watches any more.
    cdef PatternNode* node = spot.node
    if spot.n:
        return
    if spot == x.all:
        x.all = NULL
    elif node == NULL:
        strmap_del(&x.literals, spot.literal)
    elif node.tail == spot:
        node.tail = NULL
    else:
        node.here = NULL
    spot_free(spot)
    if node != NULL:
        patterns_prune(&x.wild, node)


cdef Spot* watch_spot(WatchIndex* x, const Filter* f, uint32_t i) noexcept nogil:
    if f.all:
        if x.all == NULL:
            x.all = spot_new(NULL)
        return x.all
    if subject_is_literal(f.patterns[i]):
        return literal_spot(x, f.patterns[i])
    return wild_spot(x, f.patterns[i])


cdef int stream_watch(Stream* s, Watcher* w) noexcept nogil:
    cdef WatchIndex* x = &s.watchers
    cdef uint32_t n = 1 if w.filter.all else w.filter.n
    cdef uint32_t i
    cdef Spot* spot
    w.entries = <WatchEntry*>calloc(n, sizeof(WatchEntry))
    if w.entries == NULL:
        return -1
    list_push_front(&x.attached, &w.node)
    x.n += 1
    for i in range(n):
        spot = watch_spot(x, w.filter, i)
        if spot != NULL and spot_add(spot, w, i) < 0:
            spot_drop(x, spot)
            spot = NULL
        if spot == NULL:
            stream_unwatch(s, w)
            return -1
        w.n_entries = i + 1
    return 0


cdef void stream_unwatch(Stream* s, Watcher* w) noexcept nogil:
    cdef WatchIndex* x = &s.watchers
    cdef uint32_t i
    cdef Spot* spot
    if w.entries == NULL:
        return
    for i in range(w.n_entries):
        spot = w.entries[i].spot
        spot_remove(spot, w.entries[i].slot)
        spot_drop(x, spot)
    free(w.entries)
    w.entries = NULL
    w.n_entries = 0
    list_remove(&w.node)
    x.n -= 1


cdef void watch_free(WatchIndex* x) noexcept nogil:
    # Nobody is attached.
    strmap_free(&x.literals)


# ---- telling -----------------------------------------------------------------------------------------------------

cdef struct Telling:
    uint64_t seq
    int reason
    bint wanted             # somebody's filter matches
    bint needed


cdef int tell_stored(void* ctx, void* kept) noexcept nogil:
    cdef Telling* t = <Telling*>ctx
    cdef Spot* spot = <Spot*>kept
    cdef uint32_t i
    cdef Watcher* w
    for i in range(spot.n):
        w = spot.items[i].w
        if w.seen == t.seq:
            continue
        w.seen = t.seq
        w.stored(w, t.seq)
    return 0


cdef int tell_removed(void* ctx, void* kept) noexcept nogil:
    cdef Telling* t = <Telling*>ctx
    cdef Spot* spot = <Spot*>kept
    cdef uint32_t i
    cdef Watcher* w
    for i in range(spot.n):
        w = spot.items[i].w
        if w.n_entries > 1:
            if w.gone == t.seq:
                continue
            w.gone = t.seq
        w.removed(w, t.seq, t.reason)
    return 0


cdef inline void spot_place(Spot* spot, uint32_t slot, SpotItem item) noexcept nogil:
    spot.items[slot] = item
    item.w.entries[item.entry].slot = slot


cdef void show(Stream* s, uint64_t upto) noexcept nogil:
    # Everything up to here may be seen from now on: its watchers hear of it.
    cdef Telling t
    cdef uint64_t seq = s.shown + 1
    invariant(s.shown <= upto, "what is shown stays shown")
    s.shown = upto
    while s.watchers.n:
        seq = store_next_seq(s.store, NULL, seq)
        if seq == 0 or seq > upto:
            return
        t.seq = seq
        watch_match(&s.watchers, store_subject(s.store, seq), tell_stored, &t)
        seq += 1


cdef uint64_t stream_hidden(Stream* s, const Filter* filter, uint64_t start) noexcept nogil:
    return store_pending(s.store, filter, max(start, s.shown + 1)) if s.shown < s.entered else 0


cdef int is_there(void* ctx, void* kept) noexcept nogil:
    return 1


cdef bint watched(WatchIndex* x, Span subject) noexcept nogil:
    # Whether anybody's filter matches.
    return watch_match(x, subject, is_there, NULL) != 0


cdef inline bint is_unwanted(Stream* s, Span subject) noexcept nogil:
    # Nobody is interested in a message: its sequence is used up. A member whose consumers are not all open does not know that.
    return (s.cfg.retention == RETENTION_INTEREST and not (s.member != NULL and s.consumer_missing)
            and not watched(&s.watchers, subject))
