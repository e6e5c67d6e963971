# A group's directory while it is open, and what of it is to be written.

cdef enum:
    PATH_ROOM = 4200
    GROUP_BLOCK = 4 << 20       # bytes of a log's blocks, as nats-server's
    META_BLOCK = 1 << 20
    SYNC_EACH = 4               # more files than this are synced by one syncfs
    HELD_MAX = 64 << 20         # bytes of records that wait for a snapshot
    PIECE_BYTES = 256 << 10     # of records that are read at a start before others have the lock again
    RECORD_WORTH = 512          # bytes that a record counts there beside its own

cdef enum:
    # Kinds of small files.
    FILE_VOTE
    FILE_PEERS
    FILE_SNAPSHOT
    FILE_LOST                   # the mark of a member that may have lost something
    FILE_WHOLE                  # that mark goes
    FILE_KINDS

cdef struct Due:
    # A file that is to be, or is being, written; `data` is all of it.
    bint on
    uint64_t term
    uint64_t index              # of a snapshot; of a vote: for whom
    Bytes data
    int fd
    int error                   # of the attempt that is running: 0 or -errno

cdef struct Mark:
    # A change of the log: when that ticket is on disk, so much is.
    uint64_t ticket
    uint64_t generation
    uint64_t index

cdef struct Held:
    # Before the bytes of a record that waits until a snapshot is on disk.
    uint64_t index
    uint64_t generation
    uint32_t n
    bint cut                    # the log ends with index; no bytes

cdef struct RaftLog:
    RaftFiles* files
    ListNode node               # of those of which something is due
    RaftLog* next               # of those of which something is being written
    Raft* raft
    Store* store
    bint memory                 # the log is in memory
    Task told                   # what is stored there is told at the end of the turn
    void (*ready)(void* ctx) noexcept nogil
    void* ctx
    Due due[FILE_KINDS]
    Due writing[FILE_KINDS]
    bint installing             # a leader's snapshot is not on disk yet: what follows it is in `held`
    uint64_t install_generation
    uint64_t install_index
    Bytes peers                 # the set that is committed
    bint peers_filed            # peers.idx has it, or is to be written with it
    Bytes held
    Bytes marks
    int failed                  # why the group was stopped: an errno; 0: it was not
    bint stopped
    uint64_t snapshot_term      # of the file that counts
    uint64_t snapshot_index
    uint32_t n_group
    char group[256]
    char dir[PATH_ROOM - 200]
    char path[PATH_ROOM]        # of the file that is being opened

cdef struct RaftFiles:
    Env* env
    Committer* committer
    uint64_t open               # logs
    List due                    # of RaftLog
    bint woken
    bint busy                   # a round is being written
    Cond written
    void (*wake)(void* ctx) noexcept nogil
    void* ctx
