# What is read and written as a whole: a nonce, and what is sealed with the seed in a meta.key. o.dat has its consumer's.
# nats-server's index.db, which is only read here, has its stream's, and ends in a checksum. Where there is no meta.key the
# file is in clear.

cdef size_t whole_owner(const char* path, Span* account, Span* stream, Span* consumer) noexcept nogil:
    # Of ACCOUNT/streams/STREAM/obs/CONSUMER/o.dat, or STREAM/msgs/index.db (no consumer), or _js_/GROUP/msgs/index.db, where the
    # account is the group. The length of the folder's path in which meta.key stands.
    cdef size_t end = strlen(path), folder
    cdef Span above
    consumer[0] = span(NULL, 0)
    part_of(path, &end)
    folder = end
    if not is_index(path):
        consumer[0] = part_of(path, &end)
    part_of(path, &end)
    if is_index(path):
        folder = end
    stream[0] = part_of(path, &end)
    above = part_of(path, &end)
    account[0] = stream[0] if is_part(above, b"_js_") else part_of(path, &end)
    return folder


cdef int seed_open(const char* path, Span secret, const uint8_t* sealed, size_t n, CryptKey* key) noexcept nogil:
    # 0 | -errno
    cdef Span account, stream, consumer
    cdef uint8_t wrap[CIPHER_KEY]
    cdef CipherKind kind = <CipherKind>key.kind
    cdef uint32_t skip = cipher_nonce(kind)
    cdef Bytes context
    cdef int rc
    whole_owner(path, &account, &stream, &consumer)
    memset(&context, 0, sizeof(context))
    rc = bytes_add(&context, stream.p, stream.n)
    if consumer.n:
        rc |= bytes_add(&context, b".", 1)
        rc |= bytes_add(&context, consumer.p, consumer.n)
    if rc == 0:
        rc = cipher_derive(secret, account, span(context.data, <uint32_t>context.n), wrap)
    bytes_free(&context)
    if rc < 0:
        return -ENOMEM
    return 0 if cipher_open(kind, wrap, sealed, sealed + skip, n - skip, key.key) == 0 else -EKEYREJECTED


cdef int whole_key(Encrypted* e, const char* path, CryptKey* key) noexcept nogil:
    # 0 | -errno: ENOKEY where there is none
    cdef FileOps* f = e.inner
    cdef uint8_t sealed[KEY_FILE_MAX + 1]
    cdef char name[PATH_ROOM + 16]
    cdef Span account, stream, consumer
    cdef int64_t n
    cdef int fd, rc
    snprintf(name, sizeof(name), "%.*s/meta.key", <int>whole_owner(path, &account, &stream, &consumer), path)
    fd = f.open(f.ctx, name, O_RDONLY, 0)
    if fd < 0:
        return -ENOKEY if fd == -ENOENT else fd
    n = f.pread(f.ctx, fd, sealed, sizeof(sealed), 0)
    f.close(f.ctx, fd)
    if n < 0:
        return <int>n
    key.kind = key_kind(<size_t>n)
    if key.kind == CIPHER_NONE:
        return -EKEYREJECTED
    rc = seed_open(path, secret_of(e), sealed, <size_t>n, key)
    if rc == -EKEYREJECTED and e.before.n:
        rc = seed_open(path, span(e.before.data, <uint32_t>e.before.n), sealed, <size_t>n, key)
    return rc


cdef int whole_read(Encrypted* e, Whole* w, int fd) noexcept nogil:
    # The text of the file. What does not open is given as it is: it is in clear, or reads as damage. 0 | -errno
    cdef FileOps* f = e.inner
    cdef CipherKind kind = <CipherKind>w.key.kind
    cdef uint32_t skip = cipher_nonce(kind)
    cdef int64_t n = f.size(f.ctx, fd), size
    cdef uint64_t sum
    cdef Bytes had
    memset(&had, 0, sizeof(had))
    if n <= 0:
        return <int>n
    if bytes_reserve(&had, <size_t>n) < 0 or bytes_reserve(&w.text, <size_t>n + 8) < 0:
        bytes_free(&had)
        return -ENOMEM
    n = f.pread(f.ctx, fd, had.data, <size_t>n, 0)
    size = max(n - (8 if w.summed else 0), <int64_t>0)
    if size > <int64_t>skip and cipher_open(kind, w.key.key, had.data, had.data + skip, <size_t>size - skip, w.text.data) == 0:
        w.text.n = <size_t>size - skip - CIPHER_TAG
        if w.summed:
            sum = hh64(w.sum_key, w.text.data, w.text.n)
            memcpy(w.text.data + w.text.n, &sum, 8)
            w.text.n += 8
    elif n > 0:
        memcpy(w.text.data, had.data, <size_t>n)
        w.text.n = <size_t>n
    bytes_free(&had)
    return <int>min(n, <int64_t>0)


cdef int64_t whole_write(Encrypted* e, const Whole* w, int fd, const uint8_t* p, size_t n, off_t at) noexcept nogil:
    # n | -errno
    cdef FileOps* f = e.inner
    cdef CipherKind kind = <CipherKind>w.key.kind
    cdef uint32_t skip = cipher_nonce(kind)
    cdef size_t size = skip + n + CIPHER_TAG
    cdef uint8_t* out
    cdef int64_t rc = -ENOMEM
    if at or w.summed:
        return -EINVAL
    out = <uint8_t*>malloc(size)
    if out == NULL:
        return -ENOMEM
    e.system.random(e.system.ctx, out, skip)
    if cipher_seal(kind, w.key.key, out, p, n, out + skip) == 0:
        rc = f.pwrite(f.ctx, fd, out, size, 0)
    free(out)
    if rc >= 0:
        rc = f.truncate(f.ctx, fd, <off_t>size)
    return <int64_t>n if rc >= 0 else rc


cdef int whole_open(Encrypted* e, const char* path, int flags, int mode) noexcept nogil:
    # A descriptor | -errno
    cdef FileOps* f = e.inner
    cdef Span account, stream, consumer
    cdef CryptKey key
    cdef Whole* w
    cdef int fd, rc = whole_key(e, path, &key)
    fd = f.open(f.ctx, path, flags, mode) if rc == 0 or rc == -ENOKEY else rc
    if fd < 0 or rc == -ENOKEY:
        return fd
    w = <Whole*>calloc(1, sizeof(Whole))
    rc = -ENOMEM
    if w != NULL:
        w.key = key
        w.summed = is_index(path)
        whole_owner(path, &account, &stream, &consumer)
        sha256(stream.p, stream.n, <uint8_t*>w.sum_key)
        rc = whole_read(e, w, fd)
    if rc == 0:
        e.system.lock(e.system.ctx, &e.mutex)
        rc = open_add(e, fd, NULL, w)
        e.system.unlock(e.system.ctx, &e.mutex)
    if rc < 0:
        whole_free(w)
        f.close(f.ctx, fd)
        return rc
    return fd


cdef void whole_free(Whole* w) noexcept nogil:
    if w != NULL:
        bytes_free(&w.text)
    free(w)


cdef Whole* whole_find(Encrypted* e, int fd) noexcept nogil:
    cdef Whole* w = NULL
    e.system.lock(e.system.ctx, &e.mutex)
    if 0 <= fd < <int>e.n_opens and e.opens[fd] != NULL:
        w = e.opens[fd].whole
    e.system.unlock(e.system.ctx, &e.mutex)
    return w
