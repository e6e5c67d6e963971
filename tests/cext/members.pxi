# A stream as a member of a group, as the group's driver would see it.

cdef void note_proposed(void* ctx) noexcept nogil:
    with gil:
        (<PyMember>ctx).proposed += 1


cdef class PyMember:
    """Makes a stream a member; lives as long as the stream. `proposed` counts how often it said that it has proposals,
    `results` are those of the last `commit`."""
    cdef TestEnv box
    cdef StreamFace face
    cdef readonly list results
    cdef readonly int proposed

    def __init__(self, TestEnv box not None, StreamFace face not None, uint64_t refused=0):
        cdef int rc
        self.box = box
        self.face = face
        self.results = []
        with nogil:
            env_lock(self.box.env)
            rc = member_open(self.face.s, refused, note_proposed, <void*>self)
            env_unlock(self.box.env)
        if rc < 0:
            raise MemoryError()

    def recovered(self) -> None:
        """All that the log had at the start is applied."""
        member_recovered(self.face.s)

    def commit(self, list entries not None) -> int:
        """Applies entries, each (index, data; None: one that is not the stream's); what member_apply answers at last.

        Tasks run between its turns.
        """
        cdef size_t n = len(entries), done = 0, at = 0
        cdef Committed* given = <Committed*>calloc(n + 1, sizeof(Committed))
        cdef int rc = ST_WAIT
        if given == NULL:
            raise MemoryError()
        for i, (index, data) in enumerate(entries):
            given[i].index = index
            given[i].normal = data is not None
            given[i].data = span_of(data) if data is not None else span(NULL, 0)
        while rc == ST_WAIT:
            with nogil:
                env_lock(self.box.env)
                rc = member_apply(self.face.s, given + at, n - at, &done)
                env_unlock(self.box.env)
            at += done
            self.box.run()
        self.results = [given[i].result for i in range(n)]
        free(given)
        return rc

    def lead(self) -> None:
        cdef int rc
        with nogil:
            env_lock(self.box.env)
            rc = member_lead(self.face.s)
            env_unlock(self.box.env)
        if rc < 0:
            raise MemoryError()
        self.box.run()

    def follow(self) -> None:
        with nogil:
            env_lock(self.box.env)
            member_follow(self.face.s)
            env_unlock(self.box.env)

    def asks(self) -> bool:
        """Whether new answers wait until the lead is confirmed."""
        return member_is_to_ask(self.face.s)

    def asked(self, uint64_t index, uint64_t round) -> None:
        """A quorum is asked for the new answers by this round, or by the record at the index (round 0)."""
        with nogil:
            env_lock(self.box.env)
            member_asked(self.face.s, index, round)
            env_unlock(self.box.env)

    def confirmed(self, uint64_t index, uint64_t round) -> None:
        """All up to this index is applied, and the lead is confirmed up to this round."""
        with nogil:
            env_lock(self.box.env)
            member_confirmed(self.face.s, index, round)
            env_unlock(self.box.env)

    def propose(self, bytes entry not None) -> int:
        """As the control plane does."""
        cdef StreamEntry e
        cdef Bytes kept
        cdef int rc
        memset(&kept, 0, sizeof(Bytes))
        assert change_get(span_of(entry), &kept, &e) == 1
        with nogil:
            env_lock(self.box.env)
            rc = member_propose(self.face.s, &e)
            env_unlock(self.box.env)
        bytes_free(&kept)
        return rc

    def proposals(self) -> list:
        """Entries, in their order."""
        cdef Bytes b
        cdef size_t at = 0
        cdef uint32_t n
        memset(&b, 0, sizeof(Bytes))
        with nogil:
            env_lock(self.box.env)
            member_take(self.face.s, &b)
            env_unlock(self.box.env)
        found = []
        while at < b.n:
            memcpy(&n, b.data + at, sizeof(n))
            at += sizeof(n)
            found.append((<const char*>b.data)[at:at + n])
            at += n
        bytes_free(&b)
        return found

    def applied(self, uint64_t index) -> int:
        """Up to which index all is applied when the last entry had this."""
        return member_applied(self.face.s, index)

    @property
    def refused(self) -> int:
        return member_refused(self.face.s)
