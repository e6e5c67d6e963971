"""Streams and consumers of Raft groups."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .bytes cimport Bytes, Env, Span, Task, Timer
from .groups cimport Group
from .stream cimport Stream


cdef enum ReplicaNews:
    # News in an EV_REPLICA: num[0] = number of the group, num[1] = one of these.
    REPLICA_ROLE = 1            # this member leads now, or leads no more, or there is another leader
    REPLICA_RESET = 2           # a consumer was reset; only on the leader: text[0] = reply, num[2] = sequence
    REPLICA_FAILED = 3          # the member stopped; text[0] = why
    REPLICA_PURGED = 4          # a purge is applied; only on the leader: text = reply, client, subject; num[2] = result
    REPLICA_DELETED = 5         # the same for a deleted message
    REPLICA_DIVERGED = 6        # the member stopped, because its data differs from what the group agreed on: start it empty
    REPLICA_JOINED = 7          # the member has caught up: STANDS_MEMBER

cdef enum ReplicaMode:
    REPLICA_FOLLOWS             # applies committed entries
    REPLICA_LEADS               # ... and decides
    REPLICA_CATCHES_UP          # takes messages of its leader; committed entries wait
    REPLICA_STOPPED             # closed, or failed: applies nothing any more

cdef enum ReplicaStanding:
    # What a member has of its group's log and state.
    STANDS_MEMBER = 0           # all: it may lead
    STANDS_BASE = 1             # a state from before the group: it leads first, and writes the state into the log
    STANDS_JOINS = 2            # it lacks entries of the log, and asks for no votes
    STANDS_AWAITS = 3           # the same, and the log is to begin with a state

cdef enum:
    SYNC_MAX = 256              # bytes of the subject on which members ask the leader for messages

cdef struct CatchUp             # a member's requests to its leader
cdef struct Serving             # members' requests to this leader

cdef struct ReplicatedStream

cdef struct ReplicatedStream:
    # All under the engine lock.
    Env* env
    Group* g
    Stream* s                   # NULL: the stream ended before the group
    ReplicaMode mode
    ReplicaStanding standing
    uint64_t term               # in which it leads
    uint64_t leader             # the leader that the control plane was told of
    uint64_t given              # records up to this index are applied, or held as an open batch
    uint64_t given_term         # the term of that record
    uint32_t done               # applied entries of the next record
    uint64_t recovered          # the log's last index at the start
    Bytes taken                 # proposals of this turn
    bint leaves                 # while leading: hands over once all its records are applied
    bint asks                   # it has proposed API requests: it tells their results, whichever member leads by then
    bint agrees                 # while leading: its state is to be proposed
    uint64_t agreed             # while leading: the record with its state; nothing else is proposed until that is applied
    uint64_t passed             # the damaged message for which this member handed the lead over, so that another one sends it
    uint32_t passes             # ... so often
    uint64_t lost               # the first sequence lost to damage, which the leader is to send again; 0: none
    Task task                   # runs a turn
    Timer timer                 # for snapshots
    Bytes state                 # a snapshot that waits until the store is on disk
    uint64_t state_index        # 0: no snapshot waits
    uint64_t state_term
    uint64_t state_refused
    uint64_t state_ticket
    uint64_t kept               # index of the last snapshot
    uint64_t kept_refused       # refused entries in that snapshot
    int64_t kept_at             # mono
    int64_t kept_pause          # to the next one
    CatchUp* catch_up           # NULL: none runs
    void (*caught_up)(ReplicatedStream* r, int rc) noexcept nogil   # with the result of a catch-up
    Serving* serving            # NULL: not leading
    uint32_t n_sync
    char sync[SYNC_MAX]
    ReplicaNews halted          # REPLICA_FAILED or REPLICA_DIVERGED; 0: running
    char why[256]               # why it failed


# ---- state.pxi: the state in a snapshot, as values -------------------------------------------------------------------------

cdef enum:
    SET_WORDS = 32              # of a node in a set of sequences

cdef struct StateHead:
    # Views of the state.
    uint64_t msgs, bytes, first, last, refused
    Span holes                  # the blocks of deleted sequences, or a JSON array
    bint json

cdef struct HoleWalk:
    # Walks over the state's deleted sequences.
    Span rest
    bint json
    uint32_t nodes              # left in the present set
    uint64_t base               # first sequence of the present node
    uint64_t bits[SET_WORDS]
    uint32_t at                 # bit in the present node

# Reads the head; the deleted sequences are not checked. False: damaged.
cdef bint state_head_get(Span state, StateHead* out) noexcept nogil
cdef void holes_begin(HoleWalk* w, const StateHead* head) noexcept nogil
# The next run of deleted sequences. 1 | 0: there are no more | -1: the state is damaged
cdef int holes_next(HoleWalk* w, uint64_t* first, uint64_t* count) noexcept nogil
# Adds the state of a stream in the form of nats-server's snapshots to out. ST_OK | ST_NO_MEMORY
cdef int stream_state_put(Stream* s, Bytes* out) noexcept nogil
# The count of refused entries in a state, for a stream that is not open as a member yet. False: the state is damaged.
cdef bint stream_state_refused(Span state, uint64_t* refused) noexcept nogil

# ---- catchup.pxi, serving.pxi -------------------------------------------------------------------------------------------------

# Brings the stream to the state of a snapshot with this index. ST_OK: done | ST_WAIT: the leader is asked for messages, and
# stream_caught_up is called in a later turn | ST_UNKNOWN: the state is damaged | another ST_*. The state is copied.
cdef int stream_state_apply(ReplicatedStream* r, Span state, uint64_t index) noexcept nogil
# Ends a running catch-up without calling stream_caught_up, and frees it.
cdef void catchup_end(ReplicatedStream* r) noexcept nogil
# Begins to answer members' requests on r.sync, while leading. 0 | -1 no memory
cdef int serving_begin(ReplicatedStream* r) noexcept nogil
cdef void serving_end(ReplicatedStream* r) noexcept nogil
# A record is applied: members that wait for it may be served.
cdef void serving_applied(ReplicatedStream* r) noexcept nogil

# ---- stream.pxi ---------------------------------------------------------------------------------------------------------------

# Result of a catch-up: ST_OK | ST_NOT_FOUND: no leader had the messages, and the stream stops as diverged | another ST_*.
cdef void stream_caught_up(ReplicatedStream* r, int rc) noexcept nogil
