# Who wants to know of which messages, found by the message's subject in time of the matching watchers:
# a list of those that want all, a table of literal patterns, and a trie of the others.
#
#       root ── "orders" ── "*" ── "new"      orders.*.new
#                  └─────── ">"               orders.>     (full)

ctypedef void (*spot_fn)(Spot* spot, void* ctx) noexcept nogil


# ---- one pattern's watchers -------------------------------------------------------------------------------

cdef int spot_add(Spot* spot, Watcher* w, uint32_t entry) noexcept nogil:
    cdef SpotItem* items
    cdef uint32_t cap
    if spot.n == spot.cap:
        cap = spot.cap * 2 if spot.cap else 1
        items = <SpotItem*>realloc(spot.items, cap * sizeof(SpotItem))
        if items == NULL:
            return -1
        spot.items = items
        spot.cap = cap
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


cdef Spot* spot_new(Node* node) noexcept nogil:
    cdef Spot* spot = <Spot*>calloc(1, sizeof(Spot))
    if spot != NULL:
        spot.node = node
    return spot


cdef void spot_free(Spot* spot) noexcept nogil:
    if spot != NULL:
        free(<void*>spot.literal.p)
        free(spot.items)
        free(spot)


# ---- the trie ------------------------------------------------------------------------------------------------

cdef Node* node_child(Node* parent, const Tokens* t) noexcept nogil:
    # The child for a pattern's token, made if it is not there.
    cdef Span token = span(t.p, t.n)
    cdef Node* node = parent.star if is_star(t) else <Node*>strmap_get(&parent.children, token)
    if node != NULL:
        return node
    node = <Node*>calloc(1, sizeof(Node))
    if node == NULL:
        return NULL
    node.parent = parent
    node.token.p = <const uint8_t*>malloc(token.n + 1)
    if node.token.p == NULL:
        free(node)
        return NULL
    memcpy(<void*>node.token.p, token.p, token.n)
    node.token.n = token.n
    if is_star(t):
        parent.star = node
    elif strmap_put(&parent.children, token, node) < 0:
        free(<void*>node.token.p)
        free(node)
        return NULL
    return node


cdef void node_prune(Node* node) noexcept nogil:
    # Frees the nodes from here up that hold nothing any more.
    cdef Node* parent
    while node != NULL and node.here == NULL and node.full == NULL and node.star == NULL and node.children.n == 0:
        parent = node.parent
        if parent == NULL:
            return                          # the root stays
        if node == parent.star:
            parent.star = NULL
        else:
            strmap_del(&parent.children, node.token)
        strmap_free(&node.children)
        free(<void*>node.token.p)
        free(node)
        node = parent


cdef Spot* trie_spot(WatchIndex* x, Span pattern) noexcept nogil:
    cdef Tokens t = tokens_of(pattern)
    cdef Node* node
    cdef Node* child
    cdef Spot** place
    if x.root == NULL:
        x.root = <Node*>calloc(1, sizeof(Node))
        if x.root == NULL:
            return NULL
    node = x.root
    while True:
        if is_tail(&t):
            place = &node.full
            break
        child = node_child(node, &t)
        if child == NULL:
            node_prune(node)
            return NULL
        node = child
        if t.last:
            place = &node.here
            break
        tokens_cut(&t)
    if place[0] == NULL:
        place[0] = spot_new(node)
        if place[0] == NULL:
            node_prune(node)
    return place[0]


cdef void trie_match(Node* node, Span rest, spot_fn fn, void* ctx) noexcept nogil:
    # What matches the tokens that follow the node's own. Depth is bounded by the longest pattern.
    cdef Tokens t = tokens_of(rest)
    cdef Node* child
    if node.full != NULL:
        fn(node.full, ctx)
    if node.star != NULL:
        if not t.last:
            trie_match(node.star, span(t.rest, t.n_rest), fn, ctx)
        elif node.star.here != NULL:
            fn(node.star.here, ctx)
    if node.children.n:
        child = <Node*>strmap_get(&node.children, span(t.p, t.n))
        if child != NULL:
            if not t.last:
                trie_match(child, span(t.rest, t.n_rest), fn, ctx)
            elif child.here != NULL:
                fn(child.here, ctx)


cdef void watch_match(WatchIndex* x, Span subject, spot_fn fn, void* ctx) noexcept nogil:
    cdef Spot* spot
    if x.all != NULL:
        fn(x.all, ctx)
    if x.literals.n:
        spot = <Spot*>strmap_get(&x.literals, subject)
        if spot != NULL:
            fn(spot, ctx)
    if x.root != NULL:
        trie_match(x.root, subject, fn, ctx)


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


cdef void spot_drop(WatchIndex* x, Spot* spot) noexcept nogil:
    # Frees a pattern that nobody watches any more.
    cdef Node* node = spot.node
    if spot.n:
        return
    if spot == x.all:
        x.all = NULL
    elif node == NULL:
        strmap_del(&x.literals, spot.literal)
    elif node.full == spot:
        node.full = NULL
    else:
        node.here = NULL
    spot_free(spot)
    if node != NULL:
        node_prune(node)


cdef Spot* watch_spot(WatchIndex* x, const Filter* f, uint32_t i) noexcept nogil:
    if f.all:
        if x.all == NULL:
            x.all = spot_new(NULL)
        return x.all
    if subject_is_literal(f.patterns[i]):
        return literal_spot(x, f.patterns[i])
    return trie_spot(x, f.patterns[i])


cdef int stream_watch(Stream* s, Watcher* w) noexcept nogil:
    cdef WatchIndex* x = &s.watchers
    cdef uint32_t n = 1 if w.filter.all else w.filter.n
    cdef uint32_t i
    cdef Spot* spot
    w.entries = <WatchEntry*>calloc(n, sizeof(WatchEntry))
    if w.entries == NULL:
        return -1
    w.next = x.first
    w.prev = NULL
    if x.first != NULL:
        x.first.prev = w
    x.first = w
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
    if w.prev != NULL:
        w.prev.next = w.next
    else:
        x.first = w.next
    if w.next != NULL:
        w.next.prev = w.prev
    x.n -= 1


cdef void watch_free(WatchIndex* x) noexcept nogil:
    # With nobody attached only the root is left.
    if x.root != NULL:
        strmap_free(&x.root.children)
        free(x.root)
        x.root = NULL
    strmap_free(&x.literals)


# ---- telling -----------------------------------------------------------------------------------------------------

cdef struct Telling:
    uint64_t seq
    int reason
    bint wanted             # somebody's filter matches
    bint needed


cdef void tell_stored(Spot* spot, void* ctx) noexcept nogil:
    cdef Telling* t = <Telling*>ctx
    cdef uint32_t i
    cdef Watcher* w
    for i in range(spot.n):
        w = spot.items[i].w
        if w.seen == t.seq:
            continue
        w.seen = t.seq
        w.stored(w, t.seq)


cdef void tell_removed(Spot* spot, void* ctx) noexcept nogil:
    cdef Telling* t = <Telling*>ctx
    cdef uint32_t i
    cdef Watcher* w
    for i in range(spot.n):
        w = spot.items[i].w
        if w.n_entries > 1:
            if w.gone == t.seq:
                continue
            w.gone = t.seq
        w.removed(w, t.seq, t.reason)


cdef void ask_needs(Spot* spot, void* ctx) noexcept nogil:
    # Up to the first that needs it, which is then the first to be asked: it often needs the next one too.
    cdef Telling* t = <Telling*>ctx
    cdef SpotItem item
    cdef uint32_t i
    t.wanted = True
    for i in range(spot.n):
        if t.needed:
            return
        item = spot.items[i]
        if item.w.needs(item.w, t.seq):
            t.needed = True
            spot_place(spot, i, spot.items[0])
            spot_place(spot, 0, item)


cdef inline void spot_place(Spot* spot, uint32_t slot, SpotItem item) noexcept nogil:
    spot.items[slot] = item
    item.w.entries[item.entry].slot = slot


cdef void show(Stream* s, uint64_t upto) noexcept nogil:
    # Everything up to here may be seen from now on: its watchers hear of it.
    cdef Telling t
    cdef uint64_t seq = s.shown + 1
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


cdef void count_spot(Spot* spot, void* ctx) noexcept nogil:
    (<uint32_t*>ctx)[0] += spot.n


cdef bint watched(WatchIndex* x, Span subject) noexcept nogil:
    # Whether anybody's filter matches.
    cdef uint32_t n = 0
    watch_match(x, subject, count_spot, &n)
    return n > 0


# ---- interest retention ----------------------------------------------------------------------------------------------
# Nothing is kept of who needs a message: consumers know it, also after a crash. They are asked when one lets go.

cdef enum:
    SETTLE_TURN = 1000              # messages


cdef bint stream_keeps_all(const Stream* s) noexcept nogil:
    return s.cfg.retention == RETAIN_LIMITS


cdef void ask(Stream* s, Telling* t, uint64_t seq) noexcept nogil:
    cdef Span subject = store_subject(s.store, seq)
    t.seq = seq
    t.wanted = False
    t.needed = False
    if subject.p != NULL:
        watch_match(&s.watchers, subject, ask_needs, t)


cdef void stream_release(Stream* s, uint64_t seq) noexcept nogil:
    cdef Telling t
    if s.cfg.retention == RETAIN_LIMITS:
        return
    if s.cfg.retention == RETAIN_INTEREST:
        ask(s, &t, seq)
        if t.needed or s.hold:
            return
    stream_remove(s, CHANGE_RELEASE, seq, False)
    stream_count_bytes(s)


cdef void stream_settle(Stream* s, uint64_t start, bint all) noexcept nogil:
    cdef uint64_t* at = &s.settle_all if all else &s.settle_wanted
    if s.cfg.retention == RETAIN_INTEREST and not s.hold:
        start = max(start, <uint64_t>1)
        at[0] = min(at[0], start) if at[0] else start
        settle_turn(&s.settle)


cdef void settle_turn(Task* t) noexcept nogil:
    cdef Stream* s = <Stream*>t.owner
    cdef uint32_t left = SETTLE_TURN
    if s.cfg.retention != RETAIN_INTEREST:
        s.settle_wanted = 0
        s.settle_all = 0
    settle_from(s, &s.settle_wanted, False, &left)
    settle_from(s, &s.settle_all, True, &left)
    stream_count_bytes(s)
    if s.settle_wanted or s.settle_all:
        task_post(&s.env.tasks, t)


cdef void settle_from(Stream* s, uint64_t* at, bint all, uint32_t* left) noexcept nogil:
    cdef Telling t
    cdef uint64_t seq
    if s.watchers.n == 0 and not all:
        at[0] = 0
    while at[0] and left[0]:
        left[0] -= 1
        seq = store_next_seq(s.store, NULL, at[0])
        at[0] = seq + 1 if seq else 0
        if seq:
            ask(s, &t, seq)
            if not t.needed and (t.wanted or all):
                stream_remove(s, CHANGE_RELEASE, seq, False)
