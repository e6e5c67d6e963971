"""A member whose history a rescue began hears of nobody that has less."""

import pytest

from tests.cext.raft import (
    Group,
    append_response,
    write_append_entry,
    write_vote_request,
)

TERM, BASE = 1005, 5000
SECOND = 1_000_000_000


def member(base: int = BASE) -> Group:
    """A of A and B, which are left of a cluster."""
    group = Group(
        *(b"a", [b"a", b"b"]), term=TERM, snapshot_term=TERM, snapshot_index=BASE, base=base
    )
    group.applied(BASE)
    return group


def sent(group: Group) -> list[bytes]:
    return [one["body"] for one in group.actions() if one["act"] == "send"]


def append(leader: bytes, term: int, last_term: int, last: int) -> bytes:
    """A heartbeat of a leader whose log ends there."""
    return write_append_entry(leader, term, last, last_term, last, [], 0)


@pytest.mark.parametrize("term", [3, TERM + 7])
def test_a_leader_of_servers_that_began_empty_is_none(term: int) -> None:
    group = member()
    group.append(append(b"c", term, term, 12), b"responses.c")
    group.vote_request(write_vote_request(term + 1, term, 12, b"c"), b"votes.c")
    assert sent(group) == []
    assert group.state()["term"] == TERM
    group.tick(10 * SECOND)
    assert group.role() == "candidate"


def test_who_has_the_rescued_history_leads() -> None:
    group = member()
    group.append(append(b"b", TERM + 1, TERM, BASE), b"responses.b")
    (answer,) = sent(group)
    said = append_response(answer)
    assert said is not None and said["success"]
    assert group.state()["term"] == TERM + 1


def test_a_server_that_asks_whether_logs_are_empty_is_told() -> None:
    """It then begins no group of its own."""
    group = member()
    group.vote_request(write_vote_request(0, 0, 0, b"c"), b"votes.c")
    assert len(sent(group)) == 1


def test_the_base_of_a_rescue_that_was_cut_short_is_none() -> None:
    group = member(BASE + 1)
    group.append(append(b"c", TERM + 7, TERM + 7, 12), b"responses.c")
    assert group.state()["term"] == TERM + 7
