# What the parts of replicated streams share.

cdef enum:
    APPLY_AT_ONCE = 256         # entries to apply in a turn; the rest waits for the next one


cdef inline bint is_running(const ReplicatedStream* r) noexcept nogil:
    return r.mode != REPLICA_STOPPED


cdef inline void stream_due(ReplicatedStream* r) noexcept nogil:
    # Has the stream's turn run at the end of the present one.
    if is_running(r):
        task_post(&r.env.tasks, &r.task)
