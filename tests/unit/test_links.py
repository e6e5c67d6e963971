"""Imports of accounts in the data plane: put in place, replaced and ended while they are used."""

from typing import Any

import pytest

from jsserver.cext.engine import ServiceLink, StreamLink
from jsserver.text.nuid import ALPHABET
from tests.unit.stream_world import compiled
from tests.unit.test_dataplane import Plane, guarded, joined  # noqa: F401

HOUR = 3600 * 10**9


def service(exporter, local=b"ask", subject=b"svc", **more):
    fields: dict[str, Any] = {"transform": None, "export": 1, "once": True}
    fields |= {"threshold": HOUR, "share": False, "latency": b"", "sampling": 0, **more}
    return ServiceLink(exporter=exporter, local=local, subject=subject, **fields)


def stream(exporter, source="ev.*", local="p.*"):
    return StreamLink(
        exporter=exporter,
        subject=source.encode(),
        local=local.encode(),
        literal=False,
        transform=compiled(source, local.replace("*", "$1")),
        back=compiled(local, source.replace("*", "$1")),
    )


@pytest.fixture
def both(guarded):  # noqa: F811
    """A data plane, the handles of A and B, and a client in each."""
    a, b = guarded.account("A"), guarded.account("B")
    yield guarded, a, b, joined(guarded, "A"), joined(guarded, "B")


def requested(asked, asks):
    """A request that waits; the subject of its reply."""
    asked.send(b"SUB svc 1\r\n")
    asked.until_pong()
    asks.send(b"SUB inbox 1\r\nPUB ask inbox 0\r\n\r\n")
    asks.until_pong()
    return asked.until_pong().split()[3]


def test_subscriptions_hear_what_is_imported_from_then_on(both):
    _, a, b, says, hears = both
    hears.send(b"SUB p.x 1\r\nSUB p.* q 2\r\n")
    hears.until_pong()
    for linked in (True, False, True):
        b.link([], [stream(a)] if linked else [])
        says.send(b"PUB ev.x 1\r\nm\r\n")
        says.until_pong()
        heard = sorted(hears.until_pong().split(b"\r\n"))
        want = [b"", b"MSG p.x 1 1", b"MSG p.x 2 1", b"m", b"m"] if linked else [b""]
        assert heard == want
    assert a.sublist()["subs"] == 2
    hears.send(b"UNSUB 1\r\nUNSUB 2\r\n")
    hears.until_pong()
    assert a.sublist()["subs"] == 0


def test_a_service_that_is_not_imported_any_more_has_no_replies(both):
    _, a, b, asked, asks = both
    b.link([service(a)], [])
    reply = requested(asked, asks)
    assert (a.replies(), b.replies()) == ((1, 0), (0, 1))
    b.link([], [])
    assert (a.replies(), b.replies()) == ((0, 0), (0, 0))
    asked.send(b"PUB %s 0\r\n\r\n" % reply)
    asked.until_pong()
    assert asks.until_pong() == b""
    asks.send(b"PUB ask inbox 0\r\n\r\n")
    assert b"503" in asks.until_pong()


@pytest.mark.parametrize("closed", ["A", "B", "both", "neither"])
def test_accounts_end_with_requests_under_way(both, closed):
    _, a, b, asked, asks = both
    b.link([service(a)], [stream(a)])
    asks.send(b"SUB p.> 9\r\n")
    reply = requested(asked, asks)
    for handle, name in ((a, "A"), (b, "B")):
        if closed in (name, "both"):
            handle.close()
    if closed == "A":
        asks.send(b"PUB ask inbox 0\r\n\r\n")
        assert b"503" in asks.until_pong()
    if closed == "B":
        asked.send(b"PUB %s 0\r\n\r\nPUB ev.x 0\r\n\r\n" % reply)
        assert asked.until_pong() == b""
        b.link([service(a)], [stream(a)])  # in vain
        assert a.sublist()["subs"] == 2  # the service's, and that of replies


def test_a_reply_is_late_after_its_threshold(both):
    _, a, b, asked, asks = both
    b.link([service(a, threshold=30_000_000)], [])
    reply = requested(asked, asks)
    while a.replies() != (0, 0):
        asked.until_pong()
    asked.send(b"PUB %s 0\r\n\r\n" % reply)
    asked.until_pong()
    assert asks.until_pong() == b""


def test_who_leaves_waits_no_more(both):
    _, a, b, asked, asks = both
    b.link([service(a)], [])
    requested(asked, asks)
    asks.send(b"UNSUB 1\r\n")
    asks.until_pong()
    assert a.replies() == (0, 0)
    asks.send(
        b"SUB in.* 2\r\nPUB ask in.1 0\r\n\r\nPUB ask in.2 0\r\n\r\nSUB in.2 3\r\nUNSUB 2\r\n"
    )
    while a.replies() != (1, 0):  # the patterns' are looked for soon after
        asks.until_pong()
    asks.send(b"UNSUB 3\r\n")
    asks.until_pong()
    assert b.replies() == (0, 0)


def test_no_more_wait_than_are_kept(both):
    plane, a, b, asked, asks = both
    b.link([service(a, once=False)], [])
    asked.send(b"SUB svc 1\r\n")
    asked.until_pong()
    asks.send(b"SUB inbox 1\r\n")
    for _ in range(27):
        asks.send(b"PUB ask inbox 0\r\n\r\n" * 10_000)
        asks.until_pong()
        asked.until_pong()
    assert a.replies() == (262144, 0)
    assert plane.plane.stats()["forgotten"] == 270_000 - 262_144
    b.link([], [])
    assert a.replies() == (0, 0)


def test_requests_do_not_go_in_circles(both):
    """Each account asks the next, where a mapping leads it on."""
    plane, a, b, first, second = both
    c = plane.account("C")
    ring = [(a, b, b"a", b"b"), (b, c, b"b", b"c"), (c, a, b"c", b"a")]
    for number, (importer, exporter, local, subject) in enumerate(ring):
        importer.link([service(exporter, local, subject, export=number)], [])
    for client in (first, second):
        client.send(b"SUB > 1\r\n")
        client.until_pong()
    first.send(b"PUB a r 0\r\n\r\n")
    lines = [line for line in first.until_pong().split(b"\r\n") if b"MSG" in line]
    assert len(lines) == 2  # what was published, and what came round
    assert b"MSG a 1 r 0" in lines
    assert second.until_pong().startswith(b"HMSG b 1 _R_.")


def test_all_of_two_accounts(both):
    """Both import everything of the other: a message goes to each once, its answer back."""
    _, a, b, first, second = both
    a.link([service(b, b">", b"", export=1)], [])
    b.link([service(a, b">", b"", export=2)], [])
    for client in (first, second):
        client.send(b"SUB x 1\r\n")
        client.until_pong()
    first.send(b"SUB inbox 2\r\nPUB x inbox 1\r\nm\r\n")
    own = first.until_pong()
    heard = second.until_pong()
    assert own.startswith(b"MSG x 1 inbox 1\r\nm\r\n")
    reply = heard.split()[3]
    second.send(b"PUB %s 1\r\nr\r\n" % reply)
    second.until_pong()
    assert first.until_pong().count(b"\r\nr\r\n") == 1


def splitmix(state):
    """What follows a state of SplitMix64."""
    z = state + 0x9E3779B97F4A7C15 & 2**64 - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 2**64 - 1
    return z ^ z >> 31


def test_replies_cannot_be_computed_from_the_time_of_the_start():
    """A client that knows how reply subjects are made, and when the server started, finds no state
    of SplitMix64 that the numbers in them follow from."""
    for _ in range(50):
        plane = Plane(auth_required=True)
        earliest, latest = plane.made
        if latest - earliest < 1_000_000:  # else it had to wait for the processor
            break
        plane.stop()
    a, b = plane.account("A"), plane.account("B")
    asked, asks = joined(plane, "A"), joined(plane, "B")
    b.link([service(a)], [])
    _, prefix, _ = requested(asked, asks).decode().split(".")
    plane.stop()
    number = sum(ALPHABET.index(ch) * 62**place for place, ch in enumerate(prefix))
    for before in range(4):  # numbers that were drawn for other things
        for start in range(earliest | 1, latest + 2, 2):
            state = start + before * 0x9E3779B97F4A7C15 & 2**64 - 1
            assert splitmix(state) % 62 ** len(prefix) != number
