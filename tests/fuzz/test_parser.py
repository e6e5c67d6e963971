"""The client protocol's parser gives the same events however its input is cut."""

import itertools
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.conversations import Event, conversations, noise

net = pytest.importorskip("tests.cext.net", reason="the data plane is not built here")

TARGET = Path(__file__).with_name("fuzz_parser.py")
ROOT = TARGET.parent.parent.parent
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "5"))


def fed(parser: Any, pieces: list[bytes]) -> list[Event]:
    """All events up to the error that ends a connection, if there is one."""
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
        if events and events[-1][0] == "ERROR":
            break
    return events


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(conversations(), st.lists(st.integers(0, 10_000), max_size=10))
def test_operations_are_understood(talk: list[tuple[bytes, Event]], places: list[int]) -> None:
    data = b"".join(sent for sent, _ in talk)
    meant = [event for _, event in talk]
    assert [shape(e) for e in fed(net.PyParser(), [data])] == meant
    assert [shape(e) for e in fed(net.PyParser(), cut(data, places))] == meant


def shape(event: Event) -> Event:
    """An event without the junk that may follow PING, PONG and +OK."""
    if event[0] in ("PING", "PONG", "+OK"):
        return (event[0], b"", *event[2:])
    return event


@given(noise(), st.lists(st.integers(0, 10_000), max_size=10))
@example(b"PUB a 2\r\nxyz\r\n", [9, 10, 11])
@example(b"SUB a" + b" " * 5000 + b"1\r\n", [1000, 4000, 5000])
def test_cuts_change_nothing(data: bytes, places: list[int]) -> None:
    whole = fed(net.PyParser(), [data])
    assert fed(net.PyParser(), cut(data, places)) == whole
    assert fed(net.PyParser(), [bytes([byte]) for byte in data]) == whole


@given(noise())
def test_limits_hold_at_every_cut(data: bytes) -> None:
    def small() -> Any:
        return net.PyParser(max_line=24, max_payload=8)

    whole = fed(small(), [data])
    assert fed(small(), [bytes([byte]) for byte in data]) == whole
    for event in whole:
        if event[0] == "PUB":
            assert len(event[5]) + len(event[6]) <= 8  # type: ignore[arg-type]


@given(st.one_of(noise(), conversations().map(lambda talk: b"".join(sent for sent, _ in talk))))
@example(b"PUB a 1\r\nx\r\nPUB b 0\r\n\r\nPUB c 1\r\nx\n")
@example(b"PUB a  1\r\nx\r\n")
@example(b"PUB a r 1\r\nx\r\nPUB a 1 1\r\nx\r\nPUB a 1r 1\r\nx\r\n")
@example(b"PUB a r  1\r\nx\r\n")
@example(b"PUB a 1234567890 1\r\nx\r\nPUB a 1234567890\r\nx\r\n")
@example(b"PUB a r s 1\r\nx\r\n")
@example(b"PUB a r 1")
@example(b"PUB a 1")
def test_what_is_recognised_ahead_is_what_the_parser_says(data: bytes) -> None:
    recognised = net.PyParser.look(data)
    parser = net.PyParser(max_line=1 << 40, max_payload=-1)
    assert [shape(e) for e in fed(parser, [data])][: len(recognised)] == [
        ("PUB", subject, reply, b"", b"", b"", payload, 0) for subject, reply, payload in recognised
    ]
    assert net.PyParser.look(data, 1) == recognised[:1]


def test_plain_publishes_are_recognised_ahead() -> None:
    plain = b"PUB a.b 3\r\nxyz\r\n"
    asks = b"PUB a.b 1.r 3\r\nxyz\r\n"
    found = [(b"a.b", b"", b"xyz"), (b"a.b", b"1.r", b"xyz"), (b"a.b", b"", b"xyz")]
    assert net.PyParser.look(plain + asks + plain + b"PING\r\n" + plain) == found
    assert net.PyParser.look(plain[:-1]) == net.PyParser.look(asks[:-1]) == []


def test_coverage_guided_fuzzing_finds_nothing(tmp_path: Path) -> None:
    """A short run of the fuzzer; `FUZZ_SECONDS` makes it longer."""
    if find_spec("atheris") is None:
        pytest.skip("atheris is not installed (dependency group `fuzz`)")
    run = subprocess.run(
        [sys.executable, str(TARGET), f"-max_total_time={FUZZ_SECONDS}", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=FUZZ_SECONDS + 60,
    )
    assert run.returncode == 0, run.stderr[-4000:]
