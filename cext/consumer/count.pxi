# How many messages are pending, and where a consumer starts that begins with last messages: both found in pieces, between which
# others have their turns. Until the end nothing is delivered; what comes and goes meanwhile is added and taken away, so the
# number is that of the moment at which it is complete. A start by last messages of subjects is as of the first moment.

cdef enum:
    COUNT_SKIPPED = 4096                # last messages that a piece looks for


cdef bint is_counted(const Consumer* c, uint64_t seq) noexcept nogil:
    # Whether num_pending has this message, which is not delivered.
    if placing(c):
        return False
    if c.counting == COUNT_NONE or seq >= c.count_end:
        return True
    if c.counting == COUNT_SKIP:
        return c.count_at < c.n_skip and seq < c.skip[c.count_at]
    return seq < c.count_at


cdef void count_pending(Consumer* c) noexcept nogil:
    # Counts anew, now or in turns.
    if placing(c):
        return
    c.num_pending = 0
    c.count_end = c.s.shown + 1
    c.count_at = c.skip_at
    c.counting = COUNT_SKIP
    if c.skip == NULL:
        count_rest(c)
    count_step(c)
    if c.counting:
        task_post(&c.env.tasks, &c.count)


cdef void count_rest(Consumer* c) noexcept nogil:
    cdef uint64_t n
    c.counting = COUNT_REST
    c.count_at = c.next if c.skip == NULL else c.resume
    if c.count_end == c.s.shown + 1 and store_pending_soon(c.s.store, filter_of(c), c.count_at, &n):
        c.num_pending += <int64_t>(n - stream_hidden(c.s, filter_of(c), c.count_at))
        count_done(c)


cdef void count_done(Consumer* c) noexcept nogil:
    c.counting = COUNT_NONE
    if c.when_counted != NULL:
        info_fill(c, c.when_counted)
        c.when_counted = NULL
    wake_delivery(c)


cdef void count_stop(Consumer* c) noexcept nogil:
    task_cancel(&c.env.tasks, &c.count)
    sweep_free(c.sweep)
    c.sweep = NULL
    filter_free(&c.loose)
    c.counting = COUNT_NONE
    c.when_counted = NULL


cdef void count_step(Consumer* c) noexcept nogil:
    cdef uint64_t n = 0
    cdef uint32_t i
    if placing(c):
        place_step(c)
    elif c.counting == COUNT_SKIP:
        for i in range(COUNT_SKIPPED):
            if c.count_at >= c.n_skip or c.skip[c.count_at] >= c.count_end:
                count_rest(c)
                return
            c.num_pending += still_stored(c, c.skip[c.count_at])
            c.count_at += 1
    elif c.counting == COUNT_REST:
        if store_count_some(c.s.store, filter_of(c), &c.count_at, c.count_end, &n) != 1:
            c.num_pending += <int64_t>n
            count_done(c)
        else:
            c.num_pending += <int64_t>n


cdef bint consumer_step(Consumer* c) noexcept nogil:
    if c.counting:
        count_step(c)
    return c.counting != COUNT_NONE


cdef void count_turn(Task* t) noexcept nogil:
    if consumer_step(<Consumer*>t.owner):
        task_post(&(<Consumer*>t.owner).env.tasks, t)


cdef void consumer_info(Consumer* c, ConsumerInfo* out) noexcept nogil:
    if c.behind:
        count_pending(c)
    while c.counting:
        count_step(c)
    info_fill(c, out)


cdef void info_when_counted(Consumer* c, ConsumerInfo* before) noexcept nogil:
    if c.counting:
        c.when_counted = before
    else:
        consumer_info(c, before)


# ---- where it starts -------------------------------------------------------------------------------------------------

cdef int place_begin(Consumer* c, uint64_t last) noexcept nogil:
    # By the last messages of a stream that ends there. 0 | -1 no memory
    c.next = last + 1
    if c.cfg.deliver_policy == DELIVER_LAST:
        memset(&c.look, 0, sizeof(LastLook))
        c.counting = COUNT_LAST
        return 0
    # Here alone a last token `x*` stands for what begins with x: clients list a bucket's keys so.
    if filter_copy(&c.loose, &c.filter) != ST_OK:
        return -1
    filter_loosen(&c.loose)
    c.sweep = sweep_lasts(c.s.store, &c.loose, last, UINT64_MAX)
    c.resume = last + 1
    c.counting = COUNT_LASTS
    return 0 if c.sweep != NULL else -1


cdef void place_step(Consumer* c) noexcept nogil:
    cdef StoreState state
    cdef Bytes found
    cdef uint64_t last = 0
    cdef int rc
    if c.counting == COUNT_LAST:
        rc = store_last_some(c.s.store, &c.filter, &c.look, &last)
    else:
        rc = sweep_step(c.sweep)
    if rc == 1:
        return
    if rc < 0:
        c.unplaced = True
        count_stop(c)
        return
    store_state(c.s.store, &state)
    if c.counting == COUNT_LAST:
        c.next = last if last else max(state.first_seq, <uint64_t>1)
    else:
        c.n_skip = sweep_take(c.sweep, &found)
        c.skip = <uint64_t*>found.data
        c.skip_at = 0
        if c.n_skip:
            c.next = c.skip[0]
        else:
            skip_end(c)
            c.next = c.resume - 1               # the last message is none of its own, and is passed
    c.delivered_seq = c.next - 1
    c.floor_seq = c.next - 1
    sweep_free(c.sweep)
    c.sweep = NULL
    filter_free(&c.loose)
    c.counting = COUNT_NONE
    place_done(c)
    if c.s.active and not stream_keeps_all(c.s):
        stream_settle(c.s, 0, False)            # until now nobody knew what it needs


cdef void place_done(Consumer* c) noexcept nogil:
    cdef StoreState state
    store_state(c.s.store, &state)
    c.replaying = c.cfg.replay_original and c.next <= state.last_seq
    c.replay_until = state.last_seq
    log_opened(c)
    count_pending(c)
