# Opening, updating, stopping and closing a store.

cdef uint64_t next_store_id = 0


cdef uint64_t block_size_of(const StoreConfig* cfg) noexcept nogil:
    # Bytes a block: as nats-server sizes them, but for limits by count, whose message size is not known here.
    cdef uint64_t b
    if cfg.storage == STORE_MEMORY:
        return MEMORY_BLOCK
    if cfg.block_size:
        return cfg.block_size
    if cfg.max_bytes > 0 or cfg.max_msgs > 0:
        b = <uint64_t>cfg.max_bytes if cfg.max_bytes > 0 else min(<uint64_t>cfg.max_msgs, <uint64_t>1 << 32) * 512
        b = (b // 4 + 1 + 99) // 100 * 100
        if b <= 32000:
            return 32000
        return 8388608 if b >= 8388608 else 4194304
    if cfg.max_msgs_per > 0 or cfg.retention != 0:
        return 4194304
    return 8388608


cdef Store* store_new(Env* env, Committer* committer, const StoreConfig* cfg) noexcept nogil:
    # Without messages, paths and files; NULL: no memory.
    global next_store_id
    cdef Store* s = <Store*>calloc(1, sizeof(Store))
    if s == NULL or index_init(&s.x, env) < 0:
        if s != NULL:
            index_free(&s.x)
        free(s)
        return NULL
    s.id = st_add(&next_store_id, 1)
    s.env = env
    s.com = committer
    s.files = env.files
    s.storage = cfg.storage
    s.retention = cfg.retention
    s.compress = cfg.compress
    s.always = cfg.always
    s.block_size = block_size_of(cfg)
    s.next_num = 1
    s.first_seq = 1
    s.queue.lost_since = INT64_MAX
    s.age_timer.fn = age_fire
    s.age_timer.owner = s
    s.slim_timer.fn = slim_fire
    s.slim_timer.owner = s
    s.slim_task.fn = slim_memory
    s.slim_task.owner = s
    s.left.task.fn = leftovers_turn
    s.left.task.owner = s
    store_key(cfg.name, s.key)
    limits_of(&s.limits, cfg)
    return s


cdef bint store_read(Opening* o, const StoreConfig* cfg) noexcept nogil:
    # Of one on disk, what its directory has; False, with a text in o.err unless memory ran out.
    cdef Store* s = o.s
    if s.com == NULL or cfg.directory.n == 0 or cfg.directory.n > 4000 or cfg.name.n > 500:
        snprintf(o.err, o.err_cap, "file storage needs a committer, a directory of 1 to 4000 bytes and a name up to 500")
        return False
    s.dir = <char*>calloc(cfg.directory.n + 1, 1)
    s.msgs_dir = <char*>calloc(cfg.directory.n + 8, 1)
    s.name = <char*>calloc(cfg.name.n + 1, 1)
    if s.dir == NULL or s.msgs_dir == NULL or s.name == NULL:
        return False
    memcpy(s.name, cfg.name.p, cfg.name.n)
    memcpy(s.dir, cfg.directory.p, cfg.directory.n)
    snprintf(s.msgs_dir, cfg.directory.n + 8, "%s/msgs", s.dir)
    o.synced = cfg.synced or s.com.sync_interval > 0 and not cfg.always
    lazy_listen(s)
    if store_recover(o) < 0:
        return False
    s.recovery.foreign = o.foreign
    return True


cdef void store_trimmed(Store* s, bint foreign) noexcept nogil:
    # Of one on disk: what its limits do not allow goes with the first that is written. Where our own server stopped there is
    # nothing to be removed but by age.
    cdef uint64_t msgs, aged
    cdef uint32_t i
    env_lock(s.env)
    msgs = s.msgs
    if foreign:
        foreign_leave(s)
    stale_leave(s)
    aged = s.msgs
    age_trim(s, 0xffffffffU)
    aged -= s.msgs
    limits_apply(s)
    if s.msgs != msgs:
        settle(s, True)
    if s.empties != NULL:
        reap(s)
    for i in range(s.n_blocks):
        slim_look(s, block_i(s, i))
    env_unlock(s.env)
    # Of a group that spans blocks a power cut may leave the beginning, with deletes that bring what is left within the
    # limits, and take the end, which says what the limits had removed. Age removes that again.
    if msgs - s.msgs > aged:
        store_written(s)


cdef Store* store_open(Env* env, Committer* committer, const StoreConfig* cfg, char* err, size_t err_cap) noexcept nogil:
    cdef Store* s = store_new(env, committer, cfg)
    cdef Opening o
    cdef int rc
    err[0] = 0
    memset(&o, 0, sizeof(o))
    o.s = s
    o.err = err
    o.err_cap = err_cap
    rc = journal_sound(committer) if s != NULL and cfg.storage == STORE_FILE and committer != NULL else 0
    if rc < 0:
        snprintf(err, err_cap, "the journal cannot be brought into the files: %s", strerror(-rc))
    if s == NULL or rc < 0 or (cfg.storage == STORE_FILE and not store_read(&o, cfg)):
        if err[0] == 0:
            snprintf(err, err_cap, "no memory for a store")
        if s != NULL:
            store_dispose(s)
        return NULL
    if s.n_blocks == 0 and cfg.first_seq > 1 and s.last_seq == 0:
        s.last_seq = cfg.first_seq - 1
        s.first_seq = cfg.first_seq
    s.shared.shown_seq = s.last_seq
    s.shared.floor = s.first_seq
    s.shown_first = s.writing.extent.first  # as far as it is written
    s.writing.synced_first = s.writing.extent.first
    s.writing.extent.last = s.last_seq
    s.writing.extent.last_ts = s.last_ts
    s.durable_seq = s.last_seq
    s.queue.done_seq = s.last_seq
    if s.storage == STORE_FILE:
        store_trimmed(s, o.foreign)
        lazy_open(s)
        sides_make(s)
    return s


cdef void sides_make(Store* s) noexcept nogil:
    # Queues every sealed block that has no sidecar yet.
    cdef uint32_t i
    cdef Block* b
    q_lock(s.com)
    for i in range(s.n_blocks):
        b = block_i(s, i)
        if is_sealed(b) and not b.sided and not b.damaged and b.n:
            side_queue(s.com, b)
    q_unlock(s.com)


cdef void store_listen(Store* s, removed_fn removed, durable_fn durable, void* ctx) noexcept nogil:
    s.on_removed = removed
    s.on_durable = durable
    s.ctx = ctx
    if durable != NULL and s.io_errno and s.storage == STORE_FILE:      # a group failed before there was a listener
        q_lock(s.com)
        store_tell(s.com, s, <int>s.io_errno)
        st_store(&s.com.shared.done_flag, 1)
        q_unlock(s.com)
        if s.com.wake_fd >= 0:
            tell_driver(s.com)
    if s.limits.max_age > 0:
        age_arm(s)


cdef void store_listen_damage(Store* s, damaged_fn damaged) noexcept nogil:
    s.on_damaged = damaged


cdef int store_settle(Store* s, bint synced) noexcept nogil:
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    synced = synced and s.storage == STORE_FILE and s.com.sync_interval > 0
    if synced:
        q_lock(s.com)
        s.queue.sync_asked = True
        q_unlock(s.com)
    return settle(s, synced)


cdef void limits_apply(Store* s) noexcept nogil:
    # Brings everything stored within the limits.
    if s.limits.max_msgs_per > 0:
        subjects_begin(s)
        while trim_subjects(s):
            pass
    trim_head(s, UINT64_MAX)
    if s.empties != NULL or s.msgs == 0:
        reap(s)


cdef void store_withhold(Store* s) noexcept nogil:
    cdef Committer* c = s.com
    if s.storage == STORE_MEMORY:
        return
    q_lock(c)
    s.queue.withheld += 1
    while s.queue.busy:
        q_wait(c, &c.idle, INT64_MAX)
    q_unlock(c)


cdef void store_withhold_end(Store* s) noexcept nogil:
    cdef bint wake
    if s.storage == STORE_MEMORY:
        return
    q_lock(s.com)
    s.queue.withheld -= 1
    wake = dirty_push(s)
    q_unlock(s.com)
    if wake:
        q_signal(s.com, &s.com.wake)


cdef void store_stop(Store* s) noexcept nogil:
    cdef Committer* c = s.com
    cdef uint32_t i
    s.stopped = True
    sweeps_close(&s.x)
    timer_cancel(&s.env.timers, &s.age_timer)
    timer_cancel(&s.env.timers, &s.slim_timer)
    task_cancel(&s.slim_task)
    task_cancel(&s.left.task)
    if s.storage == STORE_MEMORY:
        return
    list_drop(&s.slim)
    for i in range(s.n_blocks):
        lru_remove(c, block_i(s, i))
    waits_end(s, NULL)


cdef void store_written(Store* s) noexcept nogil:
    # Waits until what is staged is on disk, or failed.
    cdef Committer* c = s.com
    invariant(not s.hold.listed, "what a turn has staged is not waited for within it")
    if not c.queue.running:
        commit_inline(c, 0)
        tell_driver(c)      # waits for the ticket hear of it
    q_lock(c)
    while c.queue.running and (st_load(&s.shared.dirty) or s.queue.busy):
        q_wait(c, &c.idle, INT64_MAX)
    q_unlock(c)


cdef void store_close(Store* s, bint remove) noexcept nogil:
    cdef char path[4300]
    if s.storage == STORE_FILE:
        store_detach(s, remove)
        if not remove and s.queue.done_errno == 0 and s.io_errno == 0:
            heads_tombstone(s)
            store_detach(s, False)
        ops_discard(s)
        if remove:
            later_finish(s.com, s, EIO)
            journal_forget_store(s)
            tree_remove(s.files, s.msgs_dir)
            snprintf(path, sizeof(path), "%s/__msgs__", s.dir)
            tree_remove(s.files, path)
            dict_path(s, path, sizeof(path))
            s.files.unlink(s.files.ctx, path)
            reserve_path(s, path, sizeof(path))
            s.files.unlink(s.files.ctx, path)
        elif s.queue.done_errno == 0:
            journal_lock(s.com)
            tail_close(s)
            s.writing.vouched = UINT64_MAX
            later_finish(s.com, s, 0)
            rewrites_finish(s)
            journal_unlock(s.com)
            checkpoint_write(s)
            journal_leave(s)
        else:
            store_retreat(s)
        trash_end(s)
        env_lock(s.env)         # a thread that took it off the list of finished groups before is done with it
        env_unlock(s.env)
    store_dispose(s)


cdef void tail_close(Store* s) noexcept nogil:
    # At a clean stop the last group is closed and the file cut to its size.
    cdef Round r
    cdef Part p
    cdef Piece piece
    cdef Block* b = s.tail
    cdef FileOps* f = s.files
    if b == NULL or b.writing.written == 0:
        return
    memset(&r, 0, sizeof(r))
    memset(&p, 0, sizeof(p))
    memset(&piece, 0, sizeof(piece))
    p.s = s
    p.n = 1
    p.close = True
    p.first = s.first_seq
    piece.b = b
    piece.due = marker_place(s, b, p.first, True, False, &piece.end)
    r.pieces = &piece
    if piece_write(s.com, &r, &p, &piece, False) == 0 and block_fd(s, b, s.msgs_dir, &p.sync_dir) == 0:
        f.truncate(f.ctx, b.writing.fd, <off_t>b.writing.written)
        sync_said(s, f.datasync(f.ctx, b.writing.fd))
    free(r.scratch)


cdef void store_figures(Store* s, StoreFigures* out) noexcept nogil:
    cdef uint32_t i
    out.used = 0
    for i in range(s.n_blocks):
        out.used += st_load(&block_i(s, i).used)
    out.nodes = s.x.n_nodes
    out.index = index_size(&s.x)
