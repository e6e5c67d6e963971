# How many messages are pending, and where a consumer starts that begins with last messages: both found in pieces, between which
# others have their turns. Until the end nothing is delivered; what comes and goes meanwhile is added and taken away, so the
# number is that of the moment at which it is complete. A start by last messages of subjects is as of the first moment.

cdef enum:
    COUNT_SKIPPED = 4096                # last messages that a piece looks for


cdef bint is_counted(const Consumer* c, uint64_t seq) noexcept nogil:
    # Whether num_pending has this message, which is not delivered.
    if placing(c):
        return False
    if c.count.phase == COUNT_NONE or seq >= c.count.end:
        return True
    if c.count.phase == COUNT_SKIP:
        return c.count.at < c.skip.n and seq < c.skip.seqs[c.count.at]
    return seq < c.count.at


cdef void count_pending(Consumer* c) noexcept nogil:
    # Counts anew, now or in turns.
    if placing(c):
        return
    c.num_pending = 0
    c.count.end = c.s.shown + 1
    c.count.at = c.skip.at
    c.count.phase = COUNT_SKIP
    if c.skip.seqs == NULL:
        count_rest(c)
    count_step(c)
    if c.count.phase:
        task_post(&c.env.tasks, &c.count.task)


cdef void count_rest(Consumer* c) noexcept nogil:
    cdef uint64_t n
    c.count.phase = COUNT_REST
    c.count.at = c.next if c.skip.seqs == NULL else c.skip.resume
    if c.count.end == c.s.shown + 1 and store_pending_soon(c.s.store, filter_of(c), c.count.at, &n):
        c.num_pending += <int64_t>(n - stream_hidden(c.s, filter_of(c), c.count.at))
        count_done(c)


cdef void count_done(Consumer* c) noexcept nogil:
    c.count.phase = COUNT_NONE
    if c.count.wanted != NULL:
        info_fill(c, c.count.wanted)
        c.count.wanted = NULL
    wake_delivery(c)


cdef void count_stop(Consumer* c) noexcept nogil:
    task_cancel(&c.count.task)
    sweep_free(c.count.sweep)
    c.count.sweep = NULL
    filter_free(&c.count.loose)
    c.count.phase = COUNT_NONE
    c.count.wanted = NULL


cdef void count_step(Consumer* c) noexcept nogil:
    cdef uint64_t n = 0
    cdef uint32_t i
    if placing(c):
        place_step(c)
    elif c.count.phase == COUNT_SKIP:
        for i in range(COUNT_SKIPPED):
            if c.count.at >= c.skip.n or c.skip.seqs[c.count.at] >= c.count.end:
                count_rest(c)
                return
            c.num_pending += still_stored(c, c.skip.seqs[c.count.at])
            c.count.at += 1
    elif c.count.phase == COUNT_REST:
        if store_count_some(c.s.store, filter_of(c), &c.count.at, c.count.end, &n) != 1:
            c.num_pending += <int64_t>n
            count_done(c)
        else:
            c.num_pending += <int64_t>n


cdef bint consumer_step(Consumer* c) noexcept nogil:
    if c.count.phase:
        count_step(c)
    return c.count.phase != COUNT_NONE


cdef void count_turn(Task* t) noexcept nogil:
    if consumer_step(<Consumer*>t.owner):
        task_post(&(<Consumer*>t.owner).env.tasks, t)


cdef void consumer_info(Consumer* c, ConsumerInfo* out) noexcept nogil:
    if c.role == ROLE_BEHIND:
        count_pending(c)
    while c.count.phase:
        count_step(c)
    info_fill(c, out)


cdef void info_when_counted(Consumer* c, ConsumerInfo* before) noexcept nogil:
    if c.count.phase:
        c.count.wanted = before
    else:
        consumer_info(c, before)


# ---- where it starts -------------------------------------------------------------------------------------------------

cdef int place_begin(Consumer* c, uint64_t last) noexcept nogil:
    # By the last messages of a stream that ends there. 0 | -1 no memory
    c.next = last + 1
    if c.cfg.deliver_policy == DELIVER_POLICY_LAST:
        memset(&c.count.look, 0, sizeof(LastLook))
        c.count.phase = COUNT_LAST
        return 0
    # Here alone a last token `x*` stands for what begins with x: clients list a bucket's keys so.
    if filter_copy(&c.count.loose, &c.filter) != ST_OK:
        return -1
    filter_loosen(&c.count.loose)
    c.count.sweep = sweep_lasts(c.s.store, &c.count.loose, last, UINT64_MAX)
    c.skip.resume = last + 1
    c.count.phase = COUNT_LASTS
    return 0 if c.count.sweep != NULL else -1


cdef void place_step(Consumer* c) noexcept nogil:
    cdef StoreState state
    cdef Bytes found
    cdef uint64_t last = 0
    cdef int rc
    if c.count.phase == COUNT_LAST:
        rc = store_last_some(c.s.store, &c.filter, &c.count.look, &last)
    else:
        rc = sweep_step(c.count.sweep)
    if rc == 1:
        return
    if rc < 0:
        c.count.failed = True
        count_stop(c)
        return
    store_state(c.s.store, &state)
    if c.count.phase == COUNT_LAST:
        c.next = last if last else max(state.first_seq, <uint64_t>1)
    else:
        c.skip.n = sweep_take(c.count.sweep, &found)
        c.skip.seqs = <uint64_t*>found.data
        c.skip.at = 0
        if c.skip.n:
            c.next = c.skip.seqs[0]
        else:
            skip_end(c)
            c.next = c.skip.resume - 1               # the last message is none of its own, and is passed
    if c.group == NULL:                         # else the group says so
        c.delivered_seq = c.next - 1
        c.floor_seq = c.next - 1
    sweep_free(c.count.sweep)
    c.count.sweep = NULL
    filter_free(&c.count.loose)
    c.count.phase = COUNT_NONE
    place_done(c)
    if c.s.active and not stream_keeps_all(c.s):
        stream_settle(c.s, 0, False)            # until now nobody knew what it needs


cdef void place_done(Consumer* c) noexcept nogil:
    cdef StoreState state
    store_state(c.s.store, &state)
    c.replay.on = c.cfg.replay_policy == REPLAY_POLICY_ORIGINAL and c.next <= state.last_seq
    c.replay.until = state.last_seq
    log_opened(c)
    if c.group != NULL:
        start_tell(c)
    count_pending(c)
