"""Raft on nats-server's wire, as a pure state machine: messages and time in, actions out. No clock, socket or file."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from jsserver.cext.bytes cimport Bytes, Span


# ---- messages (codec.pxi) --------------------------------------------------------------------------
# All numbers are little endian. A peer is the eight characters of its id, read as one number; 0 is nobody.

cdef enum EntryType:
    ENTRY_NORMAL = 0
    ENTRY_OLD_SNAPSHOT = 1
    ENTRY_PEER_STATE = 2
    ENTRY_ADD_PEER = 3
    ENTRY_REMOVE_PEER = 4
    ENTRY_LEADER_TRANSFER = 5
    ENTRY_SNAPSHOT = 6

cdef enum:
    RAFT_BATCH_ENTRIES = 512        # of one message, as a leader makes them
    RAFT_BATCH_BYTES = 256 << 10

cdef struct AppendEntry:
    # One message is one index of the log, however many entries it holds; it is stored as it came.
    uint64_t leader
    uint64_t term
    uint64_t commit
    uint64_t pterm          # of the entry before
    uint64_t pindex         # of the entry before
    uint64_t lterm          # of a message that catches up: the leader's present term; else 0
    uint16_t n              # entries; 0 is a heartbeat, which takes no index
    Span entries

cdef enum:
    RAFT_PEERS_MAX = 1 << 10         # of a group; a set of more is none

cdef struct Entry:
    EntryType type
    Span data

cdef struct AppendResponse:
    uint64_t term
    uint64_t index
    uint64_t peer
    bint success

cdef struct VoteRequest:
    uint64_t term
    uint64_t last_term
    uint64_t last_index
    uint64_t candidate

cdef struct VoteResponse:
    uint64_t term
    uint64_t peer
    bint granted
    bint empty              # the voter's log is

cdef enum FirstLeader:
    FIRST_OTHER                 # somebody else was chosen
    FIRST_OWN                   # this member was
    FIRST_ANY                   # nobody was

cdef enum DomainExtension:
    EXTENDS_UNKNOWN = 0
    EXTENDS = 1
    EXTENDS_NOT = 2

cdef struct PeerState:
    # `ids` is a view into the message: n times eight bytes.
    uint32_t size               # how many members the group is to have
    uint32_t n
    const uint8_t* ids
    DomainExtension extension

# Each reads a whole message, or answers False: too short, too long, a length that leads outside, an unknown type.
cdef bint append_entry_read(Span body, AppendEntry* out) noexcept nogil
cdef bint entry_next(Span* rest, Entry* out) noexcept nogil             # of a message that was read; False behind the last
cdef bint append_response_read(Span body, AppendResponse* out) noexcept nogil
cdef bint vote_request_read(Span body, VoteRequest* out) noexcept nogil
cdef bint vote_response_read(Span body, VoteResponse* out) noexcept nogil
cdef bint peer_state_read(Span body, PeerState* out) noexcept nogil
# Each adds a message to b. 0 | RAFT_NO_MEMORY | RAFT_TOO_LARGE
cdef int append_entry_write(Bytes* b, const AppendEntry* m) noexcept nogil
cdef int entry_write(Bytes* b, EntryType type, Span data) noexcept nogil
cdef int append_response_write(Bytes* b, const AppendResponse* m) noexcept nogil
cdef int vote_request_write(Bytes* b, const VoteRequest* m) noexcept nogil
cdef int vote_response_write(Bytes* b, const VoteResponse* m) noexcept nogil
cdef int peer_state_write(Bytes* b, uint32_t size, const uint8_t* ids, uint32_t n, DomainExtension extension) noexcept nogil


# ---- what a group asks of its driver (actions.pxi) --------------------------------------------------
# A driver calls one of the functions below, then carries out the actions in their order. It may carry out the
# actions of many groups together: all stores and votes of a turn are one commit round. What must not be said before
# something is on disk is not among the actions until the driver has told raft_stored or raft_voted of it.

cdef enum RaftAct:
    ACT_VOTE = 1            # term, peer: to be on disk; then raft_voted
    ACT_STORE               # index, term (the log's generation), body: the record goes behind the log's end
    ACT_CUT                 # index, term (the log's generation): the log ends with it
    ACT_SEND                # what, to, reply, body
    ACT_COMMIT              # index: all up to it may be applied, in their order; then raft_applied
    # index, term, count (the log's generation), body: a leader's state is the snapshot, and is applied; then the log is
    # empty, and begins behind it
    ACT_INSTALL
    ACT_RECORD              # peer, index, to, term (lterm): a stored record is to be sent; then raft_sent
    ACT_STATE               # peer, index, term, to: the snapshot is to be sent, with its set of peers
    ACT_ROLE                # the group's role, leader or term is another
    ACT_PEERS               # body: the set of peers that is committed, as the file of peers has it
    ACT_LOST                # the member may have lost what it had promised: the disk is to say so; then raft_marked
    ACT_WHOLE               # a member that had lost something has all again: the mark of it may go from the disk
    # index, term, peer: the leader has another entry where this log is committed; it is to be put aside, and the group to
    # start again as one that is lost
    ACT_DIVERGED
    ACT_CONFIRMED           # a quorum has answered a round of raft_ask: RaftState.confirmed

cdef enum RaftWhat:
    # The subject that a message goes to.
    SEND_VOTE_REQUEST = 1   # to all
    SEND_APPEND             # to all
    SEND_REPLY              # to the subject in `to`

cdef enum RaftReply:
    # The subject that is answered to; the driver knows the names.
    REPLY_NONE = 0
    REPLY_VOTES             # the group's inbox for votes
    REPLY_RESPONSES         # the group's inbox for append responses
    REPLY_CATCH_UP          # the inbox of the catch-up `index`: a new one each time
    REPLY_ROUND             # the inbox for append responses to the heartbeats of the round `index`

cdef struct RaftAction:
    # `to` and `body` are views into the group's queue, valid until its next call.
    RaftAct act
    RaftWhat what
    RaftReply reply
    uint64_t term
    uint64_t index
    uint64_t count
    uint64_t peer
    Span to
    Span body


# ---- a group -----------------------------------------------------------------------------------------

cdef enum RaftRole:
    RAFT_FOLLOWER
    RAFT_CANDIDATE
    RAFT_ELECTED            # leads, but for proposals: what was there before its term is not applied yet
    RAFT_LEADER
    RAFT_STOPPED            # removed, or closed

cdef enum RaftError:
    RAFT_OK = 0
    RAFT_NO_MEMORY = -1
    RAFT_NOT_LEADER = -2    # or of another term
    RAFT_BUSY = -3          # another change of the membership is not committed yet
    RAFT_LAST = -4          # the last peer stays
    RAFT_TOO_LARGE = -5

cdef struct RaftConfig:
    uint64_t id             # of this member
    uint64_t seed           # of the random times
    bint observer           # stores and applies, does not vote for itself
    bint managed            # an unknown member that answers is no peer for that
    bint fresh              # a new group: until something is stored its empty log says nothing about it
    # Its log or votes were damaged: until it has all again (ACT_WHOLE) its votes count like an empty member's, also its own: it
    # may be elected, late, by all members together, as that is all that is left.
    bint lost
    # A rescue or a standalone server's directory began this history with the snapshot of this index: who has less leads or
    # asks for votes in another one. 0: nothing did.
    uint64_t base
    uint64_t turns          # the same for all members: it says in which order they ask for votes after a start

cdef struct RaftStart:
    # What the disk had.
    uint64_t term
    uint64_t vote
    uint64_t snapshot_term  # 0, 0: none
    uint64_t snapshot_index
    Span peers              # the set of peers: the snapshot's, else the file's

cdef struct Raft            # opaque

cdef Raft* raft_new(const RaftConfig* cfg, const RaftStart* at, int64_t now) noexcept nogil      # NULL: no memory
cdef void raft_free(Raft* r) noexcept nogil
# The log's records at a start, in their order, before anything else. False: the record does not follow the one
# before; the log is to be cut before it, and nothing more replayed.
cdef bint raft_replay(Raft* r, Span record) noexcept nogil


# ---- what comes in; damaged messages are dropped
cdef int raft_vote_request(Raft* r, Span body, Span reply) noexcept nogil
cdef int raft_vote_response(Raft* r, Span body) noexcept nogil
# catch_up: 0 for a message to all members, else the number of the inbox that it came to.
cdef int raft_append(Raft* r, Span body, Span reply, uint64_t catch_up) noexcept nogil
# round: of the inbox that it came to; 0: that of no round
cdef int raft_response(Raft* r, Span body, Span reply, uint64_t round) noexcept nogil
cdef int raft_tick(Raft* r, int64_t now) noexcept nogil
cdef int64_t raft_deadline(const Raft* r) noexcept nogil                # when raft_tick is due next

# ---- what the driver has done
# After each round: what the last store, cut or install that it holds says of generation and index.
cdef int raft_stored(Raft* r, uint64_t generation, uint64_t index) noexcept nogil
cdef int raft_voted(Raft* r, uint64_t term, uint64_t vote) noexcept nogil
cdef int raft_marked(Raft* r) noexcept nogil
cdef int raft_applied(Raft* r, uint64_t index) noexcept nogil
cdef int raft_snapshotted(Raft* r, uint64_t term, uint64_t index) noexcept nogil    # the log begins behind it
cdef int raft_sent(Raft* r, uint64_t peer, uint64_t index, uint32_t n) noexcept nogil     # of n bytes; 0: not held any more
cdef int raft_failed(Raft* r) noexcept nogil                            # the disk refuses: it hands over, and is stopped

# ---- what the member wants
# Entries of the leader of this term; they are sent at the turn's end, many as one message.
cdef int raft_propose(Raft* r, uint64_t term, EntryType type, Span data) noexcept nogil
cdef int raft_turn_end(Raft* r) noexcept nogil
# A leader asks a quorum at the turn's end whether it still leads. Returns the number of that round: once RaftState.confirmed
# has reached it in the same term, nobody else led at this call. UINT64_MAX: it does not lead.
cdef uint64_t raft_ask(Raft* r) noexcept nogil
# What other members ask of a leader; others drop it.
cdef int raft_forwarded(Raft* r, Span body) noexcept nogil
cdef int raft_forwarded_removal(Raft* r, Span body) noexcept nogil
cdef int raft_add_peer(Raft* r, uint64_t peer) noexcept nogil
cdef int raft_remove_peer(Raft* r, uint64_t peer) noexcept nogil
cdef int raft_set_peers(Raft* r, const uint64_t* peers, uint32_t n) noexcept nogil
# Those that a managed group is to have. As leader this member adds them when their logs reach as far as its own, and then removes
# the others, one after another; a candidate needs the votes of a quorum of these, too. The last call counts; n 0: nobody says.
cdef int raft_assign(Raft* r, const uint64_t* peers, uint32_t n) noexcept nogil
# A leader's state as an entry, alone in its message: members begin with it where the log has not all that there was before.
cdef int raft_propose_state(Raft* r, Span state) noexcept nogil
cdef int raft_hand_over(Raft* r, uint64_t to) noexcept nogil            # 0: to any member that is up to date
cdef int raft_campaign(Raft* r) noexcept nogil                          # soon
cdef void raft_choose(Raft* r, FirstLeader first) noexcept nogil        # who is to lead a new group first
cdef int raft_gone(Raft* r, uint64_t peer) noexcept nogil               # its route broke, or it says that it stops
cdef int raft_observe(Raft* r, bint observer) noexcept nogil
cdef void raft_stop(Raft* r) noexcept nogil                                    # nothing is heard or said any more

# ---- whom it sees (seek.pxi)
# Whether it looks for a leader since it was opened: then it is told from time to time how many other members are there, and
# whether one of them is there as a leader. Where enough are there and none leads, it asks for votes before its time.
cdef bint raft_seeks(const Raft* r) noexcept nogil
cdef int raft_seen(Raft* r, int64_t now, uint32_t others, bint led) noexcept nogil

# ---- what comes out
cdef bint raft_next_action(Raft* r, RaftAction* out) noexcept nogil     # False: no more; the queue is empty then

cdef struct RaftState:
    RaftRole role
    uint64_t term
    uint64_t leader
    uint64_t first          # of the log
    uint64_t last
    uint64_t last_term
    uint64_t commit
    uint64_t applied
    uint64_t stored         # on disk up to here
    uint64_t generation     # of the log: another one after each cut
    uint32_t size           # how many members the group is to have
    uint32_t quorum
    uint32_t members        # that are known
    bint lost
    bint behind             # it fetches what it lacks of the log
    uint64_t vote           # of this term; 0: for nobody
    uint64_t proposed       # the index that the last proposal has or, at the turn's end, gets
    uint64_t confirmed      # up to this round of raft_ask a quorum has answered
    uint64_t met            # last index of the first leader since this member was opened; 0: there was none yet

cdef struct RaftPeerState:
    uint64_t id
    uint64_t match          # index that it confirmed to this leader
    int64_t heard           # mono; 0: not since this member started, or gone
    bint leads

cdef bint raft_peer(const Raft* r, uint32_t n, RaftPeerState* out) noexcept nogil     # False: there are not so many
cdef void raft_state(const Raft* r, RaftState* out) noexcept nogil
