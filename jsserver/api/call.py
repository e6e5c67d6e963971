"""One API request on its way through a handler."""

from typing import TypeVar

import msgspec

from . import decode, errcodes
from .account import API_LEVEL, SERVER_VERSION
from .advisories import Advisories
from .registry import Account, Shared

T = TypeVar("T")


class Call:
    """A decoded subject, a body, and what a handler works with."""

    __slots__ = ("account", "advisories", "args", "body", "shared")

    def __init__(
        self,
        shared: Shared,
        advisories: Advisories,
        account: Account,
        args: list[str],
        body: bytes,
    ) -> None:
        self.shared = shared
        self.advisories = advisories
        self.account = account
        self.args = args
        """The tokens after the endpoint's name."""
        self.body = body

    def request(self, kind: type[T]) -> T:
        """The body; an empty one is a request with nothing set."""
        return decode.decode(self.body, kind, self.shared.settings.strict)

    def required(self, kind: type[T]) -> T:
        """A body that must not be empty."""
        if decode.is_empty(self.body):
            raise errcodes.BAD_REQUEST()
        return self.request(kind)

    def optional(self, kind: type[T]) -> T:
        """A body that counts only if it is an object."""
        return self.request(kind) if decode.has_object(self.body) else kind()

    def no_body(self) -> None:
        """Raises if there is a body."""
        if not decode.is_empty(self.body):
            raise errcodes.NOT_EMPTY_REQUEST()


def dynamic_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Stored metadata with what responses add."""
    return dict(
        sorted({**metadata, "_nats.ver": SERVER_VERSION, "_nats.level": str(API_LEVEL)}.items())
    )


class Page(msgspec.Struct):
    """A part of a sorted list."""

    total: int
    offset: int
    names: list[str]


def page(names: list[str], offset: int, limit: int) -> Page:
    """The names from `offset` on, in byte order; offsets outside are moved inside."""
    names.sort(key=str.encode)
    start = min(max(offset, 0), len(names))
    return Page(len(names), start, names[start : start + limit])
