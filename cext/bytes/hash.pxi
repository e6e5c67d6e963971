# HighwayHash-64 (Alakuijala, Cox, Wassenberg 2016: arXiv 1612.06257) and the hash of tables in memory.

cdef extern from "bytes/words.h" nogil:
    uint64_t load64(const uint8_t* p)
    uint32_t load32(const uint8_t* p)
    uint64_t mul_fold(uint64_t a, uint64_t b)


# ---- HighwayHash-64 --------------------------------------------------------------------------------

cdef extern from "bytes/highway.h" nogil:
    # The state's words are its v0, v1, mul0 and mul1, which lie side by side.
    int highway_simd_supported()
    void highway_packets(uint64_t* state, const uint8_t* p, size_t n)
    uint64_t highway_finish(const uint64_t* state, const uint8_t* padded, uint32_t n)

cdef bint highway_simd = highway_simd_supported()


@cython.overflowcheck(False)
cdef inline uint64_t halves_swapped(uint64_t x) noexcept nogil:
    return (x >> 32) | (x << 32)


cdef void hh_init(HHState* s, const uint64_t* key) noexcept nogil:
    s.mul0[0] = 0xdbe6d5d5fe4cce2fULL
    s.mul0[1] = 0xa4093822299f31d0ULL
    s.mul0[2] = 0x13198a2e03707344ULL
    s.mul0[3] = 0x243f6a8885a308d3ULL
    s.mul1[0] = 0x3bd39e10cb0ef593ULL
    s.mul1[1] = 0xc0acf169b5f18a8cULL
    s.mul1[2] = 0xbe5466cf34e90c6cULL
    s.mul1[3] = 0x452821e638d01377ULL
    cdef int i
    for i in range(4):
        s.v0[i] = s.mul0[i] ^ key[i]
        s.v1[i] = s.mul1[i] ^ halves_swapped(key[i])
    s.n_rest = 0


@cython.overflowcheck(False)
cdef inline void hh_zipper(const uint64_t* v, uint64_t* to) noexcept nogil:
    # Adds the bytes of one 128-bit half of `v`, interleaved, to the same half of `to`.
    cdef uint64_t a = v[0], b = v[1]
    to[0] += ((((a & 0xff000000ULL) | (b & 0xff00000000ULL)) >> 24)
              | (((a & 0xff0000000000ULL) | (b & 0xff000000000000ULL)) >> 16)
              | (a & 0xff0000ULL) | ((a & 0xff00ULL) << 32)
              | ((b & 0xff00000000000000ULL) >> 8) | (a << 56))
    to[1] += ((((b & 0xff000000ULL) | (a & 0xff00000000ULL)) >> 24)
              | (b & 0xff0000ULL) | ((b & 0xff0000000000ULL) >> 16)
              | ((b & 0xff00ULL) << 24) | ((a & 0xff000000000000ULL) >> 8)
              | ((b & 0xffULL) << 48) | (a & 0xff00000000000000ULL))


@cython.overflowcheck(False)
cdef inline void hh_lanes(HHState* s, const uint64_t* lanes) noexcept nogil:
    cdef int i
    for i in range(4):
        s.v1[i] += s.mul0[i] + lanes[i]
        s.mul0[i] ^= (s.v1[i] & 0xffffffffULL) * (s.v0[i] >> 32)
        s.v0[i] += s.mul1[i]
        s.mul1[i] ^= (s.v0[i] & 0xffffffffULL) * (s.v1[i] >> 32)
    hh_zipper(&s.v1[0], &s.v0[0])
    hh_zipper(&s.v1[2], &s.v0[2])
    hh_zipper(&s.v0[0], &s.v1[0])
    hh_zipper(&s.v0[2], &s.v1[2])


cdef void hh_packets(HHState* s, const uint8_t* p, size_t n) noexcept nogil:
    # n packets of 32 bytes.
    cdef uint64_t lanes[4]
    if highway_simd:
        highway_packets(s.v0, p, n)
        return
    while n:
        memcpy(lanes, p, 32)
        hh_lanes(s, lanes)
        p += 32
        n -= 1


@cython.overflowcheck(False)
cdef inline uint32_t rotl32(uint32_t x, uint32_t by) noexcept nogil:
    return (x << by) | (x >> ((32 - by) & 31))


cdef inline void hh_pad(uint8_t* packet, const uint8_t* p, uint32_t n) noexcept nogil:
    # The last 1..31 bytes as a packet.
    cdef uint32_t whole = n & ~<uint32_t>3, odd = n & 3
    memset(packet, 0, 32)
    memcpy(packet, p, whole)
    if n & 16:
        memcpy(packet + 28, p + n - 4, 4)
    elif odd:
        packet[16] = p[whole]
        packet[17] = p[whole + (odd >> 1)]
        packet[18] = p[n - 1]


@cython.overflowcheck(False)
cdef uint64_t hh_finish(HHState* s, const uint8_t* rest, uint32_t n) noexcept nogil:
    cdef uint8_t packet[32]
    cdef uint64_t lanes[4]
    cdef uint64_t n64 = n
    cdef int i, j
    if n:
        hh_pad(packet, rest, n)
    if highway_simd:
        return highway_finish(s.v0, packet, n)
    if n:
        for i in range(4):
            s.v0[i] += (n64 << 32) + n64
            s.v1[i] = (<uint64_t>rotl32(<uint32_t>(s.v1[i] >> 32), n) << 32) | rotl32(<uint32_t>s.v1[i], n)
        memcpy(lanes, packet, 32)
        hh_lanes(s, lanes)
    for i in range(4):
        for j in range(4):
            lanes[j] = halves_swapped(s.v0[j ^ 2])
        hh_lanes(s, lanes)
    return s.v0[0] + s.v1[0] + s.mul0[0] + s.mul1[0]


cdef void hh_update(HHState* s, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t take
    if s.n_rest:
        take = 32 - s.n_rest
        if n < take:
            take = n
        if take:
            memcpy(s.rest + s.n_rest, p, take)
        s.n_rest += <uint32_t>take
        if s.n_rest < 32:
            return
        hh_packets(s, s.rest, 1)
        s.n_rest = 0
        p += take
        n -= take
    if n >= 32:
        hh_packets(s, p, n >> 5)
        p += n & ~<size_t>31
        n &= 31
    if n:
        memcpy(s.rest, p, n)
        s.n_rest = <uint32_t>n


cdef uint64_t hh_final(HHState* s) noexcept nogil:
    return hh_finish(s, s.rest, s.n_rest)


cdef uint64_t hh64(const uint64_t* key, const uint8_t* p, size_t n) noexcept nogil:
    cdef HHState s
    hh_init(&s, key)
    hh_packets(&s, p, n >> 5)
    return hh_finish(&s, p + (n & ~<size_t>31), <uint32_t>(n & 31))


# ---- tables in memory --------------------------------------------------------------------------------
# A folded-multiply hash (wyhash's construction). Its words are drawn at random too, not only its seed:
# an input word equal to a known multiplier would make the product zero and so cancel the rest.

cdef uint64_t table_words[4]


def _seed_tables() -> None:
    cdef const uint8_t[::1] raw = os.urandom(32)
    cdef int i
    for i in range(4):
        table_words[i] = load64(&raw[8 * i]) | 1


_seed_tables()


@cython.overflowcheck(False)
cdef uint64_t table_hash(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t h = table_words[0], a, b
    cdef size_t left = n
    while left > 16:
        h = mul_fold(load64(p) ^ table_words[1], load64(p + 8) ^ h)
        p += 16
        left -= 16
    if left >= 8:
        a = load64(p)
        b = load64(p + left - 8)
    elif left >= 4:
        a = load32(p)
        b = load32(p + left - 4)
    elif left:
        a = (<uint64_t>p[0] << 16) | (<uint64_t>p[left >> 1] << 8) | p[left - 1]
        b = 0
    else:
        a = 0
        b = 0
    h = mul_fold(a ^ table_words[1], b ^ h)
    return mul_fold(h ^ table_words[2], <uint64_t>n ^ table_words[3])


# ---- random numbers ----------------------------------------------------------------------------------

@cython.overflowcheck(False)
cdef uint64_t split_mix(uint64_t* state) noexcept nogil:
    # SplitMix64 (Steele, Lea, Flood 2014).
    state[0] += 0x9e3779b97f4a7c15ULL
    cdef uint64_t z = state[0]
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL
    return z ^ (z >> 31)


cdef uint64_t env_random(Env* e) noexcept nogil:
    return split_mix(&e.random)


cdef const uint8_t* take_secrets(Env* e, uint32_t n) noexcept nogil:
    # n bytes, at most as many as are kept; they hold until the next call.
    cdef Secrets* s = &e.secrets
    invariant(env_held(e), "secrets are taken under the engine lock")
    if s.n < n:
        e.system.random(e.system.ctx, s.raw, sizeof(s.raw))
        s.n = sizeof(s.raw)
    s.n -= n
    return s.raw + s.n


cdef uint64_t env_secret(Env* e) noexcept nogil:
    return load64(take_secrets(e, 8))


cdef void env_token(Env* e, uint8_t* p, uint32_t n) noexcept nogil:
    cdef uint32_t i = 0
    cdef uint8_t drawn
    while i < n:
        drawn = take_secrets(e, 1)[0]
        if drawn < 248:         # four times 62: each digit is as likely as any other
            p[i] = base62(drawn % 62)
            i += 1
