# Snapshots of a stream's group: the state at an index of the log. The log drops what is before it once the store is on disk.

cdef enum:
    KEEP_ENTRIES = 65536        # records of the log after which a snapshot is due
    KEEP_BYTES = 8 << 20
    KEEP_LOOK = 100000000       # ns between two checks whether the store is on disk

cdef extern from *:
    """
    static const int64_t KEEP_PERIOD = 120000000000;
    static const int64_t KEEP_SPREAD = 60000000000;
    static const int64_t KEEP_MOVED = 1000000000;
    """
    const int64_t KEEP_PERIOD   # ns between snapshots
    const int64_t KEEP_SPREAD   # random addition to the period, at most
    const int64_t KEEP_MOVED    # ns after a snapshot before refused entries make another one due


cdef int64_t keep_pause(Env* env) noexcept nogil:
    # A random pause, so that the groups of a server do not all write at the same time.
    return KEEP_PERIOD + <int64_t>(env_secret(env) % <uint64_t>KEEP_SPREAD)


cdef bint is_keep_due(ReplicatedStream* r) noexcept nogil:
    cdef int64_t since = r.env.mono - r.kept_at
    if r.given == r.kept:
        return False
    return (since >= r.kept_pause or r.given - r.kept >= KEEP_ENTRIES or raftlog_bytes(r.g.log) >= KEEP_BYTES
            or member_refused(r.s) != r.kept_refused and since >= KEEP_MOVED)


cdef void keep_timer(ReplicatedStream* r, int64_t ns) noexcept nogil:
    # Without memory for the timer, the next turn checks again.
    timer_set(&r.env.timers, &r.timer, r.env.mono + ns)


cdef void keep_drop(ReplicatedStream* r) noexcept nogil:
    bytes_free(&r.state)
    r.state_index = 0


cdef void keep_begin(ReplicatedStream* r) noexcept nogil:
    # Takes the present state. Not while an open batch is held: its entries are not applied yet.
    if member_applied(r.s, r.given) != r.given:
        return
    keep_drop(r)
    if stream_state_put(r.s, &r.state) != ST_OK:
        keep_drop(r)
        return
    r.state_index = r.given
    r.state_term = r.given_term
    r.state_refused = member_refused(r.s)
    r.state_ticket = store_ticket(r.s.store)


cdef void keep_end(ReplicatedStream* r) noexcept nogil:
    # The store is on disk: the log may begin behind the snapshot. While another snapshot is being written, it is tried again.
    if group_snapshot(r.g, r.state_term, r.state_index, span(r.state.data, <uint32_t>r.state.n)) != RAFT_OK:
        return
    r.kept = r.state_index
    r.kept_refused = r.state_refused
    r.kept_at = r.env.mono
    r.kept_pause = keep_pause(r.env)
    keep_drop(r)


cdef void keep_look(ReplicatedStream* r) noexcept nogil:
    # Begins a snapshot when one is due, and ends the one that waits when the store is on disk.
    if r.mode == REPLICA_CATCHES_UP:
        return
    if r.state_index == 0 and is_keep_due(r):
        keep_begin(r)
    if r.state_index and store_durable_ticket(r.s.store) >= r.state_ticket:
        keep_end(r)
    if r.state_index:
        keep_timer(r, KEEP_LOOK)
    elif r.timer.pos == 0:
        keep_timer(r, KEEP_MOVED)


cdef void keep_tick(Timer* t, int64_t now) noexcept nogil:
    stream_due(<ReplicatedStream*>t.owner)
