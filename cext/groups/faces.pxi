# Groups that the control plane owns.

cdef enum:
    TAKEN_BYTES = 1 << 20       # bytes of records that take() returns at most

EntryTaken = namedtuple("EntryTaken", "index term type data")
Taken = namedtuple("Taken", "state entries")


cdef list entries_of(const uint8_t* p, size_t n):
    # Reads whole records, each a length and its bytes.
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


cdef class RaftGroups:
    """The groups of a server; their messages travel in one account. Any thread may call any method.

    Create it once the store is open, call run() in a thread of its own, and open groups. At the end close the groups, call end(),
    and when run() has returned call close(), all before the data plane is closed.
    """

    def __cinit__(self, EnvBox plane not None, account not None, uint64_t serving_most=64 << 20):
        # `serving_most`: the most bytes under way to members that lack messages of streams, above 0.
        cdef void* a = PyCapsule_GetPointer(account.pointer(), b"jsserver.Account")
        if plane.committer == NULL:
            raise RuntimeError("groups need an open store")
        self.box = plane
        self.account = account
        self.all = groups_new(plane.env, plane.committer, a)
        if self.all == NULL:
            raise MemoryError
        self.all.serving_most = serving_most

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
        """Frees the groups. Call it after run() has returned and all groups are closed."""
        if self.all != NULL:
            groups_free(self.all)
            self.all = NULL

    def open(self, directory, bytes name not None, bytes id not None, *, bytes peers not None, bint observer):
        """Opens a group in its existing directory. peers: a PeerState with the members of a new group; observer: as in observe().
        GroupError."""
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
            made.g = group_open(self.all, where, group, &cfg, given, False, False, &found, err, sizeof(err))
            self.box.enter()
            self.box.leave()
        if made.g == NULL:
            raise GroupError((<bytes>err).decode("utf-8", "replace"))
        made.of = self
        made.number = made.g.number
        made.found = found_of(&found)
        return made

cdef class RaftGroup(GroupFace):
    """A group that the control plane owns; RaftGroups.open() makes it."""

    def close(self):
        """Stops the group, and closes its log."""
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
        """Returns committed entries that were not taken yet, up to a MiB: a leader's State that replaces all before, or None;
        then entries of all types in order. Both empty: there is nothing. Call applied() with the last index next. GroupError: an
        entry cannot be read."""
        cdef Bytes records, state
        cdef uint64_t index = 0, term = 0
        cdef bint open, whole = True
        memset(&records, 0, sizeof(Bytes))
        memset(&state, 0, sizeof(Bytes))
        with nogil:
            open = self.enter()
            if open:
                index = group_state_take(self.g, &term, &state)
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
        """Notes that the taken entries are applied up to this index."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                group_applied(self.g, index)
            self.leave()
        self.check(open)

    def snapshot(self, uint64_t term, uint64_t index, bytes state not None):
        """Replaces the log up to this index by a snapshot of the applied state; run() writes it. False: another snapshot is being
        written, or there is no memory."""
        cdef Span given = span_of(state)
        cdef int rc = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                rc = group_snapshot(self.g, term, index, given)
            self.leave()
        self.check(open)
        if rc == RAFT_TOO_LARGE:
            raise ValueError("the state is too large for a snapshot")
        return rc == 0

    def propose(self, bytes data not None):
        """Proposes an entry to the group. False: this member does not lead, or has not applied all entries of earlier terms."""
        cdef Span entry = span_of(data)
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.enter()
            if open:
                rc = group_propose(self.g, ENTRY_NORMAL, entry)
            self.leave()
        self.check(open)
        if rc == RAFT_TOO_LARGE:
            raise ValueError("the entry is too large for the log")
        return rc == 0
