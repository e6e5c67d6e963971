# Groups for the control plane: short calls under the lock, without the GIL.

cdef enum:
    TAKEN_BYTES = 1 << 20       # of records, that take() gives at a time

cdef dict ROLES = {
    RAFT_FOLLOWER: "follower", RAFT_CANDIDATE: "candidate", RAFT_ELECTED: "elected", RAFT_LEADER: "leader",
    RAFT_STOPPED: "stopped",
}

EntryTaken = namedtuple("EntryTaken", "index term type data")
State = namedtuple("State", "index term data")
Taken = namedtuple("Taken", "state entries")
Found = namedtuple("Found", "fresh lost aside records state")
GroupState = namedtuple(
    "GroupState", "role term leader first last last_term commit applied stored size quorum members lost diverged error bytes"
)
Peer = namedtuple("Peer", "id match silent leads")


cdef uint64_t peer_number(bytes id) except? 0:
    cdef uint64_t v = 0
    if len(id) != 8:
        raise ValueError(f"the id of a peer has eight characters, not {len(id)}")
    memcpy(&v, <const char*>id, 8)
    return v


cdef bytes span_bytes(Span s):
    return PyBytes_FromStringAndSize(<const char*>s.p, s.n)


cdef bytes peer_text(uint64_t id):
    return PyBytes_FromStringAndSize(<const char*>&id, 8) if id else b""


cdef list entries_of(const uint8_t* p, size_t n):
    # Of whole records: index, length, bytes.
    cdef list out = []
    cdef AppendEntry m
    cdef Entry e
    cdef Span rest
    cdef uint64_t length
    cdef size_t at = 0
    while at < n:
        memcpy(&length, p + at, 8)
        at += 8
        if append_entry_read(span(p + at, <uint32_t>length), &m):
            rest = m.entries
            while entry_next(&rest, &e):
                out.append(EntryTaken(m.pindex + 1, m.term, <int>e.type, span_bytes(e.data)))
        at += length
    return out


class GroupError(OSError):
    """A group's disk, or what is on it, stands in the way; the text says what."""


cdef class RaftGroups:
    """The groups of one server, which speak in one account. Every method may be called from any thread.

    Life: make it once the store is open, call run() in a thread of its own, open groups; close these, then end(), and after
    run() returned close(): before the data plane is closed.
    """

    cdef EnvBox box
    cdef object account         # its handle, which keeps it
    cdef Groups* all

    def __cinit__(self, EnvBox plane not None, account not None):
        cdef void* a = PyCapsule_GetPointer(account.pointer(), b"jsserver.Account")
        if plane.committer == NULL:
            raise RuntimeError("groups need an open store")
        self.box = plane
        self.account = account
        self.all = groups_new(plane.env, plane.committer, a)
        if self.all == NULL:
            raise MemoryError

    def run(self):
        """Writes the small files of groups until end()."""
        cdef bint more = True
        with nogil:
            while more:
                more = groups_round(self.all)
                self.box.enter()
                self.box.leave()

    def end(self):
        with nogil:
            self.box.enter()
            groups_end(self.all)
            self.box.leave()

    def close(self):
        """After run() returned and every group was closed."""
        if self.all != NULL:
            groups_free(self.all)
            self.all = NULL

    def open(self, directory, bytes name not None, bytes id not None, *, bytes peers not None, bint observer):
        """A RaftGroup from its directory, which is there, and what that had. peers: a PeerState, for a group that has none
        yet; observer: as observe(). GroupError."""
        cdef RaftGroup made = RaftGroup.__new__(RaftGroup)
        cdef bytes path = os.fsencode(directory)
        cdef Span where = span_of(path), group = span_of(name), given = span_of(peers)
        cdef RaftConfig cfg
        cdef RaftFound found
        cdef char err[512]
        memset(&cfg, 0, sizeof(RaftConfig))
        cfg.id = peer_number(id)
        cfg.observer = observer
        err[0] = 0
        with nogil:
            self.box.lock()
            cfg.seed = env_secret(self.box.env)
            self.box.leave()
            made.g = group_open(self.all, where, group, &cfg, given, &found, err, sizeof(err))
            self.box.enter()
            self.box.leave()
        if made.g == NULL:
            raise GroupError((<bytes>err).decode("utf-8", "replace"))
        made.of = self
        made.number = made.g.number
        try:
            made.found = Found(
                bool(found.fresh), bool(found.lost), found.aside, found.records,
                State(found.snapshot_index, found.snapshot_term, span_bytes(found.state)),
            )
        finally:
            bytes_free(&found.file)
        return made


cdef class RaftGroup:
    """A group of this server. RaftGroups.open() makes it. After close() its methods raise ValueError."""

    cdef RaftGroups of
    cdef Group* g
    cdef readonly uint64_t number       # by which the inbox names it
    cdef readonly object found

    cdef int check(self, bint open) except -1:
        if not open:
            raise ValueError("the group is closed")
        return 0

    cdef bint enter(self) noexcept nogil:
        return self.of.box.enter() and self.g != NULL

    cdef void leave(self) noexcept nogil:
        self.of.box.leave()

    def close(self):
        """Says and hears nothing more, and lets go of its directory."""
        cdef Group* g = NULL
        with nogil:
            if self.enter():
                g = self.g
                self.g = NULL
                group_stop(g)
            self.leave()
            if g != NULL:
                group_close(g)

    def take(self):
        """What is committed and was not taken before, up to a MiB of it: a leader's State that comes before all of it or
        None, and entries of all types in their order. Then applied() of the last index. None of both: there is nothing.
        GroupError: an entry cannot be read."""
        cdef Bytes records, state
        cdef uint64_t index = 0, term = 0
        cdef bint open, whole = True
        memset(&records, 0, sizeof(Bytes))
        memset(&state, 0, sizeof(Bytes))
        with nogil:
            open = self.enter()
            if open:
                index, term, state = self.g.state_index, self.g.state_term, self.g.state
                memset(&self.g.state, 0, sizeof(Bytes))
                self.g.state_index = 0
                whole = records_take(self.g, &records, TAKEN_BYTES)
            self.leave()
        try:
            self.check(open)
            if not whole and records.n == 0 and index == 0:
                raise GroupError("an entry of the log cannot be read")
            return Taken(
                State(index, term, span_bytes(span(state.data, <uint32_t>state.n))) if index else None,
                entries_of(records.data, records.n),
            )
        finally:
            bytes_free(&records)
            bytes_free(&state)

    def applied(self, uint64_t index):
        """What was taken is applied up to that index."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                raft_applied(self.g.raft, index)
                group_due(self.g)
            self.leave()
        self.check(open)

    def snapshot(self, uint64_t term, uint64_t index, bytes state not None):
        """What is applied up to that index, as it is to be kept instead of the log: written by run(). False: another one is
        being written, or there is no memory for it."""
        cdef Snapshot s
        cdef int rc = 0
        cdef bint open
        s.term, s.index, s.state = term, index, span_of(state)
        with nogil:
            open = self.enter()
            if open:
                s.peers = raftlog_peers(self.g.log)
                rc = raftlog_snapshot(self.g.log, &s)
            self.leave()
        self.check(open)
        if rc == RAFT_TOO_LARGE:
            raise ValueError("the state is too large for a snapshot")
        return rc == 0

    def observe(self, bint observer):
        """An observer asks for no votes; one that leads hands over to the member that has most of its log."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                raft_observe(self.g.raft, observer)
                group_due(self.g)
            self.leave()
        self.check(open)

    def state(self):
        """A GroupState as of now."""
        cdef RaftState s
        cdef bint open, diverged = False
        cdef int error = 0
        cdef uint64_t size = 0
        memset(&s, 0, sizeof(RaftState))
        with nogil:
            open = self.enter()
            if open:
                raft_state(self.g.raft, &s)
                diverged = self.g.diverged
                error = raftlog_error(self.g.log)
                size = raftlog_bytes(self.g.log)
            self.leave()
        self.check(open)
        return GroupState(
            ROLES[s.role], s.term, peer_text(s.leader), s.first, s.last, s.last_term, s.commit, s.applied, s.stored, s.size,
            s.quorum, s.members, bool(s.lost), bool(diverged), error, size,
        )

    def peers(self):
        """Members that are known, this one too, as Peers: id, what of the log a member confirmed to this leader, ns since it
        was heard (-1: it was not), whether it leads."""
        cdef Bytes found
        cdef RaftPeerState p
        cdef uint32_t n = 0
        cdef int64_t now = 0
        cdef bint open
        cdef size_t at = 0
        cdef list out = []
        memset(&found, 0, sizeof(Bytes))
        with nogil:
            open = self.enter()
            now = self.of.box.env.mono
            while open and raft_peer(self.g.raft, n, &p) and bytes_add(&found, &p, sizeof(p)) == 0:
                n += 1
            self.leave()
        try:
            self.check(open)
            while at < found.n:
                memcpy(&p, found.data + at, sizeof(p))
                at += sizeof(p)
                out.append(Peer(peer_text(p.id), p.match, now - p.heard if p.heard else -1, bool(p.leads)))
            return out
        finally:
            bytes_free(&found)
