"""Coverage-guided fuzzing of the client protocol's parser; the options are libFuzzer's.

The first byte chooses where the input is cut: the events must be those of the whole input.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.cext.net import PyParser

F = TypeVar("F", bound=Callable[..., object])

SEEDS = [
    b"\x03CONNECT {}\r\nPING\r\n",
    b"\x05SUB a.* q 1\r\nUNSUB 1 5\r\n",
    b"\x07PUB a r 3\r\nabc\r\nPUB a 0\r\n\r\n",
    b"\x02HPUB a r 12 15\r\nNATS/1.0\r\n\r\nabc\r\n",
    b"\x01+OK\r\n-ERR 'x'\r\nINFO {}\r\n",
]


def events(pieces: list[bytes]) -> list[tuple[object, ...]]:
    parser = PyParser(max_line=256, max_payload=512)
    found: list[tuple[object, ...]] = []
    for piece in pieces:
        found += parser.feed(piece)
        if found and found[-1][0] == "ERROR":
            break
    return found


def instrumented(function: F) -> F:
    return cast(F, atheris.instrument_func(function))


@instrumented
def seen(event: tuple[object, ...]) -> int:
    """Branches that tell the fuzzer what an input led to: into the compiled parser it can't see."""
    verb = event[0]
    if verb == "PUB":
        kind = 1
        if event[2]:
            kind += 1
        if event[5]:
            kind += 2
        if event[6]:
            kind += 4
    elif verb == "SUB":
        kind = 10
        if event[3]:
            kind += 1
    elif verb == "UNSUB":
        kind = 20
        if event[7]:
            kind += 1
    elif verb == "ERROR":
        kind = 30
        if event[1] == "args":
            kind += 1
        elif event[1] == "line":
            kind += 2
        elif event[1] == "payload":
            kind += 3
    elif verb == "CONNECT":
        kind = 40
    elif verb == "INFO":
        kind = 50
    elif verb == "PING":
        kind = 60
    elif verb == "PONG":
        kind = 70
    else:
        kind = 80
    return kind


@instrumented
def compare(step: int, data: bytes) -> None:
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    whole = events([data])
    if events(pieces) != whole:
        raise AssertionError(f"pieces of {step} bytes change the events")
    for event in whole:
        seen(event)


def one_input(data: bytes) -> None:
    if data:
        compare(data[0] or 1, data[1:])


def main() -> None:
    corpus = [word for word in sys.argv[1:] if not word.startswith("-")]
    if corpus:
        for number, seed in enumerate(SEEDS):
            Path(corpus[0], f"seed{number}").write_bytes(seed)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
