"""A stream that is asked for with two things wrong: both servers name the same one of them."""

import itertools

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

VIOLATIONS: dict[str, dict[str, object]] = {
    "another name": {"name": "OTHER"},
    "sealed": {"sealed": True},
    "mirror direct": {"mirror_direct": True},
    "description": {"description": "x" * 5000},
    "many replicas": {"num_replicas": 7},
    "negative replicas": {"num_replicas": -1},
    "negative age": {"max_age": -1},
    "short window": {"duplicate_window": 1_000_000},
    "rollups that may not purge": {"deny_purge": True, "allow_rollup_hdrs": True},
    "discard per subject": {"discard_new_per_subject": True},
    "marker": {"subject_delete_marker_ttl": 5},
    "bad subject": {"subjects": ["a..b"]},
    "overlapping subjects": {"subjects": ["a.>", "a.b"]},
    "subject of another stream": {"subjects": ["taken.here"]},
    "subject of the server": {"subjects": ["$JS.API.>"]},
    "transform": {"subject_transform": {"src": "a.*", "dest": "b.{{wildcard(2)}}"}},
    "republish": {"republish": {"src": ">", "dest": "s.>"}},
    "placement": {"placement": {"cluster": "", "preferred": "x"}},
    "no room": {"max_bytes": 1 << 40},
    "no room in memory": {"max_bytes": 1 << 40, "storage": "memory"},
    "too many consumers": {"max_consumers": 1000},
    "source of itself": {"sources": [{"name": "S"}]},
}
LIMITED = """
jetstream: {max_mem: 64M, max_file: 64M}
accounts {
  A: {users: [{user: a, password: a}], jetstream: {
    max_mem: 16M, max_file: 16M, max_streams: 2, max_consumers: 10}}
}
no_auth_user: a
"""


def merged(pair: tuple[str, ...]) -> dict[str, object] | None:
    """The configuration that violates both; None where they set the same option."""
    found: dict[str, object] = {}
    for name in pair:
        if found.keys() & VIOLATIONS[name].keys():
            return None
        found |= VIOLATIONS[name]
    return found


def refusals(server: Server, full: bool) -> dict[tuple[str, ...], object]:
    said: dict[tuple[str, ...], object] = {}
    with RawApp(server.port) as client:
        for name in ("TAKEN", *(("MORE",) if full else ())):
            made = {"name": name, "subjects": [f"{name.lower()}.>"]}
            assert "error" not in client.api(f"STREAM.CREATE.{name}", made)
        pairs = itertools.combinations(VIOLATIONS, 2)
        for pair in (*((name,) for name in VIOLATIONS), *pairs):
            wrong = merged(pair)
            if wrong is None:
                continue
            config = {"name": "S", "subjects": ["s.>"], **wrong}
            answer = client.api("STREAM.CREATE.S", config)
            said[pair] = answer.get("error", "made")
            if "error" not in answer:
                client.api("STREAM.DELETE.S")
        said["update",] = client.api("STREAM.UPDATE.TAKEN", {"name": "OTHER"}).get("error")
    return said


@pytest.mark.parametrize("full", [False, True])
def test_which_violation_is_told(servers: Servers, full: bool) -> None:
    starts = (servers.under_test, servers.peer)
    ours, theirs = (refusals(start(config=LIMITED, jetstream=True), full) for start in starts)
    differ = {pair: (ours[pair], theirs[pair]) for pair in ours if ours[pair] != theirs[pair]}
    assert not differ, "\n".join(f"{pair}: {a} / {b}" for pair, (a, b) in differ.items())
    assert len([answer for answer in ours.values() if answer != "made"]) > 150
