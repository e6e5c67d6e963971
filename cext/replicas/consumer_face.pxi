# Consumers of Raft groups for the control plane.

cdef class ConsumerReplica(GroupFace):
    """A consumer that is a member of a Raft group. open_consumer_replica() makes it; close it before its stream."""

    cdef ConsumerMember* m
    cdef readonly ConsumerHandle handle     # an ordinary consumer's handle, for this member's consumer

    def leads(self):
        """Whether this server leads the consumer, delivers and answers."""
        cdef bint open, leads = False
        with nogil:
            open = self.enter()
            if open:
                leads = self.m.mode == REPLICA_LEADS
            self.leave()
        self.check(open)
        return bool(leads)

    def halted(self):
        """NEWS_FAILED or NEWS_DIVERGED, if it has stopped, also before the reader of the inbox knows it; else 0."""
        cdef bint open
        cdef int halted = 0
        with nogil:
            open = self.enter()
            if open:
                halted = self.m.halted
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
                memcpy(text, self.m.why, sizeof(text))
            self.leave()
        self.check(open)
        return (<bytes>text).decode("utf-8", "replace")

    def snapshot(self):
        """Asks for a snapshot soon, so that the log begins behind it."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.m.keep_soon = True
                task_post(&self.m.env.tasks, &self.m.task)
            self.leave()
        self.check(open)

    def propose_reset(self, uint64_t seq, bytes reply not None):
        """Proposes to reset the consumer to this sequence, 0: to just behind the ack floor. REPLICA_RESET follows, with the
        reply, when the group has agreed. False: this member does not lead."""
        cdef Span to = span_of(reply)
        cdef bint open, done = False
        with nogil:
            open = self.enter()
            if open and self.m.mode == REPLICA_LEADS:
                done = consumer_reset_group(self.m.c, seq, to) == 0
                self.m.asks = self.m.asks or done
            self.leave()
        self.check(open)
        return bool(done)

    def part(self):
        """Leaves the group; the consumer goes on in its present state as this server's alone. StoreError"""
        cdef Group* g = NULL
        cdef Consumer* c = NULL
        cdef int rc = 0
        with nogil:
            if self.enter():
                g = self.g
                self.g = NULL
                group_stop(g)
                if self.m != NULL:
                    c = self.m.c
                    consumer_stop(self.m)
                    if c != NULL:
                        consumer_part(c)
                        rc = consumer_lead(c)
                    self.m.c = NULL
                    consumer_member_free(self.m)
                    self.m = NULL
            self.leave()
            if g != NULL:
                group_close(g)
        if rc < 0:
            raise StoreError("out of memory")

    def close(self, bint delete):
        """Stops the member and closes the consumer. delete: the consumer was deleted; the caller removes the group's
        directory."""
        cdef Group* g = NULL
        with nogil:
            if self.enter():
                g = self.g
                self.g = NULL
                group_stop(g)
                if self.m != NULL:
                    consumer_member_free(self.m)
                    self.m = NULL
            self.leave()
        if self.handle is not None:
            self.handle.close(delete)
        with nogil:
            if g != NULL:
                group_close(g)


def open_consumer_replica(RaftGroups groups not None, StreamHandle stream not None, prepared, directory, *, group_directory,
                          bytes name not None, bytes id not None, bytes peers not None, ReplicaStanding standing, bint memory,
                          bytes state=b""):
    """A ConsumerReplica. prepared, directory: as StreamHandle.open_consumer; standing: as open_stream_replica; the rest as
    RaftGroups.open. memory: the group's log is kept in memory only. state: the first state where the group is new here, in the
    form of nats-server's o.dat. GroupError, StoreError."""
    cdef ConsumerReplica made = ConsumerReplica.__new__(ConsumerReplica)
    cdef RaftFound found
    made.of = groups
    made.g = consumer_group_open(groups, group_directory, name, id, peers, standing >= STANDS_JOINS, memory, &found)
    made.number = made.g.number
    try:
        consumer_open(made, stream, prepared, directory, state, standing, &found)
    except BaseException:
        bytes_free(&found.file)
        made.close(False)
        raise
    made.found = found_of(&found)
    return made


def join_consumer_replica(RaftGroups groups not None, ConsumerHandle consumer not None, group_directory, *, bytes name not None,
                          bytes id not None, bytes peers not None, bint memory):
    """A ConsumerReplica of a consumer that runs without a group: the group begins with its state. The rest as
    open_consumer_replica."""
    cdef ConsumerReplica made = ConsumerReplica.__new__(ConsumerReplica)
    cdef RaftFound found
    cdef Bytes state
    cdef Consumer* c
    cdef bint more = True
    made.of = groups
    made.g = consumer_group_open(groups, group_directory, name, id, peers, False, memory, &found)
    made.number = made.g.number
    made.handle = consumer
    memset(&state, 0, sizeof(Bytes))
    with nogil:
        while more:                             # until its start is known; other threads run in between
            more = consumer.enter() and consumer_step(consumer.c)
            consumer.box.leave()
        if consumer.enter():
            c = consumer.c
            if consumer_join_serving(c, &state) == 0:
                made.m = consumer_member_new(made.g, c, &consumer.changed, &found, STANDS_BASE)
            if made.m == NULL:
                if c.group != NULL:
                    consumer_part(c)
                consumer_lead(c)
        consumer.box.leave()
    bytes_free(&state)
    made.found = found_of(&found)
    if made.m == NULL:
        made.part()
        raise StoreError("out of memory, or the consumer is closed")
    return made


cdef Group* consumer_group_open(RaftGroups groups, object directory, bytes name, bytes id, bytes peers, bint observer,
                                bint memory, RaftFound* found) except NULL:
    cdef bytes path = os.fsencode(directory)
    cdef Span where = span_of(path), group = span_of(name), given = span_of(peers)
    cdef RaftConfig cfg
    cdef Group* g
    cdef char err[512]
    memset(&cfg, 0, sizeof(RaftConfig))
    cfg.id = peer_number(id)
    cfg.observer = observer
    cfg.managed = True
    err[0] = 0
    with nogil:
        groups.box.lock()
        cfg.seed = env_secret(groups.box.env)
        groups.box.leave()
        g = group_open(groups.all, where, group, &cfg, given, memory, False, found, err, sizeof(err))
        groups.box.enter()
        groups.box.leave()
    if g == NULL:
        raise GroupError((<bytes>err).decode("utf-8", "replace"))
    return g


cdef int consumer_open(ConsumerReplica made, StreamHandle stream, object prepared, object directory, bytes state,
                       ReplicaStanding standing, const RaftFound* found) except -1:
    # A snapshot has all that was applied before it. Without one, the log has all that came after the state in the files.
    cdef bint kept = found.snapshot_index > 0, given = found.fresh and len(state) > 0
    cdef ConsumerHandle h = stream.open_as(prepared, directory, False, JOINS_ANEW if kept or given else JOINS,
                                           state if given else None)
    cdef Consumer* c
    cdef int rc = -1
    made.handle = h
    with nogil:
        h.box.lock()
        c = h.c
        if c != NULL:
            rc = consumer_restore(c, found.state, True) if kept else 0
        if rc == 0:
            made.m = consumer_member_new(made.g, c, &h.changed, found, standing)
        h.box.leave()
    if rc == -2:
        raise StoreError("the snapshot of a consumer has no state of one")
    if made.m == NULL:
        raise StoreError("out of memory")
    return 0
