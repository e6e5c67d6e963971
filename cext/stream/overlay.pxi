# What passed the checks and is not applied: the checks read it before the stream, so that the next request is judged as if it
# were. Without it (Stream.staging is NULL) that costs one branch.
#
# What limits take away with discard old is not foreseen: a check may still see a message that a staged one will push out.

cdef enum:
    STAGED_REPEAT = 0           # no change: a duplicate of a staged message, to be answered in its turn
    STAGED_MAX = 64 << 20       # bytes that may be staged: they are copied under the lock, and written by one round


cdef struct Staged:
    # One staged change in Overlay.changes; the texts follow: reply, subject, header, data, id, more.
    int kind                    # ChangeKind or STAGED_REPEAT
    int rollup
    bint plain                  # of a batch: its headers ask for nothing
    uint64_t seq
    int64_t ts
    int64_t msgs                # what it adds to Overlay.msgs, but for what replaces all
    int64_t bytes               # likewise
    uint32_t n_reply
    uint32_t n_subject
    uint32_t n_header
    uint32_t n_data
    uint32_t n_id
    uint32_t n_more             # further members of its ack


cdef struct StagedSubject:
    # What the staged changes make of one subject.
    ListNode node               # the overlay's
    uint64_t staged             # changes; without one it is forgotten
    uint64_t last               # its last staged message
    uint64_t at                 # where that stands in Overlay.changes
    uint64_t n                  # staged messages that are left
    uint64_t gone               # of the staged ones, so many of the oldest left again
    uint64_t taken              # likewise of the applied ones


cdef struct Overlay:
    uint64_t n                  # messages and skips
    uint64_t last_seq
    uint32_t emptied            # changes that leave nothing of what is applied
    int64_t msgs                # more than are applied, or than none
    int64_t bytes
    Fifo changes
    Bytes last_id
    StrMap subjects
    List all                    # StagedSubjects
    StrMap ids                  # id -> sequence


cdef inline StagedSubject* staged_subject_at(const ListNode* n) noexcept nogil:
    return <StagedSubject*>list_owner(n, &(<StagedSubject*>NULL).node)


cdef inline size_t staged_size(const Overlay* o) noexcept nogil:
    return o.changes.b.n - o.changes.head


cdef void overlay_clear(Overlay* o) noexcept nogil:
    while not list_empty(&o.all):
        free(staged_subject_at(list_pop(&o.all)))
    strmap_free(&o.subjects)
    strmap_free(&o.ids)
    fifo_free(&o.changes)
    bytes_free(&o.last_id)
    memset(o, 0, sizeof(Overlay))


cdef void overlay_free(Overlay* o) noexcept nogil:
    if o != NULL:
        overlay_clear(o)
        free(o)


cdef int staged_put(Bytes* changes, Span reply, const Change* c, bint plain, Span more) noexcept nogil:
    # Adds one. 0 | -1 no memory
    cdef Staged head
    if bytes_reserve(changes, sizeof(Staged) + <size_t>reply.n + c.subject.n + c.header.n + c.data.n + c.id.n + more.n) < 0:
        return -1
    head.kind = c.kind
    head.rollup = c.rollup
    head.plain = plain
    head.seq = c.seq
    head.ts = c.ts
    head.n_reply = reply.n
    head.n_subject = c.subject.n
    head.n_header = c.header.n
    head.n_data = c.data.n
    head.n_id = c.id.n
    head.n_more = more.n
    bytes_add(changes, &head, sizeof(Staged))
    add_span(changes, reply)
    add_span(changes, c.subject)
    add_span(changes, c.header)
    add_span(changes, c.data)
    add_span(changes, c.id)
    add_span(changes, more)
    return 0


cdef inline Span staged_tail(const Staged* head, const Change* c) noexcept nogil:
    return span(c.id.p + head.n_id, head.n_more)


cdef size_t staged_at(const Bytes* changes, size_t at, Staged* head, Span* reply, Change* c) noexcept nogil:
    # Reads one; where the next one stands.
    cdef const uint8_t* p = changes.data + at
    memcpy(head, p, sizeof(Staged))
    memset(c, 0, sizeof(Change))
    p += sizeof(Staged)
    reply[0] = span(p, head.n_reply)
    c.subject = span(reply.p + head.n_reply, head.n_subject)
    c.header = span(c.subject.p + head.n_subject, head.n_header)
    c.data = span(c.header.p + head.n_header, head.n_data)
    c.id = span(c.data.p + head.n_data, head.n_id)
    c.kind = <ChangeKind>head.kind
    c.rollup = head.rollup
    c.seq = head.seq
    c.ts = head.ts
    return <size_t>(c.id.p + head.n_id + head.n_more - changes.data)


# ---- what the checks ask --------------------------------------------------------------------------------------------

cdef void overlay_state(const Overlay* o, StoreState* state) noexcept nogil:
    if o.emptied:
        state.msgs = 0
        state.bytes = 0
    state.msgs = <uint64_t>(<int64_t>state.msgs + o.msgs)
    state.bytes = <uint64_t>(<int64_t>state.bytes + o.bytes)
    if o.n:
        state.last_seq = o.last_seq


cdef inline void state_staged(Stream* s, StoreState* state) noexcept nogil:
    # The stream's, with what is staged.
    store_state(s.store, state)
    if s.staging != NULL:
        overlay_state(s.staging, state)


cdef uint64_t staged_more(const Overlay* o, uint64_t size) noexcept nogil:
    # What is staged counts for the account too.
    return size + <uint64_t>max(o.bytes, <int64_t>0)


cdef bint overlay_id(Overlay* o, Span id, uint64_t* seq) noexcept nogil:
    seq[0] = <uint64_t><size_t>strmap_get(&o.ids, id)
    return seq[0] != 0


cdef uint64_t applied_left(Stream* s, Span subject, const StagedSubject* t) noexcept nogil:
    cdef uint64_t n = 0 if s.staging.emptied else store_count_of(s.store, subject)
    return n - min(n, t.taken) if t != NULL else n


cdef uint64_t overlay_count(Stream* s, Span subject) noexcept nogil:
    cdef const StagedSubject* t = <StagedSubject*>strmap_get(&s.staging.subjects, subject)
    return applied_left(s, subject, t) + (t.n if t != NULL else 0)


cdef uint64_t overlay_last(Stream* s, Span subject) noexcept nogil:
    # The last sequence on a subject.
    cdef const StagedSubject* t = <StagedSubject*>strmap_get(&s.staging.subjects, subject)
    if t != NULL and t.n:
        return t.last
    return store_last_of(s.store, subject) if applied_left(s, subject, t) else 0


cdef bint overlay_latest(Overlay* o, Span subject, Change* c) noexcept nogil:
    # The last message on a subject, if it is a staged one.
    cdef const StagedSubject* t = <StagedSubject*>strmap_get(&o.subjects, subject)
    cdef Staged head
    cdef Span reply
    if t == NULL or t.n == 0:
        return False
    staged_at(&o.changes.b, t.at - o.changes.base, &head, &reply, c)
    return True


cdef uint64_t overlay_last_match(Stream* s, const Filter* f) noexcept nogil:
    # The last sequence on any subject that matches.
    cdef Overlay* o = s.staging
    cdef Staged head
    cdef Change c
    cdef Span reply
    cdef size_t at = o.changes.head
    cdef uint64_t last = 0
    cdef uint64_t* seqs = NULL
    cdef int64_t i = 0
    while at < o.changes.b.n:
        at = staged_at(&o.changes.b, at, &head, &reply, &c)
        if filter_matches(f, c.subject):
            last = max(last, overlay_last(s, c.subject))
    i = 0 if o.emptied else store_last_per_subject(s.store, f, 0, &seqs)
    while i > 0:
        i -= 1
        if seqs[i] <= last:
            break
        last = max(last, overlay_last(s, store_subject(s.store, seqs[i])))
    free(seqs)
    return last


cdef uint64_t overlay_oldest_size(Stream* s, Span subject) noexcept nogil:
    # What the oldest message of a subject counts in bytes; 0 when there is none.
    cdef Overlay* o = s.staging
    cdef const StagedSubject* t = <StagedSubject*>strmap_get(&o.subjects, subject)
    cdef uint64_t left = t.taken if t != NULL else 0, seq = 0
    cdef size_t at = o.changes.head
    cdef Staged head
    cdef Change c
    cdef Record r
    cdef Span reply
    cdef Filter f
    if applied_left(s, subject, t):
        if filter_init(&f, &subject, 1) != ST_OK:
            return 0
        while store_next_intact(s.store, &f, seq, &r, NULL) == ST_OK:
            if left == 0:
                filter_free(&f)
                return store_size_of(s.store, r.subject, r.header, r.data)
            left -= 1
            seq = r.seq + 1
        filter_free(&f)
        return 0
    left = t.gone if t != NULL else 0
    while at < o.changes.b.n and t != NULL:
        at = staged_at(&o.changes.b, at, &head, &reply, &c)
        if c.kind == CHANGE_MESSAGE and span_eq(c.subject, subject):
            if left == 0:
                return store_size_of(s.store, c.subject, c.header, c.data)
            left -= 1
    return 0


# ---- staging ---------------------------------------------------------------------------------------------------------

cdef StagedSubject* staged_subject(Overlay* o, Span subject) noexcept nogil:
    cdef StagedSubject* t = <StagedSubject*>strmap_get(&o.subjects, subject)
    if t == NULL:
        t = <StagedSubject*>calloc(1, sizeof(StagedSubject))
        if t != NULL and strmap_put(&o.subjects, subject, t) < 0:
            free(t)
            return NULL
        if t != NULL:
            list_push_front(&o.all, &t.node)
    return t


cdef void oldest_leaves(Stream* s, Span subject, StagedSubject* t) noexcept nogil:
    s.staging.msgs -= 1
    s.staging.bytes -= <int64_t>overlay_oldest_size(s, subject)
    if applied_left(s, subject, t):
        t.taken += 1
    else:
        t.gone += 1
        t.n -= 1


cdef void overlay_note(Stream* s, StagedSubject* t, const Change* c) noexcept nogil:
    # What the change will do to what the checks ask for. In the order of apply_message: stored, limits, rollup.
    cdef Overlay* o = s.staging
    cdef ListWalk all
    cdef ListNode* node
    cdef StagedSubject* each
    cdef uint64_t keep = 0
    if c.kind == CHANGE_MESSAGE:
        keep = 1
        t.n += 1
        t.last = c.seq
        o.msgs += 1
        o.bytes += <int64_t>store_size_of(s.store, c.subject, c.header, c.data)
        while s.cfg.max_msgs_per_subject > 0 and overlay_count(s, c.subject) > <uint64_t>s.cfg.max_msgs_per_subject:
            oldest_leaves(s, c.subject, t)
    if c.rollup == ROLLUP_ALL:
        all = list_walk(&o.all)
        node = list_step(&all)
        while node != NULL:
            each = staged_subject_at(node)
            each.gone += each.n
            each.n = 0
            each.taken = 0
            node = list_step(&all)
        o.emptied += 1
        t.gone -= keep
        t.n = keep
        o.msgs = <int64_t>keep
        o.bytes = <int64_t>store_size_of(s.store, c.subject, c.header, c.data) if keep else 0
    elif c.rollup == ROLLUP_SUBJECT:
        while overlay_count(s, c.subject) > keep:
            oldest_leaves(s, c.subject, t)
    o.n += 1
    o.last_seq = c.seq


cdef int overlay_add(Stream* s, Span reply, const Change* c, Span more) noexcept nogil:
    # 0 | -1 no memory, and nothing is staged.
    cdef Overlay* o = s.staging
    cdef StagedSubject* t
    cdef Staged head
    cdef int64_t msgs = o.msgs, bytes = o.bytes
    cdef size_t was
    fifo_compact(&o.changes)
    was = o.changes.b.n
    t = staged_subject(o, c.subject)
    if t == NULL or staged_put(&o.changes.b, reply, c, False, more) < 0:
        return -1
    if c.id.n and s.cfg.duplicate_window > 0 and strmap_put(&o.ids, c.id, <void*><size_t>c.seq) < 0:
        o.changes.b.n = was
        return -1
    if c.kind == CHANGE_MESSAGE:
        t.at = o.changes.base + was
    t.staged += 1
    overlay_note(s, t, c)
    memcpy(&head, o.changes.b.data + was, sizeof(Staged))
    head.msgs = o.msgs - msgs
    head.bytes = o.bytes - bytes
    memcpy(o.changes.b.data + was, &head, sizeof(Staged))
    o.last_id.n = 0
    return add_span(&o.last_id, c.id)


# ---- what is applied is staged no more -------------------------------------------------------------------------------

cdef void subject_applied(Overlay* o, StagedSubject* t, const Staged* head, const Change* c) noexcept nogil:
    # The first change is: what it did to its subject is so now.
    cdef uint64_t kept = 1 if c.kind == CHANGE_MESSAGE else 0
    cdef uint64_t removed = <uint64_t>(<int64_t>kept - head.msgs)
    if o.emptied == 0 and c.rollup != ROLLUP_ALL:
        t.taken -= min(removed, t.taken)
    if t.gone and kept:
        t.gone -= 1
        t.taken += o.emptied == 0
    else:
        t.n -= kept
    t.staged -= 1
    if t.staged == 0:
        strmap_del(&o.subjects, c.subject)
        list_remove(&t.node)
        free(t)


cdef void overlay_pop(Stream* s) noexcept nogil:
    # The first change is applied.
    cdef Overlay* o = s.staging
    cdef Staged head
    cdef Change c
    cdef Span reply
    cdef size_t next = staged_at(&o.changes.b, o.changes.head, &head, &reply, &c)
    if head.kind != STAGED_REPEAT:
        if c.rollup == ROLLUP_ALL:
            o.emptied -= 1
            head.msgs = 1 if c.kind == CHANGE_MESSAGE else 0
            head.bytes = <int64_t>store_size_of(s.store, c.subject, c.header, c.data) * head.msgs
        if o.emptied == 0:
            o.msgs -= head.msgs
            o.bytes -= head.bytes
        if c.id.n and <uint64_t><size_t>strmap_get(&o.ids, c.id) == c.seq:
            strmap_del(&o.ids, c.id)
        subject_applied(o, <StagedSubject*>strmap_get(&o.subjects, c.subject), &head, &c)
        o.n -= 1
    fifo_drop(&o.changes, next - o.changes.head)


cdef int publish_repeated(Stream* s, Span reply, uint64_t seq) noexcept nogil:
    # A duplicate of what is staged: its answer goes out behind that one's.
    cdef Change c
    memset(&c, 0, sizeof(Change))
    c.kind = <ChangeKind>STAGED_REPEAT
    c.seq = seq
    staged_put(&s.staging.changes.b, reply, &c, False, span(NULL, 0))
    return 1


cdef void overlay_renumber(Stream* s) noexcept nogil:
    # The first one was refused: those behind it have a sequence less than was foreseen.
    cdef Overlay* o = s.staging
    cdef ListWalk all = list_walk(&o.all)
    cdef ListNode* node = list_step(&all)
    cdef size_t at = o.changes.head, next
    cdef Staged head
    cdef Change c
    cdef Span reply
    while node != NULL:
        staged_subject_at(node).last -= 1
        node = list_step(&all)
    while at < o.changes.b.n:
        next = staged_at(&o.changes.b, at, &head, &reply, &c)
        head.seq -= 1
        memcpy(o.changes.b.data + at, &head, sizeof(Staged))
        if c.id.n and strmap_get(&o.ids, c.id) != NULL:
            strmap_put(&o.ids, c.id, <void*><size_t>head.seq)
        at = next
    o.last_seq -= 1


# ---- what is not applied ---------------------------------------------------------------------------------------------

cdef void staged_refuse(Stream* s, size_t at, const char* text) noexcept nogil:
    # What is staged from there on never comes: its publishers hear why.
    cdef Overlay* o = s.staging
    cdef Staged head
    cdef Change c
    cdef Span reply
    while at < o.changes.b.n:
        at = staged_at(&o.changes.b, at, &head, &reply, &c)
        fast_refused(s, reply)
        send_pub_error(s, reply, &ERR_STREAM_STORE_FAILED, span_c(text))


cdef void staged_drop(Stream* s, const char* text) noexcept nogil:
    # All of it, where something is staged; the next publish is staged again.
    cdef Overlay* o = s.staging
    if o == NULL or staged_size(o) == 0:
        return
    staged_refuse(s, o.changes.head, text)
    overlay_clear(o)
