# What the leader of a group decides: it is staged, so that what comes next is judged as if it were applied, and proposed as an
# entry. When the group has agreed on it, apply.pxi applies it here as everywhere, and its publisher hears of it.

cdef inline bint stream_leads(const Stream* s) noexcept nogil:
    # Whether it decides for itself, or for its group.
    return s.member == NULL or s.member.leads


cdef inline void came_to(Stream* s, Span subject) noexcept nogil:
    # The subject of a publish before the stream's transform, which every member applies itself.
    if s.member != NULL:
        s.member.came_to = subject


cdef int proposal_add(Stream* s, const StreamEntry* e) noexcept nogil:
    # ST_OK, or an error and nothing is proposed
    cdef Bytes* b = &s.member.proposals
    cdef size_t was = b.n
    cdef uint32_t n = 0
    cdef int rc = ST_NO_MEMORY if bytes_add(b, &n, sizeof(n)) < 0 else change_put(e, b)
    if rc != ST_OK:
        b.n = was
        return rc
    n = <uint32_t>(b.n - was - sizeof(n))
    memcpy(b.data + was, &n, sizeof(n))
    if was == 0:
        s.member.proposed(s.member.ctx)
    return ST_OK


cdef int message_propose(Stream* s, StreamEntry* e) noexcept nogil:
    # e.change has the sequence that it will have. ST_OK, or an error and nothing is staged
    cdef Member* m = s.member
    cdef size_t was = m.proposals.n
    cdef Change* c = &e.change
    cdef Change staged = c[0]
    cdef int rc
    e.lseq = c.seq - 1 + m.refused + m.abandoned
    e.judged = s.cfg.retention == RETENTION_INTEREST
    e.unwanted = e.judged and c.kind == CHANGE_SKIP
    c.kind = CHANGE_MESSAGE
    if m.came_to.n:
        c.subject = m.came_to
    rc = proposal_add(s, e)
    if rc == ST_OK and overlay_add(s, e.reply, &staged, span(NULL, 0)) < 0:
        m.proposals.n = was
        rc = ST_NO_MEMORY
    return rc


cdef int entry_stage(Stream* s, StreamEntry* e) noexcept nogil:
    # e.change is a message or a skip that passed the checks. ST_OK, or an error and nothing is staged
    cdef const Change* c = &e.change
    if staged_size(s.staging) + c.subject.n + c.header.n + c.data.n > STAGED_MAX:
        return ST_TOO_LARGE
    if s.member == NULL:
        return ST_OK if overlay_add(s, e.reply, c, span(NULL, 0)) == 0 else ST_NO_MEMORY
    return message_propose(s, e)


cdef int change_stage(Stream* s, Span reply, const Change* c) noexcept nogil:
    # Likewise, of one who published it.
    cdef StreamEntry e
    memset(&e, 0, sizeof(StreamEntry))
    e.change = c[0]
    e.reply = reply
    return entry_stage(s, &e)


cdef int run_stage(Stream* s, uint64_t first, uint64_t last) noexcept nogil:
    # Sequences that a mirror's origin has not, behind all that is staged. ST_OK, or an error and nothing is staged
    cdef size_t was = s.member.proposals.n
    cdef StreamEntry e
    cdef Change c
    cdef int rc
    memset(&e, 0, sizeof(StreamEntry))
    e.change.kind = CHANGE_SKIP
    e.change.seq = first
    e.change.most = last - first + 1
    rc = proposal_add(s, &e)
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_SKIP
    c.seq = last
    if rc == ST_OK and overlay_add(s, span(NULL, 0), &c, span(NULL, 0)) < 0:
        s.member.proposals.n = was
        rc = ST_NO_MEMORY
    return rc


cdef int confirmation_propose(Stream* s, Span reply, Span header) noexcept nogil:
    # What is to be confirmed to an origin when all that is proposed before it is agreed on. ST_OK | ST_NO_MEMORY | ST_TOO_LARGE
    cdef StreamEntry e
    memset(&e, 0, sizeof(StreamEntry))
    e.change.kind = CHANGE_MESSAGE
    e.change.header = header
    e.reply = reply
    return proposal_add(s, &e)


cdef int own_stage(Stream* s, const Change* c) noexcept nogil:
    # A message of the stream's own: behind what is staged. ST_OK or ST_*
    cdef Change next = c[0]
    cdef StoreState state
    state_staged(s, &state)
    next.seq = state.last_seq + 1
    return change_stage(s, span(NULL, 0), &next)


cdef int removal_propose(Stream* s, const Change* c) noexcept nogil:
    cdef StreamEntry e
    memset(&e, 0, sizeof(StreamEntry))
    e.change.kind = CHANGE_RELEASE
    e.change.seq = c.seq
    e.stream = s.cfg.name
    return proposal_add(s, &e)


cdef int member_decides(Stream* s, const Change* c) noexcept nogil:
    # What a member's stream comes to. What is no affair of its own it proposes when it leads, and leaves alone otherwise.
    if not s.member.leads:
        return ST_OK
    if c.kind == CHANGE_MESSAGE or c.kind == CHANGE_SKIP:
        return own_stage(s, c)
    return removal_propose(s, c)


cdef void member_take(Stream* s, Bytes* out) noexcept nogil:
    bytes_free(out)
    out[0] = s.member.proposals
    memset(&s.member.proposals, 0, sizeof(Bytes))


cdef int member_propose(Stream* s, const StreamEntry* e) noexcept nogil:
    return proposal_add(s, e) if s.member.leads else ST_CLOSED
