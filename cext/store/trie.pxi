# The subject index: a trie whose nodes stand only where a subject ends or subjects part.
#
# Below its parent a node stands for one token or several, the edge; its stem is its text up to the end of the edge's
# first token, so no two children of a node have the same stem. There are no more nodes without messages than subjects,
# and a node's text is the beginning of a subject below it: what the index holds is in proportion to the subjects' bytes.
#
#       a.b.c.d                 a.b ─┬─ .c.d             a.b.c ─┬─ .d
#                 + a.b.x            └─ .x      + a.b.c         └ (itself)    below a.b
#
# A literal subject costs one probe (none when it is the last one again). Totals of subtrees stand in the inner nodes,
# so `a.>` is answered in O(depth).

cdef inline uint32_t token_end(const uint8_t* p, uint32_t n, uint32_t at) noexcept nogil:
    # Where the token that starts at `at` ends. An empty first token counts as part of the next one: no node but the
    # root has an empty text.
    cdef uint32_t start = max(at, <uint32_t>1)
    cdef const uint8_t* dot
    if start >= n:
        return n
    dot = <const uint8_t*>memchr(p + start, c'.', n - start)
    return <uint32_t>(dot - p) if dot != NULL else n


cdef inline uint32_t edge_start(const Index* x, uint32_t parent) noexcept nogil:
    return <uint32_t>node_at(x, parent).len + 1 if parent else 0


# ---- stems and siblings -----------------------------------------------------------------------------------------

cdef inline uint32_t stem_hash(const Index* x, const Node* n) noexcept nogil:
    return n.hash if n.stem == n.len else st_hash(x.seed, text_at(x, n.text), n.stem)


cdef void stem_add(Index* x, uint32_t id) noexcept nogil:
    cdef Node* n = node_at(x, id)
    cdef uint32_t hash = stem_hash(x, n)
    if hash != n.hash:
        slots_add(x, hash, id)


cdef void stem_del(Index* x, uint32_t id) noexcept nogil:
    cdef Node* n = node_at(x, id)
    cdef uint32_t hash = stem_hash(x, n)
    if hash != n.hash:
        slots_del(x, hash, id)


cdef void kid_add(Index* x, uint32_t parent, uint32_t id) noexcept nogil:
    # Makes a node a child, its stem ending with the first token below the parent. After slots_room(2).
    cdef Node* n = node_at(x, id)
    cdef Node* up = node_at(x, parent)
    n.parent = parent
    n.stem = <uint16_t>token_end(text_at(x, n.text), n.len, edge_start(x, parent))
    n.prev = 0
    n.next = up.kid
    if up.kid:
        node_at(x, up.kid).prev = id
    up.kid = id
    slots_add(x, n.hash, id)
    stem_add(x, id)


cdef void kid_replace(Index* x, uint32_t id, uint32_t by) noexcept nogil:
    # Puts another node in one's place below its parent. The table is the caller's.
    cdef Node* n = node_at(x, id)
    cdef Node* to = node_at(x, by)
    to.parent = n.parent
    to.stem = n.stem
    to.prev = n.prev
    to.next = n.next
    if n.prev:
        node_at(x, n.prev).next = by
    else:
        node_at(x, n.parent).kid = by
    if n.next:
        node_at(x, n.next).prev = by


cdef void kid_del(Index* x, uint32_t id) noexcept nogil:
    cdef Node* n = node_at(x, id)
    if n.prev:
        node_at(x, n.prev).next = n.next
    else:
        node_at(x, n.parent).kid = n.next
    if n.next:
        node_at(x, n.next).prev = n.prev


# ---- adding -----------------------------------------------------------------------------------------------------

cdef uint32_t edge_common(const uint8_t* text, uint32_t len, Span s, uint32_t stem) noexcept nogil:
    # Up to where a text and a subject, which have the stem in common, are the same in whole tokens.
    cdef uint32_t i = stem + st_common(text + stem, s.p + stem, min(len, s.n) - stem)
    if (i == len or text[i] == c'.') and (i == s.n or s.p[i] == c'.'):
        return i
    while i > stem:
        i -= 1
        if text[i] == c'.':
            return i
    return stem


cdef void edge_split(Index* x, uint32_t id, uint32_t mid) noexcept nogil:
    # Puts a node, whose text is the beginning of another's and ends in its edge, between that and its parent.
    cdef Node* n = node_at(x, id)
    cdef Node* m = node_at(x, mid)
    stem_del(x, id)
    kid_replace(x, id, mid)
    m.total = n.total
    m.kid = id
    slots_add(x, m.hash, mid)
    stem_add(x, mid)
    n.parent = mid
    n.stem = <uint16_t>token_end(text_at(x, n.text), n.len, <uint32_t>m.len + 1)
    n.prev = 0
    n.next = 0
    stem_add(x, id)


cdef int64_t index_add(Index* x, Span s, uint32_t hash, uint32_t reserved) noexcept nogil:
    # The node of a subject that has none by that hash yet, of a reserved id if that is not 0. Hashes each byte once.
    cdef uint32_t parent = 0, at = 0, end, kid, cut = 0
    cdef int64_t id, mid = 0
    cdef StPrefix prefix
    cdef Node* n
    prefix.h = x.seed
    prefix.at = 0
    while True:
        end = token_end(s.p, s.n, at)
        kid = child_hashed(x, parent, s.p, at, end, st_hash_next(x.seed, &prefix, s.p, end))
        if kid == 0:
            break
        n = node_at(x, kid)
        cut = edge_common(text_at(x, n.text), n.len, s, end)
        if cut < n.len:
            break
        if cut == s.n:
            return kid
        parent = kid
        at = cut + 1
    if slots_room(x, 4) < 0:
        return ST_NO_MEMORY
    id = node_make(x, reserved, s.p, s.n, hash)
    if id < 0 or kid == 0:
        if id > 0:
            kid_add(x, parent, <uint32_t>id)
        return id
    if cut == s.n:
        edge_split(x, kid, <uint32_t>id)
        return id
    mid = node_make(x, 0, s.p, cut, st_hash_next(x.seed, &prefix, s.p, cut))
    if mid < 0:
        node_drop(x, <uint32_t>id)
        return mid
    edge_split(x, kid, <uint32_t>mid)
    kid_add(x, <uint32_t>mid, <uint32_t>id)
    return id


cdef int64_t index_intern(Index* x, Span s) noexcept nogil:
    # The node of a subject, added when there is none; ST_NO_MEMORY, ST_TOO_LARGE.
    cdef uint32_t hash
    cdef int64_t id
    cdef Node* m
    if x.memo:
        m = node_at(x, x.memo)
        if m.len == s.n and memcmp(text_at(x, m.text), s.p, s.n) == 0:
            return x.memo
    if s.n == 0:
        return 0
    if s.n > 65535:
        return ST_TOO_LARGE
    hash = st_hash(x.seed, s.p, s.n)
    id = index_find_hashed(x, s.p, s.n, hash)
    if id == 0:
        id = index_add(x, s, hash, 0)
        if id < 0:
            return id
    x.memo = <uint32_t>id
    return id


cdef int index_place(Index* x, uint32_t id, Span s) noexcept nogil:
    # Makes a reserved id the node of a subject, or one that stands for the node which has the text already.
    cdef uint32_t hash = st_hash(x.seed, s.p, s.n), there
    cdef int64_t got
    if s.n == 0 or node_at(x, id).len:
        return ST_OK
    there = index_find_hashed(x, s.p, s.n, hash)
    if there:
        node_at(x, id).next = there
        return ST_OK
    got = index_add(x, s, hash, id)
    return ST_OK if got >= 0 else <int>got


cdef inline uint32_t index_placed(Index* x, uint32_t id) noexcept nogil:
    # The node of the text that was placed under an id; 0: there is none.
    if id >= x.n_nodes:
        return 0
    return id if node_at(x, id).len else node_at(x, id).next


# ---- removing ---------------------------------------------------------------------------------------------------

cdef void node_prune(Index* x, uint32_t id) noexcept nogil:
    # Removes a node without messages, unless subjects part there: its only child takes its place. So with its parents.
    cdef Node* n
    cdef uint32_t up, kid = 0
    while id and kid == 0:
        n = node_at(x, id)
        kid = n.kid
        if n.count or (kid and node_at(x, kid).next):
            return
        up = n.parent
        slots_del(x, n.hash, id)
        stem_del(x, id)
        if kid:
            stem_del(x, kid)
            kid_replace(x, id, kid)
            stem_add(x, kid)
        else:
            kid_del(x, id)
        node_drop(x, id)
        id = up


# ---- counting ---------------------------------------------------------------------------------------------------

cdef inline void index_up(Index* x, uint32_t id, int64_t by) noexcept nogil:
    # Adds to the totals of a node and all above it.
    cdef Node* n
    while True:
        n = node_at(x, id)
        n.total += by
        if id == 0:
            return
        id = n.parent
