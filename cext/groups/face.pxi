# Requests of the control plane to any group: short calls under the lock, without the GIL.

cdef dict ROLES = {
    RAFT_FOLLOWER: "follower", RAFT_CANDIDATE: "candidate", RAFT_ELECTED: "elected", RAFT_LEADER: "leader",
    RAFT_STOPPED: "stopped",
}

State = namedtuple("State", "index term data")
Found = namedtuple("Found", "fresh lost aside records state")
GroupState = namedtuple(
    "GroupState",
    "role term leader first last last_term commit applied stored size quorum members lost diverged error bytes vote met",
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
    """A group's disk or log is unusable; the text says why."""


cdef class GroupFace:
    """A group, whoever owns it. After close() all methods raise ValueError. Peers are ids of eight characters. False: the group
    does not lead, or cannot do it now."""

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
        """Sets whether this member is an observer: it asks for no votes. One that leads hands over to the member with the longest
        log."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                raft_observe(self.g.raft, observer)
                group_due(self.g)
            self.leave()
        self.check(open)

    def state(self):
        """The present GroupState."""
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
            s.quorum, s.members, bool(s.lost), bool(diverged), error, size, peer_text(s.vote), s.met,
        )

    def peers(self):
        """All known members as Peers, this one included: id, last index of the log that it has confirmed to this leader, ns since
        it was last heard (-1: never), whether it leads."""
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
        """Hands the lead to a member, or to any member with nearly the whole log. False: this member does not lead."""
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
        """Has this member of a new group ask for votes as soon as it sees enough other members. `alone`: the others leave the
        first lead to this member; otherwise any member may ask."""
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
        """A member is unreachable, or says that it stops. If it led, this member looks for another leader at once."""
        cdef uint64_t id = peer_number(peer)
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.asked(raft_gone(self.g.raft, id))
            self.leave()
        self.check(open)

    def add_peer(self, bytes peer not None):
        """Adds a member. False: this member does not lead, or an earlier change of members is not committed yet."""
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
        """Removes a member; as add_peer, and also False for the last one."""
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
        """Sets the members that the group is to have: its leader adds and removes them one by one. []: no wish."""
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
        """Changes the members to these, one after another. False: not possible now."""
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
