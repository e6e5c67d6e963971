# The structures of a start: the directory that is opened, and the block that is read.

cdef enum:
    GAP_MAX = 65536             # sequences that are listed for one damaged place
    SECTOR = 512                # what a disk writes whole
    HELD_LOST = 1               # why a record is held: it is one, its message cannot be served
    HELD_HOLE = 2               # in its place are bytes that say nothing
    HELD_GONE = 3               # a message that was removed: its erasure was torn
    HELD_TORN = 4               # a hole in a group that was never acked, as far as one can tell
    HELD_HEAD = 5               # a message of which only the head can be believed

cdef struct BlockBefore:
    # What the last block that was read leaves open.
    bint whole                  # its last marker says that what follows counts as a whole
    bint sealed                 # it says that another block follows
    bint doubt                  # what was written last may be gone

cdef struct Opening:
    Store* s
    const uint64_t* nums        # of the blocks that have a file, and n
    int64_t n
    int64_t at                  # the one that is read
    BlockBefore before
    uint64_t closed             # no group goes on from a block below this one into blocks that are not there
    bint ended                  # what stood behind the last one was of a batch that is gone
    char* err
    size_t err_cap
    uint64_t* sides             # sidecars without a block
    uint64_t n_sides
    bint foreign                # the other server was here last: no cache of ours says what should be there
    bint synced                 # what is found is on disk, and others, or the interval, sync what is changed here
    bint cut                    # something is cut off the block that is read
    bint batches                # from here on there is a batch, or may be a part of one
    bint lazy                   # the last marker that was read is of a store that acks before it syncs
    uint64_t vouched            # all blocks below this one are known to have been on disk
    uint64_t unvouched          # no later one says that of this block

cdef struct Held:
    uint64_t at
    uint64_t size
    int why

cdef struct Removal:
    uint64_t seq
    uint64_t at                 # of its tombstone

cdef struct Search:
    uint64_t work               # bytes that may still be hashed where a record seems to stand
    uint64_t doubtful           # likewise where nothing follows it
    uint64_t unlikely           # likewise where it would reach beyond the next one, or its sequence is far from the others
    uint64_t tries              # likewise in search of changed bits
    uint64_t lengths            # values of lengths that may still be tried
    uint64_t inside             # bytes of damaged records in which others may still be looked for
    uint64_t sure_from          # from here on the next record that is beyond doubt
    uint64_t sure               # is this one
    uint64_t seq                # of some good record
    bint begun                  # there was a damaged place: what follows is known by survey
    Removal* removals           # by sequence
    uint32_t n_removals
    uint32_t cap_removals
    uint64_t durable            # markers say that what is below was on disk before something else was written
    uint64_t lazy_at            # the last marker of a store that acks before it syncs
    uint64_t marked_at          # the last marker
    bint vouches                # one says that all blocks before had been on disk
    uint64_t started            # where the last group begins that has a marker
    bint spoiled                # the last marker was changed: its group had arrived
    uint64_t erased_to          # up to here torn erasures follow one another

cdef enum ScanFate:
    # What becomes of the bytes behind c.end.
    FATE_KEPT = 0               # zeros, or nothing
    FATE_CUT = 1                # of a group that was never finished, so never acked: put aside
    FATE_BLIND = 2              # damaged to the end, and may have held anything: they stay
    FATE_UNDONE = 3             # of a batch that is not whole: put aside, with all later blocks
    FATE_UNSYNCED = 4           # not synced, here and in later blocks: likewise

cdef struct LastMarker:
    # What the last marker of a block said.
    bint seen                   # there is one of ours
    bint sealed                 # another block follows, if nothing stands behind it
    bint proven                 # all before it was on disk, if nothing stands behind it
    bint shut                   # nothing of the block stood behind it
    bint whole                  # what follows counts as a whole
    uint64_t unit               # where that begins
    uint64_t end                # of the marker
    uint64_t group              # its number

cdef struct Scan:
    Store* s
    Block* b
    uint8_t* p                  # pages of our own: a bit may be changed to see what comes of it
    uint64_t size
    uint64_t at
    Held* held
    uint32_t n_held
    uint32_t cap_held
    Search search
    bint is_last
    uint64_t good               # records and markers that were found whole, or mended
    uint64_t end                # of what is good
    ScanFate fate
    bint unsure                 # the last group has a hole. If a power cut left it so, what a tombstone or marker
    #                             of it takes away may have given way to a message that is not there: nothing goes
    LastMarker mark
    bint aside                  # bytes were put aside that are not synced
    Opening* o
