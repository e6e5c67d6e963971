# The journal of all stores of a server: a round that touches many files is made durable by one append and one sync.
#
# The bytes are written to their files as well, so that readers of the directory, after a kill too, find them there; what
# the files need not have any more is a sync of their own before the acks. That follows within about ten seconds, by the
# maintenance thread, and the segment is used again. Two segments take turns.
#
# Everything here is under the journal's own lock, which the commit thread holds for a whole round. So a sync that failed
# is known (`doubt`) before anybody takes a file for followed: then nothing of the page cache counts, and what the journal
# holds is written to its files once more. Order of locks: the engine's, the journal's, q.

cdef enum:
    FRAME_MAX = 8388608         # of a round; what does not fit is synced by itself
    JOURNAL_STEP = 524288       # a segment grows so far ahead: a sync that need not change its size is quicker

cdef int64_t FOLLOW = 10000000000           # ns until the files are synced, too
cdef int64_t JOURNAL_REST = 30000000000     # ns without a frame until the segments go


cdef inline void journal_lock(Committer* c) noexcept nogil:
    c.env.system.lock(c.env.system.ctx, &c.journal.lock)


cdef inline void journal_unlock(Committer* c) noexcept nogil:
    c.env.system.unlock(c.env.system.ctx, &c.journal.lock)


cdef inline bint is_live(const Committer* c, uint64_t use) noexcept nogil:
    # Whether what was put into the journal in that use of a segment is not followed yet.
    return use > c.journal.followed


cdef Segment* journal_active(Journal* j) noexcept nogil:
    return &j.segments[j.active]


cdef void segment_path(const Journal* j, const Segment* g, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/%u", j.dir, <unsigned int>(1 + (g == &j.segments[1])))


cdef bint path_below(const Journal* j, const char* path, Span* out) noexcept nogil:
    # The path without the directory that the journal is in.
    cdef size_t n = strlen(path)
    if n <= j.root_n + 1 or memcmp(path, j.root, j.root_n) or path[j.root_n] != c'/' or n - j.root_n > JOURNAL_PATH:
        return False
    out[0] = span(path + j.root_n + 1, <uint32_t>(n - j.root_n - 1))
    return path_stays_below(out[0])


# ---- segments ------------------------------------------------------------------------------------------------------

cdef int segment_begin(Committer* c, Segment* g) noexcept nogil:
    # A new use: from here on no frame of an earlier one counts. 0 or -errno.
    cdef Journal* j = &c.journal
    cdef FileOps* f = c.env.files
    cdef char path[JOURNAL_PATH + 64]
    cdef int64_t rc = 0
    g.ready = False
    if g.fd < 0:
        segment_path(j, g, path, sizeof(path))
        g.fd = f.open(f.ctx, path, O_RDWR | O_CREAT, 0o600)
        if g.fd < 0:
            rc = g.fd
            g.fd = -1
            return <int>rc
        g.size = 0
        g.direct = f.direct(f.ctx, g.fd, True) == 0
    c.env.system.random(c.env.system.ctx, g.key, sizeof(g.key))
    memset(j.page, 0, PAGE)
    segment_head(j.page, j.use + 1, g.key)
    rc = segment_write(c, g, j.page, PAGE, 0)
    rc = f.datasync(f.ctx, g.fd) if rc == 0 else rc
    if rc < 0:
        return <int>rc
    j.use += 1
    g.use = j.use
    g.at = PAGE
    g.frames = 0
    g.size = max(g.size, <uint64_t>PAGE)
    g.paths.n = 0
    g.ready = True
    return 0


cdef int segment_write(Committer* c, Segment* g, const uint8_t* p, uint64_t n, uint64_t at) noexcept nogil:
    # Whole pages. 0 or -errno.
    cdef FileOps* f = c.env.files
    cdef int64_t rc = f.pwrite(f.ctx, g.fd, p, n, <off_t>at)
    if rc == -EINVAL and g.direct:
        g.direct = False
        f.direct(f.ctx, g.fd, False)
        rc = f.pwrite(f.ctx, g.fd, p, n, <off_t>at)
    return <int>min(rc, <int64_t>0)


cdef int journal_open(Committer* c) noexcept nogil:
    # Where there are no segments: makes both. 0 or -errno.
    cdef Journal* j = &c.journal
    cdef FileOps* f = c.env.files
    cdef int rc = f.mkdir(f.ctx, j.dir, 0o700)
    cdef char path[JOURNAL_PATH + 64]
    cdef uint32_t i
    st_store(&c.shared.doubt, 0)    # of what no sync has to follow
    if rc == 0 or rc == -EEXIST:
        rc = witness_make(f, j.root)
        snprintf(path, sizeof(path), "%s/", j.root)
        rc = f.sync_dir(f.ctx, path) if rc == 0 else rc
    j.state = JOURNAL_BROKEN        # until all is there
    for i in range(2):
        rc = segment_begin(c, &j.segments[i]) if rc == 0 else rc
    rc = f.sync_dir(f.ctx, j.dir) if rc == 0 else rc
    if rc == 0:
        j.state = JOURNAL_OPEN
        j.active = 0
    return rc


cdef int journal_remove(Committer* c, bint damaged) noexcept nogil:
    # Nothing in it counts any more. damaged: its bytes are kept aside. 0 or -errno.
    cdef Journal* j = &c.journal
    cdef uint64_t uses[2]
    cdef Segment* g
    cdef uint32_t i
    cdef int rc
    for i in range(2):
        g = &j.segments[i]
        uses[i] = g.use
        if g.fd >= 0:
            c.env.files.close(c.env.files.ctx, g.fd)
        g.fd = -1
        g.ready = False
    rc = segments_unlink(c.env.files, j.dir, uses, damaged)
    if rc == 0:
        witness_end(c.env.files, j.root)
    for i in range(2):
        j.segments[i].frames = 0 if rc == 0 else j.segments[i].frames
        j.segments[i].paths.n = 0 if rc == 0 else j.segments[i].paths.n
    if rc == 0:
        j.state = JOURNAL_IDLE
    return rc


# ---- what is put into it -----------------------------------------------------------------------------------------------

cdef bint journal_add(Committer* c, EntryKind kind, const char* path, uint64_t off, const void* p, uint64_t n) noexcept nogil:
    # An entry of the next frame; False: there is no room for it, or no journal.
    cdef Journal* j = &c.journal
    cdef Entry e
    e.kind = kind
    e.off = off
    if j.frame == NULL or n > FRAME_MAX or not path_below(j, path, &e.path):
        return False
    e.data = span(p, <uint32_t>n)
    if j.n + ENTRY_HEAD + e.path.n + n > FRAME_MAX:
        return False
    j.n += entry_put(j.frame + j.n, &e)
    return True


cdef bint journal_note(Committer* c, const char* path, uint64_t off, const void* a, uint64_t n_a, const void* b, uint64_t n_b,
                       uint64_t* use) noexcept nogil:
    # Bytes that are written to a file at `off`, in two parts; use: the last one that its bytes were put in.
    cdef Journal* j = &c.journal
    cdef uint64_t start = j.n
    cdef Segment* g
    cdef Span rel
    if not journal_add(c, ENTRY_WRITE, path, off, a, n_a) or (n_b and not journal_add(c, ENTRY_WRITE, path, off + n_a, b, n_b)):
        j.n = start
        return False
    # Which segment takes the frame is known by now: journal_ready has seen to it that there is room.
    g = journal_active(j)
    if use[0] != g.use:
        path_below(j, path, &rel)
        if bytes_reserve(&g.paths, rel.n + 1) < 0:
            j.n = start
            return False
        bytes_add(&g.paths, rel.p, rel.n)
        bytes_add(&g.paths, b"", 1)
        use[0] = g.use
    return True


cdef bint journal_ready(Committer* c, uint64_t need) noexcept nogil:
    # Whether so many bytes can be put into it.
    cdef Journal* j = &c.journal
    cdef Segment* g
    cdef int64_t now
    if j.state == JOURNAL_IDLE:
        now = env_clock(c.env)
        if j.frame == NULL:
            j.frame = <uint8_t*>pages_new(FRAME_MAX + JOURNAL_STEP + PAGE)
            j.page = j.frame + FRAME_MAX + JOURNAL_STEP if j.frame != NULL else NULL
        if j.frame == NULL or now < j.again_at:
            return False
        j.n = FRAME_HEAD
        if journal_open(c) < 0:
            journal_broke(c)
    if j.state != JOURNAL_OPEN:
        return False
    g = journal_active(j)
    if g.at + page_up(need) > j.size:
        g = &j.segments[1 - j.active]
        if not g.ready or g.frames or g.at + page_up(need) > j.size:
            return False
        j.active = 1 - j.active
        journal_due(c, env_clock(c.env))
    return True


cdef void journal_due(Committer* c, int64_t at) noexcept nogil:
    # The maintenance thread looks after it by then.
    q_lock(c)
    if at < c.queue.follow_at:
        c.queue.follow_at = at
        q_signal(c, &c.chores)
    q_unlock(c)


cdef void journal_broke(Committer* c) noexcept nogil:
    # It takes nothing more; what it holds is still needed until the files are synced.
    cdef int64_t now = env_clock(c.env)
    c.journal.state = JOURNAL_BROKEN
    c.journal.n = FRAME_HEAD
    c.journal.again_at = now + JOURNAL_REST
    journal_due(c, now if st_load(&c.shared.full) else now + FOLLOW)


cdef bint journal_commit(Committer* c) noexcept nogil:
    # Appends what was put into it, and syncs; False: nothing of it is there.
    cdef Journal* j = &c.journal
    cdef FileOps* f = c.env.files
    cdef Segment* g = journal_active(j)
    cdef uint64_t n = page_up(j.n)
    cdef int rc
    if j.state != JOURNAL_OPEN or g.at + n > j.size:
        j.n = FRAME_HEAD
        return False
    if j.n == FRAME_HEAD:
        return True
    frame_head(j.frame, <uint32_t>j.n, g.frames, g.key)
    if g.at + n > g.size and not st_load(&c.shared.full):
        n = min(n + JOURNAL_STEP, j.size - g.at)
    memset(j.frame + j.n, 0, n - j.n)
    rc = segment_write(c, g, j.frame, n, g.at)
    rc = f.datasync(f.ctx, g.fd) if rc == 0 else rc
    if rc < 0:
        journal_broke(c)
        return False
    g.size = max(g.size, g.at + n)
    g.at += page_up(j.n)
    g.frames += 1
    j.n = FRAME_HEAD
    j.last_at = env_clock(c.env)
    journal_due(c, j.last_at + FOLLOW)
    return True


# ---- the files follow ---------------------------------------------------------------------------------------------------

cdef int path_sync(FileOps* f, const char* path) noexcept nogil:
    # A file of that name, if it is there. 0 or -errno.
    cdef int fd = f.open(f.ctx, path, O_RDONLY, 0)
    cdef int rc
    if fd < 0:
        return 0 if fd == -ENOENT or fd == -ENOTDIR else fd
    rc = f.datasync(f.ctx, fd)
    f.close(f.ctx, fd)
    return rc


cdef int paths_sync(Committer* c, const Bytes* paths, const char* below) noexcept nogil:
    # Those below that directory, NULL: all. 0, or -errno of one.
    cdef Journal* j = &c.journal
    cdef FileOps* f = c.env.files
    cdef char path[2 * JOURNAL_PATH]
    cdef size_t n = strlen(below) if below != NULL else 0
    cdef const char* name = name_after(paths, NULL)
    cdef int rc = 0, one
    while name != NULL:
        snprintf(path, sizeof(path), "%s/%s", j.root, name)
        name = name_after(paths, name)
        if n and (strlen(path) < n or memcmp(path, below, n) or (path[n] != 0 and path[n] != c'/')):
            continue
        one = path_sync(f, path)
        rc = rc if rc < 0 else one
    return rc


cdef void files_sync(Committer* c, const char* below) noexcept nogil:
    # With its lock held: syncs what both segments have, below that directory; NULL: all. After an error it is in doubt.
    cdef Journal* j = &c.journal
    if paths_sync(c, &j.segments[0].paths, below) < 0 or paths_sync(c, &j.segments[1].paths, below) < 0:
        st_store(&c.shared.doubt, 1)


cdef int journal_clear(Committer* c) noexcept nogil:
    # With its lock held: all that it holds is in the files and on disk, and it is gone. 0 or -errno.
    cdef Journal* j = &c.journal
    cdef JournalReport report
    cdef int rc = 0
    if j.state != JOURNAL_OPEN and j.state != JOURNAL_BROKEN:
        return 0
    memset(&report, 0, sizeof(report))
    if not st_load(&c.shared.doubt):
        files_sync(c, NULL)
    if st_load(&c.shared.doubt):
        rc = journal_redo(c.env.files, j.root, j.dir, False, &report)
        if is_full(rc) and ballast_give(c, rc):
            rc = journal_redo(c.env.files, j.root, j.dir, False, &report)
    rc = journal_remove(c, report.damaged) if rc == 0 else rc
    if rc < 0:
        journal_broke(c)
        return rc
    st_store(&c.shared.doubt, 0)
    j.followed = j.use
    return 0


cdef void journal_follow(Committer* c) noexcept nogil:
    # The maintenance thread, without locks: the files of the segment that was begun first are synced, and it is used again.
    cdef Journal* j = &c.journal
    cdef Segment* g
    cdef Bytes paths
    cdef uint64_t use
    cdef int rc
    memset(&paths, 0, sizeof(paths))
    journal_lock(c)
    g = &j.segments[1 - j.active]
    if j.state == JOURNAL_OPEN and g.frames == 0 and journal_active(j).frames and g.ready:
        j.active = 1 - j.active
        g = &j.segments[1 - j.active]
    if st_load(&c.shared.doubt) or j.state != JOURNAL_OPEN:
        journal_clear(c)
    elif g.frames == 0 and env_clock(c.env) < j.last_at + JOURNAL_REST:
        journal_due(c, j.last_at + JOURNAL_REST)
    elif g.frames == 0 or bytes_add(&paths, g.paths.data, g.paths.n) < 0:
        journal_clear(c)
    else:
        use = g.use
        journal_unlock(c)
        rc = paths_sync(c, &paths, NULL)
        journal_lock(c)
        if rc < 0:
            st_store(&c.shared.doubt, 1)
        if j.state == JOURNAL_OPEN and g.use == use:
            segment_followed(c, g)
    journal_unlock(c)
    bytes_free(&paths)


cdef void segment_followed(Committer* c, Segment* g) noexcept nogil:
    # Its files are synced, and since then no round was under way in which a sync failed: else it is in doubt.
    if st_load(&c.shared.doubt):
        journal_clear(c)
        return
    c.journal.followed = g.use
    if segment_begin(c, g) < 0:
        journal_broke(c)
    else:
        journal_due(c, env_clock(c.env) + FOLLOW)


cdef int journal_forget(Committer* c, EntryKind kind, const char* path) noexcept nogil:
    # With its lock held: what it holds for a file, or for all below a directory, which is on disk unless that is in doubt, counts
    # no more. From then on that may be another file. 0 or -errno.
    if (not st_load(&c.shared.doubt) and c.journal.state == JOURNAL_OPEN and journal_add(c, kind, path, 0, NULL, 0)
            and journal_commit(c)):
        return 0
    return journal_clear(c)


cdef int journal_forget_file(Committer* c, const char* path, uint64_t* use) noexcept nogil:
    # With its lock held, before a file of that path is cut or replaced. 0 or -errno.
    cdef int rc
    if not is_live(c, use[0]):
        return 0
    if path_sync(c.env.files, path) < 0:
        st_store(&c.shared.doubt, 1)
    rc = journal_forget(c, ENTRY_FORGET, path)
    if rc == 0:
        use[0] = 0
    return rc


cdef int journal_forget_store(Store* s) noexcept nogil:
    # Of a store that no thread knows any more, before its files are cut or go. 0 or -errno.
    cdef Committer* c = s.com
    cdef int rc = 0
    journal_lock(c)
    if is_live(c, s.writing.jot):
        files_sync(c, s.dir)
        rc = journal_forget(c, ENTRY_FORGET_ALL, s.dir)
    journal_unlock(c)
    return rc


cdef int journal_leave(Store* s) noexcept nogil:
    # Of a store that is closed: its files are complete by themselves. 0 or -errno.
    cdef Committer* c = s.com
    cdef int rc
    journal_lock(c)
    rc = journal_clear(c) if is_live(c, s.writing.jot) else 0
    journal_unlock(c)
    return rc


cdef int journal_sound(Committer* c) noexcept nogil:
    # Before a store is opened: whether what an earlier store of that directory may have left counts no more. 0 or -errno.
    cdef int rc
    journal_lock(c)
    rc = journal_clear(c) if c.journal.state == JOURNAL_BROKEN else 0
    journal_unlock(c)
    return rc


# ---- its life ---------------------------------------------------------------------------------------------------------

cdef int committer_journal(Committer* c, Span root, uint64_t size, uint32_t above, JournalReport* report) noexcept nogil:
    cdef Journal* j = &c.journal
    cdef int rc
    memset(report, 0, sizeof(JournalReport))
    if root.n + 32 > sizeof(j.root):
        return -ENAMETOOLONG
    if root.n:
        memcpy(j.root, root.p, root.n)
    j.root_n = root.n
    snprintf(j.dir, sizeof(j.dir), "%s/%s", j.root, JOURNAL_DIR)
    rc = journal_empty(c.env.files, j.root, False, report)
    if is_full(rc) and ballast_give(c, rc):
        rc = journal_empty(c.env.files, j.root, False, report)
    j.use = max(report.uses[0], report.uses[1])
    j.followed = j.use
    if rc == 0:
        j.state = JOURNAL_IDLE if size and c.sync_interval <= 0 else JOURNAL_OFF
        j.size = size
        j.above = above
    return rc


cdef void journal_init(Committer* c) noexcept nogil:
    cdef uint32_t i
    mutex_init(&c.journal.lock)
    c.queue.follow_at = INT64_MAX
    for i in range(2):
        c.journal.segments[i].fd = -1


cdef void journal_free(Committer* c) noexcept nogil:
    # It went with the last of the stores that had something in it, where they were closed.
    cdef Journal* j = &c.journal
    cdef uint32_t i
    for i in range(2):
        if j.segments[i].fd >= 0:
            c.env.files.close(c.env.files.ctx, j.segments[i].fd)
        bytes_free(&j.segments[i].paths)
    if j.frame != NULL:
        pages_free(j.frame, FRAME_MAX + JOURNAL_STEP + PAGE)
    mutex_free(&j.lock)
