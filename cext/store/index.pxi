# The subject index: a trie of whole tokens in arenas addressed by u32, and one hash table over the prefixes' texts.
#
# A literal subject costs one probe (none when it is the last one again). Totals of subtrees stand in the inner nodes,
# so `a.>` is answered in O(depth). A subject costs its 56-byte node, its text and 11-21 bytes of hash table.

cdef inline Node* node_at(const Index* x, uint32_t id) noexcept nogil:
    return &x.nodes[id >> 10][id & 1023]


cdef inline uint8_t* text_at(const Index* x, uint32_t text) noexcept nogil:
    return x.texts[text >> 14] + ((text & 16383) << 2)


cdef inline Span node_text(const Index* x, uint32_t id) noexcept nogil:
    cdef Node* n = node_at(x, id)
    return span(text_at(x, n.text), n.len)


cdef int index_init(Index* x) noexcept nogil:
    """Makes room for the root, node 0, whose text is empty."""
    memset(x, 0, sizeof(Index))
    st_random(&x.seed, 8)
    x.nodes = <Node**> malloc(sizeof(Node*))
    x.texts = <uint8_t**> malloc(sizeof(uint8_t*))
    if x.nodes == NULL or x.texts == NULL:
        return ST_NO_MEMORY
    x.nodes[0] = <Node*> calloc(4, sizeof(Node))
    x.texts[0] = <uint8_t*> malloc(128)
    if x.nodes[0] == NULL or x.texts[0] == NULL:
        return ST_NO_MEMORY
    x.n_chunks = 1
    x.cap_chunks = 1
    x.cap_first = 4
    x.n_nodes = 1
    x.n_texts = 1
    x.cap_texts = 1
    x.cap_text0 = 128
    x.text_used = 4     # text 0 stays the root's
    return ST_OK


cdef inline bint index_owns(const Index* x, const void* p) noexcept nogil:
    return not (x.map != NULL and <const uint8_t*> p >= x.map and <const uint8_t*> p < x.map + x.map_size)


cdef void index_free(Index* x) noexcept nogil:
    cdef uint32_t i
    for i in range(x.n_chunks):
        if index_owns(x, x.nodes[i]):
            free(x.nodes[i])
    for i in range(x.n_texts):
        if index_owns(x, x.texts[i]):
            free(x.texts[i])
    free(x.nodes)
    free(x.texts)
    if index_owns(x, x.slots):
        free(x.slots)
    if index_owns(x, x.old):
        free(x.old)
    free(x.born)
    memset(x, 0, sizeof(Index))


# ---- texts -----------------------------------------------------------------------------------------

cdef inline uint32_t text_class(uint32_t n) noexcept nogil:
    # 64 classes of 8 bytes, then powers of two.
    cdef uint32_t c, size
    if n <= 512:
        return (n + 7) >> 3
    c = 65
    size = 1024
    while size < n:
        size <<= 1
        c += 1
    return c


cdef inline uint32_t class_size(uint32_t c) noexcept nogil:
    return c << 3 if c <= 64 else <uint32_t> 1024 << (c - 65)


cdef int64_t text_new(Index* x, uint32_t n) noexcept nogil:
    """Room for n bytes: its address in units of 4 bytes, or ST_NO_MEMORY."""
    cdef uint32_t c = text_class(n if n > 4 else 4)
    cdef uint32_t size = class_size(c)
    cdef uint32_t at = x.text_free[c]
    cdef uint32_t cap
    cdef uint8_t* p
    cdef uint8_t** table
    if at:
        x.text_free[c] = st_get32(text_at(x, at))
        return at
    if x.n_texts == 1 and x.text_used + size > x.cap_text0 and x.cap_text0 < TEXT_CHUNK:
        cap = x.cap_text0
        while cap < x.text_used + size and cap < TEXT_CHUNK:
            cap <<= 2
        cap = min(cap, <uint32_t> TEXT_CHUNK)
        p = <uint8_t*> realloc(x.texts[0], cap)
        if p == NULL:
            return ST_NO_MEMORY
        x.texts[0] = p
        x.cap_text0 = cap
    if x.text_used + size > TEXT_CHUNK:
        if x.n_texts == x.cap_texts:
            table = <uint8_t**> realloc(x.texts, 2 * x.cap_texts * sizeof(uint8_t*))
            if table == NULL:
                return ST_NO_MEMORY
            x.texts = table
            x.cap_texts *= 2
        if x.n_texts >= 262144:
            return ST_NO_MEMORY
        p = <uint8_t*> malloc(TEXT_CHUNK)
        if p == NULL:
            return ST_NO_MEMORY
        x.texts[x.n_texts] = p
        x.n_texts += 1
        x.text_used = 0
    at = ((x.n_texts - 1) << 14) | (x.text_used >> 2)
    x.text_used += size
    return at


cdef void text_drop(Index* x, uint32_t at, uint32_t n) noexcept nogil:
    cdef uint32_t c = text_class(n if n > 4 else 4)
    st_put32(text_at(x, at), x.text_free[c])
    x.text_free[c] = at


# ---- the hash table -----------------------------------------------------------------------------------

cdef inline uint32_t probe(const Index* x, const uint64_t* slots, uint32_t bits, uint32_t hash,
                           const uint8_t* p, uint32_t n) noexcept nogil:
    """The position of the text's slot, or UINT32_MAX."""
    cdef uint32_t mask = (<uint32_t> 1 << bits) - 1
    cdef uint32_t i = hash >> (32 - bits)
    cdef uint64_t v
    cdef Node* node
    while slots[i]:
        v = slots[i]
        if <uint32_t> (v >> 32) == hash and <uint32_t> v != 0xffffffffU:
            node = node_at(x, <uint32_t> v)
            if node.len == n and memcmp(text_at(x, node.text), p, n) == 0:
                return i
        i = (i + 1) & mask
    return 0xffffffffU


cdef uint32_t index_find_hashed(const Index* x, const uint8_t* p, uint32_t n, uint32_t hash) noexcept nogil:
    cdef uint32_t i
    if x.slots == NULL:
        return 0
    i = probe(x, x.slots, x.bits, hash, p, n)
    if i != 0xffffffffU:
        return <uint32_t> x.slots[i]
    if x.old != NULL:
        i = probe(x, x.old, x.old_bits, hash, p, n)
        if i != 0xffffffffU:
            return <uint32_t> x.old[i]
    return 0


cdef inline uint32_t index_find(const Index* x, Span s) noexcept nogil:
    """The node of a prefix, 0 when there is none (or it is the root)."""
    if s.n == 0 or s.n > 65535:
        return 0
    return index_find_hashed(x, s.p, s.n, st_hash(x.seed, s.p, s.n))


cdef inline void slot_put(uint64_t* slots, uint32_t bits, uint64_t v) noexcept nogil:
    cdef uint32_t mask = (<uint32_t> 1 << bits) - 1
    cdef uint32_t i = <uint32_t> (v >> 32) >> (32 - bits)
    while slots[i]:
        i = (i + 1) & mask
    slots[i] = v


cdef void slots_move(Index* x, uint32_t steps) noexcept nogil:
    """Takes up to `steps` slots of the old table over; its texts are not touched."""
    cdef uint32_t end = <uint32_t> 1 << x.old_bits
    while steps and x.old_pos < end:
        if x.old[x.old_pos] and <uint32_t> x.old[x.old_pos] != 0xffffffffU:
            slot_put(x.slots, x.bits, x.old[x.old_pos])
        x.old_pos += 1
        steps -= 1
    if x.old_pos >= end:
        if index_owns(x, x.old):
            free(x.old)
        x.old = NULL


cdef int slots_add(Index* x, uint32_t id) noexcept nogil:
    cdef uint32_t bits
    cdef uint64_t* fresh
    cdef Node* node = node_at(x, id)
    if x.slots == NULL or <uint64_t> x.n_slots * 4 >= <uint64_t> 3 << x.bits:
        if x.old != NULL:
            slots_move(x, 0xffffffffU)
        bits = x.bits + 1 if x.slots != NULL else 3
        if bits > 31:
            return ST_NO_MEMORY
        fresh = <uint64_t*> calloc(<size_t> 1 << bits, 8)
        if fresh == NULL:
            return ST_NO_MEMORY
        x.old = x.slots
        x.old_bits = x.bits
        x.old_pos = 0
        x.slots = fresh
        x.bits = bits
        if x.old != NULL and x.old_bits <= 10:
            slots_move(x, 0xffffffffU)
    if x.old != NULL:
        slots_move(x, 16)
    slot_put(x.slots, x.bits, <uint64_t> node.hash << 32 | id)
    x.n_slots += 1
    return ST_OK


cdef void slots_del(Index* x, uint32_t id) noexcept nogil:
    cdef Span s = node_text(x, id)
    cdef uint32_t mask = (<uint32_t> 1 << x.bits) - 1
    cdef uint32_t hash = node_at(x, id).hash
    cdef uint32_t i = probe(x, x.slots, x.bits, hash, s.p, s.n)
    cdef uint32_t j, home
    if x.old != NULL:
        j = probe(x, x.old, x.old_bits, hash, s.p, s.n)
        if j != 0xffffffffU:
            x.old[j] |= 0xffffffffU
    x.n_slots -= 1
    if i == 0xffffffffU:
        return
    j = i
    while True:     # close the gap: whoever could stand at i moves there
        j = (j + 1) & mask
        if x.slots[j] == 0:
            break
        home = <uint32_t> (x.slots[j] >> 32) >> (32 - x.bits)
        if ((j - home) & mask) >= ((j - i) & mask):
            x.slots[i] = x.slots[j]
            i = j
    x.slots[i] = 0


# ---- nodes ----------------------------------------------------------------------------------------------

cdef int64_t node_new(Index* x) noexcept nogil:
    cdef uint32_t id = x.free_node, chunk, cap
    cdef Node* p
    cdef Node** table
    if id:
        x.free_node = node_at(x, id).next
        return id
    id = x.n_nodes
    if id == 0xfffffffeU:
        return ST_NO_MEMORY
    chunk = id >> 10
    if chunk == 0 and id >= x.cap_first:
        cap = min(x.cap_first * 4, <uint32_t> NODES)
        p = <Node*> realloc(x.nodes[0], cap * sizeof(Node))
        if p == NULL:
            return ST_NO_MEMORY
        x.nodes[0] = p
        x.cap_first = cap
    elif chunk >= x.n_chunks:
        if x.n_chunks == x.cap_chunks:
            table = <Node**> realloc(x.nodes, 2 * x.cap_chunks * sizeof(Node*))
            if table == NULL:
                return ST_NO_MEMORY
            x.nodes = table
            x.cap_chunks *= 2
        p = <Node*> malloc(NODES * sizeof(Node))
        if p == NULL:
            return ST_NO_MEMORY
        x.nodes[x.n_chunks] = p
        x.n_chunks += 1
    x.n_nodes += 1
    return id


cdef int64_t node_add(Index* x, uint32_t parent, const uint8_t* p, uint32_t n, uint32_t tok, uint32_t hash) noexcept nogil:
    cdef int64_t id = node_new(x), rc
    cdef Node* node
    if id < 0:
        return id
    rc = node_put(x, <uint32_t> id, parent, p, n, tok, hash)
    if rc < 0:
        node = node_at(x, <uint32_t> id)
        node.len = 0
        node.next = x.free_node
        x.free_node = <uint32_t> id
        return rc
    return id


cdef int node_put(Index* x, uint32_t id, uint32_t parent, const uint8_t* p, uint32_t n, uint32_t tok,
                  uint32_t hash) noexcept nogil:
    """Makes an unused id the node of a text below a parent."""
    cdef int64_t text = text_new(x, n)
    cdef Node* node = node_at(x, id)
    cdef Node* up
    if text < 0:
        return <int> text
    memset(node, 0, sizeof(Node))
    memcpy(text_at(x, <uint32_t> text), p, n)
    node.text = <uint32_t> text
    node.len = <uint16_t> n
    node.tok = <uint16_t> tok
    node.hash = hash
    node.parent = parent
    if slots_add(x, id) < 0:
        text_drop(x, <uint32_t> text, n)
        return ST_NO_MEMORY
    up = node_at(x, parent)
    node.next = up.kid
    if up.kid:
        node_at(x, up.kid).prev = id
    up.kid = id
    return ST_OK


cdef int index_reserve(Index* x, uint32_t top) noexcept nogil:
    """Takes all ids up to top out of use for node_new, to be filled by index_place. For an empty index."""
    cdef uint32_t from_ = x.n_nodes
    cdef uint32_t id
    cdef Node* p
    cdef Node** table
    cdef uint32_t chunks = (top >> 10) + 1
    if top < from_:
        return ST_OK
    if x.cap_first < NODES:
        p = <Node*> realloc(x.nodes[0], NODES * sizeof(Node))
        if p == NULL:
            return ST_NO_MEMORY
        x.nodes[0] = p
        x.cap_first = NODES
    if chunks > x.cap_chunks:
        table = <Node**> realloc(x.nodes, chunks * sizeof(Node*))
        if table == NULL:
            return ST_NO_MEMORY
        x.nodes = table
        x.cap_chunks = chunks
    while x.n_chunks < chunks:
        x.nodes[x.n_chunks] = <Node*> malloc(NODES * sizeof(Node))
        if x.nodes[x.n_chunks] == NULL:
            return ST_NO_MEMORY
        x.n_chunks += 1
    for id in range(from_, top + 1):
        memset(node_at(x, id), 0, sizeof(Node))
    x.n_nodes = top + 1
    return ST_OK


cdef int index_place(Index* x, uint32_t id, Span s) noexcept nogil:
    """Makes a reserved id the node of a subject, unless the text has one already."""
    cdef uint32_t hash = st_hash(x.seed, s.p, s.n)
    cdef int64_t parent
    cdef uint32_t end = s.n
    if node_at(x, id).len or index_find_hashed(x, s.p, s.n, hash):
        return ST_OK
    while end > 0:
        end -= 1
        if s.p[end] == c'.':
            break
    parent = index_intern(x, span(s.p, end)) if end else 0
    if parent < 0:
        return <int> parent
    return node_put(x, id, <uint32_t> parent, s.p, s.n, end + 1 if end else 0, hash)


cdef void node_prune(Index* x, uint32_t id) noexcept nogil:
    """Removes a node without messages and children, and the ancestors that then have neither."""
    cdef Node* n
    cdef uint32_t up
    while id:
        n = node_at(x, id)
        if n.count or n.kid:
            return
        slots_del(x, id)
        if n.prev:
            node_at(x, n.prev).next = n.next
        else:
            node_at(x, n.parent).kid = n.next
        if n.next:
            node_at(x, n.next).prev = n.prev
        text_drop(x, n.text, n.len)
        n.len = 0
        up = n.parent
        n.total = 0
        n.kid = 0
        n.next = x.free_node
        x.free_node = id
        if x.memo == id:
            x.memo = 0
        id = up


cdef int64_t index_intern(Index* x, Span s) noexcept nogil:
    """The node of a subject, added with its missing prefixes; ST_NO_MEMORY, ST_TOO_LARGE."""
    cdef uint32_t id, hash, parent, at, end
    cdef int64_t made
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
        parent = 0      # the longest prefix there is
        end = s.n
        while end > 0:
            end -= 1
            if s.p[end] == c'.':
                parent = index_find(x, span(s.p, end)) if end else 0
                if parent or end == 0:
                    break
        at = node_at(x, parent).len + 1 if parent else 0
        while True:     # `at`: where the next token starts
            end = at
            while end < s.n and s.p[end] != c'.':
                end += 1
            if end == 0:
                # An empty first token has no prefix text of its own: it is part of the next one.
                end = 1
                while end < s.n and s.p[end] != c'.':
                    end += 1
            made = node_add(x, parent, s.p, end, at, st_hash(x.seed, s.p, end))
            if made < 0:
                node_prune(x, parent)
                return made
            parent = <uint32_t> made
            if end == s.n:
                break
            at = end + 1
        id = parent
    x.memo = id
    return id


cdef inline void index_up(Index* x, uint32_t id, int64_t by) noexcept nogil:
    """Adds to the totals of a node and all above it."""
    cdef Node* n
    while True:
        n = node_at(x, id)
        n.total += by
        if id == 0:
            return
        id = n.parent


cdef inline void index_count(Index* x, uint32_t id, uint64_t seq) noexcept nogil:
    """One more message of a subject, the newest. Its link from the one before is the caller's."""
    cdef Node* n = node_at(x, id)
    if n.count == 0:
        n.first = seq
        if id:
            x.n_subjects += 1
        if x.born != NULL:
            x.born[x.births % BORN] = id
        x.births += 1
    n.last = seq
    n.count += 1
    index_up(x, id, 1)
