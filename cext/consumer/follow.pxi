# Following: what the log of a leader took is applied to the consumers of the same names here, and goes to their own log.
# Applying it twice changes nothing (log.pxi). What the stream does meanwhile changes no consumer that follows: the leader's
# records say what came of it, and whoever takes the lead looks at the stream anew (catch_up).

cdef void led_forget(Consumer* c) noexcept nogil:
    if c.leader_id:
        u64map_del(&c.shared.led, c.leader_id)
    c.leader_id = 0


cdef Consumer* consumer_named(Consumers* k, Span name) noexcept nogil:
    cdef ListWalk all = list_walk(&k.all)
    cdef Consumer* c = consumers_step(&all)
    while c != NULL and not span_eq(c.cfg.name, name):
        c = consumers_step(&all)
    return c


cdef int follow_name(Consumers* k, Span* s, uint64_t id) noexcept nogil:
    # From now on this number is that consumer, if it is here.
    cdef uint64_t resume, other
    cdef Span name
    cdef Consumer* c
    cdef int rc = 0
    if not record_name(s, &resume, &name):
        return -2
    if u64map_get(&k.led, id, &other):
        led_forget(<Consumer*>other)
    c = consumer_named(k, name)
    if c == NULL or c.role == ROLE_LEADS:
        return 0
    led_forget(c)
    if u64map_put(&k.led, id, <uint64_t>c) < 0:
        return -1
    c.leader_id = <uint32_t>id
    c.role = ROLE_BEHIND
    if c.cfg.deliver_policy == DELIVER_POLICY_LAST_PER_SUBJECT and resume != c.skip.resume:
        count_stop(c)
        free(c.skip.seqs)
        c.skip.seqs = NULL
        c.skip.n = 0
        c.skip.at = 0
        c.skip.resume = resume
        if resume > c.delivered_seq + 1:
            rc = make_skip_list(c, resume - 1, c.delivered_seq)
    return rc


cdef int follow_body(Consumer* c, uint8_t kind, Span body) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t n
    cdef uint32_t i
    cdef int rc
    c.role = ROLE_BEHIND
    if kind == LOG_STATE:
        get_uv(&body, &n)
        rc = replay_state(c, body)
        if rc == 0:
            log_opened(c)
        return rc
    if kind == LOG_KNOWN or kind == LOG_DELETED:    # files are each server's own; who deletes, deletes here too
        return 0
    memset(v, 0, sizeof(v))
    for i in range(record_numbers(kind)):
        get_uv(&body, &v[i])
    replay_apply(c, kind, v)
    log_numbers(c, kind, v, record_numbers(kind))
    return 0


cdef int consumers_apply(Stream* s, Span entry) noexcept nogil:
    cdef Consumers* k = consumers_of(s)
    cdef uint64_t id, at
    cdef uint8_t kind
    cdef Span body
    cdef int rc = 0 if k != NULL else -1
    while entry.n and rc == 0:
        if not record_head(&entry, &kind, &id):
            return -2
        if kind == LOG_NAME:
            rc = follow_name(k, &entry, id)
        elif not record_body(&entry, kind, &body):
            rc = -2
        elif u64map_get(&k.led, id, &at):
            rc = follow_body(<Consumer*>at, kind, body)
    return rc
