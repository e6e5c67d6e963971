"""Links between servers: routes, leafnodes and gateways, and what they say."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jsserver.cext.bytes cimport Bytes, Draft, List, ListNode, Span, StrMap, Table, U64Map
from jsserver.cext.core cimport MAPPED_HASH, Account, Engine, Peers, Permissions, Protocol, Sub
from jsserver.cext.net cimport Conn, Security


# ---- the lines of a link, parsed -------------------------------------------------------------------

cdef enum Dialect:
    DIALECT_ROUTE = 0       # every line names its account
    DIALECT_ACCOUNT = 1     # a route of one account, which no line names
    DIALECT_LEAF = 2        # likewise, and no line has an origin
    DIALECT_GATEWAY = 3     # as DIALECT_ROUTE, without origins

cdef enum LineKind:
    LINE_CONNECT = 1
    LINE_INFO
    LINE_PING
    LINE_PONG
    LINE_OK
    LINE_ERR
    LINE_INTEREST           # RS+, LS+: somebody there listens
    LINE_NO_INTEREST        # RS-, LS-: nobody does any more; of a gateway also: nobody did
    LINE_MESSAGE            # RMSG, HMSG, LMSG
    LINE_ACCOUNT            # A+: of a gateway
    LINE_NO_ACCOUNT         # A-

cdef enum LineResult:
    LINE_READ = 1
    LINE_MORE = 0           # nothing is wrong so far
    LINE_UNKNOWN = -1       # no operation of this dialect
    LINE_ARGUMENTS = -2     # not the fields that it has
    LINE_LONG = -3          # longer than max_line
    LINE_PAYLOAD = -4       # more than max_payload; LinkParser.need is the size

cdef struct Line:
    # An operation; all spans are views of the bytes given.
    int kind                # LineKind
    size_t size             # bytes that the operation took
    Span args               # the line behind the verb
    Span origin             # of LS+, LS-, LMSG on a route: the leaf cluster
    Span account
    Span subject
    Span reply
    Span queue              # of interest; empty: plain
    uint32_t weight         # members of that queue group
    bint chosen             # of a message: queues says which groups it is for, maybe none
    Span queues             # names, blanks between them
    Span header
    Span data

cdef struct LinkParser:
    int dialect
    size_t scanned
    size_t need             # LINE_MORE: bytes that complete the operation, when known; else 0
    int64_t max_line
    int64_t max_payload     # -1: unlimited

# The next operation of p[0:n]; LINE_READ with line.size bytes used, or another LineResult. What is incomplete is given
# again, with more behind it.
cdef int line_parse(LinkParser* ps, const uint8_t* p, size_t n, Line* line) noexcept nogil
# A reply `$JS.ACK.<7 tokens>@<subject>`, mapped or not, is an ack's reply with the subject under which clients see the message.
# Splits such a reply into both; False: the reply is another one, and stays as it is.
cdef bint ack_subject_take(Span* reply, Span* subject) noexcept nogil


# ---- connections to other servers ------------------------------------------------------------------

cdef enum LinkSaid:
    # What an IN_LINK, IN_LEAF or IN_GATEWAY of the control plane's inbox tells.
    LINK_OPENED = 0         # bytes may flow
    LINK_INFO               # the text is JSON; the link's input rests until link_resume
    LINK_CONNECT            # likewise; behind it stands what is known of the link's TLS, as in ConnFigures' texts
    LINK_ERROR              # -ERR; the link closes
    LINK_HAILED             # its first PONG
    LINK_SECURED            # the handshake that link_secure asked for is made; the link's input rests until link_resume
    LINK_LOOP               # its own interest has come back to this server by a leaf node; the link is to be closed

cdef enum LinkState:
    LINK_SHAKES = 0         # INFO and CONNECT are under way; nothing else may come
    LINK_RUNS               # interest and messages flow
    LINK_ENDS

cdef struct LinkConn:
    # A connection to another server.
    Conn conn
    LinkParser parser
    int state               # LinkState
    int64_t patience        # ns until a hub that was dialled must have let this server in; else 0, and the terms say it
    bint hailed             # its first PONG has come
    bint secures            # its handshake comes behind the first INFO
    Mesh* mesh              # while LINK_RUNS
    ListNode node           # of the mesh's open ones of its kind
    Draft sid               # of the subscription that a line is about
    StrMap accounts         # name -> Account*, held: those that its lines have named, where they name any
    Account* last           # of the last line, one of these

cdef struct Told:
    # Interest that other servers are told of: all subscriptions of a subject and queue group that count there. One allocation,
    # with its texts.
    uint64_t hash
    uint64_t n              # of queue groups: members
    Span subject
    Span queue
    Span origin             # for routes: the cluster of the leaf nodes that listen; empty: others do

cdef struct AccountTold:
    # Account.told
    Table interest          # of Told, for routes
    Table cluster           # of Told, for gateways: of the whole cluster
    bint begun              # gateways hear of each change, and send what somebody wants alone
    uint32_t place          # in a pool
    bint pinned             # it has connections of its own to servers with pools
    List leafs              # of LeafConn
    Span loop               # what leaf nodes and hubs are told of to find loops; owned; empty until there is one


# ---- routes ----------------------------------------------------------------------------------------

cdef struct RouteTerms:
    # What the control plane lets a route in with.
    bint pooled             # it carries the accounts of one place in a pool; False: all of them
    uint32_t place
    Account* account        # the one that it carries, and no line names; NULL: others. Held.
    bint origins            # the other server understands LS+, LS- and LMSG, which have a leaf node's cluster
    uint8_t[MAPPED_HASH] server     # the hash of the other server, as mapped replies have it

cdef struct RouteConn:
    # A connection that speaks the routes' protocol.
    LinkConn link
    RouteTerms terms
    Sub answers             # counts what goes to mapped replies there; in no account


# ---- leaf nodes ------------------------------------------------------------------------------------

cdef struct LeafTerms:
    # What the control plane lets a leaf node in with, or says of a hub.
    Account* account        # whose messages pass
    bint to_hub             # the other side is the hub
    bint isolated           # it is not told of other leaf nodes
    bint headers            # it takes them
    Permissions* perms      # publish: messages that go there; subscribe: what it is told that is listened to. NULL: all
    Permissions* accepts    # publish: messages that are taken from there. NULL: all
    Span cluster            # which it is in
    Span loop               # what finds loops in this account, if nothing does yet
    const Span* more        # subjects that it is told of beside what is subscribed
    uint32_t n_more
    int64_t max_subscriptions   # of its user, beside the account's; -1: no limit
    int64_t max_payload

cdef struct LeafConn:
    # A connection to a leaf node, or to a hub.
    LinkConn link
    bint isolated           # as LeafTerms
    bint headers
    Permissions* accepts    # held
    Table told              # of Told
    ListNode beside         # of AccountTold.leafs


# ---- gateways --------------------------------------------------------------------------------------

cdef struct GatewayTerms:
    # What the control plane lets a gateway connection in with.
    bint inbound            # messages come from there, and interest goes there; False: the other way round
    bint headers            # it takes them
    uint8_t[MAPPED_HASH] cluster    # the hash of the other cluster
    Span name               # of that

cdef struct GatewayConn:
    # A connection to a server of another cluster.
    LinkConn link
    GatewayTerms terms      # its name is owned
    Sub answers             # counts what goes to mapped replies there; in no account

cdef struct Recent:
    # A subscription of this cluster that other clusters may not know of yet.
    Sub* sub                # told apart by it, not looked at
    int64_t until
    ListNode node


# ---- all links of a server -------------------------------------------------------------------------

cdef struct Mesh:
    # `peers` comes first: an engine's Peers* is its Mesh*.
    Peers peers
    Engine* engine
    List open               # of RouteConn
    List leafs              # of LeafConn
    List inbound            # of GatewayConn
    List outbound           # likewise
    Draft line              # in the making
    Draft reply             # of a message to another cluster, mapped
    StrMap origins          # clusters of leaf nodes that lines have named -> number, from 1
    Bytes names             # of these: Spans, owned
    uint32_t places         # of a pool of routes: its connections share the accounts among them
    bint routed             # there may be routes
    bint gated              # there may be gateways
    uint8_t[MAPPED_HASH] cluster    # the hashes of this cluster and server, as mapped replies have them
    uint8_t[MAPPED_HASH] server
    Bytes command           # INFO that tells a gateway of an account's mode, up to the command's number
    U64Map recent           # Sub* -> Recent*
    List recent_by_time     # the same, the oldest first

cdef const Protocol* routes() noexcept nogil
cdef const Protocol* leafs() noexcept nogil
cdef const Protocol* gateways() noexcept nogil
# Makes the mesh of an engine; NULL: no memory.
cdef Mesh* mesh_new(Engine* e) noexcept nogil
cdef void mesh_free(Mesh* mesh) noexcept nogil          # no link is left
# There will be routes. What is subscribed by then counts.
cdef void mesh_route(Mesh* mesh, uint32_t places) noexcept nogil
# The account has connections of its own to servers with pools, from the next ones on. 0 | -1 no memory.
cdef int mesh_pin(Mesh* mesh, Account* a) noexcept nogil
# It has none of its own any more, and pools have another size; both count for routes that open from then on, and the others are
# to be closed.
cdef void mesh_unpin(Account* a) noexcept nogil
cdef void mesh_resize(Mesh* mesh, uint32_t places) noexcept nogil
# Lets a route in: it is told of all interest, and messages flow. 0 | -1 no memory, and it closes.
cdef int route_open(Mesh* mesh, RouteConn* r, const RouteTerms* terms) noexcept nogil
# There will be gateways. What is subscribed by then counts. The hashes of this cluster and server, and Mesh.command. 0 | -1 no
# memory.
cdef int mesh_gate(Mesh* mesh, const uint8_t* cluster, const uint8_t* server, Span command) noexcept nogil
# Lets a gateway connection in.
cdef int gateway_open(Mesh* mesh, GatewayConn* g, const GatewayTerms* terms) noexcept nogil
# Likewise a leaf node, or a hub that has let this server in.
cdef int leaf_open(Mesh* mesh, LeafConn* leaf, const LeafTerms* terms) noexcept nogil
# What a route may from now on: of interest here what it may be told of (to publish), of its own what counts (to subscribe).
# NULL: all.
cdef void route_restrict(RouteConn* r, Permissions* perms) noexcept nogil
# Tells an open route again of all interest that it may be told of.
cdef void route_tell(RouteConn* r) noexcept nogil
# What the control plane says to another server.
cdef void link_write(Conn* c, Span text) noexcept nogil
# An INFO or CONNECT of it is dealt with.
cdef void link_resume(Conn* c) noexcept nogil
# Likewise, and a handshake is made, with the server of that name or address alone (empty: any); LINK_SECURED tells of it. Where
# nothing waits for that, nothing happens. 0, or -1: no memory.
cdef int link_secure(Conn* c, Security* security, Span name) noexcept nogil
# Likewise, and all that follows is compressed; see conn_compress. Where nothing waits for that, nothing happens.
cdef void link_compress(Conn* c, int level, const int64_t* thresholds, int n, Span first) noexcept nogil
