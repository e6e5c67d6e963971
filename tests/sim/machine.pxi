# Clock and random bytes of the simulated environment, and its face.

cdef int64_t sim_clock(void* ctx) noexcept nogil:
    return (<Disk*>ctx).env.mono


cdef int64_t sim_wall(void* ctx) noexcept nogil:
    return (<Disk*>ctx).env.now


cdef void sim_random(void* ctx, void* p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        (<uint8_t*>p)[i] = <uint8_t>rand(<Disk*>ctx)


cdef object CALLS = ("write", "sync", "open", "truncate", "rename", "unlink", "mkdir", "read")


cdef class SimDisk:
    """A disk that outlives the environments that use it, one after the other."""
    cdef Disk d
    cdef FileOps files
    cdef Encrypted* encrypted
    cdef System system
    cdef Thread reactor
    cdef readonly uint64_t redone
    """Frames of journals that starts brought into their files."""

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
        f.identity = sim_identity
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
        s.broadcast = sim_broadcast
        s.notify = sim_notify
        s.ctx = &self.d

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.d.n_inodes):
            bytes_free(&self.d.inodes[i].now)
            bytes_free(&self.d.inodes[i].disk)
            bytes_free(&self.d.inodes[i].torn)
            bytes_free(&self.d.inodes[i].missing)
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

    def attach(self, EnvBox box, int64_t sync_interval=0, bint threads=False, bytes secret=b"", bytes before=b"",
               CipherKind cipher=CIPHER_CHACHA, int64_t journal=0) -> None:
        """This environment's files, clocks and commits are simulated from now on. threads: it has a commit thread, a
        maintenance thread, one that fetches, and a reactor. secret: what is on the disk is encrypted with it, or yet with
        the secret `before`. journal: bytes of a segment of one that each round goes through, if there is no secret. OSError:
        what the journal has cannot be brought into the files; the environment has no commits."""
        cdef Thread thread
        cdef JournalReport report
        cdef int rc = 0
        self.d.env = box.env
        self.d.synced_at = box.env.mono
        box.env.files = &self.files
        box.env.system = &self.system
        box.committer = committer_new(box.env, sync_interval, 0, 0 if threads else -1)
        if box.committer == NULL:
            raise MemoryError
        self.d.committer = box.committer
        if journal:
            rc = committer_journal(box.committer, span(NULL, 0), <uint64_t>journal if not secret else 0, 0, &report)
            self.redone += report.frames
        if rc < 0:
            committer_free(box.committer)
            box.committer = self.d.committer = NULL
            raise OSError(-rc, "the journal")
        if secret:
            self.encrypted = encrypted_new(&self.files, &self.system, cipher, span_of(secret), span_of(before))
            box.env.files = encrypted_files(self.encrypted)
        if threads:
            self.d.rung = False
            self.d.leaving = False
            turns_begin(&self.d)
            sim_start(&self.d, &thread, commit_main, box.committer)
            sim_start(&self.d, &self.reactor, reactor_main, &self.d)

    def detach(self, EnvBox box) -> None:
        """After all its streams are closed."""
        if box.committer == NULL:
            return
        if self.d.n_turns:
            committer_stop(box.committer)
            sim_join(&self.d, COMMITS)
            self.d.leaving = True
            sim_notify(&self.d, 0)
            sim_join(&self.d, self.reactor)
            turns_end(&self.d)
        committer_free(box.committer)
        box.committer = NULL
        if self.encrypted != NULL:
            encrypted_free(self.encrypted)
            self.encrypted = NULL

    def commit(self, EnvBox box) -> None:
        """What the commit thread does by now."""
        with nogil:
            if self.d.n_turns:
                rest(&self.d)
            else:
                commit_inline(box.committer, box.env.mono)
                engine_turn(&self.d)

    def upkeep(self, EnvBox box) -> None:
        """What the maintenance thread does by now."""
        if self.d.n_turns == 0:
            with nogil:
                keeper_turn(box.committer)
        self.commit(box)

    # ---- what goes wrong ----

    def sync(self) -> None:
        """As syncfs of a start."""
        cdef int fd = sim_open(&self.d, b"/", 0, 0), rc
        rc = sim_sync_all(&self.d, fd) if fd >= 0 else fd
        if fd >= 0:
            sim_close(&self.d, fd)
        if rc < 0:
            raise OSError(-rc, "sync")

    def cut_after(self, int64_t calls) -> None:
        """The power goes at the call after so many."""
        self.d.cut_after = calls

    @property
    def dead(self) -> bool:
        return self.d.dead

    def cut(self, bint again=False) -> None:
        """The power is there again, and what was not synced is there or not. again: in a start after the last one."""
        power_cut(&self.d, again)

    def stop(self) -> None:
        """The process is killed: nothing is done from here on."""
        self.d.dead = True

    def kill(self) -> None:
        """Another process finds all that was written."""
        killed(&self.d)

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

    @property
    def whole_syncs(self) -> int:
        return self.d.whole_syncs

    @property
    def synced_at(self) -> int:
        return self.d.synced_at

    @property
    def doubtful(self) -> bool:
        """Since the last power cut a sync failed: what is read may not be on disk."""
        return self.d.doubtful

    @property
    def untold(self) -> bool:
        return failures_untold(&self.d)

    @property
    def writes(self) -> int:
        """Since the last sync of the whole."""
        return self.d.writes

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
            return sorted(name for name in (<const char*>b.data)[:b.n].split(b"\0") if name)
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

    cdef Inode* inode(self, bytes path) except NULL:
        cdef char last[NAME_MAX]
        cdef uint32_t folder
        cdef uint32_t inode = lookup(&self.d, path, &folder, last)
        if inode == 0:
            raise FileNotFoundError(path)
        return inode_at(&self.d, inode)

    def read(self, bytes path not None) -> bytes:
        cdef Inode* f = self.inode(path)
        return (<const char*>f.now.data)[:f.now.n]

    def write(self, bytes path not None, bytes data not None) -> None:
        """A file as a killed process leaves it."""
        cdef int fd
        self.d.calm = True
        fd = sim_open(&self.d, path, O_CREAT | O_TRUNC, 0o600)
        if fd < 0 or sim_pwrite(&self.d, fd, <const char*>data, <size_t>len(data), 0) < 0:
            fatal("a test cannot write")
        sim_close(&self.d, fd)
        self.d.calm = False

    def link(self, bytes path not None, bytes also not None) -> None:
        """Gives a file a second name on disk, as a power cut in the middle of a rename may."""
        cdef char last[NAME_MAX]
        cdef uint32_t folder
        cdef uint32_t inode = lookup(&self.d, path, &folder, last)
        lookup(&self.d, also, &folder, last)
        if inode == 0 or folder == 0:
            raise FileNotFoundError(path)
        self.d.change += 1
        name_set(&self.d, folder, last, inode)
        names_settle(&self.d, 0, self.d.change)

    def torn(self, bytes path not None, uint64_t at, uint64_t size) -> bool:
        """Whether the last power cut left a sector of these bytes in part, or of one that it left out they are so few that
        their being zeros says nothing."""
        cdef Inode* f = self.inode(path)
        return sectors_meet(&f.torn, at, at + size, SECTOR) or sectors_meet(&f.missing, at, at + size, FEW)


cdef bint sectors_meet(const Bytes* sectors, uint64_t start, uint64_t end, uint64_t most) noexcept nogil:
    # Whether some of the bytes from start to end, and not more than `most`, are in one of the sectors.
    cdef uint64_t i, first, last
    cdef size_t k = 0
    while k < sectors.n:
        memcpy(&i, sectors.data + k, 8)
        first = max(start, i * SECTOR)
        last = min(end, (i + 1) * SECTOR)
        if first < last and last - first <= most:
            return True
        k += 8
    return False


# ---- what the tests ask ------------------------------------------------------------------------------------------------

def name_seed(uint64_t seed) -> None:
    """What is said when the process has to end."""
    global present_seed
    present_seed = seed


def durable_ticket(StreamFace stream) -> int:
    """Also of a stream that failed."""
    cdef uint64_t t = 0
    with nogil:
        if stream.box.enter() and stream.s != NULL and stream.s.store != NULL:
            t = store_durable_ticket(stream.s.store)
        stream.box.leave()
    return t


def durable_seq(StreamFace stream) -> int:
    """Messages up to this sequence are on disk. A group that is just written may have them, and not their tickets yet."""
    cdef uint64_t seq = 0
    with nogil:
        if stream.box.enter() and stream.s != NULL and stream.s.store != NULL:
            seq = store_durable_seq(stream.s.store)
        stream.box.leave()
    return seq


def look(StreamFace stream) -> tuple:
    """The ticket of the last change, everything stored and whole, sequence -> (subject, header, data), and the last sequence;
    also of a stream that failed. OSError when the power is gone meanwhile."""
    cdef Disk* d = <Disk*>stream.box.env.system.ctx
    cdef Store* s = stream.s.store if stream.s != NULL else NULL
    cdef StoreState state
    cdef Record r
    cdef dict out = {}
    cdef int rc
    if s == NULL:
        raise ValueError("the stream is closed")
    d.calm = True
    env_lock(stream.box.env)
    rc = store_next_warm(s, NULL, 1, &r, NULL)
    while rc == ST_OK or rc == ST_DAMAGED:
        if rc == ST_OK:
            out[r.seq] = (span_bytes(r.subject), span_bytes(r.header), span_bytes(r.data))
        rc = store_next_warm(s, NULL, r.seq + 1, &r, NULL)
    store_state(s, &state)
    ticket = store_ticket(s)
    env_unlock(stream.box.env)
    d.calm = False
    if rc != ST_NOT_FOUND and d.dead:
        raise OSError(EIO, "the power is gone")
    if rc != ST_NOT_FOUND:
        raise ValueError(f"error {rc} after {len(out)} messages, at {r.seq}")
    return ticket, out, state.last_seq


def messages(StreamFace stream) -> dict:
    return look(stream)[1]
