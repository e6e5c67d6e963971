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


cdef uint64_t zeros_from(const uint8_t* p, uint64_t at, uint64_t n, uint64_t* end) noexcept nogil:
    # Where from `at` on ZEROS_LEAST zeros or more stand in a row, up to `end`; n: nowhere. Such a row has all of some 8 bytes
    # that are looked at, one in ZEROS_LEAST / 2.
    cdef uint64_t k = at, word, start
    while k + 8 <= n:
        memcpy(&word, p + k, 8)
        if word:
            k += ZEROS_LEAST // 2
            continue
        start = k
        while start > at and p[start - 1] == 0:
            start -= 1
        k += 8
        while k < n and p[k] == 0:
            k += 1
        if k - start >= ZEROS_LEAST:
            end[0] = k
            return start
    end[0] = n
    return n


cdef int64_t text_get(Encrypted* e, int fd, const CryptKey* k, uint64_t head, uint8_t* p, size_t n, uint64_t at) noexcept nogil:
    # As many as there are | -errno
    #
    # Zeros in a row are a hole that a power cut left, which reads as zeros. It ends where a sector does. Where it begins
    # behind a sector's start, its first bytes may be a text's that a keystream made zero: they are decrypted as well.
    cdef FileOps* f = e.inner
    cdef int64_t got = f.pread(f.ctx, fd, p, n, <off_t>(head + at))
    cdef uint64_t i = 0, start = 0, end, hole, had
    if got <= 0 or k.kind == CIPHER_NONE:
        return got
    had = <uint64_t>got
    while i < had:
        hole = zeros_from(p, i, had, &i)
        if hole == had:
            break
        end = i if i == had else max(hole, i - (head + at + i) % SECTOR)
        if hole and (head + at + hole) % SECTOR:
            hole = min(hole + 8, end)
        if end == hole:
            continue
        if cipher_file(<CipherKind>k.kind, k.key, k.nonce, at + start, p + start, hole - start, p + start) < 0:
            return -ENOMEM
        start = end
    if cipher_file(<CipherKind>k.kind, k.key, k.nonce, at + start, p + start, had - start, p + start) < 0:
        return -ENOMEM
    return got
