# A stream's life: its configuration, its subscriptions, and what its store tells.

# ---- configuration -----------------------------------------------------------------------------------------

cdef int place_take(Stream* s, const StreamPlace* place) noexcept nogil:
    # A copy with its texts. 0 | -1 no memory
    cdef uint8_t* at = <uint8_t*>malloc(place.directory.n + place.domain.n + place.account_hash.n + 1)
    if at == NULL:
        return -1
    s.place_texts = at
    s.place = place[0]
    place_text(&at, &s.place.directory)
    place_text(&at, &s.place.domain)
    place_text(&at, &s.place.account_hash)
    return 0


cdef int texts_prepare(Stream* s) noexcept nogil:
    # The constant parts of PubAcks.
    cdef Bytes* b = &s.ack_prefix
    if (add_text(b, b"{\"stream\":\"") < 0 or add_json_text(b, s.cfg.name) < 0 or add_text(b, b"\"") < 0):
        return -1
    if bytes_add(&s.error_suffix, b",", 1) < 0 or bytes_add(&s.error_suffix, b.data + 1, b.n - 1) < 0:
        return -1
    if add_text(&s.error_suffix, b",\"seq\":0}") < 0:
        return -1
    if s.place.domain.n:
        if (add_text(b, b",\"domain\":\"") < 0 or add_json_text(b, s.place.domain) < 0 or add_text(b, b"\"") < 0):
            return -1
    if add_text(b, b",\"seq\":") < 0:
        return -1
    return 0 if b.n <= ACK_ROOM - ACK_TAIL else -1


cdef Stream* stream_new(Env* env, Store* store, const StreamConfig* cfg, const StreamPlace* place) noexcept nogil:
    cdef Stream* s = <Stream*>calloc(1, sizeof(Stream))
    cdef StoreState state
    if s == NULL:
        return NULL
    s.env = env
    s.account = place.account
    s.store = store
    s.dedupe.timer.fn = dedupe_expire
    s.dedupe.timer.owner = s
    s.dedupe.turn.fn = dedupe_turn
    s.dedupe.turn.owner = s
    s.dedupe.cold.task = &s.dedupe.turn
    s.settle.fn = settle_turn
    s.settle.owner = s
    s.republish.fn = republish_turn
    s.republish.owner = s
    cond_init(&s.durable)
    s.texts = stream_config_take(&s.cfg, cfg)
    if s.texts == NULL or place_take(s, place) < 0 or texts_prepare(s) < 0:
        stream_free(s)
        return NULL
    store_state(store, &state)
    s.synced = store_is_synced(store) and cfg.persist_mode != PERSIST_MODE_ASYNC
    s.shown = state.last_seq
    s.entered = state.last_seq
    store_listen(store, on_removed, on_durable, s)
    store_listen_damage(store, on_damaged)
    return s


cdef int stream_ends_at(Stream* s, uint64_t last, int64_t ts) noexcept nogil:
    # Before it is activated: what its store was filled with since is all there, and what comes is behind that sequence.
    cdef StoreState state
    cdef int rc = ST_OK
    store_state(s.store, &state)
    if state.last_seq < last:
        rc = store_skip_at(s.store, last, ts)
    s.entered = max(state.last_seq, last)
    s.shown = s.entered
    return rc


cdef void on_damaged(void* ctx, const StoreDamage* d) noexcept nogil:
    # A message that cannot be read, met for the first time: a line for the server's log.
    cdef Stream* s = <Stream*>ctx
    cdef char text[700]
    cdef Event e
    snprintf(text, sizeof(text), b"stream %.*s: message %llu is damaged and not served: %llu bytes at %llu of block %llu",
             <int>s.cfg.name.n, <const char*>s.cfg.name.p, <unsigned long long>d.first, <unsigned long long>d.size,
             <unsigned long long>d.at, <unsigned long long>d.block)
    memset(&e, 0, sizeof(Event))
    e.kind = EV_LOG
    e.account = s.account
    e.text[0] = span_c(text)
    s.env.out.event(s.env.out.ctx, &e)


cdef void member_free(Stream* s) noexcept nogil:
    cdef Member* m = s.member
    if m == NULL:
        return
    purge_free(&m.purge)
    held_drop(&m.held)
    bytes_free(&m.held.id)
    bytes_free(&m.proposals)
    fifo_free(&m.unconfirmed)
    bytes_free(&m.pattern)
    bytes_free(&m.kept)
    bytes_free(&m.strays)
    bytes_free(&m.header)
    free(m)
    s.member = NULL


cdef void stream_free(Stream* s) noexcept nogil:
    cond_free(&s.durable)
    dedupe_free(s)
    fifo_free(&s.dedupe.waiting)
    pattern_free(s)
    if s.dedupe.rolling != NULL:
        purge_free(&s.dedupe.rolling.purge)
    free(s.dedupe.rolling)
    free(s.dedupe.first)
    overlay_free(s.staging)
    member_free(s)
    batches_free(s)
    fifo_free(&s.acks)
    fifo_free(&s.answers)
    fifo_free(&s.republished)
    bytes_free(&s.ack_prefix)
    bytes_free(&s.error_suffix)
    bytes_free(&s.last_id)
    watch_free(&s.watchers)
    free(s.subs)
    stream_config_drop(&s.cfg, s.texts)
    free(s.place_texts)
    free(s)


# ---- the start -------------------------------------------------------------------------------------------------------

cdef void roll_up_again(Stream* s, const Record* r) noexcept nogil:
    cdef int rollup = rollup_of(header_get(r.header, b"Nats-Rollup"))
    cdef uint64_t seq = r.seq
    cdef StoreState state
    cdef Bytes subject
    store_state(s.store, &state)
    if rollup == ROLLUP_NONE or state.first_seq >= seq:
        return
    memset(&subject, 0, sizeof(Bytes))  # the record may move while others are removed
    if add_span(&subject, r.subject) == 0:
        roll_up(s, span(subject.data, <uint32_t>subject.n), rollup, seq, 0)
    bytes_free(&subject)


cdef bint rollups_finish(Stream* s) noexcept nogil:
    # A crash may have kept a rollup without all that it removes, for which nobody has an ack. It is the last message, though not
    # always the last sequence; or that before a group which the crash tore, or of that group. What is left to remove is removed
    # now. Whether there was any.
    cdef uint64_t was = store_ticket(s.store), torn = store_torn_from(s.store), at
    cdef Record r
    at = store_last_match(s.store, NULL)
    at = min(at, torn) if torn else at
    while at:
        if store_load(s.store, at, &r) == ST_OK:
            roll_up_again(s, &r)
        at = store_next_seq(s.store, NULL, at + 1)
    return store_ticket(s.store) != was


cdef bint last_resume(Stream* s) noexcept nogil:
    # Goes on behind the last message that is stored: its id; the window of ids is read when the first one asks for it.
    # Whether rollups were finished.
    cdef StoreState state
    store_state(s.store, &state)
    s.dedupe.unread = state.last_seq
    last_id_resume(s)
    return s.cfg.flags & STREAM_ALLOW_ROLLUP_HDRS and not s.cfg.flags & STREAM_DENY_PURGE and rollups_finish(s)


cdef int member_answers(Stream* s) noexcept nogil:
    if not s.cfg.flags & STREAM_ALLOW_DIRECT or s.direct[0] != NULL:
        return 0
    return subscribe_direct(s, s.cfg.name, s.direct)


cdef int stream_listen(Stream* s) noexcept nogil:
    # 0 | -1 no memory, and nothing is subscribed
    s.subs = <void**>calloc(<size_t>s.cfg.n_subjects + 1, sizeof(void*))
    if s.subs == NULL:
        return -1
    if not subscribe_all(s, s.cfg.subjects, s.cfg.n_subjects, s.subs):
        free(s.subs)
        s.subs = NULL
        return -1
    s.n_subs = s.cfg.n_subjects
    if ((s.member == NULL and subscribe_messages(s) < 0)
            or member_answers(s) < 0):
        stream_hear_nothing(s)
        return -1
    s.active = True
    return 0


cdef void stream_hear_nothing(Stream* s) noexcept nogil:
    if s.subs != NULL:
        unsubscribe_all(s.env, s.subs, s.n_subs)
    unsubscribe_all(s.env, s.direct, 2)
    unsubscribe_all(s.env, s.origin_direct, 2)
    unsubscribe_all(s.env, s.asked, 2)
    free(s.subs)
    s.subs = NULL
    s.n_subs = 0
    s.active = False


cdef int stream_activate(Stream* s) noexcept nogil:
    cdef bint changed = last_resume(s)
    stream_settle(s, 0, False)
    stream_count_bytes(s)
    if timetable_start(s) < 0 or stream_listen(s) < 0:
        return -1
    return changed


# ---- a member of a group ---------------------------------------------------------------------------------------------

cdef int member_open(Stream* s, uint64_t refused, void (*proposed)(void* ctx) noexcept nogil, void* ctx) noexcept nogil:
    cdef bint changed = last_resume(s)
    s.member = <Member*>calloc(1, sizeof(Member))
    if s.member == NULL or timetable_start(s) < 0:
        return -1
    s.member.refused = refused
    s.member.recovering = True
    s.member.id_unknown = is_last_gone(s)
    s.member.check.fn = check_due
    s.member.check.owner = s
    s.member.flush.fn = flush_due
    s.member.flush.owner = s
    s.member.proposed = proposed
    s.member.ctx = ctx
    stream_count_bytes(s)
    return changed


cdef enum:
    CHECK_PERIOD = 120                  # s between two looks for what no consumer needs, as of nats-server
    CHECK_MORE = 30                     # and up to so many more


cdef void check_due(Timer* t, int64_t now) noexcept nogil:
    # A member may have led, or opened its consumers, when a consumer's group was not as far here as elsewhere.
    cdef Stream* s = <Stream*>t.owner
    stream_settle(s, 0, False)
    if not s.consumer_missing:
        strays_settle(s, True)
    if s.member.leads:
        check_set(s)


cdef void check_set(Stream* s) noexcept nogil:
    if s.cfg.retention != RETENTION_LIMITS:
        timer_set(&s.env.timers, &s.member.check,
                  s.env.mono + (CHECK_PERIOD + <int64_t>(env_secret(s.env) % CHECK_MORE)) * SECOND)


cdef void member_rests(Stream* s) noexcept nogil:
    # What was applied goes to disk, and nothing is due any more.
    if s.member != NULL:
        timer_cancel(&s.env.timers, &s.member.check)
        timer_cancel(&s.env.timers, &s.member.flush)
        if s.store != NULL:
            store_hurry(s.store)


cdef int member_lead(Stream* s) noexcept nogil:
    if stream_stage(s) < 0 or stream_listen(s) < 0:
        member_follow(s)
        return -1
    s.member.leads = True
    s.member.abandoned = s.member.held.count
    timetable_again(s, False)       # what is due was the former leader's to do
    stream_settle(s, 0, False)
    check_set(s)
    return 0


cdef void stream_served(Stream* s) noexcept nogil:
    # All its consumers are open: what came before is looked through.
    s.consumer_missing = False
    stream_settle(s, 0, False)
    if s.member != NULL:
        strays_settle(s, False)
        check_set(s)


cdef void member_leave(Stream* s) noexcept nogil:
    stream_hear_nothing(s)
    intakes_end(s)


cdef void member_follow(Stream* s) noexcept nogil:
    stream_hear_nothing(s)
    intakes_end(s)
    s.member.leads = False
    s.member.early = 0
    s.member.abandoned = 0
    bytes_free(&s.member.proposals)
    unconfirmed_drop(s.member)
    overlay_free(s.staging)
    s.staging = NULL
    batches_free(s)
    fifo_free(&s.dedupe.waiting)
    free(s.dedupe.first)
    s.dedupe.first = NULL
    pattern_free(s)


cdef void stream_rest(Stream* s) noexcept nogil:
    dedupe_finish(s)
    stream_hear_nothing(s)
    batches_free(s)
    timetable_stop(s)
    dedupe_free(s)                  # last_resume has it read again


cdef void member_close(Stream* s) noexcept nogil:
    member_follow(s)
    stream_rest(s)
    member_rests(s)
    member_free(s)


cdef void store_config(const StreamConfig* cfg, const StreamPlace* place, StoreConfig* to) noexcept nogil:
    memset(to, 0, sizeof(StoreConfig))
    to.storage = STORE_MEMORY if cfg.storage == STORAGE_MEMORY else STORE_FILE
    to.name = cfg.name
    to.directory = place.directory
    to.max_msgs = cfg.max_msgs
    to.max_bytes = cfg.max_bytes
    to.max_age = 0 if cfg.flags & STREAM_ALLOW_MSG_TTL else cfg.max_age        # the stream sees to it
    to.max_msgs_per = cfg.max_msgs_per_subject
    to.trim = cfg.discard != DISCARD_NEW
    to.first_seq = cfg.first_seq
    to.retention = cfg.retention
    to.compress = cfg.compression == COMPRESSION_S2


cdef int stream_update(Stream* s, const StreamConfig* cfg) noexcept nogil:
    cdef StreamConfig new, old = s.cfg
    cdef StoreConfig limits
    cdef uint8_t* texts = stream_config_take(&new, cfg)
    cdef int rc
    if texts == NULL:
        return -1
    dedupe_finish(s)            # what waits was sent to the old one
    if s.active and not subjects_replace(s, &new):
        stream_config_drop(&new, texts)
        return -1
    stream_config_drop(&s.cfg, s.texts)
    s.texts = texts
    s.cfg = new
    batches_configured(s)
    if old.duplicate_window != new.duplicate_window:
        dedupe_window_changed(s)
    if not new.flags & STREAM_ALLOW_DIRECT:
        unsubscribe_all(s.env, s.direct, 2)
    elif (s.active and new.flags & STREAM_ALLOW_DIRECT and not old.flags & STREAM_ALLOW_DIRECT
          and subscribe_direct(s, s.cfg.name, s.direct) < 0):
        s.cfg.flags &= ~<uint32_t>STREAM_ALLOW_DIRECT
        return -1
    if s.active and timetable_start(s) < 0:
        s.cfg.flags ^= (s.cfg.flags ^ old.flags) & (STREAM_ALLOW_MSG_TTL | STREAM_ALLOW_MSG_SCHEDULES)
        return -1
    if new.mirror_direct.n == 0:
        unsubscribe_all(s.env, s.origin_direct, 2)
    timetable_updated(s, &old)
    store_config(&new, &s.place, &limits)
    rc = store_update(s.store, &limits)
    if old.retention != new.retention:
        stream_settle(s, 0, False)
    stream_count_bytes(s)
    return rc


cdef int stream_trim(Stream* s) noexcept nogil:
    cdef int rc = store_trim(s.store)
    stream_count_bytes(s)
    return rc


cdef int stream_take_config(Stream* s, const StreamConfig* cfg) noexcept nogil:
    # What a stream that failed comes back with; nothing else changes.
    cdef StreamConfig new
    cdef uint8_t* texts = stream_config_take(&new, cfg)
    if texts == NULL:
        return -1
    stream_config_drop(&s.cfg, s.texts)
    s.texts = texts
    s.cfg = new
    return 0


cdef Store* stream_give_store(Stream* s) noexcept nogil:
    cdef Store* store = s.store
    intakes_free(s)
    direct_stop(s)
    batches_free(s)
    timetable_stop(s)
    member_rests(s)
    timer_cancel(&s.env.timers, &s.dedupe.timer)
    wait_cancel(&s.dedupe.cold)
    task_cancel(&s.dedupe.turn)
    task_cancel(&s.settle)
    task_cancel(&s.republish)
    store_listen(store, NULL, NULL, NULL)
    store_listen_damage(store, NULL)
    store_stop(store)
    s.store = NULL
    return store


cdef void stream_halt(Stream* s, int error) noexcept nogil:
    s.halted = error
    store_halt(s.store, error)


cdef void stream_resume(Stream* s) noexcept nogil:
    cdef ListWalk all = list_walk(&s.watchers.attached)
    cdef Watcher* w = watcher_step(&all)
    if s.halted == 0 or s.failed:
        return
    s.halted = 0
    store_halt(s.store, 0)
    while w != NULL:
        w.resumed(w)
        w = watcher_step(&all)
    stream_settle(s, 0, False)


cdef void stream_answer_rest(Stream* s) noexcept nogil:
    republish_upto(s, UINT64_MAX, UINT64_MAX)
    release_acks(s, UINT64_MAX, 0)
    release_answers(s, UINT64_MAX, 0)


cdef void stream_stop(Stream* s) noexcept nogil:
    dedupe_finish(s)
    member_ends(s)
    stream_hear_nothing(s)
    intakes_free(s)
    direct_stop(s)
    batches_free(s)
    timetable_stop(s)
    member_rests(s)
    timer_cancel(&s.env.timers, &s.dedupe.timer)
    wait_cancel(&s.dedupe.cold)
    task_cancel(&s.dedupe.turn)
    task_cancel(&s.settle)
    task_cancel(&s.republish)
    if s.store != NULL:
        store_listen(s.store, NULL, NULL, NULL)
        store_listen_damage(s.store, NULL)
    add_used(s.place.account_usage, -s.counted)
    add_used(s.place.server_usage, -s.counted)
    s.counted = 0
    count_deleting(s, -s.deleting)
    s.env.system.broadcast(s.env.system.ctx, &s.durable)


# ---- what the store tells --------------------------------------------------------------------------------------------

cdef void on_removed(void* ctx, uint64_t seq, Span subject, int reason) noexcept nogil:
    cdef Stream* s = <Stream*>ctx
    cdef Telling t
    if seq > s.entered:
        s.newest_gone = True
    if s.watchers.n and seq and seq <= s.shown and not s.purging:
        t.seq = seq
        t.reason = reason
        watch_match(&s.watchers, subject, tell_removed, &t)
    if not list_empty(&s.jobs):
        direct_removed(s, seq, subject)
    if reason == RM_AGE:
        stream_count_bytes(s)


# ---- batches ---------------------------------------------------------------------------------------------------------

cdef void batches_free(Stream* s) noexcept nogil:
    # A publisher of more messages of a batch hears that the batch is unknown.
    if s.batches == NULL:
        return
    atomic_drop_all(s)
    fast_drop_all(s)
    timer_cancel(&s.env.timers, &s.batches.hurry)
    task_cancel(&s.batches.settle)
    if s.store != NULL:
        store_hurry(s.store)
    strmap_free(&s.batches.atomic.by_id)
    strmap_free(&s.batches.fast.by_id)
    free(s.batches)
    s.batches = NULL


cdef void batches_configured(Stream* s) noexcept nogil:
    # What the stream takes no more is dropped.
    if s.batches != NULL and not s.cfg.flags & STREAM_ALLOW_ATOMIC:
        atomic_drop_all(s)
    if s.batches != NULL and not s.cfg.flags & STREAM_ALLOW_BATCHED:
        fast_drop_all(s)
