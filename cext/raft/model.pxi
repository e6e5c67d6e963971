# A group as one member has it: its fields by who writes them, and the times that Raft goes by.

cdef enum:
    MILLISECOND = 1000000
cdef int64_t SECOND = 1000000000

# nats-server's times (server/raft.go), ns.
cdef int64_t ELECTION_MIN = 4 * SECOND
cdef int64_t ELECTION_SPREAD = 5 * SECOND
cdef int64_t ELECTION_LOST = 10 * SECOND            # more, for a member that lost something: others come first
cdef int64_t CAMPAIGN_MIN = 100 * MILLISECOND
cdef int64_t CAMPAIGN_SPREAD = 700 * MILLISECOND
cdef int64_t CAMPAIGN_BEHIND = SECOND               # what is committed is not applied yet
cdef int64_t HEARTBEAT = SECOND
cdef int64_t QUORUM_LOST = 10 * SECOND
cdef int64_t CURRENT = 3 * SECOND                   # a peer heard from since then
cdef int64_t REMOVED = 300 * SECOND                 # a peer that was removed may come back by itself after this
cdef int64_t STALLED = 2 * SECOND                   # of a catch-up without progress, on either side

# Not nats-server's: without a leader for so long, and nothing applied, a member that lacks committed state asks for votes.
cdef int64_t LEADERLESS = 15 * SECOND
# Not nats-server's: every message comes sooner. A leader whose entries are in the log, and that names less, had more: its message
# is late, unless the leader names less for longer.
cdef int64_t LATE = 30 * SECOND
# Not nats-server's: of a member that was opened and sees the others, but no leader.
cdef int64_t SEEK_ALL = 200 * MILLISECOND           # all others are there: what a leader subscribes to had the time to come
cdef int64_t SEEK_CHOSEN = 20 * MILLISECOND         # a quorum of a new group is there: the others may come, too
cdef int64_t SEEK_QUORUM = 2 * SECOND + 500 * MILLISECOND   # a quorum is there: a leader is silent for two seconds at most
cdef int64_t SEEK_TURN = SECOND                     # more for each member whose turn comes before
cdef int64_t SEEK_ABSENT = 5 * SECOND               # a quorum of a new group is there: a member that is not may have a log
cdef int64_t SEEK_ASKED = SECOND                    # for the others to say whether their logs are empty

cdef enum:
    CATCH_UP_WINDOW = 2 << 20   # bytes sent to a peer and not confirmed
    OVERRUN = 100000            # entries committed and not applied: nothing more is taken
    OVERRUN_OVER = 10000
    CATCH_UPS_MAX = 1 << 10     # peers that are sent what they lack
    SEEK_TRIES = 3              # campaigns before their time, after one opening
    QUEUE_KEPT = 1 << 20        # bytes of the queue of actions that are kept for the next ones
    REPLY_MAX = 256             # bytes of a subject to answer to

cdef struct CatchUp:
    # A peer that asked for what it lacks, of the group or about to be. `sizes` has the bytes of each record sent and
    # not confirmed.
    uint64_t id
    bint on
    bint returns                # when the peer asked it was no member
    uint64_t next               # index to be sent
    uint64_t last               # index at the request
    uint64_t confirmed
    uint64_t bytes              # sent and not confirmed
    bint asked                  # the driver has a record to send
    int64_t active              # mono: of the last progress
    uint32_t n_to
    uint8_t to[REPLY_MAX]
    Bytes sizes

cdef struct RaftPeer:
    uint64_t id
    uint64_t match              # the greatest index that it confirmed in this term
    uint64_t round              # the last round that it answered
    int64_t heard               # mono; 0: never

cdef struct Removed:
    uint64_t id
    int64_t at

cdef struct Era:
    # The indexes from `start` on have this term, up to the next era.
    uint64_t start
    uint64_t term

cdef enum CatchingUp:
    CATCHING_NOT
    CATCHING_SOON               # the leader is asked once the mark of a lost member is on disk
    CATCHING_UP

cdef struct Behind:
    # Where this member fetches what it lacks.
    CatchingUp state
    bint marking                # the mark of a lost member is not on disk yet: nothing is asked for before
    uint64_t inbox              # its number; the last one given, if the state is not CATCHING_UP
    uint64_t term               # of the entry before the live message that began it
    uint64_t index
    int64_t active              # mono: of the last progress
    uint64_t bytes              # that came since it was asked

cdef struct Ballot:
    # A candidate's count, or the answer that a voter owes until its vote is on disk.
    uint32_t granted_full       # from members whose log is not empty
    uint32_t granted            # from members
    uint64_t* voters            # peers counted
    uint32_t n_voters
    bint asking                 # the own vote is not on disk yet; the requests go then
    uint64_t owed_to            # candidate; 0: nobody
    uint32_t n_reply
    uint8_t reply[REPLY_MAX]

cdef struct Proposals:
    # Entries that become one message at the end of the turn.
    Bytes entries
    uint32_t n

cdef struct Log:
    # Of the records: their terms and bounds. The driver has their bytes.
    Era* eras
    uint32_t n_eras
    uint32_t cap_eras
    uint64_t first              # index of the first record; last + 1: there is none
    uint64_t last
    uint64_t last_term
    uint64_t generation         # another one after each cut: what was stored of the one before counts no more
    uint64_t stored             # on disk up to here; 0 while a snapshot is being installed
    uint64_t quiet              # records up to here came by catch-up: nobody waits for their answer
    uint64_t snapshot_term
    uint64_t snapshot_index

cdef struct Applying:
    uint64_t commit
    uint64_t applied
    int64_t moved               # mono: of the last entries that were applied
    bint overrun                # so much waits to be applied that nothing more is taken

cdef struct Members:
    RaftPeer* a
    uint32_t n
    uint32_t cap
    uint32_t size               # how many the group is to have
    DomainExtension extension
    Bytes base                  # the set that is committed, as an entry PeerState
    Bytes pending               # entries that change it and are not committed, in their order: a Pending and data of each
    Removed* removed
    uint32_t n_removed
    uint32_t cap_removed
    uint64_t* assigned          # those that the group is to have, as of the present assignment
    uint32_t n_assigned         # 0: nobody said so, and each that is a member may stay

cdef struct Leading:
    Proposals proposals
    CatchUp* catch_ups
    uint32_t n_catch_ups
    uint64_t ready_at           # index of the first entry of the own term
    uint64_t said_commit        # the commit that followers have heard of
    int64_t said                # mono: of the last message to all
    int64_t grown               # mono: members were added
    bint lacks                  # it was elected without committed state, which only another leader can send
    bint asks                   # a round is due at the end of the turn
    uint64_t confirmed          # up to this round a quorum has answered, or the round is of an earlier lead
    int64_t heartbeat           # mono: when there is to be a look at it
    int64_t quorum_look

cdef struct Seeking:
    # A member that was opened and has not heard of a leader since, nor given somebody its vote.
    bint on
    FirstLeader first           # of a new group
    int64_t pause               # with FIRST_ANY: for so long it waits once a quorum is there
    uint32_t tries
    int64_t all_at              # mono: since when all others are there, and none leads; 0: they are not
    int64_t quorum_at           # likewise of a quorum
    uint32_t asked              # how many others were there when they were asked whether their logs are empty
    int64_t asked_at            # mono

cdef struct Following:
    uint64_t leader             # 0: not known
    int64_t led                 # mono: when a leader was heard last, or this member led last
    int64_t election            # mono: when to campaign
    bint handed                 # leadership is being handed to this member
    uint64_t met                # last index of the leader that was heard first since this member was opened; 0: none was
    bint returns                # it was none of the group's members then, and is none yet
    int64_t short_since         # mono: since when the leader has named no index up to the commit here; 0: it has
    Seeking seek
    Behind behind
    uint32_t n_answer
    uint8_t answer[REPLY_MAX]   # the leader's inbox for responses

cdef struct Raft:
    uint64_t id
    bint observer
    bint managed
    bint fresh
    bint older                  # another member's log is known to hold something, while this one's is empty
    bint lost                   # what it had promised is gone: until it has all again its vote counts like an empty member's
    uint64_t base               # index of the snapshot that began the group's history; 0: none did
    uint64_t whole_at           # index that it has to have on disk for that; 0: not known
    uint64_t random
    uint64_t turns
    int64_t now
    RaftRole role
    uint64_t term               # this and `vote` are on disk before anybody hears of them
    uint64_t vote
    Log log
    Applying apply
    Members members
    Ballot ballot
    Following follow
    Leading lead
    uint64_t round              # of the last heartbeat that asks whether this member still leads; never used again
    Bytes queue                 # of actions
    size_t queue_at
