# The structures of the store: index nodes, blocks, the store itself, the committer, what a round takes.
#
# Who may touch what: everything is the engine lock's, but for what stands in a group of its own. `queue` is guarded by the
# committer's own short mutex `q`, `writing` belongs to the commit thread alone, `keeping` to the maintenance thread, and
# what is in `shared` is atomic. A block's `used` is the one word that both sides change: the engine reserves a record with a
# compare-and-swap after it has written it, the commit thread reserves its marker the same way.

cdef enum:
    REC_MIN = 30
    REC_MAX = 33554432
    HEAD = 22                   # rec_len, seq, ts, subj_len
    MARKER = 104                # a group's closing record: 30 + 74 bytes of payload
    MARKER_SHORT = 80           # as it was once
    SLACK = 4096                # room behind the last record of a block for its markers
    NODES = 1024                # index nodes a chunk
    TEXT_CHUNK = 65536
    TEXT_CLASSES = 93
    BORN = 4096                 # how many new subjects a cached filter may miss before it is built anew
    SLOTS_SMALL = 4096          # up to here a block's arrays are malloc'ed and grow; beyond, they are reserved whole
    MEMORY_BLOCK = 524288
    FEW_ASKS = 4                # questions that a filter without a set of ids tries to answer from a few subjects
    FEW_SLOTS = 256             # ... which are those of so many messages
    TEXT_SLOTS = 4096           # ... when memory ran out
    FEW_IDS = 4096              # subjects that are asked one by one for their last message
    HOLDING_MAX = 8             # empty blocks that one block's ghosts may keep

cdef uint64_t TOMB = <uint64_t>1 << 62
cdef uint64_t ERASED = <uint64_t>1 << 63
cdef uint32_t FAR = 0xffffffffU
cdef uint32_t HAS_HEADER = 0x80000000


cdef struct Node:
    # A subject (count > 0), or where subjects part. Addressed by u32, never by a kept pointer.
    uint64_t total              # messages at and below it
    uint64_t first              # of its own messages, valid when count > 0
    uint64_t last
    uint32_t hash
    uint32_t text               # the whole, from the subject's first token on, in units of 4 bytes
    uint32_t parent
    uint32_t next               # siblings; free nodes are chained by it
    uint32_t prev
    uint32_t kid
    uint32_t count
    uint16_t len
    uint16_t stem               # where the first token below its parent ends

cdef struct Index:
    Node** nodes
    uint32_t n_chunks
    uint32_t cap_chunks
    uint32_t cap_first          # nodes allocated in the first chunk
    uint32_t n_nodes
    uint32_t free_node
    uint32_t n_subjects
    uint8_t** texts
    uint32_t n_texts
    uint32_t cap_texts
    uint32_t cap_text0          # bytes allocated in the first chunk
    uint32_t text_used          # in the last chunk
    uint32_t text_free[TEXT_CLASSES]
    uint64_t* slots             # hash << 32 | node; open addressing
    uint32_t bits
    uint32_t n_slots
    uint64_t* old               # a smaller table that is moved over in small steps
    uint32_t old_bits
    uint32_t old_pos
    uint64_t seed
    uint64_t births
    uint32_t* born              # ring of the last BORN new ids; NULL until a filter is cached
    Sweep* sweeps               # looks at every subject that are under way
    uint32_t memo
    uint8_t* map                # chunks inside it are not malloc'ed (a loaded checkpoint)
    size_t map_size

cdef struct Leftover:
    # An index that is not used any more, and given back in pieces.
    Leftover* next
    Index x

cdef struct Lead:
    # A subject and its first message from where the heap stands, or an earlier one.
    uint64_t seq
    uint32_t id

cdef struct Leads:
    Lead* a                     # a heap by sequence of those that have a message, then the others
    uint32_t n
    uint32_t n_heap
    uint32_t cap
    uint64_t from_              # what is below counts as passed
    uint64_t upto               # what came after this is not taken into account yet
    bint making                 # numbers of the set from `made` on are not looked at yet
    uint64_t made
    uint64_t goal               # up to there newer messages of those without one are being looked for; 0: they are not
    uint32_t newer              # where that stands
    uint64_t looked             # slots, in vain or nearly, since the heap was last of use
    bint on

cdef struct Hold:
    # Tombstones for messages of another block.
    uint64_t num
    uint64_t count

cdef enum BlockState:
    # Where a block is in its life. Changes under q and the engine lock (BLOCK_GONE: under q): either is enough to read it.
    BLOCK_OPEN = 0              # the tail, or about to be
    BLOCK_SEALED = 1            # not appended to any more
    BLOCK_LEFT_OPEN = 2         # left the store by a purge, while it was the tail; its files go after the next group
    BLOCK_LEFT = 3              # the same of a sealed one
    BLOCK_GONE = 4              # its files are dealt with: the holder of the last pin frees it

cdef enum BlockFile:
    # How far its file is.
    FILE_NONE = 0               # not made yet
    FILE_NEVER = 1              # sealed without a byte: it gets none
    FILE_OPEN = 2               # its directory entry is there
    FILE_CLOSED = 3             # a start found it: written whole, cut to size
    FILE_ENDED = 4              # closed in this life, so by a marker
    FILE_PROVEN = 5             # its last marker is on disk: it says that no group of it was torn

cdef enum BlockWork:
    # What another thread does with its mapping: one thing at a time.
    WORK_NONE = 0
    WORK_FETCH = 1              # brings pages into memory
    WORK_COMPACT = 2            # copies what is alive

cdef enum BlockBytes:
    # Where a block's bytes are read.
    BYTES_MAPPED = 0            # in a mapping of its file, if anywhere
    BYTES_REGION = 1            # in anonymous memory that is appended to
    BYTES_DECODED = 2           # in memory that its compressed file was decoded into

cdef struct Chunk:
    # Of a compressed file.
    uint64_t start              # its first byte in the file
    size_t size                 # bytes there
    uint64_t at                 # its first byte in the block
    uint64_t n                  # bytes there
    bint there                  # they were decoded

cdef struct Chunks:
    # A compressed file that is decoded as far as it is read.
    int fd                      # whatever replaces the file meanwhile
    uint32_t n
    uint32_t left               # of them are still to be decoded
    Chunk list[1]

cdef enum BlockCompaction:
    COMPACT_SPARSE = 0          # when little of it is alive
    COMPACT_WANTED = 1          # because of its ghosts, however sparse
    COMPACT_NEVER = 2           # that failed

cdef enum BlockEmpty:
    EMPTY_NO = 0                # it has live messages, or is the tail
    EMPTY_LISTED = 1            # to be looked at by reap()
    EMPTY_STAYS = 2             # looked at: its tombstones are still needed

cdef struct Block

cdef struct BlockQueue:
    # Under q.
    uint32_t pins
    BlockState state
    Block* next_out             # blocks with bytes to write, oldest first
    Block* next_fetch
    ListNode side               # among the sealed blocks that wait for their sidecar, or those that are about to be freed
    bint rewrite                # its file, which is compressed, has a message that was erased
    ListNode zero               # among the blocks that get zeros ahead: [zero_from, zero_to)
    bint zeroing                # it is one of them, or they are being written
    uint64_t zero_from
    uint64_t zero_to

cdef struct BlockWriting:
    # The commit thread's alone; before it knows the block, and after it has ended, of who opens or closes the store.
    int fd
    uint64_t jot                # the last use of a segment of the journal that has bytes of it
    uint64_t written
    uint64_t durable
    uint64_t erasures           # lazy mode: how many wait
    uint64_t erased             # atomic: how many were made in its file
    uint64_t safe               # lazy mode: what the last sync had of it; `durable` is only written
    bint direct                 # fd writes past the page cache
    uint8_t* page               # the file's page at page_at, UINT64_MAX: of none
    uint64_t page_at
    uint64_t zeroed             # file size ahead of written that holds zeros
    BlockFile file
    bint open_group             # the last group on disk is not closed by an empty marker
    bint opens                  # it goes on in the next block, and counts only as a whole

cdef struct Block:
    Store* store
    uint64_t num
    uint64_t key[4]             # of its records' checksums: the stream's name and its number
    uint64_t base               # sequence of slot 0
    uint64_t last               # the highest sequence it accounts for; base - 1 when none
    int64_t first_ts
    int64_t last_ts
    uint32_t n                  # slots
    uint32_t cap
    uint32_t head               # no live slot below it
    uint32_t live
    uint64_t live_bytes
    uint32_t* rel               # NULL: slot i holds base + i; else base + rel[i]
    uint32_t cap_rel
    uint32_t* off               # offset + 1; 0: removed
    uint32_t* sid
    uint32_t* nxt               # distance to the next message of its subject; 0: none
    uint16_t* len               # bytes it counts; 65535: ask the record
    uint32_t* nxt_own           # nxt alone, where the others stand in a sidecar
    void* arrays                # what the four stand in
    size_t arrays_size          # 0: malloc'ed, else mapped
    uint8_t* data
    uint64_t data_cap           # of the region or mapping
    BlockBytes bytes
    Chunks* chunks              # of BYTES_DECODED: some may not be there yet; NULL: all are
    uint64_t used               # atomic: bytes of records and markers
    bint suspect                # a recovery's: its file is not what its sidecar knows
    bint damaged                # a bad range inside: kept as it is, never appended to or rewritten
    int vouched                 # its groups' digests fit: 1, not all of them: 2, not yet looked at: 0
    bint sided                  # has a sidecar
    bint cut                    # begins with a cut record: each start reads it, so it gets no sidecar and stays as it is
    uint32_t tombs              # tombstones in it
    uint32_t ghosts             # messages that left, but whose bytes may still stand in the file
    Hold* holds                 # the tombstones for ghosts elsewhere, by block, ascending
    uint32_t n_holds
    uint32_t cap_holds
    uint64_t needed             # bytes of them that had to stay when last looked at
    uint64_t floor              # sealed in this life: the stream's first sequence by then
    uint32_t holding            # empty blocks that cannot leave because of its ghosts
    BlockCompaction compaction
    uint64_t framing            # bytes that were left besides messages and tombstones when it was compacted
    BlockEmpty empty
    Block* next_empty
    ListNode lru                # among the mapped sealed blocks, most recent first
    BlockWork work
    uint64_t warm               # pieces that were in memory at warm_at, a bit each: cold.pxi
    int64_t warm_at
    uint64_t asked              # pieces to be fetched
    uint64_t lean               # bytes at the region's start that are the file's pages
    BlockQueue queue
    BlockWriting writing

cdef struct LostList

cdef struct Opening

cdef enum OpKind:
    OP_DROP = 1                 # unlink block
    OP_PURGE = 2                # replace the msgs directory; block: chain of the old ones
    OP_ERASE = 3                # overwrite one record
    OP_SWAP = 4                 # rename N.blk.tmp over N.blk
    OP_LOG = 5                  # a log becomes what it has in the positions [off, size), and `bytes`
    OP_CUT = 6                  # unlink the blocks that a truncation replaced
    OP_APPEND = 7               # `bytes` behind what a log has; n: it follows the blocks
    OP_FENCE = 8                # what stands behind it waits until everything before is on disk
    OP_BATCH = 9                # at `off` of the block is room for the marker in front of a batch
    OP_COMPRESS = 10            # as OP_SWAP, of the same bytes, unless some were erased since there were `after` erasures

cdef struct Op:
    Op* next
    OpKind kind
    Block* block
    Block** blocks
    uint32_t n
    uint64_t off
    uint64_t size
    Log* log
    Bytes bytes
    uint64_t* answer            # (q) 1 carried out, 2 not
    uint64_t seq
    uint64_t first              # of a fence or batch: as in Part. Of a fence seq, size: its sequence, ticket; off: the last block
    uint64_t after              # of an erasure that waits: the sync that a marker on disk has to speak of

cdef enum TrimPhase:
    TRIM_NONE = 0               # the limits hold
    TRIM_SUBJECTS = 1           # subject by subject
    TRIM_HEAD = 2               # the oldest messages

cdef struct StoreTrim:
    # New limits that are being brought about.
    TrimPhase phase
    Limits wanted               # what the limits become
    uint32_t at                 # the node that is looked at next
    uint32_t end

cdef struct StoreHold:
    # Changes that are not shown to the commit thread yet.
    uint32_t depth              # how many store_hold wait for their store_let
    bint late                   # something changed meanwhile
    bint unhurried              # such changes wait on, for others
    bint listed                 # in its committer's list of stores that a turn has changed
    Store* next

cdef struct StoreLeft:
    # What is given back in pieces.
    Task task
    Block* blocks               # by next_empty
    Leftover* indexes

cdef struct StoreShared:
    # Atomic: changed under the engine lock, read by the commit thread at any time.
    uint64_t ticket             # counts changes
    uint64_t shown_seq          # last_seq as the commit thread may see it
    uint64_t floor              # first_seq, likewise
    uint64_t dirty              # in the committer's list of stores with something to write. Changed under q

cdef enum ReserveFate:
    # What a damaged sequence.jsr still says.
    RESERVE_KNOWN = 0           # all that counts
    RESERVE_LOST = 1            # not how far sequences went
    RESERVE_FLOOR_LOST = 2      # nor below which no start may go on

cdef struct StoreRecovery:
    # The opener's, before other threads know the store. Later the flags are read under the engine lock: they are False.
    bint replaying
    bint unsettled              # from sidecars: nodes stay until its end
    bint dict_short             # a sidecar asks for more entries than there are
    uint64_t torn               # the last message before a torn group, with no whole one behind; 1: none, 0: no such group
    Block* void_blocks          # what a truncation replaced, by next_out
    Damage hole                 # bytes that say nothing, up to the next message
    #                             last, while it is open: what a marker behind them names as the last sequence; 0: none does
    uint64_t told               # the last sequence that a marker names which knew of no later block
    Bytes erasures              # Damage: places whose heads say that they were erased, and the rest of which is not there
    uint8_t* stale              # a whole checkpoint that does not fit the blocks
    uint64_t stale_size
    bint shorter                # it knows of bytes at the end of a block that are gone
    bint foreign                # the other server was here last
    bint own                    # this one was here before: there was a sequence.jsr
    ReserveFate reserve

cdef struct StoreQueue:
    # Under q: what is to be written, what was, and the lists of the committer that the store is in.
    ListNode dirty
    Op* ops
    Op* ops_tail
    Block* out                  # blocks with bytes to write, oldest first
    Block* out_tail
    Block* cuts                 # blocks of changes that failed: their files are to be cut to what is durable
    Log* logs
    uint32_t busy               # threads at work on it
    ListNode done               # among the finished stores
    uint64_t done_seq
    uint64_t done_ticket
    int done_errno
    uint64_t cut_seq            # a round with a ticket below cut_ticket says nothing of sequences above this one
    uint64_t cut_ticket
    uint64_t uncut_seq          # up to there messages are durable as long as that truncation is not
    uint32_t withheld           # how often nothing is to be taken: for a batch that is made or could not be, and while its
    #                             directory may go
    bint sync_asked             # lazy mode: the round that takes what is staged syncs
    ListNode unsynced           # lazy mode: among those written since the last sync, or for which something waits for one
    Store* next_syncing         # of those that a sync is of; meanwhile each may be unsynced again
    int64_t lost_since          # lazy mode: what was written from then on (wall clock) a sync may have lost; INT64_MAX: none
    int trash                   # TRASH_*
    ListNode trash_node         # while TRASH_WAITS
    int64_t active_at           # monotonic time of its last group
    ListNode active             # among the stores with something to do when idle
    List* list                  # the list that it is in: active or resting

cdef struct StoreKeeping:
    # The maintenance thread's alone; before it knows the store, and after it has ended, of the thread that opens or closes it.
    uint64_t dict               # name, entries and bytes of the subject dictionary
    uint64_t dict_total
    uint64_t dict_size
    uint64_t dict_limit         # bytes from which on the void entries are left out
    uint64_t synced             # lazy mode: all blocks up to this number are on disk; 0: not known
    uint64_t* known             # hashes of the texts the dictionary has for the ids
    uint32_t n_known

cdef struct StoreWriting:
    # The commit thread's alone; before it knows the store, and after it has ended, of the thread that opens or closes it.
    uint64_t reserved           # what sequence.jsr says
    uint64_t reserve_number
    uint64_t floor              # that a start went on from, at least
    bint unlinked               # a file was removed or replaced, and its directory not synced since
    uint64_t trashed            # how many files and directories were taken away to be removed
    Bytes stuck                 # numbers of blocks, u64 each, whose files are still to be unlinked
    bint caches_gone            # index.db and the checkpoint were removed
    bint caches_doubt           # some that are not there may come back by a power cut
    Extent extent               # what the last marker says
    uint64_t synced_first       # the first sequence that a marker names which was synced
    uint64_t kept_last          # the last sequence in the groups that were written whole
    uint64_t group              # atomic: the number of the last group; the maintenance thread writes it into sidecars
    bint whole                  # a torn group is dropped as a whole: each marker says so of the next one
    Op* later                   # lazy mode: what waits for the next sync, oldest first
    Op* later_last
    uint64_t syncs              # lazy mode: how many there were
    uint64_t marked             # the newest of which a marker speaks
    uint64_t vouched            # the newest of which a marker on disk speaks
    uint64_t jot                # the last use of a segment of the journal that has bytes of its files

cdef struct Store:
    # Outside the groups: under the engine lock; what is set when the store is opened may be read by all.
    #
    # The order is that of use. What each publish changes stands together, `shared` in the midst of it. `queue` and
    # `writing`, which other threads change, stand at the end, with what is hardly touched (timers, `recovery`, `keeping`)
    # before each: so no thread takes a cache line from another that does not use what is in it.
    Env* env
    Committer* com
    FileOps* files
    uint64_t id                 # tells stores apart in cached filters
    int storage
    Limits limits
    StoreTrim trim
    int retention
    bint compress               # blocks are compressed when they are sealed
    bint always                 # what is written is synced in the same round, with a sync_interval, too
    uint64_t block_size
    uint64_t key[4]             # of the caches and logs
    char* name
    char* dir                   # of the stream
    char* msgs_dir
    bint stopped
    int64_t io_errno
    Index x
    Block** blocks
    uint32_t b0                 # blocks[b0 : b0 + n_blocks] are in use
    uint32_t n_blocks
    uint32_t cap_blocks
    Block* tail                 # the one appended to, NULL when the next append opens a new one
    Block* memo_block           # found last: of a sequence, of the next message of a subject
    Block* memo_chain
    Block* empties              # without live messages, to be looked at by reap()
    Block* stays                # looked at: their tombstones are still needed
    uint64_t next_num
    uint64_t msgs
    uint64_t bytes
    uint64_t first_seq          # last_seq + 1 when empty
    uint64_t last_seq
    int64_t last_ts
    uint64_t first_ts_seq       # memo of state's first_ts
    int64_t first_ts
    StoreShared shared
    uint64_t shown_first        # first_seq as of the last ticket
    StoreHold hold
    uint64_t durable_seq
    uint64_t durable_ticket
    uint64_t damage             # bad ranges met
    LostList* lost              # NULL: nothing
    removed_fn on_removed
    durable_fn on_durable
    damaged_fn on_damaged
    void* ctx
    Timer age_timer
    Timer slim_timer            # file storage: until sparse blocks are compacted
    Task slim_task              # memory storage: compaction in slices
    StoreLeft left
    List waits                  # Waits: readers of blocks that are being fetched
    bint batch                  # one is being made
    bint announced              # what stands before the next batch says that it counts as a whole
    ListNode slim               # among the stores with blocks to compact
    uint8_t* map                # a loaded checkpoint: index and arrays stand in it
    size_t map_size
    StoreRecovery recovery
    StoreQueue queue
    StoreKeeping keeping
    StoreWriting writing

cdef struct LogQueue:
    # Under q.
    Bytes staged                # to be written
    bint follows                # it is written after the blocks of its group are synced
    bint dirty
    Log* next

cdef struct LogWriting:
    # The commit thread's alone; before it knows the log, and after it has ended, of the thread that opens or closes the store.
    int fd                      # -1: to be opened
    uint64_t jot                # as of a block
    uint64_t noted              # bytes for this round that the journal has, and the file not yet
    bint wrote                  # in this round, and not synced
    uint64_t base               # the position of the file's first byte
    uint64_t written
    uint64_t durable
    Bytes bytes                 # what was staged when the round took it
    bint follows                # as in LogQueue

cdef struct Log:
    Store* store
    char* path
    uint64_t begin              # positions of the first entry
    uint64_t end                # and of the next one
    LogQueue queue
    LogWriting writing

cdef struct CommitterShared:
    # Atomic.
    uint64_t full               # errno since the ballast was given up
    uint64_t doubt              # a sync failed: what the journal has may be missing in files that look whole
    uint64_t done_flag          # the list of finished stores is worth a look

cdef struct CommitterQueue:
    # Under q.
    bint sleeping               # the commit thread waits to be woken
    bint stopping
    bint running                # a thread that finds it False without q asks again under it (commit_inline)
    bint inline                 # a thread that is not the commit thread writes
    int64_t due                 # when there is work without being called
    int64_t follow_at           # when the maintenance thread looks after the journal; INT64_MAX: there is none
    List dirty                  # Stores with something to write
    List done                   # Stores that committer_poll tells
    List unsynced               # lazy mode: Stores
    bint sync_now               # lazy mode: somebody waits for the sync
    int sync_fd                 # lazy mode: open since there are stores, so that it hears of every error; -1: to be opened
    int64_t synced_wall         # lazy mode: the wall clock at the last sync that did not fail
    int failed                  # lazy mode: errno of a sync that failed and that nobody has been told of
    List active                 # Stores, most recently committed first
    List resting                # Stores: idle, groups closed
    List sides                  # Blocks
    const Store* placing        # whose sidecar is getting its name
    bint chore                  # mappings or blocks to look after
    List trash                  # Stores: those with TRASH_WAITS
    uint32_t trash_going        # how many are being emptied
    List zeros                  # Blocks
    Block* fetches              # chain by next_fetch
    Block* fetches_last
    void* pool[4]               # recycled regions of 8 MiB blocks
    uint32_t n_pool

cdef struct CommitterWriting:
    # The commit thread's alone, or of the thread that writes in its place (commit_inline).
    bint no_direct              # the file system has no writes past the page cache
    int spare                   # a descriptor for when there are none
    uint64_t full_left          # of the ballast's room, for groups with messages
    int64_t synced_at
    bint sync_failed            # stores are to be told
    uint64_t later_bytes        # lazy mode: of the files that wait for the next sync to go

cdef struct Committer:
    # Without a group: set before any thread runs, or under the engine lock. That and `full` stand apart from q by `ballast`.
    Env* env
    int64_t sync_interval
    int64_t slim_wait
    int wake_fd
    uint64_t pool_size
    List lru                    # Blocks; under the engine lock, as the next six
    uint32_t n_maps
    uint64_t decoded            # bytes of the blocks among them that were decoded
    List slim                   # Stores
    bint holding                # between committer_hold and committer_let
    Store* held                 # chain by hold.next: what changed meanwhile
    bint told_full
    CommitterShared shared
    char ballast[4096]          # a file that is given up when there is no room; empty: none
    Thread keeper
    bint keeper_runs            # set by the commit thread, looked at by all
    Thread fetcher
    bint fetcher_runs           # likewise
    Cond wake                   # work for the commit thread
    Cond idle                   # a store was let go
    Cond chores                 # work for the maintenance thread
    Cond fetch                  # work for the one that fetches
    Mutex q
    CommitterQueue queue
    CommitterWriting writing
    Journal journal

cdef struct Piece:
    # One block's part of a round.
    Block* b
    bint sealed
    uint64_t end                # of what is written
    bint due                    # there is something, and its marker has a place behind it
    bint open                   # it is of a group that counts as a whole, and goes on in the next block
    bint wrote
    bint synced                 # before the others of the round
    bint noted                  # all that is written is in the journal's next frame

cdef struct Part:
    # One store's part of a round.
    Store* s
    uint64_t seq
    uint64_t ticket
    uint64_t first              # no message below it is left: by changes that are in the pieces
    Op* ops
    uint32_t piece              # its pieces stand at [piece, piece + n)
    uint32_t n
    bint close                  # idle: close open groups
    bint alone                  # it is synced by itself, with a sync_interval, too: it has batches, or its store always is
    bint begun                  # the marker in front of the first is on disk
    bint sync_dir
    bint journal                # its files may go through the journal
    Log* first_log              # of the store when the round took it: later ones stand before it
    bint logs                   # some have something to write
    int err

cdef struct Round:
    Part* parts
    uint32_t n_parts
    uint32_t cap_parts
    Piece* pieces
    uint32_t n_pieces
    uint32_t cap_pieces
    uint8_t* scratch
    bint journal                # it goes through the journal
    bint wrote
    bint sync                   # lazy mode: however long ago the last one was
    bint synced                 # lazy mode: all that is written
    Store* unsynced             # lazy mode: the stores that the sync is of, by next_syncing
