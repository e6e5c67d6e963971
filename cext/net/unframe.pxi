# WebSocket's way in: frames of the other side taken apart, unmasked and inflated, without the engine lock. What is wrong with
# them is said as nats-server says it.

cdef enum:
    OP_CONTINUATION = 0
    OP_TEXT = 1
    OP_BINARY = 2
    OP_CLOSE = 8
    OP_HEARTBEAT = 9
    OP_HEARTBEAT_BACK = 10
    FINAL_BIT = 128
    RSV1_BIT = 64           # the message is compressed
    RSV23_BITS = 48
    MASK_BIT = 128
    LENGTH_16 = 126         # two bytes with the length follow
    LENGTH_64 = 127
    STATUS_PROTOCOL = 1002
    STATUS_UTF8 = 1007
    PIECE = 4096            # of a compressed message, unmasked at a time
    BEHIND_MAX = 65536      # bytes of answers to pings for a client that takes none; what is more is not answered
    SQUEEZED_LIMIT = 67108864
    SQUEEZED_MULTIPLE = 8   # of max_payload: the most bytes of a compressed message
    DEFLATE_BITS = -15      # no header, a window of 32 KB
    TRAILER = 9

# What the client has left out of its message's end (RFC 7692, 7.2.1), and a last block, so that the end can be told.
cdef uint8_t[TRAILER] DEFLATE_END
memcpy(DEFLATE_END, b"\x00\x00\xff\xff\x01\x00\x00\xff\xff", TRAILER)


cdef void ws_fail(Ws* w, const char* trouble, bint tell) noexcept nogil:
    # It is to be cut; tell: the client is told why.
    snprintf(w.trouble, WS_TROUBLE, b"%s", trouble)
    if tell:
        ws_close_frame(w, STATUS_PROTOCOL, <const uint8_t*>trouble, strlen(trouble))


cdef void ws_fail_number(Ws* w, const char* form, int64_t number) noexcept nogil:
    cdef char text[WS_TROUBLE]
    snprintf(text, WS_TROUBLE, form, <long long>number)
    ws_fail(w, text, True)


cdef void ws_unmask(Ws* w, uint8_t* to, const uint8_t* p, size_t n) noexcept nogil:
    # Copies the next n bytes of a frame's payload; `to` may overlap with what is behind it, from where it goes on.
    if not w.frame.keyed:
        memmove(to, p, n)
        return
    mask_copy(to, p, n, w.frame.key, w.frame.key_at)
    w.frame.key_at = (w.frame.key_at + <uint32_t>(n & 3)) & 3


# ---- heads

cdef inline uint32_t head_size(const Ws* w) noexcept nogil:
    # Bytes of the head that has begun to come, as far as is known.
    cdef uint32_t n = 2
    if w.frame.n_head >= 2:
        if w.frame.head[1] & 127 == LENGTH_16:
            n += 2
        elif w.frame.head[1] & 127 == LENGTH_64:
            n += 8
        if w.frame.head[1] & MASK_BIT:
            n += 4
    return n


cdef void head_begun(Ws* w) noexcept nogil:
    # Its first two bytes say what comes and whether that may be.
    cdef int first = w.frame.head[0], second = w.frame.head[1]
    cdef bint final = first & FINAL_BIT != 0, compressed = first & RSV1_BIT != 0
    w.frame.opcode = first & 15
    if first & RSV23_BITS:
        ws_fail(w, b"RSV2 and RSV3 must be clear", True)
    elif compressed and not w.terms.deflate:
        ws_fail(w, b"compressed frame received without negotiated permessage-deflate", True)
    elif w.terms.masked and not second & MASK_BIT:
        ws_fail(w, b"mask bit missing", True)
    elif w.frame.opcode == OP_CLOSE or w.frame.opcode == OP_HEARTBEAT or w.frame.opcode == OP_HEARTBEAT_BACK:
        if second & 127 > WS_CONTROL_MAX:
            ws_fail(w, b"control frame length bigger than maximum allowed of 125 bytes", True)
        elif not final:
            ws_fail(w, b"control frame does not have final bit set", True)
        elif compressed:
            ws_fail(w, b"control frame must not be compressed", True)
    elif w.frame.opcode == OP_TEXT or w.frame.opcode == OP_BINARY:
        if w.message.under_way:
            ws_fail(w, b"new message started before final frame for previous message was received", True)
        else:
            w.frame.final = final
            w.message.under_way = True
            w.message.compressed = compressed
    elif w.frame.opcode == OP_CONTINUATION:
        if not w.message.under_way or compressed:
            ws_fail(w, b"invalid continuation frame", True)
        else:
            w.frame.final = final
    else:
        ws_fail_number(w, b"unknown opcode %lld", w.frame.opcode)


cdef void head_ended(Ws* w) noexcept nogil:
    # All of it is there: the payload follows.
    cdef uint32_t i, at = 2
    w.frame.rest = w.frame.head[1] & 127
    if w.frame.rest == LENGTH_16:
        w.frame.rest = <uint64_t>w.frame.head[2] << 8 | w.frame.head[3]
        at = 4
    elif w.frame.rest == LENGTH_64:
        w.frame.rest = 0
        for i in range(2, 10):
            w.frame.rest = w.frame.rest << 8 | w.frame.head[i]
        at = 10
        if w.frame.rest >> 63:
            ws_fail(w, b"invalid 64-bit payload length", True)
            return
    w.frame.keyed = w.frame.head[1] & MASK_BIT != 0
    if w.frame.keyed:
        memcpy(w.frame.key, w.frame.head + at, 4)
        w.frame.key_at = 0
    w.frame.n_head = 0
    w.frame.under_way = True
    w.frame.n_control = 0


cdef size_t take_head(Ws* w, const uint8_t* p, size_t n) noexcept nogil:
    # Returns how many bytes of p[0:n] belong to the head.
    cdef size_t at = 0
    cdef uint32_t size, more
    while at < n:
        size = head_size(w)
        more = <uint32_t>min(<size_t>(size - w.frame.n_head), n - at)
        memcpy(w.frame.head + w.frame.n_head, p + at, more)
        w.frame.n_head += more
        at += more
        if w.frame.n_head == 2:
            head_begun(w)
            if w.trouble[0]:
                break
        if w.frame.n_head == head_size(w):
            head_ended(w)
            break
    return at


# ---- control frames

cdef bint status_is_valid(int code) noexcept nogil:
    if code < 1000 or code >= 5000 or 1016 <= code < 3000:
        return False
    return code != 1004 and code != 1005 and code != 1006 and code != 1015


cdef bint is_utf8(const uint8_t* p, size_t n) noexcept nogil:
    # Neither longer than need be, nor half of a pair, nor beyond the last character.
    cdef size_t i = 0, more, k
    cdef uint32_t v
    while i < n:
        v = p[i]
        i += 1
        if v < 0x80:
            continue
        if 0xc2 <= v < 0xe0:
            more = 1
            v &= 0x1f
        elif 0xe0 <= v < 0xf0:
            more = 2
            v &= 0x0f
        elif 0xf0 <= v < 0xf5:
            more = 3
            v &= 0x07
        else:
            return False
        if n - i < more:
            return False
        for k in range(more):
            if p[i + k] & 0xc0 != 0x80:
                return False
            v = v << 6 | (p[i + k] & 0x3f)
        i += more
        if (more == 2 and v < 0x800) or 0xd800 <= v < 0xe000 or (more == 3 and not 0x10000 <= v <= 0x10ffff):
            return False
    return True


cdef void take_control(Ws* w) noexcept nogil:
    # A control frame is whole.
    cdef const char* wrong = b"invalid utf8 body in close frame"
    cdef int status
    if w.frame.opcode == OP_HEARTBEAT:
        if w.behind.n <= BEHIND_MAX:
            ws_control_frame(w, OP_HEARTBEAT_BACK, w.frame.control, w.frame.n_control)
    elif w.frame.opcode == OP_CLOSE:
        if w.frame.n_control == 1:
            ws_fail(w, b"close frame payload cannot be 1 byte", True)
            return
        if w.frame.n_control == 0:
            ws_close_frame(w, 0, w.frame.control, 0)
        else:
            status = w.frame.control[0] << 8 | w.frame.control[1]
            if not status_is_valid(status):
                ws_fail_number(w, b"invalid close status code %lld", status)
                return
            if is_utf8(w.frame.control + 2, w.frame.n_control - 2):
                ws_close_frame(w, status, w.frame.control + 2, w.frame.n_control - 2)
            else:
                ws_close_frame(w, STATUS_UTF8, <const uint8_t*>wrong, strlen(wrong))
        w.ended = True


# ---- compressed messages

cdef void inflate_begin(Conn* c) noexcept nogil:
    # A compressed message begins.
    cdef Ws* w = c.ws
    cdef Reactor* r = c.reactor
    w.message.squeezed = 0
    w.message.inflated = 0
    w.message.trailer = 0
    w.message.drained = False
    w.message.flooded = False
    if r.inflater != NULL:
        w.message.inflating = r.inflater
        r.inflater = NULL
        inflateReset(w.message.inflating)
        return
    w.message.inflating = <z_stream*>calloc(1, sizeof(z_stream))
    if w.message.inflating == NULL or inflateInit2(w.message.inflating, DEFLATE_BITS) != Z_OK:
        free(w.message.inflating)
        w.message.inflating = NULL
        ws_fail(w, b"no memory", False)


cdef void inflate_over(Conn* c) noexcept nogil:
    # Its state is kept for the next message of whatever connection.
    cdef Ws* w = c.ws
    if w.message.inflating == NULL:
        return
    if c.reactor.inflater == NULL:
        c.reactor.inflater = w.message.inflating
    else:
        inflateEnd(w.message.inflating)
        free(w.message.inflating)
    w.message.inflating = NULL


cdef size_t inflate_some(Ws* w, const uint8_t* p, size_t n, uint8_t* to, size_t room, size_t* made) noexcept nogil:
    # Inflates p[0:n] as far as there is room; returns how much it took, *made: how much it gave.
    cdef z_stream* z = w.message.inflating
    cdef size_t most
    cdef int rc
    made[0] = 0
    if w.message.drained:
        return n            # what comes behind the end of the data means nothing
    if room == 0:
        w.message.flooded = True
        return 0
    z.next_in = <uint8_t*>p
    z.avail_in = <unsigned int>n
    z.next_out = to
    z.avail_out = <unsigned int>room
    rc = inflate(z, Z_NO_FLUSH)
    made[0] = room - z.avail_out
    w.message.flooded = z.avail_out == 0 and rc != Z_STREAM_END
    if rc == Z_STREAM_END:
        w.message.drained = True
        z.avail_in = 0
    elif (rc != Z_OK and rc != Z_BUF_ERROR) or (z.avail_in and z.avail_out):
        ws_fail(w, b"flate: corrupt input", False)
    if w.message.max_payload >= 0 and w.message.inflated + made[0] > <uint64_t>w.message.max_payload:
        most = <size_t>(<uint64_t>w.message.max_payload - w.message.inflated)
        made[0] = most
        ws_fail(w, b"maximum payload exceeded", False)
    w.message.inflated += made[0]
    return n - z.avail_in


cdef size_t inflate_frame(Ws* w, const uint8_t* p, size_t n, uint8_t* to, size_t room, size_t* made) noexcept nogil:
    # p[0:n] is of the frame's payload; as inflate_some.
    cdef uint8_t plain[PIECE]
    cdef uint32_t key_at
    cdef uint64_t limit = SQUEEZED_LIMIT
    cdef size_t at = 0, piece, took, gave
    if w.message.max_payload >= 0 and <uint64_t>w.message.max_payload * SQUEEZED_MULTIPLE < limit:
        limit = <uint64_t>w.message.max_payload * SQUEEZED_MULTIPLE
    made[0] = 0
    while at < n and not w.message.flooded and not w.trouble[0]:
        piece = min(n - at, <size_t>PIECE)
        key_at = w.frame.key_at
        ws_unmask(w, plain, p + at, piece)
        took = inflate_some(w, plain, piece, to + made[0], room - made[0], &gave)
        w.frame.key_at = (key_at + <uint32_t>(took & 3)) & 3
        made[0] += gave
        at += took
        w.message.squeezed += took
        if w.message.squeezed > limit and not w.trouble[0]:
            ws_fail(w, b"maximum payload exceeded", False)
    return at


cdef size_t inflate_end(Conn* c, uint8_t* to, size_t room) noexcept nogil:
    # The message's last frame is over: what its data still give.
    cdef Ws* w = c.ws
    cdef size_t made
    w.message.trailer += <uint32_t>inflate_some(w, DEFLATE_END + w.message.trailer, TRAILER - w.message.trailer, to, room, &made)
    if w.trouble[0] or w.message.flooded:
        return made
    if w.message.drained:
        inflate_over(c)
        w.message.under_way = False
    else:
        ws_fail(w, b"unexpected EOF", False)
    return made


# ---- frames

cdef size_t ws_take(Conn* c, const uint8_t* p, size_t n, uint8_t* to, size_t room, size_t* taken) noexcept nogil:
    # Takes frames apart as long as there is room; *taken: how much of p[0:n] it took, returns how much it gave. `to` may be p
    # itself where nothing is compressed: what comes out is never longer than what went in.
    cdef Ws* w = c.ws
    cdef size_t at = 0, made = 0, part, gave
    while not w.trouble[0] and not w.ended:
        if w.message.flooded:
            inflate_some(w, NULL, 0, to + made, room - made, &gave)
            made += gave
            if w.message.flooded:
                break
            continue
        if w.frame.under_way and w.frame.rest == 0:
            if w.frame.opcode >= OP_CLOSE:
                take_control(w)
            elif w.frame.final and w.message.compressed:
                made += inflate_end(c, to + made, room - made)
                if w.message.under_way:
                    continue
            elif w.frame.final:
                w.message.under_way = False
            w.frame.under_way = False
            continue
        if at == n:
            break
        if not w.frame.under_way:
            at += take_head(w, p + at, n - at)
            if w.frame.under_way and w.message.compressed and (w.frame.opcode == OP_TEXT or w.frame.opcode == OP_BINARY):
                inflate_begin(c)
            continue
        part = <size_t>min(<uint64_t>(n - at), w.frame.rest)
        if w.frame.opcode >= OP_CLOSE:
            ws_unmask(w, w.frame.control + w.frame.n_control, p + at, part)
            w.frame.n_control += <uint32_t>part
        elif w.message.compressed:
            part = inflate_frame(w, p + at, part, to + made, room - made, &gave)
            made += gave
        else:
            part = min(part, room - made)
            if part == 0:
                break
            ws_unmask(w, to + made, p + at, part)
            made += part
        at += part
        w.frame.rest -= part
    taken[0] = at
    return made


cdef ssize_t ws_last(Ws* w) noexcept nogil:
    # Nothing comes any more: what reading says then.
    return -EIO if w.trouble[0] else 0


cdef ssize_t ws_read(Conn* c, void* p, size_t n) noexcept nogil:
    cdef Ws* w = c.ws
    cdef Reactor* r = c.reactor
    cdef ssize_t got = -EAGAIN
    cdef size_t made, taken
    if w.trouble[0] or w.ended:
        return ws_last(w)
    if w.held.n or w.message.flooded:
        made = ws_take(c, w.held.data + w.held_at if w.held.n else NULL, w.held.n - w.held_at, <uint8_t*>p, n, &taken)
        w.held_at += taken
        if w.held_at == w.held.n:
            bytes_free(&w.held)
            w.held_at = 0
        c.input.more = w.held.n != 0 or w.message.flooded or w.below_more
    elif not w.terms.deflate:
        got = w.below.read(c, p, n)
        if got <= 0:
            return got
        made = ws_take(c, <const uint8_t*>p, <size_t>got, <uint8_t*>p, n, &taken)
    else:
        if reactor_packed(r) == NULL:
            return -ENOMEM
        got = w.below.read(c, r.packed, PACKED_SIZE)
        w.below_more = c.input.more
        if got <= 0:
            return got
        made = ws_take(c, r.packed, <size_t>got, <uint8_t*>p, n, &taken)
        if taken < <size_t>got and not w.trouble[0] and not w.ended:
            if bytes_add(&w.held, r.packed + taken, <size_t>got - taken) != 0:
                return -ENOMEM
        c.input.more = c.input.more or w.held.n != 0 or w.message.flooded
    c.output.owes = c.output.owes or w.behind.n != 0
    if w.trouble[0] or w.ended:
        c.input.more = made > 0
        return made if made else ws_last(w)
    return made if made else -EAGAIN
