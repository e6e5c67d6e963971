# The face of a stream for the control plane: short calls under the lock, the GIL released. Nothing that was read is
# made a Python object before the lock is let go.

cdef enum:
    LOOK_AGAIN = 100000000      # ns after which a wait sees whether the engine, which wakes nobody at its end, is closed


cdef class StreamFace:
    """A stream for the control plane; times are nanoseconds since 1970, sizes bytes.

    Every method takes the engine lock for a short time and may be called from any thread. StoreError: the store
    could not do it. After `close`, its own or that of the engine, every method but `close` raises StreamClosed.
    """

    cdef bint enter(self) noexcept nogil:
        return self.box.enter() and self.serves()

    cdef bint serves(self) noexcept nogil:
        return self.s != NULL and self.s.failed == 0

    cdef int check(self, bint open) except -1:
        if not open:
            self.refuse()
            raise StreamClosed("the stream is closed")
        return 0

    cdef int refuse(self) except -1:
        # Raises StoreError when the disk is the reason.
        cdef char text[REASON_ROOM]
        text[0] = 0
        with nogil:
            if self.box.enter() and self.s != NULL and (self.s.failed or store_error(self.s.store)):
                stream_reason(self.s, text, sizeof(text))
            self.box.leave()
        if text[0]:
            raise StoreError((<bytes>text).decode())
        return 0

    cdef int changed(self, int64_t rc) except -1:
        if rc == ST_IO:
            self.refuse()
        return store_checked(rc)

    cdef int open(self, EnvBox box, const StreamPlace* place, object prepared, object directory) except -1:
        cdef StreamConfig c
        cdef StreamPlace here = place[0]
        cdef StoreConfig sc
        cdef Store* store
        cdef Committer* committer = box.committer
        cdef ConfigTexts texts = ConfigTexts()
        cdef char err[256]
        self.box = box
        self.directory = os.fsencode(directory) if directory is not None else b""
        here.directory = span_of(self.directory)
        stream_config_fill(&c, prepared, texts)
        store_config(&c, &here, &sc)
        sc.synced = place.synced
        err[0] = 0
        with nogil:
            store = store_open(box.env, committer, &sc, err, sizeof(err))
        if store == NULL:
            raise StoreError((<bytes>err).decode("utf-8", "replace"))
        with nogil:
            box.lock()
            self.s = stream_new(box.env, store, &c, &here)
            if self.s == NULL:
                store_stop(store)
            box.leave()
            if self.s == NULL:
                store_close(store, False)
        if self.s == NULL:
            raise MemoryError()
        return 0

    cdef void flush(self) noexcept nogil:
        pass

    def activate(self) -> None:
        cdef bint open
        cdef Store* store = NULL
        cdef int rc = 0
        with nogil:
            open = self.enter()
            if open:
                rc = stream_activate(self.s)
                store = self.s.store
            self.box.leave()
            if rc == 1:
                store_written(store)
        self.check(open)
        if rc < 0:
            raise StoreError("out of memory")

    def update(self, prepared, bint back=False) -> None:
        """back: to what was in force before an update that failed; a stream that failed comes back with it."""
        cdef StreamConfig c
        cdef ConfigTexts texts = ConfigTexts()
        cdef Stream* s
        cdef int rc = 0, more = 0
        cdef bint open
        stream_config_fill(&c, prepared, texts)
        with nogil:
            self.box.lock()
            open = self.serves()
            if open:
                rc = stream_update(self.s, &c)
                more = rc == 0
            elif back and self.s != NULL:
                open = True
                rc = stream_take_config(self.s, &c)
            s = self.s
            self.box.leave()
            while open and more > 0:        # others have their turns
                open = self.enter() and self.s == s
                if open:
                    more = stream_trim(s)
                    rc = min(more, 0)
                self.box.leave()
        self.check(open)
        self.changed(rc)

    def state(self):
        cdef StoreState st
        cdef int64_t first = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                store_state(self.s.store, &st)
                first = store_first_time(self.s.store)
            self.box.leave()
        self.check(open)
        return StreamState(st.msgs, st.bytes, st.first_seq, first, st.last_seq, st.last_ts, st.num_subjects,
                           st.num_deleted)

    def lost(self):
        """What the store knows to be lost."""
        cdef StoreLost known
        cdef Bytes b
        cdef uint64_t seq
        cdef StoreDamage* d
        cdef bint open, whole = True
        cdef size_t i
        memset(&known, 0, sizeof(known))
        memset(&b, 0, sizeof(Bytes))
        with nogil:
            open = self.enter()
            if open:
                store_lost(self.s.store, &known)
                whole = (bytes_add(&b, known.seqs, <size_t>known.n * 8) == 0
                         and bytes_add(&b, known.places, known.n_places * sizeof(StoreDamage)) == 0)
            self.box.leave()
        try:
            self.check(open)
            if not whole:
                raise StoreError("out of memory")
            seqs, places = [], []
            for i in range(known.n):
                memcpy(&seq, b.data + i * 8, 8)
                seqs.append(seq)
            for i in range(known.n_places):
                d = <StoreDamage*>(b.data + <size_t>known.n * 8) + i
                places.append(Damage(DAMAGE_KINDS[d.kind], d.block, d.at, d.size, d.first, d.last, d.count))
            return Lost(seqs, known.bytes, known.damage, places)
        finally:
            bytes_free(&b)

    def deleted(self, uint64_t most=UINT64_MAX) -> list:
        cdef uint64_t start = 0, n = 0, wanted
        cdef uint64_t page[4096]
        cdef bint open
        found = []
        while True:
            wanted = min(most - len(found), <uint64_t>4096)
            with nogil:
                open = self.enter()
                if open:
                    n = store_deleted(self.s.store, start, page, wanted)
                self.box.leave()
            self.check(open)
            for i in range(n):
                found.append(page[i])
            if n < 4096 or len(found) == most:
                return found
            start = page[n - 1] + 1

    def subjects(self, bytes filter not None, uint64_t start=0, uint64_t most=UINT64_MAX) -> tuple:
        """How many subjects match, and of those, in order, the counts of at most so many from one on."""
        cdef Patterns f = Patterns((filter,))
        cdef Sweep* w = NULL
        cdef Bytes b
        cdef uint64_t count, total = 0, i
        cdef uint32_t n
        cdef const uint8_t** places = NULL
        cdef const char* p
        cdef bint open
        cdef int rc = 1
        memset(&b, 0, sizeof(Bytes))
        with nogil:
            open = self.enter()
            if open:
                filter_loosen(&f.f)
                w = sweep_subjects(self.s.store, &f.f)
            self.box.leave()
            while w != NULL and rc == 1:        # others have their turns
                self.box.lock()
                rc = sweep_step(w)
                self.box.leave()
            if w != NULL and rc == ST_OK:
                total = sweep_take(w, &b)
                places = found_in_order(&b, total)
            if w != NULL:
                self.box.lock()
                sweep_free(w)
                self.box.leave()
        try:
            self.check(open and rc != ST_CLOSED)
            if places == NULL:
                raise StoreError("out of memory")
            found = {}
            start = min(start, total)
            for i in range(start, start + min(most, total - start)):
                p = <const char*>places[i]
                memcpy(&count, p, 8)
                memcpy(&n, p + 8, 4)
                found[p[12:12 + n]] = count
            return total, found
        finally:
            free(places)
            bytes_free(&b)

    def purge(self, filter, uint64_t seq, uint64_t keep, bint short=False):
        """How many messages went. short: None, and nothing was done, where it takes more than one piece."""
        cdef Span pattern = span(NULL, 0) if filter is None else span_of(filter)
        cdef Purge p
        cdef Stream* s
        cdef bint open
        memset(&p, 0, sizeof(Purge))
        with nogil:
            open = self.enter()
            s = self.s
            if open:
                purge_begin(&p, s, pattern, seq, keep, short)
            self.box.leave()
            while open and p.more and not short:    # others have their turns
                open = self.enter() and self.s == s
                if open:
                    purge_step(&p)
                self.box.leave()
            purge_free(&p)
        self.check(open)
        if p.more and short:
            return None
        self.changed(p.gone)
        return p.gone

    cdef bint read(self, Asked asked, const Filter* f, uint64_t seq, Copied* c, int* rc) noexcept nogil:
        # Copies a message, c zeroed before; a disk is waited for without the lock. False: the stream is closed.
        cdef Record r
        cdef Wait w
        cdef LastLook look
        cdef uint64_t at = seq
        cdef int more
        cdef bint open
        memset(&w, 0, sizeof(Wait))
        memset(&look, 0, sizeof(LastLook))
        while True:
            rc[0] = ST_NOT_FOUND
            more = 0
            open = self.enter()
            if open and asked == ASKED_LAST:
                more = store_last_some(self.s.store, f, &look, &seq)
            elif open and asked == ASKED_NEXT:
                more = store_next_some(self.s.store, f, &at, &seq)
            if open and more == 0 and seq:
                rc[0] = store_load_warm(self.s.store, seq, &r, &w)
            if rc[0] == ST_OK:
                rc[0] = copy_record(c, &r)
            elif rc[0] == ST_DAMAGED and asked == ASKED_NEXT:
                at = seq + 1
                more = 1
            wait_cancel(&w)
            self.box.leave()
            if more:
                continue                        # others have their turns
            if rc[0] != ST_WAIT:
                return open
            committer_pause(self.box.committer)

    def get(self, uint64_t seq):
        cdef Copied c
        cdef int rc
        cdef bint open
        memset(&c, 0, sizeof(Copied))
        with nogil:
            open = self.read(ASKED_SEQ, NULL, seq, &c, &rc)
        self.check(open)
        return copied_message(&c, rc)

    def last_for(self, bytes filter not None):
        cdef Patterns f = Patterns((filter,))
        cdef Copied c
        cdef int rc
        cdef bint open
        memset(&c, 0, sizeof(Copied))
        with nogil:
            open = self.read(ASKED_LAST, &f.f, 0, &c, &rc)
        self.check(open)
        return copied_message(&c, rc)

    def next_for(self, bytes filter not None, uint64_t seq):
        cdef Patterns f = Patterns((filter,) if filter else ())
        cdef bint all = not filter
        cdef Copied c
        cdef int rc
        cdef bint open
        memset(&c, 0, sizeof(Copied))
        with nogil:
            open = self.read(ASKED_NEXT, NULL if all else &f.f, seq, &c, &rc)
        self.check(open)
        return copied_message(&c, rc)

    def pack(self, bytes key not None, uint64_t seq, uint64_t last, uint64_t most) -> tuple:
        cdef uint64_t hash_key[4]
        cdef Bytes b
        cdef Wait w
        cdef bint open = False
        cdef int rc = 1
        if len(key) != sizeof(hash_key):
            raise ValueError(f"a key of 32 bytes is needed, not of {len(key)}")
        memcpy(hash_key, <const char*>key, sizeof(hash_key))
        memset(&b, 0, sizeof(Bytes))
        memset(&w, 0, sizeof(Wait))
        try:
            with nogil:
                while rc == 1 or rc == ST_WAIT:     # others have their turns
                    open = self.enter()
                    rc = store_pack(self.s.store, hash_key, &seq, last, most, &b, &w) if open else ST_CLOSED
                    wait_cancel(&w)
                    self.box.leave()
                    if rc == ST_WAIT:
                        committer_pause(self.box.committer)
            self.check(open)
            store_checked(rc)
            return (<const char*>b.data)[:b.n] if b.n else b"", seq
        finally:
            bytes_free(&b)

    def fill(self, StreamFace source not None) -> None:
        """Of a stream without messages, before it is activated: takes those of another one, up to its last sequence."""
        cdef StoreState st
        cdef Wait w
        cdef uint64_t at = 0
        cdef bint open = False
        cdef int rc = 1
        memset(&w, 0, sizeof(Wait))
        with nogil:
            while rc == 1 or rc == ST_WAIT:         # others have their turns
                open = self.enter() and source.s != NULL and source.s.failed == 0
                rc = ST_CLOSED
                if open:
                    store_state(source.s.store, &st)
                    rc = store_copy(self.s.store, source.s.store, &at, st.last_seq, &w)
                if rc == ST_OK:
                    rc = stream_ends_at(self.s, st.last_seq, st.last_ts)
                wait_cancel(&w)
                self.box.leave()
                if rc == ST_WAIT:
                    committer_pause(self.box.committer)
        self.check(open)
        store_checked(rc)

    def at_time(self, int64_t ts) -> int:
        cdef uint64_t seq = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                seq = store_seq_at(self.s.store, ts)
            self.box.leave()
        self.check(open)
        return seq

    def delete(self, uint64_t seq, bint erase) -> bool:
        cdef int rc = ST_WAIT
        cdef bint open
        cdef Wait w
        memset(&w, 0, sizeof(Wait))
        with nogil:
            while rc == ST_WAIT:
                open = self.enter()
                if not open:
                    rc = ST_CLOSED
                elif store_warm(self.s.store, seq, &w):
                    rc = stream_delete(self.s, seq, erase)
                wait_cancel(&w)
                self.box.leave()
                if rc == ST_WAIT:               # its time, and what is erased, stand on the disk
                    committer_pause(self.box.committer)
        self.check(open)
        if rc == ST_NOT_FOUND:
            return False
        self.changed(rc)
        return True

    def unsettled(self, uint64_t seq=0) -> int:
        cdef uint64_t ticket = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                ticket = stream_unsettled(self.s, seq)
            self.box.leave()
        self.check(open)
        return ticket

    def changed_ticket(self) -> int:
        """What wait_durable would wait for now: 0, or a ticket for `answer`."""
        cdef uint64_t ticket = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.flush()
                store_settle(self.s.store, False)
                ticket = store_ticket(self.s.store)
                if ticket <= store_durable_ticket(self.s.store):
                    ticket = 0
            self.box.leave()
        self.check(open)
        return ticket

    def answer(self, uint64_t ticket, bytes reply not None, bytes data not None, bytes type not None) -> bool:
        cdef Span to = span_of(reply), what = span_of(data), kind = span_of(type)
        cdef int rc = -1
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                rc = stream_answer_later(self.s, ticket, to, what, kind)
            if rc == 0:
                release_answers(self.s, store_durable_ticket(self.s.store), 0)
            self.box.leave()
        self.check(open)
        return rc == 0

    def wait_durable(self, bint synced=False) -> None:
        cdef uint64_t ticket = 0
        cdef bint open
        with nogil:
            open = self.enter()
            if open:
                self.flush()
                store_settle(self.s.store, synced)
                ticket = store_ticket(self.s.store)
            while open and store_durable_ticket(self.s.store) < ticket:
                env_wait(self.box.env, &self.s.durable, env_clock(self.box.env) + LOOK_AGAIN)
                self.box.leave()
                open = self.enter()             # others had the lock meanwhile
            self.box.leave()
        self.check(open)
