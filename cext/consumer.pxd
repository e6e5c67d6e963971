"""A consumer: where it stands in its stream, what is not yet acked, who waits for messages, and its state on disk."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from jsserver.cext.bytes cimport Bytes, Env, List, ListNode, Msg, Span, StrMap, Task, Timer, U64Map, place_text
from jsserver.cext.store cimport Filter, LastLook, Log, Store, Sweep, Wait
from jsserver.cext.stream cimport (
    ConfigTexts, EnvBox, IntakeFace, Stream, StreamPlace, Watcher, duration_of, place_array, place_texts, spans_room,
)


include "consumer/options.pxi"


# ---- what is delivered and not acked ---------------------------------------------------------------------

cdef enum Place:
    # Where a pending message waits.
    AT_NONE = 0
    AT_TIMED = 1            # in the list of deadlines, in order
    AT_HEAP = 2             # in the heap of deadlines that are out of order
    AT_QUEUE = 3            # to be redelivered
    AT_PROPOSED = 4         # delivered again, or due later, when the group agrees
    AT_ACKED = 5            # acked, when the group agrees

cdef struct Pending:
    uint64_t sseq
    uint64_t dseq           # of the first delivery
    int64_t deadline        # monotonic
    int64_t sent            # monotonic: last delivery, or +WPI
    uint32_t deliveries
    uint32_t next           # by first delivery, which is by sequence; 0: none. Index 0 of the slab is not used.
    uint32_t prev
    uint32_t qnext          # in the list that `place` says
    uint32_t qprev
    uint32_t heap_at
    int place
    uint32_t change         # of the waits, after which its deadline was set

cdef struct PendingList:
    uint32_t head
    uint32_t tail
    uint32_t n

cdef struct PendingTable:
    Pending* slab
    uint32_t cap
    uint32_t n
    uint32_t free           # linked by next
    uint32_t top            # from here on no entry was ever used, nor is touched before
    U64Map by_seq           # stream sequence -> index
    uint32_t first
    uint32_t last
    PendingList timed
    PendingList queue       # what is to be redelivered
    uint32_t* heap
    uint32_t heap_n
    uint32_t heap_cap
    int64_t later           # ns by which every deadline is later than its entry says
    uint32_t change         # how often the waits changed
    uint32_t moved          # from this entry on, deadlines do not know the last change yet; 0: all do


# ---- pull requests -----------------------------------------------------------------------------------------

cdef enum:
    GROUP_MAX = 16
    PIN_SIZE = 22

cdef struct Consumer

cdef struct Pull:
    # A waiting request, allocated with its reply.
    ListNode node           # its consumer's
    Consumer* c
    Timer timer             # its end, or its next heartbeat
    int64_t batch           # left
    int64_t bytes           # left, where it gave max_bytes
    bint has_bytes
    bint no_wait
    bint full               # the client that pulls has too much to take already
    bint told               # the group knows of it
    bint ended              # in no list: freed when nothing is on its way to it
    uint32_t flights        # messages that are, once the group agrees
    int64_t expires         # monotonic; 0: never
    int64_t heartbeat       # ns; 0: none
    int64_t last            # monotonic: last message or heartbeat, or its arrival
    uint64_t delivered
    # of consumers with priority groups
    uint64_t pin            # whose id it has: 0: it has none
    int64_t min_pending
    int64_t min_ack_pending
    uint8_t priority
    uint8_t n_group         # 0: it names none
    uint8_t group[GROUP_MAX]
    uint32_t n_reply
    uint8_t reply[1]


# ---- the consumer --------------------------------------------------------------------------------------------

cdef struct Consumers:
    # What the consumers of one stream share: their log, and the records in it of those not yet open.
    Stream* s
    List all
    uint32_t n
    Log* log
    uint32_t next_id
    Bytes lazy              # records that go to the log together
    Timer flush
    Task flush_soon
    uint64_t log_base       # size of the log after it was last started anew
    int64_t told            # mono: when the log last said that one delivers nothing; 0: never
    bint gap                # records were dropped: only the whole state can follow
    bint follows            # some of `lazy` say that messages are gone
    StrMap replayed         # name -> Replayed*

cdef struct OldWaits:
    # The configuration before a change of waits, while that goes through what is pending.
    ConsumerConfig cfg
    uint8_t* texts

cdef struct WaitingAck:
    ListNode node
    uint64_t seq            # when everything is out up to here
    uint32_t n_reply
    uint8_t reply[1]

cdef struct Asked:
    # A pull request that waits with the leader of the group, allocated with its reply.
    ListNode node
    uint32_t n_reply
    uint8_t reply[1]

cdef struct AskedList:
    List all                # in the order in which they came
    StrMap by_reply         # the same: -> Asked*

cdef enum ConsumerOp:
    # The first byte of an entry of a consumer's Raft group.
    OP_DELIVERED = 7
    OP_ACKED = 8
    OP_SKIP = 10
    OP_REQUEST = 12
    OP_REQUEST_ENDS = 13
    OP_RESET = 18

cdef struct ConsumerEntry:
    # What a leader proposes to its consumer's group. Spans are views of the entry.
    uint8_t op              # ConsumerOp
    uint64_t dseq           # of the delivery
    uint64_t sseq           # of the message; of a skip or reset: the next one to deliver
    uint64_t deliveries
    int64_t sent            # wall clock: from when on the ack is waited for
    Span reply              # of a request, and of one to reset, where it may be empty

cdef enum FlightKind:
    FLIGHT_MESSAGE          # of the stream
    FLIGHT_STATUS           # header to `dest`
    FLIGHT_ANSWER           # of a double ack

cdef struct Flight:
    # What goes out when what its consumer proposed by then is applied. Allocated with its texts.
    ListNode node
    FlightKind kind
    uint64_t after          # how many proposals that are
    uint64_t sseq           # of a message
    uint64_t dseq
    uint64_t pending
    uint32_t deliveries
    int64_t cost
    Pull* pull              # whose request it is for; NULL: push
    uint32_t n_dest
    uint32_t n_reply
    uint32_t n_header
    uint8_t texts[1]

cdef struct ConsumerInfo:
    uint64_t delivered_dseq
    uint64_t delivered_seq
    int64_t delivered_ts
    uint64_t floor_dseq
    uint64_t floor_seq
    int64_t floor_ts
    uint64_t num_ack_pending
    uint64_t num_redelivered
    uint64_t num_waiting
    uint64_t num_pending
    bint bound
    int64_t pin_ts          # wall clock; 0: nobody is pinned
    uint8_t pin_id[PIN_SIZE]

cdef enum:
    PROPOSE_LATER = 1       # too much is proposed and not agreed on: what comes is as if it had not come

cdef struct ConsumerGroup:
    # A member of a Raft group, and what it proposed since it leads. The state of the consumer has what is applied, no more.
    # Proposes an entry: at once, in their order. Other than 0 and PROPOSE_LATER: it was not, and the consumer is to follow.
    int (*propose)(void* ctx, Span entry) noexcept nogil
    void (*refuse)(void* ctx) noexcept nogil    # the consumer is to follow, and another member to lead
    void* ctx
    Bytes entry
    ConsumerInfo* before    # borrowed: how it stands when it begins to lead, or is reset
    # The consumer is gone, as when its stream is closed: nothing may be applied to it any more. NULL: nobody asks.
    void (*gone)(void* ctx) noexcept nogil
    void* gone_ctx
    uint64_t proposed       # entries
    uint64_t applied
    bint refused            # a proposal was, or another member is to lead: nothing goes on
    uint64_t passed         # a message that is damaged here
    uint32_t passes         # ... and how often another member was to lead for it
    bint busy               # the last proposal was not taken, but others may be later
    bint resetting          # where it stands is being agreed on
    uint64_t purged         # a purge left nothing for it before this sequence; no entry says so of the ack floor
    uint32_t deliveries     # proposed and not applied
    uint32_t firsts         # of these the first ones of their messages
    uint32_t untold         # requests that the group does not know of
    List flights
    uint32_t n
    int64_t bytes           # of messages on their way
    Task task
    Wait cold

cdef enum Role:
    ROLE_FOLLOWS = 0        # does nothing of itself
    ROLE_BEHIND = 1         # likewise, and the stream or its group went on meanwhile
    ROLE_LEADS = 2          # delivers and answers

cdef enum:                  # a consumer's timers
    TIMER_ACK = 0           # the next deadline of an ack
    TIMER_WAKE = 1          # of delivery: replay, rate limit, and requests without room
    TIMER_PAUSE = 2         # the end of a pause
    TIMER_GONE = 3          # nobody used the consumer for too long
    TIMER_HEARTBEAT = 4     # of a push consumer
    TIMER_STUCK = 5         # set while somebody waits in vain: the log may say why
    TIMER_PIN = 6           # the pinned client asked for nothing for too long
    TIMER_DEAD = 7          # dead letters are sent again
    TIMERS = 8

cdef struct SkipList:
    # last_per_subject: these messages first, then all from `resume` on.
    uint64_t* seqs          # NULL: no such list, or it is at its end
    uint64_t n
    uint64_t at
    uint64_t resume

cdef struct PendingCount:
    # Where the consumer starts and how much is pending are looked for in pieces.
    int phase               # COUNT_*: num_pending is not complete
    bint failed             # there was no memory to find out where it starts
    Task task
    uint64_t at             # the next sequence, or index into the list of last messages, that is looked at
    uint64_t end            # what is stored from there on is added as it comes
    Sweep* sweep            # looks for the last messages that it starts with
    Filter loose            # of which subjects
    LastLook look           # likewise for one
    ConsumerInfo* wanted    # borrowed: filled when it is complete, before that leads to a delivery

cdef struct AckUpto:
    # An ack of everything up to a message, which takes messages out in turns.
    uint64_t seq            # everything up to here is acked; 0: is out
    uint64_t dseq           # of that message
    Task task
    List waiting            # double acks that are answered then, in order

cdef struct DeadLetters:
    # What died and is not stored yet: still pending, in none of its lists.
    U64Map by_seq           # sequence -> DeadLetter*
    List unsent
    List sent               # in the order in which they are sent again
    Task task
    Wait cold
    int64_t told            # mono: when the log last said that they are not stored; 0: never

cdef struct Replay:
    # Messages are delivered at the pace in which they were stored.
    bint on
    uint64_t until
    int64_t ts              # store time of the last message replayed

cdef struct Rate:
    double tokens           # of the rate limit, bytes
    int64_t at

cdef struct PullQueue:
    List all                # in the order of their turns
    uint32_t n
    uint32_t n_no_wait
    uint32_t n_full
    int64_t full_until      # mono: when those that are full are looked at again
    int64_t swept
    bint delivering         # a delivery is being sent: requests are not removed meanwhile

cdef struct Pin:
    # One client gets all.
    uint64_t number         # 0: nobody is pinned
    uint64_t given          # how many pins there were so far
    int64_t ts              # wall clock
    uint8_t id[PIN_SIZE]
    uint8_t group[GROUP_MAX]
    uint32_t n_group

cdef struct Flow:
    # Flow control.
    int64_t window          # bytes; 0: none
    int64_t unconfirmed     # bytes sent since
    int64_t asked           # of which the open request will confirm
    bint asking             # a request is open
    uint8_t id[4]

cdef struct Push:
    bint bound              # somebody listens
    int64_t sent            # monotonic: the last message or heartbeat

cdef struct Consumer:
    Env* env
    Stream* s
    Consumers* shared
    ListNode node           # its stream's
    ConsumerConfig cfg      # its texts are in `texts`
    uint8_t* texts
    Filter filter
    Watcher watcher
    uint32_t id             # in the log
    int64_t serial          # tells it from others of its name, for events
    bint logged
    bint fresh              # there was no state of it on opening
    bint damaged            # what was there of its state on opening: a part of it is not used
    uint64_t known_hash     # of the o.dat that was there on opening: it says nothing newer
    int64_t known_time
    Role role
    Timer timers[TIMERS]
    # where it stands
    uint64_t next           # the first sequence not yet looked at
    uint64_t dseq           # of the next delivery
    uint64_t delivered_seq
    uint64_t floor_dseq
    uint64_t floor_seq
    int64_t delivered_ts    # wall clock; 0: not since the start
    int64_t floor_ts
    int64_t num_pending
    PendingCount count
    SkipList skip
    uint64_t reset_to       # where it was reset to ahead of its stream, until something is delivered; 0: it was not
    # what is not acked
    PendingTable pending
    OldWaits* waits         # NULL: all is due as the configuration says
    Task move
    AckUpto upto            # with ack policy all
    U64Map exhausted        # delivered max_deliver times and not acked: sequence -> deliveries
    uint32_t n_redelivered
    DeadLetters dead
    # delivery
    Task deliver
    Wait cold               # for the next message's bytes
    bint paused
    bint unanswered         # the answer to the request that made it goes first
    uint64_t answer_ticket    # and waits for this one, UINT64_MAX: is not given yet
    uint8_t* ack_prefix     # in texts of its own
    uint32_t n_ack_prefix
    int64_t last_delivery   # monotonic
    int64_t last_activity
    Replay replay
    Rate rate
    PullQueue pull
    ConsumerGroup* group    # NULL: it is alone
    AskedList asked         # while another member leads
    Pin pin
    Push push
    Flow flow
    # the way in
    void* subs[6]
    void* watch

cdef Consumers* consumers_of(Stream* s) noexcept nogil                        # made when there is none; NULL: no memory
cdef void consumers_free(Stream* s) noexcept nogil
# Lets the log take what was gathered.
cdef void consumers_flush(Stream* s) noexcept nogil
cdef enum Joining:
    # Whether a consumer is a member of a Raft group from its opening on.
    JOINS_NOT
    JOINS                   # what it knows from before is brought up to date by its group's log
    JOINS_ANEW              # what its records say is forgotten: its file's state, or a snapshot to come, is what counts

# A consumer with its records in the log or the state of its file, else a new one. filter is made of the configuration's,
# without the lock where these are many, and taken. NULL: no memory, or a name too long.
# With the lock held. Where it starts and what is pending may take several turns (Consumer.counting); a caller that does
# not wait for them calls consumer_step until there is no more to do.
cdef struct StateFile
cdef Consumer* consumer_new(Stream* s, const ConsumerConfig* cfg, Filter* filter, const StateFile* file,
                            bint logged, Joining joining) noexcept nogil
cdef bint consumer_step(Consumer* c) noexcept nogil
# Subscribes and serves, from where the records end that it followed. 0 | -1 no memory
cdef int consumer_lead(Consumer* c) noexcept nogil
# From now on it follows, which every consumer does at first: it delivers and answers nothing, and has neither timers nor
# subscriptions. Who waits for messages is to ask again.
cdef void consumer_follow(Consumer* c) noexcept nogil
# Likewise, of one that is closed next: who waits hears then why.
cdef void consumer_ends(Consumer* c) noexcept nogil
# An entry in nats-server's form. False: it is none, or damaged
cdef bint consumer_entry_get(Span entry, ConsumerEntry* e) noexcept nogil
# Adds the entry to out. 0 | -1 no memory
cdef int consumer_entry_put(const ConsumerEntry* e, Bytes* out) noexcept nogil
# From its opening on it is a member of a Raft group, which says where a new consumer starts. 0 | -1 no memory
cdef int consumer_join(Consumer* c) noexcept nogil
# Of one that serves alone, and whose start is known: from now on it is a member, and begins with its state as it is, which is
# added to `state`. 0 | -1 no memory: consumer_part, where it has a group, and consumer_lead have it serve again
cdef int consumer_join_serving(Consumer* c, Bytes* state) noexcept nogil
# It is no member any more, and stands where it stood; consumer_lead has it serve alone. Its group's owner is not called.
cdef void consumer_part(Consumer* c) noexcept nogil
# As consumer_lead, of a member, once all is applied that was proposed before. What it changes it proposes, and it delivers and
# answers what depends on that when it is applied: its proposals are applied in their order, without others between, or it
# follows. Follow also when one was refused. before: how it stands, before it delivers anything, and after a reset; it lives as
# long as the consumer is a member.
cdef int consumer_lead_group(Consumer* c, int (*propose)(void* ctx, Span entry) noexcept nogil,
                             void (*refuse)(void* ctx) noexcept nogil, void* ctx, ConsumerInfo* before) noexcept nogil
# Of a member that leads: goes back, or to this sequence, as consumer_reset, when that is agreed on; then the member that
# applied the entry answers. 0 | -1 not proposed
cdef int consumer_reset_group(Consumer* c, uint64_t seq, Span reply) noexcept nogil
# What the group agreed on, in its order, from the last snapshot on. 0 | -1 no memory
cdef int consumer_apply(Consumer* c, const ConsumerEntry* e) noexcept nogil
# The state of a snapshot, as consumer_encode_state writes it. installed: it is of an index behind what was applied, and counts
# also where it goes back, as after a reset; otherwise an older one changes nothing. None does here that leads.
# 0 | -1 no memory | -2 not a state: as before
cdef int consumer_restore(Consumer* c, Span state, bint installed) noexcept nogil
# before: how it stands under the new configuration, before that lets anything be delivered; it is filled when what is pending is
# counted, and lives as long. filter: as consumer_new's; what is not needed is left in it. 0 | -1 no memory
cdef int consumer_update(Consumer* c, const ConsumerConfig* cfg, Filter* filter, ConsumerInfo* before) noexcept nogil
cdef int consumer_take_config(Consumer* c, const ConsumerConfig* cfg) noexcept nogil
cdef void consumer_pause(Consumer* c, int64_t until) noexcept nogil
# Forgets what was delivered, and delivers from this sequence on; 0: from behind the ack floor. What acks take out in turns
# is out, and where it starts is known. Returns the sequence; before: as consumer_update's.
cdef uint64_t consumer_reset(Consumer* c, uint64_t seq, ConsumerInfo* before) noexcept nogil
cdef void consumer_info(Consumer* c, ConsumerInfo* out) noexcept nogil
# Tells who waits, detaches, and frees.
cdef void consumer_close(Consumer* c, bint deleted) noexcept nogil
# nats-server's o.dat, version 2. 0 | -1 no memory
cdef int consumer_encode_state(Consumer* c, Bytes* out) noexcept nogil
# 0 | -1 no memory | -2 not a state
cdef int consumer_decode_state(Consumer* c, Span state) noexcept nogil


cdef class StreamHandle(IntakeFace):
    """A stream with its consumers."""
    cdef list handles
    cdef object opening     # a lock: opening and closing are one at a time
    cdef bint serving
    cdef Store* lost        # of a stream that failed: not yet cut to what was durable
    cdef bint behind        # until it resumes
    cdef uint64_t durable   # meanwhile: the last sequence that was acked before
    cdef forget(self, handle)
    cdef int lead_all(self) except -1
    cdef int open_log(self, Stream* s) except -1
    cdef int put_down(self) except -1
    cdef int retreat(self) except -1
    cdef int come_back(self, bint mirror) except -1
    cdef int refuse_rest(self, Store* store) except -1
    cdef int open_kept(self, Stream* s, list opened) except -1
    cdef int take_over(self, Stream* old, Stream* new) except -1
    cdef int drop(self, Stream* new, Store* store, list opened) except -1
    # As open_consumer. given: in place of what o.dat says, of one that joins anew.
    cdef ConsumerHandle open_as(self, object prepared, object directory, bint hold, Joining joining, bytes given)


cdef class ConsumerHandle:
    """A consumer for the control plane."""
    cdef EnvBox box
    cdef StreamHandle stream
    cdef Consumer* c
    cdef object directory
    cdef readonly int64_t id
    cdef ConsumerInfo changed
    cdef ConsumerConfig kept    # while its stream is opened again; its texts are in kept_texts
    cdef uint8_t* kept_texts
    cdef Bytes kept_state       # of one whose state is not on disk
    cdef bint kept_logged
    cdef bint take(self, const ConsumerConfig* cfg, Filter* filter, bint back, int* rc) except *
    cdef int keep_config(self, const ConsumerConfig* cfg) noexcept nogil
    cdef void keep(self) noexcept nogil
    cdef bint enter(self) noexcept nogil                # as StreamFace's, as is serves
    cdef bint serves(self) noexcept nogil
    cdef bint step(self, bint* open) noexcept nogil
    cdef int check(self, bint open) except -1
    cdef object final_state(self)
    cdef void end(self, bint delete) noexcept nogil

# A stream opened for the engine: raises StoreError.
cdef StreamHandle stream_handle(EnvBox box, const StreamPlace* place, object prepared, object directory)
