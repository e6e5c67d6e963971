# Streams with consumers for the control plane: opening, failing and coming back, closing.

cdef class StreamHandle(IntakeFace):
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
        """hold: a consumer could not be opened; messages that only it may need stay."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.s.consumer_missing = hold
            self.box.leave()
        self.check(open)
        IntakeFace.activate(self)
        self.lead_all()

    def await_consumers(self) -> None:
        """For a member of a Raft group: no message is removed before `serve`, because the consumers that need it are not
        known."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.s.consumer_missing = True
            self.box.leave()
        self.check(open)

    def serve(self) -> None:
        """For a member of a Raft group: all consumers are open. Those without a group deliver from now on."""
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                stream_served(self.s)
            self.box.leave()
        self.check(open)
        self.lead_all()

    cdef int lead_all(self) except -1:
        cdef ConsumerHandle h
        cdef int rc = 0
        with self.opening:
            self.serving = True
            for h in self.handles:
                with nogil:
                    if h.enter() and h.c.group == NULL and h.c.role != ROLE_LEADS:
                        rc = consumer_lead(h.c)
                    self.box.leave()
                if rc < 0:
                    raise StoreError("out of memory")
        return 0

    def reopen(self, bint mirror=False) -> None:
        cdef bint failed
        with self.opening:
            with nogil:
                self.box.lock()
                failed = self.s != NULL and self.s.failed != 0
                self.box.leave()
            if not failed:
                return
            self.put_down()
            self.retreat()
            self.come_back(mirror)

    def resume(self) -> None:
        with nogil:
            self.box.lock()
            if self.serves():
                self.behind = False
                stream_resume(self.s)
            self.box.leave()

    cdef int put_down(self) except -1:
        # Takes consumers and store off a failed stream. The stream stays, to tell clients why it failed.
        cdef ConsumerHandle h
        if self.s.store == NULL:
            return 0
        for h in self.handles:
            with nogil:
                self.box.lock()
                h.keep()
                self.box.leave()
        with nogil:
            self.box.lock()
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

    cdef int come_back(self, bint mirror) except -1:
        # Replaces a failed stream by what is on disk. The new one changes nothing before resume.
        cdef Stream* old = self.s
        cdef Stream* new = NULL
        cdef StoreConfig config
        cdef Store* store
        cdef char err[256]
        cdef list opened = []
        store_config(&old.cfg, &old.place, &config)
        err[0] = 0
        with nogil:
            store = store_open(self.box.env, self.box.committer, &config, err, sizeof(err))
        if store == NULL:
            raise StoreError((<bytes>err).decode("utf-8", "replace"))
        try:
            with nogil:
                self.box.lock()
                new = stream_new(old.env, store, &old.cfg, &old.place)
                self.box.leave()
            if new == NULL:
                raise StoreError("out of memory")
            if not mirror:
                self.refuse_rest(store)
            self.open_kept(new, opened)
            self.take_over(old, new)
        except BaseException:
            self.drop(new, store, opened)
            raise
        return 0

    cdef int refuse_rest(self, Store* store) except -1:
        # A message that was refused when writing its commit group failed may be on disk all the same: it is removed.
        cdef uint64_t seq
        cdef int rc = ST_OK
        with nogil:
            self.box.lock()
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
        cdef Filter filter
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
            if filter_init(&filter, h.kept.filters, h.kept.n_filters) != ST_OK:
                raise StoreError("out of memory")
            with nogil:
                self.box.lock()
                c = consumer_new(s, &h.kept, &filter, &file, h.kept_logged, JOINS_NOT)
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
            self.box.lock()
            new.consumer_missing = old.consumer_missing
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
                self.box.lock()
                if self.serving and h.c != NULL:
                    consumer_lead(h.c)
                free(h.kept_texts)
                h.kept_texts = NULL
                bytes_free(&h.kept_state)
                self.box.leave()
        return 0

    cdef int drop(self, Stream* new, Store* store, list opened) except -1:
        # Gives up an attempt to come back. The files stay as they are.
        cdef ConsumerHandle h
        cdef Consumer* c
        for h in opened:
            with nogil:
                self.box.lock()
                c = h.c
                h.c = NULL
                consumer_close(c, False)
                self.box.leave()
        with nogil:
            self.box.lock()
            if new != NULL:
                stream_stop(new)
                consumers_free(new)
                stream_free(new)
            store_stop(store)
            self.box.leave()
            store_close(store, False)
        return 0

    cdef int open_log(self, Stream* s) except -1:
        # Opens the log when the first consumer is kept on disk. The caller holds `opening`, so that nobody closes meanwhile.
        cdef ReplayContext x
        cdef Consumers* k
        cdef Log* log
        cdef char err[256]
        cdef bytes path = self.directory + b"/consumers.log"
        cdef Span p = span_of(path)
        with nogil:
            self.box.lock()
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
            log = log_open(s.store, p, span_c(LOG_NOBODY), not self.serving, replay_entry, &x, err, sizeof(err))
            u64map_free(&x.names)
            self.box.lock()
            k.log = log
            self.box.leave()
        if log == NULL:
            raise StoreError((<bytes>err).decode("utf-8", "replace"))
        return 0

    def open_consumer(self, prepared, directory, bint hold=False):
        """A ConsumerHandle of a new consumer, or of one with state in its directory's o.dat and the stream's log. For a stream in
        memory the directory is only read.

        hold: the consumer delivers nothing before `begin`.
        """
        return self.open_as(prepared, directory, hold, JOINS_NOT, None)

    cdef ConsumerHandle open_as(self, object prepared, object directory, bint hold, Joining joining, bytes given):
        cdef ConsumerConfig cfg
        cdef ConfigTexts texts = ConfigTexts()
        cdef StateFile file
        cdef Filter filter
        cdef bytes state
        cdef bint logged = directory is not None and len(self.directory) > 0
        cdef ConsumerHandle h = ConsumerHandle.__new__(ConsumerHandle)
        cdef ConsumerInfo* info = &h.changed
        cdef int64_t serial = next(serials)
        cdef Consumer* c
        cdef int rc = 0
        cdef bint open, more = True
        consumer_config_fill(&cfg, prepared, texts)
        state, file.time = given or b"", 0
        if directory is not None and joining != JOINS_ANEW:
            state, file.time = read_state(self.box.env.files, directory)
        file.bytes = span_of(state)
        with self.opening:
            with nogil:
                open = self.enter()
                self.box.leave()
            self.check(open)
            if logged:
                self.open_log(self.s)
            with nogil:
                rc = filter_init(&filter, cfg.filters, cfg.n_filters)
            if rc != ST_OK:
                raise StoreError("out of memory")
            with nogil:
                self.box.lock()
                c = consumer_new(self.s, &cfg, &filter, &file, logged, joining)
                if c != NULL:
                    c.serial = serial
                    c.unanswered = hold and is_push(c)
                    c.answer_ticket = UINT64_MAX
                    rc = consumer_lead(c) if self.serving else 0
                    if rc < 0:
                        consumer_close(c, False)
                    elif c.count.phase:
                        c.count.wanted = info
                    else:
                        consumer_info(c, info)
                self.box.leave()
                while c != NULL and rc == 0 and more:   # other threads run in between
                    self.box.lock()
                    more = consumer_step(c)
                    if c.count.failed:
                        consumer_close(c, False)
                        rc = -1
                    self.box.leave()
            if c == NULL or rc < 0:
                raise StoreError("out of memory")
            h.c = c
            h.id = serial
            h.box = self.box
            h.stream = self
            h.directory = directory if logged else None
            self.handles.append(h)
        return h

    def withhold(self, bint on) -> None:
        # Holding `opening` keeps the store: neither reopen nor close can take it away meanwhile.
        cdef Store* store
        with self.opening:
            with nogil:
                self.box.lock()
                store = self.s.store if self.s != NULL else NULL
                self.box.leave()
                if store != NULL and on:
                    store_withhold(store)
                elif store != NULL:
                    store_withhold_end(store)

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
                    self.box.lock()
                    h.end(True)
                    self.box.leave()
            self.handles = []
            with nogil:
                self.box.lock()
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


cdef StreamHandle stream_handle(EnvBox box, const StreamPlace* place, object prepared, object directory):
    # Opens a stream for the engine. StoreError
    cdef StreamHandle h = StreamHandle()
    h.open(box, place, prepared, directory)
    return h
