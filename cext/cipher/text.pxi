# What stands in an encrypted file, at places of its plain text.

cdef int64_t text_put(Encrypted* e, int fd, const CryptKey* k, uint64_t head, const uint8_t* p, size_t n,
                      uint64_t at) noexcept nogil:
    # n | -errno
    cdef FileOps* f = e.inner
    cdef size_t done = 0, some
    cdef int64_t rc = 0
    cdef uint8_t* piece = <uint8_t*>malloc(min(n, <size_t>CRYPT_PIECE) + 1)
    invariant(k.kind != CIPHER_NONE, "nothing is written in clear")
    if piece == NULL:
        return -ENOMEM
    while done < n and rc >= 0:
        some = min(n - done, <size_t>CRYPT_PIECE)
        rc = cipher_file(<CipherKind>k.kind, k.key, k.nonce, at + done, p + done, some, piece)
        rc = f.pwrite(f.ctx, fd, piece, some, <off_t>(head + at + done)) if rc == 0 else -ENOMEM
        done += some
    free(piece)
    return <int64_t>n if rc >= 0 else rc


cdef bint ends_in_zeros(const uint8_t* p, uint64_t start, uint64_t end) noexcept nogil:
    # Whether the last bytes from `start` to `end` are so many zeros that no keystream made them.
    cdef uint64_t word = 1
    if end - start >= ZEROS_LEAST:
        memcpy(&word, p + end - ZEROS_LEAST, ZEROS_LEAST)
    return word == 0


cdef uint64_t hole_from(const uint8_t* p, uint64_t start, uint64_t n, uint64_t place, uint64_t* end) noexcept nogil:
    # Where from `start` on zeros begin that stand up to the end of a sector, or of all n bytes; end: where they do. n: nowhere.
    # place: in the file, of p.
    cdef uint64_t at = start, hole
    while at < n:
        at = min(n, at + SECTOR - (place + at) % SECTOR)
        if not ends_in_zeros(p, start, at):
            continue
        hole = at
        while hole > start and p[hole - 1] == 0:
            hole -= 1
        end[0] = at
        while at < n:
            at = min(n, at + SECTOR)
            if not all_zero(p + end[0], at - end[0]):
                break
            end[0] = at
        return hole
    end[0] = n
    return n


cdef int64_t text_get(Encrypted* e, int fd, const CryptKey* k, uint64_t head, uint8_t* p, size_t n, uint64_t at) noexcept nogil:
    # As many as there are | -errno
    #
    # Zeros up to the end of a sector or of the file are a hole that a power cut left, which reads as zeros. Where it begins
    # behind a sector's start, its first bytes may be a text's that a keystream made zero: they are decrypted as well.
    cdef FileOps* f = e.inner
    cdef int64_t got = f.pread(f.ctx, fd, p, n, <off_t>(head + at))
    cdef uint64_t start = 0, end, hole, had
    if got <= 0 or k.kind == CIPHER_NONE:
        return got
    had = <uint64_t>got
    while start < had:
        hole = hole_from(p, start, had, head + at, &end)
        if hole == had:
            break
        if hole and (head + at + hole) % SECTOR:
            hole = min(hole + ZEROS_LEAST, end)
        if cipher_file(<CipherKind>k.kind, k.key, k.nonce, at + start, p + start, hole - start, p + start) < 0:
            return -ENOMEM
        start = end
    if cipher_file(<CipherKind>k.kind, k.key, k.nonce, at + start, p + start, had - start, p + start) < 0:
        return -ENOMEM
    return got
