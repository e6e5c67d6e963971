# Truncation: everything behind a sequence goes, and other messages get these sequences. Whatever knows a later sequence forgets
# it: who waits for its ack hears an error, the window of deduplication takes its id again, consumers go back.

cdef struct Cutting:
    Stream* s
    uint64_t seq                # the last one that stays


cdef void truncation_told(void* ctx) noexcept nogil:
    # Nothing is gone yet, and nothing behind the sequence may be seen any more.
    cdef Cutting* x = <Cutting*>ctx
    cdef ListWalk all = list_walk(&x.s.watchers.attached)
    cdef Watcher* w = watcher_step(&all)
    x.s.shown = min(x.s.shown, x.seq)
    while w != NULL:
        w.seen = min(w.seen, x.seq)
        w.gone = min(w.gone, x.seq)
        w.truncated(w, x.seq)
        w = watcher_step(&all)


cdef void acks_refuse(Stream* s, uint64_t seq) noexcept nogil:
    # Of messages that are gone: their publishers try again.
    cdef Fifo old = s.acks
    cdef size_t at = old.head
    cdef AckHead head
    cdef Span reply
    memset(&s.acks, 0, sizeof(Fifo))
    while at < old.b.n:
        memcpy(&head, old.b.data + at, sizeof(AckHead))
        reply = span(old.b.data + at + sizeof(AckHead), head.n)     # and what follows it
        if head.key <= seq:
            queue_answer(&s.acks, head.key, reply, head.flags)
        at += sizeof(AckHead) + head.n
    at = old.head
    while at < old.b.n:
        memcpy(&head, old.b.data + at, sizeof(AckHead))
        reply = span(old.b.data + at + sizeof(AckHead), reply_size(&head))
        if head.key > seq:
            send_pub_error(s, reply, &ERR_STREAM_STORE_FAILED, span_c(b"stream was truncated"))
        at += sizeof(AckHead) + head.n
    fifo_free(&old)


cdef int apply_truncate(Stream* s, const Change* c) noexcept nogil:
    cdef StoreState state
    cdef Cutting x
    cdef int rc
    store_state(s.store, &state)
    x.s = s
    x.seq = c.seq
    rc = store_truncate(s.store, c.seq, truncation_told, &x)
    if rc != ST_OK or c.seq >= state.last_seq:
        return rc
    s.entered = c.seq
    invariant(s.shown <= s.entered, "what is gone is not shown")
    s.newest_gone = False
    timetable_again(s, False)
    s.settle_wanted = 0 if s.settle_wanted > c.seq else s.settle_wanted
    s.settle_all = 0 if s.settle_all > c.seq else s.settle_all
    dedupe_cut(s, c.seq)
    last_id_resume(s)
    direct_cut(s, c.seq)
    stream_count_bytes(s)
    republish_cut(s, c.seq)
    acks_refuse(s, c.seq)
    staged_drop(s, b"stream was truncated")
    return ST_OK
