"""Raft's messages to the byte: records of three nats-servers, round trips, and what is none."""

import random
from typing import Any

import pytest

from tests.cext import raft
from tests.seeds import seed_of

N1, N2, N3 = b"xZ93l5JM", b"gX64jrmD", b"jaYVmptb"
PEERS = "0300000003000000785a39336c354a4d6a6159566d707462675836346a726d440000"
#: What three servers of version 2.14.5 said to each other.
FIRST = (
    "785a39336c354a4d010000000000000000000000000000000000000000000000000000000000000001002300000002"
    "0300000003000000785a39336c354a4d6a6159566d707462675836346a726d44000000"
)
HEARTBEAT = "785a39336c354a4d0100000000000000010000000000000001000000000000000100000000000000000000"
DELIVERED = (
    "6a6159566d707462010000000000000002000000000000000100000000000000030000000000000001000e00000000"
    "07010101ee9ba7a4ea83fceb3100"
)
SNAPSHOT = (
    "785a39336c354a4d0200000000000000030000000000000002000000000000000300000000000000020009000000062a"
    "0101270101000023000000020300000003000000785a39336c354a4d675836346a726d446a6159566d707462000000"
)
APPENDS = [
    (FIRST, (N1, 1, 0, 0, 0, [(2, bytes.fromhex(PEERS))])),
    (HEARTBEAT, (N1, 1, 1, 1, 1, [])),
    (DELIVERED, (N3, 1, 2, 1, 3, [(0, bytes.fromhex("07010101ee9ba7a4ea83fceb31"))])),
]


@pytest.mark.parametrize(("recorded", "places"), APPENDS)
def test_messages_of_a_leader_are_those_of_nats_server(recorded: str, places: Any) -> None:
    body = bytes.fromhex(recorded)
    leader, term, commit, pterm, pindex, entries = places
    assert raft.append_entry(body) == {
        "leader": leader,
        "term": term,
        "commit": commit,
        "pterm": pterm,
        "pindex": pindex,
        "lterm": 0,
        "entries": entries,
    }
    assert raft.write_append_entry(*places) == body


def test_a_snapshot_of_a_catch_up_is_nats_servers() -> None:
    body = bytes.fromhex(SNAPSHOT)
    m = raft.append_entry(body)
    assert m is not None
    (kind, state), (peers_kind, peers) = m["entries"]
    assert (kind, state, peers_kind) == (6, bytes.fromhex("2a01012701010000"), 2)
    assert raft.peer_state(peers) == {"size": 3, "peers": [N1, N2, N3], "extension": 0}
    assert (m["term"], m["commit"], m["pterm"], m["pindex"]) == (2, 3, 2, 3)


def test_votes_and_responses_are_nats_servers() -> None:
    asked = bytes.fromhex("010000000000000000000000000000000000000000000000785a39336c354a4d")
    assert raft.vote_request(asked) == {"term": 1, "last_term": 0, "last_index": 0, "candidate": N1}
    assert raft.write_vote_request(1, 0, 0, N1) == asked
    refused = bytes.fromhex("0100000000000000675836346a726d4402")
    assert raft.vote_response(refused) == {"term": 1, "peer": N2, "granted": False, "empty": True}
    assert raft.write_vote_response(1, N2, False, True) == refused
    assert raft.write_vote_response(1, N2, True) == refused[:-1] + b"\1"
    has = bytes.fromhex("02000000000000000100000000000000785a39336c354a4d01")
    assert raft.append_response(has) == {"term": 2, "index": 1, "peer": N1, "success": True}
    assert raft.write_append_response(2, 1, N1, True) == has


def test_sets_of_peers_are_nats_servers() -> None:
    body = bytes.fromhex(PEERS)
    assert raft.peer_state(body) == {"size": 3, "peers": [N1, N3, N2], "extension": 0}
    assert raft.write_peer_state(3, [N1, N3, N2]) == body
    assert raft.peer_state(body[:-2]) == raft.peer_state(body), (
        "old servers leave the extension out"
    )
    assert raft.peer_state(raft.write_peer_state(2, [N1], 1)) == {
        "size": 2,
        "peers": [N1],
        "extension": 1,
    }


def test_the_leaders_term_of_a_catch_up_is_behind_the_entries() -> None:
    body = raft.write_append_entry(N1, 2, 7, 2, 9, [(0, b"x")], 300)
    assert body.endswith(b"\xac\x02")
    m = raft.append_entry(body)
    assert m is not None and m["lterm"] == 300
    old = raft.append_entry(body[:-2])
    assert old is not None and old["lterm"] == 0, "old servers leave it out"
    assert raft.append_entry(body + b"more") == m, "newer ones may add to it"


DAMAGED = [
    ("too short", lambda b: b[:41]),
    ("an entry without its type", lambda b: b[:42] + bytes(4) + b[46:]),
    ("an entry that leads outside", lambda b: b[:42] + b"\xff\xff\xff\x7f" + b[46:]),
    ("more entries than there are", lambda b: b[:40] + b"\xff\xff" + b[42:]),
    ("an index beyond all", lambda b: b[:32] + b"\xff" * 8 + b[40:]),
    ("a term before the first entry", lambda b: b[:24] + b"\1" + b[25:]),
]


@pytest.mark.parametrize(("what", "damage"), DAMAGED, ids=[what for what, _ in DAMAGED])
def test_a_damaged_message_is_none(what: str, damage: Any) -> None:
    assert raft.append_entry(damage(bytes.fromhex(FIRST))) is None, what


@pytest.mark.parametrize("n", [0, 16, 18, 24, 26, 31, 33])
def test_other_messages_have_one_length(n: int) -> None:
    assert raft.vote_request(bytes(n)) is None
    assert raft.vote_response(bytes(n)) is None
    assert raft.append_response(bytes(n)) is None


def test_a_set_of_more_peers_than_there_are_bytes_is_none() -> None:
    assert raft.peer_state(bytes.fromhex("0300000004000000") + N1 * 3) is None
    assert raft.peer_state(b"\3\0\0\0\xff\xff\xff\xff" + N1) is None
    assert raft.peer_state(bytes(7)) is None


def test_a_group_survives_any_bytes() -> None:
    rng = random.Random(seed_of("RAFT_BYTES_SEED"))
    group = raft.Group(N1, [N1, N2, N3])
    for recorded in [FIRST, HEARTBEAT, DELIVERED, SNAPSHOT] * 200:
        body = bytearray.fromhex(recorded)
        for _ in range(rng.randrange(4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        del body[rng.randrange(len(body) + 40) :]
        for call in (group.vote_request, group.response):
            call(bytes(body[:32]), b"reply")
        group.append(bytes(body), b"reply", rng.randrange(3))
        group.vote_response(bytes(body[:17]))
        group.replay(bytes(body))
        group.forwarded(bytes(body))
        group.forwarded_removal(bytes(body))
        for action in group.actions():
            assert action["act"]
