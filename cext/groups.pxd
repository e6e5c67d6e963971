"""Raft groups of a server: their messages over routes, their time and their disk."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .bytes cimport Bytes, Cond, Env, List, ListNode, Msg, Span, Task, Timer
from .raft cimport Raft, RaftConfig
from .raftlog cimport RaftFiles, RaftFound, RaftLog
from .store cimport Committer


cdef enum:
    GROUP_NAME_MAX = 64
    INLET_ROOM = 96             # of a subject: `$NRG.AE.` and the group's name

cdef struct Group

cdef struct Groups:
    # What the groups of a server share. Everything is used under the engine lock, but for `files`.
    Env* env
    void* account               # whose subjects they speak on: the system account, which is its owner's to hold
    RaftFiles* files
    List all                    # of Group
    List states                 # of StateWanted: snapshots that are to be read and sent
    Group* sending              # whose snapshot is being read; NULL: none
    Cond work                   # files are to be written, states to be sent, or it ends
    bint due
    bint ending
    uint64_t last               # number of a group

cdef struct Inlet:
    # A subject that a group hears; it does not move while it is subscribed to.
    Group* group
    void* sub                   # NULL: it does not hear it
    uint32_t n
    char subject[INLET_ROOM]

cdef struct Group:
    Groups* of
    ListNode node               # of the others
    uint64_t number
    uint64_t id                 # of this member
    RaftLog* log
    Raft* raft
    Inlet vote_requests, appends, proposals, removals
    Inlet votes, responses      # inboxes
    Inlet catch_up              # of the catch-up that runs, or ran last
    uint64_t catch_up_number
    Timer timer
    Task task                   # what is to be done for it at the end of the turn
    Bytes draft                 # a message in the making
    uint64_t commit
    uint64_t given              # up to here its owner has the entries, or the state
    Bytes state                 # a leader's, which its owner has to take before what is behind it
    uint64_t state_index        # 0: there is none
    uint64_t state_term
    bint told                   # its owner knows that there is something
    bint diverged               # it has committed what its leader has not
    bint stopped
    uint32_t n_name
    char name[GROUP_NAME_MAX]

# NULL: no memory
cdef Groups* groups_new(Env* env, Committer* committer, void* account) noexcept nogil
cdef void groups_free(Groups* all) noexcept nogil           # after its last group is closed, and its last round
# One round of a thread of its own, which waits for it WITHOUT the lock: votes, sets of members and snapshots are written, and a
# state is sent to a member that lacks it. Then reactors may have work. False: it is the last one.
cdef bint groups_round(Groups* all) noexcept nogil
cdef void groups_end(Groups* all) noexcept nogil            # with the lock held: the next round is the last one

# Opens a group from its directory, which is there (WITHOUT the lock), and hears what others say from then on. peers: the set of
# a group that has none yet. NULL, with a text in err.
cdef Group* group_open(Groups* all, Span directory, Span name, const RaftConfig* cfg, Span peers, RaftFound* found, char* err,
                       size_t err_cap) noexcept nogil
cdef void group_stop(Group* g) noexcept nogil               # with the lock held; then group_close WITHOUT it
cdef void group_close(Group* g) noexcept nogil
# Something was asked of its Raft: the actions that this led to are carried out at the end of the turn.
cdef void group_due(Group* g) noexcept nogil
