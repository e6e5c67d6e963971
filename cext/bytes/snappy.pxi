# Snappy: bytes in compressed chunks (https://github.com/google/snappy/blob/main/format_description.txt and
# framing_format.txt). s2.pxi reads it.

cdef extern from "bytes/crc32c.h" nogil:
    void crc_prepare()
    int crc_fast_supported()
    uint32_t crc32c(int fast, const uint8_t* p, size_t n)

crc_prepare()
cdef int crc_fast = crc_fast_supported()

cdef enum:
    SNAPPY_CHUNK = 1 << 16      # plain bytes of a chunk at most, so that every distance in it fits 16 bits
    SNAPPY_HASH_BITS = 13
    SNAPPY_HEAD = 8             # kind, length and checksum before a chunk's bytes
    SNAPPY_ROOM = 32 + SNAPPY_CHUNK + SNAPPY_CHUNK // 6     # that a compressed chunk takes at most

cdef uint8_t[10] SNAPPY_START = [0xff, 6, 0, 0, 115, 78, 97, 80, 112, 89]      # "sNaPpY"


cdef inline uint8_t* snappy_literal(uint8_t* d, const uint8_t* p, uint32_t n) noexcept nogil:
    # At most 1 << 24 bytes.
    cdef uint32_t m = n - 1
    if n == 0:
        return d
    if m < 60:
        d[0] = <uint8_t>(m << 2)
        d += 1
    elif m < 256:
        d[0] = 60 << 2
        d[1] = <uint8_t>m
        d += 2
    elif m < 65536:
        d[0] = 61 << 2
        d[1] = <uint8_t>(m & 0xff)
        d[2] = <uint8_t>(m >> 8)
        d += 3
    else:
        d[0] = 62 << 2
        d[1] = <uint8_t>(m & 0xff)
        d[2] = <uint8_t>(m >> 8 & 0xff)
        d[3] = <uint8_t>(m >> 16)
        d += 4
    memcpy(d, p, n)
    return d + n


cdef inline uint8_t* snappy_copy(uint8_t* d, uint32_t back, uint32_t n) noexcept nogil:
    cdef uint32_t some
    while n:
        some = min(n, <uint32_t>64)
        d[0] = <uint8_t>(((some - 1) << 2) | 2)
        d[1] = <uint8_t>(back & 0xff)
        d[2] = <uint8_t>(back >> 8)
        d += 3
        n -= some
    return d


cdef size_t snappy_block(const uint8_t* p, uint32_t n, uint8_t* out) noexcept nogil:
    # The bytes of a block of at most SNAPPY_CHUNK bytes, written to SNAPPY_ROOM bytes at `out`; how many they are.
    cdef uint16_t seen[1 << SNAPPY_HASH_BITS]
    cdef uint8_t* d = out
    cdef uint32_t at = 1, begun = 0, back, end, hashed, left = n
    memset(seen, 0, sizeof(seen))
    while left >= 0x80:
        d[0] = <uint8_t>(left | 0x80)
        d += 1
        left >>= 7
    d[0] = <uint8_t>left
    d += 1
    while at + 4 <= n:
        hashed = <uint32_t>((load32(p + at) * 0x1e35a7bdULL) & 0xffffffffULL) >> (32 - SNAPPY_HASH_BITS)
        back = seen[hashed]
        seen[hashed] = <uint16_t>at
        if back >= at or load32(p + back) != load32(p + at):
            at += 1 + ((at - begun) >> 5)       # faster through what repeats nothing
            continue
        end = at + 4
        while end < n and p[end] == p[back + (end - at)]:
            end += 1
        d = snappy_literal(d, p + begun, at - begun)
        d = snappy_copy(d, at - back, end - at)
        at = begun = end
    d = snappy_literal(d, p + begun, n - begun)
    return <size_t>(d - out)


@cython.overflowcheck(False)
cdef uint32_t snappy_checksum(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t crc = crc32c(crc_fast, p, n)
    return <uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8ULL)


cdef void chunk_head(uint8_t* d, uint8_t kind, const uint8_t* plain, size_t n, size_t made) noexcept nogil:
    # Writes what stands before the `made` bytes of a chunk that holds n plain ones; kind 1: these as they are.
    cdef uint32_t crc = snappy_checksum(plain, n)
    d[0] = kind
    d[1] = <uint8_t>((made + 4) & 0xff)
    d[2] = <uint8_t>((made + 4) >> 8 & 0xff)
    d[3] = <uint8_t>((made + 4) >> 16)
    memcpy(d + 4, &crc, 4)


cdef size_t snappy_room(size_t n) noexcept nogil:
    # What snappy_stream writes at most.
    return sizeof(SNAPPY_START) + (n // SNAPPY_CHUNK + 1) * (SNAPPY_HEAD + SNAPPY_ROOM)


cdef size_t snappy_stream(const uint8_t* p, size_t n, uint8_t* out) noexcept nogil:
    # The stream of `n` bytes; how many bytes it has.
    cdef uint8_t* d = out
    cdef uint32_t some
    cdef size_t made
    memcpy(d, SNAPPY_START, sizeof(SNAPPY_START))
    d += sizeof(SNAPPY_START)
    while n:
        some = <uint32_t>min(n, <size_t>SNAPPY_CHUNK)
        made = snappy_block(p, some, d + SNAPPY_HEAD)
        if made >= some:
            memcpy(d + SNAPPY_HEAD, p, some)
            made = some
        chunk_head(d, made == some, p, some, made)
        d += SNAPPY_HEAD + made
        p += some
        n -= some
    return <size_t>(d - out)
