# Schedules (ADR-51): a message that says when a copy of it, or of another subject's last message, is published into the stream.
# It holds its subject: with a newer message there, or when it is gone for whatever reason, it is over.

cdef void schedule_end(Stream* s, const PubHeaders* h) noexcept nogil:
    # What was stored ends a schedule: part of its change, as a rollup is.
    if span_eq(h.schedule_next, span_c(b"purge")) and is_subject(h.scheduler):
        store_purge_subject(s.store, h.scheduler)
