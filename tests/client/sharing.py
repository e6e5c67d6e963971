"""Conversations of clients in several accounts, as two servers can be compared by them."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.client.raw import Frame, RawApp
from tests.servers import Server

OPTIONS = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
_REPLY = re.compile(r"_R_\.\w{6}\.\w{6,10}(\.\w{8}\.T)?")
_VARYING = re.compile(r'"(rtt|id|start)":("[^"]*"|\d+)')


class Member(RawApp):
    """A client of an account; its user is the account's name in small letters unless told."""

    def __init__(self, server: Server, account: str, **more: object) -> None:
        asked = {**OPTIONS, "user": account.lower(), "pass": "x", "name": account, **more}
        super().__init__(server.port, options=json.dumps(asked).encode())
        self.kept: list[Frame] = []

    def hear(self, *subjects: str) -> None:
        """Subscribes, and lets nats-server notice what the account maps."""
        for subject in subjects:
            self.subscribe(*subject.split())
        self.sync()

    def say(self, subject: str, payload: bytes = b"", **more: Any) -> None:
        """Publishes, and waits until it was routed."""
        self.publish(subject, payload, **more)
        self.kept += self.sync()

    def taken(self) -> list[Frame]:
        """What came until now."""
        frames, self.kept = [*self.kept, *self.sync()], []
        return frames


class Conversation:
    """Who says what; `heard` is what each hears, in words that are the same for any server."""

    def __init__(self, server: Server, members: dict[str, Member]) -> None:
        self.server = server
        self.members = members
        self.replies: dict[str, str] = {}
        self.real: dict[str, str] = {}
        self.heard: list[object] = []

    def _name(self, text: str) -> str:
        def named(found: re.Match[str]) -> str:
            name = self.replies.setdefault(found[0], f"<reply {len(self.replies) + 1}>")
            self.real[name] = found[0]
            return name + (" tracked" if found[1] else "")

        return _VARYING.sub(lambda m: f'"{m[1]}":?', _REPLY.sub(named, text))

    def told(self, frame: Frame) -> tuple[object, ...]:
        """A frame without what differs between any two servers, the sizes with it."""
        if frame.verb not in ("MSG", "HMSG"):
            return (frame.verb, self._name(frame.line.decode()))
        words = (frame.verb, frame.subject, frame.sid, frame.reply, frame.header.decode())
        return (*(self._name(word) for word in words), frame.payload)

    def settle(self) -> list[tuple[str, Frame]]:
        """What everybody heard since the last time, each in order."""
        frames = []
        for _ in range(2):  # what one's PING brings about may concern who was asked before
            for name, member in self.members.items():
                frames += [(name, frame) for frame in member.taken()]
        for name in self.members:
            told = [self.told(frame) for n, frame in frames if n == name]
            if told:
                self.heard.append((name, told))
        return frames

    def __getitem__(self, name: str) -> Member:
        return self.members[name]


Script = Callable[[Conversation], None]


@contextlib.contextmanager
def conversation(server: Server, *members: str) -> Iterator[Conversation]:
    """Clients of these accounts."""
    with contextlib.ExitStack() as stack:
        open_ = {name: stack.enter_context(Member(server, name)) for name in members}
        yield Conversation(server, open_)


def answer(talk: Conversation, *replies: bytes, who: str = "A", **more: Any) -> None:
    """The client `who` answers each request with all of these."""
    for name, frame in talk.settle():
        if name == who and frame.reply:
            for reply in replies:
                talk[who].publish(frame.reply, reply, **more)
    talk.settle()
