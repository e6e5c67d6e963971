# With a sync_interval: what is written and not synced, and what a sync said.

cdef void unsynced_note(Committer* c, Store* s) noexcept nogil:
    # With q held: the next sync is for this store too.
    if not list_linked(&s.queue.unsynced):
        list_push_front(&c.queue.unsynced, &s.queue.unsynced)
        c.queue.due = min(c.queue.due, c.writing.synced_at + c.sync_interval)


cdef int sync_said(Store* s, int rc) noexcept nogil:
    # What a sync of files with messages said, by whichever thread; without q. In lazy mode one that failed may have lost what
    # was written since the last one of all, and no later one of the same files says so again. So none counts (syncs_count) until
    # the commit thread has told all stores that it concerns: it syncs at once.
    #
    # Where the journal has what was written, a later sync says nothing of it either.
    cdef Committer* c = s.com
    if rc < 0:
        st_store(&c.shared.doubt, 1)
    if rc < 0 and c.sync_interval > 0:
        q_lock(c)
        c.queue.failed = -rc
        c.queue.sync_now = True
        if s.queue.busy:        # else it is being closed
            unsynced_note(c, s)
        c.queue.due = 0
        if c.queue.sleeping:
            q_signal(c, &c.wake)
        q_unlock(c)
    return rc


cdef bint syncs_count(Store* s) noexcept nogil:
    # In lazy mode, after syncs that did not fail: whether what they are of was not lost before.
    cdef Committer* c = s.com
    cdef bint ok
    q_lock(c)
    ok = c.queue.failed == 0 and s.queue.done_errno == 0
    q_unlock(c)
    return ok
