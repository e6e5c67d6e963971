"""Raft groups of a server: their messages over routes, their time and their disk."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .bytes cimport Bytes, Cond, Env, List, ListNode, Span, Task, Timer, inbound_fn
from .raft cimport EntryType, Raft, RaftConfig
from .raftlog cimport RaftFiles, RaftFound, RaftLog
from .store cimport Committer
from .stream cimport EnvBox


cdef enum:
    GROUP_NAME_MAX = 64
    INLET_ROOM = 96             # of a subject: `$NRG.AE.` and the group's name

cdef struct Group
cdef struct StateWanted

cdef struct Groups:
    # What the groups of a server share. Everything is used under the engine lock, but for `files`.
    Env* env
    void* account               # whose subjects they speak on: the system account, which is its owner's to hold
    RaftFiles* files
    List all                    # of Group
    List states                 # of StateWanted: snapshots that are to be read and sent
    StateWanted* sending        # whose snapshot is being read; NULL: none
    Cond work                   # files are to be written, states to be sent, or it ends
    bint due
    bint ending
    uint64_t last               # number of a group
    uint64_t serving_bytes      # on their way to members that lack messages of streams
    uint64_t serving_most       # of these
    uint32_t serving            # how many such members

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
    Inlet vote_requests, appends
    Inlet proposals, removals   # of a leader: by these others see that there is one
    Inlet votes, responses      # inboxes
    Inlet catch_up              # of the catch-up that runs, or ran last
    uint64_t catch_up_number
    Timer timer
    int64_t look                # mono: when it looks again who else is there, as long as it looks for a leader
    int64_t look_pause
    Task task                   # what is to be done for it at the end of the turn
    Bytes draft                 # a message in the making
    uint64_t commit
    uint64_t given              # up to here its owner has the entries, or the state
    Bytes state                 # a leader's, which its owner has to take before what is behind it
    uint64_t state_index        # 0: there is none
    uint64_t state_term
    void (*owner_due)(void* ctx) noexcept nogil     # NULL: the control plane is its owner
    void* owner_ctx
    bint news                   # there is something for its owner
    bint told                   # the control plane knows
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
# a group that has none yet. memory: its log is there alone. NULL, with a text in err.
cdef Group* group_open(Groups* all, Span directory, Span name, const RaftConfig* cfg, Span peers, bint memory, RaftFound* found,
                       char* err, size_t err_cap) noexcept nogil
cdef void group_stop(Group* g) noexcept nogil               # with the lock held; then group_close WITHOUT it
cdef void group_close(Group* g) noexcept nogil
# Something was asked of its Raft: the actions that this led to are carried out at the end of the turn.
cdef void group_due(Group* g) noexcept nogil
# What its owner says and hears by other words than Raft's, likewise of other servers alone. NULL: no memory
cdef void group_say(Group* g, Span to, Span reply, Span body) noexcept nogil
cdef void* group_hear(Group* g, Span subject, inbound_fn fn, void* target) noexcept nogil
cdef void group_deaf(Group* g, void** sub) noexcept nogil               # also of none


# ---- a group that another layer owns (own.pxi): all with the lock held ------------------------------------------------------

cdef struct GroupRecord:
    # A committed message of Raft: one index, with any number of entries (entry_next).
    uint64_t index
    uint64_t term
    Span entries                # a view, valid until the lock is let go
    bint damaged                # of no record: it cannot be read, and nothing behind it can be had

# Before anything else is done with the group. due: called at the end of a turn, when something is committed or installed, the
# role, term or leader changed, or the group has diverged (g.diverged) or failed (raftlog_error); first at the end of the present
# turn. It may call all of these, and stop the group.
cdef void group_own(Group* g, void (*due)(void* ctx) noexcept nogil, void* ctx) noexcept nogil
# The committed record that was not given yet. False: there is none, or a state is to be taken first. The same until group_given.
cdef bint group_next(Group* g, GroupRecord* out) noexcept nogil
cdef void group_given(Group* g) noexcept nogil
# All up to there is applied, and needs not to be given at a start.
cdef void group_applied(Group* g, uint64_t index) noexcept nogil
# A leader's state, which comes in place of all that was not given yet: its index, and its bytes in place of what state has; then
# group_applied of it. 0: there is none.
cdef uint64_t group_state_take(Group* g, uint64_t* term, Bytes* state) noexcept nogil
# An entry of the present term. RAFT_OK | RAFT_NOT_LEADER | RAFT_BUSY: no quorum answers | RAFT_TOO_LARGE | RAFT_NO_MEMORY
cdef int group_propose(Group* g, EntryType type, Span data) noexcept nogil
# As raftlog_snapshot, of the members that are agreed on.
cdef int group_snapshot(Group* g, uint64_t term, uint64_t index, Span state) noexcept nogil


# ---- the faces --------------------------------------------------------------------------------------------------------------

cdef uint64_t peer_number(bytes id) except? 0           # of the eight characters of an id
cdef object found_of(RaftFound* found)                  # a Found; frees what it has of the file

cdef class RaftGroups:
    cdef EnvBox box
    cdef object account         # its handle, which keeps it
    cdef Groups* all

cdef class GroupFace:
    """What is asked of a group, whoever owns it: the owners' faces subclass this."""
    cdef RaftGroups of
    cdef Group* g               # NULL: it is closed. Only with the lock held is it looked at and changed.
    cdef readonly uint64_t number       # by which the inbox names it
    cdef readonly object found
    cdef bint enter(self) noexcept nogil        # takes the lock, which leave lets go. False: it is closed.
    cdef void leave(self) noexcept nogil
    cdef int check(self, bint open) except -1   # what enter said, as ValueError
    cdef int asked(self, int rc) noexcept nogil  # with the lock held: something was asked of its Raft, which said rc
