# Tables with open addressing: linear probing, backward-shift deletion, at most three quarters full.
# They shrink when seven eighths are empty, so deleting may move a table just as putting may.

cdef enum:
    TABLE_MIN = 16
    TABLE_MAX = 0x40000000
    TABLE_SMALL = 1024          # slots of a table that is moved over at once
    TABLE_STEP = 8              # slots of a larger one that a put or delete moves over to one yet larger,
    TABLE_BACK = 32             # and to a smaller one: few of them hold anything


cdef inline bint table_full(uint32_t n, uint32_t cap) noexcept nogil:
    return n >= cap - (cap >> 2)


cdef inline bint table_sparse(uint32_t n, uint32_t cap) noexcept nogil:
    return cap > TABLE_MIN and n < (cap >> 3)


# ---- number to number ----------------------------------------------------------------------------------
#
# The old table is moved over from its front. What stood before `old_at` is in the new one, so a search in the old one begins
# there at the earliest: one that belongs before and stands behind is reached without a gap. None of it stands before the slot
# where it belongs, as those that went on at the table's front are moved first: a search ends at the table's end. Its moves end
# long before the new table is full or sparse.

cdef inline uint32_t u64_slot(uint64_t key, uint32_t cap) noexcept nogil:
    return <uint32_t>mul_fold(key ^ table_words[1], table_words[2]) & (cap - 1)


cdef inline uint32_t u64_find(const U64Map* m, uint64_t key) noexcept nogil:
    # The slot that holds key, or the empty one where it belongs.
    cdef uint32_t i = u64_slot(key, m.cap)
    while m.keys[i] != 0 and m.keys[i] != key:
        i = (i + 1) & (m.cap - 1)
    return i


cdef uint32_t u64_find_old(const U64Map* m, uint64_t key) noexcept nogil:
    # The slot of the old table that holds key; old_cap: none does.
    cdef uint32_t i = max(u64_slot(key, m.old_cap), m.old_at)
    while i < m.old_cap and m.old[i] != key:
        if m.old[i] == 0:
            return m.old_cap
        i += 1
    return i


cdef void u64_move(U64Map* m, uint32_t slots) noexcept nogil:
    # Takes so many slots of the old table over.
    cdef uint32_t end = m.old_at + min(slots, m.old_cap - m.old_at), i
    while m.old_at < end:
        if m.old[m.old_at]:
            i = u64_find(m, m.old[m.old_at])
            m.keys[i] = m.old[m.old_at]
            m.vals[i] = m.old[m.old_cap + m.old_at]
        m.old_at += 1
    if m.old_at == m.old_cap:
        free(m.old)
        m.old = NULL


cdef inline void u64_step(U64Map* m) noexcept nogil:
    u64_move(m, TABLE_STEP if m.cap > m.old_cap else TABLE_BACK)


cdef int u64_resize(U64Map* m, uint32_t cap) noexcept nogil:
    cdef uint64_t* keys = <uint64_t*>calloc(cap, 2 * sizeof(uint64_t))      # keys, then values
    if keys == NULL:
        return -1
    if m.old != NULL:
        u64_move(m, m.old_cap)
    m.old = m.keys
    m.old_cap = m.cap
    m.old_at = 0
    m.keys = keys
    m.vals = keys + cap
    m.cap = cap
    if m.old_cap <= TABLE_SMALL:
        u64_move(m, m.old_cap)
        return 0
    while m.old[m.old_at]:
        u64_move(m, 1)
    return 0


cdef int u64map_put(U64Map* m, uint64_t key, uint64_t val) noexcept nogil:
    cdef uint32_t i = 0
    if key == 0:
        return -1
    if m.old != NULL:
        u64_step(m)
        i = u64_find_old(m, key) if m.old != NULL else m.old_cap
        if i < m.old_cap:
            m.old[m.old_cap + i] = val
            return 0
    if m.cap:
        i = u64_find(m, key)
        if m.keys[i]:
            m.vals[i] = val
            return 0
    if m.cap == 0 or table_full(m.n, m.cap):
        if m.cap >= TABLE_MAX or u64_resize(m, m.cap * 2 if m.cap else TABLE_MIN) < 0:
            return -1
        i = u64_find(m, key)
    m.keys[i] = key
    m.vals[i] = val
    m.n += 1
    return 0


cdef bint u64map_get(const U64Map* m, uint64_t key, uint64_t* val) noexcept nogil:
    cdef uint32_t i
    if m.n == 0 or key == 0:
        return False
    i = u64_find(m, key)
    if m.keys[i]:
        val[0] = m.vals[i]
        return True
    if m.old != NULL:
        i = u64_find_old(m, key)
        if i < m.old_cap:
            val[0] = m.old[m.old_cap + i]
            return True
    return False


cdef void u64_close(U64Map* m, uint32_t hole) noexcept nogil:
    # An entry that could stand at the hole moves there.
    cdef uint32_t i = hole, mask = m.cap - 1, home
    while True:
        i = (i + 1) & mask
        if m.keys[i] == 0:
            break
        home = u64_slot(m.keys[i], m.cap)
        if ((i + m.cap - home) & mask) >= ((i + m.cap - hole) & mask):
            m.keys[hole] = m.keys[i]
            m.vals[hole] = m.vals[i]
            hole = i
    m.keys[hole] = 0


cdef void u64_close_old(U64Map* m, uint32_t hole) noexcept nogil:
    cdef uint32_t i = hole + 1
    while i < m.old_cap and m.old[i] != 0:
        if u64_slot(m.old[i], m.old_cap) <= hole:
            m.old[hole] = m.old[i]
            m.old[m.old_cap + hole] = m.old[m.old_cap + i]
            hole = i
        i += 1
    m.old[hole] = 0


cdef bint u64map_del(U64Map* m, uint64_t key) noexcept nogil:
    cdef uint32_t i
    if m.n == 0 or key == 0:
        return False
    if m.old != NULL:
        u64_step(m)
    i = u64_find(m, key)
    if m.keys[i]:
        u64_close(m, i)
    else:
        i = u64_find_old(m, key) if m.old != NULL else m.old_cap
        if i == m.old_cap:
            return False
        u64_close_old(m, i)
    m.n -= 1
    if m.n == 0 and m.cap > TABLE_SMALL:
        u64map_free(m)
    elif table_sparse(m.n, m.cap) and m.old == NULL:
        u64_resize(m, m.cap // 2)       # without memory it stays large
    return True


cdef bint u64map_each(const U64Map* m, uint64_t* at, U64Pair* out) noexcept nogil:
    cdef uint64_t i
    while at[0] < m.cap:
        i = at[0]
        at[0] += 1
        if m.keys[i]:
            out.key = m.keys[i]
            out.val = m.vals[i]
            return True
    while m.old != NULL and at[0] - m.cap < m.old_cap - m.old_at:
        i = m.old_at + (at[0] - m.cap)
        at[0] += 1
        if m.old[i]:
            out.key = m.old[i]
            out.val = m.old[m.old_cap + i]
            return True
    return False


cdef void u64map_free(U64Map* m) noexcept nogil:
    free(m.keys)
    free(m.old)
    memset(m, 0, sizeof(U64Map))


# ---- bytes to pointer ------------------------------------------------------------------------------------

cdef inline uint32_t str_find(const StrMap* m, Span key, uint64_t hash) noexcept nogil:
    cdef uint32_t i = <uint32_t>hash & (m.cap - 1)
    while m.keys[i] != NULL:
        if m.hashes[i] == hash and m.lens[i] == key.n and (key.n == 0 or memcmp(m.keys[i], key.p, key.n) == 0):
            break
        i = (i + 1) & (m.cap - 1)
    return i


cdef inline void str_move(StrMap* to, uint32_t j, const StrMap* m, uint32_t i) noexcept nogil:
    to.hashes[j] = m.hashes[i]
    to.keys[j] = m.keys[i]
    to.lens[j] = m.lens[i]
    to.vals[j] = m.vals[i]


cdef int str_resize(StrMap* m, uint32_t cap) noexcept nogil:
    cdef StrMap to
    cdef uint32_t i, j
    # One piece: hashes, keys, values, lengths.
    to.hashes = <uint64_t*>calloc(cap, sizeof(uint64_t) + 2 * sizeof(void*) + sizeof(uint32_t))
    if to.hashes == NULL:
        return -1
    to.keys = <uint8_t**>(to.hashes + cap)
    to.vals = <void**>(to.keys + cap)
    to.lens = <uint32_t*>(to.vals + cap)
    to.cap = cap
    to.n = m.n
    for i in range(m.cap):
        if m.keys[i] != NULL:
            j = <uint32_t>m.hashes[i] & (cap - 1)
            while to.keys[j] != NULL:
                j = (j + 1) & (cap - 1)
            str_move(&to, j, m, i)
    free(m.hashes)
    m[0] = to
    return 0


cdef int strmap_put(StrMap* m, Span key, void* val) noexcept nogil:
    cdef uint64_t hash = table_hash(key.p, key.n)
    cdef uint32_t i
    cdef uint8_t* copy
    if m.cap:
        i = str_find(m, key, hash)
        if m.keys[i] != NULL:
            m.vals[i] = val
            return 0
    if m.cap == 0 or table_full(m.n, m.cap):
        if m.cap >= TABLE_MAX or str_resize(m, m.cap * 2 if m.cap else TABLE_MIN) < 0:
            return -1
    copy = <uint8_t*>malloc(key.n if key.n else 1)
    if copy == NULL:
        return -1
    if key.n:
        memcpy(copy, key.p, key.n)
    i = str_find(m, key, hash)
    m.hashes[i] = hash
    m.keys[i] = copy
    m.lens[i] = key.n
    m.vals[i] = val
    m.n += 1
    return 0


cdef void* strmap_get(StrMap* m, Span key) noexcept nogil:
    cdef uint32_t i
    if m.n == 0:
        return NULL
    i = str_find(m, key, table_hash(key.p, key.n))
    return m.vals[i] if m.keys[i] != NULL else NULL


cdef void* strmap_del(StrMap* m, Span key) noexcept nogil:
    cdef uint32_t hole, i, home, mask
    cdef void* val
    if m.n == 0:
        return NULL
    hole = str_find(m, key, table_hash(key.p, key.n))
    if m.keys[hole] == NULL:
        return NULL
    val = m.vals[hole]
    free(m.keys[hole])
    mask = m.cap - 1
    i = hole
    while True:
        i = (i + 1) & mask
        if m.keys[i] == NULL:
            break
        home = <uint32_t>m.hashes[i] & mask
        if ((i + m.cap - home) & mask) >= ((i + m.cap - hole) & mask):
            str_move(m, hole, m, i)
            hole = i
    m.keys[hole] = NULL
    m.n -= 1
    if table_sparse(m.n, m.cap):
        str_resize(m, m.cap // 2)       # without memory it stays large
    return val


cdef void strmap_free(StrMap* m) noexcept nogil:
    cdef uint32_t i
    for i in range(m.cap):
        free(m.keys[i])
    free(m.hashes)
    memset(m, 0, sizeof(StrMap))


# ---- growing arrays, and a buffer ------------------------------------------------------------------------

cdef int array_grow(void* array, uint32_t* cap, uint64_t need, size_t item, uint32_t first) noexcept nogil:
    cdef uint64_t to = max(max(<uint64_t>first, 2 * <uint64_t>cap[0]), need)
    cdef void* p
    if need > ARRAY_MAX:
        return -1
    to = min(to, <uint64_t>ARRAY_MAX)
    memcpy(&p, array, sizeof(p))
    p = realloc(p, <size_t>to * item)
    if p == NULL:
        return -1
    memcpy(array, &p, sizeof(p))
    cap[0] = <uint32_t>to
    return 0


cdef int bytes_reserve(Bytes* b, size_t more) noexcept nogil:
    cdef size_t want, cap
    cdef uint8_t* data
    if more > <size_t>INT64_MAX - b.n:
        return -1
    want = b.n + more
    if want <= b.cap:
        return 0
    cap = b.cap * 2 if b.cap < <size_t>INT64_MAX // 2 else want
    if cap < 64:
        cap = 64
    if cap < want:
        cap = want
    data = <uint8_t*>realloc(b.data, cap)
    if data == NULL:
        return -1
    b.data = data
    b.cap = cap
    return 0


cdef void bytes_free(Bytes* b) noexcept nogil:
    free(b.data)
    memset(b, 0, sizeof(Bytes))


# ---- pointers by given hashes --------------------------------------------------------------------------

cdef inline void table_place(Table* t, uint64_t hash, void* item) noexcept nogil:
    cdef uint32_t i = <uint32_t>hash & (t.cap - 1)
    while t.a[i].item != NULL:
        i = (i + 1) & (t.cap - 1)
    t.a[i].hash = hash
    t.a[i].item = item


cdef int table_resize(Table* t, uint32_t cap) noexcept nogil:
    cdef Table to
    cdef uint32_t i
    to.a = <Place*>calloc(cap, sizeof(Place))
    if to.a == NULL:
        return -1
    to.cap = cap
    to.n = t.n
    for i in range(t.cap):
        if t.a[i].item != NULL:
            table_place(&to, t.a[i].hash, t.a[i].item)
    free(t.a)
    t[0] = to
    return 0


cdef int table_add(Table* t, uint64_t hash, void* item) noexcept nogil:
    if t.cap == 0 or table_full(t.n, t.cap):
        if t.cap >= TABLE_MAX or table_resize(t, t.cap * 2 if t.cap else TABLE_MIN) < 0:
            return -1
    table_place(t, hash, item)
    t.n += 1
    return 0


@cython.overflowcheck(False)
cdef void table_remove(Table* t, uint64_t hash, void* item) noexcept nogil:
    cdef uint32_t mask = t.cap - 1
    cdef uint32_t hole = <uint32_t>hash & mask
    cdef uint32_t i
    while t.a[hole].item != item:
        hole = (hole + 1) & mask
    i = hole
    while True:
        i = (i + 1) & mask
        if t.a[i].item == NULL:
            break
        if ((i - <uint32_t>t.a[i].hash) & mask) >= ((i - hole) & mask):
            t.a[hole] = t.a[i]
            hole = i
    t.a[hole].item = NULL
    t.n -= 1
    if t.n == 0:
        free(t.a)
        memset(t, 0, sizeof(Table))
    elif table_sparse(t.n, t.cap):
        table_resize(t, t.cap // 2)      # without memory it stays large


@cython.overflowcheck(False)
cdef inline uint64_t bits_reversed(uint64_t x) noexcept nogil:
    x = ((x >> 1) & 0x5555555555555555ULL) | ((x & 0x5555555555555555ULL) << 1)
    x = ((x >> 2) & 0x3333333333333333ULL) | ((x & 0x3333333333333333ULL) << 2)
    x = ((x >> 4) & 0x0f0f0f0f0f0f0f0fULL) | ((x & 0x0f0f0f0f0f0f0f0fULL) << 4)
    x = ((x >> 8) & 0x00ff00ff00ff00ffULL) | ((x & 0x00ff00ff00ff00ffULL) << 8)
    x = ((x >> 16) & 0x0000ffff0000ffffULL) | ((x & 0x0000ffff0000ffffULL) << 16)
    return (x >> 32) | (x << 32)


@cython.overflowcheck(False)
cdef void* table_next(const Table* t, uint64_t* at) noexcept nogil:
    # An item's place is its hash with the bits in reverse. The last bits of a hash say which slot is its home, so the items of
    # one home are neighbours by place, in a table of whatever size.
    cdef uint32_t mask = t.cap - 1, home, i
    cdef uint64_t place, least = 0, rest
    cdef void* found = NULL
    if t.n == 0:
        return NULL
    rest = UINT64_MAX // t.cap          # places of one home, less one
    while True:
        home = i = <uint32_t>bits_reversed(at[0]) & mask
        while t.a[i].item != NULL:
            if (<uint32_t>t.a[i].hash & mask) == home:
                place = bits_reversed(t.a[i].hash)
                if place >= at[0] and (found == NULL or place < least):
                    found = t.a[i].item
                    least = place
            i = (i + 1) & mask
        if found != NULL:
            at[0] = least
            return found
        at[0] |= rest
        if at[0] == UINT64_MAX:
            return NULL
        at[0] += 1
