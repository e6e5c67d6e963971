# The face of consumers for the control plane.

class ConsumerClosed(StoreError):
    """The consumer was closed, its stream was not."""


ConsumerState = namedtuple(
    "ConsumerState",
    "delivered_consumer delivered_stream delivered_ts floor_consumer floor_stream floor_ts num_ack_pending "
    "num_redelivered num_waiting num_pending push_bound pinned_id pinned_ts")


ConsumerWait = namedtuple("ConsumerWait", "reason until number seq")
PendingMessage = namedtuple("PendingMessage", "seq subject deliveries sent due queued")


cdef object info_tuple(const ConsumerInfo* i):
    return ConsumerState(
        i.delivered_dseq, i.delivered_seq, i.delivered_ts, i.floor_dseq, i.floor_seq, i.floor_ts,
        i.num_ack_pending, i.num_redelivered, i.num_waiting, i.num_pending, bool(i.bound),
        (<const char*>i.pin_id)[:PIN_SIZE] if i.pin_ts else b"", i.pin_ts)


serials = count(1)


cdef class ConsumerHandle:
    """A consumer for the control plane; as StreamFace about the lock, threads and errors."""

    def __dealloc__(self):
        free(self.kept_texts)
        bytes_free(&self.kept_state)

    cdef bint enter(self) noexcept nogil:
        return self.box.enter() and self.serves()

    cdef bint serves(self) noexcept nogil:
        return self.c != NULL and self.c.s.failed == 0

    cdef int check(self, bint open) except -1:
        if open:
            return 0
        with nogil:
            open = self.stream.enter()
            self.box.leave()
        self.stream.check(open)
        raise ConsumerClosed("the consumer is closed")

    cdef bint step(self, bint* open) noexcept nogil:
        # A piece of what is counted, with the lock; whether there is more.
        cdef bint more
        open[0] = self.enter()
        more = open[0] and consumer_step(self.c)
        if not open[0] and self.c != NULL:
            self.c.count.wanted = NULL
        self.box.leave()
        return more

    def damaged(self) -> bool:
        """Whether a part of the state that it was opened with could not be used."""
        cdef bint damaged
        with nogil:
            self.box.lock()
            damaged = self.serves() and self.c.damaged
            self.box.leave()
        return damaged

    def counting(self) -> bool:
        """Whether `state` would take long, as what is pending is still counted."""
        cdef bint counting
        with nogil:
            self.box.lock()
            counting = self.serves() and self.c.count.phase != COUNT_NONE
            self.box.leave()
        return counting

    def state(self):
        cdef ConsumerInfo i
        cdef bint open, more = True
        with nogil:
            while more:                         # others have their turns
                open = self.enter()
                more = open and consumer_step(self.c)
                if open and not more:
                    consumer_info(self.c, &i)
                self.box.leave()
        self.check(open)
        return info_tuple(&i)

    def changed_state(self):
        """As state, at the time of its opening, last update or reset: before that led to a delivery."""
        return info_tuple(&self.changed)

    def update(self, prepared, bint back=False) -> None:
        """back: as of streams."""
        cdef ConsumerConfig cfg
        cdef ConfigTexts texts = ConfigTexts()
        cdef int rc = 0
        cdef bint open
        cdef Filter filter
        consumer_config_fill(&cfg, prepared, texts)
        with nogil:
            rc = filter_init(&filter, cfg.filters, cfg.n_filters)
        if rc != ST_OK:
            raise StoreError("out of memory")
        try:
            open = self.take(&cfg, &filter, back, &rc)
        finally:
            filter_free(&filter)
        self.check(open)
        if rc < 0:
            raise StoreError("out of memory")

    cdef bint take(self, const ConsumerConfig* cfg, Filter* filter, bint back, int* rc) except *:
        # Changes the configuration. False: it is closed.
        cdef bint open
        with nogil:
            self.box.lock()
            open = self.serves()
            if open:
                rc[0] = consumer_update(self.c, cfg, filter, &self.changed)
            elif back and self.c != NULL:
                open = True
                rc[0] = consumer_take_config(self.c, cfg)
            elif back and self.kept_texts != NULL:
                open = True
                rc[0] = self.keep_config(cfg)
            self.box.leave()
            while open and self.step(&open):    # others have their turns
                pass
        return open

    def pause(self, int64_t until) -> None:
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                consumer_pause(self.c, until)
            self.box.leave()
        self.check(open)

    def reset(self, uint64_t seq) -> int:
        """Forgets what was delivered and delivers from this sequence on, which is returned; 0: from behind the ack floor."""
        cdef bint open, more = True
        with nogil:
            while self.step(&open):             # where it starts is known, and others have their turns
                pass
            while more:
                open = self.enter()
                more = open and acks_left(self.c)
                if open and not more:
                    seq = consumer_reset(self.c, seq, &self.changed)
                self.box.leave()
        self.check(open)
        return seq

    def waits(self):
        """Why nothing is delivered at the moment."""
        cdef Why w
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                pulls_sweep(self.c)
                consumer_why(self.c, &w)
            self.box.leave()
        self.check(open)
        return ConsumerWait(w.reason, w.until, w.count, w.seq)

    def oldest(self):
        """The sequences of the first message that is not delivered yet, and of the first that is not acked; 0: none."""
        cdef uint64_t at = 0, ahead = 0, unacked = 0
        cdef int rc = 1
        cdef bint open = True
        with nogil:
            while open and rc == 1:             # others have their turns
                open = self.enter()
                if open:
                    at = max(at, self.c.next)
                    rc = store_next_some(self.c.s.store, filter_of(self.c), &at, &ahead)
                    if self.c.pending.first:
                        unacked = entry_at(&self.c.pending, self.c.pending.first).sseq
                    ahead = ahead if ahead <= self.c.s.shown else 0
                self.box.leave()
        self.check(open)
        return ahead, unacked

    def pending(self, uint64_t start, uint32_t limit, int64_t idle) -> list:
        """At most so many messages that are not acked, from this sequence on, last delivered at least so long ago."""
        cdef Listing l
        cdef Listed one
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef bint open = True
        cdef int rc = 1
        cdef list found = []
        memset(&l, 0, sizeof(Listing))
        l.start = start
        l.left = limit
        l.idle = idle
        with nogil:
            while open and rc == 1:             # others have their turns
                open = self.enter()
                if open:
                    rc = list_some(self.c, &l)
                self.box.leave()
        try:
            self.check(open)
            if rc < 0:
                raise StoreError("out of memory")
            p = l.found.data
            end = p + l.found.n
            while p < end:
                memcpy(&one, p, sizeof(Listed))
                p += sizeof(Listed)
                found.append(PendingMessage(
                    one.seq, (<const char*>p)[:one.n_subject], one.deliveries, one.sent, one.due, bool(one.queued)))
                p += one.n_subject
            return found
        finally:
            bytes_free(&l.found)

    def release(self, seqs, int64_t idle, bytes deliver not None) -> list:
        """Those of at most RELEASE_MAX messages that are not acked, and were last delivered at least so long ago, are delivered
        again now: to this subject or, where it is empty, to clients that pull or listen. Returns which they are."""
        cdef uint64_t wanted[RELEASE_MAX]
        cdef Span to = span_of(deliver)
        cdef bint open
        cdef int n = 0, rc = 0
        for seq in dict.fromkeys(seqs):
            if n == RELEASE_MAX:
                raise ValueError("too many messages")
            wanted[n] = seq
            n += 1
        with nogil:
            open = self.enter()
            if open:
                rc = release_all(self.c, wanted, n, idle, to)
            self.box.leave()
        self.check(open)
        if rc < 0:
            raise StoreError("out of memory")
        return [wanted[i] for i in range(rc)]

    def unpin(self) -> None:
        """The pinned client is so no longer; the next request that waits is."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                unpin(self.c)
            self.box.leave()
        self.check(open)

    def begin(self, uint64_t ticket=0) -> None:
        """The answer to the request that made or moved it is on its way, or waits for this ticket."""
        with nogil:
            self.box.lock()
            if self.serves() and self.c.unanswered:
                self.c.answer_ticket = ticket
                wake_delivery(self.c)
            self.box.leave()

    def encode_state(self) -> bytes:
        """The state in the format of nats-server's o.dat."""
        cdef Bytes b
        cdef int rc = 0
        cdef bint open
        memset(&b, 0, sizeof(Bytes))
        with nogil:
            open = self.enter()
            if open:
                rc = consumer_encode_state(self.c, &b)
            self.box.leave()
        try:
            self.check(open)
            if rc < 0:
                raise StoreError("out of memory")
            return (<const char*>b.data)[:b.n]
        finally:
            bytes_free(&b)

    def close(self, bint delete) -> None:
        cdef bint open, more = True
        with nogil:
            while more:                         # what is acked leaves, and others have their turns
                open = self.enter()
                more = open and acks_left(self.c)
                if open and not more:
                    self.end(delete)
                self.box.leave()
            if self.box.enter():
                self.end(False)                 # of a stream that failed, too: nothing ends it later
            self.box.leave()
        if self.stream is not None:
            self.stream.forget(self)

    cdef object final_state(self):
        # Closes, and returns what write_states takes for nats-server; None when it has it already.
        cdef Bytes b
        cdef int64_t time
        cdef bint fresh = False
        memset(&b, 0, sizeof(Bytes))
        with nogil:
            self.box.lock()
            if self.c != NULL:
                acks_finish(self.c)
                if self.c.s.failed == 0 and self.c.s.halted == 0:
                    fresh = final_state_of(self.c, &b, &time)
                self.end(False)
            self.box.leave()
        try:
            return (os.fsencode(self.directory), (<const char*>b.data)[:b.n], time) if fresh else None
        finally:
            bytes_free(&b)

    cdef void end(self, bint delete) noexcept nogil:
        cdef Consumer* c = self.c
        cdef Stream* s
        if c == NULL:
            return
        s = c.s
        self.c = NULL
        consumer_close(c, delete)
        consumers_flush(s)

    cdef int keep_config(self, const ConsumerConfig* cfg) noexcept nogil:
        # As consumer_take_config, of one that left its stream.
        cdef int64_t pause_until = self.kept.pause_until
        cdef uint8_t* texts = consumer_config_take(&self.kept, cfg)
        if texts == NULL:
            return -1
        self.kept.pause_until = pause_until
        free(self.kept_texts)
        self.kept_texts = texts
        return 0

    cdef void keep(self) noexcept nogil:
        # Ends the consumer of a stream that failed; what it takes to open it again is kept.
        cdef Consumer* c = self.c
        if c == NULL:
            return
        self.kept_texts = consumer_config_take(&self.kept, &c.cfg)
        self.kept_logged = c.logged
        self.kept_state.n = 0
        if not c.logged:
            consumer_encode_state(c, &self.kept_state)
        pulls_moved(c)
        self.c = NULL
        consumer_close(c, False)
