# The journal's format: segments of frames, each frame the writes of one commit round to files, or what is to be forgotten.
#
# A segment begins with a page that names its use and a key of random bytes, which is new for each use. Its frames, one behind
# the other, each from a page's start, have checksums under that key: so no frame of an earlier use is taken for a new one.

cdef enum:
    JOURNAL_HEAD = 64           # of a segment: magic, version, use, key, checksum
    FRAME_HEAD = 24             # magic u32, size u32, number u64, checksum u64
    ENTRY_HEAD = 16             # kind u8, 0 u8, size of the path u16, of the data u32, offset u64
    JOURNAL_VERSION = 1
    JOURNAL_PATH = 4096

cdef const char* JOURNAL_DIR = ".jsserver.journal"
cdef const char* WITNESS_DIR = ".snap-staging"          # which nats-server removes when it starts
cdef const char* WITNESS = ".jsserver.untouched"
cdef uint64_t JOURNAL_MAGIC = 0x31304c4e524a736aULL     # "jsJRNL01"
cdef uint32_t FRAME_MAGIC = 0x6d52466aU                 # "jFRm"

cdef enum EntryKind:
    ENTRY_WRITE = 1             # data at an offset of a file
    ENTRY_FORGET = 2            # what earlier entries say of that file is on disk, and may not be so any more
    ENTRY_FORGET_ALL = 3        # likewise of all files below that directory

cdef struct Entry:
    EntryKind kind
    uint64_t off
    Span path                   # below the directory that the journal is in, without a slash before it
    Span data


cdef void segment_head(uint8_t* p, uint64_t use, const uint64_t* key) noexcept nogil:
    cdef uint64_t zero[4]
    memset(zero, 0, sizeof(zero))
    st_put64(p, JOURNAL_MAGIC)
    st_put64(p + 8, JOURNAL_VERSION)
    st_put64(p + 16, use)
    memcpy(p + 24, key, 32)
    st_put64(p + 56, hh64(zero, p, 56))


cdef uint64_t segment_begins(const uint8_t* p, uint64_t n, uint64_t* use, uint64_t* key) noexcept nogil:
    # The version of the segment that begins here, with its use and its key; 0: none does.
    cdef uint64_t zero[4]
    memset(zero, 0, sizeof(zero))
    if n < JOURNAL_HEAD or st_get64(p) != JOURNAL_MAGIC or st_get64(p + 56) != hh64(zero, p, 56):
        return 0
    use[0] = st_get64(p + 16)
    memcpy(key, p + 24, 32)
    return st_get64(p + 8)


cdef uint64_t frame_hash(const uint8_t* p, uint32_t size, const uint64_t* key) noexcept nogil:
    cdef HHState h
    hh_init(&h, key)
    hh_update(&h, p, 16)
    hh_update(&h, p + FRAME_HEAD, size - FRAME_HEAD)
    return hh_final(&h)


cdef void frame_head(uint8_t* p, uint32_t size, uint64_t number, const uint64_t* key) noexcept nogil:
    # Of a frame whose entries stand behind its head.
    st_put32(p, FRAME_MAGIC)
    st_put32(p + 4, size)
    st_put64(p + 8, number)
    st_put64(p + 16, frame_hash(p, size, key))


cdef bint frame_at(const uint8_t* p, uint64_t left, const uint64_t* key, uint32_t* size, uint64_t* number) noexcept nogil:
    # Whether a whole frame stands at p.
    if left < FRAME_HEAD or st_get32(p) != FRAME_MAGIC:
        return False
    size[0] = st_get32(p + 4)
    if size[0] < FRAME_HEAD or size[0] > left:
        return False
    number[0] = st_get64(p + 8)
    return st_get64(p + 16) == frame_hash(p, size[0], key)


cdef uint32_t entry_put(uint8_t* p, const Entry* e) noexcept nogil:
    # Bytes that it takes.
    p[0] = <uint8_t>e.kind
    p[1] = 0
    st_put16(p + 2, <uint16_t>e.path.n)
    st_put32(p + 4, e.data.n)
    st_put64(p + 8, e.off)
    memcpy(p + ENTRY_HEAD, e.path.p, e.path.n)
    if e.data.n:
        memcpy(p + ENTRY_HEAD + e.path.n, e.data.p, e.data.n)
    return ENTRY_HEAD + e.path.n + e.data.n


cdef bint path_stays_below(Span path) noexcept nogil:
    # Whether it names something below the directory, and nothing else.
    cdef uint32_t i, start = 0
    if path.n == 0 or path.n >= JOURNAL_PATH or memchr(path.p, 0, path.n) != NULL:
        return False
    for i in range(path.n + 1):
        if i == path.n or path.p[i] == c'/':
            if i == start or (path.p[start] == c'.' and (i == start + 1 or (i == start + 2 and path.p[start + 1] == c'.'))):
                return False
            start = i + 1
    return True


cdef bint entry_get(const uint8_t* p, uint64_t left, Entry* e, uint64_t* size) noexcept nogil:
    # Whether a whole entry stands at p; its size.
    cdef uint64_t n
    if left < ENTRY_HEAD or not ENTRY_WRITE <= p[0] <= ENTRY_FORGET_ALL:
        return False
    e.kind = <EntryKind>p[0]
    e.off = st_get64(p + 8)
    n = ENTRY_HEAD + <uint64_t>st_get16(p + 2)
    if n + st_get32(p + 4) > left or e.off > <uint64_t>1 << 62:
        return False
    e.path = span(p + ENTRY_HEAD, st_get16(p + 2))
    e.data = span(p + n, st_get32(p + 4))
    size[0] = n + e.data.n
    return path_stays_below(e.path)
