"""The directories of Raft groups, as nats-server has them: the log, votes, members and snapshots."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from .bytes cimport Bytes, Env, Span
from .raft cimport Raft, RaftAction, RaftConfig
from .store cimport Committer


# ---- files as bytes (codec.pxi) ----------------------------------------------------------------------

cdef struct Snapshot:
    uint64_t term
    uint64_t index
    Span peers              # the set, as an entry PeerState
    Span state              # of what is applied

# The file of a snapshot; its checksum stands for the group, too. False: it is none, or damaged.
cdef bint snapshot_read(Span group, Span file, Snapshot* out) noexcept nogil
cdef int snapshot_write(Span group, Bytes* b, const Snapshot* s) noexcept nogil     # 0 | RAFT_NO_MEMORY | RAFT_TOO_LARGE
cdef bint vote_read(Span file, uint64_t* term, uint64_t* vote) noexcept nogil       # False: too short


# ---- the small files of all groups (files.pxi) ---------------------------------------------------------
# Votes, sets of members and snapshots of all groups are written together, by the thread that calls
# raft_files_write, as it waits for the disk.

cdef struct RaftFiles

# wake: called with the lock held when there is something to be written, again only after it was.
# The committer writes the logs; what they have is synced before it is told, with a sync_interval, too. NULL: no memory
cdef RaftFiles* raft_files_new(Env* env, Committer* committer, void (*wake)(void* ctx) noexcept nogil, void* ctx) noexcept nogil
# WITHOUT the lock: writes and syncs what is due, and tells the groups with the lock held. The number of files.
cdef int raft_files_write(RaftFiles* f) noexcept nogil
cdef void raft_files_free(RaftFiles* f) noexcept nogil                  # after its last group is closed


# ---- a group's directory -------------------------------------------------------------------------------

cdef struct RaftLog

cdef struct RaftFound:
    # What a directory had.
    bint fresh              # no set of members: the group is new here, and `peers` what it was given
    bint lost               # something that was promised is gone, now or before: the group starts as one that is lost
    uint64_t aside          # files that were put aside because they are damaged
    uint64_t records        # of the log, that follow the snapshot and each other
    uint64_t snapshot_index
    uint64_t snapshot_term
    Span state              # of the snapshot, to be applied first: a view into `file`
    Bytes file              # the caller's, to be freed when the state was taken

# Opens a directory, which is there, and a group from what it has (WITHOUT the lock, which it takes for short pieces).
# cfg.lost and cfg.fresh are set here.
# peers: the set, for a group that has none yet. synced: what the directory has is on disk. ready: called with the lock held when
# the group may have actions that nobody asked it for. NULL on failure, with a text in err.
cdef RaftLog* raftlog_open(RaftFiles* files, Span directory, Span group, const RaftConfig* cfg, Span peers,
                           bint synced, void (*ready)(void* ctx) noexcept nogil, void* ctx, RaftFound* found, char* err,
                           size_t err_cap) noexcept nogil
# The same for a group of something in memory, whose log is there, too: votes and members alone are kept in the directory. What
# else of an earlier start is there goes, and the group starts as one that lost something, unless it is new.
cdef RaftLog* raftlog_open_memory(RaftFiles* files, Span directory, Span group, const RaftConfig* cfg, Span peers,
                                  void (*ready)(void* ctx) noexcept nogil, void* ctx, RaftFound* found, char* err,
                                  size_t err_cap) noexcept nogil
cdef Raft* raftlog_raft(RaftLog* log) noexcept nogil
# Why the group was stopped (RAFT_STOPPED): an errno of its disk, or ENOMEM; 0: it was not, or not for that. Others go on. It is
# to be closed, and may be opened again some time later: it then has what it ever said that it has.
cdef int raftlog_error(const RaftLog* log) noexcept nogil
cdef uint64_t raftlog_bytes(RaftLog* log) noexcept nogil            # of the records that the log holds
cdef Span raftlog_peers(const RaftLog* log) noexcept nogil   # the set of members that is committed, as an entry PeerState
# With the lock held; then raftlog_close WITHOUT it, which waits for what is being written.
cdef void raftlog_stop(RaftLog* log) noexcept nogil
cdef void raftlog_close(RaftLog* log) noexcept nogil

# With the lock held: carries out an action of the group that is about its disk, and tells the group when that is there. False:
# it is none of these. The state of ACT_INSTALL is the caller's to apply, too.
cdef bint raftlog_act(RaftLog* log, const RaftAction* a) noexcept nogil
# A record of the log, which is a message; a view, valid until the lock is let go. False: it is not held, or damaged.
cdef bint raftlog_load(RaftLog* log, uint64_t index, Span* out) noexcept nogil
# What is applied up to that index is to be the snapshot; the log begins behind it when that is on disk. If the disk refuses it,
# all stays as it was, and it may be asked for again.
# 0 | RAFT_BUSY: another one is being written | RAFT_NO_MEMORY | RAFT_TOO_LARGE
cdef int raftlog_snapshot(RaftLog* log, const Snapshot* s) noexcept nogil
# The file of the snapshot that counts, to be sent (WITHOUT the lock: it is read from the disk). 0 or -errno
cdef int raftlog_snapshot_file(RaftLog* log, Bytes* out) noexcept nogil
