# The log of a stream's consumers: small records of deliveries and acks, gathered and given to the store together. A group of
# records is one entry. Replaying it over an older state leads to the newest one; over a newer state it changes nothing but
# what is newer still, because deliveries are numbered and acks only take away. A truncation takes any state back, and the
# records behind it, which all follow, lead on from there. replay.pxi reads and applies them.
#
#   N id resume n name      the records of this id concern this consumer
#   D id sseq dseq deliveries sent          delivered (sent: wall clock ns)
#   A id sseq               acked, or gone
#   U id sseq dseq          all acked up to here, and the floor's delivery
#   E id sseq               given up
#   P id sseq               all up to here counts as delivered
#   T id sseq sent          its deadline counts from then
#   B id sseq dseq          the stream was truncated to there, when dseq was the next delivery
#   R id sseq resume ahead  it starts anew at sseq, ahead of the stream or not; resume: as in its name
#   S id n state            the whole state
#   K id hash time          an o.dat with these says nothing newer than this log
#   X id                    deleted: what was said before concerns nobody

cdef enum:
    LOG_NAME = 78            # N
    LOG_DELIVERED = 68       # D
    LOG_ACKED = 65           # A
    LOG_ACKED_UPTO = 85      # U
    LOG_EXHAUSTED = 69       # E
    LOG_PASSED = 80          # P
    LOG_DEADLINE = 84        # T
    LOG_TRUNCATED = 66       # B
    LOG_RESET = 82           # R
    LOG_STATE = 83           # S
    LOG_KNOWN = 75           # K
    LOG_DELETED = 88         # X
    LOG_HOLE = 72            # not in a log: in front of the first record behind an entry that cannot be read

cdef enum:
    LOG_FLUSH = 100 * 1000000           # records wait this long at most, ns
    LOG_GATHER = 1 << 16                # or until they are this many bytes
    LOG_GROWN = 4 << 20                 # a log larger than this, and four times its start, is started anew


cdef const char* LOG_NOBODY = b"X\x01"          # what a new log begins with: it concerns nobody


# ---- writing -----------------------------------------------------------------------------------------------------

cdef void consumers_flush(Stream* s) noexcept nogil:
    cdef Consumers* k = <Consumers*>s.consumers
    if k == NULL or k.log == NULL or k.lazy.n == 0:
        return
    if k.gap:
        log_restart(k)
        return
    if k.follows or stream_shows_more(s):       # a record may name a message that only the stream's group has on disk
        log_follows(k.log)
        k.follows = False
    if log_append(k.log, span(k.lazy.data, <uint32_t>k.lazy.n)) == ST_OK:
        k.lazy.n = 0
    elif k.lazy.n > LOG_GATHER * 16:
        k.lazy.n = 0                            # the store takes nothing: later the whole state is written
        k.gap = True
    if log_size(k.log) > LOG_GROWN and log_size(k.log) > 4 * k.log_base:
        log_restart(k)


cdef void flush_due(Timer* t, int64_t now) noexcept nogil:
    consumers_flush((<Consumers*>t.owner).s)


cdef void flush_task(Task* t) noexcept nogil:
    consumers_flush((<Consumers*>t.owner).s)


cdef void log_posted(Consumer* c) noexcept nogil:
    # Where acks remove messages the records go with the removals, otherwise some time later.
    cdef Consumers* k = c.shared
    if k.lazy.n > LOG_GATHER or not stream_keeps_all(c.s):
        task_post(&c.env.tasks, &k.flush_soon)
    elif k.flush.pos == 0:
        timer_set(&c.env.timers, &k.flush, c.env.mono + LOG_FLUSH)


cdef void log_numbers(Consumer* c, uint8_t kind, const uint64_t* numbers, uint32_t n) noexcept nogil:
    # Without memory the record is lost: at worst a message is delivered once more after a restart.
    cdef Bytes* b = &c.shared.lazy
    cdef uint8_t* p
    cdef uint32_t i
    cdef uint64_t v = c.id
    if not c.logged or bytes_reserve(b, 1 + (n + 1) * 10) < 0:
        return
    p = b.data + b.n
    p[0] = kind
    p += 1
    for i in range(n + 1):
        p += put_uv(p, v)
        v = numbers[i] if i < n else 0
    b.n = <size_t>(p - b.data)
    log_posted(c)


cdef void log_delivered(Consumer* c, uint64_t sseq, uint64_t dseq, uint32_t deliveries, int64_t sent) noexcept nogil:
    cdef uint64_t numbers[4]
    numbers[0] = sseq
    numbers[1] = dseq
    numbers[2] = deliveries
    numbers[3] = <uint64_t>sent
    log_numbers(c, LOG_DELIVERED, numbers, 4)


cdef void log_acked(Consumer* c, uint64_t sseq) noexcept nogil:
    log_numbers(c, LOG_ACKED, &sseq, 1)


cdef void log_acked_upto(Consumer* c, uint64_t sseq, uint64_t dseq) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = sseq
    numbers[1] = dseq
    log_numbers(c, LOG_ACKED_UPTO, numbers, 2)


cdef void log_passed(Consumer* c) noexcept nogil:
    log_numbers(c, LOG_PASSED, &c.delivered_seq, 1)


cdef void log_truncated(Consumer* c, uint64_t sseq) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = sseq
    numbers[1] = c.dseq
    log_numbers(c, LOG_TRUNCATED, numbers, 2)


cdef void log_reset(Consumer* c) noexcept nogil:
    cdef uint64_t numbers[3]
    numbers[0] = c.delivered_seq + 1
    numbers[1] = c.skip.resume
    numbers[2] = c.reset_to != 0
    log_numbers(c, LOG_RESET, numbers, 3)


cdef void log_exhausted(Consumer* c, uint64_t sseq) noexcept nogil:
    log_numbers(c, LOG_EXHAUSTED, &sseq, 1)


cdef void log_sent(Consumer* c, uint64_t sseq, int64_t sent) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = sseq
    numbers[1] = <uint64_t>sent
    log_numbers(c, LOG_DEADLINE, numbers, 2)


cdef void log_deadline(Consumer* c, uint64_t sseq, int64_t deadline) noexcept nogil:
    # deadline: wall clock.
    cdef uint32_t i = pending_find(&c.pending, sseq)
    if i and c.group == NULL:
        log_sent(c, sseq, deadline - wait_of(c, entry_at(&c.pending, i).deliveries))


cdef void log_known(Consumer* c, uint64_t hash, int64_t time) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = hash
    numbers[1] = <uint64_t>time
    log_numbers(c, LOG_KNOWN, numbers, 2)


cdef void log_deleted(Consumer* c) noexcept nogil:
    log_numbers(c, LOG_DELETED, NULL, 0)


cdef int add_kind(Bytes* b, uint8_t kind) noexcept nogil:
    return bytes_add(b, &kind, 1)


cdef int add_named(Bytes* b, Consumer* c) noexcept nogil:
    if (add_kind(b, LOG_NAME) < 0 or add_uv(b, c.id) < 0 or add_uv(b, c.skip.resume) < 0
            or add_uv(b, c.cfg.name.n) < 0):
        return -1
    return add_span(b, c.cfg.name)


cdef int add_state(Bytes* b, Consumer* c) noexcept nogil:
    cdef Bytes state
    cdef int rc = -1
    memset(&state, 0, sizeof(Bytes))
    if (consumer_encode_state(c, &state) == 0 and add_kind(b, LOG_STATE) == 0 and add_uv(b, c.id) == 0
            and add_uv(b, state.n) == 0):
        rc = bytes_add(b, state.data, state.n)
    bytes_free(&state)
    return rc


cdef int add_whole(Bytes* b, Consumer* c) noexcept nogil:
    # All that must be said of a consumer.
    if add_named(b, c) < 0 or add_state(b, c) < 0:
        return -1
    if c.reset_to and c.dseq <= 1 and (add_kind(b, LOG_RESET) < 0 or add_uv(b, c.id) < 0 or add_uv(b, c.reset_to) < 0
                                       or add_uv(b, c.skip.resume) < 0 or add_uv(b, 1) < 0):
        return -1
    if add_kind(b, LOG_KNOWN) < 0 or add_uv(b, c.id) < 0:
        return -1
    return -1 if add_uv(b, c.known_hash) < 0 or add_uv(b, <uint64_t>c.known_time) < 0 else 0


cdef void log_opened(Consumer* c) noexcept nogil:
    cdef Bytes* b = &c.shared.lazy
    cdef size_t before = b.n
    if not c.logged:
        return
    if add_whole(b, c) < 0:
        b.n = before
    log_posted(c)


cdef inline Consumer* consumers_step(ListWalk* all) noexcept nogil:
    return <Consumer*>list_owner(list_step(all), &(<Consumer*>NULL).node)


cdef void log_restart(Consumers* k) noexcept nogil:
    # Everything anew.
    cdef Bytes b
    cdef ListWalk all = list_walk(&k.all)
    cdef Consumer* c = consumers_step(&all)
    cdef bint ok = True
    memset(&b, 0, sizeof(Bytes))
    while c != NULL and ok:
        if c.logged:
            ok = add_whole(&b, c) == 0
        c = consumers_step(&all)
    if b.n == 0:
        ok = add_text(&b, LOG_NOBODY) == 0
    if ok and log_rewrite(k.log, span(b.data, <uint32_t>b.n)) == ST_OK:
        k.lazy.n = 0                            # the states hold it
        k.gap = False
        k.log_base = b.n
    bytes_free(&b)


cdef uint64_t change_ticket(Consumer* c) noexcept nogil:
    # What a double ack waits for: the records so far, and the removal of messages.
    if c.logged:
        consumers_flush(c.s)
    elif stream_keeps_all(c.s):
        return 0
    return store_ticket(c.s.store)


# ---- the consumers of a stream ---------------------------------------------------------------------------------------

cdef Consumers* consumers_of(Stream* s) noexcept nogil:
    cdef Consumers* k = <Consumers*>s.consumers
    if k != NULL:
        return k
    k = <Consumers*>calloc(1, sizeof(Consumers))
    if k == NULL:
        return NULL
    k.s = s
    k.next_id = 1
    k.flush.fn = flush_due
    k.flush.owner = k
    k.flush_soon.fn = flush_task
    k.flush_soon.owner = k
    s.consumers = k
    return k
