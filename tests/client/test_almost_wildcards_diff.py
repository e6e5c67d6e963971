"""Tokens that begin with a wildcard and go on, such as `*foo`: which patterns overlap, to both
servers."""

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

PAIRS = [
    tuple(line.split())
    for line in """
    *foo zz
    a.*foo a.zz
    a.*foo b.zz
    *foo zz.y
    a.b* a.c
    *foo *
    * *foo
    *foo *bar
    ** x
    >foo x
    *foo.b a.*
    *foo.> a.b
    *foo.* a.b
    *foo.* zz.*
    *.zz *foo.zz
    a.b *.b
    a.*foo.> a.b.c
    a.>foo.* a.*.c
    a.*foo.* a.*bar.c
    >foo.* a.*
    """.strip().splitlines()
]


def codes(client: RawApp, pair: tuple[str, ...]) -> dict[str, int]:
    """The errors of what is made of these two patterns; 0: none."""
    seen: dict[str, int] = {}
    transforms = [{"src": pattern, "dest": "d"} for pattern in pair]

    def create(what: str, name: str, **config: object) -> None:
        config = {"name": name, "storage": "memory", **config}
        answer = client.api(f"STREAM.CREATE.{name}", config)
        seen[what] = answer.get("error", {}).get("err_code", 0)

    wanted = {"stream_name": "S", "config": {"name": "c", "filter_subjects": pair}}
    answer = client.api("CONSUMER.CREATE.S.c", wanted)
    seen["filters"] = answer.get("error", {}).get("err_code", 0)
    client.api("CONSUMER.DELETE.S.c")
    create("subjects of one stream", "A", subjects=pair)
    client.api("STREAM.DELETE.A")
    create("the first one's stream", "B", subjects=pair[:1])
    create("the second one's stream", "C", subjects=pair[1:])
    create("mirror", "M", mirror={"name": "S", "subject_transforms": transforms})
    create("source", "N", sources=[{"name": "S", "subject_transforms": transforms}])
    for name in "BCMN":
        client.api(f"STREAM.DELETE.{name}")
    return seen


def all_codes(server: Server) -> dict[str, dict[str, int]]:
    with RawApp(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["$X"], "storage": "memory"})
        return {" ".join(pair): codes(client, pair) for pair in PAIRS}


def test_which_patterns_overlap(servers: Servers) -> None:
    ours, theirs = (
        all_codes(start(jetstream=True)) for start in (servers.under_test, servers.peer)
    )
    assert ours == theirs
    assert ours["*foo zz"]["filters"] == ours["a.*foo a.zz"]["filters"] == 10138
    assert ours["a.*foo b.zz"]["filters"] == 0
    assert ours["*foo.* zz.*"]["subjects of one stream"] == 10052
