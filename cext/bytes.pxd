"""What every layer stands on: spans, messages, hashes, timers, tables, and the environment handed in."""

from libc.stdint cimport INT64_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, strlen
from posix.types cimport off_t


# ---- spans and messages ------------------------------------------------------------------------

cdef struct Span:
    # A borrowed view: valid only until the owner of the bytes may move or free them.
    const uint8_t* p
    uint32_t n


cdef inline Span span(const void* p, uint32_t n) noexcept nogil:
    cdef Span s
    s.p = <const uint8_t*>p
    s.n = n
    return s


# Of a NUL-terminated text shorter than 4 GiB.
cdef inline Span span_c(const char* text) noexcept nogil:
    return span(text, <uint32_t>strlen(text))


# Borrowed from a Python object that the caller keeps alive.
cdef inline Span span_of(bytes b) except *:
    if len(b) > UINT32_MAX:
        raise ValueError(f"{len(b)} bytes are too long for a span")
    return span(<const char*>b, <uint32_t>len(b))


cdef inline bint span_eq(Span a, Span b) noexcept nogil:
    return a.n == b.n and (a.n == 0 or memcmp(a.p, b.p, a.n) == 0)


cdef inline bint all_zero(const uint8_t* p, uint64_t n) noexcept nogil:
    return n == 0 or (p[0] == 0 and memcmp(p, p + 1, n - 1) == 0)


cdef inline bint span_starts(Span s, const char* prefix, uint32_t n) noexcept nogil:
    return s.n >= n and memcmp(s.p, prefix, n) == 0


# Copies the span's bytes to at, behind which the next ones go, and has the span name the copy.
cdef inline void place_text(uint8_t** at, Span* s) noexcept nogil:
    if s.n:
        memcpy(at[0], s.p, s.n)
    s.p = at[0]
    at[0] += s.n


# ---- assertions, lists ---------------------------------------------------------------------------

cdef extern from "bytes/checked.h" nogil:
    void invariant(bint holds, const char* what) noexcept
    void holder_enter(uint64_t* holder) noexcept
    void holder_leave(uint64_t* holder) noexcept
    bint holder_here(const uint64_t* holder) noexcept

include "bytes/lists.pxd"


# ---- numbers -------------------------------------------------------------------------------------

cdef extern from "bytes/words.h" nogil:
    uint32_t low_bit(uint64_t v) noexcept       # the number of the lowest bit that is set; one is


# The order of two numbers, for qsort.
cdef inline int compare_u64(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t*>a)[0], y = (<const uint64_t*>b)[0]
    return (x > y) - (x < y)


# How long ago a stored time was, negative for the future. Files and clocks may say anything, so it is at most 146 years
# either way: sums with durations (of 73 years at most) and with the monotonic clock fit.
cdef inline int64_t elapsed(int64_t now, int64_t then) noexcept nogil:
    cdef int64_t most = <int64_t>1 << 62
    if then < 0 and now >= most + then:
        return most
    if then > 0 and now <= then - most:
        return -most
    return now - then


# A varint: seven bits a byte, the lowest first, the top bit set in all but the last. At most 10 bytes at p; how many.
cdef inline uint32_t put_uv(uint8_t* p, uint64_t v) noexcept nogil:
    cdef uint32_t n = 0
    while v >= 0x80:
        p[n] = <uint8_t>(v & 0x7F) | 0x80
        v = v >> 7
        n += 1
    p[n] = <uint8_t>v
    return n + 1


# Takes one off the front; False when there is none.
cdef inline bint get_uv(Span* s, uint64_t* v) noexcept nogil:
    cdef uint64_t x = 0
    cdef uint32_t i
    for i in range(min(s.n, <uint32_t>10)):
        x |= <uint64_t>(s.p[i] & 0x7F) << (7 * i)
        if s.p[i] < 0x80:
            s.p += i + 1
            s.n -= i + 1
            v[0] = x
            return True
    return False


# Takes n bytes off the front; False when there are fewer.
cdef inline bint get_bytes(Span* s, void* out, uint32_t n) noexcept nogil:
    if s.n < n:
        return False
    memcpy(out, s.p, n)
    s.p += n
    s.n -= n
    return True


cdef enum Kind:
    # Whom a message comes from: with whose authority it asks for something. What is not filled in has none.
    KIND_JETSTREAM = 0      # streams and consumers: clients choose where messages, statuses and answers go
    KIND_SYSTEM             # the server's own answers and advisories, likewise
    KIND_ACCOUNT            # an answer that comes back through an import: its requester chose where it goes
    KIND_ACK                # what a stream answers to a publish or an ack; it goes to the reply of that, and nowhere else
    KIND_CLIENT
    KIND_ROUTER
    KIND_GATEWAY
    KIND_LEAF               # a leaf node of this server
    KIND_HUB                # a server that this one is a leaf node of

cdef enum Hears:
    # Which kinds of messages reach an internal subscription: bits of 1 << Kind.
    HEARS_REQUESTS = 0x1f0  # what acts for an asking client: nobody makes the server ask itself
    HEARS_ALL = 0x1ff
    LISTENS = 0x200         # it counts as interest, as a client's does; the server's own services do not
    SHARES = 0x400          # of all such subscriptions of a subject one takes each message
    IMPORTS = 0x800         # what its account imports reaches it, too, as a client's
    ANSWERS = 0x1000         # of requests to the control plane, on a literal subject: it has each first, and returns Answered

cdef enum Answered:
    LEFT = 0                # the control plane has the request, as if nobody had looked at it
    ANSWERED = 1
    LEFT_ALONE = 2          # likewise left, and nothing else of its connection is read before it is answered there: what is
    #                         usually answered at once would have to go there, too, for as long as there is more

cdef struct Msg:
    # A message on its way in or out. All spans are borrowed for the duration of the call.
    Span dest       # the subject it is routed by
    Span subject    # the subject its receivers see (equal to dest, but for deliveries of consumers)
    Span reply
    Span header     # the whole block "NATS/1.0...\r\n\r\n", or empty
    Span data
    uint64_t cid    # the connection it came from; 0 for the server's own
    int kind        # KIND_*
    uint32_t origin  # the leaf cluster that it came from, by a number of this server's; 0: none
    const Span* groups  # from another server: the queue groups that it is for, blanks between them; NULL: those that match
    bint behind     # the control plane has requests of this connection: what it asks comes behind them
    void* account


# ---- hashes ------------------------------------------------------------------------------------

cdef struct HHState:
    # HighwayHash-64 in progress.
    uint64_t v0[4]
    uint64_t v1[4]
    uint64_t mul0[4]
    uint64_t mul1[4]
    uint8_t rest[32]
    uint32_t n_rest

cdef void hh_init(HHState* s, const uint64_t* key) noexcept nogil
cdef void hh_update(HHState* s, const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t hh_final(HHState* s) noexcept nogil
cdef uint64_t hh64(const uint64_t* key, const uint8_t* p, size_t n) noexcept nogil
cdef void sha256(const uint8_t* p, size_t n, uint8_t* out32) noexcept nogil
# For tables in memory only: seeded once a process, so that nobody can prepare collisions.
cdef uint64_t table_hash(const uint8_t* p, size_t n) noexcept nogil


# ---- timers ------------------------------------------------------------------------------------

cdef struct Timer
ctypedef void (*timer_fn)(Timer* t, int64_t now) noexcept nogil

cdef struct Timer:
    # Embedded in its owner. deadline is monotonic nanoseconds; pos is 0 while it is not set.
    int64_t deadline
    uint32_t pos
    timer_fn fn
    void* owner

cdef struct TimerHeap:
    # A 4-ary heap of borrowed timers: set, cancel and pop cost O(log n).
    Timer** a
    uint32_t n
    uint32_t cap

# 0, or -1 when memory ran out (the timer is then not set).
cdef int timer_set(TimerHeap* h, Timer* t, int64_t deadline) noexcept nogil
cdef void timer_cancel(TimerHeap* h, Timer* t) noexcept nogil
# The earliest deadline, or INT64_MAX.
cdef int64_t timer_next(TimerHeap* h) noexcept nogil
# Fires what is due at `now`, at most `limit` of them; returns how many.
cdef uint32_t timer_run(TimerHeap* h, int64_t now, uint32_t limit) noexcept nogil
# Forgets every timer and frees the heap.
cdef void timers_free(TimerHeap* h) noexcept nogil


# ---- tasks: work that is due once in this turn ---------------------------------------------------

cdef struct Task
ctypedef void (*task_fn)(Task* t) noexcept nogil

cdef struct Task:
    # Embedded in its owner; being queued twice is being queued once.
    ListNode node
    task_fn fn
    void* owner

cdef inline bint task_queued(const Task* t) noexcept nogil:
    return list_linked(&t.node)

cdef void task_post(List* l, Task* t) noexcept nogil
cdef void task_cancel(Task* t) noexcept nogil
# Runs what is queued, including what that queues, at most `limit` tasks; returns how many ran.
cdef uint32_t task_run(List* l, uint32_t limit) noexcept nogil


# ---- tables --------------------------------------------------------------------------------------

cdef struct U64Pair:
    uint64_t key
    uint64_t val

cdef struct U64Map:
    # Open addressing, linear probing with backward-shift deletion. Key 0 is refused (-1).
    # What a larger or smaller table takes over is moved in small steps, by the puts and deletes that follow.
    uint64_t* keys
    uint64_t* vals
    uint32_t cap
    uint32_t n              # of both
    uint64_t* old           # keys, then values; what is not moved over yet stands in the slots [old_at, old_cap)
    uint32_t old_cap
    uint32_t old_at

cdef int u64map_put(U64Map* m, uint64_t key, uint64_t val) noexcept nogil      # 0 | -1 no memory
cdef bint u64map_get(const U64Map* m, uint64_t key, uint64_t* val) noexcept nogil
cdef bint u64map_del(U64Map* m, uint64_t key) noexcept nogil
# The next of all pairs, `at` begins with 0; False: there is none. Nothing is put or deleted between the first and the last.
cdef bint u64map_each(const U64Map* m, uint64_t* at, U64Pair* out) noexcept nogil
cdef void u64map_free(U64Map* m) noexcept nogil

cdef struct StrMap:
    # Bytes (copied) to pointer; for names, not for millions.
    uint64_t* hashes
    uint8_t** keys
    uint32_t* lens
    void** vals
    uint32_t cap
    uint32_t n

cdef int strmap_put(StrMap* m, Span key, void* val) noexcept nogil             # 0 | -1 no memory
cdef void* strmap_get(StrMap* m, Span key) noexcept nogil
cdef void* strmap_del(StrMap* m, Span key) noexcept nogil
cdef void strmap_free(StrMap* m) noexcept nogil

cdef struct Place:
    uint64_t hash
    void* item                  # NULL: free

cdef struct Table:
    # Open addressing by given hashes, linear probing, backward-shift deletion.
    Place* a
    uint32_t cap
    uint32_t n

cdef inline void* table_from(const Table* t, uint64_t hash, uint32_t* at) noexcept nogil:
    while t.a[at[0]].item != NULL:
        if t.a[at[0]].hash == hash:
            return t.a[at[0]].item
        at[0] = (at[0] + 1) & (t.cap - 1)
    return NULL

cdef inline void* table_first(const Table* t, uint64_t hash, uint32_t* at) noexcept nogil:
    # The first item of this hash, NULL: there is none. `at` is where it stands; table_more gives the next one.
    if t.n == 0:
        return NULL
    at[0] = <uint32_t>hash & (t.cap - 1)
    return table_from(t, hash, at)

cdef inline void* table_more(const Table* t, uint64_t hash, uint32_t* at) noexcept nogil:
    at[0] = (at[0] + 1) & (t.cap - 1)
    return table_from(t, hash, at)

cdef int table_add(Table* t, uint64_t hash, void* item) noexcept nogil         # 0 | -1 no memory
cdef void table_remove(Table* t, uint64_t hash, void* item) noexcept nogil     # which is there
# The item with the least place from `at` on, which becomes that place; NULL: there is none. Items may come and go between two
# calls: an item keeps its place. Of items with the same hash one is found.
cdef void* table_next(const Table* t, uint64_t* at) noexcept nogil

cdef enum:
    ARRAY_MAX = 0x40000000      # items of a growing array

cdef int array_grow(void* array, uint32_t* cap, uint64_t need, size_t item, uint32_t first) noexcept nogil

cdef inline int array_room(void* array, uint32_t* cap, uint64_t need, size_t item, uint32_t first) noexcept nogil:
    # Room for `need` items of a size in a growing array, which moves; `array` is where the pointer to it stands. `first` is how
    # many it begins with. 0 | -1 no memory, or too many: then all is as it was.
    return 0 if need <= cap[0] else array_grow(array, cap, need, item, first)


cdef struct Bytes:
    # A growable buffer. data moves when it grows.
    uint8_t* data
    size_t n
    size_t cap

cdef int bytes_reserve(Bytes* b, size_t more) noexcept nogil                   # 0 | -1 no memory
cdef void bytes_free(Bytes* b) noexcept nogil

cdef inline int bytes_add(Bytes* b, const void* p, size_t n) noexcept nogil:
    # 0 | -1 no memory
    if n > b.cap - b.n and bytes_reserve(b, n) < 0:
        return -1
    if n:
        memcpy(b.data + b.n, p, n)
        b.n += n
    return 0


include "bytes/texts.pxd"


# ---- files -----------------------------------------------------------------------------------------

# Memory in whole pages, all zeros, taken only as it is touched; NULL when there is none.
cdef void* pages_new(size_t n) noexcept nogil
cdef void pages_free(void* p, size_t n) noexcept nogil

cdef struct FileOps:
    # How layers reach files; the default is POSIX, tests hand in others. All return >= 0 or -errno.
    int (*open)(void* ctx, const char* path, int flags, int mode) noexcept nogil
    int (*close)(void* ctx, int fd) noexcept nogil
    int64_t (*pwrite)(void* ctx, int fd, const void* p, size_t n, off_t off) noexcept nogil    # all of it, or an error
    int64_t (*pread)(void* ctx, int fd, void* p, size_t n, off_t off) noexcept nogil           # short only at the end of the file
    int (*datasync)(void* ctx, int fd) noexcept nogil
    int (*sync_all)(void* ctx, int fd) noexcept nogil                                          # of the file system that it is in
    int (*truncate)(void* ctx, int fd, off_t n) noexcept nogil
    int64_t (*size)(void* ctx, int fd) noexcept nogil
    int64_t (*time)(void* ctx, int fd) noexcept nogil                                          # of the last change, ns since 1970
    int (*set_time)(void* ctx, int fd, int64_t time) noexcept nogil
    int (*identity)(void* ctx, int fd, uint64_t* out) noexcept nogil                           # no other file has the same
    # Whether writes go past the page cache from now on: they are whole pages then. -EINVAL where there is no such thing.
    int (*direct)(void* ctx, int fd, bint on) noexcept nogil
    int (*rename)(void* ctx, const char* a, const char* b) noexcept nogil
    int (*unlink)(void* ctx, const char* path) noexcept nogil
    int (*mkdir)(void* ctx, const char* path, int mode) noexcept nogil
    int (*rmdir)(void* ctx, const char* path) noexcept nogil
    int (*sync_dir)(void* ctx, const char* path) noexcept nogil
    int (*is_dir)(void* ctx, const char* path) noexcept nogil                                  # 1 | 0
    # Adds the names in a directory to `names`, each with a NUL behind it.
    int (*names)(void* ctx, const char* path, Bytes* names) noexcept nogil
    # n bytes of a file at *out, to be read; own: also to be written, for us alone. fd -1: of a file that is gone. What is
    # not in the file, or not any more, reads as zeros.
    int (*map)(void* ctx, int fd, size_t n, bint own, uint8_t** out) noexcept nogil
    # Puts a file's first n bytes, whole pages, in place of the memory at p, which pages_new made: as with `own`.
    int (*map_over)(void* ctx, uint8_t* p, int fd, size_t n) noexcept nogil
    # Ends either, of the whole of p.
    void (*unmap)(void* ctx, uint8_t* p, size_t n) noexcept nogil
    # What was read of a mapping may leave the process's memory.
    void (*cool)(void* ctx, uint8_t* p, size_t n) noexcept nogil
    # Whether that part of a mapping, which starts at a page, is in memory; and: brings it there and waits for it.
    bint (*resident)(void* ctx, const uint8_t* p, size_t n) noexcept nogil
    void (*warm)(void* ctx, const uint8_t* p, size_t n) noexcept nogil
    # Files are encrypted: what is written where something stood costs a copy of the file, zeros ahead are bytes as others,
    # and what `map` gives is memory of ours.
    bint once
    # Before a start uses the directory of a stream: finishes what a crash has interrupted. NULL: there is no such thing.
    int (*prepare)(void* ctx, const char* dir) noexcept nogil
    void* ctx

cdef FileOps* posix_files() noexcept nogil
# The name behind this one, NULL: the first, in what FileOps.names gave; NULL at the end.
cdef const char* name_after(const Bytes* names, const char* name) noexcept nogil

# Files that are written beside what they replace, to be renamed. The name is free again: 0 or -errno.
cdef int file_fresh(FileOps* f, const char* path) noexcept nogil
# A file without a byte; one of these bytes, not synced. A descriptor or -errno.
cdef int file_new(FileOps* f, const char* path) noexcept nogil
cdef int file_begin(FileOps* f, const char* path, Span data) noexcept nogil
# The same, synced; its name is not. 0 or -errno.
cdef int file_put(FileOps* f, const char* path, Span data) noexcept nogil


# ---- threads, clocks and random bytes --------------------------------------------------------------

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef unsigned long pthread_t
    int pthread_mutex_init(pthread_mutex_t* m, void* attr)
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)
    int pthread_mutex_destroy(pthread_mutex_t* m)

ctypedef pthread_mutex_t Mutex
ctypedef pthread_cond_t Cond
ctypedef pthread_t Thread

cdef void mutex_init(Mutex* m) noexcept nogil
cdef void mutex_free(Mutex* m) noexcept nogil
cdef void cond_init(Cond* c) noexcept nogil
cdef void cond_free(Cond* c) noexcept nogil

cdef struct System:
    # What layers ask of the system besides files.
    int64_t (*clock)(void* ctx) noexcept nogil              # monotonic ns
    int64_t (*wall)(void* ctx) noexcept nogil               # ns since 1970
    void (*random)(void* ctx, void* p, size_t n) noexcept nogil
    int (*start)(void* ctx, Thread* t, void* (*main)(void* arg) noexcept nogil, void* arg) noexcept nogil     # 0 | an errno
    void (*join)(void* ctx, Thread t) noexcept nogil
    void (*lock)(void* ctx, Mutex* m) noexcept nogil
    void (*unlock)(void* ctx, Mutex* m) noexcept nogil
    # With m held, which is let go meanwhile, until the clock shows `deadline` (INT64_MAX: for ever).
    void (*wait)(void* ctx, Cond* c, Mutex* m, int64_t deadline) noexcept nogil
    void (*signal)(void* ctx, Cond* c) noexcept nogil
    void (*broadcast)(void* ctx, Cond* c) noexcept nogil
    void (*notify)(void* ctx, int eventfd) noexcept nogil
    void* ctx

cdef System* posix_system() noexcept nogil


# ---- the environment -------------------------------------------------------------------------------

ctypedef int (*inbound_fn)(void* target, const Msg* m) noexcept nogil
# Called with every message that reaches an internal subscription. 1: taken, counts as a receiver;
# 0: not taken (no responders may be reported).

# What the control plane is told, through the inbox: kind, then up to three texts and three numbers.
cdef enum EventKind:
    EV_CONSUMER_GONE = 1      # stream, consumer: inactive for its threshold; to be deleted. num[0] = consumer id
    # Of an advisory about a pin the reason is its group, a blank, and its id or why it ended.
    EV_ADVISORY = 2           # stream, consumer, reason; num = kind, stream_seq, consumer_seq, deliveries, ack_time
    EV_STORE_ERROR = 3        # stream, text: a write or sync failed; num[0] = errno
    EV_PAUSE_OVER = 4         # stream, consumer
    EV_LOG = 5                # text; num[0] = 1: an error, else a warning
    EV_DISK_FULL = 6          # num[0] = errno: nothing more is stored until there is room again
    EV_BATCH_GONE = 7         # stream, batch, reason: an atomic batch is dropped
    EV_INTAKE = 8             # stream: what a mirror or source takes in has ended; num[0] = its id
    EV_GROUP = 9              # a Raft group has something for its owner; num[0] = its number
    EV_REPLICA = 10           # what a Raft group drives is another, or has failed; num[0] = its number, num[1] = what

cdef enum AdvisoryKind:
    ADV_MAX_DELIVER = 1
    ADV_NAK = 2
    ADV_TERM = 3
    ADV_ACK_METRIC = 4
    ADV_PINNED = 5
    ADV_UNPINNED = 6

cdef struct Usage:
    # Bytes held by the streams of an account (or of all) in one kind of storage, and the most they may hold (-1: any).
    int64_t used
    int64_t max
    int64_t told            # mono: when the log last said that the server's streams hold more; 0: never

cdef struct Requests:
    # Those to the API that an account's streams answered themselves, as far as they count.
    int64_t total
    int64_t errors          # of them
    int64_t inflight        # besides: they are carried out, and their answers wait for the disk

cdef struct Event:
    int kind
    void* account       # whose stream it is
    Span text[3]
    int64_t num[5]

cdef struct Outlet:
    # The way out of stream and consumer; the engine hands it in, tests hand in a recorder.
    void* ctx
    # Routes a message inside m.account. Returns the number of receivers that took it.
    int (*send)(void* ctx, const Msg* m) noexcept nogil
    # Set by send where a client that took the message has so much to take already that it may soon be cut.
    bint full
    # Whether a client that would receive a message on this subject has half as much to take.
    bint (*still_full)(void* ctx, void* account, Span subject) noexcept nogil
    # An internal subscription to messages of these kinds (HEARS_*, with or without LISTENS); returns a handle for
    # unsubscribe, NULL when memory ran out.
    void* (*subscribe)(void* ctx, void* account, Span subject, int hears, inbound_fn fn, void* target) noexcept nogil
    void (*unsubscribe)(void* ctx, void* sub) noexcept nogil
    # Whether a client or a stream would receive a message on this subject (wildcards and queues count).
    bint (*has_interest)(void* ctx, void* account, Span subject) noexcept nogil
    # How many connections have subscribed to exactly this subject: clients, and servers that have the account's interest.
    uint32_t (*heard_by)(void* ctx, void* account, Span subject) noexcept nogil
    # Tells fn(target, active) now and at each change whether a subscription with exactly this subject and
    # queue group (empty: none) exists. Returns a handle for unwatch.
    void* (*watch)(void* ctx, void* account, Span subject, Span group,
                   void (*fn)(void* target, bint active) noexcept nogil, void* target) noexcept nogil
    void (*unwatch)(void* ctx, void* watch) noexcept nogil
    # Copies the event into the control inbox.
    void (*event)(void* ctx, const Event* e) noexcept nogil

cdef struct EnvLock:
    # A fair lock out of two: the first that waits holds `next`, so that a reactor, which lets go of `held`
    # only to take it again, cannot pass by.
    Mutex held
    Mutex next
    int64_t since           # mono: when it was taken
    int64_t longest         # ns that it was held at most, since somebody asked
    uint64_t holder         # with CHECKED=1

cdef inline void env_lock_init(EnvLock* l) noexcept nogil:
    pthread_mutex_init(&l.held, NULL)
    pthread_mutex_init(&l.next, NULL)

cdef inline void lock_taken(Env* e) noexcept nogil:
    e.lock.since = e.system.clock(e.system.ctx)
    holder_enter(&e.lock.holder)

cdef inline void lock_given(Env* e) noexcept nogil:
    holder_leave(&e.lock.holder)
    e.lock.longest = max(e.lock.longest, e.system.clock(e.system.ctx) - e.lock.since)

cdef inline void env_lock(Env* e) noexcept nogil:
    pthread_mutex_lock(&e.lock.next)
    pthread_mutex_lock(&e.lock.held)
    pthread_mutex_unlock(&e.lock.next)
    lock_taken(e)

cdef inline void env_unlock(Env* e) noexcept nogil:
    lock_given(e)
    pthread_mutex_unlock(&e.lock.held)

cdef inline bint env_held(const Env* e) noexcept nogil:
    # For assertions: whether this thread has the engine lock. True where they are left out.
    return holder_here(&e.lock.holder)

cdef struct Secrets:
    # Random bytes of the system that nobody has used.
    uint8_t raw[512]
    uint32_t n

cdef struct Env:
    # One an engine: the only way from a layer to the outside. Everything below is used only under `lock`, but for
    # `files` and `system`.
    EnvLock* lock         # the engine lock: env_lock, env_unlock
    int64_t now           # wall clock, ns since 1970; set by the driver, before each turn
    int64_t mono          # monotonic ns, likewise
    TimerHeap timers      # deadlines on the monotonic clock
    List tasks            # of Tasks: what is to run at the end of this turn
    FileOps* files
    System* system
    Outlet out
    uint64_t random       # state of env_random
    Secrets secrets

cdef uint64_t split_mix(uint64_t* state) noexcept nogil     # the next number; who sees some can compute all others
cdef uint64_t env_random(Env* e) noexcept nogil             # for choice and jitter; who sees some can compute all others
cdef uint64_t env_secret(Env* e) noexcept nogil             # for what nobody may guess
cdef void env_token(Env* e, uint8_t* p, uint32_t n) noexcept nogil      # n digits in base 62, likewise

cdef extern from * nogil:
    """
    static inline uint8_t base62(uint32_t v)
    {
        return (uint8_t)"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[v];
    }
    """
    uint8_t base62(uint32_t v) noexcept         # a digit

cdef inline void env_wait(Env* e, Cond* c, int64_t deadline) noexcept nogil:
    # Waits for c without the engine lock, until the clock shows `deadline` at most.
    invariant(env_held(e), "who waits has the engine lock")
    lock_given(e)
    e.system.wait(e.system.ctx, c, &e.lock.held, deadline)
    lock_taken(e)

cdef inline int64_t env_clock(Env* e) noexcept nogil:
    # The monotonic clock as it is now, for threads that take no turns.
    return e.system.clock(e.system.ctx)


# ---- compressed bytes ------------------------------------------------------------------------------

include "bytes/s2.pxd"
