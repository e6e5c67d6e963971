# Timers: a 4-ary heap of timers that their owners hold. Tasks: a list of what is due once in this turn.
# Timer.pos is the place in the heap plus one, so that a zeroed timer is one that is not set.

cdef inline void heap_place(TimerHeap* h, Timer* t, uint32_t i) noexcept nogil:
    h.a[i] = t
    t.pos = i + 1


cdef void heap_up(TimerHeap* h, Timer* t, uint32_t i) noexcept nogil:
    cdef uint32_t parent
    while i:
        parent = (i - 1) >> 2
        if h.a[parent].deadline <= t.deadline:
            break
        heap_place(h, h.a[parent], i)
        i = parent
    heap_place(h, t, i)


cdef void heap_down(TimerHeap* h, Timer* t, uint32_t i) noexcept nogil:
    cdef uint64_t first, c, best
    while True:
        first = 4 * <uint64_t>i + 1
        if first >= h.n:
            break
        best = first
        c = first + 1
        while c < first + 4 and c < h.n:
            if h.a[c].deadline < h.a[best].deadline:
                best = c
            c += 1
        if h.a[best].deadline >= t.deadline:
            break
        heap_place(h, h.a[best], i)
        i = <uint32_t>best
    heap_place(h, t, i)


cdef int heap_resize(TimerHeap* h, uint32_t cap) noexcept nogil:
    cdef Timer** a = <Timer**>realloc(h.a, <size_t>cap * sizeof(Timer*))
    if a == NULL:
        return -1
    h.a = a
    h.cap = cap
    return 0


cdef int timer_set(TimerHeap* h, Timer* t, int64_t deadline) noexcept nogil:
    cdef int64_t old = t.deadline
    invariant(t.pos <= h.n and (t.pos == 0 or h.a[t.pos - 1] == t), "a timer that is set knows its place")
    if t.pos:
        t.deadline = deadline
        if deadline < old:
            heap_up(h, t, t.pos - 1)
        elif deadline > old:
            heap_down(h, t, t.pos - 1)
        return 0
    if h.n == h.cap:
        if h.cap >= 0x40000000 or heap_resize(h, h.cap * 2 if h.cap else 16) < 0:
            return -1
    t.deadline = deadline
    h.n += 1
    heap_up(h, t, h.n - 1)
    invariant(h.a[t.pos - 1] == t, "a timer that is set knows its place")
    return 0


cdef void timer_cancel(TimerHeap* h, Timer* t) noexcept nogil:
    cdef uint32_t i
    cdef Timer* last
    if not t.pos:
        return
    invariant(t.pos <= h.n and h.a[t.pos - 1] == t, "a timer that is set knows its place")
    i = t.pos - 1
    t.pos = 0
    h.n -= 1
    if i != h.n:
        last = h.a[h.n]
        if i and h.a[(i - 1) >> 2].deadline > last.deadline:
            heap_up(h, last, i)
        else:
            heap_down(h, last, i)
    if h.cap > 64 and h.n < h.cap // 4:
        heap_resize(h, h.cap // 2)


cdef void timers_free(TimerHeap* h) noexcept nogil:
    cdef uint32_t i
    for i in range(h.n):
        h.a[i].pos = 0
    free(h.a)
    memset(h, 0, sizeof(TimerHeap))


cdef int64_t timer_next(TimerHeap* h) noexcept nogil:
    return h.a[0].deadline if h.n else INT64_MAX


cdef uint32_t timer_run(TimerHeap* h, int64_t now, uint32_t limit) noexcept nogil:
    cdef uint32_t fired = 0
    cdef Timer* t
    while fired < limit and h.n and h.a[0].deadline <= now:
        t = h.a[0]
        invariant(h.n == 1 or h.a[1].deadline >= t.deadline, "the first timer of the heap is due first")
        timer_cancel(h, t)
        fired += 1
        t.fn(t, now)    # may set it again or free its owner
    return fired


# ---- tasks -------------------------------------------------------------------------------------------

cdef void task_post(List* l, Task* t) noexcept nogil:
    if not list_linked(&t.node):
        list_push_back(l, &t.node)


cdef void task_cancel(Task* t) noexcept nogil:
    list_drop(&t.node)


cdef uint32_t task_run(List* l, uint32_t limit) noexcept nogil:
    cdef uint32_t ran = 0
    cdef Task* t
    while ran < limit and not list_empty(l):
        t = <Task*>list_owner(list_pop(l), &(<Task*>NULL).node)
        ran += 1
        t.fn(t)         # may post it again or free its owner
    return ran
