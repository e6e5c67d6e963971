# Rows under way: a window of frames that were sent and not acked yet, and the parser of what the server says to them.
#
# Row n has the reply subject <inbox><n>. Frames stay in a ring until all rows before them are acked too, so that they can be
# sent again as they are.

cdef enum:
    SLOT_NEW = 0                # to be sent
    SLOT_SENT = 1
    SLOT_ACKED = 2
    SLOT_REFUSED = 3

cdef enum:
    REFUSALS_BYTES = 256 << 10  # of those that are told; the others only keep their state
    UNPARSED_BYTES = 128 << 20  # above any max_payload
    DOUBLES_ALL = 8             # so many duplicates are told one by one, then the 16th, the 32nd ...
    DOUBLE_START = 4096         # bytes of its payload
    DOUBLES_BYTES = 256 << 10


cdef struct AckSlot:
    uint64_t at                 # in the ring
    uint32_t size
    int state
    int64_t sent_at             # monotonic ns


cdef struct Window:
    AckSlot* slots              # of row n: n % max_rows
    uint32_t max_rows
    bint empty_is_ack           # of the rows of an atomic batch, before its last
    uint8_t* ring
    uint64_t capacity
    uint64_t max_bytes
    uint64_t head               # where the next frame goes
    uint64_t held               # bytes of rows base..next
    uint64_t base               # the first row that is not done
    uint64_t unsent             # no row before it has to be sent
    uint64_t next
    uint64_t part               # bytes of row `unsent` that were sent
    uint32_t pongs              # owed to the server
    uint32_t pong_part
    uint64_t acked
    uint64_t duplicates
    uint64_t last_seq
    Bytes doubled               # some of the rows that the stream had already: Doubled, stream, payload's start
    Bytes refusals              # row u64, size u32, what the server said
    Bytes said                  # the text of its -ERR
    Bytes rest                  # received and not parsed yet


cdef inline AckSlot* slot_of(Window* w, uint64_t n) noexcept nogil:
    return &w.slots[n % w.max_rows]


cdef void window_advance(Window* w) noexcept nogil:
    # Forgets what is done at the window's start.
    while w.base < w.unsent and slot_of(w, w.base).state == SLOT_ACKED:
        w.held -= slot_of(w, w.base).size
        w.base += 1
    if w.base == w.next:
        w.head = 0


cdef uint8_t* window_room(Window* w, uint64_t size) noexcept nogil:
    # Where a frame of that size may be written, NULL while the window is full.
    cdef uint64_t tail
    if w.next - w.base >= w.max_rows:
        return NULL
    if w.base == w.next:
        w.head = 0
        return w.ring if size <= w.capacity else NULL
    if w.held + size > w.max_bytes:
        return NULL
    tail = slot_of(w, w.base).at
    if w.head > tail:
        if size <= w.capacity - w.head:
            return w.ring + w.head
        w.head = 0
    return w.ring + w.head if size < tail - w.head else NULL


cdef void window_take(Window* w, uint8_t* at, uint64_t size) noexcept nogil:
    # The frame that was written where window_room said is the next row's.
    cdef AckSlot* slot = slot_of(w, w.next)
    slot.at = <uint64_t>(at - w.ring)
    slot.size = <uint32_t>size
    slot.state = SLOT_NEW
    slot.sent_at = 0
    w.head = slot.at + size
    w.held += size
    w.next += 1


cdef uint64_t window_to_send(Window* w, uint64_t limit, uint64_t* at) noexcept nogil:
    # How many bytes of frames, one behind the other from `at` on, are to be sent.
    cdef uint64_t n, size
    cdef AckSlot* slot
    if w.part == 0:
        while w.unsent < w.next and slot_of(w, w.unsent).state != SLOT_NEW:
            w.unsent += 1
        window_advance(w)
    if w.unsent == w.next:
        return 0
    slot = slot_of(w, w.unsent)
    at[0] = slot.at + w.part
    size = slot.size - w.part
    n = w.unsent + 1
    while n < w.next and size < limit:
        slot = slot_of(w, n)
        if slot.state != SLOT_NEW or slot.at != at[0] + size:
            break
        size += slot.size
        n += 1
    return size


cdef void window_sent(Window* w, uint64_t size, int64_t now) noexcept nogil:
    # That many of them are gone.
    cdef AckSlot* slot
    while size:
        slot = slot_of(w, w.unsent)
        if size < slot.size - w.part:
            w.part += size
            return
        size -= slot.size - w.part
        w.part = 0
        slot.sent_at = now
        if slot.state == SLOT_NEW:
            slot.state = SLOT_SENT
        w.unsent += 1


cdef uint64_t window_again(Window* w, int state, int64_t before) noexcept nogil:
    # Rows of that state that were sent by then are to be sent again; how many. They may stand behind `unsent` too,
    # which has gone back to the first row when others were to be sent again.
    cdef uint64_t n, found = 0
    cdef AckSlot* slot
    for n in range(w.base, w.next):
        slot = slot_of(w, n)
        if slot.state == state and slot.sent_at <= before:
            slot.state = SLOT_NEW
            found += 1
    w.unsent = w.base
    return found


# ---- what the server says --------------------------------------------------------------------------------------

cdef struct PubAck:
    bint error
    bint duplicate
    bint has_seq
    uint64_t seq
    Span stream


cdef struct Doubled:
    # A row that a stream had already, in the stream's words at `seq`.
    uint64_t row
    uint64_t seq
    uint64_t size               # of its payload
    uint32_t n_stream
    uint32_t n_start


cdef inline const uint8_t* json_blank(const uint8_t* p, const uint8_t* end) noexcept nogil:
    while p < end and (p[0] == c' ' or p[0] == c'\t' or p[0] == c'\n' or p[0] == c'\r'):
        p += 1
    return p


cdef const uint8_t* json_string(const uint8_t* p, const uint8_t* end, Span* text) noexcept nogil:
    # Behind the string that starts at p, NULL if none does; escapes are left in.
    cdef const uint8_t* start = p + 1
    if p >= end or p[0] != c'"':
        return NULL
    p += 1
    while p < end and p[0] != c'"':
        p += 2 if p[0] == c'\\' else 1
    if p >= end:
        return NULL
    text[0] = span(start, <uint32_t>(p - start))
    return p + 1


cdef const uint8_t* json_value(const uint8_t* p, const uint8_t* end, Span* value) noexcept nogil:
    # Behind the value that starts at p: a string, a word, or anything between brackets.
    cdef const uint8_t* start = p
    cdef uint32_t depth = 0
    cdef Span text
    while p < end:
        if p[0] == c'"':
            p = json_string(p, end, &text)
            if p == NULL:
                return NULL
            continue
        if p[0] == c'{' or p[0] == c'[':
            depth += 1
        elif p[0] == c'}' or p[0] == c']':
            if depth == 0:
                break
            depth -= 1
        elif p[0] == c',' and depth == 0:
            break
        p += 1
    if depth or p == start or p >= end:
        return NULL
    value[0] = span(start, <uint32_t>(p - start))
    return p


cdef bint puback_read(Span text, PubAck* ack) noexcept nogil:
    # False for what is none.
    cdef const uint8_t* end = text.p + text.n
    cdef const uint8_t* p = json_blank(text.p, end)
    cdef Span key, value
    cdef uint32_t i
    memset(ack, 0, sizeof(PubAck))
    if p >= end or p[0] != c'{':
        return False
    p += 1
    while True:
        p = json_string(json_blank(p, end), end, &key)
        if p == NULL:
            return False
        p = json_blank(p, end)
        if p >= end or p[0] != c':':
            return False
        p = json_value(json_blank(p + 1, end), end, &value)
        if p == NULL:
            return False
        if key.n == 3 and memcmp(key.p, b"seq", 3) == 0:
            ack.has_seq = True
            for i in range(value.n):
                if not c'0' <= value.p[i] <= c'9':
                    break
                ack.seq = ack.seq * 10 + (value.p[i] - c'0')
        elif key.n == 6 and memcmp(key.p, b"stream", 6) == 0:
            ack.stream = span(value.p + 1, value.n - 2) if value.n > 2 and value.p[0] == c'"' else span(value.p, 0)
        elif key.n == 5 and memcmp(key.p, b"error", 5) == 0:
            ack.error = True
        elif key.n == 9 and memcmp(key.p, b"duplicate", 9) == 0:
            ack.duplicate = value.p[0] == c't'
        if p[0] != c',':
            break
        p += 1
    return p[0] == c'}' and (ack.has_seq or ack.error)


cdef int refused(Window* w, uint64_t n, Span said) noexcept nogil:
    slot_of(w, n).state = SLOT_REFUSED
    if w.refusals.n + 12 + said.n > REFUSALS_BYTES:
        return 0
    if bytes_add(&w.refusals, &n, 8) < 0 or bytes_add(&w.refusals, &said.n, 4) < 0:
        return -1
    return bytes_add(&w.refusals, said.p, said.n)


cdef Span payload_of(Window* w, const AckSlot* slot) noexcept nogil:
    # Of the frame that the slot holds, which was made by frame_write.
    cdef const uint8_t* p = w.ring + slot.at
    cdef const uint8_t* stop = <const uint8_t*>memchr(p, c'\r', slot.size)
    cdef Span words[6]
    cdef uint64_t head = 0, total = 0
    cdef int n
    if stop == NULL:
        return span(p, 0)
    n = words_of(p, stop, words, 6)
    if n < 4 or not number_of(words[n - 1], &total) or (p[0] == c'H' and not number_of(words[n - 2], &head)):
        return span(p, 0)
    if head > total or <uint64_t>(stop + 2 - p) + total > slot.size:
        return span(p, 0)
    return span(stop + 2 + head, <uint32_t>(total - head))


cdef int doubled(Window* w, uint64_t n, const PubAck* ack) noexcept nogil:
    # Row n is acked as one that the stream has already: the first few are told, and ever fewer of those behind.
    cdef Doubled d
    cdef Span data
    w.duplicates += 1
    if w.duplicates > DOUBLES_ALL and w.duplicates & (w.duplicates - 1):
        return 0
    data = payload_of(w, slot_of(w, n))
    d.row = n
    d.seq = ack.seq
    d.size = data.n
    d.n_stream = ack.stream.n
    d.n_start = min(data.n, <uint32_t>DOUBLE_START)
    if w.doubled.n + sizeof(Doubled) + d.n_stream + d.n_start > DOUBLES_BYTES:
        return 0
    if bytes_add(&w.doubled, &d, sizeof(Doubled)) < 0 or bytes_add(&w.doubled, ack.stream.p, d.n_stream) < 0:
        return -1
    return bytes_add(&w.doubled, data.p, d.n_start)


cdef int answered(Window* w, uint64_t n, Span header, Span data) noexcept nogil:
    # One message to a row's reply subject; one to a row that is done already says nothing new.
    cdef PubAck ack
    cdef AckSlot* slot
    if n < w.base or n >= w.next:
        return 0
    slot = slot_of(w, n)
    if slot.sent_at == 0 or slot.state == SLOT_ACKED:
        return 0
    if w.empty_is_ack and header.n == 0 and data.n == 0:
        slot.state = SLOT_ACKED
        return 0
    if header.n and data.n == 0:
        return refused(w, n, header)
    if not puback_read(data, &ack) or ack.error:
        return refused(w, n, data)
    slot.state = SLOT_ACKED
    w.acked += 1
    if ack.seq > w.last_seq:
        w.last_seq = ack.seq
    return doubled(w, n, &ack) if ack.duplicate else 0


cdef int64_t message_read(Window* w, Span inbox, Span line, Span behind) noexcept nogil:
    # MSG or HMSG: how many bytes `behind` the line are its body, -1 if it is none, -2 no memory, -3 not all there.
    cdef Span words[6]
    cdef uint64_t head = 0, total = 0, row = 0
    cdef bint with_head = line.p[0] == c'H'
    cdef int n = words_of(line.p, line.p + line.n, words, 6)
    if not 4 <= n - with_head <= 5 or not number_of(words[n - 1], &total) or total > UNPARSED_BYTES:
        return -1
    if with_head and (not number_of(words[n - 2], &head) or head > total):
        return -1
    if behind.n < total + 2:
        return -3
    if words[1].n > inbox.n and memcmp(words[1].p, inbox.p, inbox.n) == 0:
        if number_of(span(words[1].p + inbox.n, words[1].n - inbox.n), &row):
            if answered(w, row, span(behind.p, <uint32_t>head), span(behind.p + head, <uint32_t>(total - head))) < 0:
                return -2
    return <int64_t>total + 2


cdef int64_t acks_parse(Window* w, Span inbox, const uint8_t* start, uint64_t size) noexcept nogil:
    # How many bytes were understood; the rest needs more behind it. -1: not what a server says, -2: no memory.
    cdef const uint8_t* p = start
    cdef const uint8_t* end = start + size
    cdef const uint8_t* stop
    cdef int64_t body
    cdef Span line
    while p < end:
        stop = <const uint8_t*>memchr(p, c'\n', end - p)
        if stop == NULL:
            break
        line = span(p, <uint32_t>(stop - p))
        if line.n and p[line.n - 1] == c'\r':
            line.n -= 1
        stop += 1
        if (line.n > 4 and memcmp(p, b"MSG ", 4) == 0) or (line.n > 5 and memcmp(p, b"HMSG ", 5) == 0):
            body = message_read(w, inbox, line, span(stop, <uint32_t>min(<uint64_t>(end - stop), <uint64_t>UINT32_MAX)))
            if body == -3:
                break
            if body < 0:
                return body
            p = stop + body
            continue
        if line.n >= 4 and memcmp(p, b"PING", 4) == 0:
            w.pongs += 1
        elif line.n >= 4 and memcmp(p, b"-ERR", 4) == 0:
            if w.said.n == 0 and bytes_add(&w.said, p + 4, line.n - 4) < 0:
                return -2
        elif not (line.n >= 3 and memcmp(p, b"+OK", 3) == 0
                  or line.n >= 4 and (memcmp(p, b"PONG", 4) == 0 or memcmp(p, b"INFO", 4) == 0)):
            return -1
        p = stop
    window_advance(w)
    return p - start


cdef int window_received(Window* w, Span inbox, const uint8_t* data, uint64_t size) noexcept nogil:
    # Whatever came from the server. -1: not what a server says, -2: no memory.
    cdef int64_t used
    if w.rest.n == 0:
        used = acks_parse(w, inbox, data, size)
        if used < 0:
            return <int>used
        return -2 if bytes_add(&w.rest, data + used, size - used) < 0 else 0
    if w.rest.n > UNPARSED_BYTES:
        return -1
    if bytes_add(&w.rest, data, size) < 0:
        return -2
    used = acks_parse(w, inbox, w.rest.data, w.rest.n)
    if used < 0:
        return <int>used
    w.rest.n -= used
    memmove(w.rest.data, w.rest.data + used, w.rest.n)
    return 0


cdef void window_lost(Window* w) noexcept nogil:
    # The connection is gone: everything that is not acked has to be sent on another one.
    w.part = 0
    w.pongs = 0
    w.pong_part = 0
    w.rest.n = 0
    w.said.n = 0
    w.refusals.n = 0
    window_again(w, SLOT_SENT, INT64_MAX)
    window_again(w, SLOT_REFUSED, INT64_MAX)


cdef void window_free(Window* w) noexcept nogil:
    free(w.slots)
    free(w.ring)
    bytes_free(&w.doubled)
    bytes_free(&w.refusals)
    bytes_free(&w.said)
    bytes_free(&w.rest)
    memset(w, 0, sizeof(Window))
