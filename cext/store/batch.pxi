# Batches: changes that are on disk as a whole or not at all.
#
# A commit group whose marker is whole was always all or nothing; what a crash tears is kept as far as it goes. Before a batch
# stands a marker that says that this will not do (MARK_BATCH): it is synced before anything of the batch is written, so no
# power cut takes it away. What stands behind it counts when the next marker is there, and nothing in between is missing. A
# batch is of one round: none is taken while it is made (`withheld`), and what a round takes ends at a marker's place
# (round_end). Its part in each block but the last is closed by a marker that says that it goes on (MARK_OPEN), and synced
# before the next one is written.
#
#       .. | marker, MARK_BATCH | 4 5 6 | marker, MARK_OPEN  ▌ 7 8 | marker
#
# Opening cuts off what is not whole, in the blocks from the end on, so that it finds the same again when it is cut short. A
# group is known to have been on disk when anything was written behind it: then a bad place in it is damage, as elsewhere.
# nats-server passes over markers. What it wrote itself is not judged: where its index.db stands, a batch that a crash left in
# part has been served, and stays.

cdef int store_batch(Store* s) noexcept nogil:
    cdef Op* op = NULL
    cdef Span none = span(NULL, 0)
    cdef uint8_t room[MARKER - REC_MIN]
    cdef int rc
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    if no_room(s):
        return ST_FULL
    if s.storage == STORE_FILE and (not s.announced or s.com.sync_interval > 0):
        op = op_new(OP_BATCH, NULL, 0, 0, 0)
        rc = tail_for(s, MARKER, 0) if op != NULL else ST_NO_MEMORY
        if rc < 0:
            free(op)
            return rc
    store_hold(s)
    s.batch = True
    if s.storage == STORE_FILE:
        q_lock(s.com)
        s.queue.withheld += 1
        q_unlock(s.com)
    if op != NULL:
        memset(room, 0, sizeof(room))
        op.block = s.tail
        op.first = s.first_seq
        op.off = stage(s.tail, MARKER, TOMB, 0, none, none, span(room, sizeof(room)))
        op_stage(s, op)
        s.announced = True
    return ST_OK


cdef void store_batch_end(Store* s, bint whole) noexcept nogil:
    cdef bint wake = False
    s.batch = False
    if not whole:
        s.io_errno = ENOMEM
    elif s.storage == STORE_FILE:
        q_lock(s.com)
        s.queue.withheld -= 1
        wake = dirty_push(s)        # at once: it is not taken for one that is idle
        q_unlock(s.com)
    if wake:
        q_signal(s.com, &s.com.wake)
    store_let(s)
