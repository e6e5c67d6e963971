# Opens and closes the member of a stream.

cdef ReplicatedStream* replicated_new(Env* env, Stream* s, Span sync, ReplicaStanding standing) noexcept nogil:
    # NULL: no memory.
    cdef ReplicatedStream* r = <ReplicatedStream*>calloc(1, sizeof(ReplicatedStream))
    if r == NULL:
        return NULL
    r.env = env
    r.s = s
    r.standing = standing
    r.task.fn = stream_task
    r.task.owner = r
    r.timer.fn = keep_tick
    r.caught_up = stream_caught_up
    r.timer.owner = r
    r.n_sync = min(sync.n, <uint32_t>SYNC_MAX)
    memcpy(r.sync, sync.p, r.n_sync)
    r.kept_at = env.mono
    r.kept_pause = keep_pause(env)
    return r


cdef struct LogWalk:
    # Walks over the entries of a group's log, oldest first.
    Group* g
    uint64_t at                 # the next record
    uint64_t end                # one past the last record
    AppendEntry m               # the rest of the present record


cdef void log_walk(LogWalk* w, Group* g, const RaftFound* found) noexcept nogil:
    memset(w, 0, sizeof(LogWalk))
    w.g = g
    w.at = found.snapshot_index + 1
    w.end = w.at + found.records


cdef int log_next(LogWalk* w, Entry* e) noexcept nogil:
    # 1 | 0: there is no more | -1: a record cannot be read
    cdef Span record
    while not entry_next(&w.m.entries, e):
        if w.at == w.end:
            return 0
        if not raftlog_load(w.g.log, w.at, &record) or not append_entry_read(record, &w.m):
            return -1
        w.at += 1
    return 1


cdef bint log_begins(Group* g, const RaftFound* found, uint64_t refused, uint64_t* last) noexcept nogil:
    # Sets `last`: the log has all of the stream's messages behind that sequence. False: the log has no message, and no snapshot.
    cdef StateHead head
    cdef LogWalk w
    cdef Entry e
    cdef StreamEntry x
    cdef Bytes kept
    cdef bint known = False
    if found.snapshot_index:
        last[0] = head.last if state_head_get(found.state, &head) else 0
        return True
    memset(&kept, 0, sizeof(Bytes))
    log_walk(&w, g, found)
    while not known and log_next(&w, &e) == 1:
        known = (e.type == ENTRY_NORMAL and change_get(e.data, &kept, &x) == 1
                 and x.change.kind == CHANGE_MESSAGE and x.lseq >= refused)
        last[0] = x.lseq - refused if known else 0
    bytes_free(&kept)
    return known


cdef uint64_t entry_reach(const StreamEntry* e) noexcept nogil:
    # The last sequence that a change may use.
    cdef const Change* c = &e.change
    if c.kind == CHANGE_SKIP and c.most:
        return c.seq + c.most
    if c.kind == CHANGE_MESSAGE or c.kind == CHANGE_SKIP:
        return e.lseq + 1
    if c.kind == CHANGE_PURGE:
        return max(c.seq, e.last)
    return 0


cdef uint64_t log_reach(Group* g, const RaftFound* found) noexcept nogil:
    # The last sequence that the log's entries may use; UINT64_MAX: unknown, as an entry cannot be read.
    cdef LogWalk w
    cdef Entry e
    cdef StreamEntry x
    cdef Bytes kept
    cdef uint64_t reach = 0
    cdef int rc
    memset(&kept, 0, sizeof(Bytes))
    log_walk(&w, g, found)
    rc = log_next(&w, &e)
    while rc == 1 and e.type != ENTRY_SNAPSHOT:
        if e.type == ENTRY_NORMAL:
            if change_get(e.data, &kept, &x) < 0:
                break
            reach = max(reach, entry_reach(&x))
        rc = log_next(&w, &e)
    bytes_free(&kept)
    return reach if rc == 0 else UINT64_MAX


cdef uint64_t jumped_from(ReplicatedStream* r, Group* g, const RaftFound* found, uint64_t last) noexcept nogil:
    # The first sequence that an earlier start skipped behind the last message, if that is beyond the log's reach; 0: none.
    cdef StoreState s
    cdef uint64_t end
    store_state(r.s.store, &s)
    end = max(store_last_match(r.s.store, NULL), last)
    return end + 1 if s.last_seq > end and s.last_seq > max(log_reach(g, found), last) else 0


cdef bint lost_inside(ReplicatedStream* r, const RaftFound* found, uint64_t seq) noexcept nogil:
    # Whether the snapshot has a sequence below this one that damage has cost.
    cdef StateHead head
    cdef uint64_t first
    if not state_head_get(found.state, &head):
        return False
    first = lost_of(r, &head)
    return first != 0 and first < seq


cdef uint64_t lost_behind(ReplicatedStream* r, const RaftFound* found, uint64_t last) noexcept nogil:
    # The first sequence lost to damage that is behind `last`, or, of what a snapshot has, behind all messages; 0: none.
    cdef uint64_t seq = store_lost_from(r.s.store, last + 1), end = 0
    if found.snapshot_index:
        end = store_lost_from(r.s.store, store_last_match(r.s.store, NULL) + 1)
    return min(seq, end) if seq and end else max(seq, end)


cdef int stream_lost_again(ReplicatedStream* r, Group* g, const RaftFound* found, uint64_t last) noexcept nogil:
    # At a start the store skips sequences whose messages damage may have cost. Such sequences and all behind them are truncated,
    # or they would pass for applied: they come again from the log, which begins behind `last`, or from the leader. Where messages
    # survived behind others that are lost, all stays until the leader sends these: a truncation makes a store forget them. ST_*
    cdef uint64_t seq = lost_behind(r, found, last)
    if seq == 0:
        seq = jumped_from(r, g, found, last)
    if seq == 0 or found.snapshot_index and lost_inside(r, found, seq):
        return ST_OK
    return stream_cut(r, seq - 1)


cdef int replicated_begin(ReplicatedStream* r, Group* g, const RaftFound* found) noexcept nogil:
    # With the lock held: makes the stream a member, which only its group changes. 0 | 1 as member_open | ST_UNKNOWN: the state of
    # the snapshot is damaged | another ST_*
    cdef uint64_t refused = 0, last = 0
    cdef StateHead head
    cdef int rc = ST_OK
    if found.snapshot_index and not stream_state_refused(found.state, &refused):
        return ST_UNKNOWN
    if log_begins(g, found, refused, &last):
        rc = stream_lost_again(r, g, found, last)
    else:
        last = last_of(r)
    if rc != ST_OK:
        return rc
    if r.s.active:
        stream_rest(r.s)                        # it ran without a group until now
    rc = member_open(r.s, refused, stream_proposed, r)
    if rc < 0:
        return ST_NO_MEMORY
    member_begins(r.s, last)
    member_ending(r.s, stream_ended)
    r.s.consumer_missing = True                 # its consumers are opened later
    r.g = g
    r.given = r.kept = found.snapshot_index
    r.given_term = found.snapshot_term
    r.kept_refused = refused
    r.recovered = found.snapshot_index + found.records
    if found.records == 0:
        member_recovered(r.s)
    group_own(g, stream_turn, r)
    if found.snapshot_index:
        state_head_get(found.state, &head)
        lost_set(r, lost_of(r, &head))
        r.standing = standing_based(r.standing)
        stream_replaced(r, found.state, found.snapshot_index)
    stream_due(r)
    return rc


cdef void replicated_stop(ReplicatedStream* r) noexcept nogil:
    # With the lock held. Close the group next WITHOUT the lock, then free the member.
    if r.s != NULL:
        member_ending(r.s, NULL)
    stream_rests(r)
    r.s = NULL
    group_stop(r.g)


cdef void replicated_part(ReplicatedStream* r) noexcept nogil:
    # As replicated_stop; the stream belongs to this server alone from now on, and does not serve yet.
    cdef Stream* s = r.s
    replicated_stop(r)
    if s != NULL:
        member_close(s)


cdef void replicated_free(ReplicatedStream* r) noexcept nogil:
    bytes_free(&r.taken)
    bytes_free(&r.state)
    free(r)
