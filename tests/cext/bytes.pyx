"""Drives the structures of the bytes layer: hashes, timers, tasks, tables and files, one small class for each."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.types cimport off_t

from jsserver.cext.bytes cimport *

import os


def py_table_hash(bytes data not None) -> int:
    return table_hash(<const uint8_t*><const char*>data, len(data))


def py_header_get(bytes block not None, str name not None):
    cdef bytes key = name.encode()
    cdef Span value = header_get(span_of(block), key)
    return None if value.p == NULL else (<const char*>value.p)[:value.n]


# A def may not bear the name of a cdef.
globals().update(table_hash=py_table_hash, header_get=py_header_get)


cdef class PyHighwayHash:
    """HighwayHash-64 fed in pieces."""
    cdef HHState state

    def __init__(self, bytes key not None):
        cdef uint64_t words[4]
        if len(key) != 32:
            raise ValueError(f"a HighwayHash key has 32 bytes, not {len(key)}")
        memcpy(words, <const char*>key, 32)
        hh_init(&self.state, words)

    def update(self, bytes data not None) -> None:
        hh_update(&self.state, <const uint8_t*><const char*>data, len(data))

    def final(self) -> int:
        cdef HHState copy = self.state
        return hh_final(&copy)


cdef struct Slot:
    Timer timer
    Task task
    void* driver        # PyDriver, borrowed
    uint32_t id
    int64_t again       # timer: set again this long after it fired; 0: not
    uint32_t posts      # task: the slot it posts when it runs


cdef void slot_fired(Timer* t, int64_t now) noexcept nogil:
    cdef Slot* s = <Slot*>t.owner
    with gil:
        driver_log(s)
        if s.again:
            timer_set(&(<PyDriver>s.driver).timers, t, now + s.again)


cdef void slot_ran(Task* t) noexcept nogil:
    cdef Slot* s = <Slot*>t.owner
    with gil:
        driver_log(s)
        task_post(&(<PyDriver>s.driver).tasks, &(<PyDriver>s.driver).slots[s.posts].task)


cdef void slot_ran_alone(Task* t) noexcept nogil:
    with gil:
        driver_log(<Slot*>t.owner)


cdef void driver_log(Slot* s) noexcept:
    (<PyDriver>s.driver).log.append(s.id)


cdef class PyDriver:
    """A timer heap and a task list over `n` numbered timers and tasks; running returns the numbers in order."""
    cdef TimerHeap timers
    cdef List tasks
    cdef Slot* slots
    cdef uint32_t n
    cdef list log

    def __cinit__(self, uint32_t n):
        cdef uint32_t i
        self.slots = <Slot*>calloc(n if n else 1, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError
        self.n = n
        self.log = []
        for i in range(n):
            self.slots[i].id = i
            self.slots[i].driver = <void*>self
            self.slots[i].timer.owner = &self.slots[i]
            self.slots[i].timer.fn = slot_fired
            self.slots[i].task.owner = &self.slots[i]
            self.slots[i].task.fn = slot_ran_alone

    def __dealloc__(self):
        timers_free(&self.timers)
        free(self.slots)

    cdef Slot* slot(self, uint32_t i) except NULL:
        if i >= self.n:
            raise IndexError(f"slot {i} of {self.n}")
        return &self.slots[i]

    def set(self, uint32_t i, int64_t deadline, int64_t again=0) -> None:
        cdef Slot* s = self.slot(i)
        s.again = again
        if timer_set(&self.timers, &s.timer, deadline) < 0:
            raise MemoryError

    def cancel(self, uint32_t i) -> None:
        timer_cancel(&self.timers, &self.slot(i).timer)

    def is_set(self, uint32_t i) -> bool:
        return self.slot(i).timer.pos != 0

    def next(self) -> int:
        return timer_next(&self.timers)

    def run(self, int64_t now, uint32_t limit) -> list:
        self.log = []
        cdef uint32_t n = timer_run(&self.timers, now, limit)
        assert n == len(self.log)
        return self.log

    def post(self, uint32_t i, posts=None) -> None:
        cdef Slot* s = self.slot(i)
        s.task.fn = slot_ran_alone
        if posts is not None:
            s.posts = self.slot(posts).id
            s.task.fn = slot_ran
        task_post(&self.tasks, &s.task)

    def unpost(self, uint32_t i) -> None:
        task_cancel(&self.slot(i).task)

    def run_tasks(self, uint32_t limit) -> list:
        self.log = []
        cdef uint32_t n = task_run(&self.tasks, limit)
        assert n == len(self.log)
        return self.log


cdef struct Member:
    uint64_t before     # the node stands somewhere inside
    ListNode node
    uint32_t id


cdef inline Member* member_at(const ListNode* n) noexcept nogil:
    return <Member*>list_owner(n, &(<Member*>NULL).node)


cdef class PyLists:
    """Two lists, 0 and 1, of `n` numbered members."""
    cdef List[2] lists
    cdef Member* members
    cdef uint32_t n

    def __cinit__(self, uint32_t n):
        cdef uint32_t i
        self.members = <Member*>calloc(n if n else 1, sizeof(Member))
        if self.members == NULL:
            raise MemoryError
        self.n = n
        for i in range(n):
            self.members[i].id = i

    def __dealloc__(self):
        free(self.members)

    cdef ListNode* node(self, uint32_t i) except NULL:
        if i >= self.n:
            raise IndexError(f"member {i} of {self.n}")
        return &self.members[i].node

    def linked(self, uint32_t i) -> bool:
        return list_linked(self.node(i))

    def push_front(self, uint32_t which, uint32_t i) -> None:
        list_push_front(&self.lists[which & 1], self.node(i))

    def push_back(self, uint32_t which, uint32_t i) -> None:
        list_push_back(&self.lists[which & 1], self.node(i))

    def insert(self, uint32_t at, uint32_t i) -> None:
        list_insert(self.node(at), self.node(i))

    def remove(self, uint32_t i) -> None:
        list_remove(self.node(i))

    def drop(self, uint32_t i) -> bool:
        return list_drop(self.node(i))

    def pop(self, uint32_t which):
        cdef Member* m = member_at(list_pop(&self.lists[which & 1]))
        return None if m == NULL else m.id

    def take(self, uint32_t which) -> None:
        """All of the other list goes behind this one."""
        list_take(&self.lists[which & 1], &self.lists[1 - (which & 1)])

    def keep(self, uint32_t which, wanted) -> list:
        """Walks through the list and removes all that are not wanted; what the walk met."""
        cdef ListWalk w = list_walk(&self.lists[which & 1])
        cdef Member* m = member_at(list_step(&w))
        met = []
        while m != NULL:
            met.append(m.id)
            if m.id not in wanted:
                list_remove(&m.node)
            m = member_at(list_step(&w))
        return met

    def forward(self, uint32_t which) -> list:
        cdef List* held = &self.lists[which & 1]
        cdef ListNode* n = list_first(held)
        found = []
        while n != NULL:
            found.append(member_at(n).id)
            n = list_next(held, n)
        assert list_empty(held) == (not found)
        return found

    def backward(self, uint32_t which) -> list:
        cdef List* held = &self.lists[which & 1]
        cdef ListNode* n = list_last(held)
        found = []
        while n != NULL:
            found.append(member_at(n).id)
            n = list_prev(held, n)
        return found


cdef class PyU64Map:
    """Number to number; key 0 is refused."""
    cdef U64Map map

    def __dealloc__(self):
        u64map_free(&self.map)

    def __len__(self) -> int:
        return self.map.n

    @property
    def capacity(self) -> int:
        return self.map.cap

    def put(self, uint64_t key, uint64_t val) -> None:
        if u64map_put(&self.map, key, val) < 0:
            raise ValueError("key 0") if key == 0 else MemoryError()

    def get(self, uint64_t key):
        cdef uint64_t val = 0
        return val if u64map_get(&self.map, key, &val) else None

    def delete(self, uint64_t key) -> bool:
        return u64map_del(&self.map, key)

    def items(self) -> dict:
        """All pairs: each shows up once, though some may not be moved over yet."""
        cdef uint64_t at = 0
        cdef U64Pair pair
        found = []
        while u64map_each(&self.map, &at, &pair):
            found.append((pair.key, pair.val))
        assert len(found) == self.map.n
        return dict(found)

    @property
    def moving(self) -> int:
        """Slots of a smaller or larger table that are not moved over yet."""
        return self.map.old_cap - self.map.old_at if self.map.old != NULL else 0


cdef class PyStrMap:
    """Bytes to pointer; tests use numbers above 0 as pointers."""
    cdef StrMap map

    def __dealloc__(self):
        strmap_free(&self.map)

    def __len__(self) -> int:
        return self.map.n

    @property
    def capacity(self) -> int:
        return self.map.cap

    def put(self, bytes key not None, size_t val) -> None:
        if strmap_put(&self.map, span_of(key), <void*>val) < 0:
            raise MemoryError

    def get(self, bytes key not None) -> int:
        return <size_t>strmap_get(&self.map, span_of(key))

    def delete(self, bytes key not None) -> int:
        return <size_t>strmap_del(&self.map, span_of(key))


cdef class PyBuffer:
    """A growable buffer."""
    cdef Bytes buf

    def __dealloc__(self):
        bytes_free(&self.buf)

    def add(self, bytes data not None) -> None:
        if bytes_add(&self.buf, <const char*>data, len(data)) < 0:
            raise MemoryError

    def reserve(self, size_t more) -> None:
        if bytes_reserve(&self.buf, more) < 0:
            raise MemoryError

    @property
    def capacity(self) -> int:
        return self.buf.cap

    def __bytes__(self) -> bytes:
        return (<char*>self.buf.data)[:self.buf.n] if self.buf.n else b""


cdef object file_result(int64_t rc):
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc))
    return rc


cdef class PyFiles:
    """The POSIX file operations; errors raise OSError."""
    cdef FileOps* ops

    def __cinit__(self):
        self.ops = posix_files()

    def open(self, path, int flags, int mode=0o600) -> int:
        return file_result(self.ops.open(self.ops.ctx, os.fsencode(path), flags, mode))

    def close(self, int fd) -> None:
        file_result(self.ops.close(self.ops.ctx, fd))

    def pwrite(self, int fd, bytes data not None, off_t off) -> int:
        cdef const char* p = data
        cdef size_t n = len(data)
        cdef int64_t rc
        with nogil:
            rc = self.ops.pwrite(self.ops.ctx, fd, p, n, off)
        return file_result(rc)

    def pread(self, int fd, size_t n, off_t off) -> bytes:
        data = bytearray(n)
        cdef char* p = data
        cdef int64_t rc
        with nogil:
            rc = self.ops.pread(self.ops.ctx, fd, p, n, off)
        return bytes(data[:file_result(rc)])

    def datasync(self, int fd) -> None:
        file_result(self.ops.datasync(self.ops.ctx, fd))

    def truncate(self, int fd, off_t n) -> None:
        file_result(self.ops.truncate(self.ops.ctx, fd, n))

    def size(self, int fd) -> int:
        return file_result(self.ops.size(self.ops.ctx, fd))

    def rename(self, a, b) -> None:
        file_result(self.ops.rename(self.ops.ctx, os.fsencode(a), os.fsencode(b)))

    def unlink(self, path) -> None:
        file_result(self.ops.unlink(self.ops.ctx, os.fsencode(path)))

    def sync_dir(self, path) -> None:
        file_result(self.ops.sync_dir(self.ops.ctx, os.fsencode(path)))


cdef class PyRandom:
    """The environment's random numbers; what the system gives is read from `raw`, from its beginning."""
    cdef Env env
    cdef EnvLock lock
    cdef System system
    cdef bytes raw
    cdef size_t at
    cdef readonly int asked         # how often the system was

    def __init__(self, uint64_t seed, bytes raw not None=b""):
        self.raw = raw
        self.env.random = seed
        self.env.lock = &self.lock
        self.env.system = &self.system
        env_lock_init(&self.lock)
        self.system.clock = posix_system().clock
        self.system.random = random_of
        self.system.ctx = <void*>self

    def next(self) -> int:
        return env_random(&self.env)

    def secret(self) -> int:
        env_lock(&self.env)
        drawn = env_secret(&self.env)
        env_unlock(&self.env)
        return drawn

    def token(self, uint32_t n) -> bytes:
        cdef bytearray made = bytearray(n)
        env_lock(&self.env)
        env_token(&self.env, <uint8_t*><char*>made, n)
        env_unlock(&self.env)
        return bytes(made)


cdef void random_of(void* ctx, void* p, size_t n) noexcept nogil:
    with gil:
        owner = <PyRandom>ctx
        memcpy(p, <const char*>owner.raw + owner.at, n)
        owner.at += n
        owner.asked += 1
