"""Raft groups of a server: their messages over routes, their time and their disk."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from .bytes cimport Bytes, Cond, Env, List, ListNode, Span, Task, Timer, inbound_fn
from .raft cimport EntryType, Raft, RaftConfig
from .raftlog cimport RaftFiles, RaftFound, RaftLog
from .store cimport Committer
from .stream cimport EnvBox


cdef enum:
    GROUP_NAME_MAX = 64
    INLET_ROOM = 96             # bytes of a subject: `$NRG.AE.` and the group's name

cdef struct Group
cdef struct StateWanted

cdef struct Groups:
    # What the groups of a server share. All under the engine lock, except `files`.
    Env* env
    void* account               # the account of their subjects, the system account; its owner keeps it
    RaftFiles* files
    List all                    # of Group
    List states                 # of StateWanted: snapshots to read and send
    StateWanted* sending        # its snapshot is being read; NULL: none
    Cond work                   # there are files to write or snapshots to send, or it ends
    bint due
    bint ending
    uint64_t last               # number of the last opened group
    uint64_t serving_bytes      # under way to members that lack messages of streams
    uint64_t serving_most       # the most such bytes
    uint32_t serving            # how many members are being sent messages

cdef struct Inlet:
    # A subscription of a group; its address stays while it is subscribed.
    Group* group
    void* sub                   # NULL: not subscribed
    uint32_t n
    char subject[INLET_ROOM]

cdef struct Group:
    Groups* of
    ListNode node               # in Groups.all
    uint64_t number
    uint64_t id                 # this member's
    RaftLog* log
    Raft* raft
    Inlet vote_requests, appends
    Inlet proposals, removals   # a leader's: other servers see by them that there is one
    Inlet votes, responses      # inboxes
    Inlet rounds                # inboxes below `responses`, by the numbers of rounds; subscribed when a round is asked first
    Inlet catch_up              # the inbox of the present or last catch-up
    uint64_t catch_up_number
    Timer timer
    int64_t look                # mono: the next look for other members, while there is no leader
    int64_t look_pause
    Task task                   # runs at the end of the turn
    Bytes draft                 # a message being written
    uint64_t commit
    uint64_t given              # the owner has all entries, or a state, up to this index
    Bytes state                 # a leader's state that the owner has to take next
    uint64_t state_index        # 0: no state
    uint64_t state_term
    void (*owner_due)(void* ctx) noexcept nogil     # NULL: the control plane is the owner
    void* owner_ctx
    bint news                   # the owner has something to take or to look at
    bint told                   # the control plane was told of that
    bint diverged               # this log has committed entries that the leader's has not
    bint stopped
    uint32_t n_name
    char name[GROUP_NAME_MAX]

# NULL: no memory
cdef Groups* groups_new(Env* env, Committer* committer, void* account) noexcept nogil
cdef void groups_free(Groups* all) noexcept nogil           # after the last group is closed and the last round is over
# One round of a thread of its own, which waits WITHOUT the lock until it writes votes, members and snapshots, or sends a snapshot
# to a member. Afterwards reactors may have work. False: it was the last round.
cdef bint groups_round(Groups* all) noexcept nogil
cdef void groups_end(Groups* all) noexcept nogil            # with the lock held: the next round is the last one

# Opens a group in its existing directory (WITHOUT the lock), and subscribes to its subjects. peers: the members of a new group.
# memory: the log is kept in memory only. synced: what the directory has is on disk. NULL: failed, err says why.
cdef Group* group_open(Groups* all, Span directory, Span name, const RaftConfig* cfg, Span peers, bint memory, bint synced,
                       RaftFound* found, char* err, size_t err_cap) noexcept nogil
cdef void group_stop(Group* g) noexcept nogil               # with the lock held; then group_close WITHOUT it
cdef void group_close(Group* g) noexcept nogil
# Marks the group as due: the actions of its Raft are carried out at the end of the turn.
cdef void group_due(Group* g) noexcept nogil
# Messages of the owner's own protocol between its members. group_hear: NULL: no memory
cdef void group_say(Group* g, Span to, Span reply, Span body) noexcept nogil
cdef void* group_hear(Group* g, Span subject, inbound_fn fn, void* target) noexcept nogil
cdef void group_deaf(Group* g, void** sub) noexcept nogil               # a NULL subscription is allowed


# ---- a group that another layer owns (own.pxi): all with the lock held ------------------------------------------------------

cdef struct GroupRecord:
    # A committed record of the log: one index, any number of entries (entry_next).
    uint64_t index
    uint64_t term
    Span entries                # a view, valid until the lock is released
    bint damaged                # group_next found no readable record, and there is nothing behind it either

# Call it first. due: called at the end of a turn when records were committed or a state installed; when the role, term or leader
# changed; when the group has diverged (g.diverged) or failed (raftlog_error); and at the end of the present turn. It may call all
# of these functions, and stop the group.
cdef void group_own(Group* g, void (*due)(void* ctx) noexcept nogil, void* ctx) noexcept nogil
# The next committed record, the same until group_given. False: there is none, or a state has to be taken first.
cdef bint group_next(Group* g, GroupRecord* out) noexcept nogil
cdef void group_given(Group* g) noexcept nogil
# Notes that all up to this index is applied, and need not be given again after a restart.
cdef void group_applied(Group* g, uint64_t index) noexcept nogil
# Takes a leader's state, which replaces all that was not given yet: returns its index, and its bytes in place of those in
# `state`. Call group_applied of the index next. 0: there is none.
cdef uint64_t group_state_take(Group* g, uint64_t* term, Bytes* state) noexcept nogil
# Proposes an entry in the present term. RAFT_OK | RAFT_NOT_LEADER | RAFT_BUSY: no quorum answers | RAFT_TOO_LARGE |
# RAFT_NO_MEMORY
cdef int group_propose(Group* g, EntryType type, Span data) noexcept nogil
# As raft_ask: whether this member still leads. The owner is called when that is confirmed.
cdef uint64_t group_ask(Group* g) noexcept nogil
# As raftlog_snapshot, with the members that the group has agreed on.
cdef int group_snapshot(Group* g, uint64_t term, uint64_t index, Span state) noexcept nogil


# ---- the faces --------------------------------------------------------------------------------------------------------------

cdef uint64_t peer_number(bytes id) except? 0           # from the eight characters of an id
cdef object found_of(RaftFound* found)                  # a Found; frees the file's bytes

cdef class RaftGroups:
    cdef EnvBox box
    cdef object account         # keeps the account's handle alive
    cdef Groups* all

cdef class GroupFace:
    """Requests to a group, whoever owns it; the owners' classes derive from this one."""
    cdef RaftGroups of
    cdef Group* g               # NULL: closed. Only used with the lock held.
    cdef readonly uint64_t number       # the group's number in the inbox
    cdef readonly object found
    cdef bint enter(self) noexcept nogil        # takes the lock; leave releases it. False: closed
    cdef void leave(self) noexcept nogil
    cdef int check(self, bint open) except -1   # ValueError if enter returned False
    cdef int asked(self, int rc) noexcept nogil  # with the lock held: after a call of Raft, which returned rc
