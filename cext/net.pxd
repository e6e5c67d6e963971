"""The network's side of the data plane: transports, connections, listeners, and the reactors that serve them."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from jsserver.cext.bytes cimport (
    KIND_HUB, Bytes, List, ListNode, ListWalk, S2_BEST, S2Room, Span, Task, Timer, TimerHeap, U64Map, list_owner, list_step,
    span_c,
)
from jsserver.cext.core cimport (
    CLOSE_THROTTLED, Account, Ahead, Chunk, Client, ClientOptions, Engine, PACE_FREE, PACE_STALL, Protocol, Worklist,
)
from jsserver.cext.store cimport Committer


include "net/system.pxi"


# ---- the clients' protocol, parsed --------------------------------------------------------------

cdef enum OpKind:
    OP_CONNECT = 1
    OP_INFO
    OP_PING
    OP_PONG
    OP_PUB
    OP_SUB
    OP_UNSUB
    OP_OK
    OP_ERR

cdef enum ParseResult:
    PARSE_OK = 1
    PARSE_MORE = 0              # nothing is wrong so far
    PARSE_UNKNOWN = -1          # -ERR 'Unknown Protocol Operation'
    PARSE_ARGS = -2             # wrong arguments: closed without a word
    PARSE_LINE = -3             # -ERR 'maximum control line exceeded'
    PARSE_PAYLOAD = -4          # -ERR 'Maximum Payload Violation'; Parser.need is the size
    PARSE_SIZE = -5             # as PARSE_ARGS: a size that is none

cdef enum:
    MAX_ARGS = 5

cdef struct Op:
    int kind
    bint has_header             # HPUB
    size_t size                 # bytes it took
    Span args                   # the line behind the verb
    Span subject
    Span reply
    Span queue
    Span sid
    Span header
    Span data
    uint64_t max                # UNSUB; 0 when absent or not a number

cdef struct Parser:
    size_t scanned
    size_t need                 # PARSE_MORE: bytes that complete the operation, when known; else 0
    int64_t max_line
    int64_t max_payload         # -1: unlimited

# The next operation of p[0:n]; PARSE_OK with op.size bytes used, or another ParseResult.
cdef int parse(Parser* ps, const uint8_t* p, size_t n, Op* op) noexcept nogil


# ---- what there is ------------------------------------------------------------------------------

cdef struct Conn
cdef struct Ws
cdef struct Compression
cdef struct Terms
cdef struct Listener
cdef struct Security
cdef struct Reactor
cdef struct Net

cdef enum AuthState:
    AUTH_OPEN = 0           # nothing to prove, or proven
    AUTH_NEEDED = 1         # CONNECT must come first
    AUTH_WAITING = 2        # the control plane decides; the input is paused

cdef enum Approach:
    ESTABLISHED = 0         # bytes may flow
    DIALLING                # asked for by us, and not there yet
    # accepted, and waits for what comes before its bytes:
    PROXYING                # a PROXY header
    HANDSHAKING             # a TLS handshake
    UPGRADING               # a request for WebSocket

cdef enum Stall:
    FOR_RECEIVER = 1        # one of its receivers is slow
    FOR_ANSWERS = 2         # it has asked the control plane enough for now
    FOR_ROOM = 4            # much waits for one of its receivers

cdef enum:
    READ_SIZE = 65536       # bytes taken from one connection in one turn
    LEFT_MAX = 65536        # an incomplete operation of unknown size must be shorter
    REACTORS_MAX = 64       # bits of a uint64_t
    BUFFER_SIZE = 262144    # of a reactor: a piece of input begins within the first READ_SIZE, and its transport may need room
    EVENTS_MAX = 256
    IOV_MAX_USED = 256
    WRITE_MAX = 1048576     # bytes asked of one write: a socket hardly takes more, and what it leaves was looked at in vain
    WRITTEN_MAX = 256       # chunks that may wait for the next turn, however late it comes
    ADDRESS_MAX = 64
    STALL_NS = 2000000
    REST_NS = 1000000       # at most, until a receiver has less to take
    LOCAL_SEND_BUFFER = 262144      # bytes of a socket to this machine: more would only leave the cache before it is taken
    LOOK_AHEAD_MAX = 4096   # publishes that a reactor recognises before it takes the engine lock
    SNIPPET = 32            # bytes of what was not understood, in the log
    NONCE_BYTES = 11
    NONCE_MAX = 15          # characters of these in base64
    STALLS_MAX = 5          # in one read, as nats-server's 10 ms
    SCRATCH_SIZE = 131072   # of a reactor, for its transports
    SPARE_MAX = 262144      # of the buffer that a reactor keeps for its next connection
    COMING_NS_A_TURN = 1000000      # of handshakes; the others wait for the next turn
    PROXY_TIMEOUT_NS = 5000000000   # for a PROXY header
    ASK_CONTROL = 1         # of establishing: a request for frames, or certificates, which c.secured has
    REASONS_MAX = 64
    REASON_MAX = 64         # bytes of its text

cdef enum HeadKind:
    HEAD_WAKE = 0           # of the reactor's eventfd
    HEAD_LISTENER = 1
    HEAD_CONN = 2

cdef struct Head:
    # What an event of epoll points at.
    int kind
    void* owner

cdef struct Transport:
    # How a connection's bytes come and go; called by its reactor alone, all but want without the engine lock.
    # Of one that is not established: 0 when bytes may flow, ASK_CONTROL when the control plane has to decide, -EAGAIN while
    # neither is so; else -errno. Of one that was accepted c.secured may have the words for it then; -EBUSY: too many have come.
    int (*establish)(Conn* c) noexcept nogil
    # Bytes; 0: the end; else -errno. n is at least `slack`, and nothing that has come whole is kept for a later call unless
    # c.input.more says so: there is more that no event will tell of.
    ssize_t (*read)(Conn* c, void* p, size_t n) noexcept nogil
    # Room that a read needs beyond what is asked for, as it takes records whole; NULL: none.
    size_t (*slack)(const Conn* c) noexcept nogil
    # Bytes that it took, or -errno; what it did not take is offered again, with the same bytes at its beginning. c.owes: it
    # has bytes of its own to write, for which it is called with nothing too.
    ssize_t (*write)(Conn* c, const iovec* iov, int n) noexcept nogil
    # What it is to be woken for from now on; 0 or -errno.
    int (*want)(Conn* c, bint read, bint write) noexcept nogil
    # Ends it behind what was written.
    void (*shutdown)(Conn* c) noexcept nogil
    # The rest is of one that accepted connections begin with, and called under the engine lock. ns until it must be established.
    int64_t (*patience)(Conn* c) noexcept nogil
    # It was not.
    void (*late)(Conn* c) noexcept nogil
    # It cannot be: what `establish` said.
    void (*failed)(Conn* c, int rc) noexcept nogil
    # `establish` said ASK_CONTROL: the control plane hears of it, and nothing is read until it has decided.
    void (*asks)(Conn* c) noexcept nogil
    # It is: gives the connection another transport, and tells whether that one has to be established too. NULL: this one stays.
    bint (*next)(Conn* c) noexcept nogil

cdef struct Coming:
    # What comes before a connection's bytes.
    bint hushed             # nothing is said before its handshake
    bint admitted           # its handshake is counted among those of this second
    int verdict             # of the control plane about its peer's certificates: 1, -1; 0: none yet
    Task judged
    uint32_t to_skip        # bytes of a PROXY header that mean nothing to us

cdef struct Rest:
    # Why a connection's input waits.
    bint paused             # for the control plane
    int stalled             # FOR_RECEIVER | FOR_ANSWERS | FOR_ROOM
    bint alone              # FOR_ANSWERS until all of its requests are answered
    bint tiring             # it is to rest for room when its input of this turn is worked through
    ListNode node           # of net.resting, while FOR_ROOM
    Timer timer
    Task resume
    uint32_t stalls_left
    uint64_t stalls

cdef struct Input:
    # The way in.
    bint more               # its transport has bytes to read that no event tells of
    ListNode again          # of reactor.again
    uint8_t* left           # kept for later: an incomplete operation, or all of it while paused
    size_t n_left
    size_t cap_left
    size_t need             # bytes that complete what is left, when known; else 0
    const Ahead* ahead      # what the bytes being fed begin with
    uint32_t n_ahead
    int64_t at              # mono

cdef enum Wrote:
    # What the last write has come to.
    WROTE_NOTHING = 0
    WROTE_SOME
    WROTE_IN_VAIN           # the connection takes nothing more

cdef struct Output:
    # The way out of bytes, the reactor's alone.
    Chunk* head             # what it writes
    Chunk* tail
    int wrote               # Wrote
    bint relieving          # what is written to it now may end the rest of others
    bint flushing           # linked in reactor.flushing
    bint owes               # its transport has bytes of its own to write
    bint deadline_set       # timer runs
    uint64_t batch          # what must have been sent by then in all, where the whole of a batch must
    Timer timer
    Conn* next_flushing
    Conn* next_settling

cdef enum Ending:
    NOT_ENDING = 0
    ENDS_AT_ONCE            # linked in reactor.ending
    ENDS_WITH_LAST_WORDS    # likewise; what is left is written before

cdef struct Wants:
    # What the transport was told to wake it for.
    bint polled             # epoll knows it
    bint reading
    bint writing

cdef struct Keepalive:
    Timer timer
    uint32_t pings_out
    int64_t sent            # mono; 0: none outstanding
    int64_t rtt_at

cdef struct Conn:
    Client base             # first: a Client* of ours is a Conn*
    Head head
    Reactor* reactor
    ListNode node           # the net's
    const Transport* transport
    void* link              # the transport's own
    Ws* ws                  # frames around its bytes; NULL: none
    Compression* compression        # of its bytes; NULL: none
    const Terms* terms
    int fd
    size_t size             # bytes of memory, with its protocol's own
    int approach            # Approach
    int ending              # Ending
    Conn* next_ending
    bint known              # it counts as a connection, and the control plane hears of its end
    int auth                # AuthState
    Timer auth_timer        # until it is established, and has proven who it is
    Rest rest
    Wants wants
    Input input
    Output output
    Coming coming
    Keepalive keepalive
    Security* security      # held; NULL: none
    Bytes secured           # what its transport says of its security, or of what came before its bytes
    int64_t last_active     # wall
    char address[ADDRESS_MAX]
    uint32_t n_address
    int port
    Bytes connect           # the CONNECT options as they came, for the control plane

include "net/websocket.pxd"

cdef struct Compression:
    # S2 around the bytes of a connection, over its transport.
    const Transport* below
    bint below_more         # input.more of what is below
    int level               # S2Level of what goes out
    int64_t[S2_BEST] thresholds     # ns of a round trip up to which each level is used, from S2_UNCOMPRESSED on
    int n_thresholds        # 0: the level stays
    int next_level          # another level, or other thresholds, from when `changes` runs on
    int64_t[S2_BEST] next_thresholds
    int n_next
    Task begins
    Task changes
    Bytes first             # what is written first
    # the way in
    bint begun              # the stream's beginning has come
    Bytes inward            # came, and is not decoded: a chunk whose rest is to come, and what lies behind it
    Bytes held              # decoded from held_at on, of one chunk at most
    size_t held_at
    const char* trouble     # why the connection is cut; NULL: nothing is wrong
    # the way out
    size_t plain_left       # bytes from before it began, which go as they are
    Bytes outward           # compressed and not written, from out_at on
    size_t out_at
    size_t claimed          # plain bytes that these are

cdef struct ClientConn:
    # A connection that speaks the clients' protocol.
    Conn conn
    ClientOptions opts
    Parser parser
    bint connected          # CONNECT was accepted
    bint first_pong         # sent
    int version             # of the protocol, as CONNECT says
    char nonce[NONCE_MAX]   # what the client is to sign
    uint32_t n_nonce        # 0: nothing

cdef struct Listener:
    Head head
    Reactor* reactor
    ListNode node           # its reactor's
    int fd                  # -1: closed, freed at the end of the turn
    bint paused             # the process is out of descriptors for a moment
    Timer timer
    # of its connections
    int kind
    const Protocol* protocol
    const Protocol* becomes         # what a request for frames may ask for instead; NULL: nothing
    const Transport* transport
    Security* security      # held; NULL: none
    bint proxied            # a PROXY header may come first
    const Terms* terms
    bint framed             # they speak in WebSocket frames
    int64_t patience        # ns until their requests for it must have come

cdef struct Security:
    # What connections of a listener are secured by. It is made by a layer above, and lives as long as it is held.
    void (*hold)(Security* s) noexcept nogil
    void (*release)(Security* s) noexcept nogil
    const Transport* transport      # whose establish makes the handshake
    const Transport* caller         # likewise, for a connection that dials: c.secured has the name of who must be there, if any
    bint (*admits)(Security* s) noexcept nogil  # counts a handshake that is to come; False: there are too many in this second
    bint first              # the handshake comes before INFO
    bint optional           # who sends no handshake is served without it
    int64_t fallback        # ns that one which comes first is waited for, before INFO is sent after all; 0: for ever
    int64_t timeout         # ns

cdef struct ClientAuth:
    bint required
    bint no_user            # who proves nothing is let in as a user that the configuration names
    bint nonce              # who signs does so with a nonce of its connection's own
    int64_t timeout         # ns until a client that has not proven who it is is closed

cdef struct Terms:
    # What connections of a kind, or of a listener, are told and held to.
    int64_t ping_interval   # ns between PINGs; this and the next two are as all have them, where they are 0
    int64_t ping_max
    int64_t write_deadline
    bint whole_writes       # of links
    Bytes info_head         # up to and with "max_payload":
    Bytes later_head        # the same for who is connected; empty: no other
    Bytes info_middle       # from behind its number up to and with "client_id":
    Bytes info_tail         # from behind what the connection adds on
    ClientAuth auth

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
    uint8_t* scratch        # SCRATCH_SIZE, what a transport takes apart or puts together; NULL until one does
    int64_t coming_ns       # spent on handshakes in this turn
    Arrival[EVENTS_MAX] arrivals
    uint32_t n_arrivals
    Ahead* ahead            # LOOK_AHEAD_MAX, of all arrivals
    uint32_t n_ahead
    Conn* flushing          # have something to write
    Conn* settling          # were written to, which has consequences
    Conn* ending            # closed, with last words to write; then to be freed
    List again              # Conns that are to be read without an event
    uint8_t* packed         # PACKED_SIZE, what comes to be unpacked; NULL until then
    S2Room room             # of its encoder
    Bytes spare             # a buffer that no connection has at the moment
    z_stream* inflater      # one that is not in use; NULL: none
    isal_zstream* deflater  # with what it works in behind it; NULL until the first use
    Bytes deflated
    Chunk* written          # to go back to the engine's free lists
    uint32_t n_written
    # under the engine lock
    Worklist work
    TimerHeap timers        # of its connections and listeners
    List tasks
    uint32_t n_conns
    int64_t sleeps_until    # mono: when it looks for work by itself; 0: it is about to
    List listeners
    List closed_listeners

cdef struct NetLimits:
    int64_t ping_interval   # ns between PINGs to a connection
    int64_t ping_max        # PINGs without an answer, beyond which it does not
    int64_t write_deadline  # ns until a connection that takes no bytes is closed
    bint whole_writes       # or a client that does not take all that waited when they began

cdef struct Net:
    # The connections of an engine and the reactors that serve them; under the engine lock.
    Engine* engine
    Committer* committer    # NULL: no JetStream
    Reactor* reactors       # the first one accepts, and is answerable for the engine's own timers and tasks
    uint32_t n_reactors
    bint stopping
    List conns
    uint32_t n_clients      # of them
    uint32_t n_coming       # connections that are not known yet
    U64Map by_cid
    uint64_t next_cid
    List resting            # Conns that rest until a receiver has room
    Terms[KIND_HUB + 1] terms      # by kind
    Terms websocket         # of clients that come through WebSocket
    char[REASONS_MAX][REASON_MAX] reasons   # texts of CloseReason, in last frames
    NetLimits limits
    Account* default_account

# The next of a net's connections on this way.
cdef inline Conn* conn_step(ListWalk* all) noexcept nogil:
    return <Conn*>list_owner(list_step(all), &(<Conn*>NULL).node)

cdef Transport plain_transport      # a socket as it is
cdef int plain_establish(Conn* c) noexcept nogil
cdef int plain_want(Conn* c, bint read, bint write) noexcept nogil
cdef ssize_t plain_write(Conn* c, const iovec* iov, int n) noexcept nogil
cdef void plain_shutdown(Conn* c) noexcept nogil
# The reactor's scratch; NULL: no memory.
cdef uint8_t* reactor_scratch(Reactor* r) noexcept nogil
# The next `most` bytes of what is to be written from iov[*i] and the byte *at of it on, or fewer: a large part as it lies, others
# copied together to `to`. How many they are.
cdef size_t gather(const iovec* iov, int n, int* i, size_t* at, size_t most, uint8_t* to, const uint8_t** piece) noexcept nogil
cdef Protocol client_protocol       # the clients'


# ---- connections and listeners (with the engine lock held) --------------------------------------

# A connection that nobody knows yet, with memory of `room` bytes at least; NULL: no memory. fd -1: its transport has no socket.
cdef Conn* conn_new(Net* net, int fd, int kind, const Protocol* protocol, const Transport* transport,
                    size_t room) noexcept nogil
# A connection that nobody knows yet speaks another protocol. False: it has no room for that, or is known.
cdef bint conn_become(Conn* c, int kind, const Protocol* protocol) noexcept nogil
# Its reactor serves it from now on; 0, or -1 and it is as if it had never been, but for its descriptor.
cdef int conn_join(Conn* c, const sockaddr_storage* addr) noexcept nogil
# It has come; bytes may flow unless something comes before.
cdef void conn_open(Conn* c) noexcept nogil
# Its reactor reads it again without an event.
cdef void conn_read_again(Conn* c) noexcept nogil
# Has frames follow what comes before the bytes of a connection that nobody knows yet; `patience`: ns until the request for them
# must have come. -1: no memory.
cdef int ws_wrap(Conn* c, int64_t patience) noexcept nogil
# From here on what comes is its request, and then frames.
cdef void ws_begin(Conn* c) noexcept nogil
# For transports that accepted connections begin with, where a handshake is to come first: how long it is waited for at most
# before the connection is greeted without it (0: the connection is not), and the greeting, False: the handshake stays awaited.
# Sends INFO once more to a connection that speaks the clients' protocol, as what its terms say has changed, or to ask (lame) that
# the client connects elsewhere. False: it has not said that it takes such, or is not connected yet and hears of the change then.
cdef bint client_inform(Conn* c, bint lame) noexcept nogil
cdef int64_t greets_after(const Conn* c) noexcept nogil
cdef bint greet_after_all(Conn* c) noexcept nogil
# What establishing a connection has come to; see Transport.establish.
cdef void conn_established(Conn* c, int rc) noexcept nogil
# Transport.asks of those that have certificates in c.secured.
cdef void peer_ask(Conn* c) noexcept nogil
# What the control plane says to its request: verdict is WS_OPEN, WS_REQUEST (it may send another one) or WS_REFUSED, reply
# the bytes for it. False: it does not wait for that.
cdef bint peer_answer(Conn* c, bint good) noexcept nogil
cdef bint ws_answer(Conn* c, int verdict, Span reply, const WsTerms* agreed) noexcept nogil
# Accepts connections from a listening, non-blocking socket, which stays its owner's. NULL: no memory.
cdef Listener* listener_open(Net* net, int fd, int kind, const Protocol* protocol,
                             const Transport* transport) noexcept nogil
# What those that it accepts from now on are secured by; NULL: nothing.
cdef void listener_secure(Listener* s, Security* security, bint proxied) noexcept nogil
cdef void listener_close(Listener* s) noexcept nogil
# A connection over a non-blocking socket that connect() was called for. It opens once it is established; where that fails,
# or takes longer than `timeout` ns, it closes with CLOSE_UNREACHABLE. What it is secured by (NULL: nothing) comes first, then
# with the server of that name or address alone (empty: any). A request for WebSocket (empty: none) comes behind that, whose
# answer the control plane judges. NULL: no memory, and fd is the caller's.
cdef Conn* conn_dial(Net* net, int fd, const sockaddr_storage* addr, int kind, const Protocol* protocol,
                     const Transport* transport, int64_t timeout, Security* security, Span name, Span request) noexcept nogil
# An established connection that waits for the control plane makes a handshake, as the side that dials does, and opens again
# behind it. It had no security before. 0, or -1: no memory.
cdef int conn_secure(Conn* c, Security* security, Span name) noexcept nogil
cdef void conn_want(Conn* c, bint read, bint write) noexcept nogil
cdef void conn_stall(Conn* c) noexcept nogil
# It is decided that the input may flow again; the reactor lets it, in its own thread.
cdef void conn_unpause(Conn* c) noexcept nogil
# The same, and what comes is compressed from then on, as is what goes out behind all that was written before: `first`, then
# what follows. level: an S2Level, or by round trips, where there are n thresholds. 0, or -1: no memory.
cdef int conn_compress(Conn* c, int level, const int64_t* thresholds, int n, Span first) noexcept nogil
# What is compressed goes out by another level from now on, or by other round trips; a connection that is not is left alone.
cdef void conn_relevel(Conn* c, int level, const int64_t* thresholds, int n) noexcept nogil
# Its round trip was measured: what goes out may need another level.
cdef void conn_recompress(Conn* c) noexcept nogil
# The control plane is done with n of its requests.
cdef void conn_answered(Conn* c, uint32_t n) noexcept nogil

cdef enum:
    CONN_TEXTS = 3

cdef struct ConnFigures:
    # What ConnNumbers of engine/items.pxi names, in its order.
    int64_t reason
    int64_t port
    int64_t start
    int64_t last_activity
    int64_t rtt
    int64_t in_msgs
    int64_t out_msgs
    int64_t in_bytes
    int64_t out_bytes
    int64_t subscriptions
    int64_t now
    int64_t pending
    int64_t stalls
    int64_t account
    int64_t chunks
    int64_t websocket
    int64_t compression     # an S2Level; 0: none
    int64_t kind

# What monitoring wants to know of a connection, open or closing; the texts are its address, its CONNECT options and its
# security.
cdef void conn_numbers(Conn* c, Span* texts, ConnFigures* num) noexcept nogil

cdef inline void conn_throttled(Conn* c) noexcept nogil:
    # More handshakes have come than there may be.
    c.base.protocol.refuse(&c.base, CLOSE_THROTTLED, span_c(b"Connection throttling is active. Please try again later."))

cdef inline bint is_coming(const Conn* c) noexcept nogil:
    # Accepted, and its bytes do not flow yet.
    return c.approach > DIALLING

cdef inline bint conn_halted(const Conn* c) noexcept nogil:
    # Nothing more of its input is to be looked at for now.
    return c.base.closing or c.rest.paused or c.rest.stalled

cdef inline void conn_events(Conn* c) noexcept nogil:
    conn_want(c, not conn_halted(c), c.wants.writing)

cdef inline void conn_pace(Conn* c) noexcept nogil:
    # After each operation: a client that sends to a slow receiver, or asks too much, rests.
    cdef Engine* e = c.base.engine
    if e.pace != PACE_FREE:
        if e.pace == PACE_STALL:
            conn_stall(c)
        else:
            c.rest.tiring = True
        e.pace = PACE_FREE
    if e.asked:
        c.base.asking += e.asked
        c.rest.alone = c.rest.alone or e.alone
        e.asked = 0
        e.alone = False
        if c.rest.alone or c.base.asking >= e.inbox.asking_max:
            c.rest.stalled |= FOR_ANSWERS
            conn_events(c)


# ---- reactors -----------------------------------------------------------------------------------

cdef int net_init(Net* net, Engine* e, uint32_t n_reactors) noexcept nogil     # 0 | -errno
# Every reactor returns soon from its run.
cdef void net_stop(Net* net) noexcept nogil
# Closes and frees what it serves; net_forget frees the rest, which other threads may look at until then.
cdef void net_free(Net* net) noexcept nogil
cdef void net_forget(Net* net) noexcept nogil
# The body of a reactor's thread.
cdef void reactor_run(Reactor* r) noexcept nogil
# One turn, in as many steps as its input takes; returns how many ms the next one may be waited for, -1: there is to be none.
# What an event may name is freed in the next turn at the earliest.
cdef int turn(Reactor* r, epoll_event* events, int n) noexcept nogil
cdef bint is_settled(const Reactor* r) noexcept nogil
# For the driver of the engine beside the reactors, under the engine lock: sets its clocks; and when work was made, which
# reactors would sleep over it, a bit for each. They are woken without the lock.
cdef void read_clocks(Engine* e) noexcept nogil
cdef uint64_t reactors_called(Net* net) noexcept nogil
cdef void reactors_wake(Net* net, uint64_t called) noexcept nogil
