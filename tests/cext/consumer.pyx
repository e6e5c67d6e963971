"""Lets a consumer be a member of a Raft group."""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from jsserver.cext.bytes cimport Bytes, Span, bytes_free, span_of
from jsserver.cext.consumer cimport (
    JOINS, JOINS_ANEW, PROPOSE_LATER, ConsumerEntry, ConsumerHandle, StreamHandle, consumer_apply, consumer_ends,
    consumer_entry_get, consumer_entry_put, consumer_follow, consumer_join, consumer_lead, consumer_lead_group,
    consumer_reset_group, consumer_restore,
)


include "texts.pxi"

FIELDS = ("op", "dseq", "sseq", "deliveries", "sent", "reply")


def get_entry(bytes entry not None) -> "dict | None":
    """What an entry of a consumer's group says, without what is empty; None: it is none."""
    cdef ConsumerEntry e
    if not consumer_entry_get(span_of(entry), &e):
        return None
    said = zip(FIELDS, (e.op, e.dseq, e.sseq, e.deliveries, e.sent, span_bytes(e.reply)))
    return {name: value for name, value in said if value}


def put_entry(dict said not None) -> bytes:
    """The entry that says so."""
    cdef ConsumerEntry e
    cdef Bytes out
    cdef bytes reply = said.get("reply", b"")
    memset(&e, 0, sizeof(ConsumerEntry))
    memset(&out, 0, sizeof(Bytes))
    e.op, e.dseq, e.sseq = said["op"], said.get("dseq", 0), said.get("sseq", 0)
    e.deliveries, e.sent, e.reply = said.get("deliveries", 0), said.get("sent", 0), span_of(reply)
    try:
        if consumer_entry_put(&e, &out) < 0:
            raise MemoryError
        return (<const char*>out.data)[:out.n]
    finally:
        bytes_free(&out)


cdef int note_proposal(void* ctx, Span entry) noexcept nogil:
    with gil:
        if (<Member>ctx).refuses or (<Member>ctx).busy:
            return -2 if (<Member>ctx).refuses else PROPOSE_LATER
        (<Member>ctx).proposed.append((<const char*>entry.p)[:entry.n])
    return 0


cdef void note_refusal(void* ctx) noexcept nogil:
    with gil:
        (<Member>ctx).proposed.append(b"")


cdef class Member:
    """A consumer as a member of a Raft group, of which nothing is there but what it agrees on."""
    cdef ConsumerHandle handle
    cdef readonly list proposed
    cdef public bint refuses
    cdef public bint busy       # takes nothing for the moment

    def __init__(self, ConsumerHandle handle not None):
        cdef int rc = 0
        self.handle = handle
        self.proposed = []
        with nogil:
            handle.box.enter()
            if handle.c.group == NULL:
                consumer_follow(handle.c)
                rc = consumer_join(handle.c)
            handle.box.leave()
        if rc < 0:
            raise MemoryError

    def lead(self) -> None:
        """What it proposes goes into `proposed`; an empty entry says that another member is to lead."""
        cdef void* me = <void*>self
        cdef int rc
        with nogil:
            self.handle.box.enter()
            rc = consumer_lead_group(self.handle.c, note_proposal, note_refusal, me, &self.handle.changed)
            self.handle.box.leave()
        if rc < 0:
            raise MemoryError

    def follow(self) -> None:
        with nogil:
            self.handle.box.enter()
            consumer_follow(self.handle.c)
            self.handle.box.leave()

    def end(self) -> None:
        """It is closed next."""
        with nogil:
            self.handle.box.enter()
            consumer_ends(self.handle.c)
            self.handle.box.leave()

    def reset(self, uint64_t seq, bytes reply not None) -> int:
        cdef Span to = span_of(reply)
        cdef int rc
        with nogil:
            self.handle.box.enter()
            rc = consumer_reset_group(self.handle.c, seq, to)
            self.handle.box.leave()
        return rc

    def apply(self, bytes entry not None) -> int:
        cdef ConsumerEntry e
        cdef Span text = span_of(entry)
        cdef int rc = -2
        with nogil:
            self.handle.box.enter()
            if consumer_entry_get(text, &e):
                rc = consumer_apply(self.handle.c, &e)
            self.handle.box.leave()
        return rc

    def restore(self, bytes state not None, bint installed=False) -> int:
        cdef Span text = span_of(state)
        cdef int rc
        with nogil:
            self.handle.box.enter()
            rc = consumer_restore(self.handle.c, text, installed)
            self.handle.box.leave()
        return rc

    def asked(self) -> int:
        """How many pull requests wait with the leader."""
        return self.handle.c.asked.by_reply.n


def open_joined(StreamHandle stream not None, prepared, directory, bint anew, bytes given not None) -> ConsumerHandle:
    """A consumer that is a member from its opening on. anew: it stands where `given` says, whatever it knows."""
    return stream.open_as(prepared, directory, False, JOINS_ANEW if anew else JOINS, given or None)


def lead_alone(ConsumerHandle handle not None) -> None:
    """The consumer has no group, and its stream serves: it delivers from now on."""
    cdef int rc
    with nogil:
        handle.box.enter()
        rc = consumer_lead(handle.c)
        handle.box.leave()
    if rc < 0:
        raise MemoryError
