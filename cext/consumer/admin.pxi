# What is not acked, for an administrator of a consumer: listed, and released to be delivered again at once.

cdef enum:
    LIST_TURN = 5000                    # entries that are looked at without letting the lock go
    RELEASE_MAX = 256                   # messages that are released together


cdef struct Listing:
    uint64_t start                      # from this sequence on
    uint64_t at                         # where it goes on; 0: from the first
    int64_t idle                        # ns since the last delivery, at least
    uint32_t left                       # entries that are still wanted
    Bytes found                         # Listed and its subject, one after another


cdef struct Listed:
    uint64_t seq
    uint64_t deliveries
    int64_t sent                        # wall clock: of the last delivery, or +WPI
    int64_t due                         # wall clock; 0: not in time
    bint queued
    uint32_t n_subject


cdef inline bint idle_for(const Consumer* c, const Pending* e, int64_t idle) noexcept nogil:
    # What was delivered before the start may be taken for sent up to a second from now (the state's file has seconds).
    return max(<int64_t>0, c.env.mono - e.sent) >= idle


cdef int list_one(Consumer* c, const Pending* e, Bytes* b) noexcept nogil:
    cdef Listed one
    cdef Span subject = store_subject(c.s.store, e.sseq)
    cdef int64_t deadline = deadline_of(&c.pending, e)
    memset(&one, 0, sizeof(Listed))
    one.seq = e.sseq
    one.deliveries = e.deliveries
    one.sent = wall_time(c, e.sent)
    one.queued = e.place == AT_QUEUE
    if (e.place == AT_TIMED or e.place == AT_HEAP) and deadline - c.env.mono < FOREVER // 2:
        one.due = wall_time(c, deadline)
    one.n_subject = subject.n
    if bytes_add(b, &one, sizeof(Listed)) < 0:
        return -1
    return bytes_add(b, subject.p, subject.n)


cdef int list_some(Consumer* c, Listing* l) noexcept nogil:
    # 1: ask again, 0: that is all, -1: no memory
    cdef uint32_t i = pending_find(&c.pending, l.at if l.at else l.start)
    cdef uint32_t looked = 0
    cdef Pending* e
    if i == 0:
        i = c.pending.first
    while i and l.left:
        e = entry_at(&c.pending, i)
        if e.sseq >= l.start and e.sseq > c.upto.seq and idle_for(c, e, l.idle):
            if list_one(c, e, &l.found) < 0:
                return -1
            l.left -= 1
        i = e.next
        looked += 1
        if i and looked >= LIST_TURN:
            l.at = entry_at(&c.pending, i).sseq
            if e.sseq >= l.start:
                l.start = l.at                  # those before are done, also should it begin anew
            return 1
    return 0


cdef bint release(Consumer* c, uint64_t seq, int64_t idle) noexcept nogil:
    # Whether it is delivered again now.
    cdef uint32_t i = pending_find(&c.pending, seq)
    if i == 0 or not idle_for(c, entry_at(&c.pending, i), idle) or dead_of(c, seq) != NULL:
        return False
    requeue(c, i)
    i = pending_find(&c.pending, seq)
    if i == 0 or entry_at(&c.pending, i).place != AT_QUEUE:
        return False
    log_deadline(c, seq, c.env.now)
    return True


cdef void queue_first(Consumer* c, uint32_t i) noexcept nogil:
    pending_list_remove(&c.pending, &c.pending.queue, i)
    pending_list_prepend(&c.pending, &c.pending.queue, i, AT_QUEUE)


cdef int hand_over(Consumer* c, Span to, uint32_t n) noexcept nogil:
    # The next n messages go there. 0 | -1 no memory
    cdef Pull* q = pull_new(c, to)
    if q == NULL:
        return -1
    q.batch = n
    q.no_wait = True
    q.pin = c.pin.number
    list_push_front(&c.pull.all, &q.node)
    c.pull.n += 1
    c.pull.n_no_wait += 1
    return 0


cdef int release_all(Consumer* c, uint64_t* seqs, int n, int64_t idle, Span to) noexcept nogil:
    # How many were, which are moved to the front; with `to` they are delivered there, in this order. -1: no memory
    cdef int i, done = 0
    for i in range(n):
        if release(c, seqs[i], idle):
            seqs[done] = seqs[i]
            done += 1
    if to.n and done:
        if hand_over(c, to, <uint32_t>done) < 0:
            return -1
        for i in range(done - 1, -1, -1):
            queue_first(c, pending_find(&c.pending, seqs[i]))
    wake_delivery(c)
    return done
