# The structures of the journal of all stores of a server.

cdef enum JournalState:
    JOURNAL_OFF = 0             # there is none
    JOURNAL_IDLE = 1            # there are no segments
    JOURNAL_OPEN = 2
    JOURNAL_BROKEN = 3          # it takes nothing more, and goes when all that it holds is in the files

cdef struct Segment:
    int fd                      # -1: there is no file
    bint direct                 # fd writes past the page cache
    bint ready                  # its head is on disk
    uint64_t use                # which one of all uses of segments this is
    uint64_t key[4]             # of the checksums of this use
    uint64_t at                 # where the next frame goes
    uint64_t size               # of the file
    uint64_t frames
    Bytes paths                 # of the files that it has bytes of, a NUL behind each

cdef struct Journal:
    # Under its own lock.
    Mutex lock
    JournalState state
    char root[4096]             # the store directory: its files are below that
    uint32_t root_n
    char dir[4128]
    uint64_t size               # bytes that a segment may have
    uint32_t above              # a round of more files than this goes through it
    Segment segments[2]
    uint32_t active             # which of them takes the next frame
    uint64_t use                # the last one that was begun
    uint64_t followed           # up to there all is in the files and on disk
    uint8_t* frame              # the next one, FRAME_MAX and what is written behind; NULL: not needed yet
    uint8_t* page               # behind that
    uint64_t n                  # bytes of the next one
    int64_t last_at             # when the last frame was written
    int64_t again_at            # after an error it is not begun before
