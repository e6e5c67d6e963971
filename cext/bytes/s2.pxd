# Included by bytes.pxd: compressed bytes, S2, whose readers also take Snappy.

cdef enum:
    S2_CHUNK_MAX = 4 << 20      # plain bytes of one chunk
    S2_HEAD = 16                # bytes of a chunk that tell its sizes
    S2_SLACK = 16               # that copies may write behind a block's end
    S2_CHUNK_ROOM = S2_CHUNK_MAX + S2_CHUNK_MAX // 6 + 64      # bytes of a chunk at most

cdef enum S2Level:
    # How hard an encoder tries.
    S2_UNCOMPRESSED = 1
    S2_FAST
    S2_BETTER
    S2_BEST

cdef struct S2Room:
    # What an encoder works in; all zeros at first.
    uint32_t* seen
    uint16_t* before        # of S2_BETTER and S2_BEST

cdef enum S2Error:
    S2_NO_MEMORY = -1
    S2_CORRUPT = -2             # a block's tags do not make sense
    S2_CHECKSUM = -3
    S2_CHUNK = -4               # a chunk of an unknown kind, or of an impossible size
    S2_NO_START = -5            # the stream does not start with its identifier
    S2_CUT = -6                 # the stream ends inside a chunk

# Appends all that a whole S2 or Snappy stream holds, up to `most` bytes and a chunk. 0 | S2Error, as an exception by s2_raise.
cdef int s2_whole(const uint8_t* p, size_t n, size_t most, Bytes* out) noexcept nogil
# Appends what the chunk at p holds. Its size; 0: n bytes are not all of it; or an S2Error. begun: the identifier was there.
cdef int64_t s2_chunk(bint* begun, const uint8_t* p, size_t n, Bytes* out) noexcept nogil
# How many plain bytes the chunk at p says that it holds, which nothing has checked; -1: there is none. size: its own bytes.
cdef int64_t s2_claim(const uint8_t* p, size_t n, size_t* size) noexcept nogil
# The same, of which the first n bytes are there: S2_HEAD of them, or all.
cdef int64_t s2_said(const uint8_t* p, size_t n, size_t* size) noexcept nogil
# Appends an S2 stream that holds these bytes; a chunk that holds them, at most 1 MiB, as they are. 0 | S2_NO_MEMORY
cdef int s2_pack(const uint8_t* p, size_t n, Bytes* out) noexcept nogil
# Appends a stream's beginning, and chunks, for who writes a stream piece by piece. 0 | S2_NO_MEMORY
cdef int s2_begin(Bytes* out) noexcept nogil
cdef int s2_append(const uint8_t* p, size_t n, int level, S2Room* room, Bytes* out) noexcept nogil
cdef void s2_room_free(S2Room* room) noexcept nogil
cdef int s2_store(const uint8_t* p, size_t n, Bytes* out) noexcept nogil
# A block alone: appends what it holds, at most `most` bytes; and appends one that holds these, less than 4 GiB of them, of which
# something may be there without memory.
cdef int s2_block(const uint8_t* p, size_t n, size_t most, Bytes* out) noexcept nogil
cdef int s2_pack_block(const uint8_t* p, size_t n, Bytes* out) noexcept nogil
cdef const char* s2_why(int64_t rc) noexcept nogil      # an S2Error in words
cdef int s2_raise(int64_t rc) except -1
