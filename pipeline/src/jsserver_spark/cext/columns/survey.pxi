# Which messages of a stream are live, from its blocks alone: a replay of tombstones and limits, as a server's own recovery.
#
# Two servers, two ways: ours writes down what limits remove, by tombstones and in its markers, and applies them once at the
# end as a start does, by subject, by count, by bytes; nats-server (v2.14) by count, by bytes, by the messages' own lives, by
# subject, and passes over our markers. Without limits by count, bytes or subject only the tombstones are kept, else every
# message: 40 bytes, and its subject once.

cdef uint32_t NO_REC = 0xffffffffU
cdef int64_t CLOCK_SLACK = 600 * <int64_t>1000000000      # how far a clock may have stepped back inside a block

cdef enum:
    SIDE_LONG = 65535           # of a message whose size stands in its record only

cdef struct Rec:
    # A message as it was entered; size 0: it left.
    uint64_t seq
    int64_t ts
    int64_t life                # its own, in ns; 0: none
    uint32_t size
    uint32_t subject
    uint32_t next               # of its subject

cdef struct Word:
    # A subject.
    uint64_t hash
    size_t text
    uint32_t n
    uint32_t head               # its first message that may be live
    uint32_t tail
    uint32_t count              # live

cdef struct Surveyed:
    uint64_t number
    uint64_t first              # 0: the block has no messages
    uint64_t last
    int64_t min_ts
    int64_t max_ts
    uint64_t end                # of its good bytes
    uint64_t lost               # bytes that were passed over


cdef class Survey:
    """A replay of a stream's blocks, one after the other."""
    cdef Limits limits
    cdef bint ours
    cdef bint keep
    cdef Extent extent          # by our markers
    cdef bint lives
    cdef Rec* recs
    cdef size_t n
    cdef size_t cap
    cdef size_t live_from       # no live message before it
    cdef uint64_t msgs
    cdef uint64_t size
    cdef uint64_t last
    cdef Word* words
    cdef uint32_t n_words
    cdef uint32_t cap_words
    cdef uint32_t* slots        # open addressing: word + 1
    cdef uint32_t n_slots
    cdef Bytes texts
    cdef Bytes tombs            # u64 each
    cdef Bytes blocks           # Surveyed each
    cdef Plain plain
    cdef uint64_t key[4]
    cdef uint64_t pos
    cdef uint64_t dict          # the name of the dictionary; 0: there is none
    cdef uint64_t n_dict
    cdef Bytes ids              # u32 an id of the dictionary: its word + 1

    def __cinit__(self, *, int64_t max_msgs=-1, int64_t max_bytes=-1, int64_t max_age=0, int64_t max_msgs_per=-1,
                  bint trim=True, bint ours=False, bint lives=False):
        self.limits.max_msgs = max_msgs
        self.limits.max_bytes = max_bytes
        self.limits.max_age = max_age
        self.limits.max_msgs_per = max_msgs_per
        self.limits.trim = trim
        self.ours = ours
        self.lives = lives
        self.keep = counts(&self.limits)

    def __dealloc__(self):
        free(self.recs)
        free(self.words)
        free(self.slots)
        bytes_free(&self.texts)
        bytes_free(&self.ids)
        bytes_free(&self.tombs)
        bytes_free(&self.blocks)

    @property
    def last_seq(self):
        return self.last

    @property
    def first_seq(self):
        return self.extent.first

    @property
    def offset(self):
        return self.pos

    def begin(self, uint64_t number, Plain plain not None, bytes key not None):
        """The next block; `plain` must stay as it is until its walk is done."""
        if len(key) != 32:
            raise ValueError("a key has 32 bytes")
        self.open(number)
        memcpy(self.key, <const char*>key, 32)
        self.plain = plain
        self.pos = 0

    cdef int open(self, uint64_t number) except -1:
        cdef Surveyed b
        memset(&b, 0, sizeof(b))
        b.number = number
        b.min_ts = INT64_MAX
        b.max_ts = INT64_MIN
        if bytes_add(&self.blocks, &b, sizeof(b)) < 0:
            raise MemoryError
        return 0

    def walk(self):
        cdef int end
        with nogil:
            end = self.replay()
        if end < 0:
            raise MemoryError
        return end

    @property
    def rest_is_zero(self):
        return zeros(self.plain.b.data + self.pos, self.plain.b.n - self.pos)

    def skip(self):
        """Goes on at the next good record; the bytes passed over."""
        cdef uint64_t next
        with nogil:
            next = good_from(self.key, self.plain.b.data, self.plain.b.n, self.pos + 1)
        next -= self.pos
        self.pos += next
        self.block().lost += next
        return next

    cdef Surveyed* block(self) noexcept nogil:
        return <Surveyed*>(self.blocks.data + self.blocks.n - sizeof(Surveyed))

    cdef int replay(self) noexcept nogil:
        cdef const uint8_t* p = self.plain.b.data
        cdef uint64_t size = self.plain.b.n
        cdef Parsed r
        while self.pos < size:
            if not record_parse(p + self.pos, size - self.pos, &r) or not record_good(self.key, p + self.pos, &r):
                return WALK_BAD
            if r.raw_seq & REC_TOMB:
                if r.seq:
                    if self.tomb(r.seq) < 0:
                        return -1
                elif self.ours:
                    extent_of(p + self.pos, &r, &self.extent)
            elif not r.raw_seq & REC_ERASED and r.seq > self.last:
                if self.message(&r) < 0:
                    return -1
            self.pos += r.size
            self.block().end = self.pos
            self.last = max(self.last, r.seq)
        return WALK_DONE

    cdef int message(self, Parsed* r) noexcept nogil:
        cdef Surveyed* b = self.block()
        if b.first == 0:
            b.first = r.seq
        b.last = r.seq
        b.min_ts = min(b.min_ts, r.ts)
        b.max_ts = max(b.max_ts, r.ts)
        return self.enter(r) if self.keep else 0

    cdef int tomb(self, uint64_t seq) noexcept nogil:
        cdef size_t i
        if not self.keep:
            return bytes_add(&self.tombs, &seq, 8)
        i = self.find(seq)
        if i < self.n and self.recs[i].seq == seq:
            self.leave(i)
        return 0

    # ---- with every message kept -------------------------------------------------------------------------------

    cdef size_t find(self, uint64_t seq) noexcept nogil:
        # The first message of that sequence or a higher one.
        cdef size_t low = 0, high = self.n, mid
        while low < high:
            mid = (low + high) // 2
            if self.recs[mid].seq < seq:
                low = mid + 1
            else:
                high = mid
        return low

    cdef void leave(self, size_t i) noexcept nogil:
        cdef Rec* r = &self.recs[i]
        if r.size == 0:
            return
        self.msgs -= 1
        self.size -= r.size
        r.size = 0
        self.words[r.subject].count -= 1

    cdef int enter(self, Parsed* p) noexcept nogil:
        cdef Span ttl
        cdef int64_t id = self.word(p.subject), life = 0
        if id < 0:
            return -1
        if self.lives and p.header.n:
            ttl = header_get(p.header, b"Nats-TTL")
            life = ttl_nanos(ttl) if ttl.p != NULL else 0
        return self.place(p.seq, p.ts, p.size, <uint32_t>id, life)

    cdef int place(self, uint64_t seq, int64_t ts, uint32_t size, uint32_t id, int64_t life) noexcept nogil:
        cdef Rec* r
        cdef Word* w = &self.words[id]
        if self.room() < 0:
            return -1
        r = &self.recs[self.n]
        r.seq = seq
        r.ts = ts
        r.size = size
        r.subject = id
        r.next = NO_REC
        r.life = life
        if w.head == NO_REC:
            w.head = <uint32_t>self.n
        else:
            self.recs[w.tail].next = <uint32_t>self.n
        w.tail = <uint32_t>self.n
        w.count += 1
        self.n += 1
        self.msgs += 1
        self.size += size
        return 0

    cdef int room(self) noexcept nogil:
        # For one more message.
        cdef size_t cap
        cdef Rec* more
        if self.n >= NO_REC - 1:
            return -1
        if self.n == self.cap:
            cap = self.cap * 2 if self.cap else 4096
            more = <Rec*>realloc(self.recs, cap * sizeof(Rec))
            if more == NULL:
                return -1
            self.recs = more
            self.cap = cap
        return 0

    cdef void keep_subject(self, Word* w) noexcept nogil:
        # The newest messages of one subject stay.
        cdef uint32_t i = w.head
        while self.limits.max_msgs_per > 0 and w.count > <uint64_t>self.limits.max_msgs_per and i != NO_REC:
            self.leave(i)
            i = self.recs[i].next
        while i != NO_REC and self.recs[i].size == 0:
            i = self.recs[i].next
        w.head = i

    cdef void keep_count(self) noexcept nogil:
        cdef Limits* has = &self.limits
        while (has.trim and self.live_from < self.n
               and ((has.max_msgs > 0 and self.msgs > <uint64_t>has.max_msgs)
                    or (has.max_bytes > 0 and self.size > <uint64_t>has.max_bytes))):
            self.leave(self.live_from)
            self.live_from += 1

    cdef void keep_extent(self) noexcept nogil:
        while self.live_from < self.n and self.recs[self.live_from].seq < self.extent.first:
            self.leave(self.live_from)
            self.live_from += 1

    cdef void keep_subjects(self) noexcept nogil:
        cdef uint32_t i
        for i in range(self.n_words):
            self.keep_subject(&self.words[i])

    cdef int64_t word(self, Span subject) noexcept nogil:
        # The number of a subject, -1 without memory.
        cdef uint64_t hash = table_hash(subject.p, subject.n)
        cdef uint32_t cap, i
        cdef Word* w
        cdef Word* more
        if self.n_words * 2 >= self.n_slots and self.slots_grow() < 0:
            return -1
        i = <uint32_t>hash & (self.n_slots - 1)
        while self.slots[i]:
            w = &self.words[self.slots[i] - 1]
            if w.hash == hash and w.n == subject.n and memcmp(self.texts.data + w.text, subject.p, w.n) == 0:
                return self.slots[i] - 1
            i = (i + 1) & (self.n_slots - 1)
        if self.n_words == self.cap_words:
            cap = self.cap_words * 2 if self.cap_words else 256
            more = <Word*>realloc(self.words, <size_t>cap * sizeof(Word))
            if more == NULL:
                return -1
            self.words = more
            self.cap_words = cap
        w = &self.words[self.n_words]
        w.hash = hash
        w.text = self.texts.n
        w.n = subject.n
        w.head = NO_REC
        w.tail = NO_REC
        w.count = 0
        if bytes_add(&self.texts, subject.p, subject.n) < 0:
            return -1
        self.n_words += 1
        self.slots[i] = self.n_words
        return self.n_words - 1

    cdef int slots_grow(self) noexcept nogil:
        cdef uint32_t n = self.n_slots * 2 if self.n_slots else 1024, i, k
        cdef uint32_t* slots
        if n == 0:
            return -1
        slots = <uint32_t*>calloc(n, 4)
        if slots == NULL:
            return -1
        for k in range(self.n_words):
            i = <uint32_t>self.words[k].hash & (n - 1)
            while slots[i]:
                i = (i + 1) & (n - 1)
            slots[i] = k + 1
        free(self.slots)
        self.slots = slots
        self.n_slots = n
        return 0

    # ---- from our sidecars -------------------------------------------------------------------------------------

    def dictionary(self, data, stream):
        """What the subjects of sidecars stand for; without it none is taken."""
        cdef const uint8_t[::1] view = memoryview(data).cast("B")
        cdef bytes name = stream.encode()
        cdef Span key = span_of(name)
        cdef int64_t n = -1
        if len(view):
            with nogil:
                n = dict_words(&view[0], len(view), key, &self.dict, survey_word, <void*>self)
        self.n_dict = <uint64_t>max(n, <int64_t>0)
        if n < 0:
            self.dict = 0

    cdef int meaning(self, uint32_t id, Span text) noexcept nogil:
        # An id's subject; a later one replaces it.
        cdef uint32_t zero = 0, word
        cdef int64_t at = self.word(text)
        if at < 0 or id > 1 << 28:
            return -1
        while self.ids.n // 4 <= id:
            if bytes_add(&self.ids, &zero, 4) < 0:
                return -1
        word = <uint32_t>at + 1
        memcpy(self.ids.data + <size_t>id * 4, &word, 4)
        return 0

    def sided(self, uint64_t number, bytes side not None, uint64_t size, bytes end not None, stream, Plain plain=None):
        """The next block from its sidecar alone."""
        cdef bytes name = stream.encode()
        cdef SideBlock b
        cdef uint64_t last
        cdef uint32_t i
        cdef int rc
        if len(end) != 8:
            return SIDE_NONE
        memcpy(&last, <const char*>end, 8)
        if (not self.dict or not side_view(<const uint8_t*><const char*>side, len(side), span_of(name), size, last, &b)
                or b.dict != self.dict or b.needs > self.n_dict):
            return SIDE_NONE
        if plain is None:
            for i in range(b.n):
                if b.off[i] and b.len[i] == SIDE_LONG:
                    return SIDE_LOAD
        elif plain.b.n != size:
            return SIDE_NONE
        self.open(number)
        self.plain = plain
        with nogil:
            rc = self.side_replay(&b)
        if rc < 0:
            raise MemoryError
        return WALK_DONE

    cdef int side_replay(self, const SideBlock* b) noexcept nogil:
        cdef Surveyed* out = self.block()
        cdef uint32_t i = 0, k = 0, size, word
        cdef uint64_t seq
        self.extent.first = max(self.extent.first, b.extent.first)
        out.end = UINT64_MAX
        while True:
            while k < b.tombs and b.tomb[2 * k + 1] <= i:
                if self.tomb(b.tomb[2 * k]) < 0:
                    return -1
                self.last = max(self.last, b.tomb[2 * k])
                k += 1
            if i >= b.n:
                break
            seq = b.base + (b.rel[i] if b.rel != NULL else i)
            if out.first == 0:
                out.first = seq
            out.last = seq
            self.last = max(self.last, seq)
            if not self.keep:
                if b.off[i] == 0 and bytes_add(&self.tombs, &seq, 8) < 0:
                    return -1
            else:
                size = 0
                word = 0
                if b.off[i] and self.side_word(b.sid[i], &word):
                    size = b.len[i]
                    if size == SIDE_LONG:
                        size = record_at(&self.plain.b, b.off[i] - 1)
                if self.side_place(seq, b.last_ts, size, word) < 0:
                    return -1
            i += 1
        self.last = max(self.last, b.last)
        out.min_ts = b.first_ts - CLOCK_SLACK
        out.max_ts = b.last_ts + CLOCK_SLACK
        return 0

    cdef bint side_word(self, uint32_t id, uint32_t* word) noexcept nogil:
        if id == 0 or id >= self.ids.n // 4:
            return False
        memcpy(word, self.ids.data + <size_t>id * 4, 4)
        word[0] -= 1
        return word[0] != NO_REC

    cdef int side_place(self, uint64_t seq, int64_t ts, uint32_t size, uint32_t word) noexcept nogil:
        # A message that is live, or with size 0 one that is known to have left.
        if size:
            return self.place(seq, ts, size, word, 0)
        if self.room() < 0:
            return -1
        memset(&self.recs[self.n], 0, sizeof(Rec))
        self.recs[self.n].seq = seq
        self.recs[self.n].next = NO_REC
        self.n += 1
        return 0

    # ---- the result --------------------------------------------------------------------------------------------

    def finish(self, int64_t now):
        """The configured limits, as they hold at `now` (ns since 1970). Ages alone are left to the readers."""
        cdef size_t i
        self.plain = None
        if not self.keep:
            return
        with nogil:
            if self.ours:
                self.keep_extent()
                self.keep_subjects()
                self.keep_count()
            else:
                self.keep_count()
                for i in range(self.n):
                    if self.recs[i].life > 0 and elapsed(now, self.recs[i].ts) >= self.recs[i].life:
                        self.leave(i)
                self.keep_subjects()

    def gone(self):
        """What left: (True, pairs of first and last sequence, ascending) or (False, deleted sequences as they came)."""
        cdef Bytes out
        cdef uint64_t pair[2]
        cdef size_t i
        cdef bint open = False, bad = False
        if not self.keep:
            return False, taken(&self.tombs)
        memset(&out, 0, sizeof(out))
        for i in range(self.n):
            if self.recs[i].size:
                open = False
                continue
            if open:
                memcpy(out.data + out.n - 8, &self.recs[i].seq, 8)
                continue
            pair[0] = self.recs[i].seq
            pair[1] = self.recs[i].seq
            bad = bad or bytes_add(&out, pair, 16) < 0
            open = not bad
        if bad:
            bytes_free(&out)
            raise MemoryError
        return True, taken(&out)

    def surveyed(self):
        """(number, first, last, min_ts, max_ts, end, lost) of every block; first 0: it has no messages."""
        cdef size_t i
        cdef Surveyed* b
        cdef list out = []
        for i in range(self.blocks.n // sizeof(Surveyed)):
            b = <Surveyed*>(self.blocks.data + i * sizeof(Surveyed))
            out.append((b.number, b.first, b.last, b.min_ts, b.max_ts, b.end, b.lost))
        return out


cdef int survey_word(void* ctx, uint32_t id, Span text) noexcept with gil:
    return (<Survey>ctx).meaning(id, text)


cdef uint32_t record_at(const Bytes* b, uint64_t at) noexcept nogil:
    # The size of the record that stands there, erased or not.
    cdef uint32_t size = 0
    if at + 4 <= b.n:
        memcpy(&size, b.data + at, 4)
    return size & 0x7fffffff


cdef bint counts(const Limits* a) noexcept nogil:
    # Whether limits ask for more than ages.
    return a.max_msgs_per > 0 or (a.trim and (a.max_msgs > 0 or a.max_bytes > 0))


def record_kinds(Plain plain not None, bytes key not None):
    """How many good records stand at a block's start, and how many of them are marks of our server."""
    cdef uint64_t at = 0, n = 0, marks = 0
    cdef uint64_t words[4]
    cdef Parsed r
    if len(key) != 32:
        raise ValueError("a key has 32 bytes")
    memcpy(words, <const char*>key, 32)
    while record_parse(plain.b.data + at, plain.b.n - at, &r) and record_good(words, plain.b.data + at, &r):
        n += 1
        marks += is_marker(plain.b.data + at, &r)
        at += r.size
    return n, marks
