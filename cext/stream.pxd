"""A stream: publishing with its checks and acks, deduplication, interest, reads; and text helpers above it."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from jsserver.cext.bytes cimport (
    Bytes, Cond, Draft, Env, FileOps, JsonItem, List, ListNode, Msg, PatternNode, PatternTrie, Requests, Span, StrMap,
    SubjectTransform, Task, Timer, Transform, U64Map, Usage, WholeSecond, place_text, transform_copy, transform_free,
)
from jsserver.cext.store cimport Committer, Filter, LastLook, Record, Store, StoreConfig, StoreState, Wait


# ---- numbers, times and requests in texts ---------------------------------------------------------------

# False unless s is 1 to 20 digits that fit.
cdef bint get_u64(Span s, uint64_t* v) noexcept nogil
cdef Span trimmed(Span s) noexcept nogil
# Go's time.ParseDuration: "1h30m", "-1.5s"; nanoseconds.
cdef bint get_duration(Span s, int64_t* ns) noexcept nogil
# Go's Duration.String at p (at most 32 bytes); returns how many.
cdef uint32_t put_duration(uint8_t* p, int64_t ns) noexcept nogil
# RFC 3339 with up to nine decimals; nanoseconds since 1970.
cdef bint get_time(Span s, int64_t* ns) noexcept nogil
# Appends s as the inside of a JSON string. 0 | -1 no memory
cdef int add_json_text(Bytes* b, Span s) noexcept nogil
cdef int add_text(Bytes* b, const char* text) noexcept nogil
cdef int add_span(Bytes* b, Span s) noexcept nogil
cdef int add_u64(Bytes* b, uint64_t v) noexcept nogil
# Keys and values of headers that know no case.
cdef bint key_is(Span key, const char* name) noexcept nogil
# Members of requests; null leaves the value alone, as Go's decoder does.
cdef bint read_int(const JsonItem* it, int64_t* v) noexcept nogil
cdef bint read_uint(const JsonItem* it, uint64_t* v) noexcept nogil
# Whether a request's header Nats-Required-Api-Level asks for more than there is.
cdef bint level_too_high(Span header) noexcept nogil


# ---- a queue of bytes ----------------------------------------------------------------------------------

cdef struct Fifo:
    # Bytes in, bytes out, in one buffer that moves together when half of it is spent.
    Bytes b
    size_t head
    uint64_t base           # how many bytes were dropped before b.data[0]: positions base + i are stable

cdef uint8_t* fifo_add(Fifo* f, size_t n) noexcept nogil                    # NULL: no memory
cdef void fifo_drop(Fifo* f, size_t n) noexcept nogil


# ---- a timing wheel --------------------------------------------------------------------------------------

cdef enum:
    WHEEL_TICK = 22         # bits: a tick is 2**22 ns, four milliseconds
    WHEEL_LEVELS = 7

cdef struct WheelChunk

cdef struct Wheel:
    # Keys with the ticks at which they are due. Zeroed before the first one, but for `now`.
    uint64_t now            # the present tick: nothing before it is left
    uint64_t n
    uint64_t used[WHEEL_LEVELS]         # a bit a slot that has something
    WheelChunk* slots[WHEEL_LEVELS * 64]
    WheelChunk* moving      # what comes to smaller wheels
    WheelChunk** old        # of wheel_again: the slots that are still to be gone through, from old_at on
    uint32_t old_at

cdef uint64_t wheel_tick(int64_t ns) noexcept nogil             # the first that is not before a time
cdef int64_t wheel_time(uint64_t tick) noexcept nogil
cdef int wheel_add(Wheel* w, uint64_t key, uint64_t tick) noexcept nogil             # 0 | -1 no memory
# The tick at which there is something to do; UINT64_MAX when the wheel is empty.
cdef uint64_t wheel_next(const Wheel* w) noexcept nogil
# Takes out a key that is due by `upto`: 1, 0 when there is none, -1 when there may be more than `work` (which goes down) allows,
# or memory ran out. Of one tick those that came first leave first, but for those that were added for a later turn.
# `wanted` is asked when something moves: what is not wanted is forgotten.
cdef int wheel_take(Wheel* w, uint64_t upto, bint (*wanted)(void* ctx, uint64_t key) noexcept nogil, void* ctx,
                    uint32_t* work, uint64_t* key) noexcept nogil
# The one that follows what was taken just now, 0 where that is not known at once.
cdef uint64_t wheel_ahead(const Wheel* w) noexcept nogil
# All are gone through, in the turns to come, and the present is this tick from now on. 0 | -1 no memory
cdef int wheel_again(Wheel* w, uint64_t now) noexcept nogil
cdef void wheel_free(Wheel* w) noexcept nogil


# ---- watchers: who wants to know of which messages -------------------------------------------------------

cdef struct Watcher
cdef struct Spot

cdef struct WatchEntry:
    Spot* spot              # watchers of one pattern
    uint32_t slot           # where in it

cdef struct Watcher:
    # Embedded in a consumer; its filter must not change while it is attached. The callbacks attach and detach nobody.
    void* owner
    const Filter* filter
    # A matching message was stored and may be seen.
    void (*stored)(Watcher* w, uint64_t seq) noexcept nogil
    # A matching message that might be seen left the store (but for purges).
    void (*removed)(Watcher* w, uint64_t seq, int reason) noexcept nogil
    # What is behind this sequence is about to go, and other messages will have these sequences. What the owner notes in its
    # log now is on disk before that.
    void (*truncated)(Watcher* w, uint64_t seq) noexcept nogil
    # A purge of what matches (NULL: of everything) happened: anything may be gone.
    void (*purged)(Watcher* w, const Filter* what) noexcept nogil
    # The stream changes again, after it was halted.
    void (*resumed)(Watcher* w) noexcept nogil
    # Whether the owner still needs a stored message that matches.
    bint (*needs)(Watcher* w, uint64_t seq) noexcept nogil
    uint64_t seen           # the last sequence it was told of: several patterns may match one message
    uint64_t gone           # likewise of removals
    ListNode node           # its stream's
    WatchEntry* entries     # one a pattern
    uint32_t n_entries

cdef struct SpotItem:
    Watcher* w
    uint32_t entry          # which of its entries this is

cdef struct Spot:
    SpotItem* items
    uint32_t n
    uint32_t cap
    PatternNode* node       # of a pattern with wildcards
    Span literal            # of literals: the pattern, for its removal

cdef struct WatchIndex:
    List attached           # Watchers
    uint32_t n
    Spot* all               # watchers of every message
    StrMap literals         # pattern -> Spot*
    PatternTrie wild        # of Spots


# ---- the stream -------------------------------------------------------------------------------------------

cdef enum AnswerKind:
    ANSWER_ACK = 0          # an empty answer
    ANSWER_GET = 1          # of a direct get
    ANSWER_API = 2
    ANSWER_PUBLISH = 3      # of a publish
    ANSWER_DELETE = 4       # of the API, that a message is deleted

cdef struct BatchRoom:
    # What the open batches of all streams may take; 0 stands for nats-server's defaults. And what they take.
    int64_t max_per_stream  # batches of a kind; likewise the next
    int64_t max_total
    int64_t max_size        # messages of an atomic one
    int64_t timeout         # ns without a message
    uint32_t atomic
    uint32_t fast
    uint64_t bytes          # staged
    void* system            # the account that hears of what becomes of them, too; NULL: there is none

cdef struct StreamPlace:
    # Where a stream is opened: what the engine knows and its configuration does not.
    void* account
    Span directory              # of the stream; empty for memory storage
    Span domain                 # empty: none
    Span account_hash           # eight characters, in the long form of ack subjects
    bint long_acks              # consumers' ack subjects with domain and account hash
    bint synced                 # as in StoreConfig
    int64_t max_payload         # the server's
    Usage* account_usage        # NULL: not counted
    Usage* server_usage
    Requests* requests          # NULL: not counted
    BatchRoom* batch_room

cdef extern from *:
    """
    static const int64_t FOREVER = (int64_t)1 << 61;
    """
    const int64_t FOREVER       # longer durations are taken as this one, so that sums of times fit

cdef class ConfigTexts:
    """What a configuration in C borrows: its texts, and the arrays of its lists."""
    cdef list kept
    cdef void* room(self, size_t n) except NULL
    cdef Span one(self, str text) except *
    cdef int many(self, object texts, const Span** to, uint32_t* n) except -1
    cdef int durations(self, object given, const int64_t** to, uint32_t* n) except -1

cdef inline int64_t duration_of(object given) except? -1:
    return min(<int64_t>given, FOREVER)

cdef inline Transform* transform_of(SubjectTransform given) except? NULL:
    return NULL if given is None else given.t

cdef inline size_t spans_room(const Span* spans, uint32_t n) noexcept nogil:
    # What an array of spans and their texts take.
    cdef size_t room = n * sizeof(Span)
    cdef uint32_t i
    for i in range(n):
        room += spans[i].n
    return room

cdef inline const void* place_array(uint8_t** at, const void* array, size_t n) noexcept nogil:
    # As place_text, of an array.
    cdef void* to = at[0]
    if n:
        memcpy(to, array, n)
    at[0] += n
    return to

cdef inline void place_texts(uint8_t** at, Span* spans, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        place_text(at, &spans[i])

include "stream/options.pxi"

cdef struct Stream

cdef struct Purge:
    # A purge in pieces, between which the lock is let go. It is of the messages that are there when it begins.
    Stream* s
    Span subject                # borrowed; empty: all
    Filter filter
    bint compiled
    uint64_t keep               # so many are still to be passed, back from `end`
    uint64_t start
    uint64_t end
    bint more                   # it has not ended
    int64_t gone                # how many messages, or ST_*

cdef struct Rolling:
    # A rollup under way of a subject that has many messages.
    Purge purge
    uint64_t seq
    Span reply
    Span subject

cdef struct PatternLook:
    # The last message on a pattern, which a publish expects: looked for in pieces.
    Filter filter
    LastLook at
    bint known
    uint64_t seq

cdef struct Dedupe:
    # Ids of the window: their bytes in a queue in order of time, found through their hashes.
    Fifo ids
    U64Map by_hash          # hash -> position in ids, plus one
    uint64_t n
    uint64_t unread         # messages up to this sequence were there at the start and are not looked at yet
    uint64_t read_at        # of those the next one; 0: their reading has not begun
    bint asked              # somebody needs them
    bint reading            # they are read in turns, or something else takes turns, and publishes wait
    Fifo waiting            # these, in their order
    void* first             # the one before them, which was begun and waits again
    PatternLook* look       # what the first one waits for; NULL: nothing of its own
    Rolling* rolling        # what all wait for; NULL: nothing
    Task turn
    Wait cold               # for what is to be read next
    Timer timer

cdef struct DirectJob

cdef enum ChangeKind:
    CHANGE_MESSAGE = 1          # a message is stored under its sequence
    CHANGE_SKIP = 2             # a sequence is used up without one
    CHANGE_DELETE = 3           # a message goes on request
    CHANGE_RELEASE = 4          # ... because no consumer needs it any more
    CHANGE_PURGE = 5
    CHANGE_TRUNCATE = 6         # all behind a sequence goes, and is given again
    CHANGE_EXPIRE = 7           # a message goes because its time is over

cdef enum Rollup:
    ROLLUP_NONE = 0
    ROLLUP_SUBJECT = 1          # the message replaces all of its subject
    ROLLUP_ALL = 2

cdef struct PubHeaders

cdef struct Change:
    # One change of a stream, as a value: what it does depends on nothing else but the stream.
    ChangeKind kind
    int rollup                  # of a message or skip: ROLLUP_*
    bint erase                  # of a delete: the bytes are overwritten
    uint64_t seq                # of the message; of a purge: only what is below it goes, 0: all; of a truncation: the last
    #                             that stays
    uint64_t start              # of a purge in pieces: nothing below it goes
    uint64_t most               # likewise: so many of the oldest; 0: this is the last piece, of which the watchers hear
    int64_t ts                  # when it was decided; the message's time
    uint64_t keep               # of a purge: so many of the newest stay
    Span subject                # of a purge: the pattern, empty: all
    Span header
    Span data
    Span id                     # the window of deduplication remembers it
    const Filter* filter        # the subject of a purge, if it is compiled already
    const PubHeaders* said      # what `header` says, if it was read already

cdef struct StreamEntry:
    # A Change as a leader proposes it to its stream's group, with what the members need besides. Spans are views of the entry,
    # or of what was kept of it.
    Change change           # of a message `seq` is its applier's to say: lseq + 1, less what was refused
    uint64_t lseq           # of a message: sequences that were used or refused before it, as the leader counted
    Span reply              # whom the answer goes to
    bint sourced            # a message that a mirror or source took in
    bint judged             # the leader says whether a consumer wants the message; else each member sees for itself
    bint unwanted           # no consumer wants the message: it uses up its sequence
    Span batch              # id of the atomic batch that a message is of; empty: of none
    uint64_t batch_seq      # from 1
    bint batch_ends
    Span client             # of a request: who asked, as JSON; empty: the server itself
    Span stream             # its name
    Span api                # the subject that was asked
    uint64_t last           # of a purge: the stream's last sequence when it was proposed

cdef enum:
    MEMBER_DIVERGED = -32       # beside ST_*

cdef struct Committed:
    # An entry that a majority of the group has.
    uint64_t index              # of the message of Raft that it came in
    bint normal                 # it is a StreamEntry; otherwise it only ends an open batch
    Span data
    int64_t result              # of a purge: how many messages went; of a removal: ST_OK or ST_NOT_FOUND

# An entry in nats-server's form. A run of skipped sequences is CHANGE_SKIP with `most`. kept: for what is no view of the entry,
# valid until its next use. 1 | 0: it is none, or damaged | ST_NO_MEMORY
cdef int change_get(Span entry, Bytes* kept, StreamEntry* out) noexcept nogil
cdef bint is_request(Span entry) noexcept nogil     # whether it may be one of the API: a purge or a removal
# Adds the entry to out. ST_OK | ST_NO_MEMORY | ST_TOO_LARGE | ST_UNKNOWN: there is no such entry
cdef int change_put(const StreamEntry* e, Bytes* out) noexcept nogil

cdef struct Overlay
cdef struct Member
cdef struct Batches
cdef struct Intake

cdef struct IntakeConfig:
    # What a mirror or a source takes in, while one consumer of its origin lives.
    uint64_t id             # in the stream
    bint mirror
    Span deliver            # where that consumer delivers to
    Span consumer           # "stream.consumer" by their names
    uint64_t origin         # the last sequence of the origin that is dealt with
    Span head               # of Nats-Stream-Source's value: what stands before the sequence, and between it and the subject
    Span tail
    Transform* const* transforms    # of subjects, of which the first that matches counts; NULL: what matches keeps its subject
    uint32_t n_transforms

cdef struct Timetable

cdef struct Zone

# The zone of this name, read when it is asked for first and kept in the list; NULL: there is none.
cdef const Zone* zone_named(Zone** zones, FileOps* f, Span name) noexcept nogil
# What its clocks show more than UTC at t (seconds since 1970), and when that changes; INT64_MAX: never.
cdef int64_t zone_offset(const Zone* z, int64_t t, int64_t* until) noexcept nogil
cdef void zones_free(Zone** zones) noexcept nogil

cdef struct Pattern:
    bint repeats
    int64_t due                 # ns
    int64_t every               # ns; 0: not in equal steps

# When a schedule's pattern is due the next time after ts (ns). What should have been several times before now is once, and
# goes on from now. z: NULL where none is named. False: it is no pattern.
cdef bint read_pattern(Span s, const Zone* z, int64_t ts, int64_t now, Pattern* to) noexcept nogil

cdef struct Stream:
    Env* env
    void* account
    Store* store            # NULL between stream_give_store and its end
    StreamConfig cfg        # its texts are in `texts`
    uint8_t* texts
    StreamPlace place       # its texts are in `place_texts`
    uint8_t* place_texts
    void** subs             # subscriptions of the subjects
    uint32_t n_subs
    void* direct[2]
    void* origin_direct[2]
    void* asked[2]          # likewise of requests for single messages
    int64_t deleting        # of these, deletions that wait for durability
    List intakes
    bint active
    bint purging            # the store's removals are part of a purge
    bint lent               # a record of the store is being delivered: nothing may change it meanwhile
    Bytes ack_prefix        # {"stream":"S","seq":
    Bytes error_suffix      # ,"stream":"S","seq":0}
    Fifo acks               # PubAcks that wait for durability, by sequence
    Fifo answers            # other answers that wait for durability, by ticket
    Fifo republished        # messages that are to be published again, by sequence: before their acks
    Task republish          # sends them, where they do not wait for durability
    int64_t republish_told  # mono: when the log last said that one cannot be; 0: never
    int failed              # errno of a group that could not be written: nothing is served until it is opened again
    int halted              # errno for which nothing is changed until stream_resume: reads go on
    Dedupe dedupe
    Bytes last_id           # Nats-Msg-Id of the last message
    Overlay* staging        # what passed the checks and is not applied; NULL: nothing is staged
    Member* member          # of a Raft group; NULL: the stream is this server's alone
    Batches* batches        # those that are open; NULL: there was none
    Timetable* timetable    # what is to be done at some time; NULL: nothing ever is, or the stream does not serve
    void (*on_change)(void* ctx, const Change* c) noexcept nogil    # hears of what was decided here before it is applied
    void* change_ctx
    WatchIndex watchers
    bint synced             # what is not durable yet is not shown
    uint64_t shown          # the last sequence that may be seen, and that the watchers heard of
    uint64_t entered        # the last one that is accounted for
    bint newest_gone        # the store let go of a message before it was accounted for
    Task settle             # interest retention: looks for what nobody needs any more, in several turns
    uint64_t settle_wanted  # the next sequence it looks at among what is wanted; 0: done
    uint64_t settle_all     # likewise among all messages
    bint consumer_missing   # a consumer is out of service: nobody knows what it needs
    int64_t counted         # bytes that this stream added to the usages
    List jobs               # direct gets in several turns
    uint32_t n_cold         # those of a single message that wait for the disk
    WholeSecond second      # of the last message that a direct get was answered with
    Cond durable            # signalled when something became durable
    void* consumers         # of the layer above: shared by the stream's consumers

# Copies the configuration and the place. NULL: no memory. The stream does not own the store.
cdef Stream* stream_new(Env* env, Store* store, const StreamConfig* cfg, const StreamPlace* place) noexcept nogil
# Subscribes and serves. 0 | 1 what a crash had left to be removed was: store_written, without the lock, before anybody sees it |
# -1 no memory (then nothing is subscribed)
cdef int stream_activate(Stream* s) noexcept nogil
# The new configuration; name, storage and directory stay. 0 | -1 no memory (the old one stays) | ST_* of the store
cdef int stream_update(Stream* s, const StreamConfig* cfg) noexcept nogil
# After it, a piece of what its limits take away: 1 when more is left, 0 when all is within them, or ST_*.
cdef int stream_trim(Stream* s) noexcept nogil
cdef int stream_take_config(Stream* s, const StreamConfig* cfg) noexcept nogil
# Before the stream is removed with all that it holds: acks and answers that wait for the disk are sent.
cdef void stream_answer_rest(Stream* s) noexcept nogil
# Unsubscribes, ends timers and jobs; acks not yet released are dropped. Watchers must be detached before stream_free.
cdef void stream_stop(Stream* s) noexcept nogil
# After its store failed: jobs and timers end, and the store is the caller's (with the lock held). What is asked of the
# stream meanwhile hears why.
cdef Store* stream_give_store(Stream* s) noexcept nogil
# A stream that was opened again changes nothing before stream_resume.
cdef void stream_halt(Stream* s, int error) noexcept nogil
cdef void stream_resume(Stream* s) noexcept nogil
# Why the stream's store takes no change: a text for clients.
cdef void stream_reason(const Stream* s, char* text, size_t room) noexcept nogil
cdef void store_config(const StreamConfig* cfg, const StreamPlace* place, StoreConfig* to) noexcept nogil
cdef void stream_free(Stream* s) noexcept nogil
# Publishes m into the stream, under m.subject; m.reply gets the PubAck. Always 1.
cdef int stream_publish(Stream* s, const Msg* m) noexcept nogil
# Under which subject the stream stores what is sent to this one, by its configuration; in d, which is opened before and freed
# when the subject is done with. 0 | -1 under none: it becomes too long
cdef int stream_rename(Stream* s, Span* subject, Draft* d) noexcept nogil
# What passed the checks, wherever that was: ST_OK, or of a purge the number of messages removed, or ST_*; ST_UNKNOWN of a kind
# that this version does not know. Spans are copied.
cdef int64_t stream_apply(Stream* s, const Change* c) noexcept nogil
# Of a stream that serves: it hears and decides nothing more, as before stream_activate. Its consumers stay.
cdef void stream_rest(Stream* s) noexcept nogil
# From now on the stream is a member of a Raft group, and changes by what that has agreed on alone; in place of stream_activate.
# refused: entries up to now that used up no sequence, as a snapshot says. 0 | 1 as of stream_activate | -1 no memory
# proposed: called with the lock held when there are proposals, where there were none.
cdef int member_open(Stream* s, uint64_t refused, void (*proposed)(void* ctx) noexcept nogil, void* ctx) noexcept nogil
# The stream has no part in its group any more; stream_activate has it serve as it is.
cdef void member_close(Stream* s) noexcept nogil
# ended: called once, with the lock held and the ctx of member_open, when the stream fails or is stopped: nothing may be asked of
# it from then on. NULL: no more.
cdef void member_ending(Stream* s, void (*ended)(void* ctx) noexcept nogil) noexcept nogil
# The log that is at hand at the start begins behind this sequence.
cdef void member_begins(Stream* s, uint64_t last) noexcept nogil
# Damage has cost messages from this sequence on, which are to come again: until then nothing from there on is shown. 0: no more.
cdef void member_lacks(Stream* s, uint64_t seq) noexcept nogil
# What the log had at the start is applied.
cdef void member_recovered(Stream* s) noexcept nogil
cdef uint64_t member_refused(const Stream* s) noexcept nogil
# In place of what the group agreed on up to here there is a snapshot, which says how many entries were refused, and the last
# sequence of the stream.
cdef void member_installed(Stream* s, uint64_t refused, uint64_t last) noexcept nogil
# All consumers of the stream are open: messages that none of them needs may leave, also those that came before.
cdef void stream_served(Stream* s) noexcept nogil
# Takes a message, a skip or a run of skips as a leader sends it of its store: lseq is the sequence itself. ST_OK | ST_ORDER: it
# is not the next one | ST_UNKNOWN: it is something else | another ST_*
cdef int member_caught(Stream* s, StreamEntry* e) noexcept nogil
# Applies entries in their order; `done`: so many of them. ST_OK: all | ST_WAIT: the next takes long, and is to be given again, as
# the first, in a later turn | ST_UNKNOWN: the next is none that is known | MEMBER_DIVERGED: the next does not
# follow what the stream has, which has to be brought to its leader's state first | another ST_*: this server cannot do it.
cdef int member_apply(Stream* s, Committed* entries, size_t n, size_t* done) noexcept nogil
# Up to which index all is applied, when that of the last entry is this: an open batch is not.
cdef uint64_t member_applied(const Stream* s, uint64_t index) noexcept nogil
# All that the group agreed on until now is applied: the stream hears publishes, checks them against what is applied and what is
# proposed, and proposes entries. What of them comes back by member_apply is acked. 0 | -1 no memory, and it follows.
cdef int member_lead(Stream* s) noexcept nogil
# It has what the group agreed on: it answers direct gets, where its configuration allows any, until member_follow. 0 | -1 no
# memory
cdef int member_answers(Stream* s) noexcept nogil
# What is proposed and not applied is nobody's any more: publishers of it hear nothing.
cdef void member_follow(Stream* s) noexcept nogil
# It leads, and hears no publishes any more: what it has is agreed on before another one leads.
cdef void member_leave(Stream* s) noexcept nogil
# What is proposed since the last call, in place of what out has: for each its length (uint32_t) and its bytes. They belong into
# the group's log in this order; those of one call with nothing between them.
cdef void member_take(Stream* s, Bytes* out) noexcept nogil
# Refusals, and other answers that are true only of the group's leader, wait: whether some are new since the last member_asked.
cdef bint member_is_to_ask(const Stream* s) noexcept nogil
# These rest on nothing behind this index of the group's log, and may be sent when this round of raft_ask is confirmed; 0: when
# the record at the index is applied, which was proposed after them.
cdef void member_asked(Stream* s, uint64_t index, uint64_t round) noexcept nogil
# The log is applied up to this index, and rounds are confirmed up to this one: answers that waited for no more are sent.
cdef void member_confirmed(Stream* s, uint64_t index, uint64_t round) noexcept nogil
# Whether any answer waits.
cdef bint member_owes(const Stream* s) noexcept nogil
# Proposes a request of the control plane. ST_OK | ST_CLOSED: the stream does not lead | another ST_*
cdef int member_propose(Stream* s, const StreamEntry* e) noexcept nogil
# Between stream_stage and stream_stage_end, publishes that pass the checks are staged: the next one is checked as if they were
# stored. At the end all are stored and acked, or none: then those that passed the checks hear an error, or, with `apply` false,
# nothing. Whatever ends the process or the power meanwhile, the next start finds all or none. Not more than 64 MiB are staged.
# stream_stage: 0 | -1 no memory.
cdef int stream_stage(Stream* s) noexcept nogil
# Stores the first n of them, likewise; the rest stays staged. ST_OK, or an error upon which nothing is staged any more.
cdef int stream_stage_apply(Stream* s, uint64_t n) noexcept nogil
cdef void stream_stage_end(Stream* s, bint apply) noexcept nogil
# Removed messages, or ST_*. As store_purge; no pattern: all.
cdef int64_t stream_purge(Stream* s, Span pattern, uint64_t seq, uint64_t keep) noexcept nogil
# The same in pieces, where it takes long: purge_step until there is no more. The pattern must live as long. `short`: nothing
# is done where it takes more than one piece, as `more` says then; it is not to be stepped.
cdef void purge_begin(Purge* p, Stream* s, Span pattern, uint64_t seq, uint64_t keep, bint short) noexcept nogil
cdef void purge_step(Purge* p) noexcept nogil
cdef void purge_free(Purge* p) noexcept nogil
cdef int stream_delete(Stream* s, uint64_t seq, bint erase) noexcept nogil

# Consumers.
cdef int stream_watch(Stream* s, Watcher* w) noexcept nogil                  # 0 | -1 no memory
cdef void stream_unwatch(Stream* s, Watcher* w) noexcept nogil
cdef bint stream_keeps_all(const Stream* s) noexcept nogil
cdef bint stream_shows_more(const Stream* s) noexcept nogil                  # messages that a member's blocks do not have yet
# A consumer needs this message no longer: the last one that lets go removes it.
cdef void stream_release(Stream* s, uint64_t seq) noexcept nogil
# Interest retention: removes what nobody needs, from a sequence on, as soon as that can be done; with `all` also what
# no consumer's filter matches: such messages stay when the retention changes and when filters match but start later.
cdef void stream_settle(Stream* s, uint64_t start, bint all) noexcept nogil
# Sends an empty message to reply once the change with this ticket is durable.
cdef void stream_answer(Stream* s, uint64_t ticket, Span reply) noexcept nogil
# Likewise with a header.
cdef void stream_answer_with(Stream* s, uint64_t ticket, Span reply, Span header) noexcept nogil
# Takes in what comes there, in place of what was taken in under this id: deliveries from behind `origin` on. When they do not
# follow each other or one is refused, that ends and EV_INTAKE tells it. Of a mirror, sequences up to `origin` are used up.
# ST_OK or ST_*
cdef int intake_open(Stream* s, const IntakeConfig* cfg) noexcept nogil
cdef void intake_close(Stream* s, uint64_t id) noexcept nogil
# What an answer has to wait for that shows this message, or with 0 the stream as a whole: a ticket, 0 nothing.
cdef uint64_t stream_unsettled(Stream* s, uint64_t seq) noexcept nogil
# Sends an API answer once this ticket is durable; an error of the same type if it fails. 0 | -1 no room
cdef int stream_answer_later(Stream* s, uint64_t ticket, Span reply, Span data, Span type) noexcept nogil
# Stored messages that match, from a sequence on, and may not be seen yet.
cdef uint64_t stream_hidden(Stream* s, const Filter* filter, uint64_t start) noexcept nogil


# ---- the Python faces -----------------------------------------------------------------------------------------

cdef struct Copied:
    # A record copied out of the store.
    uint64_t seq
    int64_t ts
    uint32_t n_subject
    uint32_t n_header
    Bytes b                 # subject, header, data

cdef class EnvBox:
    """The environment of an engine; its driver subclasses this."""
    cdef Env* env
    cdef Committer* committer
    # Around every short call of the control plane: takes the lock and sets the clocks; lets go and wakes the driver.
    # False: the engine is closed, and nothing but leave may follow.
    cdef bint enter(self) noexcept nogil
    cdef void leave(self) noexcept nogil
    # As enter; raises StreamClosed, with the lock let go, where the engine is closed. Without the GIL or with it.
    cdef int lock(self) except -1 nogil


cdef struct Copied

cdef enum Asked:
    ASKED_SEQ
    ASKED_LAST              # of those that match
    ASKED_NEXT              # of those that match, from a sequence on

cdef class StreamFace:
    """A stream for the control plane."""
    cdef EnvBox box
    cdef Stream* s
    cdef bytes directory
    cdef object owner       # keeps what place and the stream point at
    # Opens the stream; raises StoreError. Called once, without the lock.
    cdef int open(self, EnvBox box, const StreamPlace* place, object prepared, object directory) except -1
    # With the lock held: what lies in buffers above the store goes to it.
    cdef void flush(self) noexcept nogil
    # Takes the lock, which box.leave lets go. False: the stream is closed, and s is NULL. Only with the lock held is s
    # looked at and changed.
    cdef bint enter(self) noexcept nogil
    # With the lock held: what enter would say.
    cdef bint serves(self) noexcept nogil
    cdef bint read(self, Asked asked, const Filter* f, uint64_t seq, Copied* c, int* rc) noexcept nogil
    # What enter said, as an exception: StreamClosed.
    cdef int check(self, bint open) except -1
    cdef int refuse(self) except -1
    cdef int changed(self, int64_t rc) except -1


cdef class IntakeFace(StreamFace):
    """A stream that may take in what others deliver."""
