"""Drives sublists and permissions of the core layer."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from jsserver.cext.bytes cimport Span, span_of
from jsserver.cext.core cimport (
    PERM_PUB_ALLOW, PERM_SUB_ALLOW, Match, Permissions, QueueGroup, Sub, SubCursor, Sublist, SublistStats, match_done, perms_add,
    perms_can_publish, perms_can_receive, perms_can_subscribe, perms_must_filter, perms_new, perms_release,
    perms_set_empty_allow, sub_free, sub_new, sublist_each, sublist_free, sublist_gc, sublist_insert, sublist_match,
    sublist_new, sublist_remove, sublist_some, sublist_stats,
)


cdef class PyMatch
cdef class PyLook


cdef class PySublist:
    """A sublist; subscriptions are known by the numbers that insert returns."""
    cdef Sublist* list
    cdef dict subs          # number -> address
    cdef size_t last

    def __cinit__(self):
        self.list = sublist_new(NULL)
        if self.list == NULL:
            raise MemoryError
        self.subs = {}

    def __dealloc__(self):
        sublist_free(self.list)

    def insert(self, bytes subject not None, bytes queue not None=b"", uint32_t weight=1) -> int:
        cdef Sub* s = sub_new(span_of(subject), span_of(queue), span_of(b""))
        if s == NULL:
            raise MemoryError
        s.weight = weight
        if sublist_insert(self.list, s) < 0:
            sub_free(s)
            raise MemoryError
        self.last += 1
        s.target = <void*>self.last
        self.subs[self.last] = <size_t>s
        return self.last

    def remove(self, number) -> None:
        sublist_remove(self.list, <Sub*><size_t>self.subs.pop(number))

    def match(self, bytes subject not None) -> PyMatch:
        cdef const Match* m = sublist_match(self.list, span_of(subject))
        if m == NULL:
            raise MemoryError
        cdef PyMatch found = PyMatch()
        found.owner = self
        found.match = m
        return found

    def count(self, bytes subject not None, size_t times) -> int:
        """Matches so often, with gc behind each; returns how many subscriptions that named."""
        cdef Span s = span_of(subject)
        cdef size_t _, total = 0
        cdef const Match* m
        with nogil:
            for _ in range(times):
                m = sublist_match(self.list, s)
                if m != NULL:
                    total += m.n_plain + m.n_groups
                sublist_gc(self.list)
        return total

    def count_each(self, list subjects not None) -> int:
        """Matches each once, with gc behind each; returns how many subscriptions that named."""
        cdef size_t total = 0
        cdef const Match* m
        for subject in subjects:
            m = sublist_match(self.list, span_of(subject))
            if m != NULL:
                total += m.n_plain + m.n_groups
            sublist_gc(self.list)
        return total

    def done(self, PyMatch found not None) -> None:
        match_done(self.list, found.match)

    def gc(self) -> None:
        sublist_gc(self.list)

    def each(self) -> list:
        cdef list out = []
        sublist_each(self.list, note_sub, <void*>out)
        return out

    def look(self) -> PyLook:
        """A look at all subscriptions in pieces."""
        cdef PyLook made = PyLook()
        made.owner = self
        return made

    def stats(self) -> dict:
        cdef SublistStats s
        sublist_stats(self.list, &s)
        return dict(s)

    @property
    def blocks(self) -> int:
        """Allocations the sublist holds, its subscriptions aside."""
        cdef SublistStats s
        sublist_stats(self.list, &s)
        return s.blocks

    @property
    def cached_bytes(self) -> int:
        cdef SublistStats s
        sublist_stats(self.list, &s)
        return s.cached_bytes


cdef void note_sub(void* out, Sub* s) noexcept nogil:
    with gil:
        (<list>out).append(<size_t>s.target)


cdef class PyLook:
    cdef PySublist owner
    cdef SubCursor cursor
    cdef readonly bint done

    def __cinit__(self):
        memset(&self.cursor, 0, sizeof(self.cursor))

    def some(self, int64_t room) -> list:
        """The numbers of what the next piece tells."""
        cdef list out = []
        self.done = sublist_some(self.owner.list, &self.cursor, &room, note_sub, <void*>out)
        return out


cdef class PyMatch:
    """A result; read it before the next gc."""
    cdef PySublist owner
    cdef const Match* match

    def read(self) -> tuple:
        """Numbers of the plain subscriptions, and of each group's members by the group's name."""
        cdef uint32_t i, j
        cdef const QueueGroup* g
        plain = [<size_t>self.match.plain[i].target for i in range(self.match.n_plain)]
        groups = []
        for i in range(self.match.n_groups):
            g = &self.match.groups[i]
            groups.append(((<const char*>g.name.p)[:g.name.n], [<size_t>g.subs[j].target for j in range(g.n)]))
        return plain, groups

    def weights(self) -> dict:
        """Of each group, by its name: what its members weigh together."""
        cdef const QueueGroup* g = self.match.groups
        return {(<const char*>g[i].name.p)[:g[i].name.n]: g[i].weight for i in range(self.match.n_groups)}

    def closed(self) -> list:
        """Numbers of the plain subscriptions that were removed since."""
        return [<size_t>self.match.plain[i].target for i in range(self.match.n_plain) if self.match.plain[i].closed]


cdef class PyPermissions:
    """Permissions of lists; entries of subscribe lists may be "subject queue"."""
    cdef Permissions* perms

    def __cinit__(self, *, pub_allow=None, pub_deny=None, sub_allow=None, sub_deny=None):
        self.perms = perms_new()
        if self.perms == NULL:
            raise MemoryError
        for which, entries in enumerate((pub_allow, pub_deny, sub_allow, sub_deny)):
            if entries is not None and which in (PERM_PUB_ALLOW, PERM_SUB_ALLOW):
                perms_set_empty_allow(self.perms, which)
            for entry in entries or ():
                subject, _, queue = entry.encode().partition(b" ")
                if perms_add(self.perms, which, span_of(subject), span_of(queue)) < 0:
                    raise MemoryError

    def __dealloc__(self):
        perms_release(self.perms)

    def can_publish(self, str subject not None) -> bool:
        cdef bytes s = subject.encode()
        return perms_can_publish(self.perms, span_of(s))

    def can_subscribe(self, str subject not None, str queue not None="") -> bool:
        cdef bytes s = subject.encode(), q = queue.encode()
        return perms_can_subscribe(self.perms, span_of(s), span_of(q))

    def must_filter(self, str subject not None, str queue not None="") -> bool:
        cdef bytes s = subject.encode(), q = queue.encode()
        return perms_must_filter(self.perms, span_of(s), span_of(q))

    def can_receive(self, str subject not None, str queue not None="") -> bool:
        cdef bytes s = subject.encode(), q = queue.encode()
        return perms_can_receive(self.perms, span_of(s), span_of(q))
