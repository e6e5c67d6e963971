# A timing wheel: keys, each with the tick at which it is due. Seven wheels of 64 slots stand in each other, so a slot of one has
# the ticks of a whole turn of the one below it. A key lies in the wheel in which its tick first differs from the present one,
# and moves down when the present reaches its slot: six times at most. Nothing is searched and nothing compared; what is not
# wanted any more stays until it is due, moves, or all are gone through (wheel_again).
#
#       tick    .. 000000 | 000010 | 000101 | 011110      the present is       .. | 000010 | 000011 | 001000
#                         wheel 2    wheel 1                          lies in wheel 1, slot 5
#
# A slot is a ring of chunks, named by the last: what came first leaves first.

cdef enum:
    WHEEL_BITS = 6
    WHEEL_SLOTS = 64
    WHEEL_CHUNK = 30            # keys of a chunk of 512 bytes

cdef uint64_t WHEEL_LAST_TICK = (<uint64_t>1 << 41) - 1      # the last one with a time

cdef extern from *:
    """
    static inline uint32_t wheel_high(uint64_t v) { return 63 - (uint32_t)__builtin_clzll(v); }
    """
    uint32_t wheel_high(uint64_t v) noexcept nogil      # the highest bit that is set


cdef struct WheelItem:
    uint64_t key
    uint64_t tick


cdef struct WheelChunk:
    WheelChunk* next            # the first one, behind the last
    uint32_t start              # items [start, end) are there
    uint32_t end
    WheelItem items[WHEEL_CHUNK]


cdef uint64_t wheel_tick(int64_t ns) noexcept nogil:
    # The first tick that is not before a time.
    if ns <= 0:
        return 0
    return min(((<uint64_t>ns - 1) >> WHEEL_TICK) + 1, <uint64_t>WHEEL_LAST_TICK)


cdef int64_t wheel_time(uint64_t tick) noexcept nogil:
    return <int64_t>(tick << WHEEL_TICK)


cdef int ring_add(WheelChunk** ring, uint64_t key, uint64_t tick) noexcept nogil:
    cdef WheelChunk* c = ring[0]
    if c == NULL or c.end == WHEEL_CHUNK:
        c = <WheelChunk*>malloc(sizeof(WheelChunk))
        if c == NULL:
            return -1
        c.start = 0
        c.end = 0
        c.next = c
        if ring[0] != NULL:
            c.next = ring[0].next
            ring[0].next = c
        ring[0] = c
    c.items[c.end].key = key
    c.items[c.end].tick = tick
    c.end += 1
    return 0


cdef WheelItem* ring_first(WheelChunk* ring) noexcept nogil:
    return &ring.next.items[ring.next.start]


cdef void ring_pop(WheelChunk** ring) noexcept nogil:
    cdef WheelChunk* c = ring[0].next
    c.start += 1
    if c.start < c.end:
        return
    if c == ring[0]:
        ring[0] = NULL
    else:
        ring[0].next = c.next
    free(c)


cdef void ring_free(WheelChunk* ring) noexcept nogil:
    while ring != NULL:
        ring.next.start = ring.next.end - 1
        ring_pop(&ring)


cdef int wheel_place(Wheel* w, uint64_t key, uint64_t tick) noexcept nogil:
    cdef uint64_t at = max(tick, w.now)
    cdef uint32_t level = wheel_high(at ^ w.now) // WHEEL_BITS if at != w.now else 0
    cdef uint32_t slot = <uint32_t>(at >> level * WHEEL_BITS) % WHEEL_SLOTS
    if ring_add(&w.slots[level * WHEEL_SLOTS + slot], key, tick) < 0:
        return -1
    w.used[level] |= <uint64_t>1 << slot
    return 0


cdef int wheel_add(Wheel* w, uint64_t key, uint64_t tick) noexcept nogil:
    if wheel_place(w, key, min(tick, <uint64_t>WHEEL_LAST_TICK)) < 0:
        return -1
    w.n += 1
    return 0


cdef inline uint64_t slot_start(const Wheel* w, uint32_t level, uint32_t slot) noexcept nogil:
    cdef uint32_t shift = level * WHEEL_BITS
    return ((w.now >> shift) // WHEEL_SLOTS * WHEEL_SLOTS + slot) << shift


cdef inline int lowest_level(const Wheel* w) noexcept nogil:
    # The one that has what is due next; -1 when there is nothing.
    cdef int level = 0
    while level < WHEEL_LEVELS and w.used[level] == 0:
        level += 1
    return level if level < WHEEL_LEVELS else -1


cdef uint64_t wheel_next(const Wheel* w) noexcept nogil:
    cdef int level
    if w.moving != NULL or w.old != NULL:
        return w.now
    level = lowest_level(w)
    return slot_start(w, level, low_bit(w.used[level])) if level >= 0 else UINT64_MAX


cdef int wheel_move(Wheel* w, bint (*wanted)(void* ctx, uint64_t key) noexcept nogil, void* ctx) noexcept nogil:
    # One item to where it belongs by now. -1: no memory
    cdef WheelItem* item
    while w.moving == NULL and w.old != NULL:
        w.moving = w.old[w.old_at]
        w.old_at += 1
        if w.old_at == WHEEL_LEVELS * WHEEL_SLOTS:
            free(w.old)
            w.old = NULL
    if w.moving == NULL:
        return 0
    item = ring_first(w.moving)
    if not wanted(ctx, item.key):
        w.n -= 1
    elif wheel_place(w, item.key, item.tick) < 0:
        return -1
    ring_pop(&w.moving)
    return 0


cdef int wheel_take(Wheel* w, uint64_t upto, bint (*wanted)(void* ctx, uint64_t key) noexcept nogil, void* ctx,
                    uint32_t* work, uint64_t* key) noexcept nogil:
    cdef uint64_t start
    cdef uint32_t slot
    cdef int level
    cdef WheelChunk** ring
    while work[0]:
        if w.moving != NULL or w.old != NULL:
            work[0] -= 1
            if wheel_move(w, wanted, ctx) < 0:
                return -1
            continue
        level = lowest_level(w)
        slot = low_bit(w.used[level]) if level >= 0 else 0
        start = slot_start(w, level, slot) if level >= 0 else UINT64_MAX
        if start > upto:
            w.now = max(w.now, upto)        # nothing lies in between: all stay where they are
            return 0
        w.now = max(w.now, start)
        ring = &w.slots[level * WHEEL_SLOTS + slot]
        if level:
            w.moving = ring[0]
            ring[0] = NULL
            w.used[level] &= ~(<uint64_t>1 << slot)
            continue
        work[0] -= 1
        key[0] = ring_first(ring[0]).key
        ring_pop(ring)
        w.n -= 1
        if ring[0] == NULL:
            w.used[0] &= ~(<uint64_t>1 << slot)
        return 1
    return -1


cdef uint64_t wheel_ahead(const Wheel* w) noexcept nogil:
    cdef WheelChunk* ring = w.slots[w.now % WHEEL_SLOTS]
    return ring_first(ring).key if ring != NULL else 0


cdef int wheel_again(Wheel* w, uint64_t now) noexcept nogil:
    cdef WheelChunk** old
    if w.old != NULL or w.moving != NULL:
        return 0
    old = <WheelChunk**>malloc(sizeof(w.slots))
    if old == NULL:
        return -1
    memcpy(old, w.slots, sizeof(w.slots))
    memset(w.slots, 0, sizeof(w.slots))
    memset(w.used, 0, sizeof(w.used))
    w.old = old
    w.old_at = 0
    w.now = now
    return 0


cdef void wheel_free(Wheel* w) noexcept nogil:
    cdef uint32_t i
    ring_free(w.moving)
    for i in range(WHEEL_LEVELS * WHEEL_SLOTS):
        ring_free(w.slots[i])
        if w.old != NULL and i >= w.old_at:
            ring_free(w.old[i])
    free(w.old)
    memset(w, 0, sizeof(Wheel))
