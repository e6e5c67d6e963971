# The faces of consumers, and of streams with consumers, for the control plane.

class ConsumerClosed(StoreError):
    """The consumer was closed, its stream was not."""


ConsumerState = namedtuple(
    "ConsumerState",
    "delivered_consumer delivered_stream delivered_ts floor_consumer floor_stream floor_ts num_ack_pending "
    "num_redelivered num_waiting num_pending push_bound")


cdef class ConfigBuffers:
    """What a ConsumerConfig borrows besides the parameters' own bytes."""
    cdef Span* filters
    cdef int64_t* backoff

    def __dealloc__(self):
        free(self.filters)
        free(self.backoff)


cdef ConfigBuffers fill_consumer(ConsumerConfig* c, object p):
    # Borrows from the parameters, which the caller keeps alive.
    cdef ConfigBuffers b = ConfigBuffers()
    cdef Py_ssize_t i
    b.filters = <Span*>malloc((len(p.filters) + 1) * sizeof(Span))
    b.backoff = <int64_t*>malloc((len(p.backoff) + 1) * sizeof(int64_t))
    if b.filters == NULL or b.backoff == NULL:
        raise MemoryError()
    for i in range(len(p.filters)):
        b.filters[i] = span_of(p.filters[i])
    for i in range(len(p.backoff)):
        b.backoff[i] = min(<int64_t>p.backoff[i], FOREVER)
    memset(c, 0, sizeof(ConsumerConfig))
    c.filters = b.filters
    c.n_filters = <uint32_t>len(p.filters)
    c.backoff = b.backoff
    c.n_backoff = <uint32_t>len(p.backoff)
    c.name = span_of(p.name)
    c.durable = p.durable
    c.deliver_policy = int(p.deliver_policy)
    c.opt_start_seq = p.opt_start_seq
    c.opt_start_time = p.opt_start_time
    c.ack_policy = int(p.ack_policy)
    c.ack_wait = min(<int64_t>p.ack_wait, FOREVER)
    c.max_deliver = p.max_deliver
    c.replay_original = int(p.replay_policy) == 1
    c.rate_limit = p.rate_limit
    c.sample = p.sample_percent
    c.max_waiting = p.max_waiting
    c.max_ack_pending = p.max_ack_pending
    c.headers_only = p.headers_only
    c.max_batch = p.max_batch
    c.max_expires = p.max_expires
    c.max_bytes = p.max_bytes
    c.deliver_subject = span_of(p.deliver_subject)
    c.deliver_group = span_of(p.deliver_group)
    c.flow_control = p.flow_control
    c.idle_heartbeat = min(<int64_t>p.idle_heartbeat, FOREVER)
    c.inactive_threshold = min(<int64_t>p.inactive_threshold, FOREVER)
    c.mem_storage = p.mem_storage
    c.pause_until = p.pause_until
    return b


cdef object info_tuple(const ConsumerInfo* i):
    return ConsumerState(
        i.delivered_dseq, i.delivered_seq, i.delivered_ts, i.floor_dseq, i.floor_seq, i.floor_ts,
        i.num_ack_pending, i.num_redelivered, i.num_waiting, i.num_pending, bool(i.bound))


serials = count(1)


cdef class ConsumerHandle:
    """A consumer for the control plane; as StreamFace about the lock, threads and errors."""

    def __dealloc__(self):
        free(self.kept_texts)
        bytes_free(&self.kept_state)

    cdef bint enter(self) noexcept nogil:
        return self.box.enter() and self.c != NULL and self.c.s.failed == 0

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
            self.c.when_counted = NULL
        self.box.leave()
        return more

    def counting(self) -> bool:
        """Whether `state` would take long, as what is pending is still counted."""
        cdef bint counting
        with nogil:
            counting = self.enter() and self.c.counting != COUNT_NONE
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
        """As state, at the time of its opening or last update: before that led to a delivery."""
        return info_tuple(&self.changed)

    def update(self, params, bint back=False) -> None:
        """back: as of streams."""
        cdef ConsumerConfig cfg
        cdef ConfigBuffers b = fill_consumer(&cfg, params)
        cdef int rc = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                rc = consumer_update(self.c, &cfg, &self.changed)
            elif back and self.c != NULL:
                open = True
                rc = consumer_take_config(self.c, &cfg)
            elif back and self.kept_texts != NULL:
                open = True
                rc = self.keep_config(&cfg)
            self.box.leave()
            while open and self.step(&open):    # others have their turns
                pass
        self.check(open)
        if rc < 0:
            raise StoreError("out of memory")

    def pause(self, int64_t until) -> None:
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                consumer_pause(self.c, until)
            self.box.leave()
        self.check(open)

    def begin(self, uint64_t ticket=0) -> None:
        """The answer to the request that made or moved it is on its way, or waits for this ticket."""
        with nogil:
            if self.enter() and self.c.held:
                self.c.held_ticket = ticket
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
        if self.stream is not None:
            self.stream.forget(self)

    cdef object final_state(self):
        """Closes, and returns what write_states takes for nats-server; None when it has it already."""
        cdef Bytes b
        cdef int64_t time
        cdef bint fresh = False
        memset(&b, 0, sizeof(Bytes))
        with nogil:
            self.box.enter()
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


cdef class StreamHandle(StreamFace):
    """A stream with its consumers."""

    def __init__(self):
        self.handles = []
        self.opening = Lock()

    cdef void flush(self) noexcept nogil:
        consumers_flush(self.s)

    cdef forget(self, handle):
        with self.opening:
            if handle in self.handles:
                self.handles.remove(handle)

    def activate(self, bint hold=False) -> None:
        """hold: a consumer could not be opened; what only it may need stays."""
        cdef ConsumerHandle h
        cdef int rc = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.s.hold = hold
            self.box.leave()
        self.check(open)
        StreamFace.activate(self)
        with self.opening:
            self.serving = True
            for h in self.handles:
                with nogil:
                    if h.enter():
                        rc = consumer_lead(h.c)
                    self.box.leave()
                if rc < 0:
                    raise StoreError("out of memory")

    def reopen(self) -> None:
        with self.opening:
            if self.s == NULL or self.s.failed == 0:
                return
            self.put_down()
            self.retreat()
            self.come_back()

    def resume(self) -> None:
        with nogil:
            if self.enter():
                self.behind = False
                stream_resume(self.s)
            self.box.leave()

    cdef int put_down(self) except -1:
        # Consumers and store leave the stream that failed; it stays to say why to whoever publishes or asks.
        cdef ConsumerHandle h
        if self.s.store == NULL:
            return 0
        for h in self.handles:
            with nogil:
                self.box.enter()
                h.keep()
                self.box.leave()
        with nogil:
            self.box.enter()
            consumers_free(self.s)
            if not self.behind:
                self.durable = store_kept_seq(self.s.store)
            self.behind = True
            self.lost = stream_give_store(self.s)
            self.box.leave()
        return 0

    cdef int retreat(self) except -1:
        cdef int error = 0
        if self.lost != NULL:
            with nogil:
                error = store_retreat(self.lost)
                if error == 0:
                    store_forget(self.lost)
        if error:
            raise StoreError(f"taking back what could not be written failed: {os.strerror(error)}")
        self.lost = NULL
        return 0

    cdef int come_back(self) except -1:
        # What is on disk takes the place of the stream that failed. It changes nothing before resume.
        cdef Stream* old = self.s
        cdef Stream* new = NULL
        cdef StoreConfig config
        cdef Store* store
        cdef char err[256]
        cdef list opened = []
        store_config(&old.cfg, &config)
        err[0] = 0
        with nogil:
            store = store_open(self.box.env, self.box.committer, &config, err, sizeof(err))
        if store == NULL:
            raise StoreError((<bytes>err).decode("utf-8", "replace"))
        with nogil:
            self.box.enter()
            new = stream_new(old.env, old.account, store, &old.cfg)
            self.box.leave()
        try:
            if new == NULL:
                raise StoreError("out of memory")
            self.refuse_rest(store)
            self.open_kept(new, opened)
            self.take_over(old, new)
        except BaseException:
            self.drop(new, store, opened)
            raise
        return 0

    cdef int refuse_rest(self, Store* store) except -1:
        # A message that came while its group was being written may be in it, and was refused with the one after.
        cdef uint64_t seq
        cdef int rc = ST_OK
        with nogil:
            self.box.enter()
            seq = store_next_seq(store, NULL, self.durable + 1)
            while seq and rc == ST_OK:
                rc = store_remove(store, seq, False)
                seq = store_next_seq(store, NULL, seq + 1)
            self.box.leave()
        if rc < 0:
            raise StoreError("what was refused cannot be removed")
        return 0

    cdef int open_kept(self, Stream* s, list opened) except -1:
        cdef ConsumerHandle h
        cdef bytes state
        cdef StateFile file
        cdef Consumer* c
        for h in self.handles:
            if h.kept_texts == NULL:
                raise StoreError("out of memory")
            if h.kept_logged:
                self.open_log(s)
            state, file.time = (<const char*>h.kept_state.data)[:h.kept_state.n] if h.kept_state.n else b"", 0
            if h.kept_logged:
                state, file.time = read_state(self.box.env.files, h.directory)
            file.bytes = span_of(state)
            with nogil:
                self.box.enter()
                c = consumer_new(s, &h.kept, &file, h.kept_logged)
                h.c = c
                if c != NULL:
                    c.serial = h.id
                self.box.leave()
            if c == NULL:
                raise StoreError("out of memory")
            opened.append(h)
        return 0

    cdef int take_over(self, Stream* old, Stream* new) except -1:
        cdef ConsumerHandle h
        cdef Store* store = new.store
        cdef int rc = 0
        with nogil:
            self.box.enter()
            new.hold = old.hold
            if self.serving:
                rc = stream_activate(new)
            if rc >= 0:
                stream_halt(new, old.failed)
                stream_stop(old)
                stream_free(old)
                self.s = new
            self.box.leave()
            if rc == 1:
                store_written(store)
        if rc < 0:
            raise StoreError("out of memory")
        for h in self.handles:
            with nogil:
                self.box.enter()
                if self.serving and h.c != NULL:
                    consumer_lead(h.c)
                free(h.kept_texts)
                h.kept_texts = NULL
                bytes_free(&h.kept_state)
                self.box.leave()
        return 0

    cdef int drop(self, Stream* new, Store* store, list opened) except -1:
        # An attempt to come back that failed: the files stay as they are.
        cdef ConsumerHandle h
        cdef Consumer* c
        for h in opened:
            with nogil:
                self.box.enter()
                c = h.c
                h.c = NULL
                consumer_close(c, False)
                self.box.leave()
        with nogil:
            self.box.enter()
            if new != NULL:
                stream_stop(new)
                consumers_free(new)
                stream_free(new)
            store_stop(store)
            self.box.leave()
            store_close(store, False)
        return 0

    cdef int open_log(self, Stream* s) except -1:
        # The first time that a consumer is kept on disk. Whoever calls it has `opening`, so that nobody closes.
        cdef ReplayContext x
        cdef Consumers* k
        cdef Log* log
        cdef char err[256]
        cdef bytes path = self.directory + b"/consumers.log"
        cdef Span p = span_of(path)
        with nogil:
            self.box.enter()
            k = consumers_of(s)
            self.box.leave()
        if k == NULL:
            raise MemoryError()
        if k.log != NULL:
            return 0
        memset(&x, 0, sizeof(x))
        x.k = k
        err[0] = 0
        with nogil:
            log = log_open(s.store, p, replay_entry, &x, err, sizeof(err))
            u64map_free(&x.names)
            self.box.enter()
            k.log = log
            self.box.leave()
        if log == NULL:
            raise StoreError((<bytes>err).decode("utf-8", "replace"))
        return 0

    def open_consumer(self, params, directory, bint hold=False):
        """A ConsumerHandle, new or with what o.dat in its directory and the stream's log say.

        hold: it delivers nothing before `begin`."""
        cdef ConsumerConfig cfg
        cdef ConfigBuffers b = fill_consumer(&cfg, params)
        cdef StateFile file
        cdef bytes state
        cdef bint logged = directory is not None and len(self.directory) > 0
        cdef ConsumerHandle h = ConsumerHandle.__new__(ConsumerHandle)
        cdef ConsumerInfo* info = &h.changed
        cdef int64_t serial = next(serials)
        cdef Consumer* c
        cdef int rc = 0
        cdef bint open, more = True
        state, file.time = (b"", 0) if directory is None else read_state(self.box.env.files, directory)
        file.bytes = span_of(state)
        with self.opening:
            with nogil:
                open = self.enter()
                self.box.leave()
            self.check(open)
            if logged:
                self.open_log(self.s)
            with nogil:
                self.box.enter()
                c = consumer_new(self.s, &cfg, &file, logged)
                if c != NULL:
                    c.serial = serial
                    c.held = hold and is_push(c)
                    c.held_ticket = UINT64_MAX
                    rc = consumer_lead(c) if self.serving else 0
                    if rc < 0:
                        consumer_close(c, False)
                    elif c.counting:
                        c.when_counted = info
                    else:
                        consumer_info(c, info)
                self.box.leave()
                while c != NULL and rc == 0 and more:   # others have their turns
                    self.box.enter()
                    more = consumer_step(c)
                    if c.unplaced:
                        consumer_close(c, False)
                        rc = -1
                    self.box.leave()
            if c == NULL or rc < 0:
                raise StoreError("out of memory")
            h.c = c
            h.id = serial
            h.box = self.box
            h.stream = self
            h.directory = directory
            self.handles.append(h)
        return h

    def close(self, bint delete) -> None:
        cdef ConsumerHandle h
        cdef Consumers* k
        cdef Stream* s = NULL
        cdef Store* store
        with self.opening:
            with nogil:
                if self.box.enter() and self.s != NULL:
                    s = self.s
                    if delete:
                        stream_answer_rest(s)
                    self.s = NULL
                    stream_stop(s)
                self.box.leave()
            if s == NULL:
                return
            store = s.store if s.store != NULL else self.lost
            self.lost = NULL
            states = []
            for h in self.handles:
                if not delete:
                    states.append(h.final_state())
                    continue
                with nogil:
                    self.box.enter()
                    h.end(True)
                    self.box.leave()
            self.handles = []
            with nogil:
                self.box.enter()
                consumers_flush(s)
                if store != NULL:
                    store_stop(store)
                k = <Consumers*>s.consumers
                if k != NULL and k.log != NULL:
                    log_close(k.log)
                consumers_free(s)
                stream_free(s)
                self.box.leave()
                if store != NULL:
                    store_close(store, delete)
            write_states(self.box.env.files, [state for state in states if state is not None])


cdef StreamHandle stream_handle(EnvBox box, const StreamPlace* place, object params, object directory):
    # A stream opened for the engine. StoreError
    cdef StreamHandle h = StreamHandle()
    h.open(box, place, params, directory)
    return h
