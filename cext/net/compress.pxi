# Compression between servers: S2 around the bytes of a connection, whatever carries these.

cdef enum:
    PIECE_MAX = READ_SIZE       # plain bytes of a chunk: a server of ours decodes these into where it reads to

# ---- which level

cdef int level_of(int64_t rtt, const int64_t* thresholds, int n) noexcept nogil:
    # What s2_auto chooses for a round trip of so many ns: the first level whose threshold is not below that. Beyond all of them
    # the best one where there are three or more, else the last that has one.
    cdef int i
    for i in range(n):
        if rtt <= thresholds[i]:
            return S2_UNCOMPRESSED + i
    return S2_BEST if n >= 3 else S2_UNCOMPRESSED + n - 1


cdef void conn_recompress(Conn* c) noexcept nogil:
    # Its round trip was measured.
    cdef Compression* k = c.compression
    if k != NULL and k.n_thresholds:
        k.level = level_of(c.base.rtt, k.thresholds, k.n_thresholds)


cdef void conn_relevel(Conn* c, int level, const int64_t* thresholds, int n) noexcept nogil:
    cdef Compression* k = c.compression
    if k == NULL:
        return
    k.next_level = level
    k.n_next = n
    memcpy(k.next_thresholds, thresholds, n * sizeof(int64_t))
    k.changes.fn = level_changes
    k.changes.owner = c
    task_post(&c.reactor.tasks, &k.changes)


cdef void level_changes(Task* t) noexcept nogil:
    # In the connection's reactor, which compresses without the engine lock.
    cdef Conn* c = <Conn*>t.owner
    cdef Compression* k = c.compression
    k.level = k.next_level
    k.n_thresholds = k.n_next
    memcpy(k.thresholds, k.next_thresholds, sizeof(k.thresholds))
    if c.base.rtt:
        conn_recompress(c)
    elif k.n_thresholds:
        k.level = S2_UNCOMPRESSED  # until a round trip is measured


# ---- the beginning, and the end

cdef int conn_compress(Conn* c, int level, const int64_t* thresholds, int n, Span first) noexcept nogil:
    # 0, or -1: no memory.
    cdef Compression* k = <Compression*>calloc(1, sizeof(Compression))
    if k == NULL or bytes_add(&k.first, first.p, first.n) != 0:
        free(k)
        return -1
    k.level = level
    k.n_thresholds = n
    if n:
        memcpy(k.thresholds, thresholds, n * sizeof(int64_t))
        k.level = level_of(max(c.base.engine.env.now - c.base.started, <int64_t>1), thresholds, n)
    k.begins.fn = compression_begins
    k.begins.owner = c
    c.compression = k
    task_post(&c.reactor.tasks, &k.begins)
    return 0


cdef void compression_begins(Task* t) noexcept nogil:
    # In its reactor, which writes without the engine lock: what was to be written by now goes out as it is, and what has come
    # behind what the control plane has read is compressed already.
    cdef Conn* c = <Conn*>t.owner
    cdef Compression* k = c.compression
    k.below = c.transport
    k.below_more = c.input.more
    k.plain_left = client_pending(&c.base)
    c.transport = &compressed_transport
    if s2_begin(&k.outward) != 0 or bytes_add(&k.inward, c.input.left, c.input.n_left) != 0:
        client_close(&c.base, CLOSE_WRITE_ERROR)
        return
    drop_left(c)
    c.input.need = 0
    c.input.more = True
    client_write(&c.base, k.first.data, k.first.n)
    bytes_free(&k.first)
    c.rest.paused = False
    conn_events(c)
    conn_read_again(c)


cdef void compression_free(Conn* c) noexcept nogil:
    cdef Compression* k = c.compression
    if k == NULL:
        return
    bytes_free(&k.first)
    bytes_free(&k.inward)
    bytes_free(&k.held)
    bytes_free(&k.outward)
    free(k)
    c.compression = NULL


# ---- the way in

cdef size_t decode_some(Compression* k, uint8_t* p, size_t n) noexcept nogil:
    # Decodes whole chunks into p[0:n], as many as fit there; one that fits nowhere goes to `held`. How many bytes p has then.
    cdef Bytes into
    cdef Bytes* out
    cdef size_t at = 0, size = 0
    cdef int64_t claim, used
    memset(&into, 0, sizeof(into))
    into.data = p
    into.cap = n
    while k.trouble == NULL and k.held.n == 0 and at < k.inward.n:
        claim = s2_claim(k.inward.data + at, k.inward.n - at, &size)
        out = &into
        if claim > 0 and into.n + <size_t>claim + S2_SLACK > n:
            if into.n:
                break
            out = &k.held
        if k.inward.n - at >= 4 and size > S2_CHUNK_ROOM:
            k.trouble = s2_why(S2_CHUNK)
            break
        used = s2_chunk(&k.begun, k.inward.data + at, k.inward.n - at, out)
        invariant(into.data == p, "a chunk that is decoded in place has room there")
        if used < 0:
            k.trouble = s2_why(used)
        if used <= 0:
            break
        at += <size_t>used
    k.inward.n -= at
    if at and k.inward.n:
        memmove(k.inward.data, k.inward.data + at, k.inward.n)
    return into.n


cdef size_t take_held(Compression* k, uint8_t* p, size_t n) noexcept nogil:
    n = min(n, k.held.n - k.held_at)
    memcpy(p, k.held.data + k.held_at, n)
    k.held_at += n
    if k.held_at == k.held.n:
        bytes_free(&k.held)
        k.held_at = 0
    return n


cdef bint has_chunk(Compression* k) noexcept nogil:
    # Whether there is one to decode, or the beginning of one that cannot be.
    cdef size_t size = 0
    cdef Bytes nothing
    if k.inward.n < 4:
        return False
    s2_said(k.inward.data, k.inward.n, &size)
    if k.inward.n >= size or size > S2_CHUNK_ROOM:
        return True
    memset(&nothing, 0, sizeof(nothing))
    return s2_chunk(&k.begun, k.inward.data, k.inward.n, &nothing) < 0


cdef ssize_t compressed_read(Conn* c, void* p, size_t n) noexcept nogil:
    cdef Compression* k = c.compression
    cdef ssize_t got = -EAGAIN
    cdef size_t made = 0, room = READ_SIZE + transport_slack(c, k.below)
    if k.held.n == 0:
        made = decode_some(k, <uint8_t*>p, n)
    if made == 0 and k.held.n == 0 and k.trouble == NULL:
        borrow(c.reactor, &k.inward)
        if bytes_reserve(&k.inward, room) != 0:
            return -ENOMEM
        got = k.below.read(c, k.inward.data + k.inward.n, room)
        k.below_more = c.input.more
        if got > 0:
            k.inward.n += <size_t>got
            made = decode_some(k, <uint8_t*>p, n)
            got = -EAGAIN
        elif k.inward.n and (got == 0 or got == -ECONNRESET):
            k.trouble = s2_why(S2_CUT)
    if k.inward.n == 0:
        give_back(c.reactor, &k.inward)
    if made == 0 and k.held.n:
        made = take_held(k, <uint8_t*>p, n)
    if made == 0 and k.trouble != NULL:
        return -EPROTO
    c.input.more = k.below_more or k.held.n != 0 or k.trouble != NULL or has_chunk(k)
    return made if made else got


# ---- the way out

cdef ssize_t write_plain(Conn* c, const iovec* iov, int n) noexcept nogil:
    # What was there before the compression.
    cdef Compression* k = c.compression
    cdef iovec[IOV_MAX_USED] parts
    cdef size_t left = k.plain_left
    cdef ssize_t sent
    cdef int i = 0
    while i < n and left:
        parts[i].iov_base = iov[i].iov_base
        parts[i].iov_len = min(iov[i].iov_len, left)
        left -= parts[i].iov_len
        i += 1
    sent = k.below.write(c, parts, i)
    if sent > 0:
        k.plain_left -= <size_t>sent
    return sent


cdef int drain(Conn* c, Compression* k) noexcept nogil:
    # Writes what is compressed already; 0 when nothing of it is left, else -errno.
    cdef iovec rest
    cdef ssize_t sent
    while k.out_at < k.outward.n:
        rest.iov_base = k.outward.data + k.out_at
        rest.iov_len = k.outward.n - k.out_at
        sent = k.below.write(c, &rest, 1)
        if sent <= 0:
            return <int>sent if sent else -EAGAIN
        k.out_at += <size_t>sent
        c.output.wrote = WROTE_SOME
    k.outward.n = k.out_at = 0
    give_back(c.reactor, &k.outward)
    return 0


cdef int compress_piece(Conn* c, Compression* k, const uint8_t* p, size_t n) noexcept nogil:
    # Into `outward`. 0, or -1: no memory.
    borrow(c.reactor, &k.outward)
    return s2_append(p, n, k.level, &c.reactor.room, &k.outward)


cdef ssize_t compressed_write(Conn* c, const iovec* iov, int n) noexcept nogil:
    # What was compressed and is not written yet counts as taken when it is.
    cdef Compression* k = c.compression
    cdef uint8_t* scratch = reactor_scratch(c.reactor)
    cdef const uint8_t* piece = NULL
    cdef size_t done, at, size
    cdef ssize_t sent
    cdef int i = 0, rc
    if scratch == NULL:
        return -ENOMEM
    if k.plain_left:
        return write_plain(c, iov, n)
    rc = drain(c, k)
    if rc != 0:
        return rc
    done = at = k.claimed
    k.claimed = 0
    while i < n and at >= iov[i].iov_len:
        at -= iov[i].iov_len
        i += 1
    if i == n and c.output.owes:
        sent = k.below.write(c, iov, 0)
        return sent if sent < 0 and done == 0 else <ssize_t>done
    while i < n:
        size = gather(iov, n, &i, &at, PIECE_MAX, scratch, &piece)
        if compress_piece(c, k, piece, size) != 0:
            return -ENOMEM
        rc = drain(c, k)
        if rc != 0:
            k.claimed = size
            return <ssize_t>done if done and rc == -EAGAIN else rc
        done += size
    return <ssize_t>done


cdef int compressed_want(Conn* c, bint read, bint write) noexcept nogil:
    return c.compression.below.want(c, read, write)


cdef size_t compressed_slack(const Conn* c) noexcept nogil:
    return S2_SLACK


cdef void compressed_shutdown(Conn* c) noexcept nogil:
    c.compression.below.shutdown(c)


cdef Transport compressed_transport

compressed_transport.read = compressed_read
compressed_transport.write = compressed_write
compressed_transport.want = compressed_want
compressed_transport.slack = compressed_slack
compressed_transport.shutdown = compressed_shutdown
