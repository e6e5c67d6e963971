"""`/ipqueuesz` and `/debug/vars`: what waits inside of the server, and what the process takes, in
nats-server's form. Its figures of Go's memory are those that this process has something for.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Mapping, Sequence

import msgspec

from jsserver.monitor.process import ProcessUsage
from jsserver.wire.types import Wire, always

HIDDEN = "[REDACTED]"
_SECRET = re.compile(r"--?(?:pass|auth|user)")
_GIVEN = re.compile(r"\A(--?(?:pass|auth|user)=).*", re.DOTALL)
_OF_A_URL = re.compile(r"//[^/@]*@")


class QueueInfo(Wire):
    """Things that wait."""

    pending: int = always(0)


class Memory(Wire):
    """What the process takes of the machine's memory, in bytes, and how often it collected
    garbage; under Go's names."""

    Alloc: int = always(0)
    NumGC: int = always(0)


class Insides(Wire):
    """The page `/debug/vars`."""

    cmdline: list[str]
    memstats: Memory


def waiting(queues: Mapping[str, int], *, everything: bool, name: str) -> dict[str, QueueInfo]:
    """The page `/ipqueuesz`: queues with this in their name, and with something in them unless
    everything is wanted."""
    return {
        queue: QueueInfo(pending=count)
        for queue, count in queues.items()
        if (everything or count) and name in queue
    }


def command_line(arguments: Sequence[str]) -> list[str]:
    """The words that the process was started with, without what is secret."""
    shown: list[str] = []
    for word in arguments:
        secret = bool(shown) and _SECRET.fullmatch(shown[-1]) is not None
        word = _OF_A_URL.sub(f"//{HIDDEN}@", _GIVEN.sub(rf"\g<1>{HIDDEN}", word))
        shown.append(HIDDEN if secret else word)
    return shown


def debug_vars(usage: ProcessUsage) -> Insides:
    """The page `/debug/vars`."""
    collections = sum(generation["collections"] for generation in gc.get_stats())
    memory = Memory(Alloc=usage.memory(), NumGC=collections)
    return Insides(cmdline=command_line(sys.argv), memstats=memory)


def encoded(page: Insides) -> bytes:
    """A line a variable, as Go's handler writes them."""
    lines = (f'"{name}": '.encode() + msgspec.json.encode(getattr(page, name))
             for name in page.__struct_fields__)  # fmt: skip
    return b"{\n" + b",\n".join(lines) + b"\n}\n"
