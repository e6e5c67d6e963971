"""Which streams have the messages of another one, by the assignments of a cluster."""

from typing import Any

import msgspec

from jsserver.cluster.meta import MetaState, Op


def assigned(name: str, origin: str = "") -> dict[str, Any]:
    config = {"name": name, **({"mirror": {"name": origin}} if origin else {})}
    group = {"name": name, "cluster": "C", "peers": ["A"]}
    return {"client": {"acc": "ONE"}, "stream": config, "group": group}


def put(state: MetaState, op: Op, name: str, origin: str = "") -> None:
    state.apply(bytes([op]) + msgspec.json.encode(assigned(name, origin)))


def names(state: MetaState, name: str, account: str = "ONE") -> list[str]:
    return [one.name for one in state.alternates(account, name)]


def test_mirrors_come_and_go_with_their_assignments() -> None:
    state = MetaState()
    put(state, Op.ASSIGN_STREAM, "M2", "O")
    assert names(state, "O") == []
    put(state, Op.ASSIGN_STREAM, "O")
    put(state, Op.ASSIGN_STREAM, "M1", "O")
    put(state, Op.ASSIGN_STREAM, "MM", "M1")
    assert names(state, "O") == ["O", "M1", "M2"]
    assert names(state, "M1") == ["M1", "MM"]
    assert names(state, "O", "TWO") == names(state, "MM") == []
    assert names(MetaState.read(state.snapshot()), "O") == ["O", "M1", "M2"]
    put(state, Op.UPDATE_STREAM, "M1")
    assert names(state, "O") == ["O", "M2"]
    put(state, Op.REMOVE_STREAM, "M2")
    assert names(state, "O") == []
