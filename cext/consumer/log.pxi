# The log of a stream's consumers: small records of deliveries and acks, gathered and given to the store together.
# A group of records is one entry. Replaying it over an older state leads to the newest one; over a newer state it
# changes nothing but what is newer still, because deliveries are numbered and acks only take away. A truncation takes any
# state back, and the records behind it, which all follow, lead on from there.
#
#   N id resume n name      the records of this id concern this consumer
#   D id sseq dseq deliveries sent          delivered (sent: wall clock ns)
#   A id sseq               acked, or gone
#   U id sseq dseq          all acked up to here, and the floor's delivery
#   E id sseq               given up
#   P id sseq               all up to here counts as delivered
#   T id sseq sent          its deadline counts from then
#   B id sseq dseq          the stream was truncated to there, when dseq was the next delivery
#   R id sseq resume ahead  it starts anew at sseq, ahead of the stream or not; resume: as in its name
#   S id n state            the whole state
#   K id hash time          an o.dat with these says nothing newer than this log
#   X id                    deleted: what was said before concerns nobody

cdef enum:
    LOG_NAME = 78            # N
    LOG_DELIVERED = 68       # D
    LOG_ACKED = 65           # A
    LOG_ACKED_UPTO = 85      # U
    LOG_EXHAUSTED = 69       # E
    LOG_PASSED = 80          # P
    LOG_DEADLINE = 84        # T
    LOG_TRUNCATED = 66       # B
    LOG_RESET = 82           # R
    LOG_STATE = 83           # S
    LOG_KNOWN = 75           # K
    LOG_DELETED = 88         # X
    LOG_HOLE = 72            # not in a log: in front of the first record behind an entry that cannot be read

cdef enum:
    LOG_FLUSH = 100 * 1000000           # records wait this long at most, ns
    LOG_GATHER = 1 << 16                # or until they are this many bytes
    LOG_GROWN = 4 << 20                 # a log larger than this, and four times its start, is started anew


cdef const char* LOG_NOBODY = b"X\x01"          # what a new log begins with: it concerns nobody


cdef struct Replayed:
    # Of one consumer not yet open.
    Bytes records
    Bytes known             # hash and time of files, as KnownState
    uint64_t resume
    bint hole               # entries are missing before what comes next


cdef struct KnownState:
    uint64_t hash
    uint64_t time


# ---- writing -----------------------------------------------------------------------------------------------------

cdef inline void records_taken(Consumers* k, const Bytes* b) noexcept nogil:
    if k.on_records != NULL:
        k.on_records(k.records_ctx, span(b.data, <uint32_t>b.n))


cdef void consumers_flush(Stream* s) noexcept nogil:
    cdef Consumers* k = <Consumers*>s.consumers
    if k == NULL or k.log == NULL or k.lazy.n == 0:
        return
    if k.gap:
        log_restart(k)
        return
    if k.follows:
        log_follows(k.log)
        k.follows = False
    if log_append(k.log, span(k.lazy.data, <uint32_t>k.lazy.n)) == ST_OK:
        records_taken(k, &k.lazy)
        k.lazy.n = 0
    elif k.lazy.n > LOG_GATHER * 16:
        k.lazy.n = 0                            # the store takes nothing: later the whole state is written
        k.gap = True
    if log_size(k.log) > LOG_GROWN and log_size(k.log) > 4 * k.log_base:
        log_restart(k)


cdef void flush_due(Timer* t, int64_t now) noexcept nogil:
    consumers_flush((<Consumers*>t.owner).s)


cdef void flush_task(Task* t) noexcept nogil:
    consumers_flush((<Consumers*>t.owner).s)


cdef void log_posted(Consumer* c) noexcept nogil:
    # Where acks remove messages the records go with the removals, otherwise some time later.
    cdef Consumers* k = c.shared
    if k.lazy.n > LOG_GATHER or not stream_keeps_all(c.s):
        task_post(&c.env.tasks, &k.flush_soon)
    elif k.flush.pos == 0:
        timer_set(&c.env.timers, &k.flush, c.env.mono + LOG_FLUSH)


cdef void log_numbers(Consumer* c, uint8_t kind, const uint64_t* numbers, uint32_t n) noexcept nogil:
    # Without memory the record is lost: at worst a message is delivered once more after a restart.
    cdef Bytes* b = &c.shared.lazy
    cdef uint8_t* p
    cdef uint32_t i
    cdef uint64_t v = c.id
    if not c.logged or bytes_reserve(b, 1 + (n + 1) * 10) < 0:
        return
    p = b.data + b.n
    p[0] = kind
    p += 1
    for i in range(n + 1):
        p += put_uv(p, v)
        v = numbers[i] if i < n else 0
    b.n = <size_t>(p - b.data)
    log_posted(c)


cdef void log_delivered(Consumer* c, uint64_t sseq, uint64_t dseq, uint32_t deliveries) noexcept nogil:
    cdef uint64_t numbers[4]
    numbers[0] = sseq
    numbers[1] = dseq
    numbers[2] = deliveries
    numbers[3] = <uint64_t>c.env.now
    log_numbers(c, LOG_DELIVERED, numbers, 4)


cdef void log_acked(Consumer* c, uint64_t sseq) noexcept nogil:
    log_numbers(c, LOG_ACKED, &sseq, 1)


cdef void log_acked_upto(Consumer* c, uint64_t sseq, uint64_t dseq) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = sseq
    numbers[1] = dseq
    log_numbers(c, LOG_ACKED_UPTO, numbers, 2)


cdef void log_passed(Consumer* c) noexcept nogil:
    log_numbers(c, LOG_PASSED, &c.delivered_seq, 1)


cdef void log_truncated(Consumer* c, uint64_t sseq) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = sseq
    numbers[1] = c.dseq
    log_numbers(c, LOG_TRUNCATED, numbers, 2)


cdef void log_reset(Consumer* c) noexcept nogil:
    cdef uint64_t numbers[3]
    numbers[0] = c.delivered_seq + 1
    numbers[1] = c.resume
    numbers[2] = c.reset_to != 0
    log_numbers(c, LOG_RESET, numbers, 3)


cdef void log_exhausted(Consumer* c, uint64_t sseq) noexcept nogil:
    log_numbers(c, LOG_EXHAUSTED, &sseq, 1)


cdef void log_deadline(Consumer* c, uint64_t sseq, int64_t deadline) noexcept nogil:
    # deadline: wall clock.
    cdef uint64_t numbers[2]
    cdef uint32_t i = pending_find(&c.pending, sseq)
    if i == 0:
        return
    numbers[0] = sseq
    numbers[1] = <uint64_t>(deadline - wait_of(c, entry_at(&c.pending, i).deliveries))
    log_numbers(c, LOG_DEADLINE, numbers, 2)


cdef void log_known(Consumer* c, uint64_t hash, int64_t time) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = hash
    numbers[1] = <uint64_t>time
    log_numbers(c, LOG_KNOWN, numbers, 2)


cdef void log_deleted(Consumer* c) noexcept nogil:
    log_numbers(c, LOG_DELETED, NULL, 0)


cdef int add_kind(Bytes* b, uint8_t kind) noexcept nogil:
    return bytes_add(b, &kind, 1)


cdef int add_named(Bytes* b, Consumer* c) noexcept nogil:
    if (add_kind(b, LOG_NAME) < 0 or add_uv(b, c.id) < 0 or add_uv(b, c.resume) < 0
            or add_uv(b, c.cfg.name.n) < 0):
        return -1
    return add_span(b, c.cfg.name)


cdef int add_state(Bytes* b, Consumer* c) noexcept nogil:
    cdef Bytes state
    cdef int rc = -1
    memset(&state, 0, sizeof(Bytes))
    if (consumer_encode_state(c, &state) == 0 and add_kind(b, LOG_STATE) == 0 and add_uv(b, c.id) == 0
            and add_uv(b, state.n) == 0):
        rc = bytes_add(b, state.data, state.n)
    bytes_free(&state)
    return rc


cdef int add_whole(Bytes* b, Consumer* c) noexcept nogil:
    # All that must be said of a consumer.
    if add_named(b, c) < 0 or add_state(b, c) < 0:
        return -1
    if c.reset_to and c.dseq <= 1 and (add_kind(b, LOG_RESET) < 0 or add_uv(b, c.id) < 0 or add_uv(b, c.reset_to) < 0
                                       or add_uv(b, c.resume) < 0 or add_uv(b, 1) < 0):
        return -1
    if add_kind(b, LOG_KNOWN) < 0 or add_uv(b, c.id) < 0:
        return -1
    return -1 if add_uv(b, c.known_hash) < 0 or add_uv(b, <uint64_t>c.known_time) < 0 else 0


cdef void log_opened(Consumer* c) noexcept nogil:
    cdef Bytes* b = &c.shared.lazy
    cdef size_t before = b.n
    if not c.logged:
        return
    if add_whole(b, c) < 0:
        b.n = before
    log_posted(c)


cdef void log_restart(Consumers* k) noexcept nogil:
    # Everything anew.
    cdef Bytes b
    cdef Consumer* c = k.first
    cdef bint ok = True
    memset(&b, 0, sizeof(Bytes))
    while c != NULL and ok:
        if c.logged:
            ok = add_whole(&b, c) == 0
        c = c.next_consumer
    if b.n == 0:
        ok = add_text(&b, LOG_NOBODY) == 0
    if ok and log_rewrite(k.log, span(b.data, <uint32_t>b.n)) == ST_OK:
        k.lazy.n = 0                            # the states hold it
        if k.gap:
            records_taken(k, &b)                # they stand for what was dropped
        k.gap = False
        k.log_base = b.n
    bytes_free(&b)


cdef uint64_t change_ticket(Consumer* c) noexcept nogil:
    # What a double ack waits for: the records so far, and the removal of messages.
    if c.logged:
        consumers_flush(c.s)
    elif stream_keeps_all(c.s):
        return 0
    return store_ticket(c.s.store)


# ---- reading -------------------------------------------------------------------------------------------------------

cdef struct ReplayContext:
    Consumers* k
    U64Map names            # id -> Replayed*


cdef void replayed_free(Replayed* r) noexcept nogil:
    bytes_free(&r.records)
    bytes_free(&r.known)
    free(r)


cdef Replayed* replayed_named(Consumers* k, Span name) noexcept nogil:
    cdef Replayed* r = <Replayed*>strmap_get(&k.replayed, name)
    if r != NULL:
        return r
    r = <Replayed*>calloc(1, sizeof(Replayed))
    if r != NULL and strmap_put(&k.replayed, name, r) < 0:
        free(r)
        return NULL
    return r


cdef uint32_t record_numbers(uint8_t kind) noexcept nogil:
    # How many numbers follow the id; -1 for an unknown kind.
    if kind == LOG_DELIVERED:
        return 4
    if kind == LOG_RESET:
        return 3
    if kind == LOG_ACKED_UPTO or kind == LOG_DEADLINE or kind == LOG_KNOWN or kind == LOG_TRUNCATED:
        return 2
    if kind == LOG_ACKED or kind == LOG_EXHAUSTED or kind == LOG_PASSED:
        return 1
    return 0 if kind == LOG_DELETED else UINT32_MAX


cdef bint record_name(Span* s, uint64_t* resume, Span* name) noexcept nogil:
    # Takes off what follows the head of a name. False: damaged
    cdef uint64_t n
    if not get_uv(s, resume) or not get_uv(s, &n) or n > s.n:
        return False
    name[0] = span(s.p, <uint32_t>n)
    s.p += n
    s.n -= <uint32_t>n
    return True


cdef int replay_name(ReplayContext* x, Span* s, uint64_t id) noexcept nogil:
    cdef uint64_t resume
    cdef Span name
    cdef Replayed* r
    if not record_name(s, &resume, &name):
        return -1
    r = replayed_named(x.k, name)
    if r == NULL or u64map_put(&x.names, id, <uint64_t>r) < 0:
        return -1
    r.resume = resume
    r.known.n = 0                               # what is known follows
    x.k.next_id = max(x.k.next_id, <uint32_t>id + 1)
    return 0


cdef int replay_known(Replayed* r, Span body) noexcept nogil:
    cdef KnownState known
    get_uv(&body, &known.hash)
    get_uv(&body, &known.time)
    return bytes_add(&r.known, &known, sizeof(KnownState))


cdef bint record_head(Span* s, uint8_t* kind, uint64_t* id) noexcept nogil:
    # Takes off what a record of an entry, which is not empty, starts with. False: damaged
    kind[0] = s.p[0]
    s.p += 1
    s.n -= 1
    return get_uv(s, id) and 0 < id[0] < UINT32_MAX


cdef bint record_body(Span* s, uint8_t kind, Span* body) noexcept nogil:
    # Takes off what follows, of all but a name. False: damaged
    cdef uint64_t n
    cdef uint32_t numbers
    body[0] = s[0]
    if kind == LOG_STATE:
        if not get_uv(s, &n) or n > s.n:
            return False
        s.p += n
        s.n -= <uint32_t>n
    else:
        numbers = record_numbers(kind)
        if numbers == UINT32_MAX:
            return False
        while numbers:
            numbers -= 1
            if not get_uv(s, &n):
                return False
    body.n -= s.n
    return True


cdef int replay_record(ReplayContext* x, Span* s) noexcept nogil:
    # Takes one record off and keeps it for its consumer, without the id. 0 | -1 damaged, or no memory
    cdef uint8_t kind, hole = LOG_HOLE
    cdef uint64_t id, found
    cdef Span body, rest
    cdef Replayed* r = NULL
    if not record_head(s, &kind, &id):
        return -1
    if kind == LOG_NAME:
        return replay_name(x, s, id)
    if not record_body(s, kind, &body):
        return -1
    if not u64map_get(&x.names, id, &found):
        return 0
    r = <Replayed*>found
    if kind == LOG_KNOWN:
        return replay_known(r, body)
    if kind == LOG_DELETED or kind == LOG_STATE:
        r.records.n = 0
        r.hole = False
    if kind == LOG_DELETED:
        r.known.n = 0
        return 0
    if r.hole and bytes_add(&r.records, &hole, 1) < 0:
        return -1
    r.hole = False
    if kind == LOG_TRUNCATED:
        rest = body
        get_uv(&rest, &found)
        r.resume = min(r.resume, found + 1)     # a list of last messages goes no further
    if kind == LOG_RESET:
        rest = body
        get_uv(&rest, &found)
        get_uv(&rest, &r.resume)
    return 0 if bytes_add(&r.records, &kind, 1) == 0 and add_span(&r.records, body) == 0 else -1


cdef void replay_hole(Consumers* k) noexcept nogil:
    cdef uint32_t i
    for i in range(k.replayed.cap):
        if k.replayed.keys[i] != NULL:
            (<Replayed*>k.replayed.vals[i]).hole = True


cdef int replay_entry(void* ctx, Span entry) noexcept nogil:
    if entry.n == 0:
        replay_hole((<ReplayContext*>ctx).k)
    while entry.n:
        if replay_record(<ReplayContext*>ctx, &entry) < 0:
            return -1
    return 0


# ---- applying ---------------------------------------------------------------------------------------------------------

cdef void replay_delivered(Consumer* c, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t sent) noexcept nogil:
    cdef uint32_t i
    if dseq < c.dseq:
        return
    c.dseq = dseq + 1
    if sseq > c.delivered_seq:
        c.delivered_seq = sseq
        c.next = max(c.next, sseq + 1)
        if c.cfg.ack_policy == ACK_NONE:
            c.floor_dseq = dseq
            c.floor_seq = sseq
            return
        i = pending_find(&c.pending, sseq)
        if i == 0:
            i = pending_add(&c.pending, sseq, dseq)
    else:
        i = pending_find(&c.pending, sseq)
    if i == 0:
        return
    if deliveries > 1 and entry_at(&c.pending, i).deliveries == 1:
        c.n_redelivered += 1
    entry_at(&c.pending, i).deliveries = <uint32_t>min(max(deliveries, <uint64_t>1), <uint64_t>UINT32_MAX)
    restore_deadline(c, i, sent)


cdef void replay_upto(Consumer* c, uint64_t sseq, uint64_t dseq) noexcept nogil:
    cdef uint32_t i
    while c.pending.first and entry_at(&c.pending, c.pending.first).sseq <= sseq:
        i = c.pending.first
        if entry_at(&c.pending, i).deliveries > 1:
            c.n_redelivered -= 1
        pending_remove(&c.pending, i)
    c.floor_seq = max(c.floor_seq, sseq)
    c.floor_dseq = max(c.floor_dseq, dseq)


cdef void replay_apply(Consumer* c, uint8_t kind, const uint64_t* v) noexcept nogil:
    cdef uint32_t i = pending_find(&c.pending, v[0])
    if kind == LOG_DELIVERED:
        replay_delivered(c, v[0], v[1], v[2], <int64_t>v[3])
    elif kind == LOG_ACKED:
        u64map_del(&c.exhausted, v[0])
        if i:
            take_out(c, i)
    elif kind == LOG_ACKED_UPTO:
        replay_upto(c, v[0], v[1])
    elif kind == LOG_EXHAUSTED and i:
        u64map_put(&c.exhausted, v[0], entry_at(&c.pending, i).deliveries)
        if entry_at(&c.pending, i).deliveries > 1:
            c.n_redelivered -= 1
        pending_remove(&c.pending, i)
    elif kind == LOG_PASSED and c.delivered_seq < v[0] < UINT64_MAX:
        c.delivered_seq = v[0]
        c.next = max(c.next, v[0] + 1)
    elif kind == LOG_DEADLINE and i:
        restore_deadline(c, i, <int64_t>v[1])
    elif kind == LOG_TRUNCATED:
        c.dseq = min(c.dseq, v[1])      # also of a newer state: what follows says again how that came about
        go_back(c, v[0])
    elif kind == LOG_RESET and v[0]:
        stand_at(c, v[0], v[1], v[2] != 0)      # likewise


cdef int replay_unknown(Consumer* c, uint8_t kind, uint64_t sseq) noexcept nogil:
    # The first record behind a hole that goes further: which of the messages up to its own were delivered is not known, so
    # they are delivered again. 0 | -1 no memory
    cdef uint64_t seq = c.next, end
    cdef uint32_t i
    cdef StoreState state
    store_state(c.s.store, &state)
    end = min(sseq, state.last_seq)
    if kind == LOG_PASSED or kind == LOG_DEADLINE:
        end += 1                # its own as well
    while c.cfg.ack_policy != ACK_NONE and seq < end:
        seq = store_next_seq(c.s.store, NULL if c.filter.all else &c.filter, seq)
        if seq == 0 or seq >= end:
            break
        i = pending_add(&c.pending, seq, c.dseq)
        if i == 0:
            return -1
        restore_deadline(c, i, 0)
        seq += 1
    if kind != LOG_DELIVERED:
        c.delivered_seq = sseq
        c.next = max(c.next, sseq + 1)
    return 0


cdef int replay_state(Consumer* c, Span state) noexcept nogil:
    # The log's state, unless the file's is newer.
    cdef Span head = span(state.p + 2, state.n - 2) if state.n > 2 else span(NULL, 0)
    cdef uint64_t v = 0
    cdef int i
    for i in range(3):                          # the third number is the last delivery
        if not get_uv(&head, &v):
            return -2
    if v + 1 < c.dseq:
        return 0
    return consumer_decode_state(c, state)


cdef bint file_differs(const Replayed* r, const StateFile* file) noexcept nogil:
    # Whether the log knows files of the consumer's and this is another one.
    cdef const KnownState* known = <const KnownState*>r.known.data
    cdef uint64_t hash = state_hash(file.bytes)
    cdef size_t i
    for i in range(r.known.n // sizeof(KnownState)):
        if known[i].hash == hash:
            return False
    return r.known.n > 0 and file.bytes.n > 0


cdef bint file_damaged(const Replayed* r, const StateFile* file) noexcept nogil:
    # Of a file that differs: whether its bytes changed, but nobody wrote it.
    cdef const KnownState* known = <const KnownState*>r.known.data
    cdef size_t i
    for i in range(r.known.n // sizeof(KnownState)):
        if known[i].hash and known[i].time == <uint64_t>file.time:
            return True
    return False


cdef int consumer_replay(Consumer* c, Replayed* r) noexcept nogil:
    # What the log says, over the state at hand. 0 | -1 no memory | -2 damaged
    cdef Span s = span(r.records.data, <uint32_t>r.records.n)
    cdef uint8_t kind
    cdef uint64_t v[4]
    cdef uint64_t n
    cdef uint32_t i
    cdef bint hole = False
    cdef int rc
    while s.n:
        kind = s.p[0]
        s.p += 1
        s.n -= 1
        if kind == LOG_HOLE:
            hole = True
            continue
        if kind == LOG_STATE:
            if not get_uv(&s, &n) or n > s.n:
                return -2
            rc = replay_state(c, span(s.p, <uint32_t>n))
            s.p += n
            s.n -= <uint32_t>n
            if rc < 0:
                return rc
            continue
        memset(v, 0, sizeof(v))
        for i in range(record_numbers(kind)):
            if not get_uv(&s, &v[i]):
                return -2
        if kind == LOG_RESET:
            hole = False
        if hole and kind != LOG_TRUNCATED and c.delivered_seq < v[0] < UINT64_MAX:
            if replay_unknown(c, kind, v[0]) < 0:
                return -1
            hole = kind != LOG_DELIVERED
        replay_apply(c, kind, v)
    return 0
