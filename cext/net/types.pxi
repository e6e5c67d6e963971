# What the network's side consists of: transports, connections, listeners, the reactor.

cdef enum AuthState:
    AUTH_OPEN = 0           # nothing to prove, or proven
    AUTH_NEEDED = 1         # CONNECT must come first
    AUTH_WAITING = 2        # the control plane decides; the input is paused

cdef enum Stall:
    FOR_RECEIVER = 1        # one of its receivers is slow
    FOR_ANSWERS = 2         # it has asked the control plane enough for now

cdef enum:
    READ_SIZE = 65536       # bytes taken from one connection in one turn
    LEFT_MAX = 65536        # an incomplete operation of unknown size must be shorter
    REACTORS_MAX = 64       # bits of a uint64_t
    BUFFER_SIZE = 196608    # of a reactor: a piece of input begins within the first READ_SIZE
    EVENTS_MAX = 256
    IOV_MAX_USED = 256
    WRITTEN_MAX = 256       # chunks that may wait for the next turn, however late it comes
    ADDRESS_MAX = 64
    STALL_NS = 2000000
    AHEAD_MAX = 4096        # publishes that a reactor recognises before it takes the engine lock
    SNIPPET = 32            # bytes of what was not understood, in the log
    ASKING_MAX = 128        # requests of one connection that the control plane has
    STALLS_MAX = 5          # in one read, as nats-server's 10 ms

cdef enum HeadKind:
    HEAD_WAKE = 0           # of the reactor's eventfd
    HEAD_LISTENER = 1
    HEAD_CONN = 2

cdef struct Head:
    # What an event of epoll points at.
    int kind
    void* owner

cdef struct Transport:
    # How a connection's bytes come and go; called by its reactor alone, read, write and shutdown without the engine lock.
    # Of one that we asked for: 0 when bytes may flow, -EAGAIN while they may not yet, else -errno.
    int (*establish)(Conn* c) noexcept nogil
    ssize_t (*read)(Conn* c, void* p, size_t n) noexcept nogil              # bytes; 0: the end; else -errno
    ssize_t (*write)(Conn* c, const iovec* iov, int n) noexcept nogil       # bytes, or -errno
    # What it is to be woken for from now on; 0 or -errno.
    int (*want)(Conn* c, bint read, bint write) noexcept nogil
    # Ends it behind what was written.
    void (*shutdown)(Conn* c) noexcept nogil

cdef struct Conn:
    Client base             # first: a Client* of ours is a Conn*
    Head head
    Reactor* reactor
    Conn* next
    Conn* prev
    const Transport* transport
    void* link              # the transport's own
    int fd
    bint connecting         # asked for by us and not established
    int auth
    bint paused             # for the control plane
    int stalled             # FOR_RECEIVER | FOR_ANSWERS; the input waits
    uint32_t asking         # its requests that the control plane has
    # the way out of bytes, the reactor's alone
    Chunk* out              # what it writes
    Chunk* out_tail
    bint flushing           # linked in reactor.flushing
    bint progress           # the last write took something
    bint write_failed
    bint deadline_set       # write_timer runs
    bint finished           # linked in reactor.ending
    bint last_words         # what is left is written before the end
    Conn* next_flushing
    Conn* next_settling
    Conn* next_ending
    bint polled             # epoll knows it
    bint reading            # what the transport was told to want
    bint writing
    uint32_t stalls_left
    uint64_t stalls
    uint8_t* left           # input kept for later: an incomplete operation, or all of it while paused
    size_t n_left
    size_t cap_left
    size_t need             # bytes that complete what is left, when known; else 0
    const Ahead* ahead      # what the bytes being fed begin with
    uint32_t n_ahead
    Timer ping_timer
    Timer auth_timer        # until it is connected, and has proven who it is
    Timer write_timer
    Timer stall_timer
    Task resume
    uint32_t pings_out
    int64_t ping_sent       # mono; 0: none outstanding
    int64_t rtt             # ns; 0: unknown
    int64_t rtt_at
    int64_t started         # wall
    int64_t last_active     # wall
    int64_t input_at        # mono
    char address[ADDRESS_MAX]
    uint32_t n_address
    int port
    Bytes connect           # the CONNECT options as they came, for the control plane

cdef struct ClientConn:
    # A connection that speaks the clients' protocol.
    Conn conn
    Parser parser
    bint connected          # CONNECT was accepted
    bint first_pong         # sent
    int version             # of the protocol, as CONNECT says

cdef struct Listener:
    Head head
    Reactor* reactor
    Listener* next
    int fd                  # -1: closed, freed at the end of the turn
    bint paused             # the process is out of descriptors for a moment
    Timer timer
    # of its connections
    int kind
    const Protocol* protocol
    const Transport* transport

cdef struct Terms:
    # What connections of a kind are told and held to.
    Bytes info_head         # up to and with "client_id":
    Bytes info_tail         # from after client_ip's closing quote on
    Bytes info_connected    # what connect_info adds
    bint auth_required
    bint no_auth_user
    int64_t auth_timeout    # ns

cdef struct Arrival:
    # What an event has brought, read without the engine lock and worked through with it.
    Head* head
    uint32_t events
    ssize_t got             # of reading, or of establishing; -EAGAIN: nothing
    uint8_t* data           # with what was left before; NULL: it is in the connection's own buffer
    size_t n
    const Ahead* ahead      # what the data begin with
    uint32_t n_ahead

cdef struct Reactor:
    # One thread and the connections that it serves. Without the engine lock it alone uses what is not said to be under it.
    Net* net
    Engine* engine
    int epoll
    int wake                # eventfd: other threads made work
    Head wake_head
    uint8_t* buffer         # BUFFER_SIZE, shared by all connections
    Arrival[EVENTS_MAX] arrivals
    uint32_t n_arrivals
    Ahead* ahead            # AHEAD_MAX, of all arrivals
    uint32_t n_ahead
    Conn* flushing          # have something to write
    Conn* settling          # were written to, which has consequences
    Conn* ending            # closed, with last words to write; then to be freed
    Chunk* written          # to go back to the engine's free lists
    uint32_t n_written
    # under the engine lock
    Worklist work
    TimerHeap timers        # of its connections and listeners
    TaskList tasks
    uint32_t n_conns
    int64_t sleeps_until    # mono: when it looks for work by itself; 0: it is about to
    Listener* listeners
    Listener* closed_listeners

cdef struct Net:
    # The connections of an engine and the reactors that serve them; under the engine lock.
    Engine* engine
    Committer* committer    # NULL: no JetStream
    Reactor* reactors       # the first one accepts, and is answerable for the engine's own timers and tasks
    uint32_t n_reactors
    bint stopping
    Conn* conns
    uint32_t n_conns
    U64Map by_cid
    uint64_t next_cid
    Terms[KIND_LEAF + 1] terms      # by kind
    int64_t ping_interval
    int64_t ping_max
    int64_t write_deadline
    Account* default_account
