# The Python face of publishing: columns to read, and the rows that are under way.

cdef enum:
    MAX_ROWS_UNDER_WAY = 1 << 20
    FRAME_EXTRA = CONTROL_LINE_MAX + 16

ROW_FAULTS = {
    ROW_NO_SUBJECT: "it has no subject",
    ROW_SUBJECT_EMPTY_TOKEN: "its subject has an empty token",
    ROW_SUBJECT_BLANK: "there is a blank or a control character in its subject",
    ROW_SUBJECT_WILDCARD: "its subject has a wildcard",
    ROW_SUBJECT_LONG: "its subject is too long",
    ROW_HEADER_NAME: "a header's name is empty or null, or has a blank, a colon or a control character in it",
    ROW_HEADER_VALUE: "there is a line break in a header's value",
    ROW_HEADER_BLOCK: "its headers are no header block (NATS/1.0, lines, an empty line)",
    ROW_TOO_LARGE: "it is larger than the server's max_payload",
    ROW_BROKEN: "the offsets of an Arrow column are not in order",
}
HEADER_LAYOUTS = {"grouped": HEADERS_GROUPED, "pairs": HEADERS_PAIRS, "block": HEADERS_BLOCK}


Double = namedtuple("Double", "row stream seq size start")


cdef class Offsets:
    # The buffers of an Arrow array with offsets: texts, or lists.
    cdef Texts t
    cdef Py_buffer views[3]
    cdef int n_views

    def __cinit__(self, uint64_t n, uint64_t at, bint wide, valid, offsets, *, data=None, uint64_t children=0):
        cdef uint64_t width = 8 if wide else 4
        if at > INT32_MAX or n > INT32_MAX:
            raise ValueError("an array of more than 2^31 rows")
        self.t.r.n = n
        self.t.r.at = at
        self.t.r.wide = wide
        self.t.r.end = children
        if valid is not None:
            self.t.r.valid = self.view(valid, (at + n + 7) // 8)
        if n:
            self.t.r.offsets = self.view(offsets, (at + n + 1) * width)
        if data is not None:
            self.t.data = self.view(data, 0)
            self.t.r.end = <uint64_t>self.views[self.n_views - 1].len

    cdef const uint8_t* view(self, source, uint64_t least) except? NULL:
        cdef Py_buffer* v = &self.views[self.n_views]
        PyObject_GetBuffer(source, v, PyBUF_SIMPLE)
        self.n_views += 1
        if <uint64_t>v.len < least:
            raise ValueError(f"an Arrow buffer of {v.len} bytes where {least} are needed")
        return <const uint8_t*>v.buf

    def __dealloc__(self):
        for i in range(self.n_views):
            PyBuffer_Release(&self.views[i])


cdef class Outbox:
    # Rows under way; the owner of a connection sends `to_send` and hands in what it receives.
    cdef Window w
    cdef Sources s
    cdef Constants c
    cdef uint32_t met           # of the headers that are left out, those that rows brought
    cdef Bytes head
    cdef uint64_t row           # of the batch: the next one
    cdef bint sending_pong
    cdef list kept              # what spans point into
    cdef list columns           # of the batch

    def __cinit__(self, bytes inbox not None, uint32_t max_rows, uint64_t max_bytes, uint64_t max_payload, *,
                  bytes subject=b"", bytes lines=b"", id_prefix=None, left_out=(), uint64_t first_row=0,
                  bint atomic=False, bint stored=False):
        if not 0 < max_rows <= MAX_ROWS_UNDER_WAY:
            raise ValueError(f"max_rows must be 1 to {MAX_ROWS_UNDER_WAY}, not {max_rows}")
        if max_bytes > BYTES_MAX * 4 or max_payload > BYTES_MAX:
            raise ValueError(f"max_bytes or max_payload is too large: {max_bytes}, {max_payload}")
        if len(inbox) > 256 or len(left_out) > LEFT_OUT_MAX:
            raise ValueError("the inbox is too long, or too many headers are left out")
        self.kept = [inbox, subject, lines, id_prefix, *left_out]
        self.c.inbox = span_of(inbox)
        self.c.subject = span_of(subject)
        self.c.lines = span_of(lines)
        self.c.max_payload = max_payload
        if id_prefix is not None:
            self.c.with_ids = True
            self.c.id_prefix = span_of(id_prefix)
        self.c.met = &self.met
        self.c.stored = stored
        for name in left_out:
            self.c.left_out[self.c.n_left_out] = span_of(name)
            self.c.n_left_out += 1
        self.w.base = self.w.unsent = self.w.next = first_row
        self.w.empty_is_ack = atomic
        self.w.max_rows = max_rows
        self.w.max_bytes = max_bytes
        self.w.capacity = max_bytes + max_payload + FRAME_EXTRA
        self.w.slots = <AckSlot*>calloc(max_rows, sizeof(AckSlot))
        self.w.ring = <uint8_t*>malloc(self.w.capacity)
        if self.w.slots == NULL or self.w.ring == NULL:
            raise MemoryError

    def __dealloc__(self):
        window_free(&self.w)
        bytes_free(&self.head)

    # ---- rows ------------------------------------------------------------------------------------------------

    def load(self, uint64_t n, *, Offsets subject=None, Offsets data=None, headers=None, added=()):
        cdef Sources* s = &self.s
        cdef Offsets column
        if self.row != s.n:
            raise ValueError("the rows before these are not all taken")
        memset(s, 0, sizeof(Sources))
        self.row = 0
        self.columns = [subject, data, headers, added]
        if len(added) > ADDED_MAX:
            raise ValueError("too many headers are added")
        if subject is not None:
            s.has_subject = True
            s.subject = subject.t
        if data is not None:
            s.has_data = True
            s.data = data.t
        if headers is not None:
            layout, entries, names, groups, values = headers
            self.load_headers(layout, entries, names, groups, values)
        for name, texts in added:
            column = texts
            s.added[s.n_added].name = span_of(name)
            s.added[s.n_added].values = column.t
            s.n_added += 1
        s.n = n

    cdef load_headers(self, layout, Offsets entries, Offsets names, Offsets groups, Offsets values):
        self.s.form = HEADER_LAYOUTS[layout]
        self.s.values = values.t
        if self.s.form != HEADERS_BLOCK:
            self.s.entries = entries.t.r
            self.s.names = names.t
        if self.s.form == HEADERS_GROUPED:
            self.s.groups = groups.t.r

    def drop(self):
        memset(&self.s, 0, sizeof(Sources))
        self.row = 0
        self.columns = None

    def fill(self, uint64_t most):
        cdef Frame f
        cdef uint8_t* room
        cdef uint64_t made = 0
        cdef int bad = ROW_OK
        with nogil:
            while self.row < self.s.n and made < most and self.w.next - self.w.base < self.w.max_rows:
                bad = frame_make(&f, &self.head, &self.s, &self.c, self.row, self.w.next)
                if bad != ROW_OK:
                    break
                room = window_room(&self.w, f.size)
                if room == NULL:
                    break
                frame_write(&f, room)
                window_take(&self.w, room, f.size)
                made += f.size
                self.row += 1
        if bad == ROW_NO_MEMORY:
            raise MemoryError
        return bad

    def faults(self):
        cdef Frame f
        cdef uint64_t i
        cdef int bad = ROW_OK
        cdef bytearray found = bytearray(self.s.n)
        cdef uint8_t[::1] out = found
        with nogil:
            for i in range(self.s.n):
                bad = frame_make(&f, &self.head, &self.s, &self.c, i, self.w.next)
                if bad == ROW_NO_MEMORY:
                    break
                out[i] = <uint8_t>bad
        if bad == ROW_NO_MEMORY:
            raise MemoryError
        return found

    @property
    def taken(self):
        return self.row == self.s.n

    @property
    def next_row(self):
        return self.w.next

    def subject_of(self, uint64_t n):
        cdef Span subject = span(NULL, 0)
        cdef AckSlot* slot
        cdef const uint8_t* p
        cdef const uint8_t* stop
        if n == self.w.next:
            if self.row < self.s.n and frame_subject(&self.s, &self.c, self.row, &subject) == ROW_BROKEN:
                return b""
            return (<const char*>subject.p)[:subject.n] if subject.n else b""
        if not self.w.base <= n < self.w.next:
            return b""
        slot = slot_of(&self.w, n)
        p = self.w.ring + slot.at
        p += 5 if p[0] == c'H' else 4
        stop = <const uint8_t*>memchr(p, c' ', slot.size - 5)
        return (<const char*>p)[:stop - p] if stop != NULL else b""

    # ---- the wire --------------------------------------------------------------------------------------------

    def to_send(self, uint64_t limit):
        cdef uint64_t at = 0, size
        if self.w.part == 0 and self.w.pongs:
            self.sending_pong = True
            return memoryview(b"PONG\r\n")[self.w.pong_part:]
        self.sending_pong = False
        size = window_to_send(&self.w, limit, &at)
        return PyMemoryView_FromMemory(<char*>self.w.ring + at, <Py_ssize_t>size, PyBUF_READ) if size else None

    def sent(self, uint64_t size, int64_t now):
        if not self.sending_pong:
            window_sent(&self.w, size, now)
            return
        self.w.pong_part += <uint32_t>size
        if self.w.pong_part >= 6:
            self.w.pong_part = 0
            self.w.pongs -= 1

    def received(self, data, uint64_t size):
        cdef Py_buffer view
        cdef int bad
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if size > <uint64_t>view.len:
                raise ValueError("more than the buffer holds")
            with nogil:
                bad = window_received(&self.w, self.c.inbox, <const uint8_t*>view.buf, size)
        finally:
            PyBuffer_Release(&view)
        if bad == -2:
            raise MemoryError
        return bad == 0

    def lost(self):
        window_lost(&self.w)

    def again(self, int64_t before):
        if self.w.part:
            return -1
        return window_again(&self.w, SLOT_SENT, before)

    def refused_again(self):
        if self.w.part:
            return -1
        return window_again(&self.w, SLOT_REFUSED, INT64_MAX)

    def refusals(self):
        cdef uint64_t at = 0, n
        cdef uint32_t size
        cdef list out = []
        while at < self.w.refusals.n:
            memcpy(&n, self.w.refusals.data + at, 8)
            memcpy(&size, self.w.refusals.data + at + 8, 4)
            at += 12
            out.append((n, (<const char*>self.w.refusals.data + at)[:size]))
            at += size
        self.w.refusals.n = 0
        return out

    def doubles(self):
        cdef Doubled d
        cdef uint64_t at = 0
        cdef list out = []
        cdef const char* p
        while at < self.w.doubled.n:
            memcpy(&d, self.w.doubled.data + at, sizeof(Doubled))
            p = <const char*>self.w.doubled.data + at + sizeof(Doubled)
            at += sizeof(Doubled) + d.n_stream + d.n_start
            out.append(Double(d.row, p[:d.n_stream].decode(errors="replace"), d.seq, d.size,
                              p[d.n_stream:d.n_stream + d.n_start]))
        self.w.doubled.n = 0
        return out

    @property
    def said(self):
        return (<const char*>self.w.said.data)[:self.w.said.n] if self.w.said.n else b""

    @property
    def left_out(self):
        return [(<const char*>self.c.left_out[i].p)[:self.c.left_out[i].n]
                for i in range(self.c.n_left_out) if self.met >> i & 1]

    @property
    def under_way(self):
        return self.w.next - self.w.base

    @property
    def crowded(self):
        return (self.w.next - self.w.base) * 4 > <uint64_t>self.w.max_rows * 3 or self.w.held > self.w.max_bytes // 4 * 3

    @property
    def first_row(self):
        return self.w.base

    @property
    def first_sent_at(self):
        cdef AckSlot* slot
        if self.w.base == self.w.next:
            return 0
        slot = slot_of(&self.w, self.w.base)
        return slot.sent_at if slot.state == SLOT_SENT else 0

    @property
    def acked(self):
        return self.w.acked

    @property
    def duplicates(self):
        return self.w.duplicates

    @property
    def last_seq(self):
        return self.w.last_seq


def rows_digest(uint64_t n, columns, first_row=None):
    cdef Texts texts[ADDED_MAX]
    cdef uint64_t total = 0, first = 0 if first_row is None else first_row
    cdef bint ordered = first_row is not None
    cdef int k = 0, bad
    cdef Offsets column
    if len(columns) > ADDED_MAX:
        raise ValueError("too many columns")
    for one in columns:
        column = one
        texts[k] = column.t
        k += 1
    with nogil:
        bad = digest_add(texts, k, n, ordered, first, &total)
    if bad:
        raise ValueError("the offsets of an Arrow column are not in order")
    return total
