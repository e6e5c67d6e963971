# A stream that is a member of a Raft group: its members apply the same entries in the same order (apply.pxi). The one that
# leads decides, and what it decides are proposals for entries (propose.pxi). A stream of one server has no Member.

cdef struct HeldBatch:
    # An atomic batch of which not all entries have come. They are applied together, or refused together.
    Bytes id                    # empty: no batch is open
    uint64_t count
    uint64_t index              # of its first entry
    Bytes entries               # for each its length (uint32_t) and its bytes


cdef struct Member:
    bint leads
    bint recovering             # entries are applied that were in the log at the start
    uint64_t position           # the last sequence that entries have used up: at a start the store may be ahead of the log
    uint64_t early              # of one that leads: up to here consumers let go of messages that were not stored yet
    Timer check                 # when it is looked for what no consumer needs
    uint64_t strays             # interest retention: from here on messages may have come before the consumers were open
    uint64_t strays_end         # ... up to here
    uint64_t stray              # the next sequence that is looked at; 0: done
    bint strays_acked           # what a consumer wants and needs no more is a stray, too
    bint id_unknown             # the last message is gone, and the stream's id of it with it
    uint64_t refused            # entries that used up a number of the group's, and no sequence of the stream
    uint64_t abandoned          # messages of a batch that is held, whose leader is gone: they will be refused
    HeldBatch held
    Bytes proposals             # for each its length (uint32_t) and its bytes
    void (*proposed)(void* ctx) noexcept nogil      # there are proposals, where there were none
    void (*ended)(void* ctx) noexcept nogil         # the stream serves no more; NULL: nobody wants to know
    void* ctx                   # of both
    Span came_to                # while a publish is checked: its subject, where the stream stores it under another
    bint purging                # the first entry that is given is not done yet
    Purge purge
    Bytes pattern               # its subject
    Bytes kept                  # of change_get
    Bytes header                # stored in place of what an entry has


cdef uint64_t member_refused(const Stream* s) noexcept nogil:
    return s.member.refused


cdef void member_ending(Stream* s, void (*ended)(void* ctx) noexcept nogil) noexcept nogil:
    s.member.ended = ended


cdef void member_ends(Stream* s) noexcept nogil:
    cdef void (*ended)(void* ctx) noexcept nogil
    if s.member == NULL or s.member.ended == NULL:
        return
    ended = s.member.ended
    s.member.ended = NULL
    ended(s.member.ctx)


cdef void held_drop(HeldBatch* h) noexcept nogil:
    h.id.n = 0
    h.count = 0
    bytes_free(&h.entries)


cdef void member_begins(Stream* s, uint64_t last) noexcept nogil:
    s.member.position = last


cdef void member_recovered(Stream* s) noexcept nogil:
    s.member.recovering = False


cdef uint64_t member_applied(const Stream* s, uint64_t index) noexcept nogil:
    cdef const Member* m = s.member
    return min(index, m.held.index - 1) if m.held.id.n else index
