# Files of compressed blocks, as nats-server writes and reads them: what is in them.
#
# "cmp" · algorithm u8, 1: S2 · length of the plain block, varint · an S2 stream of the plain block but for its last 8 bytes ·
# these. So the last 8 bytes of a file are the same in both forms, and sidecars and checkpoints, which know a block by its
# plain size and these bytes, fit both. Our own files end in a chunk that holds the last marker as it is.
#
# A chunk that cannot be decoded reads as zeros: damage, as in a plain block. So does what follows in the block where the
# chunk does not even say how long it is.
#
# Who can wait has the whole file decoded by a thread. Who reads under the engine lock has the chunks decoded that are read.

cdef enum:
    COMPRESSED_HEAD = 24        # bytes of a file that tell whether it is compressed
    COMPRESSED_WRONG = 2        # of the 14 which they are told by, so many may be damaged
    PLAIN_MAX = 80 << 20        # a block may hold one record beyond its size
    CHUNK_USUAL = 1 << 16       # plain bytes: smaller ones are hardly ever written
    CHUNKS_FROM = 2 << 20       # plain bytes of a block that is decoded chunk by chunk

cdef struct Opened:
    # The bytes of a block's file.
    uint8_t* p
    uint64_t size               # plain bytes, or more of a plain file
    bint decoded                # p is memory of ours, not a mapping
    Chunks* chunks              # as in Block
    bint packed                 # the file is compressed


cdef inline uint64_t page_up(uint64_t n) noexcept nogil:
    return (n + PAGE - 1) & ~<uint64_t>(PAGE - 1)


cdef uint64_t decoded_room(uint64_t size) noexcept nogil:
    return page_up(size + S2_SLACK)


cdef void chunks_free(FileOps* f, Chunks* chunks) noexcept nogil:
    if chunks != NULL:
        f.close(f.ctx, chunks.fd)
        free(chunks)


cdef void opened_free(FileOps* f, const Opened* o) noexcept nogil:
    chunks_free(f, o.chunks)
    if o.decoded and o.p != NULL:
        pages_free(o.p, decoded_room(o.size))
    elif o.p != NULL:
        f.unmap(f.ctx, o.p, o.size)


cdef uint32_t bytes_differ(const uint8_t* p, const uint8_t* q, uint32_t n) noexcept nogil:
    cdef uint32_t i, count = 0
    for i in range(n):
        count += p[i] != q[i]
    return count


cdef uint64_t compressed_at(const uint8_t* p, uint64_t n, uint64_t* plain) noexcept nogil:
    # Where the chunks of a compressed file begin, 0: it is a plain one. plain: the size of the plain block as it says, or 0.
    cdef uint64_t at = 5
    cdef Span s
    while at <= 14 and at + 10 <= n:
        if (bytes_differ(p, b"cmp\1", 4) + bytes_differ(p + at, b"\xff\x06\0\0S2sTwO", 10) <= COMPRESSED_WRONG):
            s = span(p + 4, <uint32_t>(at - 4))
            if not get_uv(&s, plain) or s.n or not 8 <= plain[0] <= PLAIN_MAX:
                plain[0] = 0
            return at + 10
        at += 1
    return 0


cdef uint64_t plain_of(const uint8_t* head, uint64_t n, uint64_t size) noexcept nogil:
    # The plain size of a block whose file has that beginning and size; 0: it is compressed and does not say.
    cdef uint64_t plain = 0
    return size if compressed_at(head, n, &plain) == 0 else plain


cdef uint64_t plain_size(FileOps* f, int fd, uint64_t size) noexcept nogil:
    # The same of an open file.
    cdef uint8_t head[COMPRESSED_HEAD]
    if size < COMPRESSED_HEAD or f.pread(f.ctx, fd, head, COMPRESSED_HEAD, 0) != COMPRESSED_HEAD:
        return size
    return plain_of(head, COMPRESSED_HEAD, size)


cdef bint is_compressed(FileOps* f, int fd) noexcept nogil:
    cdef uint8_t head[COMPRESSED_HEAD]
    cdef uint64_t plain
    return f.pread(f.ctx, fd, head, COMPRESSED_HEAD, 0) == COMPRESSED_HEAD and compressed_at(head, COMPRESSED_HEAD, &plain) != 0


cdef uint64_t claims(const uint8_t* p, uint64_t n, uint64_t* end) noexcept nogil:
    # How many plain bytes the chunks in these n bytes say that they hold; end: where what cannot be a chunk begins, or n.
    cdef uint64_t sum = 0
    cdef size_t size = 0
    cdef int64_t claim = 0
    end[0] = 0
    while end[0] < n:
        claim = s2_claim(p + end[0], n - end[0], &size)
        if claim < 0 or sum + <uint64_t>claim > PLAIN_MAX:
            break
        sum += <uint64_t>claim
        end[0] += size
    return sum


cdef void chunks_decode(const uint8_t* p, uint64_t n, uint64_t sum, uint64_t plain, Bytes* out) noexcept nogil:
    # Decodes chunks that say to hold `sum` bytes in all into out, which has room for all that these may be; plain: how many
    # they were, if not 0.
    cdef uint64_t at = 0, lost
    cdef size_t size = 0
    cdef int64_t claim
    cdef bint begun = True
    while at < n:
        claim = s2_claim(p + at, n - at, &size)
        if out.n + <uint64_t>claim + S2_SLACK > out.cap or s2_chunk(&begun, p + at, n - at, out) <= 0:
            lost = <uint64_t>claim
            if plain > sum - lost and plain - (sum - lost) <= S2_CHUNK_MAX:
                lost = plain - (sum - lost)     # the others are right, as far as one can tell
            lost = min(lost, out.cap - S2_SLACK - out.n)
            memset(out.data + out.n, 0, lost)
            out.n += lost
        at += size


cdef bint compressed_decode(const uint8_t* p, uint64_t n, uint64_t least, Opened* o) noexcept nogil:
    # Decodes the n bytes of a compressed file; False: no memory. What it has is followed by zeros up to `least` bytes.
    cdef uint64_t plain = 0, sum, end, cap, behind
    cdef uint64_t at = compressed_at(p, n, &plain)
    cdef Bytes out
    behind = n - 8 if n >= at + 8 else at
    plain = plain - 8 if plain else 0
    sum = claims(p + at, behind - at, &end)
    cap = decoded_room(max(max(plain, sum) + 8, least))
    memset(&out, 0, sizeof(out))
    out.data = <uint8_t*>pages_new(cap)
    if out.data == NULL:
        return False
    out.cap = cap
    chunks_decode(p + at, end, sum, plain if at + end == behind else 0, &out)
    if at + end < behind and out.n < plain:
        memset(out.data + out.n, 0, plain - out.n)
        out.n = plain
    if n >= at + 8:
        memcpy(out.data + out.n, p + n - 8, 8)
        out.n += 8
    memset(out.data + out.n, 0, min(cap - out.n, <uint64_t>S2_SLACK))
    o.size = max(out.n, least)
    if out.n < least:
        memset(out.data + out.n, 0, least - out.n)
    if decoded_room(o.size) < cap:
        pages_free(out.data + decoded_room(o.size), cap - decoded_room(o.size))
    o.p = out.data
    o.decoded = True
    o.chunks = NULL
    o.packed = True
    return True


cdef bint compressed_open(FileOps* f, int fd, uint64_t size, uint64_t least, Opened* o) noexcept nogil:
    # The same of a file; False also where it cannot be read.
    cdef uint8_t* p = <uint8_t*>pages_new(size)
    cdef bint ok = p != NULL and f.pread(f.ctx, fd, p, size, 0) == <int64_t>size and compressed_decode(p, size, least, o)
    if p != NULL:
        pages_free(p, size)
    return ok


# ---- chunk by chunk ------------------------------------------------------------------------------------------------
#
# Who reads a record under the engine lock and cannot wait decodes the chunk in which it stands, and no other.

cdef Chunks* chunks_read(FileOps* f, int fd, uint64_t size, uint64_t plain, uint64_t at) noexcept nogil:
    # The chunks of a file whose first one begins at `at`; NULL where they are few, or say to hold anything but `plain` bytes
    # without the last 8, or where there is no memory.
    cdef uint32_t most = <uint32_t>(plain // S2_CHUNK_MAX + plain // CHUNK_USUAL + 2)
    cdef uint8_t head[S2_HEAD]
    cdef Chunks* chunks
    cdef Chunk* k
    cdef uint64_t sum = 0
    cdef int64_t n
    if plain < CHUNKS_FROM or size < at + 8:
        return NULL
    chunks = <Chunks*>calloc(1, sizeof(Chunks) + most * sizeof(Chunk))
    if chunks == NULL:
        return NULL
    chunks.fd = fd
    while at < size - 8 and chunks.n < most:
        k = &chunks.list[chunks.n]
        k.start = at
        k.at = sum
        n = f.pread(f.ctx, fd, head, min(size - 8 - at, <uint64_t>S2_HEAD), <off_t>at)
        n = s2_said(head, <size_t>n, &k.size) if n > 0 else -1
        if n < 0:
            break
        k.n = <uint64_t>n
        sum += k.n
        at += k.size
        chunks.n += 1
    chunks.left = chunks.n
    if at != size - 8 or sum + 8 != plain:
        free(chunks)
        return NULL
    return chunks


cdef bint compressed_begin(FileOps* f, int fd, uint64_t size, uint64_t least, Opened* o) noexcept nogil:
    # As compressed_open, but decodes nothing yet, where the file is large and looks whole. Then fd is the opened one's.
    cdef uint8_t head[COMPRESSED_HEAD]
    cdef uint64_t plain = 0, at
    if f.pread(f.ctx, fd, head, COMPRESSED_HEAD, 0) != COMPRESSED_HEAD:
        return False
    at = compressed_at(head, COMPRESSED_HEAD, &plain)
    o.chunks = chunks_read(f, fd, size, plain, at) if at and plain >= least else NULL
    if o.chunks == NULL:
        return compressed_open(f, fd, size, least, o)
    o.p = <uint8_t*>pages_new(decoded_room(plain))
    if o.p == NULL or f.pread(f.ctx, fd, o.p + plain - 8, 8, <off_t>(size - 8)) != 8:
        if o.p != NULL:
            pages_free(o.p, decoded_room(plain))
        free(o.chunks)
        o.p = NULL
        o.chunks = NULL
        return False
    o.size = plain
    o.decoded = True
    return True


cdef bint chunk_fill(FileOps* f, const Chunks* chunks, Chunk* k, uint8_t* to) noexcept nogil:
    # Decodes a chunk; one that cannot be decoded is zeros. False: it cannot be read, or there is no memory.
    cdef uint8_t* p = <uint8_t*>pages_new(k.size)
    cdef bint begun = True
    cdef bint ok
    cdef Bytes out
    memset(&out, 0, sizeof(out))
    ok = p != NULL and f.pread(f.ctx, chunks.fd, p, k.size, <off_t>k.start) == <int64_t>k.size
    if ok and s2_chunk(&begun, p, k.size, &out) > 0 and out.n == k.n:
        memcpy(to, out.data, k.n)
    bytes_free(&out)
    if p != NULL:
        pages_free(p, k.size)
    k.there = ok
    return ok


cdef bint chunks_have(const Chunks* chunks, uint64_t at, uint64_t n) noexcept nogil:
    # Whether the n bytes of the block from `at` on were decoded.
    cdef uint32_t i
    for i in range(chunks.n if chunks.left else 0):
        if not chunks.list[i].there and chunks.list[i].at < at + n and at < chunks.list[i].at + chunks.list[i].n:
            return False
    return True


cdef bint chunks_fill(FileOps* f, Chunks* chunks, uint8_t* p, uint64_t at, uint64_t n) noexcept nogil:
    # Decodes what is needed for that; False as chunk_fill.
    cdef Chunk* k
    cdef uint32_t i
    for i in range(chunks.n if chunks.left else 0):
        k = &chunks.list[i]
        if not k.there and k.at < at + n and at < k.at + k.n:
            if not chunk_fill(f, chunks, k, p + k.at):
                return False
            chunks.left -= 1
    return True


cdef bint plain_open(FileOps* f, int fd, uint64_t size, Opened* o) noexcept nogil:
    # Of a plain file that is encrypted; what it lacks of that size reads as zeros. False: no memory, or it cannot be read.
    o.p = <uint8_t*>pages_new(decoded_room(size))
    o.size = size
    o.decoded = True
    if o.p != NULL and f.pread(f.ctx, fd, o.p, size, 0) >= 0:
        return True
    opened_free(f, o)
    memset(o, 0, sizeof(Opened))
    return False


cdef int compressed_make(const uint8_t* p, uint64_t n, Bytes* out) noexcept nogil:
    # Appends the file of a plain block that ends in a marker. 0; 1: that is not worth it; ST_NO_MEMORY
    cdef uint8_t length[10]
    cdef int rc = bytes_add(out, b"cmp\1", 4)
    rc |= bytes_add(out, length, put_uv(length, n))
    if rc < 0 or s2_pack(p, n - MARKER, out) < 0 or s2_store(p + n - MARKER, MARKER - 8, out) < 0:
        return ST_NO_MEMORY
    if bytes_add(out, p + n - 8, 8) < 0:
        return ST_NO_MEMORY
    return out.n > n - n // 16
