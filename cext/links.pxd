"""Links between servers: routes, leafnodes and gateways, and what they say."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jsserver.cext.bytes cimport Draft, List, ListNode, Span, StrMap, Table
from jsserver.cext.core cimport Account, Engine, Peers, Permissions, Protocol
from jsserver.cext.net cimport Conn


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
# A reply `$JS.ACK.<7 tokens>@<subject>` is an ack's reply with the subject under which clients see the message. Splits such a
# reply into both; False: the reply is another one, and stays as it is.
cdef bint ack_subject_take(Span* reply, Span* subject) noexcept nogil


# ---- routes ----------------------------------------------------------------------------------------

cdef enum LinkSaid:
    # What an IN_LINK of the control plane's inbox tells.
    LINK_OPENED = 0         # bytes may flow
    LINK_INFO               # the text is JSON; the link's input rests until link_resume
    LINK_CONNECT            # likewise
    LINK_ERROR              # -ERR; the link closes
    LINK_HAILED             # its first PONG

cdef enum RouteState:
    ROUTE_NEW = 0           # INFO and CONNECT are under way; nothing else may come
    ROUTE_OPEN              # interest and messages flow
    ROUTE_ENDED

cdef struct RouteTerms:
    # What the control plane lets a route in with.
    bint pooled             # it carries the accounts of one place in a pool; False: all of them
    uint32_t place
    Account* account        # the one that it carries, and no line names; NULL: others. Held.

cdef struct RouteConn:
    # A connection that speaks the routes' protocol.
    Conn conn
    LinkParser parser
    int state               # RouteState
    RouteTerms terms
    bint hailed             # its first PONG has come
    Mesh* mesh              # while ROUTE_OPEN
    ListNode node           # of the mesh's open ones
    StrMap accounts         # name -> Account*, held: those that its lines have named
    Account* last           # of the last line, one of these
    Draft sid               # of the subscription that a line is about

cdef struct Told:
    # Interest that other servers are told of: all subscriptions of a subject and queue group that are not another server's. One
    # allocation, with its texts.
    uint64_t hash
    uint64_t n              # of queue groups: members
    Span subject
    Span queue

cdef struct AccountTold:
    # Account.told
    Table interest          # of Told
    uint32_t place          # in a pool
    bint pinned             # it has connections of its own to servers with pools

cdef struct Mesh:
    # The routes of a server. `peers` comes first: an engine's Peers* is its Mesh*.
    Peers peers
    Engine* engine
    List open               # of RouteConn
    Draft line              # in the making
    StrMap origins          # leaf clusters that lines have named -> number, from 1
    uint32_t places         # of a pool: its connections share the accounts among them

cdef const Protocol* routes() noexcept nogil
# Makes the mesh of an engine; NULL: no memory. What is subscribed by then counts.
cdef Mesh* mesh_new(Engine* e, uint32_t places) noexcept nogil
cdef void mesh_free(Mesh* mesh) noexcept nogil          # no route is left
# The account has connections of its own to servers with pools, from the next ones on. 0 | -1 no memory.
cdef int mesh_pin(Mesh* mesh, Account* a) noexcept nogil
# Lets a route in: it is told of all interest, and messages flow. 0 | -1 no memory, and it closes.
cdef int route_open(Mesh* mesh, RouteConn* r, const RouteTerms* terms) noexcept nogil
# What it may from now on: of interest here what it may be told of (to publish), of its own what counts (to subscribe). NULL: all.
cdef void route_restrict(RouteConn* r, Permissions* perms) noexcept nogil
# Tells an open one again of all interest that it may be told of.
cdef void route_tell(RouteConn* r) noexcept nogil
# What the control plane says to it.
cdef void link_write(Conn* c, Span text) noexcept nogil
# An INFO or CONNECT of it is dealt with.
cdef void link_resume(Conn* c) noexcept nogil
