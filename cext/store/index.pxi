# The memory of the subject index: arenas addressed by u32 and one hash table. What stands in them is in trie.pxi.
#
# A subject costs its 56-byte node, its text and 11-21 bytes of hash table.

cdef inline Node* node_at(const Index* x, uint32_t id) noexcept nogil:
    return &x.nodes[id >> 10][id & 1023]


cdef inline uint8_t* text_at(const Index* x, uint32_t text) noexcept nogil:
    return x.texts[text >> 14] + ((text & 16383) << 2)


cdef inline Span node_text(const Index* x, uint32_t id) noexcept nogil:
    cdef Node* n = node_at(x, id)
    return span(text_at(x, n.text), n.len)


cdef int index_init(Index* x, Env* env) noexcept nogil:
    # Makes room for the root, node 0, whose text is empty.
    memset(x, 0, sizeof(Index))
    env.system.random(env.system.ctx, &x.seed, 8)
    x.nodes = <Node**>malloc(sizeof(Node*))
    x.texts = <uint8_t**>malloc(sizeof(uint8_t*))
    if x.nodes == NULL or x.texts == NULL:
        return ST_NO_MEMORY
    x.nodes[0] = <Node*>calloc(4, sizeof(Node))
    x.texts[0] = <uint8_t*>malloc(128)
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
    return not (x.map != NULL and <const uint8_t*>p >= x.map and <const uint8_t*>p < x.map + x.map_size)


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


cdef uint64_t index_size(const Index* x) noexcept nogil:
    # Bytes that it takes.
    cdef uint64_t slots = <uint64_t>8 << x.bits if x.slots != NULL else 0
    if x.old != NULL:
        slots += <uint64_t>8 << x.old_bits
    return (slots + sizeof(Node) * (x.cap_first if x.n_chunks == 1 else <uint64_t>x.n_chunks * NODES)
            + (x.cap_text0 if x.n_texts == 1 else <uint64_t>x.n_texts * TEXT_CHUNK))


# ---- texts -----------------------------------------------------------------------------------------

cdef inline uint32_t text_class(uint32_t n) noexcept nogil:
    # Of 64 classes of 8 bytes, then four to each power of two.
    cdef uint32_t bit = 9
    if n <= 512:
        return (n + 7) >> 3
    while (n - 1) >> (bit + 1):
        bit += 1
    return 65 + 4 * (bit - 9) + ((n - 1 - (<uint32_t>1 << bit)) >> (bit - 2))


cdef inline uint32_t class_size(uint32_t c) noexcept nogil:
    cdef uint32_t bit
    if c <= 64:
        return c << 3
    bit = 9 + (c - 65) // 4
    return (<uint32_t>1 << bit) + (((c - 65) & 3) + 1 << (bit - 2))


cdef int64_t text_new(Index* x, uint32_t n) noexcept nogil:
    # Room for n bytes: its address in units of 4 bytes, or ST_NO_MEMORY.
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
        cap = min(cap, <uint32_t>TEXT_CHUNK)
        p = <uint8_t*>realloc(x.texts[0], cap)
        if p == NULL:
            return ST_NO_MEMORY
        x.texts[0] = p
        x.cap_text0 = cap
    if x.text_used + size > TEXT_CHUNK:
        if x.n_texts == x.cap_texts:
            table = <uint8_t**>realloc(x.texts, 2 * x.cap_texts * sizeof(uint8_t*))
            if table == NULL:
                return ST_NO_MEMORY
            x.texts = table
            x.cap_texts *= 2
        if x.n_texts >= 262144:
            return ST_NO_MEMORY
        p = <uint8_t*>malloc(TEXT_CHUNK)
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
#
# hash << 32 | node. A node is entered by the hash of its text and, where that is another, by the hash of its stem: by
# the former a literal subject is found with one probe, by the latter the child that a token leads to.

cdef inline uint32_t probe_text(const Index* x, const uint64_t* slots, uint32_t bits, uint32_t hash,
                                const uint8_t* p, uint32_t n) noexcept nogil:
    # The node of a text, 0 when there is none.
    cdef uint32_t mask = (<uint32_t>1 << bits) - 1
    cdef uint32_t i = hash >> (32 - bits)
    cdef uint64_t v
    cdef Node* node
    while slots[i]:
        v = slots[i]
        if <uint32_t>(v >> 32) == hash and <uint32_t>v != 0xffffffffU:
            node = node_at(x, <uint32_t>v)
            if node.len == n and memcmp(text_at(x, node.text), p, n) == 0:
                return <uint32_t>v
        i = (i + 1) & mask
    return 0


cdef uint32_t index_find_hashed(const Index* x, const uint8_t* p, uint32_t n, uint32_t hash) noexcept nogil:
    cdef uint32_t id
    if x.slots == NULL:
        return 0
    id = probe_text(x, x.slots, x.bits, hash, p, n)
    if id == 0 and x.old != NULL:
        id = probe_text(x, x.old, x.old_bits, hash, p, n)
    return id


cdef inline uint32_t index_find(const Index* x, Span s) noexcept nogil:
    # The node of a text, 0 when there is none (or it is the root).
    if s.n == 0 or s.n > 65535:
        return 0
    return index_find_hashed(x, s.p, s.n, st_hash(x.seed, s.p, s.n))


cdef inline uint32_t probe_child(const Index* x, const uint64_t* slots, uint32_t bits, uint32_t hash, uint32_t parent,
                                 const uint8_t* p, uint32_t at, uint32_t end) noexcept nogil:
    cdef uint32_t mask = (<uint32_t>1 << bits) - 1
    cdef uint32_t i = hash >> (32 - bits)
    cdef uint64_t v
    cdef Node* node
    while slots[i]:
        v = slots[i]
        if <uint32_t>(v >> 32) == hash and <uint32_t>v != 0xffffffffU:
            node = node_at(x, <uint32_t>v)
            if node.parent == parent and node.stem == end and memcmp(text_at(x, node.text) + at, p + at, end - at) == 0:
                return <uint32_t>v
        i = (i + 1) & mask
    return 0


cdef uint32_t child_hashed(const Index* x, uint32_t parent, const uint8_t* p, uint32_t at, uint32_t end,
                           uint32_t hash) noexcept nogil:
    # The child whose stem is p[:end], of which p[at:] stands below the parent; 0 when there is none.
    cdef uint32_t id
    if x.slots == NULL:
        return 0
    id = probe_child(x, x.slots, x.bits, hash, parent, p, at, end)
    if id == 0 and x.old != NULL:
        id = probe_child(x, x.old, x.old_bits, hash, parent, p, at, end)
    return id


cdef inline void slot_put(uint64_t* slots, uint32_t bits, uint64_t v) noexcept nogil:
    cdef uint32_t mask = (<uint32_t>1 << bits) - 1
    cdef uint32_t i = <uint32_t>(v >> 32) >> (32 - bits)
    while slots[i]:
        i = (i + 1) & mask
    slots[i] = v


cdef void slots_move(Index* x, uint32_t steps) noexcept nogil:
    # Takes up to `steps` slots of the old table over; its texts are not touched.
    cdef uint32_t end = <uint32_t>1 << x.old_bits
    while steps and x.old_pos < end:
        if x.old[x.old_pos] and <uint32_t>x.old[x.old_pos] != 0xffffffffU:
            slot_put(x.slots, x.bits, x.old[x.old_pos])
        x.old_pos += 1
        steps -= 1
    if x.old_pos >= end:
        if index_owns(x, x.old):
            free(x.old)
        x.old = NULL


cdef int slots_room(Index* x, uint32_t more) noexcept nogil:
    # Makes sure that so many further entries, up to 4, find a place.
    cdef uint32_t bits
    cdef uint64_t* fresh
    if x.slots != NULL and (<uint64_t>x.n_slots + more) * 4 <= <uint64_t>3 << x.bits:
        return ST_OK
    if x.old != NULL:
        slots_move(x, 0xffffffffU)
    bits = x.bits + 1 if x.slots != NULL else 3
    if bits > 31:
        return ST_NO_MEMORY
    fresh = <uint64_t*>calloc(<size_t>1 << bits, 8)
    if fresh == NULL:
        return ST_NO_MEMORY
    x.old = x.slots
    x.old_bits = x.bits
    x.old_pos = 0
    x.slots = fresh
    x.bits = bits
    if x.old != NULL and x.old_bits <= 10:
        slots_move(x, 0xffffffffU)
    return ST_OK


cdef void slots_add(Index* x, uint32_t hash, uint32_t id) noexcept nogil:
    # After slots_room, or in place of an entry that was taken away.
    if x.old != NULL:
        slots_move(x, 16)
    slot_put(x.slots, x.bits, <uint64_t>hash << 32 | id)
    x.n_slots += 1


cdef inline uint32_t slot_of_entry(const uint64_t* slots, uint32_t bits, uint64_t v) noexcept nogil:
    cdef uint32_t mask = (<uint32_t>1 << bits) - 1
    cdef uint32_t i = <uint32_t>(v >> 32) >> (32 - bits)
    while slots[i]:
        if slots[i] == v:
            return i
        i = (i + 1) & mask
    return 0xffffffffU


cdef void slots_del(Index* x, uint32_t hash, uint32_t id) noexcept nogil:
    cdef uint64_t v = <uint64_t>hash << 32 | id
    cdef uint32_t mask = (<uint32_t>1 << x.bits) - 1
    cdef uint32_t i = slot_of_entry(x.slots, x.bits, v)
    cdef uint32_t j, home
    if x.old != NULL:
        j = slot_of_entry(x.old, x.old_bits, v)
        if j != 0xffffffffU:
            x.old[j] |= 0xffffffffU
    x.n_slots -= 1
    if i == 0xffffffffU:
        return
    j = i
    while True:     # close the gap: an entry that could stand at i moves there
        j = (j + 1) & mask
        if x.slots[j] == 0:
            break
        home = <uint32_t>(x.slots[j] >> 32) >> (32 - x.bits)
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
        cap = min(x.cap_first * 4, <uint32_t>NODES)
        p = <Node*>realloc(x.nodes[0], cap * sizeof(Node))
        if p == NULL:
            return ST_NO_MEMORY
        x.nodes[0] = p
        x.cap_first = cap
    elif chunk >= x.n_chunks:
        if x.n_chunks == x.cap_chunks:
            table = <Node**>realloc(x.nodes, 2 * x.cap_chunks * sizeof(Node*))
            if table == NULL:
                return ST_NO_MEMORY
            x.nodes = table
            x.cap_chunks *= 2
        p = <Node*>malloc(NODES * sizeof(Node))
        if p == NULL:
            return ST_NO_MEMORY
        x.nodes[x.n_chunks] = p
        x.n_chunks += 1
    x.n_nodes += 1
    return id


cdef int64_t node_make(Index* x, uint32_t id, const uint8_t* p, uint32_t n, uint32_t hash) noexcept nogil:
    # A node of that text (which stands outside the index), part of nothing yet: a reserved id, or a new one for 0.
    cdef bint reserved = id != 0
    cdef int64_t got = id if reserved else node_new(x)
    cdef int64_t text = text_new(x, n) if got >= 0 else got
    cdef Node* node
    if got < 0:
        return got
    id = <uint32_t>got
    node = node_at(x, id)
    memset(node, 0, sizeof(Node))
    if text < 0:
        if not reserved:
            node.next = x.free_node
            x.free_node = id
        return text
    memcpy(text_at(x, <uint32_t>text), p, n)
    node.text = <uint32_t>text
    node.len = <uint16_t>n
    node.hash = hash
    return id


cdef void node_drop(Index* x, uint32_t id) noexcept nogil:
    # Frees a node that is part of nothing any more.
    cdef Node* n = node_at(x, id)
    text_drop(x, n.text, n.len)
    memset(n, 0, sizeof(Node))
    n.next = x.free_node
    x.free_node = id
    if x.memo == id:
        x.memo = 0


cdef int index_reserve(Index* x, uint32_t top) noexcept nogil:
    # Takes all ids up to top out of use for node_new, to be filled by index_place. For an empty index.
    cdef uint32_t from_ = x.n_nodes
    cdef uint32_t id
    cdef Node* p
    cdef Node** table
    cdef uint32_t chunks = (top >> 10) + 1
    if top < from_:
        return ST_OK
    if x.cap_first < NODES:
        p = <Node*>realloc(x.nodes[0], NODES * sizeof(Node))
        if p == NULL:
            return ST_NO_MEMORY
        x.nodes[0] = p
        x.cap_first = NODES
    if chunks > x.cap_chunks:
        table = <Node**>realloc(x.nodes, chunks * sizeof(Node*))
        if table == NULL:
            return ST_NO_MEMORY
        x.nodes = table
        x.cap_chunks = chunks
    while x.n_chunks < chunks:
        x.nodes[x.n_chunks] = <Node*>malloc(NODES * sizeof(Node))
        if x.nodes[x.n_chunks] == NULL:
            return ST_NO_MEMORY
        x.n_chunks += 1
    for id in range(from_, top + 1):
        memset(node_at(x, id), 0, sizeof(Node))
    x.n_nodes = top + 1
    return ST_OK
