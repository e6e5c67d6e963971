# A consumer's life: its subscriptions, updates, pauses, and its end.

# ---- beginning -------------------------------------------------------------------------------------------------

cdef void timers_prepare(Consumer* c) noexcept nogil:
    cdef int i
    c.timers[TIMER_ACK].fn = ack_expired
    c.timers[TIMER_WAKE].fn = wake_fired
    c.timers[TIMER_PAUSE].fn = pause_over
    c.timers[TIMER_GONE].fn = gone_due
    c.timers[TIMER_HEARTBEAT].fn = heartbeat_due
    c.timers[TIMER_DEAD].fn = dead_due
    c.timers[TIMER_STUCK].fn = stuck_due
    c.timers[TIMER_PIN].fn = pin_over
    for i in range(TIMERS):
        c.timers[i].owner = c
    c.dead.task.fn = dead_turn
    c.dead.task.owner = c
    c.dead.cold.task = &c.dead.task
    c.deliver.fn = deliver_run
    c.deliver.owner = c
    c.upto.task.fn = ack_turn
    c.upto.task.owner = c
    c.move.fn = move_turn
    c.move.owner = c
    c.count.task.fn = count_turn
    c.count.task.owner = c
    c.cold.task = &c.deliver
    c.watcher.owner = c
    c.watcher.filter = &c.filter
    c.watcher.stored = on_stored
    c.watcher.removed = on_gone
    c.watcher.purged = on_purged
    c.watcher.truncated = on_truncated
    c.watcher.needs = on_asked
    c.watcher.resumed = on_resumed


cdef void consumer_free(Consumer* c) noexcept nogil:
    count_stop(c)
    waiting_acks_free(c)
    asked_forget(c)
    group_free(c)
    deadlines_forget(c)
    pending_free(&c.pending)
    u64map_free(&c.exhausted)
    filter_free(&c.filter)
    free(c.skip.seqs)
    free(c.ack_prefix)
    free(c.texts)
    free(c)


cdef Consumer* consumer_new(Stream* s, const ConsumerConfig* cfg, Filter* filter, const StateFile* file,
                            bint logged, Joining joining) noexcept nogil:
    cdef Consumers* k = consumers_of(s)
    cdef Consumer* c = <Consumer*>calloc(1, sizeof(Consumer)) if k != NULL else NULL
    if c == NULL:
        filter_free(filter)
        return NULL
    c.filter = filter[0]
    memset(filter, 0, sizeof(Filter))
    c.env = s.env
    c.s = s
    c.shared = k
    c.id = k.next_id
    k.next_id += 1
    timers_prepare(c)
    c.logged = logged and k.log != NULL and not cfg.flags & CONSUMER_MEM_STORAGE
    c.texts = consumer_config_take(&c.cfg, cfg)
    if (c.texts == NULL or make_ack_prefix(c) < 0 or consumer_place(c, file, joining) < 0
            or (joining != JOINS_NOT and consumer_join(c) < 0) or stream_watch(s, &c.watcher) < 0):
        consumer_free(c)
        return NULL
    list_push_front(&k.all, &c.node)
    k.n += 1
    flow_reset(c)
    if joining != JOINS_NOT:
        return c
    if not placing(c):
        place_done(c)
        return c
    count_step(c)
    if c.count.phase:
        task_post(&c.env.tasks, &c.count.task)
    return c


# ---- subscriptions ------------------------------------------------------------------------------------------------


cdef int consumer_subscribe(Consumer* c) noexcept nogil:
    cdef bint ok
    c.subs[0] = subscribe_to(c, b"$JS.API.CONSUMER.MSG.NEXT.", False, b"", HEARS_REQUESTS, pull_inbound)
    ok = c.subs[0] != NULL
    if ok and (c.cfg.ack_policy == ACK_POLICY_ALL or c.cfg.ack_policy == ACK_POLICY_EXPLICIT):
        c.subs[1] = subscribe_to(c, b"$JS.ACK.", False, b".*.*.*.*.*", HEARS_REQUESTS, ack_inbound)
        c.subs[2] = subscribe_to(c, b"$JS.ACK.", True, b".*.*.*.*.>", HEARS_REQUESTS, ack_long_inbound)
        ok = c.subs[1] != NULL and c.subs[2] != NULL
    if ok and c.cfg.flags & CONSUMER_FLOW_CONTROL:
        # The stream that a consumer delivers into confirms too: with the ack of what it stored.
        c.subs[3] = subscribe_to(c, b"$JS.FC.", False, b".*", HEARS_FLOW, flow_inbound)
        c.subs[4] = subscribe_to(c, b"$JS.FC.", True, b".*", HEARS_FLOW, flow_inbound)
        ok = c.subs[3] != NULL and c.subs[4] != NULL
    if ok and c.cfg.dead_subject.n:
        ok = dead_listen(c) == 0
    if ok and is_push(c):
        ok = watch_deliver_subject(c) == 0
    return 0 if ok else -1


cdef int watch_deliver_subject(Consumer* c) noexcept nogil:
    c.watch = c.env.out.watch(c.env.out.ctx, c.s.account, c.cfg.deliver_subject, c.cfg.deliver_group,
                              bound_changed, c)
    return 0 if c.watch != NULL else -1


cdef void consumer_unsubscribe(Consumer* c) noexcept nogil:
    cdef int i
    for i in range(6):
        if c.subs[i] != NULL:
            c.env.out.unsubscribe(c.env.out.ctx, c.subs[i])
            c.subs[i] = NULL
    if c.watch != NULL:
        c.env.out.unwatch(c.env.out.ctx, c.watch)
        c.watch = NULL


cdef int consumer_lead(Consumer* c) noexcept nogil:
    if c.group != NULL and c.group.propose == NULL:
        return 0                                # it leads by its group's word alone
    if c.role == ROLE_BEHIND:
        if c.group == NULL:
            catch_up(c)
        elif lead_begin(c) < 0:
            return -1
    c.role = ROLE_LEADS
    c.last_activity = c.env.mono
    rate_start(c)
    if consumer_subscribe(c) < 0:
        consumer_unsubscribe(c)
        c.role = ROLE_FOLLOWS
        return -1
    pause_arm(c)
    ack_timer_set(c)
    if not c.push.bound:
        gone_arm(c)
    wake_delivery(c)
    return 0


cdef int consumer_lead_group(Consumer* c, int (*propose)(void* ctx, Span entry) noexcept nogil,
                             void (*refuse)(void* ctx) noexcept nogil, void* ctx, ConsumerInfo* before) noexcept nogil:
    if c.group == NULL:
        return -1
    c.group.propose = propose
    c.group.refuse = refuse
    c.group.ctx = ctx
    c.group.before = before
    c.role = ROLE_BEHIND
    if consumer_lead(c) < 0:
        lead_forget(c)
        return -1
    if not placing(c):
        start_tell(c)
    info_when_counted(c, before)
    asked_end(c)
    return 0


cdef void consumer_rest(Consumer* c) noexcept nogil:
    cdef int i
    consumer_unsubscribe(c)
    task_cancel(&c.upto.task)
    if c.role == ROLE_LEADS:
        c.role = ROLE_FOLLOWS
    for i in range(TIMERS):
        timer_cancel(&c.env.timers, &c.timers[i])
    dead_stop(c)
    pin_end(c)
    if c.group != NULL:
        lead_forget(c)
        free(c.skip.seqs)
        memset(&c.skip, 0, sizeof(SkipList))
        c.next = c.delivered_seq + 1            # whoever leads next delivers again what was proposed in vain
        c.role = ROLE_BEHIND
    wait_cancel(&c.cold)
    task_cancel(&c.deliver)
    if c.count.phase:
        count_stop(c)
        c.role = ROLE_BEHIND


cdef void consumer_ends(Consumer* c) noexcept nogil:
    acks_finish(c)
    consumer_rest(c)


cdef void consumer_follow(Consumer* c) noexcept nogil:
    consumer_ends(c)
    pulls_moved(c)
    c.push.bound = False
    c.unanswered = False
    flow_reset(c)


cdef int consumer_join_serving(Consumer* c, Bytes* state) noexcept nogil:
    if consumer_encode_state(c, state) < 0:
        return -1
    consumer_follow(c)
    c.fresh = False
    if consumer_join(c) < 0:
        return -1
    return 0 if consumer_restore(c, span(state.data, <uint32_t>state.n), True) == 0 else -1


cdef void consumer_part(Consumer* c) noexcept nogil:
    c.group.gone = NULL
    consumer_follow(c)
    group_free(c)
    c.role = ROLE_BEHIND


# ---- pause ------------------------------------------------------------------------------------------------------------

cdef void pause_arm(Consumer* c) noexcept nogil:
    cdef int64_t rest = c.cfg.pause_until - c.env.now if c.role == ROLE_LEADS and c.cfg.pause_until > 0 else 0
    c.paused = rest > 0
    if c.paused:
        timer_set(&c.env.timers, &c.timers[TIMER_PAUSE], c.env.mono + rest)
    else:
        timer_cancel(&c.env.timers, &c.timers[TIMER_PAUSE])


cdef void pause_over(Timer* t, int64_t now) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef Event e
    pause_arm(c)
    if c.paused:
        return
    memset(&e, 0, sizeof(Event))
    e.kind = EV_PAUSE_OVER
    e.account = c.s.account
    e.text[0] = c.s.cfg.name
    e.text[1] = c.cfg.name
    c.env.out.event(c.env.out.ctx, &e)
    wake_delivery(c)


cdef void consumer_pause(Consumer* c, int64_t until) noexcept nogil:
    c.cfg.pause_until = until
    pause_arm(c)
    wake_delivery(c)


# ---- update -----------------------------------------------------------------------------------------------------------

cdef bint same_filters(const ConsumerConfig* a, const ConsumerConfig* b) noexcept nogil:
    cdef uint32_t i
    if a.n_filters != b.n_filters:
        return False
    for i in range(a.n_filters):
        if not span_eq(a.filters[i], b.filters[i]):
            return False
    return True


cdef int change_filter(Consumer* c, Filter* filter) noexcept nogil:
    # filter becomes what was there.
    cdef Filter last = c.filter
    stream_unwatch(c.s, &c.watcher)
    c.filter = filter[0]
    filter[0] = last
    if stream_watch(c.s, &c.watcher) < 0:
        return -1
    if c.role == ROLE_LEADS:
        stream_settle(c.s, c.floor_seq, True)
    return 0


cdef void change_most(Consumer* c, const ConsumerConfig* before) noexcept nogil:
    # What is to come again, and did so as often as it now may, is given up.
    cdef uint32_t i = c.pending.queue.head, after
    if c.cfg.max_deliver == before.max_deliver or c.role != ROLE_LEADS:
        return
    while i:
        after = entry_at(&c.pending, i).qnext
        requeue(c, i)
        i = after


cdef int consumer_update(Consumer* c, const ConsumerConfig* cfg, Filter* filter, ConsumerInfo* before) noexcept nogil:
    # One that delivers to another subject now delivers nothing there before `begin`.
    cdef ConsumerConfig new
    cdef ConsumerConfig last = c.cfg            # what it points to is freed at the end
    cdef uint8_t* texts = consumer_config_take(&new, cfg)
    cdef uint8_t* old = c.texts
    cdef bint filters = not same_filters(&c.cfg, cfg)
    cdef bint moved = (not span_eq(c.cfg.deliver_subject, cfg.deliver_subject)
                       or not span_eq(c.cfg.deliver_group, cfg.deliver_group))
    cdef uint64_t rate = c.cfg.rate_limit_bps
    cdef int rc = 0
    if texts == NULL:
        return -1
    if filters and change_filter(c, filter) < 0:
        free(texts)
        return -1
    deadlines_finish(c)
    new.pause_until = c.cfg.pause_until         # which only the request to pause changes
    if moved and c.watch != NULL:
        c.env.out.unwatch(c.env.out.ctx, c.watch)
        c.watch = NULL
        bound_changed(c, False)
    c.cfg = new
    c.texts = texts
    if rate != new.rate_limit_bps:
        rate_start(c)
    groups_changed(c)
    if filters:
        count_pending(c)
    info_when_counted(c, before)
    if moved and c.role == ROLE_LEADS and is_push(c):
        requeue_all(c)
        c.unanswered = True
        c.answer_ticket = UINT64_MAX
        rc = watch_deliver_subject(c)
    change_most(c, &last)
    deadlines_move(c, &last, old)
    if not c.push.bound:
        gone_arm(c)
    if dead_changed(c) < 0:
        rc = -1
    wake_delivery(c)
    return rc


cdef int consumer_take_config(Consumer* c, const ConsumerConfig* cfg) noexcept nogil:
    # What a consumer of a stream that failed comes back with; nothing else changes.
    cdef ConsumerConfig new
    cdef uint8_t* texts = consumer_config_take(&new, cfg)
    if texts == NULL:
        return -1
    deadlines_finish(c)
    new.pause_until = c.cfg.pause_until
    free(c.texts)
    c.texts = texts
    c.cfg = new
    return 0


# ---- the end ---------------------------------------------------------------------------------------------------------------

cdef void release_needed(Consumer* c) noexcept nogil:
    # Interest retention: what nobody needs now that this consumer is gone leaves the stream; with the last one, all.
    if c.s.watchers.n or c.s.consumer_missing or c.s.member != NULL:
        stream_settle(c.s, c.floor_seq, True)
    else:
        stream_purge(c.s, span(NULL, 0), 0, 0)


cdef void consumer_close(Consumer* c, bint deleted) noexcept nogil:
    cdef Consumers* k = c.shared
    consumer_rest(c)
    pulls_end(c, deleted)
    stream_unwatch(c.s, &c.watcher)
    if deleted:
        if c.s.active and c.s.cfg.retention == RETENTION_INTEREST:
            release_needed(c)
        log_deleted(c)
    list_remove(&c.node)
    k.n -= 1
    consumer_free(c)


# ---- of a stream's consumers together ------------------------------------------------------------------------------------------


cdef void consumers_free(Stream* s) noexcept nogil:
    # Without consumers; the log is closed by now.
    cdef Consumers* k = <Consumers*>s.consumers
    cdef uint32_t i
    if k == NULL:
        return
    timer_cancel(&s.env.timers, &k.flush)
    task_cancel(&k.flush_soon)
    for i in range(k.replayed.cap):
        if k.replayed.keys[i] != NULL:
            replayed_free(<Replayed*>k.replayed.vals[i])
    strmap_free(&k.replayed)
    bytes_free(&k.lazy)
    free(k)
    s.consumers = NULL
