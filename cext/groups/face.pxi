# What the control plane asks of a group, whoever owns it: short calls under the lock, without the GIL.

cdef dict ROLES = {
    RAFT_FOLLOWER: "follower", RAFT_CANDIDATE: "candidate", RAFT_ELECTED: "elected", RAFT_LEADER: "leader",
    RAFT_STOPPED: "stopped",
}

State = namedtuple("State", "index term data")
Found = namedtuple("Found", "fresh lost aside records state")
GroupState = namedtuple(
    "GroupState", "role term leader first last last_term commit applied stored size quorum members lost diverged error bytes vote"
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


cdef object found_of(RaftFound* found):
    try:
        return Found(
            bool(found.fresh), bool(found.lost), found.aside, found.records,
            State(found.snapshot_index, found.snapshot_term, span_bytes(found.state)),
        )
    finally:
        bytes_free(&found.file)


class GroupError(OSError):
    """A group's disk, or what is on it, stands in the way; the text says what."""


cdef class GroupFace:
    """What is asked of a group, whoever owns it. After close() its methods raise ValueError. Peers are the eight characters of
    their ids. What a group that does not lead cannot do is False."""

    cdef int check(self, bint open) except -1:
        if not open:
            raise ValueError("the group is closed")
        return 0

    cdef bint enter(self) noexcept nogil:
        return self.of.box.enter() and self.g != NULL

    cdef void leave(self) noexcept nogil:
        self.of.box.leave()

    cdef int asked(self, int rc) noexcept nogil:
        if rc == RAFT_NO_MEMORY:
            raft_failed(self.g.raft)
        group_due(self.g)
        return rc

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
            s.quorum, s.members, bool(s.lost), bool(diverged), error, size, peer_text(s.vote),
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

    def hand_over(self, bytes to not None=b""):
        """Another member leads: this one, or any that has most of the log. False: this member does not lead."""
        cdef uint64_t peer = peer_number(to) if to else 0
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.enter()
            if open:
                rc = self.asked(raft_hand_over(self.g.raft, peer))
            self.leave()
        self.check(open)
        return rc == RAFT_OK

    def choose(self, bint alone=True):
        """This member is to lead a new group first: it asks for votes as soon as it sees enough others. `alone`: the others
        leave it to this one; else any of them may."""
        cdef FirstLeader first = FIRST_OWN if alone else FIRST_ANY
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                raft_choose(self.g.raft, first)
                self.g.look = 0
                self.g.look_pause = LOOK_MIN
                group_due(self.g)
            self.leave()
        self.check(open)

    def gone(self, bytes peer not None):
        """The way to this member broke, or it says that it stops: where it led, another one is looked for at once."""
        cdef uint64_t id = peer_number(peer)
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.asked(raft_gone(self.g.raft, id))
            self.leave()
        self.check(open)

    def add_peer(self, bytes peer not None):
        """False: this member does not lead, or another change of the members is not committed yet."""
        cdef uint64_t id = peer_number(peer)
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.enter()
            if open:
                rc = self.asked(raft_add_peer(self.g.raft, id))
            self.leave()
        self.check(open)
        return rc == RAFT_OK

    def remove_peer(self, bytes peer not None):
        """As add_peer; the last one stays, too."""
        cdef uint64_t id = peer_number(peer)
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.enter()
            if open:
                rc = self.asked(raft_remove_peer(self.g.raft, id))
            self.leave()
        self.check(open)
        return rc == RAFT_OK

    def assign(self, list peers not None):
        """The members that the group is to have from now on: its leader sees to it. No peers: nobody says."""
        cdef uint64_t ids[RAFT_PEERS_MAX]
        cdef uint32_t n = 0
        cdef bint open
        if len(peers) > RAFT_PEERS_MAX:
            raise ValueError(f"a group has {RAFT_PEERS_MAX} members at most")
        for peer in peers:
            ids[n] = peer_number(peer)
            n += 1
        with nogil:
            open = self.enter()
            if open:
                self.asked(raft_assign(self.g.raft, ids, n))
            self.leave()
        self.check(open)

    def set_peers(self, list peers not None):
        """The members are these, as of now, one after another where they are not yet. False: they cannot be."""
        cdef uint64_t ids[RAFT_PEERS_MAX]
        cdef uint32_t n = 0
        cdef bint open
        cdef int rc = 0
        if not 0 < len(peers) <= RAFT_PEERS_MAX:
            raise ValueError(f"a group has 1 to {RAFT_PEERS_MAX} members")
        for peer in peers:
            ids[n] = peer_number(peer)
            n += 1
        with nogil:
            open = self.enter()
            if open:
                rc = self.asked(raft_set_peers(self.g.raft, ids, n))
            self.leave()
        self.check(open)
        return rc == RAFT_OK
