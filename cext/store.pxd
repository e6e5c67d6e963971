"""The store of one stream: blocks of records in files or memory, indexes, limits, commit. Knows no stream semantics."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from .bytes cimport Bytes, Env, ListNode, Span, Task


cdef enum:
    STORE_FILE = 0
    STORE_MEMORY = 1

cdef enum StoreError:
    ST_OK = 0
    ST_NO_MEMORY = -1
    ST_TOO_LARGE = -2       # the record exceeds 32 MiB, or a length its field
    ST_IO = -3              # a write, sync or read failed; store.io_errno says which
    ST_NOT_FOUND = -4
    ST_DAMAGED = -5         # the record's checksum does not fit
    ST_CLOSED = -6
    ST_FULL = -7            # no room: nothing more is stored, though messages can still be removed
    ST_WAIT = -8            # it is being read from the disk
    ST_ORDER = -9           # the sequence is not behind the last one
    ST_UNKNOWN = -10        # not a change that is known here

cdef enum RemoveReason:
    RM_LIMIT = 1            # trimmed by count, bytes, per subject
    RM_AGE = 2
    RM_DELETE = 3           # on request, or by ack
    RM_PURGE = 4
    RM_TRUNCATE = 5         # its sequence is given again

cdef struct StoreConfig:
    int storage             # STORE_FILE | STORE_MEMORY
    Span name               # the stream's name: key of the checksums
    Span directory          # of the stream (holds msgs/); empty for memory
    bint synced             # what it has is on disk; the opener syncs what opening changes before it is served
    int64_t max_msgs        # -1: unlimited, for all limits
    int64_t max_bytes
    int64_t max_age         # ns, 0: unlimited
    int64_t max_msgs_per
    bint trim               # discard old: keep max_msgs and max_bytes by removing from the head
    uint64_t first_seq      # of a new store; 0 means 1
    bint compress           # blocks are compressed when they are sealed
    int retention           # 0 limits, 1 interest, 2 work queue: only for the default block size
    uint64_t block_size     # bytes of a block; 0: by the limits
    bint always             # its changes are synced before they count as durable, with a sync_interval, too

cdef struct Record:
    # A stored message. The spans are views into the store, valid until the next call that changes it
    # or until the engine lock is let go.
    uint64_t seq
    int64_t ts              # ns since 1970
    Span subject
    Span header
    Span data

cdef enum DamageKind:
    DAMAGE_RECORDS = 1      # bytes inside a block that are no records
    DAMAGE_MESSAGE = 2      # a message, met when it was read
    DAMAGE_BLOCK = 3        # a block's file is gone, or not what it was
    DAMAGE_ASIDE = 4        # a block without a record of its stream: put aside
    DAMAGE_TAIL = 5         # a group that was never finished: put aside and cut
    DAMAGE_SEQUENCES = 6    # sequences that may have been used by what is gone: left out
    DAMAGE_LOG = 7          # entries of a log
    DAMAGE_BATCH = 8        # a batch that was never finished: put aside and cut
    DAMAGE_SHORT = 9        # a block's file has lost its end since it was closed, and no message with it
    DAMAGE_RESERVE = 10     # sequence.jsr, which nothing hung on
    DAMAGE_KEY = 11         # the key of a block, which is put aside with it

cdef struct Damage:
    DamageKind kind
    uint64_t block          # its number
    uint64_t at             # bytes [at, at + size) of its file
    uint64_t size
    uint64_t first          # the sequences of the messages that it costs, 0: not known
    uint64_t last
    uint64_t count          # at most that many

cdef struct Lost:
    # What cannot be served any more. Views into the store, valid until the lock is let go.
    const uint64_t* seqs    # ascending
    uint32_t n
    uint64_t bytes
    uint64_t damage         # damaged places met, messages lost or not
    const Damage* places    # the first of them
    uint32_t n_places

cdef struct StoreFigures:
    # How much it takes: what is gone is given back.
    uint64_t used           # bytes of the blocks
    uint64_t nodes          # of the index
    uint64_t index          # bytes of the index

cdef struct JournalReport:
    # What was brought into the files.
    uint64_t frames         # rounds
    uint64_t files
    uint64_t bytes
    uint64_t uses[2]        # of the two segments; 0: there was none
    bint damaged            # some of it could not be read
    bint outdated           # nats-server has started on the directory since: nothing of it was brought into the files

cdef struct Wait:
    # A reader that waits for a message's bytes. Embedded in its owner.
    Task* task
    ListNode node           # its store's
    void* block

cdef struct StoreState:
    uint64_t msgs
    uint64_t bytes
    uint64_t first_seq
    uint64_t last_seq
    int64_t last_ts
    uint64_t num_subjects
    uint64_t num_deleted

# A set of subject patterns, compiled; an empty one matches everything. Made and freed by its user.
cdef struct Filter:
    uint32_t n
    Span* patterns          # literal ones first, by length and bytes
    uint8_t* texts          # what they consist of
    uint32_t n_literals
    bint all                # matches every subject
    bint literal            # exactly one pattern, without wildcards
    bint overlap            # two patterns share subjects
    bint loose              # see filter_loosen
    uint32_t asked          # how often something was answered without the cache
    void* cache             # what it matches in the store it was used with last; brought up to date as needed

cdef int filter_init(Filter* f, const Span* patterns, uint32_t n) noexcept nogil     # 0 | ST_NO_MEMORY
cdef int filter_copy(Filter* to, const Filter* f) noexcept nogil     # faster than another filter_init; as that
cdef void filter_free(Filter* f) noexcept nogil
# For sweeps: a last token `x*` then stands for all tokens that begin with x and go on, `x>`
# for these, x itself and all below them, as in nats-server's tree of subjects.
cdef void filter_loosen(Filter* f) noexcept nogil
cdef bint filter_is_loose(const Filter* f) noexcept nogil                           # whether that makes a difference
cdef bint filter_matches(const Filter* f, Span subject) noexcept nogil

cdef struct Committer       # the commit thread's state: one an engine

cdef struct Store           # opaque to the layers above, but for what the functions below tell

ctypedef void (*removed_fn)(void* ctx, uint64_t seq, Span subject, int reason) noexcept nogil
ctypedef void (*damaged_fn)(void* ctx, const Damage* d) noexcept nogil
ctypedef void (*durable_fn)(void* ctx, uint64_t seq, uint64_t ticket, int error) noexcept nogil

# ---- life --------------------------------------------------------------------------------------
# Opening reads the disk: call it WITHOUT the engine lock, before the store is shared. NULL on failure,
# with a text in err. committer may be NULL for memory storage.
cdef Store* store_open(Env* env, Committer* committer, const StoreConfig* cfg, char* err, size_t err_cap) noexcept nogil
# removed: called for every message that leaves the store, after it left (not during recovery). It must not change
# the store. A purge of everything, or of all but the newest message, is one call with seq 0 and no subject: what is below
# state.first_seq is gone.
# durable: called under the lock when everything up to seq, and every change up to ticket, is on disk
# (or handed to the kernel, in lazy mode); error is errno of a failed group, whose acks must not be sent.
cdef void store_listen(Store* s, removed_fn removed, durable_fn durable, void* ctx) noexcept nogil
# damaged: called under the lock for every damaged message that is met from now on. It must not change the store.
cdef void store_listen_damage(Store* s, damaged_fn damaged) noexcept nogil
# Stops timers and takes no more appends (with the lock held).
cdef void store_stop(Store* s) noexcept nogil
# Instead of store_close after a group failed (WITHOUT the lock, after store_stop): waits for the threads and cuts the
# files to what was durable before, so that opening them again shows neither what was refused nor what it had replaced.
# 0, or errno: to be tried again. Then store_forget frees.
cdef int store_retreat(Store* s) noexcept nogil
cdef void store_forget(Store* s) noexcept nogil
# With an errno no change is taken any more (ST_IO), with 0 they are again.
cdef void store_halt(Store* s, int64_t error) noexcept nogil
# Why changes (ST_IO) or appends alone (ST_FULL) are not taken: an errno, 0 when they are.
cdef int64_t store_error(const Store* s) noexcept nogil
# Waits for the commit thread, writes checkpoints, closes files and frees (WITHOUT the lock, after store_stop).
# With remove, the stream's msgs directory is deleted instead.
cdef void store_close(Store* s, bint remove) noexcept nogil
# New limits. What they take away goes in pieces, by store_trim: 1 when more is left, ST_OK when the store keeps them.
# The limits by number and bytes are in force when those of the subjects have been brought about.
cdef int store_update(Store* s, const StoreConfig* cfg) noexcept nogil
cdef int store_trim(Store* s) noexcept nogil
# What age has removed so far is not written at once: with this call's ticket it is. synced: with a sync_interval, too, that
# ticket comes after a sync.
cdef int store_settle(Store* s, bint synced) noexcept nogil
# Between the two nothing of the store is written, whatever is changed: its directory may be taken away (WITHOUT the lock: the
# first waits for what is being written).
cdef void store_withhold(Store* s) noexcept nogil
cdef void store_withhold_end(Store* s) noexcept nogil
# Waits until what is staged is on disk, or failed (WITHOUT the lock). With a sync_interval: until it is written.
cdef void store_written(Store* s) noexcept nogil

# ---- writing (with the lock held) ----------------------------------------------------------------
# Appends under this sequence, and trims. The message is visible at once and durable later. Sequences between the last one
# and this are used up. ST_ORDER when it is not behind the last.
cdef int store_append_at(Store* s, uint64_t seq, int64_t ts, Span subject, Span header, Span data) noexcept nogil
# Uses up a sequence, and those before it, without storing (interest retention without interest).
cdef int store_skip_at(Store* s, uint64_t seq, int64_t ts) noexcept nogil
# Drops everything behind seq, durably with this call's ticket: what is appended next takes those sequences again. What was
# removed up to seq stays so. After a crash it happened as a whole or not at all.
# before: called when nothing can fail any more and nothing is gone yet. What was appended to logs by its end is on disk
# before anything goes; a crash between the two leaves the stream as it was.
cdef int store_truncate(Store* s, uint64_t seq, void (*before)(void* ctx) noexcept nogil, void* ctx) noexcept nogil
cdef int store_remove(Store* s, uint64_t seq, bint erase) noexcept nogil             # ST_NOT_FOUND
# As where age removes it, out of its turn: its bytes are not looked at.
cdef int store_expire(Store* s, uint64_t seq) noexcept nogil                         # ST_NOT_FOUND
# All messages of a subject, of which there are few. Returns the number removed, or an error.
cdef int64_t store_purge_subject(Store* s, Span subject) noexcept nogil
# filter NULL: all. seq > 0: only below seq; keep > 0: leave the newest keep. Returns the number removed, or an error.
cdef int64_t store_purge(Store* s, const Filter* filter, uint64_t seq, uint64_t keep) noexcept nogil
# Whether that takes no longer the more goes: everything does, or all but a few in the last block.
cdef bint store_purges_at_once(const Store* s, const Filter* filter, uint64_t seq, uint64_t keep) noexcept nogil
# The oldest `most` that match, of those from start to below end; likewise.
cdef int64_t store_purge_some(Store* s, const Filter* filter, uint64_t start, uint64_t end, uint64_t most) noexcept nogil
# What is changed between the two becomes durable together: neither its ticket nor its last sequence counts before. In a
# second pair inside the first nothing is refused for want of room on the disk.
cdef void store_hold(Store* s) noexcept nogil
cdef void store_let(Store* s) noexcept nogil
# While it is on, what was changed between the two, for which nobody waits yet, is written with what is changed otherwise, or from
# store_hurry on; store_ticket hurries, too.
cdef void store_unhurried(Store* s, bint on) noexcept nogil
cdef void store_hurry(Store* s) noexcept nogil
# What is changed between the two is on disk as a whole or not at all: whatever ends the process or the power, the next opening
# finds everything or nothing of it. It is synced before its ticket counts, with a sync_interval too. The lock is kept in
# between. Truncations are refused (ST_UNKNOWN), and they do not nest. store_batch: ST_OK, or nothing has begun. `whole` false:
# something could not be done; nothing of it comes to the disk, and the store takes no change until it is opened again.
cdef int store_batch(Store* s) noexcept nogil
cdef void store_batch_end(Store* s, bint whole) noexcept nogil
# Bytes a message would count in state.bytes.
cdef uint64_t store_size_of(Store* s, Span subject, Span header, Span data) noexcept nogil
# ST_OK | ST_TOO_LARGE: no store takes it
cdef int store_fits(Span subject, Span header, Span data) noexcept nogil
# The ticket of the last change made so far; done when store_durable_ticket reaches it. Memory stores are always there.
cdef uint64_t store_ticket(Store* s) noexcept nogil
cdef uint64_t store_durable_ticket(Store* s) noexcept nogil
# The last sequence whose ack may be sent.
cdef uint64_t store_durable_seq(Store* s) noexcept nogil
# As long as a truncation is not on disk: up to where the files keep messages should it fail. Otherwise the same.
cdef uint64_t store_kept_seq(Store* s) noexcept nogil
# The last message before a group that a crash tore, or 1; there are none of a later group. 0: the last one was whole.
cdef uint64_t store_torn_from(const Store* s) noexcept nogil
# Whether an ack means that the message was synced: then nobody is to see it before.
cdef bint store_is_synced(const Store* s) noexcept nogil

# ---- reading (with the lock held) ----------------------------------------------------------------
cdef void store_state(Store* s, StoreState* out) noexcept nogil
# The time of the first message, which it may have to look at; 0: there is none.
cdef int64_t store_first_time(Store* s) noexcept nogil
cdef void store_lost(Store* s, Lost* out) noexcept nogil
# The first sequence from this one on that damage has cost, or may have; 0: there is none.
cdef uint64_t store_lost_from(Store* s, uint64_t seq) noexcept nogil
cdef void store_figures(Store* s, StoreFigures* out) noexcept nogil
cdef int store_load(Store* s, uint64_t seq, Record* out) noexcept nogil              # ST_NOT_FOUND, ST_DAMAGED, ST_IO
# The same for a reader that can wait: where the message is not in memory the answer is ST_WAIT, its sequence is in out.seq,
# and w.task is posted when it is worth asking again (or when the store stops). With w NULL the disk is waited for.
cdef int store_load_warm(Store* s, uint64_t seq, Record* out, Wait* w) noexcept nogil
# Whether a message can be looked at without waiting for the disk, or is not there. If not, w is called when it can be.
cdef bint store_warm(Store* s, uint64_t seq, Wait* w) noexcept nogil
# First stored message with sequence >= from that matches (filter NULL: any). ST_NOT_FOUND when none. Where that one
# cannot be read, its error, and its sequence in out.seq: a reader that wants the next asks again from the sequence behind it.
cdef int store_next_warm(Store* s, const Filter* filter, uint64_t start, Record* out, Wait* w) noexcept nogil
# The same, passing over what is damaged: ST_NOT_FOUND or another error than ST_DAMAGED.
cdef int store_next_intact(Store* s, const Filter* filter, uint64_t start, Record* out, Wait* w) noexcept nogil
# To be called before w's owner is freed.
cdef void wait_cancel(Wait* w) noexcept nogil
# First intact message with headers in start..last. Costs next to nothing for each without.
cdef int store_next_headed(Store* s, uint64_t start, uint64_t last, Record* out) noexcept nogil
# Messages from at[0] on up to `last`, as records of a block whose checksums have this key, at the end of b. 1: some are there,
# ask again; ST_OK: up to at[0], because `most` bytes are, or all up to `last`; ST_WAIT; ST_NO_MEMORY, ST_IO. What is damaged
# is passed over.
cdef int store_pack(Store* s, const uint64_t* key, uint64_t* at, uint64_t last, uint64_t most, Bytes* b, Wait* w) noexcept nogil
# The same messages appended to s, a store that has none behind at[0], under their sequences and times; likewise, or an error of
# store_append_at.
cdef int store_copy(Store* s, Store* source, uint64_t* at, uint64_t last, Wait* w) noexcept nogil
# As store_next_warm, only the sequence: no record is touched. 0 when none.
cdef uint64_t store_next_seq(Store* s, const Filter* filter, uint64_t start) noexcept nogil
# In pieces, between which the lock may be let go and anything may change. What they answer at last, and what the functions of
# the same names without `some` do from then on until the lock is let go, is of that moment.
# 1: `start` moved on, ask again; ST_OK: the sequence, or 0.
cdef int store_next_some(Store* s, const Filter* filter, uint64_t* start, uint64_t* seq) noexcept nogil
# Zeroed before the first piece.
cdef struct LastLook:
    uint64_t before             # what is left to look at
    uint64_t top                # the last sequence that there was
cdef int store_last_some(Store* s, const Filter* filter, LastLook* look, uint64_t* seq) noexcept nogil
# Adds those from `at` to below `end` to n. What leaves meanwhile below `at` was counted, what comes is the caller's too.
cdef int store_count_some(Store* s, const Filter* filter, uint64_t* at, uint64_t end, uint64_t* n) noexcept nogil
# store_pending if it takes no longer than a piece; else False.
cdef bint store_pending_soon(Store* s, const Filter* filter, uint64_t start, uint64_t* n) noexcept nogil
# 1: a piece of the way to quick answers about this filter's subjects; ST_OK: that is done.
cdef int store_ready(Store* s, const Filter* filter) noexcept nogil
# The subject of a stored message, without touching its record; .p NULL when there is none.
cdef Span store_subject(Store* s, uint64_t seq) noexcept nogil
# Last sequence of one subject (wildcards allowed through the filter); 0 when none.
cdef uint64_t store_last_of(Store* s, Span literal) noexcept nogil
# Whether a stored message is the last one of its subject.
cdef bint store_is_last(Store* s, uint64_t seq) noexcept nogil
# A message is read or removed soon: what of the indexes knows it is brought into the processor's cache meanwhile.
cdef void store_ahead(Store* s, uint64_t seq) noexcept nogil
cdef uint64_t store_last_match(Store* s, const Filter* filter) noexcept nogil
cdef uint64_t store_count_of(Store* s, Span literal) noexcept nogil
# Back from a sequence over `keep` messages that match, in pieces: the sequence reached, 0 when there are not so many. In keep
# stands how many are still to be passed.
cdef uint64_t store_back(Store* s, const Filter* filter, uint64_t before, uint64_t* keep) noexcept nogil
# Messages with sequence >= start that match.
cdef uint64_t store_pending(Store* s, const Filter* filter, uint64_t start) noexcept nogil
# First sequence with timestamp >= ts; last_seq + 1 when none.
cdef uint64_t store_seq_at(Store* s, int64_t ts) noexcept nogil
# Fills up to cap deleted sequences >= start inside [first, last]; returns how many.
cdef uint64_t store_deleted(Store* s, uint64_t start, uint64_t* out, uint64_t cap) noexcept nogil

# ---- every subject that matches (with the lock held) ---------------------------------------------------
# In pieces, between which the lock may be let go and anything may change. What is found is what was there when it began or,
# when everything was purged since, right after that. The filter (NULL: of everything) must live as long.
cdef struct Sweep
cdef Sweep* sweep_subjects(Store* s, const Filter* filter) noexcept nogil            # NULL: no memory
# The last sequence <= upto of each. It ends when it has found more than `most`.
cdef Sweep* sweep_lasts(Store* s, const Filter* filter, uint64_t upto, uint64_t most) noexcept nogil
# 1: there is more to do, ST_OK: it is done, ST_CLOSED: the store was stopped meanwhile, ST_NO_MEMORY
cdef int sweep_step(Sweep* w) noexcept nogil
# How many were found; they are the caller's from then on: of subjects the count, 8 bytes, the length, 4, and the text of
# each; or 8 bytes a sequence, ascending.
cdef uint64_t sweep_take(Sweep* w, Bytes* out) noexcept nogil
cdef void sweep_free(Sweep* w) noexcept nogil                                        # NULL: nothing to do
# All of sweep_lasts at once (upto 0: of all): the sequences are malloc'ed into *out (free() it). Returns the count or an error.
cdef int64_t store_last_per_subject(Store* s, const Filter* filter, uint64_t upto, uint64_t** out) noexcept nogil

# ---- an append-only log beside the blocks, in the same commit groups ------------------------------
# (consumer state: acks and deliveries.) Opened and replayed without the lock. What cannot be read is shown as an empty entry.
# first: the entry that a new log begins with; empty: none. expected: it was there before, so that there is nothing of it is
# damage.
cdef struct Log
cdef Log* log_open(Store* s, Span path, Span first, bint expected, int (*replay)(void* ctx, Span entry) noexcept nogil,
                   void* ctx, char* err, size_t err_cap) noexcept nogil
cdef int log_append(Log* l, Span entry) noexcept nogil                               # counts for store_ticket
# What is appended by now says what became of messages: it is written after what took them away is on disk.
cdef void log_follows(Log* l) noexcept nogil
# Starts the log anew with this one entry, which must say what all earlier ones said; done by the commit thread, likewise.
cdef int log_rewrite(Log* l, Span entries) noexcept nogil
# Cuts at both ends, likewise in the order of what is appended; `at`: where an entry starts, as log_end said before it was
# appended. Positions stay valid whatever is cut; at the next opening the first entry left stands at 0.
cdef int log_cut_tail(Log* l, uint64_t at) noexcept nogil                            # what starts at `at` or behind it goes
cdef int log_cut_head(Log* l, uint64_t at) noexcept nogil                            # what starts before `at` goes
cdef uint64_t log_end(const Log* l) noexcept nogil                                   # where the next entry will start
cdef uint64_t log_size(const Log* l) noexcept nogil                                  # bytes from the first entry to the end
cdef void log_close(Log* l) noexcept nogil

# ---- the commit thread --------------------------------------------------------------------------------
# sync_interval: 0 = every group is synced before its acks; > 0 = acks after the write, synced at least this often (ns).
# slim_wait: ns that a block which has become sparse waits for its compaction, 0: none. What loses message after message is
# often empty a moment later.
cdef Committer* committer_new(Env* env, int64_t sync_interval, int64_t slim_wait, int wake_fd) noexcept nogil
cdef void committer_run(Committer* c) noexcept nogil                                 # the thread's body
# Reports finished groups to the stores' listeners (durable_fn). The driver calls it with the lock held whenever wake_fd
# is readable, and may at any other time: it costs one load. With wake_fd -1 the thread takes the lock and does it itself.
cdef void committer_poll(Committer* c) noexcept nogil
# Around a piece of work under the lock: a store that it changes is put before the thread at its end, so that the changes
# are one group, not as many as the thread is quick. No store is closed in between.
cdef void committer_hold(Committer* c) noexcept nogil
cdef void committer_let(Committer* c) noexcept nogil
# A file whose room is given up (the file goes) when the disk is full: what is written then still gets through, and
# EV_DISK_FULL asks for the file to be made again. Until committer_has_room says so nothing more is appended: ST_FULL.
cdef int committer_ballast(Committer* c, Span path) noexcept nogil                   # 0 | -1 too long
# Before any store is opened: a round that touches more than `above` files goes through a journal in the directory `root`,
# which all stores are below, in two segments of that size each; 0: no round does. What one is left of a crash is brought into
# its files first. 0 | -errno: it is left as it is, and no store may be opened.
cdef int committer_journal(Committer* c, Span root, uint64_t size, uint32_t above, JournalReport* report) noexcept nogil
cdef void committer_has_room(Committer* c) noexcept nogil                            # with the lock held
# WITHOUT the lock, after ST_WAIT: until it may be worth asking again, a millisecond at most.
cdef void committer_pause(Committer* c) noexcept nogil
cdef void committer_stop(Committer* c) noexcept nogil
# What the two threads would do by now (WITHOUT the lock), where none runs: all that is staged is written, and the groups
# closed that are idle at that monotonic time; then what the maintenance thread has to do.
cdef void commit_inline(Committer* c, int64_t now) noexcept nogil
cdef void keeper_turn(Committer* c) noexcept nogil
cdef void committer_free(Committer* c) noexcept nogil

# ---- records and checkpoints, for readers without a store -------------------------------------------
cdef struct Parsed:
    # One record found in a block's bytes; the spans point into them.
    uint32_t size
    bint headed
    uint64_t raw_seq        # bit 63: erased, bit 62: tombstone
    uint64_t seq            # without its flags
    int64_t ts
    Span subject
    Span header
    Span data

cdef struct Extent:
    # What a marker says of the stream as its group leaves it.
    uint64_t first          # no message below it is left; 0: not known
    uint64_t last           # the highest sequence used
    int64_t last_ts         # of that one

cdef struct Limits:
    int64_t max_msgs
    int64_t max_bytes
    int64_t max_age
    int64_t max_msgs_per
    int64_t trim

# The 32-byte key of a text's checksums: of "STREAM-N" for the records of block N, of "STREAM" for caches.
cdef void store_key(Span name, uint64_t* key) noexcept nogil
# Whether a record of sane lengths starts at p; its checksum is record_good's to check.
cdef bint record_parse(const uint8_t* p, uint64_t left, Parsed* r) noexcept nogil
cdef bint record_good(const uint64_t* key, const uint8_t* p, const Parsed* r) noexcept nogil
# Whether this good record is one of the markers that close our groups.
cdef bint is_marker(const uint8_t* p, const Parsed* r) noexcept nogil
# Takes in what it says, if it is one.
cdef void extent_of(const uint8_t* p, const Parsed* r, Extent* extent) noexcept nogil

cdef struct CheckedBlock:
    # A block as a checkpoint knows it. Slot i holds sequence base + rel[i] (rel NULL: base + i); off[i] 0: removed.
    uint64_t num
    uint64_t size           # of the file
    uint64_t base
    uint64_t last
    int64_t first_ts
    int64_t last_ts
    uint64_t live_bytes
    uint32_t live
    uint32_t n
    const uint32_t* rel
    const uint32_t* off

# Shows every block of a checkpoint's bytes, in order, until `visit` returns another value than 0. Returns the number of
# blocks shown, ST_DAMAGED when the bytes are no whole checkpoint of that stream. `end`: last 8 bytes of the last block.
cdef int64_t checkpoint_blocks(const uint8_t* p, uint64_t size, Span name, uint64_t* end, uint64_t* last_seq,
                               int (*visit)(void* ctx, const CheckedBlock* b) noexcept nogil, void* ctx) noexcept nogil

cdef struct IndexDb:
    # What nats-server's index.db says of a stream.
    uint64_t msgs
    uint64_t size           # bytes of the messages
    uint64_t first
    uint64_t last
    uint64_t end_num        # the last block
    const uint8_t* end      # its last 8 bytes

cdef struct IndexBlock:
    # A block as index.db knows it: its messages are those from first to last without the deleted ones.
    uint64_t num
    uint64_t size
    uint64_t first
    uint64_t last
    int64_t first_ts
    int64_t last_ts
    uint64_t deleted
    uint32_t map_bits       # sequences of a node of the map: 8 bytes the first one, a bit each, 2 bytes
    uint32_t map_nodes
    const uint8_t* map

ctypedef bint (*index_block_fn)(void* ctx, const IndexBlock* b) noexcept nogil

# False when the bytes are no whole index.db, or of an unknown version. Shows every block, in order, as long as `visit`
# (NULL: none) answers True; only the answer at the end says that all of it fits.
cdef bint index_db_read(const uint8_t* p, uint64_t n, const uint64_t* key, IndexDb* head, index_block_fn visit,
                        void* ctx) noexcept nogil

cdef struct SideBlock:
    # A sealed block as its sidecar knows it: slots as in CheckedBlock, of subject sid[i], each len[i] bytes (65535: more).
    uint64_t dict           # the dictionary that says what the sids stand for
    uint64_t needs          # entries of it
    uint64_t base
    uint64_t last
    int64_t first_ts
    int64_t last_ts
    uint32_t n
    uint32_t tombs
    Extent extent               # by its markers
    const uint32_t* rel
    const uint32_t* off
    const uint32_t* sid
    const uint16_t* len
    const uint64_t* tomb    # pairs: sequence, and before which slot it was written

# False when the bytes are no whole sidecar of a file of that size and last 8 bytes.
cdef bint side_view(const uint8_t* p, uint64_t size, Span name, uint64_t file_size, uint64_t file_end,
                    SideBlock* out) noexcept nogil
# Shows every entry of a dictionary's bytes, in order. Returns their number, with void ones that were left out; ST_DAMAGED when
# it is none; ST_NO_MEMORY when memory runs out or `visit` returns another value than 0. `dict`: its name.
cdef int64_t dict_words(const uint8_t* p, uint64_t size, Span name, uint64_t* dict,
                        int (*visit)(void* ctx, uint32_t id, Span text) noexcept nogil, void* ctx) noexcept nogil
