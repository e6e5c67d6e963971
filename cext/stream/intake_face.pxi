# The face of what a mirror or a source takes in, for the control plane.

IntakeState = namedtuple("IntakeState", "seq lag idle broken refused")


cdef class IntakeFace(StreamFace):
    """A stream that may take in what others deliver."""

    def take_in(self, uint64_t id, bytes deliver not None, bytes consumer not None, uint64_t origin, bint mirror,
                bytes head not None, bytes tail not None, transforms) -> None:
        """As intake_open; transforms: SubjectTransform or None each."""
        cdef IntakeConfig c
        cdef SubjectTransform given
        cdef int rc = ST_CLOSED
        cdef bint open
        cdef Py_ssize_t i
        cdef Transform** all = <Transform**>malloc((len(transforms) + 1) * sizeof(Transform*))
        if all == NULL:
            raise MemoryError()
        try:
            for i in range(len(transforms)):
                given = transforms[i]
                all[i] = transform_of(given)
            c.id = id
            c.mirror = mirror
            c.deliver = span_of(deliver)
            c.consumer = span_of(consumer)
            c.origin = origin
            c.head = span_of(head)
            c.tail = span_of(tail)
            c.transforms = all
            c.n_transforms = <uint32_t>len(transforms)
            with nogil:
                open = self.enter()
                if open:
                    rc = intake_open(self.s, &c)
                self.box.leave()
        finally:
            free(all)
        self.check(open)
        self.changed(rc)

    def leave_off(self, uint64_t id) -> None:
        """Ends what take_in began."""
        with nogil:
            self.box.lock()
            if self.s != NULL:
                intake_close(self.s, id)
            self.box.leave()

    def intake(self, uint64_t id):
        """What was taken in: the origin's last sequence, how many messages it still had then, how long nothing came (ns), and
        whether it has ended by itself; why a message was not stored, if it has for that; None: nothing is."""
        cdef Intake* i = NULL
        cdef uint64_t seq = 0, lag = 0
        cdef int64_t idle = 0
        cdef bint broken = False, found
        cdef const char* why = NULL
        with nogil:
            self.box.lock()
            if self.serves():
                i = intake_find(self.s, id)
            found = i != NULL
            if found:
                seq = i.sseq
                lag = i.lag
                idle = self.s.env.mono - i.last
                broken = i.broken != 0
                why = i.why if i.broken == INTAKE_REFUSED else NULL
            self.box.leave()
        refused = why.decode() if why != NULL else ""
        return IntakeState(seq, lag, idle, broken, refused) if found else None

    def sourced(self, sources, uint64_t behind=0) -> list:
        """The last sequence of each source's origin, given by head and tail (take_in), that a message stored behind this
        sequence tells; 0: none."""
        cdef SourceLook k
        cdef Wait w
        cdef StoreState state
        cdef Py_ssize_t i, n = len(sources)
        cdef bint open
        cdef int rc = 1
        memset(&k, 0, sizeof(SourceLook))
        memset(&w, 0, sizeof(Wait))
        k.heads = <Span*>malloc((n + 1) * sizeof(Span))
        k.tails = <Span*>malloc((n + 1) * sizeof(Span))
        k.found = <uint64_t*>calloc(n + 1, sizeof(uint64_t))
        try:
            if k.heads == NULL or k.tails == NULL or k.found == NULL:
                raise MemoryError()
            for i in range(n):
                k.heads[i] = span_of(sources[i][0])
                k.tails[i] = span_of(sources[i][1])
            k.n = k.left = <uint32_t>n
            k.behind = behind
            with nogil:
                open = self.enter()
                if open:
                    store_state(self.s.store, &state)
                    k.before = state.last_seq + 1
                self.box.leave()
                while open and (rc == 1 or rc == ST_WAIT):     # others have their turns
                    open = self.enter()
                    if open:
                        store_state(self.s.store, &state)
                        k.left = k.left if k.before > state.first_seq else 0
                        rc = source_look(self.s, &k, &w)
                    wait_cancel(&w)
                    self.box.leave()
                    if rc == ST_WAIT:
                        committer_pause(self.box.committer)
            self.check(open)
            self.changed(rc)
            return [k.found[i] for i in range(n)]
        finally:
            free(k.heads)
            free(k.tails)
            free(k.found)
