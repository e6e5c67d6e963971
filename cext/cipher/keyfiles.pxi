# Key files of blocks: a seed, sealed with a key that the server's gives for the block's name.

cdef enum:
    KEY_FILE_MAX = 24 + CIPHER_KEY + CIPHER_TAG


cdef void key_path(const char* block, const char* suffix, char* out) noexcept nogil:
    # X.key beside X.blk or X.blk.tmp, with a suffix.
    cdef size_t n = strlen(block)
    if path_ends(block, n, b".tmp"):
        n -= 4
    snprintf(out, PATH_ROOM, "%.*s.key%s", <int>(n - 4), block, suffix)


cdef const char* block_name(const char* block) noexcept nogil:
    # The last part of its path.
    cdef const char* name = strrchr(block, c'/')
    return name + 1 if name != NULL else block


cdef bint is_aside(const char* block) noexcept nogil:
    # Whether a block was put aside: damaged-N.blk, with its key under the same name.
    return strncmp(block_name(block), b"damaged-", 8) == 0


cdef int block_key(const char* block, Span secret, uint8_t* out) noexcept nogil:
    # The key that a block's seed is sealed with. 0 | -ENOMEM
    cdef const char* name = block_name(block) + (8 if is_aside(block) else 0)
    cdef char more[64]
    snprintf(more, sizeof(more), ":%.*s", <int>strcspn(name, b"."), name)
    return key_derived(block, secret, span(more, <uint32_t>strlen(more)), out)


cdef int key_make(Encrypted* e, const char* block, const char* suffix, CryptKey* key) noexcept nogil:
    # A new seed for a block, whose file is on disk but for its name: X.key and the suffix. 0 | -errno
    cdef uint8_t wrap[CIPHER_KEY]
    cdef uint8_t sealed[KEY_FILE_MAX]
    cdef char path[PATH_ROOM]
    cdef uint32_t n = cipher_nonce(e.kind)
    cdef int rc = block_key(block, secret_of(e), wrap)
    key.kind = e.kind
    e.system.random(e.system.ctx, key.key, CIPHER_KEY)
    e.system.random(e.system.ctx, key.nonce, n)
    memcpy(sealed, key.nonce, n)
    if rc == 0 and cipher_seal(e.kind, wrap, key.nonce, key.key, CIPHER_KEY, sealed + n) < 0:
        rc = -ENOMEM
    key_path(block, suffix, path)
    return file_put(e.inner, path, span(sealed, n + CIPHER_KEY + CIPHER_TAG)) if rc == 0 else rc


cdef int key_kind(size_t n) noexcept nogil:
    # The cipher of a key file of so many bytes; CIPHER_NONE: it is none.
    if n == 24 + CIPHER_KEY + CIPHER_TAG:
        return CIPHER_CHACHA
    return CIPHER_AES if n == 16 + CIPHER_KEY + CIPHER_TAG else CIPHER_NONE


cdef const char* key_suffix(const char* block) noexcept nogil:
    # Of the key of a block, or of a copy that has no place yet.
    return b".tmp" if path_ends(block, strlen(block), b".tmp") else b""


cdef int key_open(const char* block, Span secret, const uint8_t* sealed, size_t n, CryptKey* key) noexcept nogil:
    # 0 | -errno
    cdef uint8_t wrap[CIPHER_KEY]
    cdef CipherKind kind = <CipherKind>key.kind
    cdef uint32_t skip = cipher_nonce(kind)
    cdef int rc = block_key(block, secret, wrap)
    if rc < 0:
        return rc
    memcpy(key.nonce, sealed, skip)
    return 0 if cipher_open(kind, wrap, key.nonce, sealed + skip, n - skip, key.key) == 0 else -EKEYREJECTED


cdef int key_read(Encrypted* e, const char* block, const char* suffix, CryptKey* key, bint* old) noexcept nogil:
    # What a block's key file holds; old: it is not of the cipher and the secret that the server has now. 0 | -errno: ENOKEY where
    # there is none, EKEYREJECTED where it is of no cipher, or no secret opens it
    cdef uint8_t sealed[KEY_FILE_MAX + 1]
    cdef char path[PATH_ROOM]
    cdef FileOps* f = e.inner
    cdef int64_t n
    cdef int fd, rc
    key_path(block, suffix, path)
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd < 0:
        return -ENOKEY if fd == -ENOENT else fd
    n = f.pread(f.ctx, fd, sealed, sizeof(sealed), 0)
    f.close(f.ctx, fd)
    if n < 0:
        return <int>n
    key.kind = key_kind(<size_t>n)
    if key.kind == CIPHER_NONE:
        return -EKEYREJECTED
    old[0] = key.kind != e.kind
    rc = key_open(block, secret_of(e), sealed, <size_t>n, key)
    if rc == -EKEYREJECTED and e.before.n:
        old[0] = True
        rc = key_open(block, span(e.before.data, <uint32_t>e.before.n), sealed, <size_t>n, key)
    return rc


cdef int key_give(Encrypted* e, const char* block, CryptKey* key) noexcept nogil:
    # A new seed under the name that the block's has. 0 | -errno
    cdef char name[PATH_ROOM]
    cdef char temp[PATH_ROOM]
    cdef int rc = key_make(e, block, b".tmp", key)
    key_path(block, b"", name)
    key_path(block, b".tmp", temp)
    return e.inner.rename(e.inner.ctx, temp, name) if rc == 0 else rc


cdef int is_blank(Encrypted* e, int fd) noexcept nogil:
    # Whether a file has nothing but zeros: 1, 0 or -errno
    cdef FileOps* f = e.inner
    cdef uint8_t piece[4096]
    cdef int64_t n = 1, at = 0, i
    while n > 0:
        n = f.pread(f.ctx, fd, piece, sizeof(piece), at)
        for i in range(n):
            if piece[i]:
                return 0
        at += n
    return 1 if n == 0 else <int>n


cdef int blank_at(Encrypted* e, const char* path) noexcept nogil:
    # The same of the file of this name.
    cdef FileOps* f = e.inner
    cdef int fd = f.open(f.ctx, path, O_RDONLY, 0)
    cdef int rc
    if fd < 0:
        return fd
    rc = is_blank(e, fd)
    f.close(f.ctx, fd)
    return rc


# ---- sheets: a mark, the cipher, a nonce, and 8 bytes by which the key is known

cdef int sheet_check(const CryptKey* key, uint8_t* out) noexcept nogil:
    # 0 | -ENOMEM
    cdef uint8_t made[CIPHER_KEY]
    cdef Span nonce = span(key.nonce, cipher_nonce(<CipherKind>key.kind))
    if cipher_derive(span(key.key, CIPHER_KEY), nonce, span(b"check", 5), made) < 0:
        return -ENOMEM
    memcpy(out, made, SHEET_CHECK)
    return 0


cdef int sheet_new(Encrypted* e, const char* path, CryptKey* key, uint8_t* head) noexcept nogil:
    # A new key for a sheet, and the bytes in front of its text. 0 | -ENOMEM
    cdef uint32_t n = cipher_nonce(e.kind)
    cdef int rc
    key.kind = e.kind
    e.system.random(e.system.ctx, key.nonce, n)
    rc = sheet_key(path, secret_of(e), key)
    memcpy(head, sheet_mark, SHEET_MARK)
    head[SHEET_MARK] = <uint8_t>e.kind
    memcpy(head + SHEET_MARK + 1, key.nonce, n)
    return sheet_check(key, head + SHEET_MARK + 1 + n) if rc == 0 else rc


cdef int sheet_opened(const char* path, Span secret, const uint8_t* check, CryptKey* key) noexcept nogil:
    # Whether that is its key: 1, 0 or -ENOMEM
    cdef uint8_t made[SHEET_CHECK]
    cdef int rc = sheet_key(path, secret, key)
    rc = sheet_check(key, made) if rc == 0 else rc
    return rc if rc < 0 else memcmp(made, check, SHEET_CHECK) == 0


cdef int sheet_read(Encrypted* e, int fd, const char* path, CryptKey* key, bint* old) noexcept nogil:
    # What is in front of a sheet that is there; old: as key_read, also of one in clear. 1; 0: it has no byte; -errno
    cdef FileOps* f = e.inner
    cdef uint8_t head[SHEET_HEAD_MAX]
    cdef int64_t n = f.pread(f.ctx, fd, head, sizeof(head), 0)
    cdef const uint8_t* check
    cdef int rc
    memset(key, 0, sizeof(CryptKey))
    if n <= 0:
        return <int>n
    old[0] = True
    if n < SHEET_MARK + 1 or memcmp(head, sheet_mark, SHEET_MARK):
        return 1                # in clear
    key.kind = CIPHER_CHACHA if head[SHEET_MARK] == CIPHER_CHACHA else CIPHER_AES
    memset(head + n, 0, sizeof(head) - <size_t>n)
    memcpy(key.nonce, head + SHEET_MARK + 1, cipher_nonce(<CipherKind>key.kind))
    check = head + SHEET_MARK + 1 + cipher_nonce(<CipherKind>key.kind)
    if e.before.n:
        rc = sheet_opened(path, span(e.before.data, <uint32_t>e.before.n), check, key)
        if rc:
            return rc
    old[0] = key.kind != e.kind
    rc = sheet_opened(path, secret_of(e), check, key)
    return 1 if rc >= 0 else rc         # what a power cut tore reads as damage


cdef bint is_plain(Encrypted* e, const char* stream) noexcept nogil:
    # Whether its blocks may be in clear: it has no key of its own yet.
    cdef FileOps* f = e.inner
    cdef char path[PATH_ROOM]
    cdef int fd
    snprintf(path, sizeof(path), "%s/meta.key", stream)
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd >= 0:
        f.close(f.ctx, fd)
    return fd == -ENOENT
