# What the parts of replicated streams share.

cdef enum:
    APPLY_AT_ONCE = 256         # entries; the rest has another turn


cdef inline bint is_running(const ReplicatedStream* r) noexcept nogil:
    return r.mode != REPLICA_STOPPED


cdef inline void stream_due(ReplicatedStream* r) noexcept nogil:
    # At the end of the turn it is looked what there is to do.
    if is_running(r):
        task_post(&r.env.tasks, &r.task)
