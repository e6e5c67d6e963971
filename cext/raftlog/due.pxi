# What of a group is to be written next.

cdef void files_due(RaftLog* log, int kind) noexcept nogil:
    log.due[kind].on = True
    if not list_linked(&log.node):
        list_push_back(&log.files.due, &log.node)
    if log.files.woken:
        return
    log.files.woken = True
    if log.files.wake != NULL:
        log.files.wake(log.files.ctx)


cdef int due_set(RaftLog* log, int kind, Span data, uint64_t term, uint64_t index) noexcept nogil:
    # A later one takes the place of one that waits. 0 | RAFT_NO_MEMORY
    cdef Due* d = &log.due[kind]
    d.data.n = 0
    if bytes_add(&d.data, data.p, data.n) < 0:
        return RAFT_NO_MEMORY
    d.term = term
    d.index = index
    files_due(log, kind)
    return RAFT_OK


cdef int vote_due(RaftLog* log, uint64_t term, uint64_t vote) noexcept nogil:
    cdef uint8_t file[VOTE_BYTES]
    memcpy(file, &term, 8)
    memcpy(file + 8, &vote, 8)
    return due_set(log, FILE_VOTE, span(file, VOTE_BYTES if vote else 8), term, vote)
