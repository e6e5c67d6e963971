# An account for the control plane.

#: Requests to `local` that go to another account's service, as `subject` or what `transform` makes of it; neither: as they
#: are. `threshold` in ns. `latency`: where reports go, for `sampling` requests of a hundred or, where it is 0, as their
#: headers say; b"": nowhere. `export` is the same number for all who import by the same export.
ServiceLink = namedtuple("ServiceLink", "exporter local subject transform export once threshold share latency sampling")

#: Messages of another account on `subject` that are heard as `local`; `literal`: both are one subject. `transform` leads
#: there and `back`; None: they are named alike.
StreamLink = namedtuple("StreamLink", "exporter subject local literal transform back")

cdef Transform* copied_transform(SubjectTransform given) except NULL:
    cdef Transform* t = transform_copy(given.t)
    if t == NULL:
        raise MemoryError
    return t


cdef class MappingTable:
    """Mappings for AccountHandle.map_subjects, which may be made and let go in any thread."""

    cdef Mappings* all

    def __init__(self, mappings=()):
        """mappings: of (source, destinations), these being (SubjectTransform, upto) with the draws from 0 to 99 below which
        one is chosen that none before it is. ValueError: a source is there twice."""
        cdef MapDest* dests
        cdef SubjectTransform transform
        cdef uint32_t i
        if not mappings:
            return
        self.all = mappings_new()
        if self.all == NULL:
            raise MemoryError
        for source, destinations in mappings:
            dests = mappings_add(self.all, span_of(source), len(destinations))
            if dests == NULL:
                raise ValueError(f"{source!r} cannot be mapped, or not twice")
            for i, (transform, upto) in enumerate(destinations):
                dests[i].transform = copied_transform(transform)
                dests[i].upto = upto

    def __dealloc__(self):
        with nogil:
            mappings_free(self.all)


@cython.no_gc_clear     # the end of one that is garbage in a circle needs its data plane
cdef class AccountHandle:
    """An account of a data plane: its subjects, its streams, its limits. DataPlane.account() makes it.

    Handles of the same name are the same account until one of them closes it. Every method may be called from any thread;
    when the data plane is closed they raise PlaneClosed.
    """

    cdef DataPlane plane
    cdef Account* a
    cdef bytes hash
    cdef readonly str name
    cdef readonly uint32_t id   # by which what the data plane tells names the account; never given again

    def __dealloc__(self):
        if self.a == NULL:
            return
        with nogil:
            if self.plane.enter():
                account_release(self.a)
            env_unlock(self.plane.env)

    def close(self):
        """Ends the account: its clients are cut and its name is free again. After its streams were closed."""
        cdef ListWalk conns
        cdef Conn* c
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                account_close(self.a)
                conns = list_walk(&self.plane.m.net.conns)
                c = conn_step(&conns)
                while c != NULL:
                    if c.base.account == self.a:
                        client_close(&c.base, CLOSE_MISSING_ACCOUNT)
                    c = conn_step(&conns)
            self.plane.leave()
        self.plane.check(open)

    def pointer(self):
        """The account for a layer that is loaded apart. As long as this handle is there."""
        return PyCapsule_New(self.a, b"jsserver.Account", NULL)

    def limit_clients(self, int64_t max_connections, int64_t max_subscriptions, int64_t max_payload):
        """What its clients are held to: how many they are, subscriptions of each, and bytes of a message; -1: no limit."""
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                self.a.max_members = max_connections
                self.a.max_subscriptions = max_subscriptions
                self.a.max_payload = max_payload
            env_unlock(self.plane.env)
        self.plane.check(open)

    def become_system(self):
        """It is the system account: its clients are told so."""
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open and not self.a.system:
                self.a.system = True
                self.plane.m.batches.system = self.a
                account_hold(self.a)        # as long as the server lives
            env_unlock(self.plane.env)
        self.plane.check(open)

    def map_subjects(self, MappingTable table):
        """What its clients publish goes elsewhere from now on, by a table (None: by none) that is empty afterwards. Returns
        the table that it went by before; to let that go takes long where it is large."""
        cdef MappingTable before = MappingTable()
        cdef Mappings* all = NULL
        cdef bint open
        if table is not None:
            all, table.all = table.all, NULL
        with nogil:
            open = self.plane.enter()
            before.all = account_map(self.a, all) if open else all
            env_unlock(self.plane.env)
        self.plane.check(open)
        return before

    def link(self, services, streams):
        """What it imports from now on, instead of what it imported before: lists of ServiceLink and of StreamLink."""
        cdef ServiceImport* first_service = NULL
        cdef StreamImport* first_stream = NULL
        cdef ServiceImport* s
        cdef StreamImport* t
        cdef AccountHandle to
        cdef SubjectTransform transform
        cdef Bytes subjects
        cdef Span subject
        cdef bint open
        cdef int rc = 0
        cdef uint32_t i = 0
        memset(&subjects, 0, sizeof(subjects))
        try:
            for given in reversed(services):
                to = given.exporter
                s = service_new(to.a, span_of(given.subject), span_of(given.latency))
                if s == NULL:
                    raise MemoryError
                s.next = first_service
                first_service = s
                if given.transform is not None:
                    transform = given.transform
                    s.transform = copied_transform(transform)
                s.export_id = given.export
                s.respond = RESPOND_ONCE if given.once else RESPOND_MANY
                s.threshold = max(<int64_t>given.threshold, 1)
                s.share = given.share
                s.sampling = given.sampling
            for given in services:
                subject = span_of(given.local)
                rc |= bytes_add(&subjects, &subject, sizeof(Span))
            for given in reversed(streams):
                to = given.exporter
                t = stream_import_new(to.a, span_of(given.subject), span_of(given.local))
                if t == NULL:
                    raise MemoryError
                t.next = first_stream
                first_stream = t
                t.is_literal = given.literal
                if given.transform is not None:
                    transform = given.transform
                    t.there = copied_transform(transform)
                    transform = given.back
                    t.back = copied_transform(transform)
            if rc < 0:
                raise MemoryError
        except BaseException:
            services_free(first_service)
            stream_imports_free(first_stream)
            bytes_free(&subjects)
            raise
        with nogil:
            open = self.plane.enter()
            if open:
                rc = account_link(self.a, first_service, <const Span*>subjects.data, first_stream)
            else:
                services_free(first_service)
                stream_imports_free(first_stream)
            self.plane.leave()
        bytes_free(&subjects)
        self.plane.check(open)
        if rc < 0:
            raise MemoryError

    def replies(self):
        """How many replies it may still give to other accounts, and how many it waits for."""
        cdef uint32_t answering = 0, awaiting = 0
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                answering = self.a.replies.n_answering
                awaiting = self.a.replies.n_awaiting
            env_unlock(self.plane.env)
        self.plane.check(open)
        return answering, awaiting

    # ---- messages

    def publish(self, bytes subject, bytes reply, bytes headers, bytes payload):
        """Routes a message of the server's own."""
        self.send(KIND_SYSTEM, subject, reply, headers, payload)

    def request(self, bytes subject, bytes reply, bytes headers, bytes payload):
        """Routes a request on the account's behalf: as from a client that may do everything."""
        self.send(KIND_CLIENT, subject, reply, headers, payload)

    cdef int send(self, int kind, bytes subject, bytes reply, bytes headers, bytes payload) except -1:
        cdef Msg m
        cdef bint open
        memset(&m, 0, sizeof(m))
        m.account = self.a
        m.kind = kind
        m.dest = m.subject = span_of(subject)
        m.reply = span_of(reply)
        m.header = span_of(headers)
        m.data = span_of(payload)
        with nogil:
            open = self.plane.enter()
            if open:
                engine_route(&self.plane.m.engine, NULL, &m)
            self.plane.leave()
        self.plane.check(open)
        return 0

    cdef int serve(self, bytes subject, int hears, inbound_fn fn) except -1:
        cdef Span s = span_of(subject)
        cdef bint open
        cdef bint served = True
        with nogil:
            open = self.plane.enter()
            if open:
                served = self.a.closed or account_serve(self.a, s, hears, fn) != NULL
            env_unlock(self.plane.env)
        self.plane.check(open)
        if not served:
            raise MemoryError
        return 0

    def serve_requests(self, bytes subject):
        """Messages on this subject, which may have wildcards, come to the inbox as INBOX_REQUEST."""
        self.serve(subject, HEARS_REQUESTS, request_in)

    def serve_acks(self, bytes subject):
        """What streams answer on this subject comes to the inbox as INBOX_REQUEST; nothing that anybody else sends there."""
        self.serve(subject, 1 << KIND_ACK, request_in)

    def serve_answers(self, bytes subject):
        """Likewise answers to what the server asked, from clients and servers alike."""
        self.serve(subject, HEARS_ALL | LISTENS, request_in)

    def stop_requests(self, bytes subject not None):
        """Ends what `serve_requests` began."""
        cdef Span s = span_of(subject)
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                account_stop_serving(self.a, s)
            self.plane.leave()
        self.plane.check(open)

    def serve_domain(self, str domain):
        """The API of this domain is the API. What is neither that nor a bucket's has no responder."""
        cdef bytes prefix = f"$JS.{domain}.API.".encode()
        cdef Span s = span_of(prefix)
        cdef bint open
        cdef int rc = 0
        with nogil:
            open = self.plane.enter()
            if open:
                rc = account_domain(self.a, s)
            env_unlock(self.plane.env)
        self.plane.check(open)
        if rc < 0:
            raise MemoryError

    def subject_interest(self, bytes subject):
        """Whether a client or a stream would receive a message on this subject."""
        cdef Span s = span_of(subject)
        cdef bint open, found
        with nogil:
            open = self.plane.enter()
            found = open and self.plane.env.out.has_interest(self.plane.env.out.ctx, self.a, s)
            env_unlock(self.plane.env)
        self.plane.check(open)
        return found

    def subscribed(self, bytes subject):
        """Whether somebody has subscribed to exactly this subject: a wildcard does not count."""
        cdef Span s = span_of(subject)
        cdef bint open
        cdef uint32_t n = 0
        with nogil:
            open = self.plane.enter()
            if open:
                n = count_exact(self.a, s, span(NULL, 0))
            env_unlock(self.plane.env)
        self.plane.check(open)
        return n > 0

    def outstanding(self, bytes subject):
        """The most bytes that wait to be written to one of the connections that would receive a message on this subject;
        -1: none would."""
        cdef Span s = span_of(subject)
        cdef bint open
        cdef int64_t bytes = -1
        with nogil:
            open = self.plane.enter()
            if open:
                bytes = most_queued(self.a, s)
            env_unlock(self.plane.env)
        self.plane.check(open)
        return bytes

    def may_receive(self, uint64_t cid, bytes subject):
        """Whether a connection of this account may have the server send to this subject: it may publish there itself, or
        its list of subjects to subscribe to allows it. A user without such a list needs the right to publish."""
        cdef Span s = span_of(subject)
        cdef Conn* c = NULL
        cdef bint open, may = False
        with nogil:
            open = self.plane.enter()
            if open:
                c = self.plane.find(cid)
            if c != NULL and c.base.account == self.a:
                may = (c.base.perms == NULL or perms_can_publish(c.base.perms, s)
                       or (perms_list_subscriptions(c.base.perms) and perms_can_subscribe(c.base.perms, s, span(NULL, 0))))
            env_unlock(self.plane.env)
        self.plane.check(open)
        return may

    # ---- JetStream

    def open_stream(self, directory, prepared, bint synced=False):
        """Blocking. A StreamHandle, new or with what its directory holds (None for memory); StoreError."""
        cdef StreamPlace place
        cdef StreamFace handle
        self.plane.must_be_open()
        memset(&place, 0, sizeof(place))
        place.account = self.a
        place.synced = synced
        place.domain = span_of(self.plane.domain)
        place.account_hash = span_of(self.hash)
        place.max_payload = self.plane.m.max_payload
        place.batch_room = &self.plane.m.batches
        place.requests = &self.a.requests
        if directory is None:
            place.account_usage = &self.a.memory
            place.server_usage = &self.plane.m.memory
        else:
            place.account_usage = &self.a.storage
            place.server_usage = &self.plane.m.storage
        handle = stream_handle(self.plane, &place, prepared, directory)
        handle.owner = self
        return handle

    def usage(self):
        """Bytes that the account's streams hold: in memory and in files."""
        cdef int64_t memory = 0, storage = 0
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                memory = self.a.memory.used
                storage = self.a.storage.used
            env_unlock(self.plane.env)
        self.plane.check(open)
        return AccountUsage(memory=memory, storage=storage)

    def requests(self):
        """Requests of the API that its streams answered themselves, so far."""
        cdef Requests r
        cdef bint open
        memset(&r, 0, sizeof(r))
        with nogil:
            open = self.plane.enter()
            if open:
                r = self.a.requests
            env_unlock(self.plane.env)
        self.plane.check(open)
        return AnsweredRequests(r.total, r.errors, r.inflight)

    def set_limits(self, int64_t max_memory, int64_t max_storage):
        """The most bytes the account's streams may hold; -1: no limit."""
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                self.a.memory.max = max_memory
                self.a.storage.max = max_storage
            env_unlock(self.plane.env)
        self.plane.check(open)

    def have_jetstream(self, bint has):
        """Whether the account has JetStream on this server. Where not, and it imports `$JS.API.INFO`, the rest of the API
        has no responder here."""
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                self.a.jetstream = has
            env_unlock(self.plane.env)
        self.plane.check(open)

    # ---- monitoring

    def traffic(self):
        """Clients that are in it, its subscriptions, and what its clients have moved since the start."""
        cdef SublistStats l
        cdef uint64_t moved[4]
        cdef uint32_t members = 0
        cdef bint open
        memset(&l, 0, sizeof(l))
        memset(moved, 0, sizeof(moved))
        with nogil:
            open = self.plane.enter()
            if open:
                members = self.a.members
                moved[0] = self.a.in_msgs
                moved[1] = self.a.in_bytes
                moved[2] = self.a.out_msgs
                moved[3] = self.a.out_bytes
                sublist_stats(self.a.subs, &l)
            env_unlock(self.plane.env)
        self.plane.check(open)
        return AccountTraffic(members, l.subs, moved[0], moved[1], moved[2], moved[3])

    def sublist(self):
        """Counters of its subscriptions as a dict."""
        cdef SublistStats l
        cdef bint open
        with nogil:
            open = self.plane.enter()
            if open:
                sublist_stats(self.a.subs, &l)
            env_unlock(self.plane.env)
        self.plane.check(open)
        return l
