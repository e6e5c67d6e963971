# What streams do at times: the timing wheel of TTLs, and when schedules are due.

cdef bint listed(void* ctx, uint64_t key) noexcept nogil:
    with gil:
        return key not in <set>ctx


cdef class TimingWheel:
    """A timing wheel; what is in `unwanted` is forgotten when it moves."""
    cdef Wheel w
    cdef readonly set unwanted

    def __init__(self, uint64_t now):
        self.w.now = now
        self.unwanted = set()

    def __dealloc__(self):
        wheel_free(&self.w)

    def add(self, uint64_t key, uint64_t tick) -> None:
        if wheel_add(&self.w, key, tick) < 0:
            raise MemoryError()

    def take(self, uint64_t upto, uint32_t work=1_000_000) -> tuple:
        """What wheel_take answers, and the key."""
        cdef uint64_t key = 0
        cdef int rc = wheel_take(&self.w, upto, listed, <void*>self.unwanted, &work, &key)
        return rc, key

    def fill(self, uint64_t n, uint64_t tick, uint64_t over=1) -> None:
        """Keys from 0 on, at so many ticks in turn."""
        cdef uint64_t i
        for i in range(n):
            if wheel_add(&self.w, i, tick + i * 0x9e3779b1 % over) < 0:
                raise MemoryError()

    def drain(self, uint64_t upto, uint32_t work) -> int:
        """Takes in turns of so much work; how many came."""
        cdef uint64_t n = 0, key
        cdef uint32_t left
        cdef int rc = -1
        while rc == -1:
            left = work
            rc = 1
            while rc == 1:
                rc = wheel_take(&self.w, upto, all_wanted, NULL, &left, &key)
                n += rc == 1
        return n

    def again(self, uint64_t now) -> None:
        if wheel_again(&self.w, now) < 0:
            raise MemoryError()

    @property
    def next(self) -> int:
        return wheel_next(&self.w)

    def __len__(self) -> int:
        return self.w.n


cdef bint all_wanted(void* ctx, uint64_t key) noexcept nogil:
    return True


def pattern_due(bytes pattern not None, bytes zone, int64_t ts, int64_t now):
    """When it is due (ns) and whether it repeats; None: it is no pattern."""
    cdef Zone* zones = NULL
    cdef const Zone* z = NULL
    cdef Pattern p
    cdef bint good
    try:
        if zone is not None:
            z = zone_named(&zones, posix_files(), span_of(zone))
            if z == NULL:
                return None
        good = read_pattern(span_of(pattern), z, ts, now, &p)
        return (p.due, p.repeats) if good else None
    finally:
        zones_free(&zones)


def zone_offset_at(bytes zone not None, int64_t t):
    """The offset from UTC and when it changes, in seconds."""
    cdef Zone* zones = NULL
    cdef int64_t until, offset
    cdef const Zone* z = zone_named(&zones, posix_files(), span_of(zone))
    try:
        if z == NULL:
            return None
        offset = zone_offset(z, t, &until)
        return offset, until
    finally:
        zones_free(&zones)
