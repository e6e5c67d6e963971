"""Routing: sublists, permissions, accounts, and the engine that ties subscriptions to receivers."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from jsserver.cext.bytes cimport (
    Bytes, Draft, Env, List, ListNode, ListWalk, Msg, Requests, Span, StrMap, Timer, Transform, U64Map, Usage, inbound_fn,
    list_owner, list_step,
)


# ---- subscriptions -------------------------------------------------------------------------------

cdef struct Client
cdef struct Response
cdef struct ServiceImport
cdef struct StreamImport
cdef struct Sublist
cdef struct SubSet
cdef struct QueueName

cdef struct Sub:
    # One subscription, allocated with its texts in one piece (sub_new). Once removed it is `closed`
    # and stays readable until sublist_gc, because a match result in use may still name it.
    Span subject
    Span queue              # .n == 0: a plain subscription
    Span sid
    Client* client          # the connection it belongs to; NULL for the server's own
    inbound_fn fn           # the server's own: who takes the message
    int hears               # which kinds of messages reach it: bits of 1 << Kind
    uint32_t origin         # the cluster that asks by it, whose own messages do not go there; 0: none is told
    void* target
    uint64_t delivered      # messages since SUB
    uint64_t max            # UNSUB max; 0: none
    bint closed
    bint listens            # a client's, or a stream's on its subjects: somebody wants what is sent there
    bint filtered           # deliveries are checked one by one against the client's deny list
    int link                # LINK_*: it leads to another account, and has no fn; 0: it does not
    ListNode node           # its client's, or its account's; after removal: of what gc frees
    uint64_t hash           # the rest is the sublist's: of the subject
    SubSet* home            # where it is, and its place there
    uint32_t place
    uint32_t weight         # how many members of its queue group it stands for: a server's that asks for all of its own
    QueueName* group
    void* account           # Account*: where it is; its connection holds it, or it does itself: the server's own
    Sub* shadow             # a client's: the first of its shadows; a shadow: whose it is
    Sub* next_shadow        # likewise; one pointer, not a list: there may be millions of subscriptions

cdef enum Link:
    LINK_SERVICE = 1        # requests to a service that is imported; target: ServiceImport
    LINK_REPLY              # what comes back to those who asked from other accounts
    LINK_SHADOW             # a subscription of an account that imports from this one; target: StreamImport

cdef inline Sub* sub_at(const ListNode* n) noexcept nogil:
    return <Sub*>list_owner(n, &(<Sub*>NULL).node)

cdef Sub* sub_new(Span subject, Span queue, Span sid) noexcept nogil     # NULL: no memory
cdef void sub_free(Sub* s) noexcept nogil                                # only if it was never inserted


include "core/sublist.pxd"


# ---- permissions -----------------------------------------------------------------------------------

cdef struct Permissions     # of one user, shared by its connections; immutable once built

# Entries of subscribe lists may have a queue (a name or pattern). No allow list: all is allowed; an empty one: nothing.
cdef Permissions* perms_new() noexcept nogil        # held by the caller; NULL: no memory
cdef void perms_hold(Permissions* p) noexcept nogil     # any thread
cdef void perms_release(Permissions* p) noexcept nogil  # the last who held it frees it; NULL is nobody's
cdef int perms_add(Permissions* p, int which, Span subject, Span queue) noexcept nogil  # which: PERM_*
cdef int perms_set_empty_allow(Permissions* p, int which) noexcept nogil
cdef bint perms_can_publish(const Permissions* p, Span subject) noexcept nogil
cdef bint perms_list_subscriptions(const Permissions* p) noexcept nogil      # whether there is an allow list of them
cdef bint perms_can_subscribe(const Permissions* p, Span subject, Span queue) noexcept nogil
# Whether a server may be told that somebody listens there: it sends only what it may of what a wildcard matches.
cdef bint perms_can_tell(const Permissions* p, Span subject, Span queue) noexcept nogil
# Whether the wildcard subscription reaches beyond what is allowed, so that deliveries must be checked one by one.
cdef bint perms_must_filter(const Permissions* p, Span subject, Span queue) noexcept nogil
cdef bint perms_can_receive(const Permissions* p, Span subject, Span queue) noexcept nogil

cdef enum:
    PERM_PUB_ALLOW = 0
    PERM_PUB_DENY = 1
    PERM_SUB_ALLOW = 2
    PERM_SUB_DENY = 3


# ---- replies of other clusters' requests -------------------------------------------------------------

cdef enum:
    MAPPED_CLUSTER = 5      # where the hash of the cluster stands in `_GR_.<cluster>.<server>.<reply>`
    MAPPED_SERVER = 12
    MAPPED_REPLY = 19       # and the reply
    MAPPED_HASH = 6         # bytes of a hash

# Whether a subject is a mapped reply, and the reply in it.
cdef inline bint is_mapped(Span s) noexcept nogil:
    return s.n > MAPPED_REPLY and s.p[1] == c'G' and memcmp(s.p, b"_GR_.", MAPPED_CLUSTER) == 0

cdef inline Span unmapped(Span s) noexcept nogil:
    cdef Span reply
    reply.p = s.p + MAPPED_REPLY
    reply.n = s.n - MAPPED_REPLY
    return reply


# ---- mappings --------------------------------------------------------------------------------------

cdef struct MapDest:
    Transform* transform    # the mapping's
    uint32_t upto           # of draws from 0 to 99, those below it that no destination before takes

cdef struct Mappings        # of an account's subjects; immutable once they are the account's

cdef Mappings* mappings_new() noexcept nogil                             # NULL: no memory
cdef void mappings_free(Mappings* all) noexcept nogil
# One more, whose destinations are the caller's to fill in. NULL: no memory, or its source, a literal, is mapped already.
cdef MapDest* mappings_add(Mappings* all, Span source, uint32_t n_dests) noexcept nogil


# ---- clients: what sends and receives over a connection ---------------------------------------------

cdef struct Chunk

cdef struct Payload:
    # A payload and its CRLF, which several out buffers share. The bytes follow.
    Chunk* home             # what it is kept in
    uint32_t refs           # under the engine lock
    uint32_t n

cdef enum ChunkSize:
    CHUNK_TINY = 0          # the line of a message whose payload is shared
    CHUNK_SMALL = 1         # the first of a chain: most flushes fit
    CHUNK_LARGE = 2
    CHUNK_SIZES = 3         # those with free lists; a chunk of this size is made to measure

cdef struct Chunk:
    # A piece of an out buffer: [start, end) waits to be written, then what is left of a shared payload.
    Chunk* next
    Payload* shared         # NULL: none
    uint32_t shared_at
    uint32_t start
    uint32_t end
    uint32_t cap            # == end once a payload comes behind
    int size

cdef inline uint8_t* chunk_data(Chunk* c) noexcept nogil:
    return <uint8_t*>c + sizeof(Chunk)

cdef inline uint8_t* payload_data(Payload* p) noexcept nogil:
    return <uint8_t*>p + sizeof(Payload)

cdef inline uint32_t chunk_left(const Chunk* c) noexcept nogil:
    return c.end - c.start + (c.shared.n - c.shared_at if c.shared != NULL else 0)

include "core/reasons.pxd"


cdef struct Reply:
    # A reply subject that allow_responses opened for a client.
    int64_t expires         # monotonic ns
    int32_t left            # messages; negative: unlimited

cdef struct Account
cdef struct Engine
cdef struct Peers
cdef struct Target

cdef struct Ahead:
    # A publish without headers that a protocol recognised in what was received. It begins where the one before it ends.
    uint32_t n_subject
    uint32_t n_reply        # one blank behind the subject; 0: none
    uint32_t data_at        # from its beginning on
    uint32_t n_data

cdef struct Protocol:
    # What a connection speaks. Everything here but `look` is called under the engine lock.
    size_t size             # of the connection's struct, which starts with its Client
    # Makes what is its own in a struct of zeros behind a Client that is made; NULL: there is nothing.
    void (*init)(Client* c) noexcept nogil
    # Frees what is its own, when the connection is gone. NULL: there is nothing.
    void (*end)(Client* c) noexcept nogil
    # Recognises what p[0:n] begins with, at most `most` publishes, and returns how many; changes nothing. NULL: it does not.
    uint32_t (*look)(const uint8_t* p, size_t n, Ahead* ahead, uint32_t most) noexcept nogil
    # Its first words: before the handshake of a connection that is secured, unless that comes first.
    void (*greet)(Client* c) noexcept nogil
    # Bytes may flow both ways.
    void (*open)(Client* c) noexcept nogil
    # Works through p[0:n] until the connection closes or its input is to rest, and returns how many bytes it used; the rest
    # comes again, with more behind it. *need: how many bytes complete the next operation, if that is known; else 0.
    size_t (*feed)(Client* c, const uint8_t* p, size_t n, size_t* need) noexcept nogil
    # Puts a message for one of its subscriptions into the out buffer. src: the connection it came from, or NULL. 1: taken.
    int (*deliver)(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil
    # Puts a message into the out buffer once for all of the subscriptions that `deliver` noted as a target. NULL: it notes none.
    int (*send)(Engine* e, const Target* t, const Msg* m) noexcept nogil
    # The control plane lets it in.
    void (*admit)(Client* c) noexcept nogil
    # The timer for this has run out.
    void (*keepalive)(Client* c, int64_t now) noexcept nogil
    # Tells that it may not do what it asked for, and closes it for the reason, a CloseReason; 0: it stays.
    void (*refuse)(Client* c, int reason, Span text) noexcept nogil
    # A message of its is about to be routed. NULL: it is told nothing.
    void (*accepted)(Client* c) noexcept nogil
    # Nobody took a message of its, with a reply. NULL: likewise.
    void (*unheard)(Client* c, Span subject, Span reply) noexcept nogil

cdef struct ClientOptions:
    # What a connection that speaks the clients' protocol asked for by CONNECT, and which replies it may give.
    bint verbose
    bint pedantic
    bint echo
    bint headers
    bint no_responders
    bint responses          # allow_responses
    int32_t responses_max
    int64_t responses_ttl   # ns
    StrMap replies          # reply subject -> Reply*
    StrMap mapped, measured     # likewise, of another cluster's requests -> Mapped*; of those that are measured -> Measured*
    List mapped_by_time, measured_by_time   # the same, the oldest first

cdef struct Worklist:
    # What is to be done for connections by the thread that serves them.
    List dirty              # Clients: something waits to be written to them
    Client* closing

cdef struct Client:
    uint64_t cid
    const Protocol* protocol
    int kind                # KIND_*: what its messages are
    int hears               # what its subscriptions hear
    uint32_t origin         # the cluster at the other end of a leaf node's, by a number of this server's; 0: none is told
    Span address            # for log lines; its owner's, as are the options of CONNECT once they are accepted
    Span options
    int port
    Engine* engine
    Worklist* work          # of the thread that serves it
    Account* account
    bint member             # counted by its account: it is let in
    Permissions* perms      # NULL: everything allowed; held
    int64_t max_subscriptions   # its user's own limits beside the account's, -1: none
    int64_t max_payload
    ClientOptions* opts     # NULL: it does not speak the clients' protocol
    StrMap subs             # sid -> Sub*
    List own_subs           # the same Subs, the latest first
    uint32_t n_subs
    uint32_t asking         # what its requests count that the control plane has
    # the way out: what the connection has not taken yet, and how much came in and went out since it opened. The thread
    # that writes to the peer holds no engine lock, and alone counts what is sent.
    Chunk* head
    Chunk* tail
    uint64_t queued         # bytes
    uint64_t chunks_queued
    uint64_t sent
    uint64_t chunks_sent
    bint awaited            # somebody who sends to it rests until less waits for it
    ListNode dirty          # of work.dirty
    int closing             # CloseReason; 0: open
    Client* next_closing
    uint64_t in_msgs, in_bytes, out_msgs, out_bytes
    # who it is
    bint websocket          # it comes through WebSocket
    int64_t started         # wall ns
    int64_t rtt             # ns; 0: unknown
    Bytes user

cdef extern from *:
    """
    #define load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define count_held(p) __atomic_add_fetch((p), 1, __ATOMIC_RELAXED)
    #define count_released(p) __atomic_sub_fetch((p), 1, __ATOMIC_ACQ_REL)
    #define store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    """
    uint64_t load_relaxed(const uint64_t* p) noexcept nogil
    uint32_t count_held(uint32_t* p) noexcept nogil         # what there are then
    uint32_t count_released(uint32_t* p) noexcept nogil
    void store_relaxed(uint64_t* p, uint64_t v) noexcept nogil

# Bytes that wait to be written to it.
cdef inline uint64_t client_pending(const Client* c) noexcept nogil:
    return c.queued - load_relaxed(&c.sent)

cdef struct Watch:
    Watch* next             # same subject: one or two, of which the table holds the first
    Account* account
    Span subject            # owned
    Span group              # owned
    uint32_t count          # subscriptions that are exactly this
    void (*fn)(void* target, bint active) noexcept nogil
    void* target

cdef struct Target:
    # A server that the message under way goes to, once, for all of its subscriptions that match.
    Client* to
    StreamImport* by        # another account's, as that account hears it by this import; NULL: its own account's
    Sub* first
    uint32_t picked         # in Engine.picked: the first of its queue subscriptions, plus one; 0: none
    uint32_t last

cdef struct Picked:
    Sub* sub
    uint32_t next           # of the same target, as Target.picked

cdef struct Peers:
    # What leads to other servers; engine.peers is NULL where there is none.
    # A subscription begins or ends, or has another weight: by how much there is more of it.
    void (*interest)(Peers* p, Account* a, Sub* s, int delta) noexcept nogil
    # An account is about to be freed.
    void (*forget)(Peers* p, Account* a) noexcept nogil
    # A message to a mapped reply goes to its server: how many took it; -1: it is routed as any other. NULL: no gateways.
    int (*answer)(Peers* p, Client* src, const Msg* m) noexcept nogil
    # Adds a member `alts` in JSON with the names of the other clusters, the nearest first, if there are any. NULL: likewise.
    void (*clusters)(Peers* p, Draft* d) noexcept nogil
    Target* targets         # of the messages under way, those of a message inside another behind
    uint32_t n_targets
    uint32_t cap_targets
    Picked* picked
    uint32_t n_picked
    uint32_t cap_picked

cdef struct Crossing:
    # Replies that an account gives to others, and waits for.
    bint taken              # those to other accounts' requests are, by this prefix
    uint8_t prefix[10]
    uint32_t n_answering    # replies that it may give
    uint32_t n_awaiting     # replies that it waits for
    bint sweep              # some of these nobody waits for any more, perhaps
    bint swept              # they are looked for

cdef struct Account:
    # Its subjects, what its streams hold and what its clients moved. The control plane has a handle; what goes there names
    # the account by its id, which no other account gets again.
    Engine* engine
    ListNode node           # the engine's, in the order in which they were made; of an ended one, of what gc frees
    uint32_t id
    uint32_t refs           # handles, clients, and the server's own subscriptions and watches
    bint closed             # nobody finds it any more
    Span name               # owned
    Sublist* subs
    List served             # Subs that end with it: of the control plane's
    StrMap watches          # subject -> Watch*
    StrMap early            # subject -> Sub*: what answers requests before the control plane has them
    void* told              # what other servers are told of its interest; Peers.forget frees it
    Usage memory            # what its streams hold, by the kind of storage
    Usage storage
    Requests requests       # that its streams answered
    bint system             # it is the server's system account
    bint jetstream          # it has JetStream here
    bint api_imported       # it imports JetStream's API from another account: where it has none, that is the only one
    bint renames            # what its clients publish may go to another subject, by one of these:
    Mappings* mappings      # owned; NULL: none
    Span domain             # `$JS.<domain>.API.`, by which JetStream is asked too; owned; empty: not
    ServiceImport* services  # what it imports; owned
    StreamImport* streams
    Crossing replies
    uint32_t members        # clients that were let in
    int64_t max_members     # the limits of these, -1: none
    int64_t max_subscriptions
    int64_t max_payload
    uint64_t in_msgs, in_bytes, out_msgs, out_bytes

# The next of the engine's accounts on this way.
cdef inline Account* account_step(ListWalk* all) noexcept nogil:
    return <Account*>list_owner(list_step(all), &(<Account*>NULL).node)

# ---- imports: what passes from one account to another ------------------------------------------------

cdef enum Respond:
    RESPOND_ONCE = 0
    RESPOND_MANY            # until a reply without headers and payload

cdef struct ServiceImport:
    # One allocation, with its texts.
    ServiceImport* next     # its account's
    Account* account        # who asks
    Account* to             # who answers; held
    Sub* sub                # of the account that asks
    Span subject            # what a request goes to; empty, and no transform: what it was sent to
    Transform* transform    # owned
    uint64_t export_id      # the same for all who import by the same export
    int respond
    int64_t threshold       # ns that a reply may take
    bint share              # the service is told in detail who asks
    Span latency            # where reports go; empty: nobody wants them
    int sampling            # requests of a hundred that are reported; 0: those whose headers ask for it
    List waiting            # Responses, by time
    uint32_t n
    Timer timer

cdef struct StreamImport:
    # One allocation, with its texts.
    StreamImport* next
    Account* to             # who exports; held
    Span subject            # there
    Span local              # here, with wildcards
    bint is_literal         # one subject, there and here
    Transform* there        # from their subjects to these; NULL: they are the same; owned
    Transform* back         # and from these to theirs

cdef struct Response:
    # A reply that somebody waits for. One allocation, with the reply subject.
    uint64_t id
    ServiceImport* of
    Account* at             # where it is to be given
    Account* to             # whose reply subject it is
    Span reply
    uint64_t hash           # of the last two
    Response* same          # in the same bucket
    Response** same_from    # what points to it there
    int64_t since           # mono
    ListNode node           # its import's, by time
    # of a request that is measured
    Bytes report            # who asked, in JSON, then the header block that asked for it; empty: it is not
    uint32_t n_requestor
    int64_t began           # wall
    int64_t rtt             # of the one who asked

cdef enum Report:
    REPORT_OK = 200
    REPORT_BAD = 400
    REPORT_GONE = 408
    REPORT_UNAVAILABLE = 503
    REPORT_TIMEOUT = 504

cdef struct Responses:
    U64Map by_id
    Response** buckets      # by account and reply
    uint32_t n_buckets
    Timer sweep
    uint32_t sweep_at       # bucket
    int64_t sweep_again     # mono: not before
    int64_t tell_again      # mono: when the log may tell of the next that was forgotten

cdef struct Via:
    # An import that the message under way has come by; those before it are behind.
    const Via* outer
    bint is_request
    uint64_t export_id
    Account* account
    bint share
    bint to_system
    Span reply              # of the request

# To be filled in, then handed to account_link; to, which it holds from then on, exports. NULL: no memory.
cdef ServiceImport* service_new(Account* to, Span subject, Span latency) noexcept nogil
cdef StreamImport* stream_import_new(Account* to, Span subject, Span local) noexcept nogil
# The subject, there, of another account's message that is heard by an import; d: empty, and has its text if that is another one.
cdef Span imported_subject(Engine* e, StreamImport* of, Span subject, Draft* d) noexcept nogil
cdef void services_free(ServiceImport* s) noexcept nogil
cdef void stream_imports_free(StreamImport* s) noexcept nogil
# What the account imports from now on, instead of what it imported before; subjects: where it is asked for each of the
# services. No message is under way. 0 | -1 no memory, and it imports nothing.
cdef int account_link(Account* a, ServiceImport* services, const Span* subjects, StreamImport* streams) noexcept nogil
cdef void json_put_text(Draft* d, Span s) noexcept nogil      # in quotes
# Its client's name, for those who are told. 0 | -1 no memory.
cdef int client_name(Client* c, Span user) noexcept nogil


include "core/items.pxi"

cdef enum Pace:
    PACE_FREE = 0
    PACE_REST = 1           # much waits for a receiver
    PACE_STALL = 2          # a receiver is close to its limit

cdef struct EngineLimits:
    int64_t max_payload
    int64_t max_control_line
    int64_t max_pending
    int64_t max_subscriptions   # 0: unlimited
    int64_t max_sub_tokens      # 0: unlimited
    int64_t max_connections
    bint headers                # header support
    bint stall                  # slow fast producers down
    uint64_t much_pending       # a sender to a client with more rests

cdef struct EngineStats:
    uint64_t in_msgs, in_bytes, out_msgs, out_bytes
    uint64_t slow_consumers
    uint64_t slow_clients, slow_routes, slow_gateways, slow_leafs
    uint64_t stale_clients, stale_routes, stale_gateways, stale_leafs
    uint64_t link_in_msgs, link_in_bytes, link_out_msgs, link_out_bytes     # of these, over links to other servers
    uint64_t stalls
    uint64_t too_deep           # messages dropped by MAX_DEPTH
    uint64_t forgotten          # requests to services, dropped by RESPONSES_MAX
    uint64_t total_connections

cdef struct Engine:
    Env env
    EngineLimits limits
    EngineStats stats
    List accounts
    StrMap by_name          # those that are open
    uint32_t next_account
    List ended              # Accounts that are closed, and nobody refers to them: gc frees them
    List waiting            # sublists that gc has something to do for
    Inbox inbox
    uint32_t depth          # nested routes under way
    Draft mapped            # the subject that a client's message goes to
    const Via* via          # the last import that the message under way has come by
    Responses responses
    Bytes server_name       # which clients of other accounts may be told
    uint8_t server_hash[8]
    Bytes cluster_name      # empty: it is in none
    int64_t too_deep_again  # mono: when the log may tell of the next one that was too deep
    int pace                # Pace: what became of what was delivered last
    uint32_t asked          # what requests count that went to the inbox from the present publisher
    bint alone              # nothing else of theirs is to be read before these are answered
    bint trace
    bint debug
    Peers* peers            # NULL: no other server
    uint32_t first_target   # in peers.targets, of the message under way
    StreamImport* importing     # by which the subscription that is about to get it hears it; NULL: by none
    const Msg* sharing      # the message under way, if several connections may take its payload
    Payload* shared         # its payload, once one has
    uint64_t n_payloads     # shared ones there are
    Chunk* free_chunks[CHUNK_SIZES]
    uint32_t n_free_chunks[CHUNK_SIZES]

cdef void limit_pending(EngineLimits* limits, int64_t most) noexcept nogil
cdef int engine_init(Engine* e, int inbox_fd) noexcept nogil
cdef void engine_free(Engine* e) noexcept nogil

# An account by its name, found or made, with a reference for the caller (NULL: no memory); and one more reference.
cdef Account* account_open(Engine* e, Span name) noexcept nogil
cdef void account_hold(Account* a) noexcept nogil
cdef void account_release(Account* a) noexcept nogil    # when nobody refers to it and it is closed, gc frees it
# Its name is free again, what was served for it ends, and what still refers to it is in vain. The caller cuts its clients.
cdef void account_close(Account* a) noexcept nogil
# Subscriptions of clients and streams with exactly this subject and queue group (empty: none); and of the connections whose
# subscriptions match, imported ones too, the most bytes that wait for one (-1: there is none).
cdef uint32_t count_exact(Account* a, Span subject, Span group) noexcept nogil
cdef int64_t most_queued(Account* a, Span subject) noexcept nogil
cdef Mappings* account_map(Account* a, Mappings* m) noexcept nogil  # from now on, and its own then; NULL: none. What it had
# From now on its clients may ask JetStream by this prefix, `$JS.<domain>.API.`. 0 | -1 no memory.
cdef int account_domain(Account* a, Span prefix) noexcept nogil
# The server itself takes what is sent to the subject, as long as the account is open: NULL where it is not, or no memory.
cdef Sub* account_serve(Account* a, Span subject, int hears, inbound_fn fn) noexcept nogil
cdef void account_stop_serving(Account* a, Span subject) noexcept nogil

# Routes m inside m.account; src is the publishing client or NULL. Returns the number of receivers.
cdef int engine_route(Engine* e, Client* src, const Msg* m) noexcept nogil
# Notes that a message goes to the subscription's server, with the others that it goes to. 1: it does; 0: no memory.
cdef int target_add(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil
# Frees what routing retired; called between messages when nothing is being routed.
cdef void engine_gc(Engine* e) noexcept nogil

# kind: what is at the other end, which decides whom its subscriptions hear.
cdef void client_init(Client* c, Engine* e, Worklist* work, Account* a, uint64_t cid, int kind,
                      const Protocol* protocol) noexcept nogil
# Lets it into an account, its own or another one; in that case its subscriptions end. Whether there is room for it: where
# not, it belongs to the account and is no member.
cdef bint client_join(Client* c, Account* a) noexcept nogil
# Has it belong to an account, and be of a kind, without counting among the account's members.
cdef void client_bind(Client* c, Account* a, int kind) noexcept nogil
cdef void client_become(Client* c, int kind, const Protocol* protocol) noexcept nogil   # before anything has come from it
cdef int64_t client_max_payload(const Client* c) noexcept nogil     # of a message that it may publish; -1: no limit
cdef void client_free(Client* c) noexcept nogil     # its subscriptions and buffers; the struct itself is its owner's
cdef void client_close(Client* c, int reason) noexcept nogil
cdef void client_write(Client* c, const void* p, size_t n) noexcept nogil
cdef void client_refuse(Client* c, int reason, Span text) noexcept nogil   # Protocol.refuse of clients: -ERR
cdef void client_error(Client* c, const char* text) noexcept nogil
cdef void client_ok(Client* c) noexcept nogil
# -ERR for what it may not do, of which the control plane hears, too.
cdef void violation(Client* c, const char* what, Span subject, Span queue, Span sid, const char* after) noexcept nogil
cdef int note_client(Client* c, int kind, const Span* texts, uint32_t n, int64_t number) noexcept nogil
cdef void note_error(Client* c, const char* before, Span quoted, const char* after) noexcept nogil
cdef void note_text(Client* c, const char* text) noexcept nogil
cdef void note_span(Client* c, Span text, int form) noexcept nogil
cdef void trace_line(Client* c, int way, const char* verb, Span rest) noexcept nogil
cdef void trace_message(Client* c, int way, const char* verb, Span rest, Span header, Span data) noexcept nogil
cdef void client_drop_subs(Client* c) noexcept nogil
cdef void client_restrict(Client* c, Permissions* perms) noexcept nogil
cdef int client_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil   # Protocol.deliver of clients
# Of a connection of another protocol that has taken a message of so many bytes: figures are counted, and slow_down tells the
# one who sent it that much waits there.
cdef void count_sent(Engine* e, Client* c, Sub* s, Account* a, uint32_t total) noexcept nogil
cdef void slow_down(Engine* e, Client* c) noexcept nogil
# Protocol.accepted, and unheard of clients.
cdef void client_accepted(Client* c) noexcept nogil
cdef void client_unheard(Client* c, Span subject, Span reply) noexcept nogil
cdef Span map_subject(Client* c, Span subject) noexcept nogil       # by its account's mappings; .p NULL: it is lost
# Verbs of any protocol, after parsing; what is wrong is told by Protocol.refuse. publish returns the number of receivers and may
# set closing; sub_begin tells whether there is the subscription.
cdef int publish(Client* c, Span subject, Span reply, Span header, Span data) noexcept nogil
cdef Sub* sub_add(Client* c, Account* a, Span subject, Span queue, Span sid, uint32_t weight, uint32_t origin) noexcept nogil
cdef void sub_drop(Client* c, Sub* s) noexcept nogil
cdef void sub_reweigh(Sub* s, uint32_t weight) noexcept nogil
cdef void shadows_add(Account* a, Sub* s) noexcept nogil        # what its account imports reaches it
cdef bint client_may_add(Client* c) noexcept nogil              # a subscription; where not, it has heard why
cdef bint sub_begin(Client* c, Span subject, Span queue, Span sid, uint32_t weight, uint32_t origin) noexcept nogil
cdef void sub_end(Client* c, Span sid, uint64_t max) noexcept nogil
cdef void chunk_release(Engine* e, Chunk* c) noexcept nogil

# The inbound handler that puts messages into the inbox; its target is the Account.
cdef int request_in(void* target, const Msg* m) noexcept nogil

cdef int inbox_put(Inbox* b, int kind, uint64_t cid, const Span* texts, uint32_t n_texts,
                   const int64_t* nums, uint32_t n_nums) noexcept nogil
