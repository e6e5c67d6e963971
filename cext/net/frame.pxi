# WebSocket's way out: what is to be written goes into frames, compressed where that was agreed on, without the engine lock.

cdef enum:
    DEFLATE_LEAST = 64      # bytes; what is not more is sent as it is
    NOISE_LEAST = 256       # bytes from which on what cannot be compressed is recognised
    NOISE_RUNS = 16         # looked at in so many places
    NOISE_RUN = 64          # so much of each
    NOISE_PAIRS = 48        # two bytes of it are equal once in more than so many times
    REPEAT_LOOK = 4096      # bytes in which what comes again is looked for
    REPEAT_SLOTS = 256
    DEFLATE_SLACK = 64      # it writes more than it needs at a time
    SYNC_BYTES = 4          # that end each compressed message, and are left out
    FRAMES_A_WRITE = 32
    AHEAD_KEPT = 4096       # bytes of a buffer that stays when it is empty


cdef size_t frame_head(uint8_t* h, int first, uint64_t n) noexcept nogil:
    # The head of a frame with a payload of n bytes; how long it is.
    cdef int i
    h[0] = <uint8_t>first
    if n < LENGTH_16:
        h[1] = <uint8_t>n
        return 2
    if n < 65536:
        h[1] = LENGTH_16
        h[2] = <uint8_t>(n >> 8)
        h[3] = <uint8_t>n
        return 4
    h[1] = LENGTH_64
    for i in range(8):
        h[2 + i] = <uint8_t>(n >> (56 - 8 * i))
    return 10


cdef size_t masked_head(Ws* w, uint8_t* h, int first, uint64_t n) noexcept nogil:
    # As frame_head, with a key of the frame's own, the last 4 bytes of the head, where frames to the other side are masked.
    # Proxies between servers shall not take what a message says for something else, so each key is another one.
    cdef size_t size = frame_head(h, first, n)
    cdef uint64_t key
    if not w.terms.masks:
        return size
    key = split_mix(&w.mask)
    h[1] |= MASK_BIT
    memcpy(h + size, &key, 4)
    return size + 4


cdef void mask_copy(uint8_t* to, const uint8_t* p, size_t n, const uint8_t* key, uint32_t at) noexcept nogil:
    # Copies n bytes, masked or unmasked from byte `at` of the key's 4 on. `to` may be p, or before p.
    cdef uint8_t k[8]
    cdef uint64_t whole, v
    cdef size_t i
    for i in range(8):
        k[i] = key[(at + i) & 3]
    memcpy(&whole, k, 8)
    i = 0
    while i + 8 <= n:
        memcpy(&v, p + i, 8)
        v ^= whole
        memcpy(to + i, &v, 8)
        i += 8
    while i < n:
        to[i] = p[i] ^ k[i & 7]
        i += 1


cdef size_t frame_put(Ws* w, uint8_t* at, int first, const uint8_t* p, size_t n) noexcept nogil:
    # A whole frame, for which there is room; how long it is.
    cdef size_t size = masked_head(w, at, first, n)
    if w.terms.masks:
        mask_copy(at + size, p, n, at + size - 4, 0)
    else:
        memcpy(at + size, p, n)
    return size + n


cdef void ws_control_frame(Ws* w, int opcode, const uint8_t* p, size_t n) noexcept nogil:
    # At most WS_CONTROL_MAX bytes. Without memory it is left out: its end comes soon enough.
    if bytes_reserve(&w.behind, WS_HEAD_MAX + n) == 0:
        w.behind.n += frame_put(w, w.behind.data + w.behind.n, FINAL_BIT | opcode, p, n)


cdef void ws_close_frame(Ws* w, int status, const uint8_t* text, size_t n) noexcept nogil:
    # It goes out when all else is written; the first one counts. status 0: without one.
    cdef uint8_t payload[WS_CONTROL_MAX]
    if w.n_farewell:
        return
    n = min(n, <size_t>WS_CONTROL_MAX - 2)
    payload[0] = <uint8_t>(status >> 8)
    payload[1] = <uint8_t>status
    memcpy(payload + 2, text, n)
    w.n_farewell = frame_put(w, w.farewell, FINAL_BIT | OP_CLOSE, payload, n + 2 if status else 0)


# ---- compressed

cdef isal_zstream* deflater(Reactor* r) noexcept nogil:
    # One for all its connections: no message knows of the one before. NULL: no memory.
    cdef isal_zstream* z = r.deflater
    if z == NULL:
        z = <isal_zstream*>malloc(sizeof(isal_zstream) + ISAL_DEF_LVL1_SMALL)
        if z == NULL:
            return NULL
        isal_deflate_init(z)
        z.level = 1
        z.level_buf = <uint8_t*>(z + 1)
        z.level_buf_size = ISAL_DEF_LVL1_SMALL
        z.gzip_flag = IGZIP_DEFLATE
        r.deflater = z
    isal_deflate_reset(z)
    z.end_of_stream = 0
    return z


cdef bint repeats(const iovec* iov, int n, size_t skip) noexcept nogil:
    # Whether much of what lies behind the first `skip` of these bytes is there twice, as where the same message comes again.
    # What is remembered of it depends on itself, one place in sixteen, so the same bytes are met wherever they stand.
    cdef uint32_t met[REPEAT_SLOTS]
    cdef uint32_t word, mixed, places = 0, again = 0
    cdef size_t left = REPEAT_LOOK, size, i
    cdef int part
    cdef const uint8_t* p
    memset(met, 0, sizeof(met))
    for part in range(n):
        size = iov[part].iov_len
        if skip >= size:
            skip -= size
            continue
        p = <const uint8_t*>iov[part].iov_base + skip
        size = min(size - skip, left)
        skip = 0
        left -= size
        for i in range(3, size):
            memcpy(&word, p + i - 3, 4)
            mixed = word * <uint32_t>2654435761
            if mixed >> 28:
                continue
            places += 1
            mixed = mixed >> 20 & (REPEAT_SLOTS - 1)
            if met[mixed] == word:
                again += 1
            met[mixed] = word
        if left == 0:
            break
    return again * 8 > places


cdef bint is_noise(const iovec* iov, int n, size_t skip, size_t total) noexcept nogil:
    # Whether compressing what lies behind the first `skip` of these bytes would take much and give a fourth at best, as it is
    # packed, encrypted or in base64: all bytes are about as frequent, and nothing comes twice. To find that out by trying
    # takes longer than all the rest of sending it; nats-server sends such as it is, too.
    cdef uint32_t counts[256]
    cdef uint64_t seen = 0, squares = 0
    cdef size_t at = 0, next_run = 0, end, run, step = total // NOISE_RUNS, i
    cdef int part
    cdef const uint8_t* p
    if total < NOISE_LEAST:
        return False
    memset(counts, 0, sizeof(counts))
    for part in range(n):
        run = iov[part].iov_len
        if skip >= run:
            skip -= run
            continue
        p = <const uint8_t*>iov[part].iov_base + skip
        end = at + run - skip
        skip = 0
        while next_run < end:
            for i in range(max(at, next_run) - at, min(next_run + NOISE_RUN, end) - at):
                counts[p[i]] += 1
                seen += 1
            if next_run + NOISE_RUN > end:
                break               # it goes on in the next part
            next_run += max(step, <size_t>NOISE_RUN)
        at = end
    for i in range(256):
        squares += <uint64_t>counts[i] * counts[i]
    # Two bytes of noise are equal once in 256 times, of base64 once in 64, of text once in 15.
    return (squares - seen) * NOISE_PAIRS < seen * seen and not repeats(iov, n, skip)


cdef int deflate_all(Reactor* r, const iovec* iov, int n, size_t skip, size_t total) noexcept nogil:
    # Compresses what lies behind the first `skip` of these bytes, `total` of them, into r.deflated. 1: done; 0: that takes as
    # many bytes as they are; -1: no memory.
    cdef isal_zstream* z = deflater(r)
    cdef size_t piece, left = total
    cdef int i
    r.deflated.n = 0
    if total > INT32_MAX:
        return 0
    if z == NULL or bytes_reserve(&r.deflated, total + DEFLATE_SLACK) != 0:
        return -1
    z.next_out = r.deflated.data
    z.avail_out = <uint32_t>total + DEFLATE_SLACK
    z.flush = NO_FLUSH
    for i in range(n):
        piece = iov[i].iov_len
        if skip >= piece:
            skip -= piece
            continue
        z.next_in = <uint8_t*>iov[i].iov_base + skip
        z.avail_in = <uint32_t>min(piece - skip, left)
        skip = 0
        left -= z.avail_in
        if left == 0:
            z.flush = SYNC_FLUSH
        if isal_deflate(z) != COMP_OK:
            return -1
        if z.avail_in or z.avail_out == 0:
            return 0
        if left == 0:
            break
    r.deflated.n = z.next_out - r.deflated.data - SYNC_BYTES
    return r.deflated.n < total


cdef int add_deflated(Ws* w, const Bytes* data) noexcept nogil:
    # One message, in frames that are not longer than the client likes them. 0, or -1: no memory.
    cdef size_t at = 0, piece, most = data.n
    cdef int first = OP_BINARY | RSV1_BIT
    if w.terms.frame_max and not w.terms.whole:
        most = w.terms.frame_max
    if bytes_reserve(&w.ahead, data.n + (data.n // most + 1) * WS_HEAD_MAX) != 0:
        return -1
    while at < data.n:
        piece = min(data.n - at, most)
        if at + piece == data.n:
            first |= FINAL_BIT
        w.ahead.n += frame_put(w, w.ahead.data + w.ahead.n, first, data.data + at, piece)
        first &= ~(OP_BINARY | RSV1_BIT)
        at += piece
    return 0


cdef int add_masked(Ws* w, const iovec* iov, int n, size_t skip, size_t total) noexcept nogil:
    # One message of what lies behind the first `skip` of these bytes, `total` of them. 0, or -1: no memory.
    cdef size_t begin, left = total, piece
    cdef int i
    if bytes_reserve(&w.ahead, total + WS_HEAD_MAX) != 0:
        return -1
    w.ahead.n += masked_head(w, w.ahead.data + w.ahead.n, FINAL_BIT | OP_BINARY, total)
    begin = w.ahead.n
    for i in range(n):
        if skip >= iov[i].iov_len:
            skip -= iov[i].iov_len
            continue
        piece = min(iov[i].iov_len - skip, left)
        bytes_add(&w.ahead, <const uint8_t*>iov[i].iov_base + skip, piece)
        skip = 0
        left -= piece
        if left == 0:
            break
    mask_copy(w.ahead.data + begin, w.ahead.data + begin, total, w.ahead.data + begin - 4, 0)
    return 0


# ---- writing

cdef struct Outgoing:
    # What one call is to write: parts, and which of them are heads of frames.
    iovec[IOV_MAX_USED + 2 * FRAMES_A_WRITE + 1] parts
    int n
    uint8_t[FRAMES_A_WRITE * WS_HEAD_MAX] heads
    size_t[FRAMES_A_WRITE] head_n
    size_t[FRAMES_A_WRITE] frames       # payloads; that of the first may have begun before
    int n_frames
    size_t asked


cdef void outgoing_add(Outgoing* o, const void* p, size_t n) noexcept nogil:
    if n:
        o.parts[o.n].iov_base = <void*>p
        o.parts[o.n].iov_len = n
        o.n += 1
        o.asked += n


cdef void outgoing_frames(Ws* w, Outgoing* o, const iovec* iov, int n, size_t skip, size_t total) noexcept nogil:
    # Puts the payload behind the first `skip` bytes, `total` of it, into frames, or into the rest of the one under way.
    cdef int i = 0
    cdef size_t size, piece
    cdef uint8_t* head
    while i < n and skip >= iov[i].iov_len:
        skip -= iov[i].iov_len
        i += 1
    if w.offered or w.owed:
        total = w.offered or w.owed
    while total and o.n_frames < FRAMES_A_WRITE:
        size = total
        o.head_n[o.n_frames] = 0
        if w.owed and o.n_frames == 0:
            size = w.owed
        else:
            if w.terms.frame_max:
                size = min(size, <size_t>w.terms.frame_max)
            head = o.heads + o.n_frames * WS_HEAD_MAX
            o.head_n[o.n_frames] = frame_head(head, FINAL_BIT | OP_BINARY, size)
            outgoing_add(o, head, o.head_n[o.n_frames])
        o.frames[o.n_frames] = size
        o.n_frames += 1
        total -= size
        while size:
            piece = min(iov[i].iov_len - skip, size)
            outgoing_add(o, <const uint8_t*>iov[i].iov_base + skip, piece)
            skip += piece
            size -= piece
            if skip == iov[i].iov_len:
                skip = 0
                i += 1


cdef ssize_t outgoing_wrote(Conn* c, const Outgoing* o, size_t n) noexcept nogil:
    # n bytes are out: those ahead, then frames. Returns how many of them are payload, or -ENOMEM.
    cdef Ws* w = c.ws
    cdef size_t ahead = w.ahead.n - w.ahead_at, part, payload = 0
    cdef int i
    if n > 0:
        c.output.wrote = WROTE_SOME
    part = min(ahead, n)
    w.ahead_at += part
    n -= part
    w.offered = 0
    for i in range(o.n_frames):
        w.offered += o.frames[i]
    if w.ahead_at == w.ahead.n:
        w.ahead.n = w.ahead_at = 0
        if w.ahead.cap > AHEAD_KEPT:
            bytes_free(&w.ahead)
    for i in range(o.n_frames):
        if n == 0:
            break
        if n < o.head_n[i]:
            if bytes_add(&w.ahead, o.heads + i * WS_HEAD_MAX + n, o.head_n[i] - n) != 0:
                return -ENOMEM
            w.owed = o.frames[i]
            break
        n -= o.head_n[i]
        part = min(n, o.frames[i])
        n -= part
        payload += part
        w.offered -= part
        w.owed = o.frames[i] - part
    return payload


cdef ssize_t ws_prepare(Conn* c, const iovec* iov, int n, size_t skip, size_t left) noexcept nogil:
    # At the border of a frame: control frames go out, and what is compressed or masked. How many bytes of the payload it took
    # for these; -1: no memory.
    cdef Ws* w = c.ws
    cdef int rc = 0
    if w.behind.n:
        if bytes_add(&w.ahead, w.behind.data, w.behind.n) != 0:
            return -1
        bytes_free(&w.behind)
    if w.terms.message_max:
        left = min(left, w.terms.message_max)
    if left > DEFLATE_LEAST and w.terms.deflate and not is_noise(iov, n, skip, left):
        rc = deflate_all(c.reactor, iov, n, skip, left)
        if rc < 0 or (rc == 1 and add_deflated(w, &c.reactor.deflated) != 0):
            return -1
    if rc == 0 and w.terms.masks and left:
        rc = 1
        if add_masked(w, iov, n, skip, left) != 0:
            return -1
    return left if rc else 0


cdef ssize_t ws_write(Conn* c, const iovec* iov, int n) noexcept nogil:
    cdef Ws* w = c.ws
    cdef Outgoing o
    cdef size_t total = 0, done = 0, left
    cdef ssize_t wrote, payload, took
    cdef int i
    for i in range(n):
        total += iov[i].iov_len
    while True:
        left = total - done
        if w.owed == 0 and w.offered == 0 and w.ahead_at == w.ahead.n:
            took = ws_prepare(c, iov, n, done, left)
            if took < 0:
                return -ENOMEM
            if took:
                done += <size_t>took
                left = 0
        elif w.owed == 0 and w.offered == 0 and (w.terms.deflate or w.terms.masks):
            left = 0        # it is compressed or masked once what goes ahead is out
        o.n = o.n_frames = 0
        o.asked = 0
        outgoing_add(&o, w.ahead.data + w.ahead_at, w.ahead.n - w.ahead_at)
        outgoing_frames(w, &o, iov, n, done, left)
        if o.asked == 0:
            c.output.owes = False
            return done
        c.output.owes = True
        wrote = w.below.write(c, o.parts, o.n)
        payload = outgoing_wrote(c, &o, <size_t>max(wrote, 0))
        if payload < 0:
            return payload
        done += <size_t>payload
        if wrote < 0:
            return done if done else wrote
        if <size_t>wrote < o.asked:
            c.output.owes = w.ahead_at < w.ahead.n or w.behind.n != 0
            return done if done else -EAGAIN
