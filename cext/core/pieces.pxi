# A look at all subscriptions of a sublist, in pieces between which it may change.
#
# Tables are walked by place (`table_next`), and the sets of a place by number. The subscriptions of a set are told from the
# last to the first: one that is removed has the last one take its place, so what is still to come never moves up.

cdef enum CursorPart:
    PART_LITERALS
    PART_EDGES                  # nodes of patterns, each with those that follow it by stars alone
    PART_ROOT                   # those that begin with stars alone
    PART_END


cdef bint set_some(SubSet* set, SubCursor* c, int64_t* room, sub_fn fn, void* ctx) noexcept nogil:
    # Whether the set is told to its end.
    c.plain = min(c.plain, set.plain.n) if c.inside else set.plain.n
    c.queued = min(c.queued, set.queued.n) if c.inside else set.queued.n
    c.inside = True
    while c.plain or c.queued:
        if room[0] <= 0:
            return False
        room[0] -= 1
        if c.queued:
            c.queued -= 1
            fn(ctx, vec_subs(&set.queued)[c.queued])
        else:
            c.plain -= 1
            fn(ctx, vec_subs(&set.plain)[c.plain])
    c.inside = False
    return True


cdef bint node_some(const PatternNode* at, SubCursor* c, int64_t* room, sub_fn fn, void* ctx) noexcept nogil:
    # Likewise the sets of a node and of those that follow it by stars: two each, `here` and `tail`.
    cdef uint32_t number = 0
    cdef void* kept
    while at != NULL:
        if number + 2 > c.set:
            kept = at.here if number == c.set else at.tail
            if kept != NULL and not set_some(<SubSet*>kept, c, room, fn, ctx):
                return False
            c.inside = False
            c.set += 1
            if number + 2 > c.set:
                continue
        room[0] -= 1
        number += 2
        at = at.star
    return True


cdef const void* cursor_item(const Sublist* l, SubCursor* c) noexcept nogil:
    # What stands at the cursor's place, or else behind it in the same part.
    cdef uint64_t at = c.at
    cdef const void* item = NULL
    if c.part == PART_LITERALS:
        item = table_next(&l.literals, &c.at)
    elif c.part == PART_EDGES:
        item = table_next(&l.patterns.edges, &c.at)
    elif c.part == PART_ROOT and at == 0:
        item = &l.patterns.root
    if c.at != at:
        c.set = 0
        c.inside = False
    return item


cdef bint sublist_some(Sublist* l, SubCursor* c, int64_t* room, sub_fn fn, void* ctx) noexcept nogil:
    cdef const void* item
    cdef bint told
    while c.part != PART_END:
        if room[0] <= 0:
            return False
        item = cursor_item(l, c)
        if item != NULL:
            room[0] -= 1
            if c.part == PART_LITERALS:
                told = set_some(<SubSet*>item, c, room, fn, ctx)
            else:
                told = node_some(<const PatternNode*>item, c, room, fn, ctx)
            if not told:
                return False
        c.set = 0
        c.inside = False
        if item != NULL and c.at < UINT64_MAX:
            c.at += 1
        else:
            c.part += 1
            c.at = 0
    return True
