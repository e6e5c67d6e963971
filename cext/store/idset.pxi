# A set of subjects' numbers that a filter matches, with the heap of their next messages: one number put in, and its memory.

cdef struct Shapes:
    StrMap texts                # the patterns
    StrMap known                # the shapes: of each token `*`, `>` or, for any other, a dot
    uint8_t* room               # for a subject as a pattern of some shape

cdef struct Matcher:
    # Looks at one subject after another, for as long as its filter lives.
    Shapes shapes
    bint shaped

cdef struct IdSet:
    # What a filter matches in one store, brought up to date by the births since.
    uint64_t store
    uint64_t births
    uint64_t** pages
    uint32_t n_pages
    uint32_t n_ids
    uint64_t n_msgs             # theirs, when it was built
    bint covers                 # every subject of the store matches
    bint bare                   # that was known without a look at each: it has no bits
    uint32_t at                 # numbers [at, end) are to be looked at
    uint32_t end
    Matcher matcher
    Leads leads


cdef void leads_free(Leads* h) noexcept nogil:
    free(h.a)
    memset(h, 0, sizeof(Leads))


cdef inline int leads_room(Leads* h) noexcept nogil:
    # For one more.
    return array_room(&h.a, &h.cap, <uint64_t>h.n + 1, sizeof(Lead), 16)


cdef int leads_push(Leads* h, uint32_t id) noexcept nogil:
    # One more subject, behind the heap.
    if leads_room(h) < 0:
        return -1
    h.a[h.n].id = id
    h.a[h.n].seq = 0
    h.n += 1
    return 0


cdef int idset_put(IdSet* c, uint32_t id, bint on) noexcept nogil:
    cdef uint32_t k = id >> 12, cap
    cdef uint64_t** pages
    cdef uint64_t* word
    cdef uint64_t bit = <uint64_t>1 << (id & 63)
    if on == <bint>st_has(c.pages, c.n_pages, id):
        return 0
    if k >= c.n_pages:
        cap = max(k + 1, c.n_pages * 2)
        pages = <uint64_t**>realloc(c.pages, cap * sizeof(uint64_t*))
        if pages == NULL:
            return -1
        memset(pages + c.n_pages, 0, (cap - c.n_pages) * sizeof(uint64_t*))
        c.pages = pages
        c.n_pages = cap
    if c.pages[k] == NULL:
        c.pages[k] = <uint64_t*>calloc(64, 8)
        if c.pages[k] == NULL:
            return -1
    if on and c.leads.a != NULL and leads_push(&c.leads, id) < 0:
        return -1
    word = &c.pages[k][(id >> 6) & 63]
    word[0] ^= bit
    c.n_ids += 1 if on else -1
    return 0


cdef void shapes_free(Shapes* h) noexcept nogil:
    strmap_free(&h.texts)
    strmap_free(&h.known)
    free(h.room)


cdef void matcher_free(Matcher* m) noexcept nogil:
    if m.shaped:
        shapes_free(&m.shapes)
    m.shaped = False


cdef void idset_free(IdSet* c) noexcept nogil:
    cdef uint32_t i
    if c == NULL:
        return
    for i in range(c.n_pages):
        free(c.pages[i])
    free(c.pages)
    matcher_free(&c.matcher)
    leads_free(&c.leads)
    free(c)
