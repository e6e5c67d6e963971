"""Pages of the lists of streams and consumers, from the meta leader's state."""

from __future__ import annotations

from typing import Any, NamedTuple

from jsserver.api.call import LIST_LIMIT, NAMES_LIMIT, page
from jsserver.api.responses import TYPE_PREFIX, ConsumerNames, StreamNames
from jsserver.assets.patterns import captures
from jsserver.cluster.meta import MetaState, Name
from jsserver.cluster.proposals import Asked
from jsserver.wire import decode, errcodes
from jsserver.wire.types import ConsumerPageRequest, StreamPageRequest


class Listed(NamedTuple):
    """The assets of a list's page. Their leaders are asked for the INFO of each."""

    type: str
    total: int
    offset: int
    names: list[str]
    subjects: list[str]
    """The subjects to ask on, one for each name."""

    @property
    def kind(self) -> str:
        """`STREAM` or `CONSUMER`."""
        return self.type.partition("_")[0].upper()

    def answer(self, infos: dict[str, Any], offline: dict[str, str]) -> dict[str, Any]:
        """The list's answer. `infos`: the INFO answers by name; assets without one are reported as
        missing. `offline`: reasons by name, for assets that cannot run."""
        key = "streams" if self.type == "stream_list" else "consumers"
        missing = [name for name in self.names if name not in infos]
        found: dict[str, Any] = {
            "type": f"{TYPE_PREFIX}{self.type}_response",
            "total": self.total,
            "offset": self.offset,
            "limit": LIST_LIMIT,
            key: [infos[name] for name in self.names if name in infos],
        }
        if missing:
            found["missing"] = missing
        if offline:
            found["offline"] = offline
        return found


def stream_names(state: MetaState, asked: Asked) -> StreamNames:
    """STREAM.NAMES."""
    offset, names = _streams(state, asked)
    found = page(names, offset, NAMES_LIMIT)
    return StreamNames(
        type=f"{TYPE_PREFIX}stream_names_response",
        total=found.total,
        offset=found.offset,
        limit=NAMES_LIMIT,
        streams=found.names or None,
    )


def stream_list(state: MetaState, asked: Asked) -> Listed:
    """STREAM.LIST."""
    offset, names = _streams(state, asked)
    found = page(names, offset, LIST_LIMIT)
    subjects = [Name(asked.account, name).info_subject for name in found.names]
    return Listed("stream_list", found.total, found.offset, found.names, subjects)


def _streams(state: MetaState, asked: Asked) -> tuple[int, list[str]]:
    request = StreamPageRequest()
    if decode.has_object(asked.body):
        request = decode.decode(asked.body, StreamPageRequest, strict=True)
    streams = state.streams.get(asked.account, {})
    names = sorted(streams)
    if request.subject:
        wanted = request.subject
        names = [name for name in names if captures(_subjects(streams[name].said), wanted)]
    return request.offset, names


def _subjects(said: dict[str, Any]) -> list[str]:
    subjects = (said.get("stream") or {}).get("subjects") or []
    return [subject for subject in subjects if isinstance(subject, str)]


def consumer_names(state: MetaState, asked: Asked) -> ConsumerNames:
    """CONSUMER.NAMES."""
    if asked.args[0] not in state.streams.get(asked.account, {}):
        raise errcodes.STREAM_NOT_FOUND()
    offset, names = _consumers(state, asked)
    found = page(names, offset, NAMES_LIMIT)
    return ConsumerNames(
        type=f"{TYPE_PREFIX}consumer_names_response",
        total=found.total,
        offset=found.offset,
        limit=NAMES_LIMIT,
        consumers=found.names,
    )


def consumer_list(state: MetaState, asked: Asked) -> Listed:
    """CONSUMER.LIST."""
    offset, names = _consumers(state, asked)
    found = page(names, offset, LIST_LIMIT)
    stream = asked.args[0]
    subjects = [Name(asked.account, stream, name).info_subject for name in found.names]
    return Listed("consumer_list", found.total, found.offset, found.names, subjects)


def _consumers(state: MetaState, asked: Asked) -> tuple[int, list[str]]:
    """The offset and the consumers' names; none where there is no such stream, as nats-server
    does."""
    request = ConsumerPageRequest()
    if decode.has_object(asked.body):
        request = decode.decode(asked.body, ConsumerPageRequest, strict=True)
    stream = state.streams.get(asked.account, {}).get(asked.args[0])
    return request.offset, [] if stream is None else sorted(stream.consumers)
