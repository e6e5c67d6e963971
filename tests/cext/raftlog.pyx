"""Drives Raft groups on disk: several directories with one committer and one queue of small files."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

from jsserver.cext.bytes cimport (
    Bytes, Env, EnvLock, Span, bytes_free, env_lock, env_lock_init, env_unlock, posix_files, posix_system, span_of, task_run,
)
from jsserver.cext.raft cimport *
from jsserver.cext.raftlog cimport *
from jsserver.cext.store cimport (
    Committer, commit_inline, committer_free, committer_new, committer_poll, committer_stop,
)
from jsserver.cext.stream cimport EnvBox

import errno
import os
import time

ACTS = {ACT_SEND: "send", ACT_COMMIT: "commit", ACT_RECORD: "record", ACT_STATE: "state", ACT_ROLE: "role",
        ACT_DIVERGED: "diverged", ACT_INSTALL: "install"}
ROLES = {RAFT_FOLLOWER: "follower", RAFT_CANDIDATE: "candidate", RAFT_ELECTED: "elected",
         RAFT_LEADER: "leader", RAFT_STOPPED: "stopped"}


include "texts.pxi"


cdef uint64_t number(bytes id) except? 0:
    cdef uint64_t v = 0
    memcpy(&v, <const char*>id, len(id))
    return v


def read_snapshot(bytes group not None, bytes file not None) -> "tuple | None":
    """term, index, set of members, state; None for a file that is none or is damaged."""
    cdef Snapshot s
    if not snapshot_read(span_of(group), span_of(file), &s):
        return None
    return s.term, s.index, span_bytes(s.peers), span_bytes(s.state)


def write_snapshot(bytes group not None, uint64_t term, uint64_t index, bytes peers not None, bytes state not None) -> bytes:
    cdef Snapshot s
    cdef Bytes b
    memset(&b, 0, sizeof(b))
    s.term, s.index, s.peers, s.state = term, index, span_of(peers), span_of(state)
    if snapshot_write(span_of(group), &b, &s) < 0:
        raise MemoryError
    try:
        return (<const char*>b.data)[:b.n]
    finally:
        bytes_free(&b)


cdef class Machine:
    """What groups of a server share; nothing is written but in `commit` and `write`. With a box: on its simulated disk."""
    cdef Env own
    cdef Env* env
    cdef EnvLock mutex
    cdef Committer* com
    cdef RaftFiles* files
    cdef EnvBox box
    cdef int open

    def __init__(self, EnvBox box=None, int64_t sync_interval=0):
        self.box = box
        if box is not None:
            self.env = box.env
            self.com = box.committer
        else:
            self.env = &self.own
            env_lock_init(&self.mutex)
            self.own.lock = &self.mutex
            self.own.files = posix_files()
            self.own.system = posix_system()
            self.own.now = time.time_ns()
            self.own.mono = 1
            self.com = committer_new(self.env, sync_interval, 0, -1)
        self.files = raft_files_new(self.env, self.com, NULL, NULL)
        if self.com == NULL or self.files == NULL:
            raise MemoryError

    def commit(self) -> None:
        """One commit round of all logs."""
        with nogil:
            commit_inline(self.com, 0)
            env_lock(self.env)
            committer_poll(self.com)
            env_unlock(self.env)

    def write(self) -> int:
        """One round of all small files; how many there were."""
        cdef int n
        with nogil:
            n = raft_files_write(self.files)
        return n

    def turn(self) -> None:
        """What is due at a turn's end."""
        with nogil:
            env_lock(self.env)
            task_run(&self.env.tasks, 1000000)
            env_unlock(self.env)

    def close(self) -> None:
        """After its last directory; the box is another's."""
        if self.files != NULL:
            raft_files_free(self.files)
            self.files = NULL
        if self.com != NULL and self.box is None:
            committer_stop(self.com)
            committer_free(self.com)
        self.com = NULL

    def __dealloc__(self):
        if not self.open:                       # else a test failed: nothing is given back
            self.close()


cdef class Directory:
    """A group in a directory, as the member `id` has it."""
    cdef Machine machine
    cdef RaftLog* log
    cdef Raft* r
    cdef readonly dict found
    cdef bytes group

    def __init__(self, Machine machine, directory, bytes group not None, bytes id not None, bytes peers=b"", bint memory=False):
        cdef RaftConfig cfg
        cdef RaftFound found
        cdef char err[512]
        cdef bytes path = os.fsencode(directory)
        memset(&cfg, 0, sizeof(cfg))
        cfg.id = number(id)
        cfg.seed = 1
        cfg.managed = True
        self.machine = machine
        self.group = group
        if memory:
            self.log = raftlog_open_memory(machine.files, span_of(path), span_of(group), &cfg, span_of(peers), NULL, NULL,
                                           &found, err, sizeof(err))
        else:
            self.log = raftlog_open(machine.files, span_of(path), span_of(group), &cfg, span_of(peers), False, NULL, NULL, &found,
                                    err, sizeof(err))
        if self.log == NULL:
            raise OSError(err.decode("utf-8", "replace"))
        machine.open += 1
        self.r = raftlog_raft(self.log)
        self.found = {"fresh": bool(found.fresh), "lost": bool(found.lost), "aside": found.aside, "records": found.records,
                      "snapshot": found.snapshot_index, "state": span_bytes(found.state)}
        bytes_free(&found.file)

    def close(self) -> None:
        env_lock(self.machine.env)
        raftlog_stop(self.log)
        env_unlock(self.machine.env)
        raftlog_close(self.log)
        self.log = NULL
        self.machine.open -= 1

    def call(self, str what, *args) -> list:
        """Calls the group, and carries out what is about its disk: the other actions, as dicts."""
        cdef Raft* r = self.r
        cdef bytes a = args[0] if args and isinstance(args[0], bytes) else b""
        cdef bytes b = args[1] if len(args) > 1 and isinstance(args[1], bytes) else b""
        cdef uint64_t n = args[0] if args and isinstance(args[0], int) else 0
        cdef uint64_t m = args[2] if len(args) > 2 else 0
        cdef int rc = 0
        cdef RaftAction action
        out = []
        env_lock(self.machine.env)
        try:
            if what == "tick":
                rc = raft_tick(r, <int64_t>n)
            elif what == "campaign":
                rc = raft_campaign(r)
            elif what == "propose":
                rc = raft_propose(r, n, ENTRY_NORMAL, span_of(b))
            elif what == "turn_end":
                rc = raft_turn_end(r)
            elif what == "append":
                rc = raft_append(r, span_of(a), span_of(b), m)
            elif what == "vote_request":
                rc = raft_vote_request(r, span_of(a), span_of(b))
            elif what == "vote_response":
                rc = raft_vote_response(r, span_of(a))
            elif what == "response":
                rc = raft_response(r, span_of(a), span_of(b), 0)
            elif what == "sent":
                rc = raft_sent(r, number(a), args[1], args[2])
            elif what == "applied":
                rc = raft_applied(r, n)
            if rc < 0:
                raise RuntimeError(f"{what}: {rc}")
            while raft_next_action(r, &action):
                if not raftlog_act(self.log, &action) or action.act == ACT_INSTALL:
                    out.append({
                        "act": ACTS[action.act], "what": <int>action.what, "reply": <int>action.reply, "index": action.index,
                        "term": action.term, "peer": (<const char*>&action.peer)[:8], "to": span_bytes(action.to),
                        "body": span_bytes(action.body),
                    })
        finally:
            env_unlock(self.machine.env)
        return out

    def load(self, uint64_t index) -> "bytes | None":
        cdef Span s
        env_lock(self.machine.env)
        try:
            return span_bytes(s) if raftlog_load(self.log, index, &s) else None
        finally:
            env_unlock(self.machine.env)

    def snapshot(self, uint64_t term, uint64_t index, bytes peers not None, bytes state not None) -> int:
        cdef Snapshot s
        s.term, s.index, s.peers, s.state = term, index, span_of(peers), span_of(state)
        env_lock(self.machine.env)
        try:
            return raftlog_snapshot(self.log, &s)
        finally:
            env_unlock(self.machine.env)

    def state(self) -> dict:
        cdef RaftState s
        raft_state(self.r, &s)
        error = errno.errorcode[raftlog_error(self.log)] if raftlog_error(self.log) else ""
        return {"error": error, "role": ROLES[s.role], "term": s.term, "first": s.first, "last": s.last, "last_term": s.last_term,
                "commit": s.commit, "stored": s.stored, "lost": bool(s.lost), "members": s.members}
