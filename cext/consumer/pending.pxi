# What was delivered and not acked: a slab of entries found by sequence, linked in the order of first delivery, and
# each in at most one of: the list of deadlines (all of one length, so in order), the heap of other deadlines, and the
# queue of what is to be redelivered. Every step costs O(1), in the heap O(log n). All deadlines move at once by `later`, which
# entries do not have in theirs.

cdef enum:
    PENDING_KEPT = 256              # an empty table larger than this gives its memory back


cdef inline Pending* entry_at(PendingTable* t, uint32_t i) noexcept nogil:
    return &t.slab[i]


cdef uint32_t pending_find(PendingTable* t, uint64_t sseq) noexcept nogil:
    cdef uint64_t i
    if t.n == 0 or not u64map_get(&t.by_seq, sseq, &i):
        return 0
    return <uint32_t>i


# ---- the lists ---------------------------------------------------------------------------------------------

cdef void pending_list_append(PendingTable* t, PendingList* l, uint32_t i, int place) noexcept nogil:
    cdef Pending* e = entry_at(t, i)
    invariant(e.place == AT_NONE, "an entry is in one list at most")
    e.place = place
    e.qnext = 0
    e.qprev = l.tail
    if l.tail:
        entry_at(t, l.tail).qnext = i
    else:
        l.head = i
    l.tail = i
    l.n += 1


cdef void pending_list_prepend(PendingTable* t, PendingList* l, uint32_t i, int place) noexcept nogil:
    cdef Pending* e = entry_at(t, i)
    invariant(e.place == AT_NONE, "an entry is in one list at most")
    e.place = place
    e.qprev = 0
    e.qnext = l.head
    if l.head:
        entry_at(t, l.head).qprev = i
    else:
        l.tail = i
    l.head = i
    l.n += 1


cdef void pending_list_remove(PendingTable* t, PendingList* l, uint32_t i) noexcept nogil:
    cdef Pending* e = entry_at(t, i)
    invariant(l.n and e.place != AT_NONE, "an entry leaves a list that it is in")
    if e.qprev:
        entry_at(t, e.qprev).qnext = e.qnext
    else:
        l.head = e.qnext
    if e.qnext:
        entry_at(t, e.qnext).qprev = e.qprev
    else:
        l.tail = e.qprev
    l.n -= 1
    e.place = AT_NONE
    invariant((l.n == 0) == (l.head == 0) and (l.n == 0) == (l.tail == 0), "a list counts its entries")


# ---- the heap ------------------------------------------------------------------------------------------------

cdef inline void heap_put(PendingTable* t, uint32_t at, uint32_t i) noexcept nogil:
    t.heap[at] = i
    entry_at(t, i).heap_at = at


cdef void heap_rise(PendingTable* t, uint32_t at, uint32_t i) noexcept nogil:
    cdef uint32_t parent
    while at:
        parent = (at - 1) >> 1
        if entry_at(t, t.heap[parent]).deadline <= entry_at(t, i).deadline:
            break
        heap_put(t, at, t.heap[parent])
        at = parent
    heap_put(t, at, i)


cdef void heap_sink(PendingTable* t, uint32_t at, uint32_t i) noexcept nogil:
    cdef uint32_t child
    while True:
        child = 2 * at + 1
        if child >= t.heap_n:
            break
        if (child + 1 < t.heap_n
                and entry_at(t, t.heap[child + 1]).deadline < entry_at(t, t.heap[child]).deadline):
            child += 1
        if entry_at(t, t.heap[child]).deadline >= entry_at(t, i).deadline:
            break
        heap_put(t, at, t.heap[child])
        at = child
    heap_put(t, at, i)


cdef int heap_add(PendingTable* t, uint32_t i) noexcept nogil:
    if array_room(&t.heap, &t.heap_cap, <uint64_t>t.heap_n + 1, sizeof(uint32_t), 16) < 0:
        return -1
    invariant(entry_at(t, i).place == AT_NONE, "an entry is in one list at most")
    t.heap_n += 1
    entry_at(t, i).place = AT_HEAP
    heap_rise(t, t.heap_n - 1, i)
    return 0


cdef void heap_take(PendingTable* t, uint32_t i) noexcept nogil:
    cdef uint32_t at = entry_at(t, i).heap_at
    cdef uint32_t last
    invariant(at < t.heap_n and t.heap[at] == i, "an entry of the heap knows its place")
    t.heap_n -= 1
    last = t.heap[t.heap_n]
    entry_at(t, i).place = AT_NONE
    if last != i:
        if at and entry_at(t, last).deadline < entry_at(t, t.heap[(at - 1) >> 1]).deadline:
            heap_rise(t, at, last)
        else:
            heap_sink(t, at, last)


# ---- entries -------------------------------------------------------------------------------------------------

cdef void pending_unplace(PendingTable* t, uint32_t i) noexcept nogil:
    cdef int place = entry_at(t, i).place
    if place == AT_TIMED:
        pending_list_remove(t, &t.timed, i)
    elif place == AT_HEAP:
        heap_take(t, i)
    elif place == AT_QUEUE:
        pending_list_remove(t, &t.queue, i)
    entry_at(t, i).place = AT_NONE


cdef int pending_grow(PendingTable* t) noexcept nogil:
    cdef uint32_t cap = t.cap * 2 if t.cap else 16
    cdef Pending* slab
    if cap > 1 << 28:
        return -1
    slab = <Pending*>realloc(t.slab, <size_t>cap * sizeof(Pending))
    if slab == NULL:
        return -1
    t.slab = slab
    t.cap = cap
    t.top = max(t.top, <uint32_t>1)
    return 0


cdef uint32_t pending_add(PendingTable* t, uint64_t sseq, uint64_t dseq) noexcept nogil:
    # A new entry, in no list yet; 0 when memory ran out. Sequences come in ascending order, but for odd states on disk.
    cdef uint32_t i, before
    cdef Pending* e
    invariant(sseq > 0 and pending_find(t, sseq) == 0, "a message is pending once")
    if t.free == 0 and t.top == t.cap and pending_grow(t) < 0:
        return 0
    i = t.free if t.free else t.top
    if u64map_put(&t.by_seq, sseq, i) < 0:
        return 0
    e = entry_at(t, i)
    if t.free:
        t.free = e.next
    else:
        t.top += 1
    memset(e, 0, sizeof(Pending))
    e.sseq = sseq
    e.dseq = dseq
    e.deliveries = 1
    before = t.last
    while before and entry_at(t, before).sseq > sseq:
        before = entry_at(t, before).prev
    e.prev = before
    e.next = entry_at(t, before).next if before else t.first
    if before:
        entry_at(t, before).next = i
    else:
        t.first = i
    if e.next:
        entry_at(t, e.next).prev = i
    else:
        t.last = i
    t.n += 1
    invariant(e.next == 0 or entry_at(t, e.next).sseq > sseq, "what is pending stands in the order of the stream")
    return i


cdef void pending_free(PendingTable* t) noexcept nogil:
    free(t.slab)
    free(t.heap)
    u64map_free(&t.by_seq)
    memset(t, 0, sizeof(PendingTable))


cdef void pending_remove(PendingTable* t, uint32_t i) noexcept nogil:
    cdef Pending* e = entry_at(t, i)
    invariant(pending_find(t, e.sseq) == i, "what leaves is pending")
    pending_unplace(t, i)
    u64map_del(&t.by_seq, e.sseq)
    if t.moved == i:
        t.moved = e.next
    if e.prev:
        entry_at(t, e.prev).next = e.next
    else:
        t.first = e.next
    if e.next:
        entry_at(t, e.next).prev = e.prev
    else:
        t.last = e.prev
    t.n -= 1
    invariant((t.n == 0) == (t.first == 0) and t.n == t.by_seq.n, "what is pending is counted")
    if t.n == 0 and t.cap > PENDING_KEPT:
        pending_free(t)
        return
    e.next = t.free
    t.free = i


# ---- deadlines -------------------------------------------------------------------------------------------------

cdef void pending_schedule(PendingTable* t, uint32_t i, int64_t deadline, bint uniform) noexcept nogil:
    # uniform: the usual ack wait, so that the deadline is most likely the last one. Without memory for the heap the
    # entry goes to the list, where it is found somewhat late.
    cdef Pending* e = entry_at(t, i)
    pending_unplace(t, i)
    invariant(e.place == AT_NONE, "an entry that gets a deadline is in no list")
    e.deadline = deadline - t.later
    e.change = t.change
    if uniform and (t.timed.tail == 0 or entry_at(t, t.timed.tail).deadline <= e.deadline):
        pending_list_append(t, &t.timed, i, AT_TIMED)
    elif heap_add(t, i) < 0:
        pending_list_append(t, &t.timed, i, AT_TIMED)


cdef inline int64_t deadline_of(const PendingTable* t, const Pending* e) noexcept nogil:
    return e.deadline + t.later


cdef int64_t pending_deadline(PendingTable* t) noexcept nogil:
    # Of the first one; INT64_MAX: there is none.
    cdef int64_t first = INT64_MAX
    if t.timed.head:
        first = deadline_of(t, entry_at(t, t.timed.head))
    if t.heap_n:
        first = min(first, deadline_of(t, entry_at(t, t.heap[0])))
    return first


cdef uint32_t pending_due(PendingTable* t, int64_t now) noexcept nogil:
    # An entry whose deadline passed, or 0.
    if t.timed.head and deadline_of(t, entry_at(t, t.timed.head)) <= now:
        return t.timed.head
    if t.heap_n and deadline_of(t, entry_at(t, t.heap[0])) <= now:
        return t.heap[0]
    return 0
