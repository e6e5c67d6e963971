"""`jsserver consumer`: why a consumer waits, what it waits for, and dead letters sent back."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jsserver.admin import session
from jsserver.admin.session import CommandFailed
from jsserver.client.connection import Connection
from jsserver.client.login import add_login

API = "$JS.API."
OWN = "JSSERVER.CONSUMER."
METADATA = "jsserver.dead_letter_subject"
NOT_FOUND = 10037
"""err_code of a request for a message that is not there."""
_LINE = re.compile(rb"([^\r\n:]+): ?([^\r\n]*)\r\n")


class Letter(NamedTuple):
    """A stored dead letter."""

    seq: int
    headers: list[tuple[str, str]]
    data: bytes

    def value(self, name: str) -> str:
        """What a header says, "" without it."""
        return next((value for key, value in self.headers if key == name), "")


class Api:
    """JetStream's API over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The decoded answer, an error too."""
        data = b"" if body is None else json.dumps(body).encode()
        answer = self._connection.request(API + subject, data)
        decoded = json.loads(answer.data)
        if not isinstance(decoded, dict):
            raise CommandFailed(f"no answer of JetStream to {subject}")
        return decoded

    def need(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The decoded answer, or CommandFailed."""
        answer = self.ask(subject, body)
        if "error" in answer:
            raise CommandFailed(answer["error"]["description"])
        return answer

    def store(self, subject: str, headers: list[tuple[str, str]], data: bytes) -> None:
        """Publishes, and waits until a stream has it."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        block = f"NATS/1.0\r\n{lines}\r\n".encode(errors="surrogateescape")
        answer = json.loads(self._connection.request(subject, data, block).data or b"{}")
        if "error" in answer or "seq" not in answer:
            text = answer.get("error", {}).get("description", "no stream stores it")
            raise CommandFailed(f"{subject}: {text}")


def letters(api: Api, stream: str, subject: str) -> Iterator[Letter]:
    """The dead letters on a subject of a stream, the oldest first."""
    import base64

    seq = 1
    while True:
        body = {"seq": seq, "next_by_subj": subject}
        answer = api.ask(f"STREAM.MSG.GET.{stream}", body)
        error = answer.get("error")
        if error is not None:
            if error["err_code"] == NOT_FOUND:
                return
            raise CommandFailed(error["description"])
        message = answer["message"]
        block = base64.b64decode(message.get("hdrs", ""))
        headers = [
            (name.decode(errors="surrogateescape"), value.decode(errors="surrogateescape"))
            for name, value in _LINE.findall(block.partition(b"\r\n")[2])
        ]
        yield Letter(message["seq"], headers, base64.b64decode(message.get("data", "")))
        seq = message["seq"] + 1


def redrive(api: Api, options: argparse.Namespace) -> int:
    """Sends what died back to its stream, letter by letter: stored there first, removed then. Sent
    again after an interruption, it is stored once within the stream's duplicate window."""
    stream, consumer = options.stream, options.consumer
    config = api.need(f"CONSUMER.INFO.{stream}.{consumer}")["config"]
    subject = options.subject or config.get("metadata", {}).get(METADATA, "")
    if not subject:
        raise CommandFailed(f"consumer {stream}/{consumer} names no {METADATA}")
    found = api.need("STREAM.NAMES", {"subject": subject}).get("streams") or []
    if not found:
        raise CommandFailed(f"no stream stores {subject}")
    done = 0
    for letter in letters(api, found[0], subject):
        if done == options.limit:
            break
        of = (letter.value("Dead-Letter-Stream"), letter.value("Dead-Letter-Consumer"))
        reason = letter.value("Dead-Letter-Reason")
        target = letter.value("Dead-Letter-Subject")
        if of != (stream, consumer) or options.reason not in ("", reason) or not target:
            continue
        kept = [
            (name, value)
            for name, value in letter.headers
            if not name.startswith("Dead-Letter-") and name != "Nats-Msg-Id"
        ]
        # Its time makes the id that of this letter, also should the stream of letters begin anew.
        born = letter.value("Dead-Letter-Time")
        kept.append(("Nats-Msg-Id", f"redrive.{found[0]}.{letter.seq}.{born}"))
        api.store(target, kept, letter.data)
        api.need(f"STREAM.MSG.DELETE.{found[0]}", {"seq": letter.seq})
        done += 1
    print(f"{done} messages sent back to {stream}")
    return 0


def waits(api: Api, options: argparse.Namespace) -> int:
    """Why a consumer delivers nothing, and how far it is behind."""
    answer = api.need(f"{OWN}WAITS.{options.stream}.{options.consumer}")
    why, lag = answer["waits"], answer["lag"]
    print(why["text"] + (f" until {why['until']}" if "until" in why else ""))
    for what, count, age in (
        ("to be delivered", lag["messages"], lag["age"]),
        ("not acked", lag["unacked"], lag["unacked_age"]),
    ):
        print(
            f"{count} messages {what}" + (f", the oldest of {age / 1e9:.3f} s ago" if count else "")
        )
    return 0


def pending(api: Api, options: argparse.Namespace) -> int:
    """What was delivered and is not acked."""
    seq, left = 0, options.limit
    print(f"{'sequence':>12} {'deliveries':>10} {'idle s':>12}  subject")
    while True:
        body = {"seq": seq, "idle": int(options.idle * 1e9)}
        page = api.need(f"{OWN}PENDING.{options.stream}.{options.consumer}", body)
        for one in page.get("messages", ()):
            if left == 0:
                return 0
            left -= 1
            idle = one["idle"] / 1e9
            print(f"{one['seq']:12} {one['deliveries']:10} {idle:12.3f}  {one['subject']}")
        seq = page.get("next", 0)
        if not seq:
            return 0


def release(api: Api, options: argparse.Namespace) -> int:
    """What is not acked is delivered again now."""
    where = f"{options.stream}.{options.consumer}"
    body = {"seqs": options.seqs, "idle": int(options.idle * 1e9)}
    done = api.need(f"{OWN}RELEASE.{where}", body).get("seqs", [])
    print(f"{len(done)} messages are delivered again")
    return 0


COMMANDS: dict[str, tuple[Callable[[Api, argparse.Namespace], int], str]] = {
    "waits": (waits, "Why a consumer delivers nothing, and how far it is behind"),
    "pending": (pending, "What was delivered and is not acked"),
    "release": (release, "What is not acked is delivered again now"),
    "redrive": (redrive, "Sends what died back to its stream, letter by letter"),
}
"""What carries a command out, and its help. (The executable has no docstrings.)"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    lines = "\n".join(f"  {name:9} {text}" for name, (_, text) in COMMANDS.items())
    made = argparse.ArgumentParser(
        prog="jsserver consumer",
        description=f"Looks after a consumer of a running server.\n\ncommands:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("command", choices=COMMANDS, help="what to do with it")
    made.add_argument("stream", help="name of the stream")
    made.add_argument("consumer", help="name of the consumer")
    made.add_argument("seqs", type=int, nargs="*", default=[], help="release: these")
    add_login(made)
    made.add_argument("--idle", type=float, default=0, help="seconds since the last delivery")
    made.add_argument("--limit", type=int, default=-1, help="messages at most, default all")
    made.add_argument("--subject", default="", help="redrive: dead letters on this subject")
    made.add_argument(
        "--reason",
        default="",
        choices=("max_deliver", "terminated"),
        help="redrive: what died so, default all",
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """Runs the command; the process's exit code."""
    if not arguments:
        parser().print_help(sys.stderr)
        return 2
    options = parser().parse_args(arguments)
    work = COMMANDS[options.command][0]
    return session.run("jsserver consumer", options, lambda made: work(Api(made), options))
