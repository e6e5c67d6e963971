# Where a consumer stands: where it starts, what its file and the log say, or where it is reset to.

cdef int make_skip_list(Consumer* c, uint64_t upto, uint64_t after) noexcept nogil:
    # As place_begin finds it, of a consumer that is restored: the newest message of each subject up to a sequence, without
    # those up to `after`. 0 | -1 no memory
    cdef int64_t n
    cdef uint64_t* seqs = NULL
    cdef Filter loose
    if filter_copy(&loose, &c.filter) != ST_OK:
        return -1
    filter_loosen(&loose)
    n = store_last_per_subject(c.s.store, &loose, upto, &seqs)
    filter_free(&loose)
    if n < 0:
        return -1 if n == ST_NO_MEMORY else 0
    c.skip.seqs = seqs
    c.skip.n = <uint64_t>n
    c.skip.at = 0
    c.skip.resume = upto + 1
    while c.skip.at < c.skip.n and c.skip.seqs[c.skip.at] <= after:
        c.skip.at += 1
    if c.skip.at < c.skip.n:
        c.next = c.skip.seqs[c.skip.at]
    else:
        skip_end(c)
    return 0


cdef int start_anew(Consumer* c) noexcept nogil:
    cdef StoreState state
    cdef int rc = 0
    cdef int policy = c.cfg.deliver_policy
    store_state(c.s.store, &state)
    c.next = max(state.first_seq, <uint64_t>1)
    if policy == DELIVER_POLICY_LAST and state.msgs:
        if c.filter.all:
            c.next = state.last_seq
        else:
            rc = place_begin(c, state.last_seq)
    elif policy == DELIVER_POLICY_NEW:
        c.next = state.last_seq + 1
    elif policy == DELIVER_POLICY_BY_START_SEQUENCE:
        c.next = max(c.next, c.cfg.opt_start_seq)
    elif policy == DELIVER_POLICY_BY_START_TIME:
        c.next = max(c.next, store_seq_at(c.s.store, c.cfg.opt_start_time))
    elif (policy == DELIVER_POLICY_LAST_PER_SUBJECT and state.msgs
          and (c.s.cfg.max_msgs_per_subject != 1 or filter_is_loose(&c.filter))):
        rc = place_begin(c, state.last_seq)
    if c.cfg.flags & CONSUMER_DIRECT:
        c.next = min(c.next, state.last_seq + 1)
    c.dseq = 1
    c.delivered_seq = c.next - 1
    c.floor_dseq = 0
    c.floor_seq = c.next - 1
    return rc


cdef void clip(Consumer* c) noexcept nogil:
    # A restored state is never ahead of the stream, unless it is to start there: what is stored next must not be taken
    # for delivered or acked.
    cdef StoreState state
    cdef uint64_t last
    store_state(c.s.store, &state)
    last = start_bound(c, state.last_seq)
    drop_vanished(c, False)
    if c.delivered_seq > last:
        c.delivered_seq = last
        c.next = last + 1
    c.floor_seq = min(c.floor_seq, last)
    c.floor_dseq = min(c.floor_dseq, c.dseq - 1)
    if c.next < state.first_seq:
        c.next = state.first_seq


cdef void catch_up(Consumer* c) noexcept nogil:
    # One that followed goes on where the records end, in the stream as it is now.
    if c.s.member == NULL:                      # whose stream may be behind it
        clip(c)
    while c.skip.at < c.skip.n and c.skip.seqs[c.skip.at] <= c.delivered_seq:
        c.skip.at += 1
    if c.skip.at < c.skip.n:
        c.next = c.skip.seqs[c.skip.at]
    elif c.skip.seqs != NULL:
        skip_end(c)
    c.replay.on = c.replay.on and c.delivered_seq < c.replay.until
    count_pending(c)
    c.role = ROLE_FOLLOWS


cdef int lead_begin(Consumer* c) noexcept nogil:
    # A member takes the lead where the group stands; a new consumer starts as in a stream of one server. 0 | -1 no memory
    cdef StoreState state
    cdef int rc = 0
    store_state(c.s.store, &state)
    count_stop(c)
    free(c.skip.seqs)
    memset(&c.skip, 0, sizeof(SkipList))
    if c.fresh:
        rc = start_anew(c)
        c.delivered_seq = 0
        c.floor_seq = 0
    else:
        c.next = max(c.delivered_seq + 1, state.first_seq)
    if placing(c):
        task_post(&c.env.tasks, &c.count.task)
    else:
        c.replay.on = c.cfg.replay_policy == REPLAY_POLICY_ORIGINAL and c.next <= state.last_seq
        c.replay.until = state.last_seq
        count_pending(c)
    return rc


cdef void not_used(Consumer* c, const char* what) noexcept nogil:
    c.damaged = True
    say_of(c, what)


cdef int restore_file(Consumer* c, const StateFile* file) noexcept nogil:
    # 1: restored, 0: there is none or it is damaged, -1: no memory
    cdef int rc
    if file.bytes.n == 0:
        return 0
    rc = consumer_decode_state(c, file.bytes)
    if rc == 0:
        return 1
    forget_state(c)
    if rc == -2:
        not_used(c, b"o.dat is damaged and not used")
        return 0
    return -1


cdef int restore_log(Consumer* c, Replayed* r) noexcept nogil:
    # As restore_file, over the state at hand.
    cdef int rc
    if r.records.n == 0:
        return 0
    rc = consumer_replay(c, r)
    if rc == 0 and c.cfg.deliver_policy == DELIVER_POLICY_LAST_PER_SUBJECT and r.resume > c.delivered_seq + 1:
        rc = make_skip_list(c, r.resume - 1, c.delivered_seq)
    if rc == 0:
        return 1
    forget_state(c)
    if rc == -2:
        not_used(c, b"its records are damaged, it starts anew")
        return 0
    return -1


cdef int restore_newer(Consumer* c, const StateFile* file, Replayed* r) noexcept nogil:
    # As restore_file, of a file that somebody wrote after the log. That may only be of messages that the stream has had; and
    # where it stands before the log, that is told: another server may have reset the consumer.
    cdef uint64_t dseq = 0
    cdef StoreState state
    cdef int rc = 0
    if consumer_replay(c, r) == 0:
        dseq = c.dseq
    forget_state(c)
    rc = restore_file(c, file)
    if rc != 1:
        return rc
    store_state(c.s.store, &state)
    if c.delivered_seq > start_bound(c, state.last_seq) and c.delivered_seq > state.last_seq:
        forget_state(c)
        not_used(c, b"o.dat is ahead of its stream and not used")
        return 0
    if c.dseq < dseq:
        say_of(c, b"o.dat was written after the last stop and stands before the log: messages may be delivered again")
    return 1


cdef int restore(Consumer* c, const StateFile* file) noexcept nogil:
    # 1: restored, 0: there was nothing, -1: no memory. A damaged state is as none: everything is delivered again.
    cdef Replayed* r = <Replayed*>strmap_del(&c.shared.replayed, c.cfg.name) if c.logged else NULL
    cdef int rc = 0, rest
    cdef bint newer = r == NULL or file_differs(r, file)
    if newer and r != NULL and file_damaged(r, file):
        not_used(c, b"o.dat is damaged and not used")
        newer = False
    c.known_hash = state_hash(file.bytes)
    c.known_time = file.time
    if newer and r != NULL:
        rc = restore_newer(c, file, r)
    elif newer or r.known.n == 0:               # without a word about files, the log may be older or newer
        rc = restore_file(c, file)
    if r != NULL and rc >= 0 and not (newer and rc):
        rest = restore_log(c, r)
        rc = rest if rest < 0 else max(rc, rest)
    if r != NULL:
        replayed_free(r)
    return rc


cdef void use_up(Consumer* c) noexcept nogil:
    # With a sync_interval a power cut may leave the log ahead of the blocks. What the log names was given to messages, and
    # is not given again: the log would take those for delivered.
    cdef StoreState state
    if not c.logged or store_is_synced(c.s.store):
        return
    store_state(c.s.store, &state)
    if (c.delivered_seq > start_bound(c, state.last_seq)
            and store_skip_at(c.s.store, c.delivered_seq, state.last_ts) == ST_OK):
        c.s.entered = c.delivered_seq
        c.s.shown = c.delivered_seq


cdef void records_forget(Consumer* c) noexcept nogil:
    cdef Replayed* r = <Replayed*>strmap_del(&c.shared.replayed, c.cfg.name) if c.logged else NULL
    if r != NULL:
        replayed_free(r)


cdef int consumer_place(Consumer* c, const StateFile* file, Joining joining) noexcept nogil:
    # Where it stands, new or restored. What has a group stands where that says, however far the stream here has come.
    # 0 | -1 no memory
    cdef int rc
    if joining == JOINS_ANEW:
        records_forget(c)
    rc = restore(c, file)
    c.fresh = rc == 0
    if rc == 1 and joining == JOINS_NOT and c.s.member == NULL:
        use_up(c)
        clip(c)
    elif rc == 0 and joining == JOINS_NOT:
        return start_anew(c)
    return min(rc, 0)


# ---- reset -----------------------------------------------------------------------------------------------------------


cdef uint64_t consumer_reset(Consumer* c, uint64_t seq, ConsumerInfo* before) noexcept nogil:
    seq = max(seq if seq else c.floor_seq + 1, <uint64_t>1)
    stand_at(c, seq, c.skip.resume if c.skip.seqs != NULL else 0, seq > c.s.entered + 1)
    c.delivered_ts = 0
    c.floor_ts = 0
    log_reset(c)
    ack_timer_set(c)
    stream_settle(c.s, 0, True)                 # it needs nothing that it stands behind
    count_pending(c)
    info_when_counted(c, before)
    wake_delivery(c)
    return seq
