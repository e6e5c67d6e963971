"""Lets the consumers of a stream lead and follow."""

from jsserver.cext.bytes cimport Span, span_of
from jsserver.cext.consumer cimport (
    ConsumerHandle, Consumers, StreamHandle, consumer_follow, consumer_lead, consumers_apply, consumers_flush, consumers_of,
)


cdef void note_records(void* ctx, Span entry) noexcept nogil:
    with gil:
        (<list>ctx).append((<const char*>entry.p)[:entry.n])


cdef class PyLead:
    """Of the consumers of a stream; what their log takes while they lead goes into the list."""
    cdef StreamHandle stream
    cdef list entries

    def __init__(self, StreamHandle stream not None, list entries not None):
        self.stream = stream
        self.entries = entries

    cdef void hear(self, bint on) noexcept:
        # What was gathered before goes where it went until now.
        cdef Consumers* k = consumers_of(self.stream.s)
        cdef void* entries = <void*>self.entries
        with nogil:
            self.stream.box.enter()
            consumers_flush(self.stream.s)
            k.on_records = NULL
            if on:
                k.on_records = note_records
            k.records_ctx = entries
            self.stream.box.leave()

    def flush(self) -> None:
        with nogil:
            self.stream.box.enter()
            consumers_flush(self.stream.s)
            self.stream.box.leave()

    def apply(self, bytes entry not None) -> int:
        cdef Span e = span_of(entry)
        cdef int rc
        with nogil:
            self.stream.box.enter()
            rc = consumers_apply(self.stream.s, e)
            self.stream.box.leave()
        return rc

    def follow(self) -> None:
        cdef ConsumerHandle h
        self.hear(False)
        for h in self.stream.handles:
            with nogil:
                self.stream.box.enter()
                consumer_follow(h.c)
                self.stream.box.leave()

    def lead(self) -> None:
        """The stream is active, or becomes it now."""
        cdef ConsumerHandle h
        cdef int rc
        self.hear(True)
        if not self.stream.serving:
            self.stream.activate()
            return
        for h in self.stream.handles:
            with nogil:
                self.stream.box.enter()
                rc = consumer_lead(h.c)
                self.stream.box.leave()
            if rc < 0:
                raise MemoryError()
