# The commit thread: takes what is staged in all stores, writes each file once, syncs, and lets the acks go.
#
# It does not take the engine lock (but where there is no driver to wake). What it needs it takes under its own
# mutex `q`, and by reserving the place of its marker in a block's `used`; what it has done it leaves in a list that
# the driver empties with committer_poll.

cdef int64_t IDLE_CLOSE = 100000000         # ns until a group is closed by an empty marker
cdef int64_t IDLE_LEAN = 30000000000        # ns until an idle store gives back descriptors and pages


cdef Committer* committer_new(Env* env, int64_t sync_interval, int64_t slim_wait, int wake_fd) noexcept nogil:
    cdef Committer* c = <Committer*>calloc(1, sizeof(Committer))
    if c == NULL:
        return NULL
    c.env = env
    c.sync_interval = sync_interval
    c.slim_wait = slim_wait
    c.wake_fd = wake_fd
    c.writing.spare = -1
    c.queue.sync_fd = -1
    c.queue.due = INT64_MAX
    c.pool_size = page_up(8388608 + SLACK)
    c.writing.synced_at = env_clock(env)
    c.queue.synced_wall = env.system.wall(env.system.ctx) - sync_interval     # a killed server may have left as much
    mutex_init(&c.q)
    journal_init(c)
    cond_init(&c.wake)
    cond_init(&c.idle)
    cond_init(&c.chores)
    cond_init(&c.fetch)
    return c


cdef void committer_free(Committer* c) noexcept nogil:
    # After its thread has ended and every store is closed.
    cdef uint32_t i
    if c.queue.sync_fd >= 0:
        c.env.files.close(c.env.files.ctx, c.queue.sync_fd)
    for i in range(c.queue.n_pool):
        pages_free(c.queue.pool[i], c.pool_size)
    spare_give(c)                               # taken again by a writer without the thread
    cond_free(&c.wake)
    cond_free(&c.idle)
    cond_free(&c.chores)
    cond_free(&c.fetch)
    journal_free(c)
    mutex_free(&c.q)
    free(c)


cdef void committer_stop(Committer* c) noexcept nogil:
    # Lets the thread end when everything staged is written. Stores may still be closed afterwards.
    q_lock(c)
    c.queue.stopping = True
    q_broadcast(c, &c.wake)
    q_broadcast(c, &c.chores)
    q_broadcast(c, &c.fetch)
    q_unlock(c)


cdef void committer_run(Committer* c) noexcept nogil:
    cdef System* system = c.env.system
    cdef Round r
    cdef int64_t now
    cdef bint done
    memset(&r, 0, sizeof(r))
    q_lock(c)
    while c.queue.inline:
        q_wait(c, &c.idle, INT64_MAX)
    spare_take(c)
    c.queue.running = True
    c.keeper_runs = system.start(system.ctx, &c.keeper, keeper_main, c) == 0
    c.fetcher_runs = system.start(system.ctx, &c.fetcher, fetcher_main, c) == 0
    while True:
        now = env_clock(c.env)
        if list_empty(&c.queue.dirty) and now < c.queue.due:
            if c.queue.stopping:
                break
            c.queue.sleeping = True
            q_wait(c, &c.wake, c.queue.due)
            c.queue.sleeping = False
            continue
        round_take(c, &r, now)
        q_unlock(c)
        round_write(c, &r, now)
        q_lock(c)
        done = round_done(c, &r)
        q_unlock(c)
        if done:
            tell_driver(c)
        q_lock(c)
    c.queue.running = False
    q_broadcast(c, &c.idle)
    q_broadcast(c, &c.chores)
    q_unlock(c)
    if c.keeper_runs:
        system.join(system.ctx, c.keeper)
        c.keeper_runs = False
    if c.fetcher_runs:
        system.join(system.ctx, c.fetcher)
        c.fetcher_runs = False
    spare_give(c)
    round_free(&r)


cdef void tell_driver(Committer* c) noexcept nogil:
    # Without q, which the woken thread will want: there are results. Where there is no driver, does its part.
    if c.wake_fd >= 0:
        c.env.system.notify(c.env.system.ctx, c.wake_fd)
    else:
        env_lock(c.env)
        committer_poll(c)
        env_unlock(c.env)


cdef void commit_inline(Committer* c, int64_t now) noexcept nogil:
    # Without a thread: the caller writes what is staged (a store that is closed after the thread has ended).
    cdef Round r
    memset(&r, 0, sizeof(r))
    q_lock(c)
    while c.queue.inline:
        q_wait(c, &c.idle, INT64_MAX)
    c.queue.inline = True
    while (not list_empty(&c.queue.dirty) or now >= c.queue.due) and not c.queue.running:
        round_take(c, &r, now)
        q_unlock(c)
        round_write(c, &r, now)
        q_lock(c)
        round_done(c, &r)
    c.queue.inline = False
    q_broadcast(c, &c.idle)
    q_unlock(c)
    round_free(&r)


cdef void round_free(Round* r) noexcept nogil:
    free(r.parts)
    free(r.pieces)
    free(r.scratch)


# ---- taking -------------------------------------------------------------------------------------------------------

cdef Part* round_part(Round* r, Store* s) noexcept nogil:
    if array_room(&r.parts, &r.cap_parts, <uint64_t>r.n_parts + 1, sizeof(Part), 8) < 0:
        return NULL
    memset(&r.parts[r.n_parts], 0, sizeof(Part))
    r.n_parts += 1
    r.parts[r.n_parts - 1].s = s
    r.parts[r.n_parts - 1].alone = s.always
    r.parts[r.n_parts - 1].piece = r.n_pieces
    r.parts[r.n_parts - 1].first = st_load(&s.shared.floor)    # before any block's `used` is looked at
    return &r.parts[r.n_parts - 1]


cdef bint round_blocks(Round* r, Part* p, uint64_t last) noexcept nogil:
    # The blocks up to that number.
    cdef Block* b = p.s.queue.out
    while b != NULL and b.num <= last:
        if array_room(&r.pieces, &r.cap_pieces, <uint64_t>r.n_pieces + 1, sizeof(Piece), 8) < 0:
            return False
        r.pieces[r.n_pieces].b = b
        r.pieces[r.n_pieces].sealed = is_sealed(b)
        r.pieces[r.n_pieces].wrote = False
        r.pieces[r.n_pieces].synced = False
        r.pieces[r.n_pieces].noted = False
        r.n_pieces += 1
        p.n += 1
        b = b.queue.next_out
    return True


cdef void ops_look(Part* p) noexcept nogil:
    cdef const Op* op = p.ops
    while op != NULL:
        p.logs = p.logs or op.kind == OP_APPEND
        p.alone = p.alone or op.kind == OP_BATCH
        op = op.next


cdef void part_take(Part* p) noexcept nogil:
    # All that its store has staged.
    cdef Store* s = p.s
    cdef Log* g = s.queue.logs
    st_store(&s.shared.dirty, 0)
    p.ticket = st_load(&s.shared.ticket)
    p.seq = st_load(&s.shared.shown_seq)
    p.ops = s.queue.ops
    s.queue.ops = NULL
    s.queue.ops_tail = NULL
    ops_look(p)
    while g != NULL:
        if g.queue.dirty:
            g.queue.dirty = False
            g.writing.bytes = g.queue.staged
            g.writing.follows = g.queue.follows
            g.queue.follows = False
            memset(&g.queue.staged, 0, sizeof(Bytes))
            p.logs = True
        g = g.queue.next


cdef Op* fence_of(const Store* s) noexcept nogil:
    # The first one, NULL when there is none.
    cdef Op* op = s.queue.ops
    while op != NULL and op.kind != OP_FENCE:
        op = op.next
    return op


cdef void part_take_before(Part* p, Op* fence) noexcept nogil:
    # What its store has staged before a fence; the rest is for the next round.
    cdef Op* op = p.s.queue.ops
    p.ticket = fence.size
    p.seq = fence.seq
    p.first = fence.first
    p.ops = op
    p.s.queue.ops = fence.next
    if fence.next == NULL:
        p.s.queue.ops_tail = NULL
    fence.next = NULL
    ops_look(p)


cdef void round_end(Round* r, Part* p) noexcept nogil:
    # With q held: what comes from here on is for the next round. So a batch, during which nothing is taken, is of one.
    cdef bint inside = p.s.writing.whole and not p.close, more = False
    cdef uint32_t i = p.piece + p.n, last = i
    cdef Piece* piece
    while i > p.piece:
        i -= 1
        piece = &r.pieces[i]
        piece.due = marker_place(p.s, piece.b, p.first if i + 1 == last else 0, p.close, False, &piece.end)
        piece.open = more
        more = more or piece.due
    for i in range(p.piece, last):
        inside = inside or batch_in(p, r.pieces[i].b) != NULL
        r.pieces[i].open = r.pieces[i].open and inside


cdef void round_take(Committer* c, Round* r, int64_t now) noexcept nogil:
    # With q held: what all dirty stores have, and whose groups are to be closed.
    cdef Store* s
    cdef List back
    cdef Part* p
    cdef Op* fence
    cdef int64_t due
    memset(&back, 0, sizeof(List))
    r.n_parts = 0
    r.n_pieces = 0
    r.wrote = False
    r.sync = c.queue.sync_now
    r.synced = False
    r.unsynced = NULL
    c.queue.sync_now = False
    while not list_empty(&c.queue.dirty):
        s = <Store*>list_owner(list_first(&c.queue.dirty), &(<Store*>NULL).queue.dirty)
        if s.queue.withheld:    # it comes again when it is not any more
            list_remove(&s.queue.dirty)
            st_store(&s.shared.dirty, 0)
            continue
        p = round_part(r, s)
        if p == NULL:
            break
        list_remove(&s.queue.dirty)
        fence = fence_of(s)
        if not round_blocks(r, p, fence.off if fence != NULL else UINT64_MAX):
            r.n_parts -= 1      # no memory: it waits for the next round
            list_push_back(&back, &s.queue.dirty)
            continue
        s.queue.busy += 1
        p.first_log = s.queue.logs
        if fence != NULL:
            r.sync = True
            part_take_before(p, fence)
            list_push_back(&back, &s.queue.dirty)
        else:
            part_take(p)
            if s.queue.sync_asked:
                s.queue.sync_asked = False
                unsynced_note(c, s)     # what only closed an idle group is not
                r.sync = True
        round_end(r, p)
        active_enter(&c.queue.active, s, now)
    list_take(&back, &c.queue.dirty)
    list_take(&c.queue.dirty, &back)
    s = store_idle_longest(&c.queue.active)
    while s != NULL and s.queue.active_at + IDLE_CLOSE <= now:
        # One with operations is not idle, it is just not dirty yet: what they are for may not be written before they are taken.
        p = round_part(r, s) if not s.queue.busy and not s.queue.withheld and s.queue.ops == NULL else NULL
        if p == NULL or not round_blocks(r, p, UINT64_MAX):
            due = now + IDLE_CLOSE
            break
        p.close = True
        p.ticket = st_load(&s.shared.ticket)
        p.seq = 0
        p.first_log = s.queue.logs
        round_end(r, p)
        s.queue.busy += 1
        active_enter(&c.queue.resting, s, now)
        if list_first(&c.queue.resting) == list_last(&c.queue.resting):
            q_signal(c, &c.chores)      # its time starts now
        s = store_idle_longest(&c.queue.active)
    else:
        due = s.queue.active_at + IDLE_CLOSE if s != NULL else INT64_MAX
    if not list_empty(&c.queue.unsynced):
        due = min(due, c.writing.synced_at + c.sync_interval)
    c.queue.due = due


# ---- the results --------------------------------------------------------------------------------------------------

cdef bint round_done(Committer* c, Round* r) noexcept nogil:
    # With q held: puts the results where committer_poll finds them; whether there are any.
    cdef uint32_t i
    cdef Part* p
    cdef Store* s
    cdef bint any = c.writing.sync_failed
    c.writing.sync_failed = False
    for i in range(r.n_parts):
        p = &r.parts[i]
        s = p.s
        while s.queue.out != NULL and is_closed(s.queue.out):
            block_done(c, s, s.queue.out)
        if not p.close or p.err:
            if p.err == 0:
                s.queue.done_seq = max(s.queue.done_seq, p.seq if p.ticket >= s.queue.cut_ticket else min(p.seq, s.queue.cut_seq))
                s.queue.uncut_seq = p.seq
                s.queue.done_ticket = max(s.queue.done_ticket, p.ticket)
            else:
                s.queue.done_seq = max(s.queue.done_seq, kept_seq(s))
                s.queue.uncut_seq = max(s.queue.uncut_seq, s.writing.kept_last)
            store_tell(c, s, p.err)
            any = True
        invariant(s.queue.busy > 0, "a round lets go of the stores that it took")
        invariant(s.queue.done_ticket <= st_load(&s.shared.ticket), "nothing is done that did not happen")
        s.queue.busy -= 1
    q_broadcast(c, &c.idle)
    if any:
        st_store(&c.shared.done_flag, 1)
    return any or (st_load(&c.shared.full) and not c.told_full)


cdef void block_done(Committer* c, Store* s, Block* b) noexcept nogil:
    # With q held: a sealed block leaves the list of those to write; the maintenance thread makes its sidecar.
    invariant(is_sealed(b) or has_left(b), "no block is done before it is sealed")
    invariant(b.writing.durable <= b.writing.written, "what is on disk was written")
    s.queue.out = b.queue.next_out
    if s.queue.out == NULL:
        s.queue.out_tail = NULL
    b.queue.next_out = NULL
    if not has_left(b):
        side_queue(c, b)


cdef void committer_poll(Committer* c) noexcept nogil:
    # Reports finished groups to the stores' listeners. With the engine lock held.
    cdef Store* s
    cdef uint64_t seq, ticket
    cdef int err
    if st_load(&c.shared.done_flag) == 0:
        return
    st_store(&c.shared.done_flag, 0)
    tell_full(c)
    while True:
        q_lock(c)
        s = <Store*>list_owner(list_pop(&c.queue.done), &(<Store*>NULL).queue.done)
        if s == NULL:
            q_unlock(c)
            return
        seq = s.queue.done_seq
        ticket = s.queue.done_ticket
        err = s.queue.done_errno
        q_unlock(c)
        invariant(env_held(s.env), "streams hear of groups under the engine lock")
        invariant(ticket <= st_load(&s.shared.ticket), "nothing is durable that did not happen")
        if err:
            s.io_errno = err
        if seq > s.durable_seq or ticket > s.durable_ticket or err == 0:    # also before a group that failed
            s.durable_seq = max(s.durable_seq, seq)
            s.durable_ticket = max(s.durable_ticket, ticket)
            if s.on_durable != NULL and not s.stopped:
                s.on_durable(s.ctx, seq, ticket, 0)
        if err and s.on_durable != NULL and not s.stopped:
            s.on_durable(s.ctx, s.last_seq, s.shared.ticket, err)
