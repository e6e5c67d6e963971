"""Drives the network's side: the parser, and reactors that take their turns when they are told to, with connections that are
sockets or have a transport in memory, and a protocol of lines beside the clients' own."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EAGAIN, ENOMEM
from libc.stdint cimport SIZE_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport sscanf
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy, memset
from posix.unistd cimport close

from jsserver.cext.bytes cimport *
from jsserver.cext.core cimport *
from jsserver.cext.engine cimport read_items
from jsserver.cext.net cimport *


include "texts.pxi"


cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_trylock(pthread_mutex_t* m)


# ---- the parser

cdef class PyParser:
    """The client protocol's parser for tests: feed() returns the operations completed so far.

    Each as (verb, subject, reply, queue, sid, header, data, max) with bytes; ("ERROR", text) ends it.
    """

    cdef Parser parser
    cdef bytearray kept

    def __cinit__(self, int64_t max_line=4096, int64_t max_payload=1048576):
        self.parser.max_line = max_line
        self.parser.max_payload = max_payload
        self.kept = bytearray()

    def feed(self, bytes data):
        cdef Op op
        cdef int rc
        cdef size_t at = 0
        cdef const uint8_t* p
        cdef list out = []
        self.kept += data
        p = <const uint8_t*>PyByteArray_AS_STRING(self.kept)
        while True:
            memset(&op, 0, sizeof(op))
            rc = parse(&self.parser, p + at, len(self.kept) - at, &op)
            if rc < 0:
                out.append(("ERROR", {PARSE_UNKNOWN: "unknown", PARSE_ARGS: "args", PARSE_SIZE: "args", PARSE_LINE: "line",
                                      PARSE_PAYLOAD: "payload"}[rc]))
            if rc != PARSE_OK:
                break
            out.append(self.tell(&op))
            at += op.size
        del self.kept[:at]
        return out

    @staticmethod
    def look(bytes data, uint32_t most=1000):
        """(subject, reply, data) of what is recognised before the engine lock is taken."""
        cdef const uint8_t* p = data
        cdef Ahead* ahead = <Ahead*>calloc(most, sizeof(Ahead))
        cdef Ahead* a
        cdef list out = []
        cdef uint32_t i
        if ahead == NULL:
            raise MemoryError
        try:
            for i in range(client_protocol.look(p, len(data), ahead, most)):
                a = &ahead[i]
                out.append((p[4:4 + a.n_subject], p[5 + a.n_subject:5 + a.n_subject + a.n_reply],
                            p[a.data_at:a.data_at + a.n_data]))
                p += a.data_at + a.n_data + 2
        finally:
            free(ahead)
        return out

    cdef tuple tell(self, Op* op):
        verb = ("", "CONNECT", "INFO", "PING", "PONG", "PUB", "SUB", "UNSUB", "+OK", "-ERR")[op.kind]
        if op.kind == OP_PUB:
            return (verb, span_bytes(op.subject), span_bytes(op.reply), b"", b"",
                    span_bytes(op.header), span_bytes(op.data), 0)
        if op.kind == OP_SUB:
            return (verb, span_bytes(op.subject), b"", span_bytes(op.queue), span_bytes(op.sid), b"", b"", 0)
        if op.kind == OP_UNSUB:
            return (verb, b"", b"", b"", span_bytes(op.sid), b"", b"", op.max)
        return (verb, span_bytes(op.args), b"", b"", b"", b"", b"", 0)


# ---- reactors

TEST_KINDS = {"router": KIND_ROUTER, "gateway": KIND_GATEWAY, "leaf": KIND_LEAF, "client": KIND_CLIENT}

cdef enum:
    DIAL_TIMEOUT_NS = 1000000000


# ---- the transport: what one side writes is kept until the test takes it

cdef struct MemoryLink:
    MemoryLink* next
    Bytes inward            # what waits to be read
    size_t read
    Bytes outward           # what was written
    size_t room             # how much more may be written; SIZE_MAX: without end
    size_t piece            # the most that one call takes or gives
    int error               # what reading says when nothing is left: 0 the end, else -errno
    int under_lock          # calls that the engine lock was held for
    bint there              # it is established
    bint wants_read
    bint wants_write
    bint down


cdef MemoryLink* memory_link(Conn* c) noexcept nogil:
    # A thread that may wait for a peer must not hold the engine lock.
    cdef MemoryLink* link = <MemoryLink*>c.link
    cdef pthread_mutex_t* held = &c.base.engine.env.lock.held
    if pthread_mutex_trylock(held) == 0:
        pthread_mutex_unlock(held)
    else:
        link.under_lock += 1
    return link


cdef int memory_establish(Conn* c) noexcept nogil:
    cdef MemoryLink* link = <MemoryLink*>c.link
    return 0 if link.there else link.error


cdef ssize_t memory_read(Conn* c, void* p, size_t n) noexcept nogil:
    cdef MemoryLink* link = memory_link(c)
    n = min(n, link.piece, link.inward.n - link.read)
    if n == 0:
        return link.error
    memcpy(p, link.inward.data + link.read, n)
    link.read += n
    return n


cdef ssize_t memory_write(Conn* c, const iovec* iov, int n) noexcept nogil:
    cdef MemoryLink* link = memory_link(c)
    cdef size_t most = min(link.room, link.piece), total = 0, part
    cdef int i
    if most == 0:
        return -EAGAIN
    for i in range(n):
        part = min(iov[i].iov_len, most - total)
        if bytes_add(&link.outward, iov[i].iov_base, part) != 0:
            return -ENOMEM
        total += part
    if link.room != SIZE_MAX:
        link.room -= total
    return total


cdef int memory_want(Conn* c, bint read, bint write) noexcept nogil:
    cdef MemoryLink* link = <MemoryLink*>c.link
    link.wants_read = read
    link.wants_write = write
    return 0


cdef void memory_shutdown(Conn* c) noexcept nogil:
    memory_link(c).down = True


cdef Transport memory_transport

memory_transport.establish = memory_establish
memory_transport.read = memory_read
memory_transport.write = memory_write
memory_transport.want = memory_want
memory_transport.shutdown = memory_shutdown


# ---- the protocol: `<subject queue weight origin` subscribes, with what there is of these; `subject text` publishes, and so
# a message comes

cdef void echo_greet(Client* b) noexcept nogil:
    client_write(b, b"hello\n", 6)


cdef void echo_subscribe(Client* b, Span line) noexcept nogil:
    cdef Span queue = span(NULL, 0)
    cdef char text[64]
    cdef char subject[64]
    cdef char group[64]
    cdef unsigned int weight = 1, origin = 0
    cdef uint32_t n = min(line.n, <uint32_t>63)
    memcpy(text, line.p, n)
    text[n] = 0
    if sscanf(text, b"%s %s %u %u", subject, group, &weight, &origin) > 1 and group[0] != c'-':
        queue = span_c(group)
    sub_begin(b, span_c(subject), queue, line, weight, origin)


cdef void echo_open(Client* b) noexcept nogil:
    pass


cdef size_t echo_feed(Client* b, const uint8_t* p, size_t n, size_t* need) noexcept nogil:
    cdef size_t at = 0, size
    cdef const uint8_t* end
    cdef const uint8_t* blank
    cdef Span line
    cdef Span none = span(NULL, 0)
    while at < n and not conn_halted(<Conn*>b):
        end = <const uint8_t*>memchr(p + at, c'\n', n - at)
        if end == NULL:
            break
        size = end - p - at
        line = span(p + at, <uint32_t>size)
        at += size + 1
        if size and line.p[0] == c'<':
            echo_subscribe(b, span(line.p + 1, line.n - 1))
            continue
        blank = <const uint8_t*>memchr(line.p, c' ', size) if size else NULL
        if blank == NULL:
            client_close(b, CLOSE_PARSE_ERROR)
            break
        size = blank - line.p
        publish(b, span(line.p, <uint32_t>size), none, none, span(blank + 1, <uint32_t>(line.n - size - 1)))
        conn_pace(<Conn*>b)
    return at


cdef int echo_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    if s.client.closing or s.client == src:
        return 0
    client_write(s.client, m.subject.p, m.subject.n)
    client_write(s.client, b" ", 1)
    client_write(s.client, m.data.p, m.data.n)
    client_write(s.client, b"\n", 1)
    return 1


cdef void echo_admit(Client* b) noexcept nogil:
    client_write(b, b"admitted\n", 9)


cdef void echo_keepalive(Client* b, int64_t now) noexcept nogil:
    client_write(b, b".\n", 2)


cdef void echo_refuse(Client* b, int reason, Span text) noexcept nogil:
    client_write(b, b"!", 1)
    client_write(b, text.p, text.n)
    client_write(b, b"\n", 1)
    if reason:
        client_close(b, reason)


cdef Protocol echo_protocol

echo_protocol.size = sizeof(Conn)
echo_protocol.init = NULL
echo_protocol.look = NULL
echo_protocol.greet = echo_greet
echo_protocol.open = echo_open
echo_protocol.feed = echo_feed
echo_protocol.deliver = echo_deliver
echo_protocol.admit = echo_admit
echo_protocol.keepalive = echo_keepalive
echo_protocol.refuse = echo_refuse


# ---- the reactors

cdef struct World:
    Engine engine
    EnvLock lock
    Net net
    MemoryLink* links


cdef class PyReactor:
    """Reactors without threads: each turn is the test's.

    Connections in memory are known by their numbers; theirs are send() and received(), and events for the next turn. Others
    come over sockets, which poll() waits for.
    """

    cdef World* w
    cdef dict links         # number -> address of its MemoryLink
    cdef dict events        # number -> what epoll would say of it

    def __cinit__(self, uint32_t reactors=1, **limits):
        cdef Engine* e
        self.links = {}
        self.events = {}
        self.w = <World*>calloc(1, sizeof(World))
        if self.w == NULL:
            raise MemoryError
        e = &self.w.engine
        engine_init(e, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
        env_lock_init(&self.w.lock)
        e.env.lock = &self.w.lock
        e.env.random = 1
        if net_init(&self.w.net, e, reactors) != 0:
            raise MemoryError
        limit_pending(&e.limits, limits.pop("max_pending", e.limits.max_pending))
        self.w.net.limits.write_deadline = limits.pop("write_deadline", self.w.net.limits.write_deadline)
        assert not limits, limits
        self.w.net.default_account = account_open(e, span_of(b"$G"))

    def __dealloc__(self):
        cdef MemoryLink* link
        if self.w == NULL:
            return
        net_free(&self.w.net)
        net_forget(&self.w.net)
        close(self.w.engine.inbox.fd)
        engine_free(&self.w.engine)
        while self.w.links != NULL:
            link = self.w.links
            self.w.links = link.next
            bytes_free(&link.inward)
            bytes_free(&link.outward)
            free(link)
        free(self.w)

    cdef const Protocol* protocol(self, str name) noexcept:
        return &client_protocol if name == "client" else &echo_protocol

    def open(self, str protocol="client", str kind="client", uint32_t origin=0):
        """A connection in memory, of a cluster; its number."""
        cdef Conn* c = conn_new(&self.w.net, -1, TEST_KINDS[kind], self.protocol(protocol), &memory_transport, 0)
        if c == NULL:
            raise MemoryError
        self.give_link(c)
        c.base.origin = origin
        cid = c.base.cid
        if conn_join(c, NULL) != 0:
            raise MemoryError
        conn_open(c)
        return cid

    cdef int give_link(self, Conn* c) except -1:
        cdef MemoryLink* link = <MemoryLink*>calloc(1, sizeof(MemoryLink))
        if link == NULL:
            raise MemoryError
        link.room = SIZE_MAX
        link.piece = SIZE_MAX
        link.error = -EAGAIN
        self.links[c.base.cid] = <size_t>link
        link.next = self.w.links
        self.w.links = link
        c.link = link
        return 0

    def approach(self, bytes request=b""):
        """A connection in memory that asks for WebSocket; its number."""
        cdef Conn* c = conn_new(&self.w.net, -1, KIND_CLIENT, &client_protocol, &memory_transport, 0)
        if c == NULL or ws_wrap(c, 0) != 0:
            raise MemoryError
        ws_begin(c)
        self.give_link(c)
        (<MemoryLink*>c.link).there = True
        cid = c.base.cid
        if conn_join(c, NULL) != 0:
            raise MemoryError
        if request:
            self.send(cid, request)
        return cid

    def answer(self, cid, str verdict, bytes reply not None=b"", *, masked=True, deflate=False, frame_max=0, whole=False,
               masks=False):
        """What the control plane says to its request; whether it waited for that."""
        cdef WsTerms agreed
        cdef bint waited
        agreed.masked = masked
        agreed.masks = masks
        agreed.message_max = 0
        agreed.deflate = deflate
        agreed.frame_max = frame_max
        agreed.whole = whole
        said = {"open": WS_OPEN, "again": WS_REQUEST, "refused": WS_REFUSED}[verdict]
        env_lock(&self.w.engine.env)
        waited = ws_answer(self.conn(cid), said, span_of(reply), &agreed)
        env_unlock(&self.w.engine.env)
        return waited

    def name_reason(self, int reason, bytes text not None):
        memcpy(self.w.net.reasons[reason], <const char*>text, len(text) + 1)

    def listen(self, int fd, str protocol="client", str kind="client"):
        """The number by which unlisten knows it."""
        return <size_t>listener_open(&self.w.net, fd, TEST_KINDS[kind], self.protocol(protocol), &plain_transport)

    def secure(self, size_t number, security, bint proxied=False):
        """What comes before the bytes of connections that are accepted from now on, as DataPlane.secure has it."""
        cdef Security* s = NULL
        if security is not None:
            s = <Security*>PyCapsule_GetPointer(security, b"jsserver.Security")
        listener_secure(<Listener*>number, s, proxied)

    def unlisten(self, size_t number):
        listener_close(<Listener*>number)

    def dial(self, int fd, str protocol="client", str kind="client", int64_t timeout=DIAL_TIMEOUT_NS):
        """Takes a socket that connects; the number of its connection."""
        cdef Span anybody = span(NULL, 0)
        cdef Conn* c = conn_dial(&self.w.net, fd, NULL, TEST_KINDS[kind], self.protocol(protocol), &plain_transport, timeout,
                                 NULL, anybody, anybody)
        if c == NULL:
            raise MemoryError
        return c.base.cid

    cdef MemoryLink* link(self, cid) except NULL:
        return <MemoryLink*><size_t>self.links[cid]

    cdef Conn* conn(self, uint64_t cid) noexcept:
        cdef uint64_t found = 0
        u64map_get(&self.w.net.by_cid, cid, &found)
        return <Conn*>found

    def send(self, cid, bytes data not None):
        """The connection has this to read at the next turn."""
        cdef Span s = span_of(data)
        if bytes_add(&self.link(cid).inward, s.p, s.n) != 0:
            raise MemoryError
        self.events[cid] = self.events.get(cid, 0) | EPOLLIN

    def end(self, cid, int error=0):
        """Nothing more comes from it; error: an errno instead of the end."""
        self.link(cid).error = -error
        self.events[cid] = self.events.get(cid, 0) | EPOLLIN

    def writable(self, cid, room=None):
        """It may write so many bytes more, and hears of it at the next turn; None: without end."""
        self.link(cid).room = SIZE_MAX if room is None else room
        self.events[cid] = self.events.get(cid, 0) | EPOLLOUT

    def hold(self, cid):
        """Nothing can be written to it from now on."""
        self.link(cid).room = 0

    def pieces(self, cid, size_t n):
        """It reads and writes at most so many bytes a call."""
        self.link(cid).piece = n

    def received(self, cid):
        """What was written to it since the last time."""
        cdef MemoryLink* link = self.link(cid)
        taken = (<const char*>link.outward.data)[:link.outward.n] if link.outward.n else b""
        link.outward.n = 0
        return taken

    def wants(self, cid):
        """Whether it waits to (read, write), and is (down)."""
        cdef MemoryLink* link = self.link(cid)
        return link.wants_read, link.wants_write, link.down

    def pending(self, cid):
        """Bytes that wait to be written to it; None: it is gone."""
        cdef Conn* c = self.conn(cid)
        return None if c == NULL else client_pending(&c.base)

    def unread(self, cid):
        """Bytes that it could read."""
        return self.link(cid).inward.n - self.link(cid).read

    def compress(self, cid, int level, tuple thresholds=(), bytes first not None=b""):
        """Compression begins, as the control plane has it begin behind an INFO."""
        cdef Conn* c = self.conn(cid)
        cdef int64_t ns[S2_BEST]
        for i, some in enumerate(thresholds):
            ns[i] = some
        c.rest.paused = True
        conn_events(c)
        if conn_compress(c, level, ns, <int>len(thresholds), span_of(first)) != 0:
            raise MemoryError

    def compressed(self, cid):
        """Bytes that wait to be decoded, and those of a chunk that are."""
        cdef Compression* k = self.conn(cid).compression
        return k.inward.n, k.held.n

    def level(self, cid, int64_t rtt):
        """At which it compresses after a round trip of so many ns."""
        cdef Conn* c = self.conn(cid)
        c.base.rtt = rtt
        conn_recompress(c)
        return c.compression.level

    def shared(self):
        """Payloads that out buffers share now."""
        return self.w.engine.n_payloads

    def under_lock(self, cid):
        """How often its transport was called to read, write or end while the engine lock was held."""
        return self.link(cid).under_lock

    def kill(self, cid, int reason):
        client_close(&self.conn(cid).base, reason)

    def keepalive(self, cid):
        """As if the timer for it had run out."""
        cdef Conn* c = self.conn(cid)
        c.base.protocol.keepalive(&c.base, self.w.engine.env.mono)

    def publish(self, bytes subject not None, bytes payload not None):
        """A message of the server's own; how many took it."""
        cdef Msg m
        memset(&m, 0, sizeof(m))
        m.account = self.w.net.default_account
        m.kind = KIND_SYSTEM
        m.dest = m.subject = span_of(subject)
        m.data = span_of(payload)
        return engine_route(&self.w.engine, NULL, &m)

    def turn(self):
        """One turn of each reactor with the events that there are."""
        cdef epoll_event[EVENTS_MAX] events
        cdef Conn* c
        cdef uint32_t i
        cdef int n
        for i in range(self.w.net.n_reactors):
            n = 0
            for cid, what in self.events.items():
                c = self.conn(cid)
                if c != NULL and c.reactor == &self.w.net.reactors[i] and not c.base.closing:
                    events[n].events = what
                    events[n].data.ptr = &c.head
                    n += 1
            self.take_turns(i, events, n)
        self.events.clear()
        self.follow_up()

    cdef void take_turns(self, uint32_t i, epoll_event* events, int n) noexcept:
        # And those that follow at once.
        cdef Reactor* r = &self.w.net.reactors[i]
        with nogil:
            turn(r, events, n)
            while not is_settled(r):
                turn(r, NULL, 0)

    cdef void follow_up(self) noexcept:
        # Turns of reactors for which others made work.
        cdef uint32_t i = 0
        while i < self.w.net.n_reactors:
            if (not list_empty(&self.w.net.reactors[i].work.dirty) or self.w.net.reactors[i].work.closing != NULL
                    or not list_empty(&self.w.net.reactors[i].tasks)):
                self.take_turns(i, NULL, 0)
                i = 0
            else:
                i += 1

    def poll(self, int ms):
        """One turn of each reactor with what epoll knows; for the first, within that time."""
        cdef epoll_event[EVENTS_MAX] events
        cdef uint32_t i
        cdef int n
        for i in range(self.w.net.n_reactors):
            n = epoll_wait(self.w.net.reactors[i].epoll, events, EVENTS_MAX, 0 if i else ms)
            self.take_turns(i, events, max(n, 0))
        self.follow_up()

    def reactor_of(self, cid):
        """The number of the reactor that serves it."""
        return self.conn(cid).reactor - self.w.net.reactors

    def items(self):
        """What the control plane is told, as DataPlane.drain has it."""
        cdef Inbox* b = &self.w.engine.inbox
        found = read_items(b.items.data, b.items.n)
        b.items.n = 0
        return found
