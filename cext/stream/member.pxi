# A stream that is a member of a Raft group: all members apply the same entries in the same order (apply.pxi). The leader decides,
# and proposes its decisions as entries (propose.pxi). A stream of a single server has no Member.

cdef struct HeldBatch:
    # An atomic batch of which not all entries have come. Its entries are applied together, or refused together.
    Bytes id                    # empty: no batch is open
    uint64_t count
    uint64_t index              # of its first entry
    Bytes entries               # for each its length (uint32_t) and its bytes


cdef struct Member:
    bint leads
    bint recovering             # the entries being applied were in the log at the start
    uint64_t lacks              # the first sequence that damage has cost, and that is to come again; 0: none
    uint64_t position           # the last sequence used by entries; at a start the store may be ahead of the log
    uint64_t early              # while leading: consumers let go of messages up to here that were not stored yet
    Timer check                 # the next check for messages that no consumer needs
    Timer flush                 # when the blocks are to have what was applied
    uint64_t behind             # bytes of messages that were applied since they were last asked for
    Bytes strays                # interest retention: sequences of a nats-server's messages applied before the consumers were open
    size_t stray                # the next one to check: bytes
    bint straying
    bint strays_acked           # a message that a consumer wants and has done with is a stray, too
    bint id_unknown             # the last message is gone, and its id as well
    uint64_t refused            # entries that used a number of the group's but no sequence of the stream
    uint64_t abandoned          # messages of a held batch whose leader is gone: they will be refused
    HeldBatch held
    Bytes proposals             # for each its length (uint32_t) and its bytes
    Fifo unconfirmed            # while leading: answers that wait until the lead is confirmed
    uint64_t asked_for          # a position in it: a quorum was asked for the answers before
    void (*proposed)(void* ctx) noexcept nogil      # called with the first new proposal or unconfirmed answer
    void (*ended)(void* ctx) noexcept nogil         # called when the stream stops serving; NULL: not wanted
    void* ctx                   # of both
    Span came_to                # while a publish is checked: its subject, if the stream stores it under another
    bint purging                # the first entry given is a purge that goes on
    Purge purge
    Bytes pattern               # the purge's subject
    Bytes kept                  # for change_get
    Bytes header                # stored in place of the entry's header


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


cdef uint64_t shown_most(const Stream* s, uint64_t seq) noexcept nogil:
    # How far the stream may be shown, of what is there up to this sequence. Consumers would pass over what is lacking.
    return min(seq, s.member.lacks - 1) if s.member != NULL and s.member.lacks else seq


cdef void show_most(Stream* s, uint64_t seq) noexcept nogil:
    cdef uint64_t most = shown_most(s, seq)
    if most > s.shown:
        show(s, most)


cdef void member_lacks(Stream* s, uint64_t seq) noexcept nogil:
    if s.member.lacks == seq:
        return
    s.member.lacks = seq
    s.shown = shown_most(s, s.shown)
    show_most(s, s.entered)


cdef void member_recovered(Stream* s) noexcept nogil:
    s.member.recovering = False


cdef uint64_t member_applied(const Stream* s, uint64_t index) noexcept nogil:
    cdef const Member* m = s.member
    return min(index, m.held.index - 1) if m.held.id.n else index
