"""Which sequences replicas differ in, and which replica is the odd one."""

from hypothesis import given
from hypothesis import strategies as st

from jsserver.admin.differences import SHOWN, Difference, Part, differences

Replica = dict[int, str]
"""Messages by their sequences."""


def asked(replicas: dict[str, Replica], name: str, part: Part) -> dict[int, str]:
    """Chunks as a server makes them."""
    chunks: dict[int, list[tuple[int, str]]] = {}
    for seq, message in sorted(replicas[name].items()):
        if part.first <= seq <= part.last:
            begins = (seq - 1) // part.chunk * part.chunk + 1
            chunks.setdefault(max(begins, part.first), []).append((seq, message))
    return {first: repr(messages) for first, messages in chunks.items()}


MESSAGES = st.dictionaries(st.integers(1, 20000), st.sampled_from("ab"), max_size=40)


@given(MESSAGES, MESSAGES, st.sampled_from((4096, 512, 1)), st.integers(1, 100))
def test_exactly_what_differs_is_found(
    more: Replica, same: Replica, chunk: int, first: int
) -> None:
    replicas = {"A": same, "B": same | more, "C": same}
    part = Part(first, 20000, chunk)
    found = differences("ABC", lambda name, part: asked(replicas, name, part), part)
    wrong = [seq for seq in sorted(more) if seq >= first and same.get(seq) != more[seq]]
    assert [one.seq for one in found] == wrong[:SHOWN]
    assert all(one.odd("A") == ["B"] for one in found)


def test_the_leader_is_right_where_no_more_agree() -> None:
    assert Difference(1, {"A": "x", "B": "y"}).odd("B") == ["A"]
    assert Difference(1, {"A": "x", "B": "y", "C": ""}).odd("C") == ["A", "B"]
    assert Difference(1, {"A": "x", "B": "y", "C": "y"}).odd("A") == ["A"]
    assert Difference(1, {"A": "x", "B": "y"}).odd("a nats-server") == ["A", "B"]
