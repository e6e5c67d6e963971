# S2: bytes in compressed chunks. s2.pxi has the format, and reads it.
#
# Beyond Snappy's tags an encoder of S2 repeats the distance of the copy before, and its chunks may be larger.

cdef extern from "bytes/crc32c.h" nogil:
    size_t match_length(const uint8_t* a, const uint8_t* b, const uint8_t* end)

cdef enum:
    S2_PACK_CHUNK = 1 << 20     # plain bytes of a chunk, as nats-server has it
    S2_HASH_BITS = 14
    S2_HASH_LEAST = 8           # bits: a short block does not pay for clearing a large table
    S2_TAIL = 16                # bytes at a chunk's end that are only looked at as part of a copy

cdef uint8_t[10] S2_START = [0xff, 6, 0, 0, 83, 50, 115, 84, 119, 79]      # "S2sTwO"


@cython.overflowcheck(False)
cdef inline uint32_t s2_hash(uint64_t six, int bits) noexcept nogil:
    # Of the first six of eight bytes.
    return <uint32_t>(((six << 16) * 0xcf1bbcdcbf9bULL) >> (64 - bits))


cdef inline uint8_t* s2_literal(uint8_t* d, const uint8_t* p, uint32_t n) noexcept nogil:
    # Behind p stand at least S2_TAIL bytes.
    if n == 0 or n > S2_TAIL:
        return snappy_literal(d, p, n)
    d[0] = <uint8_t>((n - 1) << 2)
    memcpy(d + 1, p, S2_TAIL)
    return d + 1 + n


cdef inline uint8_t* s2_repeat(uint8_t* d, size_t n) noexcept nogil:
    # Copies n >= 4 more bytes from where the last copy came from.
    if n <= 8:
        d[0] = <uint8_t>((n - 4) << 2 | 1)
        d[1] = 0
        return d + 2
    d[1] = 0
    if n < 264:
        d[0] = 5 << 2 | 1
        d[2] = <uint8_t>(n - 8)
        return d + 3
    if n < 65796:
        n -= 260
        d[0] = 6 << 2 | 1
        d[2] = <uint8_t>(n & 0xff)
        d[3] = <uint8_t>(n >> 8)
        return d + 4
    n -= 65540
    d[0] = 7 << 2 | 1
    d[2] = <uint8_t>(n & 0xff)
    d[3] = <uint8_t>(n >> 8 & 0xff)
    d[4] = <uint8_t>(n >> 16)
    return d + 5


cdef inline uint8_t* s2_copy(uint8_t* d, size_t back, size_t n) noexcept nogil:
    # Copies n >= 4 bytes from that far back; what one tag cannot hold is repeated.
    cdef size_t some = n
    if back < 2048 and (n <= 11 or n > 64):
        some = n if n <= 11 else 8
        d[0] = <uint8_t>(back >> 8 << 5 | (some - 4) << 2 | 1)
        d[1] = <uint8_t>(back & 0xff)
        d += 2
    elif back < 65536:
        some = n if n <= 64 else 60
        d[0] = <uint8_t>((some - 1) << 2 | 2)
        d[1] = <uint8_t>(back & 0xff)
        d[2] = <uint8_t>(back >> 8)
        d += 3
    else:
        some = n if n <= 64 else 60
        d[0] = <uint8_t>((some - 1) << 2 | 3)
        d[1] = <uint8_t>(back & 0xff)
        d[2] = <uint8_t>(back >> 8 & 0xff)
        d[3] = <uint8_t>(back >> 16 & 0xff)
        d[4] = <uint8_t>(back >> 24)
        d += 5
    return s2_repeat(d, n - some) if n > some else d


cdef inline int s2_hash_bits(uint32_t n) noexcept nogil:
    # Of the table for a block of n bytes.
    cdef int bits = S2_HASH_LEAST
    while bits < S2_HASH_BITS and <uint32_t>1 << bits < n:
        bits += 1
    return bits


cdef size_t s2_tags_encode(const uint8_t* p, uint32_t n, uint32_t* seen, uint8_t* out) noexcept nogil:
    # The tags of n bytes, at most S2_PACK_CHUNK; with their length they take at most s2_block_room(n) bytes at `out`. seen:
    # 1 << S2_HASH_BITS words for its use. How many bytes were written.
    cdef uint8_t* d = out
    cdef const uint8_t* end = p + n
    cdef uint32_t at = 1, begun = 0, last = 0, back, size, hashed
    cdef uint64_t word
    cdef int bits = s2_hash_bits(n)
    memset(seen, 0, sizeof(uint32_t) << bits)
    while n > S2_TAIL and at < n - S2_TAIL:
        word = load64(p + at)
        if last and load32(p + at - last) == <uint32_t>(word & 0xffffffffU):
            size = 4 + <uint32_t>match_length(p + at + 4, p + at + 4 - last, end)
            d = s2_literal(d, p + begun, at - begun)
            d = s2_repeat(d, size)
        else:
            hashed = s2_hash(word, bits)
            back = seen[hashed]
            seen[hashed] = at
            if load32(p + back) != <uint32_t>(word & 0xffffffffU):
                at += 1 + ((at - begun) >> 6)       # faster through what repeats nothing
                continue
            size = 4 + <uint32_t>match_length(p + at + 4, p + back + 4, end)
            while at > begun and back and p[at - 1] == p[back - 1]:
                at -= 1
                back -= 1
                size += 1
            last = at - back
            d = s2_literal(d, p + begun, at - begun)
            d = s2_copy(d, last, size)
        at += size
        begun = at
        if at < n - S2_TAIL:
            seen[s2_hash(load64(p + at - 2), bits)] = at - 2
    d = snappy_literal(d, p + begun, n - begun)
    return <size_t>(d - out)


# ---- with a search for the longest copies

cdef enum:
    S2_SEARCH_CHUNK = 1 << 16   # plain bytes of a chunk, so that a place in it has 16 bits
    S2_BETTER_DEPTH = 8         # places that are looked at for each copy
    S2_BEST_DEPTH = 128
    S2_LONG = 64                # bytes of a copy that is long enough


cdef struct Search:
    const uint8_t* p
    const uint8_t* end
    S2Room* room
    int bits                    # of a hash
    int depth
    uint32_t met                # places before this one can be found


@cython.overflowcheck(False)
cdef inline uint32_t short_hash(uint32_t four, int bits) noexcept nogil:
    return <uint32_t>(four * <uint32_t>2654435761U) >> (32 - bits)


cdef inline void search_meet(Search* s, uint32_t until) noexcept nogil:
    # Has all places before `until` found: each knows the one before it of the same hash.
    cdef uint32_t hashed
    while s.met < until:
        hashed = short_hash(load32(s.p + s.met), s.bits)
        s.room.before[s.met] = <uint16_t>s.room.seen[hashed]
        s.room.seen[hashed] = s.met
        s.met += 1


cdef uint32_t search_longest(Search* s, uint32_t at, uint32_t* back) noexcept nogil:
    # The longest copy of what stands at `at`, behind which S2_TAIL bytes stand at least: its size, 0 where there is none, and
    # where it is.
    cdef uint32_t found = s.room.seen[short_hash(load32(s.p + at), s.bits)]
    cdef uint32_t best = 0, size
    cdef int left = s.depth
    while found < at and left and best < S2_LONG and s.p + at + best < s.end:
        if load32(s.p + found) == load32(s.p + at) and (best == 0 or s.p[found + best] == s.p[at + best]):
            size = 4 + <uint32_t>match_length(s.p + at + 4, s.p + found + 4, s.end)
            if size > best:
                best = size
                back[0] = found
        if s.room.before[found] >= found:
            break
        found = s.room.before[found]
        left -= 1
    return best


cdef size_t s2_tags_search(const uint8_t* p, uint32_t n, int depth, S2Room* room, uint8_t* out) noexcept nogil:
    # As s2_tags_encode, of S2_SEARCH_CHUNK bytes at most.
    cdef Search s
    cdef uint8_t* d = out
    cdef uint32_t at = 1, begun = 0, last = 0, back = 0, later = 0, size, more
    s.p = p
    s.end = p + n
    s.room = room
    s.depth = depth
    s.met = 0
    s.bits = s2_hash_bits(n)
    memset(room.seen, 0, sizeof(uint32_t) << s.bits)
    while n > S2_TAIL and at < n - S2_TAIL:
        search_meet(&s, at)
        size = search_longest(&s, at, &back)
        if size == 0:
            at += 1 + ((at - begun) >> 7)       # faster through what repeats nothing
            continue
        while size < S2_LONG and at + 1 < n - S2_TAIL:
            search_meet(&s, at + 1)
            more = search_longest(&s, at + 1, &later)
            if more <= size:
                break
            at += 1
            size = more
            back = later
        while at > begun and back and p[at - 1] == p[back - 1]:
            at -= 1
            back -= 1
            size += 1
        d = s2_literal(d, p + begun, at - begun)
        d = s2_repeat(d, size) if at - back == last else s2_copy(d, at - back, size)
        last = at - back
        at += size
        begun = at
    d = snappy_literal(d, p + begun, n - begun)
    return <size_t>(d - out)


cdef inline size_t s2_block_room(size_t n) noexcept nogil:
    return n + n // 6 + 32


cdef int s2_begin(Bytes* out) noexcept nogil:
    # Appends what a stream begins with. 0 | S2_NO_MEMORY
    return bytes_add(out, S2_START, sizeof(S2_START))


cdef int room_prepare(S2Room* room, int level) noexcept nogil:
    # 0 | S2_NO_MEMORY
    if room.seen == NULL:
        room.seen = <uint32_t*>malloc(sizeof(uint32_t) << S2_HASH_BITS)
    if room.before == NULL and level > S2_FAST:
        room.before = <uint16_t*>malloc(sizeof(uint16_t) * S2_SEARCH_CHUNK)
    return S2_NO_MEMORY if room.seen == NULL or (room.before == NULL and level > S2_FAST) else 0


cdef void s2_room_free(S2Room* room) noexcept nogil:
    free(room.seen)
    free(room.before)
    memset(room, 0, sizeof(S2Room))


cdef int s2_append(const uint8_t* p, size_t n, int level, S2Room* room, Bytes* out) noexcept nogil:
    # Appends chunks that hold these bytes. 0 | S2_NO_MEMORY, and some may be there.
    cdef size_t some, made, length, most = S2_PACK_CHUNK if level <= S2_FAST else S2_SEARCH_CHUNK
    cdef uint8_t* d
    if room_prepare(room, level) != 0:
        return S2_NO_MEMORY
    while n:
        some = min(n, most)
        if bytes_reserve(out, SNAPPY_HEAD + s2_block_room(some)) < 0:
            return S2_NO_MEMORY
        d = out.data + out.n + SNAPPY_HEAD
        length = put_uv(d, some)
        made = some
        if level == S2_FAST:
            made = length + s2_tags_encode(p, <uint32_t>some, room.seen, d + length)
        elif level > S2_FAST:
            made = length + s2_tags_search(p, <uint32_t>some, S2_BETTER_DEPTH if level == S2_BETTER else S2_BEST_DEPTH, room,
                                           d + length)
        if made >= some:
            memcpy(d, p, some)
            made = some
        chunk_head(d - SNAPPY_HEAD, made == some, p, some, made)
        out.n += SNAPPY_HEAD + made
        p += some
        n -= some
    return 0


cdef int s2_pack(const uint8_t* p, size_t n, Bytes* out) noexcept nogil:
    # Appends a stream of chunks that hold these bytes. 0 | S2_NO_MEMORY, then nothing is appended.
    cdef size_t before = out.n
    cdef S2Room room
    cdef int rc
    memset(&room, 0, sizeof(room))
    rc = s2_begin(out)
    if rc == 0:
        rc = s2_append(p, n, S2_FAST, &room, out)
    s2_room_free(&room)
    if rc < 0:
        out.n = before
    return rc


cdef int s2_pack_block(const uint8_t* p, size_t n, Bytes* out) noexcept nogil:
    # Appends one block that holds these bytes, less than 4 GiB of them: what is encoded a piece at a time refers to nothing
    # before its piece. 0 | S2_NO_MEMORY, then something of it may be there
    cdef size_t some
    cdef uint8_t head[10]
    cdef uint32_t[1 << S2_HASH_BITS] seen
    cdef int rc = bytes_add(out, head, put_uv(head, n))
    while n and rc == 0:
        some = min(n, <size_t>S2_PACK_CHUNK)
        rc = bytes_reserve(out, s2_block_room(some))
        if rc < 0:
            break
        out.n += s2_tags_encode(p, <uint32_t>some, seen, out.data + out.n)
        p += some
        n -= some
    return 0 if rc == 0 else S2_NO_MEMORY


cdef int s2_store(const uint8_t* p, size_t n, Bytes* out) noexcept nogil:
    # Appends a chunk that holds at most S2_PACK_CHUNK bytes as they are. 0 | S2_NO_MEMORY
    if bytes_reserve(out, SNAPPY_HEAD + n) < 0:
        return S2_NO_MEMORY
    chunk_head(out.data + out.n, 1, p, n, n)
    memcpy(out.data + out.n + SNAPPY_HEAD, p, n)
    out.n += SNAPPY_HEAD + n
    return 0


def s2_encode(data, int level=S2_FAST) -> bytes:
    """A stream that holds these bytes. level: 1 does not compress; fast, better and best are 2 to 4."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef const uint8_t* p = &view[0] if len(view) else NULL
    cdef size_t n = len(view)
    cdef S2Room room
    cdef Bytes out
    cdef int rc
    memset(&room, 0, sizeof(room))
    memset(&out, 0, sizeof(out))
    with nogil:
        rc = s2_begin(&out)
        if rc == 0:
            rc = s2_append(p, n, level, &room, &out)
        s2_room_free(&room)
    try:
        s2_raise(rc)
        return (<const char*>out.data)[:out.n]
    finally:
        bytes_free(&out)


def s2_encode_block(data) -> bytes:
    """One block that holds these bytes."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef const uint8_t* p = &view[0] if len(view) else NULL
    cdef size_t n = len(view)
    cdef Bytes out
    cdef int rc
    if n > UINT32_MAX:
        raise ValueError(f"{n} bytes are too many for a block")
    memset(&out, 0, sizeof(out))
    with nogil:
        rc = s2_pack_block(p, n, &out)
    try:
        s2_raise(rc)
        return (<const char*>out.data)[:out.n]
    finally:
        bytes_free(&out)
