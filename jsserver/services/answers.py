"""What every answer and event of the system says: which server it is from, and data or an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from jsserver import NATS_VERSION
from jsserver.config.options import Options
from jsserver.text.goformat import escape_json, rfc3339_nano
from jsserver.wire.types import FeatureFlags, Wire, always

WITH_JETSTREAM = 7
"""The capability bits of a server whose JetStream is on."""


class ServerInfo(Wire):
    """Which server answers."""

    name: str
    host: str
    id: str
    cluster: str = ""
    domain: str = ""
    ver: str = always(NATS_VERSION)
    tags: list[str] = msgspec.field(default_factory=list)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    feature_flags: FeatureFlags = always(FeatureFlags())
    jetstream: bool = always(False)
    flags: int = always(0)
    seq: int = always(0)
    time: str = always("")


class Failure(Wire):
    """Why there is no answer."""

    code: int
    description: str


class Answer(Wire):
    """What goes to the asker: `data` or `error`; data that could not be made is null."""

    server: ServerInfo
    data: msgspec.Struct | dict[str, Any] | UnsetType | None = UNSET
    error: Failure | UnsetType = UNSET


class ServerFilter(msgspec.Struct):
    """Which servers shall answer; "" and no tags: all."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    domain: str = ""
    exact_match: bool = False
    tags: list[str] = []


class Identity:
    """Tells who the server is, with a number that goes up; in any thread."""

    def __init__(
        self, options: Options, name: str, server_id: str, cluster: Callable[[], str]
    ) -> None:
        """`cluster` tells what the cluster is called now, "" without one."""
        self._options = options
        self.name = name
        self.id = server_id
        self._cluster = cluster
        self._seq = 0
        self._lock = threading.Lock()

    def info(self) -> ServerInfo:
        """As of now."""
        with self._lock:
            self._seq += 1
            seq = self._seq
        options = self._options
        cluster = self._cluster()
        flags = WITH_JETSTREAM if options.jetstream.enabled else 0
        return ServerInfo(
            name=self.name,
            host=options.host,
            id=self.id,
            cluster=cluster,
            domain=options.jetstream.domain,
            tags=options.server_tags,
            metadata=options.server_metadata,
            jetstream=options.jetstream.enabled,
            flags=flags,
            seq=seq,
            time=rfc3339_nano(time.time_ns()),
        )

    def is_meant(self, asked: ServerFilter) -> bool:
        """Whether this server is among those that are asked."""
        options = self._options
        if asked.domain not in ("", options.jetstream.domain):
            return False
        for wanted, own in (
            (asked.server_name, self.name),
            (asked.host, options.host),
            (asked.cluster, self._cluster()),
        ):
            if wanted and wanted != own and (asked.exact_match or wanted not in own):
                return False
        return set(asked.tags) <= set(options.server_tags)


def encoded(answer: msgspec.Struct) -> bytes:
    """JSON as Go writes it."""
    return escape_json(msgspec.json.encode(answer))
