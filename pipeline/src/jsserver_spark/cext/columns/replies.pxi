# What a server sends to a reader, as rows: answers to batched direct gets (ADR-31) and what a consumer delivers.
#
# Bytes are received straight into the parser's buffer; what is not parsed yet stays in it. An answer is known by the
# subscription it comes to. A direct get's message has the stored header block with the server's lines at its end; these
# are taken off from the end, so that stored lines of the same names stay. A stream's mirrors answer its direct gets too:
# of their answers nothing is taken.

cdef enum:
    REPLY_LINE_MAX = 1 << 20            # an INFO with many URLs is long; nothing else is
    REPLY_MESSAGE_MAX = 80 << 20        # above what any server lets in, with the headers that it adds
    REPLY_BUFFER = 1 << 20
    REPLY_TAIL_MIN = 256 << 10          # less room than this is made more before the next bytes
    REPLY_SLOTS = 2
    REPLY_MISDIRECTED = 421             # the status of an answer that another stream gave

cdef enum ReplyRc:
    REPLY_OK = 1
    REPLY_MORE = 0                      # the rest of a line or message has to come first
    REPLY_FULL = 2                      # the next message finds no room in its batch
    REPLY_BAD_LINE = -1
    REPLY_BAD_SIZES = -2
    REPLY_BAD_END = -3
    REPLY_BAD_HEADER = -4
    REPLY_BAD_ACK = -5
    REPLY_TOO_LONG = -6
    REPLY_TOO_MANY = -7
    REPLY_LOST = -8
    REPLY_NO_MEMORY = -9

REPLY_ERRORS = {
    REPLY_BAD_LINE: "a line is none of the protocol",
    REPLY_BAD_SIZES: "the sizes of a message are wrong",
    REPLY_BAD_END: "a message does not end where its size says",
    REPLY_BAD_HEADER: "an answer to a direct get does not say which message it holds",
    REPLY_BAD_ACK: "a consumer's message does not say which it is",
    REPLY_TOO_LONG: "a line or message is longer than any may be",
    REPLY_TOO_MANY: "more messages came than were asked for",
    REPLY_LOST: "a consumer's message was lost on the way",
}


cdef struct Incoming:
    # One message as it lies in the buffer.
    Span subject
    uint64_t sid
    Span reply
    Span header
    Span data


cdef struct Where:
    # Which message of the stream it is.
    Span stream                         # of a direct get
    Span subject
    uint64_t seq
    uint64_t pending
    int64_t ts
    Span header                         # as stored


cdef struct Slot:
    # An answer under way.
    RowSet* rows                        # NULL: nothing is expected
    uint64_t sid
    uint64_t after                      # rows up to here are there already
    uint64_t last                       # rows behind this are not wanted
    uint64_t seen                       # the last sequence that came, wanted or not
    uint64_t pending                    # messages behind that one, as the server said last
    uint64_t delivered                  # the consumer's own count
    uint64_t messages                   # that came
    uint64_t n_bytes                    # of their subjects, headers and payloads
    uint64_t unused                     # messages that a pull request ended without
    int status                          # that ended it; a pull request's has to be cleared before more is taken
    uint32_t n_text
    uint8_t text[128]                   # the status in the server's words


cdef struct ReplyParser:
    uint8_t* data
    size_t n
    size_t cap
    size_t need                         # bytes that the message at the start has in all, where known
    bint deliveries                     # of a consumer, else answers to direct gets
    bint headers_only
    Span stream                         # whose direct gets count
    bint filtered
    Filter filter                       # rows of other subjects are left out
    Slot slots[REPLY_SLOTS]
    uint64_t pings
    uint32_t n_refusal
    uint8_t refusal[256]                # the text of the last -ERR
    uint8_t second[19]                  # the last time seen, to the second, and what it is
    int64_t second_ns


# ---- numbers and times ---------------------------------------------------------------------------------------------

cdef inline bint number_of(Span s, uint64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint32_t i, digit
    if s.n == 0 or s.n > 19:
        return False
    for i in range(s.n):
        digit = <uint32_t>s.p[i] - c'0'
        if digit > 9:                   # also what lies before '0': the difference has no sign
            return False
        value = value * 10 + digit
    out[0] = value
    return True


cdef int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept nogil:
    # Days since 1970 of a date of the Gregorian calendar (civil_from_days turned round).
    year -= 1 if month <= 2 else 0
    cdef int64_t era = (year if year >= 0 else year - 399) // 400
    cdef int64_t of_era = year - era * 400
    cdef int64_t of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


cdef bint second_of(const uint8_t* p, int64_t* ns) noexcept nogil:
    # Nanoseconds since 1970 of 2006-01-02T15:04:05.
    cdef uint64_t v[6]
    if not (number_of(span(p, 4), &v[0]) and p[4] == c'-' and number_of(span(p + 5, 2), &v[1]) and p[7] == c'-'
            and number_of(span(p + 8, 2), &v[2]) and p[10] == c'T' and number_of(span(p + 11, 2), &v[3])
            and p[13] == c':' and number_of(span(p + 14, 2), &v[4]) and p[16] == c':'
            and number_of(span(p + 17, 2), &v[5])):
        return False
    if not (1 <= v[1] <= 12 and 1 <= v[2] <= 31 and v[3] < 24 and v[4] < 60 and v[5] < 61 and 1678 <= v[0] <= 2261):
        return False
    ns[0] = (days_of(<int64_t>v[0], <int64_t>v[1], <int64_t>v[2]) * 86400
             + <int64_t>(v[3] * 3600 + v[4] * 60 + v[5])) * 1000000000
    return True


cdef bint time_of(ReplyParser* r, Span s, int64_t* ns) noexcept nogil:
    # Nanoseconds since 1970 of an RFC 3339 time in UTC.
    cdef int64_t fraction = 0
    cdef uint32_t i, digits
    if s.n < 20 or s.n > 30 or s.p[s.n - 1] != c'Z':
        return False
    if memcmp(s.p, r.second, 19) != 0:
        if not second_of(s.p, &r.second_ns):
            memset(r.second, 0, 19)
            return False
        memcpy(r.second, s.p, 19)
    if s.n > 20:
        if s.p[19] != c'.' or s.n == 21:
            return False
        digits = s.n - 21
        for i in range(9):
            fraction *= 10
            if i < digits:
                if not c'0' <= s.p[20 + i] <= c'9':
                    return False
                fraction += s.p[20 + i] - c'0'
    ns[0] = r.second_ns + fraction
    return True


# ---- direct gets ---------------------------------------------------------------------------------------------------

cdef inline bint line_off(Span* block, const char* name, uint32_t n_name, Span* value) noexcept nogil:
    # Takes the last line off the block, if it is `name`: the block then ends before it.
    cdef const uint8_t* stop
    if block.n < 2 or block.p[block.n - 2] != c'\r' or block.p[block.n - 1] != c'\n':
        return False
    stop = <const uint8_t*>memrchr(block.p, c'\n', block.n - 2)
    if stop == NULL:
        return False
    value[0] = span(stop + 1, <uint32_t>(block.p + block.n - stop - 3))
    if not span_starts(value[0], name, n_name):
        return False
    value[0] = span(value.p + n_name, value.n - n_name)
    block.n = <uint32_t>(stop + 1 - block.p)
    return True


cdef Span block_closed(Span lines) noexcept nogil:
    # The stored block again: the server's lines began where its blank line was. Empty when nothing was stored.
    cdef uint8_t* end = <uint8_t*>lines.p + lines.n
    if lines.n <= 10:
        return span(lines.p, 0)
    end[0] = c'\r'
    end[1] = c'\n'
    return span(lines.p, lines.n + 2)


cdef bint where_of_direct(ReplyParser* r, Span header, Where* w) noexcept nogil:
    cdef Span value, time
    if header.n < 14 or header.p[header.n - 2] != c'\r' or header.p[header.n - 1] != c'\n':
        return False
    header.n -= 2
    w.pending = 0
    if line_off(&header, b"Nats-Last-Sequence: ", 20, &value) and not (
            line_off(&header, b"Nats-Num-Pending: ", 18, &value) and number_of(value, &w.pending)):
        return False
    if not (line_off(&header, b"Nats-Time-Stamp: ", 17, &time) and line_off(&header, b"Nats-Sequence: ", 15, &value)
            and number_of(value, &w.seq) and line_off(&header, b"Nats-Subject: ", 14, &w.subject)
            and line_off(&header, b"Nats-Stream: ", 13, &w.stream) and time_of(r, time, &w.ts)):
        return False
    w.header = block_closed(header)
    return True


# ---- a consumer's deliveries ---------------------------------------------------------------------------------------

cdef bint where_of_delivery(ReplyParser* r, Slot* s, const Incoming* m, Where* w) noexcept nogil:
    # $JS.ACK.<stream>.<consumer>.<tries>.<seq>.<count>.<time>.<pending>, or with <domain>.<account>before the stream
    # and a token at the end.
    cdef Span part[12]
    cdef uint32_t n = 0, at = 0
    cdef uint64_t ts, count
    cdef Tokens t = tokens_of(m.reply)
    while n < 12:
        part[n] = span(t.p, t.n)
        n += 1
        if t.last:
            break
        tokens_cut(&t)
    if n != 9 and n < 11:
        return False
    at = 5 if n == 9 else 7
    if not (number_of(part[at], &w.seq) and number_of(part[at + 1], &count) and number_of(part[at + 2], &ts)
            and number_of(part[at + 3], &w.pending)):
        return False
    w.ts = <int64_t>ts
    w.subject = m.subject
    w.header = m.header
    if r.headers_only:
        return size_off(&w.header) and delivery_follows(s, count)
    return delivery_follows(s, count)


cdef inline bint delivery_follows(Slot* s, uint64_t count) noexcept nogil:
    s.delivered += 1
    return s.delivered == count


cdef bint size_off(Span* header) noexcept nogil:
    # Without the Nats-Msg-Size that a headers_only consumer adds.
    cdef Span lines = header[0], value
    if lines.n < 14:
        return False
    lines.n -= 2
    if not line_off(&lines, b"Nats-Msg-Size: ", 15, &value):
        return False
    header[0] = block_closed(lines)
    return True


# ---- messages ------------------------------------------------------------------------------------------------------

cdef void status_taken(Slot* s, Span header) noexcept nogil:
    # An answer's last message says why it is the last.
    cdef const uint8_t* stop = <const uint8_t*>memchr(header.p, c'\r', header.n)
    cdef Span value
    cdef uint64_t code
    cdef uint32_t n = <uint32_t>(stop - header.p) if stop != NULL else header.n
    s.status = 500
    if n >= 12 and number_of(span(header.p + 9, 3), &code):
        s.status = <int>code
    s.n_text = min(max(n, 9) - 9, <uint32_t>sizeof(s.text))
    memcpy(s.text, header.p + 9, s.n_text)
    value = header_get(header, b"Nats-Num-Pending")
    if not number_of(value, &s.pending) and s.status == 404:
        s.pending = 0
    value = header_get(header, b"Nats-Pending-Messages")
    if not number_of(value, &s.unused):
        s.unused = 0


cdef inline bint is_status(Span header) noexcept nogil:
    return header.n >= 12 and memcmp(header.p, b"NATS/1.0 ", 9) == 0


cdef int row_taken(ReplyParser* r, Slot* s, const Where* w, Span data) noexcept nogil:
    s.messages += 1
    s.n_bytes += w.subject.n + <uint64_t>w.header.n + data.n
    s.pending = w.pending
    if w.seq <= s.seen:
        return REPLY_BAD_ACK if r.deliveries else REPLY_BAD_HEADER
    s.seen = w.seq
    if w.seq <= s.after or w.seq > s.last or (r.filtered and not filter_matches(&r.filter, w.subject)):
        return REPLY_OK
    if s.rows.n >= s.rows.max_rows or s.rows.n_bytes >= BYTES_MAX:
        return REPLY_TOO_MANY
    return REPLY_OK if rows_add(s.rows, w.subject, w.seq, w.ts, w.header, data) == 0 else REPLY_NO_MEMORY


cdef int direct_taken(ReplyParser* r, Slot* s, const Incoming* m) noexcept nogil:
    cdef Where w
    if where_of_direct(r, m.header, &w):
        if not span_eq(w.stream, r.stream):
            s.status = REPLY_MISDIRECTED
            s.n_text = min(w.stream.n, <uint32_t>sizeof(s.text))
            memcpy(s.text, w.stream.p, s.n_text)
            return REPLY_OK
        return row_taken(r, s, &w, m.data)
    if not is_status(m.header):
        return REPLY_BAD_HEADER
    status_taken(s, m.header)
    return REPLY_OK


cdef int delivery_taken(ReplyParser* r, Slot* s, const Incoming* m) noexcept nogil:
    cdef Where w
    if span_starts(m.reply, b"$JS.ACK.", 8):
        if rows_full(s.rows):
            return REPLY_FULL
        if not where_of_delivery(r, s, m, &w):
            return REPLY_LOST if s.delivered > 1 else REPLY_BAD_ACK
        return row_taken(r, s, &w, m.data)
    if not is_status(m.header):
        return REPLY_BAD_ACK
    status_taken(s, m.header)
    return REPLY_OK


cdef int incoming_taken(ReplyParser* r, const Incoming* m) noexcept nogil:
    cdef int i
    for i in range(REPLY_SLOTS):
        if r.slots[i].rows != NULL and r.slots[i].sid == m.sid:
            if r.deliveries:
                return REPLY_FULL if r.slots[i].status else delivery_taken(r, &r.slots[i], m)
            return REPLY_OK if r.slots[i].status else direct_taken(r, &r.slots[i], m)
    return REPLY_OK


# ---- lines ---------------------------------------------------------------------------------------------------------

cdef int words_of(const uint8_t* p, const uint8_t* end, Span* words, int most) noexcept nogil:
    # The words of a line, a blank between them, or -1 when there are more than `most`.
    cdef const uint8_t* stop
    cdef int n = 0
    while p < end:
        if n == most:
            return -1
        stop = <const uint8_t*>memchr(p, c' ', end - p)
        if stop == NULL:
            stop = end
        words[n] = span(p, <uint32_t>(stop - p))
        n += 1
        p = stop + 1
    return n


cdef int message_parsed(ReplyParser* r, const uint8_t* p, const uint8_t* stop, const uint8_t* end, bint headed,
                        const uint8_t** rest) noexcept nogil:
    # A message whose control line is p..stop (its CRLF excluded); the body starts behind that.
    cdef Span word[5]
    cdef Incoming m
    cdef uint64_t head = 0, total = 0
    cdef const uint8_t* body = stop + 2
    cdef int rc, n = words_of(p, stop, word, 5)
    cdef int least = 4 if headed else 3
    if n != least and n != least + 1:
        return REPLY_BAD_LINE
    m.subject = word[0]
    m.reply = word[2] if n > least else span(p, 0)
    if not number_of(word[1], &m.sid) or not number_of(word[n - 1], &total):
        return REPLY_BAD_SIZES
    if (headed and not number_of(word[n - 2], &head)) or head > total:
        return REPLY_BAD_SIZES
    if total > REPLY_MESSAGE_MAX:
        return REPLY_TOO_LONG
    if <uint64_t>(end - body) < total + 2:
        r.need = <size_t>(body - p) + 8 + total + 2
        return REPLY_MORE
    if body[total] != c'\r' or body[total + 1] != c'\n':
        return REPLY_BAD_END
    m.header = span(body, <uint32_t>head)
    m.data = span(body + head, <uint32_t>(total - head))
    rc = incoming_taken(r, &m)
    if rc == REPLY_OK:
        rest[0] = body + total + 2
    return rc


cdef int line_parsed(ReplyParser* r, const uint8_t* p, const uint8_t* end, const uint8_t** rest) noexcept nogil:
    cdef const uint8_t* stop = <const uint8_t*>memchr(p, c'\n', end - p) if end > p else NULL
    cdef Span line
    if stop == NULL:
        return REPLY_TOO_LONG if end - p > REPLY_LINE_MAX else REPLY_MORE
    if stop == p or (stop - 1)[0] != c'\r' or stop - p > REPLY_LINE_MAX:
        return REPLY_BAD_LINE
    line = span(p, <uint32_t>(stop - p - 1))
    if span_starts(line, b"HMSG ", 5):
        return message_parsed(r, p + 5, stop - 1, end, True, rest)
    if span_starts(line, b"MSG ", 4):
        return message_parsed(r, p + 4, stop - 1, end, False, rest)
    rest[0] = stop + 1
    if span_starts(line, b"PING", 4):
        r.pings += 1
        return REPLY_OK
    if span_starts(line, b"-ERR", 4):
        r.n_refusal = min(line.n, <uint32_t>sizeof(r.refusal))
        memcpy(r.refusal, line.p, r.n_refusal)
        return REPLY_OK
    if span_starts(line, b"PONG", 4) or span_starts(line, b"INFO ", 5) or span_starts(line, b"+OK", 3):
        return REPLY_OK
    return REPLY_BAD_LINE


cdef int replies_parse(ReplyParser* r) noexcept nogil:
    # Takes what can be taken and keeps the rest; what stopped it.
    cdef const uint8_t* p = r.data
    cdef const uint8_t* end = r.data + r.n
    cdef const uint8_t* rest = p
    cdef int rc
    r.need = 0
    while True:
        rc = line_parsed(r, p, end, &rest)
        if rc != REPLY_OK:
            break
        p = rest
    r.n = <size_t>(end - p)
    if p != r.data and r.n:
        memmove(r.data, p, r.n)
    return rc


cdef int replies_room(ReplyParser* r) noexcept nogil:
    # Makes room for the next bytes: for all of a message that has begun.
    cdef size_t want = max(r.need, r.n + REPLY_TAIL_MIN)
    cdef uint8_t* grown
    if want > r.cap:
        grown = <uint8_t*>realloc(r.data, max(want, <size_t>REPLY_BUFFER))
        if grown == NULL:
            return -1
        r.data = grown
        r.cap = max(want, <size_t>REPLY_BUFFER)
    return 0


# ---- the Python face -----------------------------------------------------------------------------------------------

class ReplyError(Exception):
    """What came is not what a server sends."""


Answer = namedtuple("Answer", "messages bytes seen pending unused status text")


cdef class Replies:
    cdef ReplyParser r
    cdef list kept                      # what the parser points into
    cdef list owners                    # of the slots' rows
    cdef Py_ssize_t views
    cdef readonly bint full

    def __cinit__(self, *, str stream="", bint deliveries=False, bint headers_only=False, filters=()):
        cdef bytes name = stream.encode()
        self.kept = [name, *(f.encode() for f in filters)]
        self.owners = [None] * REPLY_SLOTS
        self.r.stream = span_of(name)
        self.r.deliveries = deliveries
        self.r.headers_only = headers_only
        self.take_filters(self.kept[1:])
        if replies_room(&self.r) < 0:
            raise MemoryError

    cdef take_filters(self, list filters):
        cdef Span* patterns
        cdef Py_ssize_t i
        cdef int rc
        if not filters:
            return
        patterns = <Span*>malloc(len(filters) * sizeof(Span))
        if patterns == NULL:
            raise MemoryError
        for i in range(len(filters)):
            patterns[i] = span_of(filters[i])
        rc = filter_init(&self.r.filter, patterns, <uint32_t>len(filters))
        free(patterns)
        if rc < 0:
            raise MemoryError
        self.r.filtered = True

    def __dealloc__(self):
        free(self.r.data)
        filter_free(&self.r.filter)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.r.data + self.r.n, <Py_ssize_t>(self.r.cap - self.r.n), 0, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.views -= 1

    def expect(self, int slot, uint64_t sid, Rows rows not None, uint64_t after, uint64_t last):
        if not 0 <= slot < REPLY_SLOTS:
            raise ValueError(f"slots are 0 to {REPLY_SLOTS - 1}, not {slot}")
        cdef Slot* s = &self.r.slots[slot]
        memset(s, 0, sizeof(Slot))
        self.owners[slot] = rows
        s.rows = &rows.r
        s.sid = sid
        s.after = after
        s.last = last

    def ends_before(self, int slot, uint64_t seq):
        """The first sequence that is not wanted of this answer any more: `seq`, or behind what came already."""
        if not 0 <= slot < REPLY_SLOTS:
            raise ValueError(f"slots are 0 to {REPLY_SLOTS - 1}, not {slot}")
        cdef Slot* s = &self.r.slots[slot]
        seq = max(seq, s.seen + 1)
        s.last = min(s.last, seq - 1)
        return seq

    def answer(self, int slot):
        if not 0 <= slot < REPLY_SLOTS:
            raise ValueError(f"slots are 0 to {REPLY_SLOTS - 1}, not {slot}")
        cdef Slot* s = &self.r.slots[slot]
        text = s.text[:s.n_text].decode(errors="replace")
        return Answer(s.messages, s.n_bytes, s.seen, s.pending, s.unused, s.status, text)

    def clear_status(self, int slot):
        if not 0 <= slot < REPLY_SLOTS:
            raise ValueError(f"slots are 0 to {REPLY_SLOTS - 1}, not {slot}")
        self.r.slots[slot].status = 0

    def take_refusal(self):
        cdef bytes text = self.r.refusal[:self.r.n_refusal]
        self.r.n_refusal = 0
        return text[5:].decode(errors="replace").strip()

    def take_pings(self):
        pings = self.r.pings
        self.r.pings = 0
        return pings

    def feed(self, size_t size):
        cdef int rc
        if self.views:
            raise BufferError("the buffer is in use")
        if size > self.r.cap - self.r.n:
            raise ValueError(f"{size} bytes do not fit into {self.r.cap - self.r.n}")
        self.r.n += size
        with nogil:
            rc = replies_parse(&self.r)
        self.full = rc == REPLY_FULL
        if rc < 0:
            self.failed(rc)
        if replies_room(&self.r) < 0:
            raise MemoryError

    cdef failed(self, int rc):
        cdef bytes start = self.r.data[:<Py_ssize_t>min(self.r.n, <size_t>120)]
        if rc == REPLY_NO_MEMORY:
            raise MemoryError
        raise ReplyError(f"{REPLY_ERRORS[rc]}: {start!r}")
