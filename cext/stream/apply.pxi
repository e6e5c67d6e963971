# Applies what a group has agreed on, by the rules of nats-server's members: the same entries give the same messages, the same
# sequences and the same number of refused entries. Only the leader also answers.
#
# lseq counts the entries before an entry. The sequence of a message is lseq + 1, minus the entries that were refused.

cdef enum:
    BEHIND_BYTES = 1 << 20      # bytes of messages that the blocks are behind the group's log at most
    BEHIND = 50000000           # ns likewise


cdef inline bint is_staged(const Stream* s, uint64_t seq) noexcept nogil:
    # While leading: whether the first staged change is to have this sequence.
    cdef Staged head
    if s.staging == NULL or s.staging.n == 0:
        return False
    memcpy(&head, s.staging.changes.b.data + s.staging.changes.head, sizeof(Staged))
    return head.seq == seq


cdef int entry_refused(Stream* s, const StreamEntry* e) noexcept nogil:
    # The entry used a number of the group's. This version's leader refuses such a message before it is proposed.
    if is_staged(s, e.lseq + 1 - s.member.refused):
        overlay_pop(s)
        overlay_renumber(s)
    s.member.refused += 1
    if s.member.leads:
        send_pub_error(s, e.reply, &ERR_STREAM_STORE_FAILED, span_c(b"refused by the members of the stream"))
    return ST_OK


cdef void repeats_ack(Stream* s) noexcept nogil:
    # Answers duplicates of an applied message.
    cdef Staged head
    cdef Change c
    cdef Span reply
    while staged_size(s.staging):
        staged_at(&s.staging.changes.b, s.staging.changes.head, &head, &reply, &c)
        if head.kind != STAGED_REPEAT:
            break
        pub_ack(s, reply, head.seq, True)
        overlay_pop(s)


cdef void entry_answer(Stream* s, const StreamEntry* e, uint64_t seq) noexcept nogil:
    # The leader tells the publisher that its message is applied.
    cdef Bytes more
    if not s.member.leads:
        return
    memset(&more, 0, sizeof(Bytes))
    if e.batch.n and e.reply.n:
        add_batch_members(&more, e.batch, e.batch_seq)
    applied_ack(s, e.reply, seq, &e.change, b_span(&more))
    bytes_free(&more)
    if is_staged(s, seq):
        overlay_pop(s)
        repeats_ack(s)


cdef int entry_header(Stream* s, Change* c, PubHeaders* h) noexcept nogil:
    # The header to store: without what a server added about the publisher, and with a TTL no shorter than a marker's.
    # ST_OK | ST_NO_MEMORY
    cdef Bytes* b = &s.member.header
    cdef int64_t ttl
    if h.request_info:
        b.n = 0
        if header_lines(c.header.p, c.header, b) < 0:
            return ST_NO_MEMORY
        c.header = b_span(b)
        read_headers(h, c.header)
    if h.ttl.n and s.cfg.subject_delete_marker_ttl and get_ttl(h.ttl, &ttl) and too_short(s, ttl):
        return header_raised(s, c, h)
    return ST_OK


cdef int header_raised(Stream* s, Change* c, PubHeaders* h) noexcept nogil:
    cdef Bytes raised
    cdef Bytes* b = &s.member.header
    memset(&raised, 0, sizeof(Bytes))
    if header_with_ttl(&raised, c.header, s.cfg.subject_delete_marker_ttl // SECOND) < 0:
        bytes_free(&raised)
        return ST_NO_MEMORY
    bytes_free(b)
    b[0] = raised
    c.header = b_span(b)
    read_headers(h, c.header)
    return ST_OK


cdef int entry_purge_begin(Stream* s, Span pattern, uint64_t seq, uint64_t keep) noexcept nogil:
    # Later entries wait until the purge is done.
    cdef Member* m = s.member
    purge_free(&m.purge)
    m.pattern.n = 0
    if add_span(&m.pattern, pattern) < 0:
        return ST_NO_MEMORY
    purge_begin(&m.purge, s, b_span(&m.pattern), seq, keep, False)
    return ST_OK if m.purge.gone >= 0 else <int>m.purge.gone


cdef int entry_roll_up(Stream* s, Change* c) noexcept nogil:
    # A message that replaces earlier ones of its subject.
    cdef int rc
    c.rollup = ROLLUP_NONE
    rc = <int>stream_apply(s, c)
    return rc if rc != ST_OK else entry_purge_begin(s, c.subject, c.seq, 0)


cdef void interest_applied(Stream* s, const StreamEntry* e) noexcept nogil:
    # Consumers are created and deleted by another group, so members may differ in who wanted the message when they applied it:
    # what its leader saw counts. Where the leader is a nats-server, each member sees for itself, as a nats-server does.
    cdef Member* m = s.member
    if m.leads and e.change.seq <= m.early:
        stream_settle(s, e.change.seq, False)
    if m.leads and is_unwanted(s, e.change.subject):
        stream_settle(s, e.change.seq, True)        # those that wanted it are gone since
    stray_note(s, e, e.change.seq)


cdef int entry_store(Stream* s, StreamEntry* e, PubHeaders* h) noexcept nogil:
    # ST_OK; MEMBER_*; or the store's error
    cdef Change* c = &e.change
    cdef int64_t ttl
    cdef int rc = entry_header(s, c, h)
    if rc != ST_OK:
        return rc
    s.member.behind += <uint64_t>c.subject.n + c.header.n + c.data.n
    c.said = h
    c.id = h.msg_id
    if h.rollup.n and s.cfg.flags & STREAM_ALLOW_ROLLUP_HDRS and not s.cfg.flags & STREAM_DENY_PURGE:
        c.rollup = rollup_of(h.rollup)
    if e.unwanted if e.judged else is_unwanted(s, c.subject):
        c.kind = CHANGE_SKIP
    elif h.ttl.n and not get_ttl(h.ttl, &ttl):
        return entry_refused(s, e)
    if c.kind == CHANGE_MESSAGE and c.rollup == ROLLUP_SUBJECT and store_count_of(s.store, c.subject) > PURGE_PIECE:
        return entry_roll_up(s, c)
    rc = <int>stream_apply(s, c)
    if rc == ST_TOO_LARGE:
        return entry_refused(s, e)
    if rc == ST_OK:
        entry_answer(s, e, c.seq)
        interest_applied(s, e)
    return MEMBER_DIVERGED if rc == ST_ORDER else rc


cdef int skip_to(Stream* s, uint64_t seq) noexcept nogil:
    # Marks sequences up to this one as used.
    cdef StoreState state
    cdef Change c
    cdef int rc
    store_state(s.store, &state)
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_SKIP
    c.seq = seq
    c.ts = s.env.now if state.msgs else state.last_ts
    rc = <int>stream_apply(s, &c)
    s.member.id_unknown = True
    return rc


cdef int entry_message(Stream* s, StreamEntry* e, const StoreState* state) noexcept nogil:
    # A message that is not applied yet.
    cdef Change* c = &e.change
    cdef PubHeaders h
    cdef Draft d
    cdef int rc = ST_OK
    if e.lseq - s.member.refused != state.last_seq:
        if state.msgs or e.lseq < s.member.refused:
            return MEMBER_DIVERGED
        rc = skip_to(s, e.lseq - s.member.refused)      # no member has earlier messages any more
        if rc != ST_OK:
            return rc
    read_headers(&h, c.header)
    if h.last_msg_id.n and not s.member.id_unknown and not span_eq(h.last_msg_id, b_span(&s.last_id)):
        return entry_refused(s, e)
    c.seq = e.lseq + 1 - s.member.refused
    draft_open(&d)
    if s.cfg.subject_transform != NULL and stream_rename(s, &c.subject, &d) < 0:
        rc = entry_refused(s, e)
    else:
        rc = entry_store(s, e, &h)
    draft_free(&d)
    return rc


cdef int entry_skip_run(Stream* s, const StreamEntry* e, uint64_t last) noexcept nogil:
    # Sequences that were deleted in the leader's store, or that a mirror's origin has not.
    cdef uint64_t end = e.change.seq + e.change.most - 1
    cdef int rc
    if end <= last:
        return ST_OK
    if e.change.seq > last + 1:
        return MEMBER_DIVERGED
    rc = skip_to(s, end)
    if rc == ST_OK and is_staged(s, end):
        overlay_pop(s)
    return rc


cdef int entry_confirmed(Stream* s, const StreamEntry* e) noexcept nogil:
    # All that came from an origin up to here is agreed on: the leader says so there, without the status. ST_OK | ST_NO_MEMORY
    cdef Bytes* b = &s.member.header
    if not s.member.leads:
        return ST_OK
    b.n = 0
    if rewrite_headers(e.change.header, b) < 0:
        return ST_NO_MEMORY
    send_message(s, KIND_ACK, e.reply, b_span(b), span(NULL, 0))
    return ST_OK


cdef int entry_sequenced(Stream* s, StreamEntry* e) noexcept nogil:
    # A message or a skip.
    cdef uint64_t refused = s.member.refused
    cdef int rc
    if e.reply.n and is_control(e.change.header, e.change.data):
        return entry_confirmed(s, e)
    rc = entry_numbered(s, e)
    if e.change.kind == CHANGE_SKIP and e.change.most:
        s.member.position = max(s.member.position, e.change.seq + e.change.most - 1)
    elif s.member.refused == refused <= e.lseq:
        s.member.position = max(s.member.position, e.lseq + 1 - refused)
    return rc


cdef bint was_refused(Stream* s, const StreamEntry* e) noexcept nogil:
    # While recovering: whether an entry was refused earlier, as the sequence it would have has another message.
    cdef PubHeaders h
    cdef Record r
    if not s.member.recovering or e.change.kind != CHANGE_MESSAGE or e.change.header.n == 0:
        return False
    read_headers(&h, e.change.header)
    if h.last_msg_id.n == 0:
        return False
    return store_load(s.store, e.lseq + 1 - s.member.refused, &r) == ST_OK and r.ts != e.change.ts


cdef int entry_numbered(Stream* s, StreamEntry* e) noexcept nogil:
    cdef StoreState state
    store_state(s.store, &state)
    if e.change.kind == CHANGE_SKIP and e.change.most:
        return entry_skip_run(s, e, state.last_seq)
    if e.lseq - s.member.refused < state.last_seq or (e.lseq == 0 and state.last_seq):
        if was_refused(s, e):
            return entry_refused(s, e)
        stray_note(s, e, e.lseq + 1 - s.member.refused)
        return ST_OK                                # already applied
    if e.change.kind == CHANGE_SKIP:
        return skip_to(s, state.last_seq + 1)
    return entry_message(s, e, &state)


cdef bint is_ahead(Stream* s) noexcept nogil:
    # While recovering: the store has messages that are later in the log, so all entries up to them were applied before.
    cdef StoreState state
    store_state(s.store, &state)
    return s.member.recovering and state.last_seq > s.member.position


cdef int entry_purge(Stream* s, const StreamEntry* e, Committed* x) noexcept nogil:
    cdef uint64_t seq = e.change.seq
    cdef int rc
    if s.cfg.flags & STREAM_SEALED or (e.change.keep and e.change.seq == 0 and is_ahead(s)):
        return ST_OK                # `keep` counted the messages of that time
    if s.member.recovering:
        seq = min(seq, s.member.position + 1)           # later messages stay
    rc = entry_purge_begin(s, e.change.subject, seq, e.change.keep)
    x.result = s.member.purge.gone
    return rc


cdef int entry_apply(Stream* s, StreamEntry* e, Committed* x) noexcept nogil:
    if e.change.kind == CHANGE_MESSAGE or e.change.kind == CHANGE_SKIP:
        return entry_sequenced(s, e)
    if e.change.kind == CHANGE_PURGE:
        return entry_purge(s, e, x)
    if s.member.recovering and e.change.seq > s.member.position:
        x.result = ST_NOT_FOUND         # as at that time: the message came later
        return ST_OK
    store_hold(s.store)                 # the removal is not hurried either
    x.result = stream_apply(s, &e.change)
    store_let(s.store)
    return ST_OK if x.result == ST_NOT_FOUND or x.result == ST_DAMAGED else <int>min(x.result, <int64_t>ST_OK)


# ---- atomic batches --------------------------------------------------------------------------------------------------

cdef uint64_t held_seq(Stream* s) noexcept nogil:
    # The sequence that the next message would get.
    cdef StoreState state
    store_state(s.store, &state)
    return state.last_seq + 1


cdef void held_refuse(Stream* s) noexcept nogil:
    # Refuses the batch: its entries used numbers of the group's.
    cdef HeldBatch* h = &s.member.held
    while h.count:
        h.count -= 1
        if s.member.abandoned == 0 and is_staged(s, held_seq(s)):
            overlay_pop(s)
            overlay_renumber(s)
        s.member.refused += 1
    s.member.abandoned = 0
    held_drop(h)


cdef bint held_known(Stream* s, const StreamEntry* e) noexcept nogil:
    # At a start: the log begins in the middle of a batch that is applied already.
    cdef StoreState state
    store_state(s.store, &state)
    return e.lseq - s.member.refused < state.last_seq


cdef int held_add(Stream* s, const StreamEntry* e, Span entry, uint64_t index) noexcept nogil:
    # ST_OK, also when the batch is refused with this entry | ST_NO_MEMORY: nothing has changed
    cdef HeldBatch* h = &s.member.held
    cdef size_t was
    if h.id.n and not span_eq(b_span(&h.id), e.batch):
        held_refuse(s)
    if e.batch_seq == 1:
        held_refuse(s)
        h.index = index
    if s.member.recovering and e.batch_seq > 1 and h.count == 0 and held_known(s, e):
        held_drop(h)
        return ST_OK
    was = h.entries.n
    h.id.n = 0
    if (add_span(&h.id, e.batch) < 0 or bytes_add(&h.entries, &entry.n, sizeof(entry.n)) < 0
            or add_span(&h.entries, entry) < 0):
        h.entries.n = was
        return ST_NO_MEMORY
    h.count += 1
    if e.batch_seq != h.count:
        held_refuse(s)
    return ST_OK


cdef int held_apply(Stream* s) noexcept nogil:
    # Applies the whole batch.
    cdef HeldBatch* h = &s.member.held
    cdef StreamEntry e
    cdef Span entry
    cdef size_t at = 0
    cdef int rc = ST_OK
    while at < h.entries.n and rc == ST_OK:
        memcpy(&entry.n, h.entries.data + at, sizeof(entry.n))
        entry.p = h.entries.data + at + sizeof(entry.n)
        at += sizeof(entry.n) + entry.n
        change_get(entry, &s.member.kept, &e)
        rc = entry_sequenced(s, &e)
        while s.member.purge.more:              # no other change may come in between
            purge_step(&s.member.purge)
    held_drop(h)
    return rc


# ---- entries in their order ------------------------------------------------------------------------------------------

cdef int committed_apply(Stream* s, Committed* x) noexcept nogil:
    cdef Member* m = s.member
    cdef StreamEntry e
    cdef int rc
    x.result = ST_OK
    if not x.normal:
        held_refuse(s)
        return ST_OK
    rc = change_get(x.data, &m.kept, &e)
    if rc != 1:
        return ST_UNKNOWN if rc == 0 else rc
    if e.batch.n == 0:
        held_refuse(s)
        return entry_apply(s, &e, x)
    rc = held_add(s, &e, x.data, x.index)
    if rc == ST_OK and e.batch_ends and m.held.id.n:
        rc = held_apply(s)
    return rc


cdef bint purge_goes_on(Stream* s, Committed* x) noexcept nogil:
    # Continues the purge of the first entry. Whether there is more to do.
    cdef Member* m = s.member
    cdef StreamEntry e
    cdef StoreState state
    if m.purge.more:
        purge_step(&m.purge)
    if m.purge.more:
        return True
    m.purging = False
    x.result = m.purge.gone
    if change_get(x.data, &m.kept, &e) == 1 and e.change.kind == CHANGE_MESSAGE:
        store_state(s.store, &state)
        x.result = ST_OK
        entry_answer(s, &e, state.last_seq)
    return False


cdef void flush_due(Timer* t, int64_t now) noexcept nogil:
    member_flush(<Stream*>t.owner)


cdef void member_flush(Stream* s) noexcept nogil:
    timer_cancel(&s.env.timers, &s.member.flush)
    s.member.behind = 0
    store_hurry(s.store)


cdef void member_flush_later(Stream* s) noexcept nogil:
    # The group's log has what was applied, and keeps it until the blocks have it, too: they get much at a time.
    cdef Member* m = s.member
    if m.behind >= BEHIND_BYTES or (m.flush.pos == 0 and timer_set(&s.env.timers, &m.flush, s.env.mono + BEHIND) < 0):
        member_flush(s)


cdef int member_apply(Stream* s, Committed* entries, size_t n, size_t* done) noexcept nogil:
    cdef Member* m = s.member
    cdef int rc = ST_OK
    store_unhurried(s.store, s.synced)
    done[0] = 0
    while done[0] < n and rc == ST_OK:
        if m.purging:
            rc = ST_WAIT if purge_goes_on(s, &entries[done[0]]) else ST_OK
        else:
            rc = committed_apply(s, &entries[done[0]])
            m.purging = rc == ST_OK and m.purge.more
            rc = ST_WAIT if m.purging else rc
        done[0] += rc == ST_OK
    store_unhurried(s.store, False)
    if s.synced:
        member_flush_later(s)
    stream_count_bytes(s)
    return rc
