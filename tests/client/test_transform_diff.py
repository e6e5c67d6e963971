"""Which transforms of subjects both servers refuse, for which of several reasons, and what the
others make."""

import random
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.model import transforms
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CASES = 1000
SOURCES = ("a.*", "a.*.*", "a.>", "a.b", "*.>", ">", "", "a..b", "a b", "a.*.>", "*", "a.**")
TOKENS = (
    *("a", "x y", "", "*", "$1", "$2", "$0", "$x", "$", "$99999999999", "\t"),
    *("{{", "}}", "{{}}", "{{1}}", "{{x}}", "{{wildcard(1)", "{{wildcard(1)}}{{wildcard(2)}}"),
)
FUNCTIONS = (
    *("wildcard", "Wildcard", "WILDCARD", "partition", "split", "Split", "splitFromLeft"),
    *("SplitFromRight", "sliceFromLeft", "sliceFromRight", "left", "right", "random", "foo"),
)
ARGUMENTS = (
    *("1", "2", "0", "-1", "3", "x", "", "-", " 1", "1 ", "+1", "01", "1.5", "a b"),
    *("99999999999", "-99999999999", "99999999999999999999"),
)


def call(rng: random.Random) -> str:
    arguments = [rng.choice(ARGUMENTS) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    return f"{{{{{rng.choice(FUNCTIONS)}({rng.choice((',', ', ')).join(arguments)})}}}}"


def destination(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(("", ">", "a.>", "b.>", "a.x", "S"))
    tokens = [
        rng.choice(("c", rng.choice(TOKENS), call(rng), call(rng)))
        for _ in range(rng.choice((1, 1, 2, 2, 3)))
    ]
    return ".".join(tokens + [">"] * (rng.random() < 0.25))


def transform(rng: random.Random) -> dict[str, str]:
    return {"src": rng.choice(SOURCES), "dest": destination(rng)}


def config(rng: random.Random) -> dict[str, object]:
    """A stream that transforms somewhere; some ask for what only a cluster has, too."""
    wanted: dict[str, object] = {"name": "S", "subjects": ["a.>"], "storage": "memory"}
    if rng.random() < 0.2:
        wanted["subjects"] = rng.choice((["b"], ["a.x", "b"], ["a"], ["x.>"], [">"]))
    kind = rng.choice(("subject_transform", "republish", "both", "mirror", "sources"))
    several = [transform(rng) for _ in range(rng.choice((1, 1, 2)))]
    if kind in ("subject_transform", "both"):
        wanted["subject_transform"] = transform(rng)
    if kind in ("republish", "both"):
        wanted["republish"] = transform(rng)
    if kind == "mirror":
        name = rng.choice(("X", "X", "x.y", ""))
        wanted |= {"mirror": {"name": name, "subject_transforms": several}, "subjects": []}
    if kind == "sources":
        names = [rng.choice(("X", "X", "Y", "x.y")) for _ in range(rng.choice((1, 1, 2)))]
        sources = [{"name": name, "subject_transforms": several} for name in names]
        wanted |= {"sources": sources, "subjects": []}
    if rng.random() < 0.3:
        wanted["num_replicas"] = 3
    return wanted


def answers(server: Server) -> list[Any]:
    """What each creation fails with; None where it is valid, whether or not it is built."""
    rng = random.Random(1)
    seen: list[Any] = []
    with RawApp(server.port) as client:
        for _ in range(CASES):
            wanted = config(rng)
            error = client.api("STREAM.CREATE.S", wanted).get("error")
            if error is None:
                client.api("STREAM.DELETE.S")
            elif "not supported by this server yet" in str(error):
                error = None
            seen.append((wanted, error))
    return seen


def test_what_is_wrong_with_a_transform(servers: Servers) -> None:
    ours, theirs = (answers(start(jetstream=True)) for start in (servers.under_test, servers.peer))
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
    codes = {error["err_code"] for _, error in theirs if error}
    assert codes >= {10052, 10074, 10140, 10145, 10146, 10147, 10151, 10152, 10154, 10155, 10156}


MADE = 250


def subjects_made(server: Server) -> list[Any]:
    """What random transforms make of random subjects: of a stream's, and of what it publishes
    again."""
    rng = random.Random(2)
    seen: list[object] = []
    with RawApp(server.port) as client, RawApp(server.port) as listener:
        config: dict[str, object] = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
        client.api("STREAM.CREATE.S", config)
        listener.subscribe("again.>")
        listener.sync()
        for _ in range(MADE):
            stored, again = (transforms.model(rng, unlimited=False) for _ in range(2))
            transform = {"src": ".".join(stored.source), "dest": stored.destination(rng)}
            if rng.random() < 0.5:
                transform["dest"] = f"t.{transform['dest']}"
            again.source[0] = rng.choice(("t", "s", "*"))
            destination = f"again.{again.destination(rng)}"
            republish = {"src": ".".join(again.source), "dest": destination}
            config |= {"subject_transform": transform, "republish": republish}
            error = client.api("STREAM.UPDATE.S", config).get("error")
            subjects = [transforms.subject(rng, stored) for _ in range(8)]
            for subject in subjects:
                client.request(subject, b"x", timeout=1)
            client.publish("again.end", b"end")
            heard = []
            while (frame := listener.message()).payload != b"end":
                heard.append(frame.subject)
            state = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
            assert isinstance(state, dict)
            client.api("STREAM.PURGE.S")
            seen.append((transform, republish, subjects, error, heard, state.get("subjects")))
    return seen


def test_what_is_made_of_subjects(servers: Servers) -> None:
    ours, theirs = (
        subjects_made(start(jetstream=True)) for start in (servers.under_test, servers.peer)
    )
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
    assert sum(error is None for _, _, _, error, _, _ in theirs) > MADE // 2
    assert sum(len(heard) for _, _, _, _, heard, _ in theirs) > MADE // 2
