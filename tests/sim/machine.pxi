# Clock, random bytes and threads of the simulated environment, and its face.

cdef int64_t sim_clock(void* ctx) noexcept nogil:
    return (<Disk*> ctx).env.mono


cdef int64_t sim_wall(void* ctx) noexcept nogil:
    return (<Disk*> ctx).env.now


cdef void sim_random(void* ctx, void* p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        (<uint8_t*> p)[i] = <uint8_t> rand(<Disk*> ctx)


cdef int sim_start(void* ctx, Thread* t, void* (*main)(void* arg) noexcept nogil, void* arg) noexcept nogil:
    return EAGAIN


cdef void sim_join(void* ctx, Thread t) noexcept nogil:
    fatal("there is one thread only")


cdef void sim_lock(void* ctx, Mutex* m) noexcept nogil:
    pass


cdef void sim_unlock(void* ctx, Mutex* m) noexcept nogil:
    pass


cdef void sim_wait(void* ctx, Cond* c, Mutex* m, int64_t deadline) noexcept nogil:
    fatal("the only thread waits for another")


cdef void sim_signal(void* ctx, Cond* c) noexcept nogil:
    pass


cdef void sim_notify(void* ctx, int eventfd) noexcept nogil:
    pass


cdef object CALLS = ("write", "sync", "open", "truncate", "rename", "unlink", "mkdir", "read")


cdef class SimDisk:
    """A disk that outlives the environments that use it, one after the other."""
    cdef Disk d
    cdef FileOps files
    cdef System system

    def __cinit__(self, uint64_t seed, bint loose=False, bint ignores_syncs=False):
        cdef FileOps* f = &self.files
        cdef System* s = &self.system
        memset(&self.d, 0, sizeof(Disk))
        self.d.random = seed
        self.d.loose = loose
        self.d.ignores_syncs = ignores_syncs
        self.d.cut_after = -1
        self.d.room = INT64_MAX
        inode_new(&self.d, True)
        f.open = sim_open
        f.close = sim_close
        f.pwrite = sim_pwrite
        f.pread = sim_pread
        f.datasync = sim_datasync
        f.sync_all = sim_sync_all
        f.truncate = sim_truncate
        f.size = sim_size
        f.time = sim_time
        f.set_time = sim_set_time
        f.direct = sim_direct
        f.rename = sim_rename
        f.unlink = sim_unlink
        f.mkdir = sim_mkdir
        f.rmdir = sim_rmdir
        f.sync_dir = sim_sync_dir
        f.is_dir = sim_is_dir
        f.names = sim_names
        f.map = sim_map
        f.map_over = sim_map_over
        f.unmap = sim_unmap
        f.cool = sim_cool
        f.resident = sim_resident
        f.warm = sim_warm
        f.ctx = &self.d
        s.clock = sim_clock
        s.wall = sim_wall
        s.random = sim_random
        s.start = sim_start
        s.join = sim_join
        s.lock = sim_lock
        s.unlock = sim_unlock
        s.wait = sim_wait
        s.signal = sim_signal
        s.broadcast = sim_signal
        s.notify = sim_notify
        s.ctx = &self.d

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.d.n_inodes):
            bytes_free(&self.d.inodes[i].now)
            bytes_free(&self.d.inodes[i].disk)
            free(self.d.inodes[i].sectors)
        for i in range(self.d.n_maps):
            pages_free(self.d.maps[i].p, self.d.maps[i].n)
        free(self.d.inodes)
        free(self.d.now.a)
        free(self.d.disk.a)
        free(self.d.pending.a)
        free(self.d.fds)
        free(self.d.maps)

    # ---- an environment on it ----

    def attach(self, EnvBox box, int64_t sync_interval=0) -> None:
        """This environment's files, clocks and commits are simulated from now on."""
        self.d.env = box.env
        box.env.files = &self.files
        box.env.system = &self.system
        box.committer = committer_new(box.env, sync_interval, -1)
        if box.committer == NULL:
            raise MemoryError

    def detach(self, EnvBox box) -> None:
        """After all its streams are closed."""
        committer_free(box.committer)
        box.committer = NULL

    def commit(self, EnvBox box) -> None:
        """What the commit thread does by now."""
        with nogil:
            commit_inline(box.committer, box.env.mono)
            env_lock(box.env)
            committer_poll(box.committer)
            task_run(&box.env.tasks, 100000)
            env_unlock(box.env)

    def upkeep(self, EnvBox box) -> None:
        """What the maintenance thread does by now."""
        with nogil:
            keeper_turn(box.committer)
        self.commit(box)

    # ---- what goes wrong ----

    def cut_after(self, int64_t calls) -> None:
        """The power goes at the call after so many."""
        self.d.cut_after = calls

    @property
    def dead(self) -> bool:
        return self.d.dead

    def cut(self) -> None:
        """The power is there again, and what was not synced is there or not."""
        power_cut(&self.d)

    def fail(self, str call, int error, int64_t after=0, int64_t times=1) -> None:
        cdef int at = CALLS.index(call)
        self.d.faults[at] = error
        self.d.after[at] = after
        self.d.times[at] = times

    def mend(self) -> None:
        """Nothing fails any more, and there is room."""
        memset(self.d.times, 0, sizeof(self.d.times))
        self.d.room = INT64_MAX

    def room(self, int64_t more) -> None:
        """So many bytes may be written beyond what there is."""
        self.d.room = self.d.used + more

    @property
    def calls(self) -> int:
        return self.d.calls

    # ---- what the control plane does to files ----

    def mkdir(self, bytes path not None) -> None:
        """With its name on disk."""
        cdef bytes parent = path.rpartition(b"/")[0] or b"/"
        sim_mkdir(&self.d, path, 0o700)
        sim_sync_dir(&self.d, parent)

    def names(self, bytes path not None) -> list:
        cdef Bytes b
        memset(&b, 0, sizeof(b))
        sim_names(&self.d, path, &b)
        try:
            return sorted((<const char*> b.data)[:b.n].split(b"\0")[:-1])
        finally:
            bytes_free(&b)

    def remove(self, bytes path not None) -> None:
        """A directory with all that is in it."""
        if sim_is_dir(&self.d, path):
            for name in self.names(path):
                self.remove(path + b"/" + name)
            sim_rmdir(&self.d, path)
        else:
            sim_unlink(&self.d, path)

    def read(self, bytes path not None) -> bytes:
        cdef char last[NAME_MAX]
        cdef uint32_t folder
        cdef uint32_t inode = lookup(&self.d, path, &folder, last)
        if inode == 0:
            raise FileNotFoundError(path)
        return (<const char*> inode_at(&self.d, inode).now.data)[:inode_at(&self.d, inode).now.n]


# ---- what the tests ask of a stream's store ----------------------------------------------------------------------

def ticket(StreamFace stream) -> int:
    """Of the last change."""
    cdef uint64_t t = 0
    with nogil:
        if stream.enter():
            t = store_ticket(stream.s.store)
        stream.box.leave()
    return t


def durable_ticket(StreamFace stream) -> int:
    """Also of a stream that failed."""
    cdef uint64_t t = 0
    with nogil:
        if stream.box.enter() and stream.s != NULL and stream.s.store != NULL:
            t = store_durable_ticket(stream.s.store)
        stream.box.leave()
    return t


def messages(StreamFace stream) -> dict:
    """Everything stored: sequence -> (subject, header, data). OSError when the power is gone meanwhile."""
    cdef Disk* d = <Disk*> stream.box.env.files.ctx
    cdef Record r
    cdef uint64_t start = 1
    cdef dict out = {}
    cdef int rc
    d.calm = True
    env_lock(stream.box.env)
    rc = store_next_warm(stream.s.store, NULL, start, &r, NULL)
    while rc == ST_OK:
        out[r.seq] = (span_bytes(r.subject), span_bytes(r.header), span_bytes(r.data))
        rc = store_next_warm(stream.s.store, NULL, r.seq + 1, &r, NULL)
    env_unlock(stream.box.env)
    d.calm = False
    if rc != ST_NOT_FOUND and d.dead:
        raise OSError(EIO, "the power is gone")
    if rc != ST_NOT_FOUND:
        raise ValueError(f"error {rc} after {len(out)} messages, at {r.seq}")
    return out
