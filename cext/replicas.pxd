"""Streams and consumers of a server whose Raft groups drive them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .bytes cimport Bytes, Env, Span, Task, Timer
from .groups cimport Group
from .stream cimport Stream


cdef enum ReplicaNews:
    # What EV_REPLICA tells the control plane: num[0] = number of the group, num[1] = one of these.
    REPLICA_ROLE = 1            # whether it leads, or who does
    REPLICA_RESET = 2           # of a consumer: text[0] = reply, num[2] = sequence; on the leader alone
    REPLICA_FAILED = 3          # it stopped; text[0] = why
    REPLICA_PURGED = 4          # a request is applied, on the leader alone: text = reply, client, subject; num[2] = result
    REPLICA_DELETED = 5         # likewise
    REPLICA_DIVERGED = 6        # it stopped, as its stream is not what the group agreed on: it is to begin anew
    REPLICA_JOINED = 7          # it stands as a member from now on

cdef enum ReplicaMode:
    REPLICA_FOLLOWS             # applies what is committed
    REPLICA_LEADS               # ... and decides
    REPLICA_CATCHES_UP          # takes messages of its leader; what is committed waits
    REPLICA_STOPPED             # closed, or failed: nothing is applied any more

cdef enum ReplicaStanding:
    # How far a member of a group that has just got it is.
    STANDS_MEMBER = 0           # it has what its group agreed on, and may lead
    STANDS_BASE = 1             # it has what no log has: it leads first, and puts its state into the log
    STANDS_JOINS = 2            # it lacks what the log has, and does not ask for votes
    STANDS_AWAITS = 3           # likewise, and a state is to come that the log begins with

cdef enum:
    SYNC_MAX = 256              # bytes of the subject on which members ask the leader for its messages

cdef struct CatchUp             # what a member asks its leader for
cdef struct Serving             # what members ask this leader for

cdef struct ReplicatedStream

cdef struct ReplicatedStream:
    # Everything is used under the engine lock.
    Env* env
    Group* g
    Stream* s                   # NULL: it ended before the group
    ReplicaMode mode
    ReplicaStanding standing
    uint64_t term               # that it leads in
    uint64_t leader             # that was told last
    uint64_t given              # records up to this one are applied, or held as an open batch
    uint64_t given_term         # of that one
    uint32_t done               # entries of the next one that are applied
    uint64_t recovered          # what the log had at the start
    Bytes taken                 # proposals of a turn
    bint leaves                 # as it leads: another one is to, once nothing is on its way
    bint agrees                 # as it leads: its state is to be proposed
    uint64_t agreed             # likewise: it was, as this record; until that is applied nothing else is
    uint64_t lost               # the first sequence that damage has cost, and the leader is to send again; 0: none
    Task task                   # there is something to do
    Timer timer                 # for snapshots
    Bytes state                 # the snapshot that waits for the store
    uint64_t state_index        # 0: none does
    uint64_t state_term
    uint64_t state_refused
    uint64_t state_ticket
    uint64_t kept               # index of the last snapshot
    uint64_t kept_refused       # refused entries that it says
    int64_t kept_at             # mono
    int64_t kept_pause          # to the next one
    CatchUp* catch_up           # NULL: none runs
    void (*caught_up)(ReplicatedStream* r, int rc) noexcept nogil   # what it ended with
    Serving* serving            # NULL: it does not lead
    uint32_t n_sync
    char sync[SYNC_MAX]
    char why[256]               # it failed


# ---- state.pxi: the state that a snapshot has, as values -------------------------------------------------------------------

cdef enum:
    SET_WORDS = 32              # of a node of a set of sequences

cdef struct StateHead:
    # Views of the state.
    uint64_t msgs, bytes, first, last, refused
    Span holes                  # the blocks of deleted sequences, or a JSON array
    bint json

cdef struct HoleWalk:
    # Its deleted sequences.
    Span rest
    bint json
    uint32_t nodes              # of the set that is gone through
    uint64_t base               # of its present node
    uint64_t bits[SET_WORDS]
    uint32_t at                 # in it

# Without a look at the deleted sequences. False: it is damaged.
cdef bint state_head_get(Span state, StateHead* out) noexcept nogil
cdef void holes_begin(HoleWalk* w, const StateHead* head) noexcept nogil
# A run of deleted sequences. 1 | 0: there are no more | -1: the state is damaged
cdef int holes_next(HoleWalk* w, uint64_t* first, uint64_t* count) noexcept nogil
# Adds the state of a stream, as nats-server's snapshots have it, to out. ST_OK | ST_NO_MEMORY
cdef int stream_state_put(Stream* s, Bytes* out) noexcept nogil
# Refused entries that a state says, before its stream is opened as a member. False: it is damaged.
cdef bint stream_state_refused(Span state, uint64_t* refused) noexcept nogil

# ---- catchup.pxi, serving.pxi -------------------------------------------------------------------------------------------------

# Makes the stream what a snapshot at this index of the log says: ST_OK: it is | ST_WAIT: its leader is asked for messages, and
# stream_caught_up is called in a later turn | ST_UNKNOWN: the state is damaged | another ST_*. The state is copied.
cdef int stream_state_apply(ReplicatedStream* r, Span state, uint64_t index) noexcept nogil
# What runs ends without stream_caught_up, and what it has is freed.
cdef void catchup_end(ReplicatedStream* r) noexcept nogil
# From now on, as it leads, members are answered on r.sync. 0 | -1 no memory
cdef int serving_begin(ReplicatedStream* r) noexcept nogil
cdef void serving_end(ReplicatedStream* r) noexcept nogil
# The message of Raft of this index is applied, which members that ask for messages may wait for.
cdef void serving_applied(ReplicatedStream* r) noexcept nogil

# ---- stream.pxi ---------------------------------------------------------------------------------------------------------------

# What a catch-up ended with: ST_OK | ST_NOT_FOUND: no leader had it, and the stream stops as one that diverged | another ST_*.
cdef void stream_caught_up(ReplicatedStream* r, int rc) noexcept nogil
