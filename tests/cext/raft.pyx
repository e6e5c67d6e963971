"""Drives one group of the raft layer: messages and times in, actions out as plain values."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from jsserver.cext.bytes cimport Bytes, Span, bytes_free, span, span_of
from jsserver.cext.raft cimport *

ROLES = {RAFT_FOLLOWER: "follower", RAFT_CANDIDATE: "candidate", RAFT_ELECTED: "elected",
         RAFT_LEADER: "leader", RAFT_STOPPED: "stopped"}
ACTS = {ACT_VOTE: "vote", ACT_STORE: "store", ACT_CUT: "cut", ACT_SEND: "send",
        ACT_COMMIT: "commit", ACT_INSTALL: "install", ACT_RECORD: "record", ACT_STATE: "state",
        ACT_ROLE: "role", ACT_PEERS: "peers", ACT_LOST: "lost", ACT_WHOLE: "whole", ACT_DIVERGED: "diverged",
        ACT_CONFIRMED: "confirmed"}
WHATS = {0: "", SEND_VOTE_REQUEST: "vote request", SEND_APPEND: "append", SEND_REPLY: "reply"}
REPLIES = {REPLY_NONE: "", REPLY_VOTES: "votes", REPLY_RESPONSES: "responses", REPLY_CATCH_UP: "catch up",
           REPLY_ROUND: "round"}
ERRORS = {RAFT_NOT_LEADER: "not leader", RAFT_BUSY: "busy", RAFT_LAST: "last", RAFT_TOO_LARGE: "too large"}


class Refused(Exception):
    """What a group does not do; the text says why."""


cdef uint64_t number(bytes id) except? 0:
    cdef uint64_t v = 0
    if len(id) > 8:
        raise ValueError(f"a peer's id has at most 8 bytes: {id!r}")
    memcpy(&v, <const char*>id, len(id))
    return v


cdef bytes name(uint64_t id):
    return (<const char*>&id)[:8].rstrip(b"\0")


cdef bytes copied(Span s):
    return (<const char*>s.p)[:s.n] if s.n else b""


cdef int told(int rc) except -1:
    if rc == RAFT_NO_MEMORY:
        raise MemoryError
    if rc < 0:
        raise Refused(ERRORS[rc])
    return 0


cdef class Group:
    """A group as the member `id` has it, from what its disk had."""
    cdef Raft* r

    def __cinit__(self, bytes id not None, list peers not None, int64_t now=0, uint32_t size=0, uint64_t seed=1,
                  uint64_t term=0, bytes vote=b"", uint64_t snapshot_term=0, uint64_t snapshot_index=0,
                  bint observer=False, bint managed=False, bint fresh=False, bint lost=False, uint64_t turns=0,
                  uint64_t base=0):
        cdef RaftConfig cfg
        cdef RaftStart at
        cdef bytes state = write_peer_state(size or len(peers), peers)
        memset(&at, 0, sizeof(at))
        cfg.id = number(id)
        cfg.seed = seed
        cfg.observer = observer
        cfg.managed = managed
        cfg.fresh = fresh
        cfg.lost = lost
        cfg.turns = turns
        cfg.base = base
        at.term = term
        at.vote = number(vote)
        at.snapshot_term = snapshot_term
        at.snapshot_index = snapshot_index
        at.peers = span_of(state)
        self.r = raft_new(&cfg, &at, now)
        if self.r == NULL:
            raise MemoryError

    def __dealloc__(self):
        raft_free(self.r)

    def replay(self, bytes record not None) -> bool:
        return raft_replay(self.r, span_of(record))

    def vote_request(self, bytes body not None, bytes reply not None) -> None:
        told(raft_vote_request(self.r, span_of(body), span_of(reply)))

    def vote_response(self, bytes body not None) -> None:
        told(raft_vote_response(self.r, span_of(body)))

    def append(self, bytes body not None, bytes reply=b"", uint64_t catch_up=0) -> None:
        told(raft_append(self.r, span_of(body), span_of(reply), catch_up))

    def response(self, bytes body not None, bytes reply=b"", uint64_t round=0) -> None:
        told(raft_response(self.r, span_of(body), span_of(reply), round))

    def ask(self) -> int:
        return raft_ask(self.r)

    def tick(self, int64_t now) -> None:
        told(raft_tick(self.r, now))

    def deadline(self) -> int:
        return raft_deadline(self.r)

    def stored(self, uint64_t generation, uint64_t index) -> None:
        told(raft_stored(self.r, generation, index))

    def voted(self, uint64_t term, bytes vote not None) -> None:
        told(raft_voted(self.r, term, number(vote)))

    def marked(self) -> None:
        told(raft_marked(self.r))

    def applied(self, uint64_t index) -> None:
        told(raft_applied(self.r, index))

    def snapshotted(self, uint64_t term, uint64_t index) -> None:
        told(raft_snapshotted(self.r, term, index))

    def sent(self, bytes peer not None, uint64_t index, uint32_t n) -> None:
        told(raft_sent(self.r, number(peer), index, n))

    def propose(self, uint64_t term, bytes data not None, int kind=ENTRY_NORMAL) -> None:
        told(raft_propose(self.r, term, <EntryType>kind, span_of(data)))

    def turn_end(self) -> None:
        told(raft_turn_end(self.r))

    def add_peer(self, bytes peer not None) -> None:
        told(raft_add_peer(self.r, number(peer)))

    def remove_peer(self, bytes peer not None) -> None:
        told(raft_remove_peer(self.r, number(peer)))

    def assign(self, list peers not None) -> None:
        cdef bytes ids = b"".join([peer.ljust(8, b"\0") for peer in peers])
        told(raft_assign(self.r, <const uint64_t*><const char*>ids, len(peers)))

    def propose_state(self, bytes state not None) -> None:
        told(raft_propose_state(self.r, span_of(state)))

    def hand_over(self, bytes to=b"") -> None:
        told(raft_hand_over(self.r, number(to)))

    def set_peers(self, list peers not None) -> None:
        cdef bytes ids = b"".join([peer.ljust(8, b"\0") for peer in peers])
        told(raft_set_peers(self.r, <const uint64_t*><const char*>ids, len(peers)))

    def forwarded(self, bytes body not None) -> None:
        told(raft_forwarded(self.r, span_of(body)))

    def forwarded_removal(self, bytes body not None) -> None:
        told(raft_forwarded_removal(self.r, span_of(body)))

    def gone(self, bytes peer not None) -> None:
        told(raft_gone(self.r, number(peer)))

    def campaign(self) -> None:
        told(raft_campaign(self.r))

    def choose(self, bint alone=True) -> None:
        raft_choose(self.r, FIRST_OWN if alone else FIRST_ANY)

    def seeks(self) -> bool:
        return raft_seeks(self.r)

    def seen(self, int64_t now, uint32_t others, bint led=False) -> None:
        told(raft_seen(self.r, now, others, led))

    def fail(self) -> None:
        told(raft_failed(self.r))

    def observe(self, bint observer) -> None:
        told(raft_observe(self.r, observer))

    def stop(self) -> None:
        raft_stop(self.r)

    def actions(self) -> list:
        """Those that are queued, oldest first, each as a dict of what it says."""
        cdef RaftAction a
        out = []
        while raft_next_action(self.r, &a):
            out.append({
                "act": ACTS[a.act], "what": WHATS[a.what], "reply": REPLIES[a.reply], "term": a.term,
                "index": a.index, "count": a.count, "peer": name(a.peer), "to": copied(a.to),
                "body": copied(a.body),
            })
        return out

    def state(self) -> dict:
        cdef RaftState s
        raft_state(self.r, &s)
        return {
            "role": ROLES[s.role], "term": s.term, "leader": name(s.leader), "first": s.first, "last": s.last,
            "last_term": s.last_term, "commit": s.commit, "applied": s.applied, "stored": s.stored,
            "generation": s.generation, "size": s.size, "quorum": s.quorum, "lost": s.lost,
            "vote": name(s.vote), "proposed": s.proposed, "confirmed": s.confirmed,
        }

    def role(self) -> str:
        cdef RaftState s
        raft_state(self.r, &s)
        return ROLES[s.role]

    def peers(self) -> list:
        """Of each member that is known: its id, the index that it confirmed, when it was heard, whether it leads."""
        cdef RaftPeerState p
        cdef uint32_t n = 0
        out = []
        while raft_peer(self.r, n, &p):
            out.append((name(p.id), p.match, p.heard, bool(p.leads)))
            n += 1
        return out


def append_entry(bytes body not None) -> "dict | None":
    """A message decoded; None for one that is none."""
    cdef AppendEntry m
    cdef Entry e
    cdef Span rest
    if not append_entry_read(span_of(body), &m):
        return None
    rest = m.entries
    entries = []
    while entry_next(&rest, &e):
        entries.append((<int>e.type, copied(e.data)))
    return {"leader": name(m.leader), "term": m.term, "commit": m.commit, "pterm": m.pterm, "pindex": m.pindex,
            "lterm": m.lterm, "entries": entries}


def write_append_entry(bytes leader not None, uint64_t term, uint64_t commit, uint64_t pterm, uint64_t pindex,
                       list entries not None, uint64_t lterm=0) -> bytes:
    cdef AppendEntry m
    cdef Bytes inner, outer
    memset(&inner, 0, sizeof(inner))
    memset(&outer, 0, sizeof(outer))
    try:
        for kind, data in entries:
            told(entry_write(&inner, <EntryType><int>kind, span_of(data)))
        m.leader = number(leader)
        m.term = term
        m.commit = commit
        m.pterm = pterm
        m.pindex = pindex
        m.lterm = lterm
        m.n = len(entries)
        m.entries = span(inner.data, <uint32_t>inner.n)
        told(append_entry_write(&outer, &m))
        return (<const char*>outer.data)[:outer.n]
    finally:
        bytes_free(&inner)
        bytes_free(&outer)


def append_response(bytes body not None) -> "dict | None":
    cdef AppendResponse m
    if not append_response_read(span_of(body), &m):
        return None
    return {"term": m.term, "index": m.index, "peer": name(m.peer), "success": bool(m.success)}


def write_append_response(uint64_t term, uint64_t index, bytes peer not None, bint success) -> bytes:
    cdef AppendResponse m
    m.term = term
    m.index = index
    m.peer = number(peer)
    m.success = success
    return written(<Write>append_response_write, &m)


def vote_request(bytes body not None) -> "dict | None":
    cdef VoteRequest m
    if not vote_request_read(span_of(body), &m):
        return None
    return {"term": m.term, "last_term": m.last_term, "last_index": m.last_index, "candidate": name(m.candidate)}


def write_vote_request(uint64_t term, uint64_t last_term, uint64_t last_index, bytes candidate not None) -> bytes:
    cdef VoteRequest m
    m.term = term
    m.last_term = last_term
    m.last_index = last_index
    m.candidate = number(candidate)
    return written(<Write>vote_request_write, &m)


def vote_response(bytes body not None) -> "dict | None":
    cdef VoteResponse m
    if not vote_response_read(span_of(body), &m):
        return None
    return {"term": m.term, "peer": name(m.peer), "granted": bool(m.granted), "empty": bool(m.empty)}


def write_vote_response(uint64_t term, bytes peer not None, bint granted, bint empty=False) -> bytes:
    cdef VoteResponse m
    m.term = term
    m.peer = number(peer)
    m.granted = granted
    m.empty = empty
    return written(<Write>vote_response_write, &m)


def peer_state(bytes body not None) -> "dict | None":
    cdef PeerState m
    if not peer_state_read(span_of(body), &m):
        return None
    return {"size": m.size, "peers": [m.ids[8 * n:8 * n + 8] for n in range(m.n)], "extension": <int>m.extension}


def write_peer_state(uint32_t size, list peers not None, int extension=0) -> bytes:
    cdef bytes ids = b"".join([peer.ljust(8, b"\0") for peer in peers])
    cdef Bytes b
    memset(&b, 0, sizeof(b))
    try:
        told(peer_state_write(&b, size, <const uint8_t*><const char*>ids, len(peers), <DomainExtension>extension))
        return b.data[:b.n]
    finally:
        bytes_free(&b)


ctypedef int (*Write)(Bytes*, const void*) noexcept nogil


cdef bytes written(Write write, const void* m):
    cdef Bytes b
    memset(&b, 0, sizeof(b))
    try:
        told(write(&b, m))
        return b.data[:b.n]
    finally:
        bytes_free(&b)
