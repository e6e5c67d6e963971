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


cdef int64_t text_get(Encrypted* e, int fd, const CryptKey* k, uint64_t head, uint8_t* p, size_t n, uint64_t at) noexcept nogil:
    # As many as there are | -errno
    #
    # Zeros in a row are a hole that a power cut left, which reads as zeros. It ends where a sector does. Where it begins
    # behind a sector's start, its first bytes may be a text's that a keystream made zero: they are decrypted as well.
    cdef FileOps* f = e.inner
    cdef int64_t got = f.pread(f.ctx, fd, p, n, <off_t>(head + at))
    cdef uint64_t i = 0, start, end, hole
    if got <= 0 or k.kind == CIPHER_NONE:
        return got
    start = 0
    while i < <uint64_t>got:
        if p[i]:
            i += 1
            continue
        hole = i
        while i < <uint64_t>got and p[i] == 0:
            i += 1
        if i - hole < ZEROS_LEAST:
            continue
        end = i if i == <uint64_t>got else max(hole, i - (head + at + i) % SECTOR)
        if hole and (head + at + hole) % SECTOR:
            hole = min(hole + 8, end)
        if end == hole:
            continue
        if cipher_file(<CipherKind>k.kind, k.key, k.nonce, at + start, p + start, hole - start, p + start) < 0:
            return -ENOMEM
        start = end
    if cipher_file(<CipherKind>k.kind, k.key, k.nonce, at + start, p + start, <uint64_t>got - start, p + start) < 0:
        return -ENOMEM
    return got
