"""The command line of the load generator, `jsserver bench SCENARIO [SUBJECT] [options]`."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jsserver.bench import buckets, core, streams
from jsserver.bench.run import Options, Scenario, run
from jsserver.bench.wire import BenchError
from jsserver.client.credentials import CredentialsError
from jsserver.client.login import add_login, login_of

SIZE_UNITS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
MESSAGES_MAX = 1_000_000_000
CLIENTS_MAX = 1000
PAYLOAD_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A scenario as the command line offers it. `shared`: the clients divide the messages."""

    scenario: Scenario
    help: str
    shared: bool = True
    prepare: Callable[[Options], None] | None = None


SCENARIOS = {
    "pub": Entry(core.publish, "publish as fast as the server takes it"),
    "sub": Entry(core.subscribe, "receive; each client every message", shared=False),
    "service request": Entry(core.request, "request, one at a time"),
    "service serve": Entry(core.serve, "answer requests; ends after --msgs of them"),
    "js pub sync": Entry(streams.publish_sync, "publish, one ack at a time", True, streams.prepare),
    "js pub async": Entry(
        streams.publish_async,
        "publish --batch messages, then await their acks",
        True,
        streams.prepare,
    ),
    "js pub atomic": Entry(
        streams.publish_atomic,
        "publish atomic batches of --batch messages",
        True,
        streams.prepare,
    ),
    "js pub fast": Entry(
        streams.publish_fast,
        "publish one fast batch, acked every --batch messages",
        True,
        streams.prepare,
    ),
    "js ordered": Entry(streams.ordered, "read the stream without acks", shared=False),
    "js consume": Entry(
        streams.consume, "a durable consumer, asked ahead", True, streams.create_consumer
    ),
    "js fetch": Entry(
        streams.fetch, "a durable consumer, a batch at a time", True, streams.create_consumer
    ),
    "js get sync": Entry(streams.get, "direct gets, one at a time"),
    "kv put": Entry(buckets.put, "put, one ack at a time", True, buckets.prepare),
    "kv get": Entry(buckets.get, "get, one at a time"),
}


def parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:16} {entry.help}" for name, entry in SCENARIOS.items())
    made = argparse.ArgumentParser(
        prog="jsserver bench",
        description=f"Loads a NATS server and prints what it did.\n\nscenarios:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("words", nargs="+", metavar="SCENARIO", help="and a subject, default bench")
    add_login(made)
    made.add_argument("--clients", type=_whole(1, CLIENTS_MAX), default=1, help="default 1")
    made.add_argument(
        "--msgs", type=_whole(1, MESSAGES_MAX), default=100_000, help="messages in all, 100000"
    )
    made.add_argument("--size", type=_size, default=128, help="of the payload, default 128B")
    made.add_argument(
        "--batch", type=_whole(1, 1_000_000), default=500, help="in flight or pulled, default 500"
    )
    made.add_argument(
        "--subjects", type=_whole(0, 10_000_000), default=0, help="spread over so many subjects"
    )
    made.add_argument("--storage", choices=("file", "memory"), default="file")
    made.add_argument("--stream", default="benchstream")
    made.add_argument("--bucket", default="benchbucket")
    made.add_argument("--consumer", default="nats-bench")
    made.add_argument("--maxbytes", type=_size, default=10**9, help="of the stream or bucket, 1GB")
    made.add_argument("--create", action="store_true", help="make the stream or bucket anew")
    made.add_argument("--purge", action="store_true", help="empty it first")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not between {least} and {most}")
        return int(text)

    return parse


def _size(text: str) -> int:
    """Bytes, with the suffixes B, KB, MB and GB."""
    digits = text.rstrip("BKMGbkmg")
    unit = text[len(digits) :].upper() or "B"
    if not digits.isdecimal() or unit not in SIZE_UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, say 128, 128B or 1GB")
    return int(digits) * SIZE_UNITS[unit]


def _find(words: Sequence[str]) -> tuple[str, str]:
    """The scenario that the words begin with, and the subject that may follow."""
    for count in range(len(words), 0, -1):
        name = " ".join(words[:count])
        if name in SCENARIOS and len(words) - count <= 1:
            return name, words[count] if count < len(words) else "bench"
    raise BenchError(f"no scenario {' '.join(words)!r}; there are: {', '.join(SCENARIOS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one scenario; returns the exit code."""
    given = parser().parse_args(arguments)
    try:
        name, subject = _find(given.words)
        if given.size > PAYLOAD_MAX:
            raise BenchError(f"--size {given.size} is more than the {PAYLOAD_MAX} of any server")
        credentials, tls = login_of(given)
        options = Options(
            url=given.server,
            subject=subject,
            clients=given.clients,
            messages=given.msgs,
            size=given.size,
            batch=given.batch,
            storage=given.storage,
            stream=given.stream,
            bucket=given.bucket,
            consumer=given.consumer,
            max_bytes=given.maxbytes,
            create=given.create,
            purge=given.purge,
            subjects=given.subjects,
            credentials=credentials,
            tls=tls,
        )
        entry = SCENARIOS[name]
        if entry.prepare:
            entry.prepare(options)
        outcome = run(name, entry.scenario, options, shared=entry.shared)
    except (BenchError, CredentialsError) as error:
        print(f"jsserver bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(outcome.as_json()) if given.json else outcome.as_text())
    return 0
