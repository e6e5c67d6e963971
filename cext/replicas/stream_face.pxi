# Streams of Raft groups for the control plane.

cdef class StreamReplica(GroupFace):
    """A stream that is a member of a Raft group. open_stream_replica() makes it. After close() all methods raise ValueError."""

    cdef readonly StreamFace handle     # an ordinary stream's handle, for reading and updates
    cdef ReplicatedStream* r            # NULL: closed

    def leads(self):
        """Whether this server leads the stream and takes publishes."""
        cdef bint open, leads = False
        with nogil:
            open = self.enter()
            if open:
                leads = self.r.mode == REPLICA_LEADS
            self.leave()
        self.check(open)
        return leads

    def caught_up(self):
        """Whether there is a leader, and this member has applied all that it knows to be committed."""
        cdef RaftState s
        cdef bint open, current = False
        with nogil:
            open = self.enter()
            if open:
                raft_state(self.g.raft, &s)
                current = self.r.mode == REPLICA_LEADS or self.r.mode == REPLICA_FOLLOWS
                current = current and s.leader and self.r.given == s.commit and self.r.standing < STANDS_JOINS
            self.leave()
        self.check(open)
        return current

    def agree(self):
        """As soon as it leads, and before any other proposal, has the group agree on its present state."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.r.agrees = True
                stream_due(self.r)
            self.leave()
        self.check(open)

    def agreed(self):
        """Whether it leads, and the state that `agree` proposed is applied."""
        cdef bint open, done = False
        with nogil:
            open = self.enter()
            if open:
                done = self.r.mode == REPLICA_LEADS and not self.r.agrees and self.r.agreed <= self.r.given
            self.leave()
        self.check(open)
        return done

    def feeds(self):
        """Whether it is sending messages to a member that lacks them."""
        cdef bint open, feeds = False
        with nogil:
            open = self.enter()
            if open:
                feeds = self.r.serving != NULL and not list_empty(&self.r.serving.all)
            self.leave()
        self.check(open)
        return feeds

    def halted(self):
        """NEWS_FAILED or NEWS_DIVERGED, if it has stopped, also before the reader of the inbox knows it; else 0."""
        cdef bint open
        cdef int halted = 0
        with nogil:
            open = self.enter()
            if open:
                halted = self.r.halted
            self.leave()
        self.check(open)
        return halted

    def why(self):
        """Why the member has stopped; "": it has not."""
        cdef char text[256]
        cdef bint open
        text[0] = 0
        with nogil:
            open = self.enter()
            if open:
                memcpy(text, self.r.why, sizeof(text))
            self.leave()
        self.check(open)
        return (<bytes>text).decode("utf-8", "replace")

    def snapshot(self):
        """Asks for a snapshot soon, so that the log begins behind it."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.r.kept_pause = 0
                stream_due(self.r)
            self.leave()
        self.check(open)

    def propose_purge(self, *, bytes subject not None, bytes reply not None, bytes client not None, bytes filter not None=b"",
                      uint64_t seq=0, uint64_t keep=0):
        """A request of the API, which came on `subject`: REPLICA_PURGED tells its result, whoever leads by then.
        client: who asks, as JSON. filter, seq and keep as the request has them. False: this member does not lead."""
        cdef StreamEntry e
        memset(&e, 0, sizeof(StreamEntry))
        e.change.kind = CHANGE_PURGE
        e.change.subject = span_of(filter)
        e.change.seq = seq
        e.change.keep = keep
        e.api, e.reply, e.client = span_of(subject), span_of(reply), span_of(client)
        return self.propose(&e)

    def propose_delete(self, *, bytes subject not None, bytes reply not None, bytes client not None, uint64_t seq, bint erase):
        """Proposes to delete a message, as propose_purge; REPLICA_DELETED tells the result."""
        cdef StreamEntry e
        memset(&e, 0, sizeof(StreamEntry))
        e.change.kind = CHANGE_DELETE
        e.change.seq = seq
        e.change.erase = erase
        e.api, e.reply, e.client = span_of(subject), span_of(reply), span_of(client)
        return self.propose(&e)

    cdef object propose(self, StreamEntry* e):
        cdef StoreState state
        cdef bint open
        cdef int rc = ST_CLOSED
        with nogil:
            open = self.enter()
            if open and self.r.mode == REPLICA_LEADS:
                store_state(self.r.s.store, &state)
                e.stream = self.r.s.cfg.name
                e.last = state.last_seq
                rc = member_propose(self.r.s, e)
                self.r.asks = True
            self.leave()
        self.check(open)
        if rc != ST_OK and rc != ST_CLOSED:
            raise StoreError("out of memory")
        return rc == ST_OK

    def retire(self):
        """If this member leads, stops taking publishes, and hands over once those taken are answered."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                stream_leave(self.r)
            self.leave()
        self.check(open)

    def close(self, bint part=False):
        """Releases the stream, which changes no more, and the group's directory; the handle may be closed next. part: the stream
        goes on as this server's alone, and has to be activated."""
        cdef ReplicatedStream* r = NULL
        cdef Group* g = NULL
        with nogil:
            if self.enter():
                r = self.r
                g = self.g
                self.r = NULL
                self.g = NULL
                if part:
                    replicated_part(r)
                else:
                    replicated_stop(r)
            self.leave()
            if g != NULL:
                group_close(g)
                replicated_free(r)


def open_stream_replica(RaftGroups groups not None, StreamFace stream not None, group_directory, *, bytes name not None,
                        bytes id not None, bytes peers not None, ReplicaStanding standing, bytes sync not None,
                        bint synced=False):
    """A StreamReplica of an open stream, which stops running on its own. The group has an existing directory of its own; the log
    of a stream in memory is kept in memory. peers: a PeerState with the members of a new group; standing: MEMBER, or the standing
    of a new member, until REPLICA_JOINED; sync: the subject on which members ask the leader for messages. synced: what the
    group's directory has is on disk. GroupError, StoreError."""
    cdef StreamReplica made = StreamReplica.__new__(StreamReplica)
    cdef bytes path = os.fsencode(group_directory)
    cdef Span where = span_of(path), group = span_of(name), given = span_of(peers), asked = span_of(sync)
    cdef RaftConfig cfg
    cdef RaftFound found
    cdef Store* store = NULL
    cdef Group* g = NULL
    cdef ReplicatedStream* r = NULL
    cdef bint open, memory = False
    cdef int rc = 0
    cdef char err[512]
    if len(sync) > SYNC_MAX:
        raise ValueError("the subject of a stream's catch-up is too long")
    memset(&cfg, 0, sizeof(RaftConfig))
    memset(&found, 0, sizeof(RaftFound))
    cfg.id = peer_number(id)
    cfg.observer = standing >= STANDS_JOINS
    cfg.managed = True
    err[0] = 0
    with nogil:
        open = stream.enter()
        if open and stream.s.member == NULL:
            cfg.seed = env_secret(stream.box.env)
            memory = stream.s.cfg.storage == STORAGE_MEMORY
            r = replicated_new(stream.box.env, stream.s, asked, standing)
        stream.box.leave()
        if r != NULL:
            g = group_open(groups.all, where, group, &cfg, given, memory, synced, &found, err, sizeof(err))
        if g != NULL:
            open = stream.enter()
            rc = ST_CLOSED
            if open:
                r.s = stream.s
                store = stream.s.store
                rc = replicated_begin(r, g, &found)
            if rc < 0:
                group_stop(g)
            stream.box.leave()
            if rc < 0:
                group_close(g)
            elif rc == 1:
                store_written(store)
        if r != NULL and (g == NULL or rc < 0):
            replicated_free(r)
    made.found = found_of(&found)
    stream.check(open)
    if r == NULL:
        raise StoreError("out of memory, or the stream is in use")
    if g == NULL:
        raise GroupError((<bytes>err).decode("utf-8", "replace"))
    if rc == ST_UNKNOWN:
        raise GroupError("the state of the group's snapshot is damaged")
    if rc < 0:
        raise StoreError("out of memory")
    made.of = groups
    made.handle = stream
    made.g = g
    made.r = r
    made.number = g.number
    return made
