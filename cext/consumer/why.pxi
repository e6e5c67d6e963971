# Why a consumer delivers nothing at the moment: found out when somebody asks, and told in the log where somebody waits for
# messages that are there. Nothing is kept of it: a consumer that delivers pays for none of this.

cdef enum:
    STUCK_AGAIN = 600                   # s until the log says it again of the same consumer
    STUCK_PAUSE = 10                    # s between two lines about consumers of one stream

cdef enum Reason:
    WAITS_FAILED = 1                    # nothing is stored in its stream at the moment
    WAITS_LEADER = 2                    # another server delivers
    WAITS_PAUSED = 3                    # until
    WAITS_INTEREST = 4                  # nobody listens where it delivers
    WAITS_REQUEST = 5                   # nobody asks
    WAITS_START = 6                     # where it starts, or what is pending, is looked for
    WAITS_FLOW = 7                      # count: bytes that are not confirmed
    WAITS_ACKS = 8                      # count: messages that are not acked, seq: the oldest
    WAITS_DISK = 9
    WAITS_REPLAY = 10                   # until
    WAITS_RATE = 11                     # until
    WAITS_PIN = 12                      # the pinned client does not pull
    WAITS_OVERFLOW = 13                 # less is pending than the requests ask for
    WAITS_BACKOFF = 14                  # nothing is left but what is not acked, count; until: the first is due
    WAITS_MESSAGE = 15                  # nothing is left
    WAITS_ROOM = 16                     # the client that pulls has much to take already


cdef struct Why:
    int reason                          # WAITS_*; 0: it delivers in its turn
    int64_t until                       # wall clock; 0: nobody knows
    uint64_t count
    uint64_t seq


cdef bint anybodys_turn(Consumer* c) noexcept nogil:
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef Pull* q = pull_step(&all)
    cdef int turn
    if c.cfg.priority_policy <= PRIORITY_POLICY_PRIORITIZED or is_push(c):
        return True
    while q != NULL:
        turn = turn_of_pinned(c, q) if c.cfg.priority_policy == PRIORITY_POLICY_PINNED_CLIENT else turn_of_overflow(c, q)
        if turn == TURN_YES:
            return True
        q = pull_step(&all)
    return False


cdef void why_at_end(Consumer* c, Why* w) noexcept nogil:
    cdef int64_t due = pending_deadline(&c.pending)
    w.reason = WAITS_MESSAGE
    if c.pending.n:
        w.reason = WAITS_BACKOFF
        w.count = c.pending.n
        w.until = wall_time(c, due) if due - c.env.mono < FOREVER // 2 else 0


cdef void consumer_why(Consumer* c, Why* w) noexcept nogil:
    # In the order in which delivery asks (deliver_step).
    memset(w, 0, sizeof(Why))
    if stands_still(c):
        w.reason = WAITS_FAILED
    elif c.role != ROLE_LEADS:
        w.reason = WAITS_LEADER
    elif c.paused:
        w.reason = WAITS_PAUSED
        w.until = c.cfg.pause_until
    elif not has_taker(c):
        w.reason = WAITS_INTEREST if is_push(c) else WAITS_REQUEST
    elif c.count.phase or c.count.failed or c.unanswered:
        w.reason = WAITS_START
    elif c.flow.window and c.flow.unconfirmed > c.flow.window:
        w.reason = WAITS_FLOW
        w.count = <uint64_t>c.flow.unconfirmed
    elif c.pull.n_full and c.pull.n_full == c.pull.n:
        w.reason = WAITS_ROOM
    elif c.pending.queue.head == 0 and c.pending.n and stalled(c):
        w.reason = WAITS_ACKS
        w.count = c.pending.n
        w.seq = entry_at(&c.pending, c.pending.first).sseq
    elif list_linked(&c.cold.node):
        w.reason = WAITS_DISK
    elif c.timers[TIMER_WAKE].pos:
        w.reason = WAITS_REPLAY if c.replay.on else WAITS_RATE
        w.until = wall_time(c, c.timers[TIMER_WAKE].deadline)
    elif c.pending.queue.head == 0 and c.num_pending <= 0:
        why_at_end(c, w)
    elif not anybodys_turn(c):
        w.reason = WAITS_PIN if c.cfg.priority_policy == PRIORITY_POLICY_PINNED_CLIENT else WAITS_OVERFLOW


# ---- the log -------------------------------------------------------------------------------------------------------


cdef const char* stuck_text(const Why* w, char* text, size_t n) noexcept nogil:
    if w.reason == WAITS_ACKS:
        snprintf(text, n, b"%llu messages are not acked, the most that may be; the oldest is %llu",
                 <unsigned long long>w.count, <unsigned long long>w.seq)
        return text
    if w.reason == WAITS_FLOW:
        snprintf(text, n, b"flow control is not answered, %llu bytes are on their way", <unsigned long long>w.count)
        return text
    if w.reason == WAITS_PIN:
        return b"the pinned client does not ask"
    if w.reason == WAITS_OVERFLOW:
        return b"less is pending than the requests that wait ask for"
    return NULL


cdef void stuck_due(Timer* t, int64_t now) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef Consumers* k = c.shared
    cdef int64_t due = c.last_delivery + STUCK_AFTER * <int64_t>SECOND
    cdef char text[160]
    cdef char line[240]
    cdef const char* reason
    cdef Why w
    consumer_why(c, &w)
    reason = stuck_text(&w, text, sizeof(text))
    if reason == NULL or (c.num_pending <= 0 and c.pending.queue.head == 0):
        return                                  # it goes on; should it stop again, delivery says so
    if due > now:
        timer_set(&c.env.timers, t, due)
    elif k.told and now - k.told < STUCK_PAUSE * <int64_t>SECOND:
        timer_set(&c.env.timers, t, k.told + STUCK_PAUSE * <int64_t>SECOND)
    else:
        k.told = now
        snprintf(line, sizeof(line), b"delivers nothing though somebody waits: %s", reason)
        say_of(c, line)
        timer_set(&c.env.timers, t, now + STUCK_AGAIN * <int64_t>SECOND)
