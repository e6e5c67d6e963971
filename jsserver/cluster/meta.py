"""The state of a cluster's meta group: the assignments of streams and consumers.

Entries of the group's log change the state, and the same entries make the same state on every
member. No clock, file or network. An assignment keeps the keys that this version does not know, so
that a snapshot passes them on.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from jsserver.cext.bytes import s2_decode, s2_encode_block
from jsserver.text.goformat import escape_json, parse_rfc3339
from jsserver.text.s2 import decompress
from jsserver.wire.types import StreamAlternate

PLAIN_MAX = 256 << 20
"""The most bytes of a decompressed assignment."""


class Op(IntEnum):
    """The operation of an entry: its first byte."""

    ASSIGN_STREAM = 0
    ASSIGN_CONSUMER = 1
    REMOVE_STREAM = 2
    REMOVE_CONSUMER = 3
    ASSIGN_COMPRESSED_CONSUMER = 9
    UPDATE_STREAM = 11


class MetaError(ValueError):
    """An entry or a snapshot that cannot be applied; the text says why."""


class Name(NamedTuple):
    """Names a stream, or with `consumer` a consumer of the stream."""

    account: str
    stream: str
    consumer: str = ""

    def __str__(self) -> str:
        return " > ".join(self if self.consumer else self[:2])

    @property
    def info_subject(self) -> str:
        """The subject on which servers ask the asset's leader for its INFO."""
        kind = "CI" if self.consumer else "SI"
        return ".".join((f"$JSC.{kind}", *self)).rstrip(".")


class Change(NamedTuple):
    """What an entry changed."""

    account: str
    stream: str
    consumer: str = ""
    reply: str = ""
    """The reply subject for the members' answer; "": nobody waits for one."""
    op: Op = Op.ASSIGN_STREAM
    said: dict[str, Any] | None = None
    """The assignment as the entry has it, with the keys of PROPOSAL_ONLY."""
    before: dict[str, Any] | None = None
    """The assignment before this entry; None: there was none."""
    number: int = 0
    """The index of the entry, the same on all members."""

    def at(self, index: int, *, is_new: bool) -> Change:
        """The change by the entry with this index. Nobody answers one that is not new."""
        return self._replace(number=index, reply=self.reply if is_new else "")

    @property
    def removes(self) -> bool:
        """Whether the entry removes the asset."""
        return self.op in (Op.REMOVE_STREAM, Op.REMOVE_CONSUMER)


class StreamAssignment:
    """The assignment of a stream, and those of its consumers by name."""

    def __init__(self, said: dict[str, Any], consumers: dict[str, dict[str, Any]]) -> None:
        self.said = said
        """The stream's assignment as its entry has it, without the keys of PROPOSAL_ONLY."""
        self.consumers = consumers

    @property
    def peers(self) -> list[str]:
        """The ids of the members that are to hold the stream."""
        return peers_of(self.said)

    @property
    def group(self) -> str:
        """The name of its Raft group, "" where the assignment names none."""
        return _text(group_of(self.said), "name")

    @property
    def origin(self) -> str:
        """The stream that this one mirrors, "" for none."""
        return _text(_dict(_dict(self.said, "stream"), "mirror"), "name")


class MetaState:
    """All assignments."""

    def __init__(self) -> None:
        self.streams: dict[str, dict[str, StreamAssignment]] = {}
        """By account and stream."""
        self._mirrors: dict[tuple[str, str], set[str]] = {}
        """The names of mirrors, by account and origin."""

    def __iter__(self) -> Iterator[tuple[str, str, StreamAssignment]]:
        """Account, name and assignment of each stream."""
        for account, streams in self.streams.items():
            for name, assignment in streams.items():
                yield account, name, assignment

    def alternates(self, account: str, name: str) -> list[StreamAlternate]:
        """The stream and its mirrors, by name; none where there is no mirror."""
        streams, mirrors = self.streams.get(account, {}), self._mirrors.get((account, name))
        if mirrors is None or name not in streams:
            return []
        return [
            StreamAlternate(name=one, cluster=_text(group_of(streams[one].said), "cluster"))
            for one in (name, *sorted(mirrors))
        ]

    # ---- entries

    def apply(self, entry: bytes) -> Change:
        """Applies a Normal entry of the group's log. MetaError: the state is unchanged."""
        if not entry:
            raise MetaError("an entry is empty")
        try:
            op = Op(entry[0])
        except ValueError:
            raise MetaError(f"an entry has the unknown operation {entry[0]}") from None
        body = entry[1:]
        if op is Op.ASSIGN_COMPRESSED_CONSUMER:
            try:
                body = decompress(body, PLAIN_MAX)
            except ValueError as error:
                raise MetaError(f"an assignment cannot be decompressed: {error}") from None
        said = _read(body)
        account, stream, consumer = account_of(said), _text(said, "stream"), _text(said, "name")
        if op in (Op.ASSIGN_STREAM, Op.UPDATE_STREAM, Op.REMOVE_STREAM):
            stream, consumer = _text(_dict(said, "stream"), "name"), ""
        before = self._said(account, stream, consumer)
        if op in (Op.ASSIGN_STREAM, Op.UPDATE_STREAM):
            self._put_stream(said, new=op is Op.ASSIGN_STREAM)
        elif op is Op.REMOVE_STREAM:
            self._remove_stream(account, stream)
        elif op is Op.REMOVE_CONSUMER:
            self._remove_consumer(said)
        else:
            self._put_consumer(said)
        return Change(account, stream, consumer, _text(said, "reply"), op, said, before)

    def _said(self, account: str, stream: str, consumer: str) -> dict[str, Any] | None:
        found = self.streams.get(account, {}).get(stream)
        if found is None or not consumer:
            return None if found is None else found.said
        return found.consumers.get(consumer)

    def _put_stream(self, said: dict[str, Any], *, new: bool) -> None:
        account, name = account_of(said), _text(_dict(said, "stream"), "name")
        if not name:
            raise MetaError("an assignment names no stream")
        before = self.streams.get(account, {}).get(name)
        if before is None and not new:
            return  # an update of a stream that was removed meanwhile
        consumers = {} if before is None else before.consumers
        self._forget_mirror(account, name)
        put = StreamAssignment(_kept(said), consumers)
        self.streams.setdefault(account, {})[name] = put
        if put.origin:
            self._mirrors.setdefault((account, put.origin), set()).add(name)

    def _forget_mirror(self, account: str, name: str) -> None:
        """Before a stream is removed, or has another assignment."""
        found = self.streams.get(account, {}).get(name)
        origin = "" if found is None else found.origin
        mirrors = self._mirrors.get((account, origin), set())
        mirrors.discard(name)
        if not mirrors:
            self._mirrors.pop((account, origin), None)

    def _remove_stream(self, account: str, name: str) -> None:
        self._forget_mirror(account, name)
        streams = self.streams.get(account, {})
        streams.pop(name, None)
        if not streams:
            self.streams.pop(account, None)

    def _put_consumer(self, said: dict[str, Any]) -> None:
        name = _text(said, "name")
        if not name:
            raise MetaError("an assignment names no consumer")
        stream = self.streams.get(account_of(said), {}).get(_text(said, "stream"))
        if stream is not None:  # else it was removed meanwhile
            stream.consumers[name] = _kept(said)

    def _remove_consumer(self, said: dict[str, Any]) -> None:
        stream = self.streams.get(account_of(said), {}).get(_text(said, "stream"))
        if stream is not None:
            stream.consumers.pop(_text(said, "name"), None)

    # ---- snapshots

    @classmethod
    def read(cls, snapshot: bytes) -> MetaState:
        """The state in a snapshot; MetaError."""
        state = cls()
        if not snapshot:
            return state
        try:
            plain = s2_decode(snapshot)
        except ValueError as error:
            raise MetaError(f"a snapshot cannot be decompressed: {error}") from None
        try:
            streams = msgspec.json.decode(plain, type=list[dict[str, Any]])
        except (msgspec.DecodeError, RecursionError) as error:
            raise MetaError(f"a snapshot is no list of assignments: {error}") from None
        for said in streams:
            consumers = said.pop("Consumers", None) or []
            state._put_stream(said, new=True)
            for consumer in consumers:
                if not isinstance(consumer, dict):
                    raise MetaError("a consumer of a snapshot is no assignment")
                if not consumer.get("stream"):
                    consumer["stream"] = _text(_dict(said, "stream"), "name")
                state._put_consumer(consumer)
        return state

    def snapshot(self) -> bytes:
        """The state as bytes that `read` takes; no bytes where nothing is assigned."""
        streams = [
            {**stream.said, "Consumers": list(stream.consumers.values())} for _, _, stream in self
        ]
        if not streams:
            return b""
        return s2_encode_block(escape_json(msgspec.json.encode(streams)))


PROPOSAL_ONLY = ("subject", "reply", "restore_state", "state")
"""Keys of an assignment that matter only when its entry is applied: the request to answer, and the
state that a new member begins with. A snapshot leaves them out."""
KEPT_OF_CLIENT = ("acc", "svc", "cluster")


def _kept(said: dict[str, Any]) -> dict[str, Any]:
    """The part of an assignment that the state keeps."""
    kept = {key: value for key, value in said.items() if key not in PROPOSAL_ONLY}
    client = kept.get("client")
    if isinstance(client, dict):
        kept["client"] = {key: client[key] for key in KEPT_OF_CLIENT if client.get(key)}
    return kept


def _read(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise MetaError(f"an assignment is no JSON object: {error}") from None


def _dict(said: dict[str, Any], key: str) -> dict[str, Any]:
    found = said.get(key)
    return found if isinstance(found, dict) else {}


def _text(said: dict[str, Any], key: str) -> str:
    found = said.get(key)
    return found if isinstance(found, str) else ""


def account_of(said: dict[str, Any]) -> str:
    """The account of an asset: the one whose service was asked, otherwise the requester's own."""
    client = _dict(said, "client")
    return _text(client, "svc") or _text(client, "acc")


def created_at(said: dict[str, Any]) -> int:
    """When an asset was created, in ns since the epoch; 0 where the assignment does not say."""
    try:
        return parse_rfc3339(str(said.get("created", "")))
    except ValueError:
        return 0


def group_of(said: dict[str, Any]) -> dict[str, Any]:
    """An assignment's Raft group; empty where the assignment has none."""
    return _dict(said, "group")


def peers_of(said: dict[str, Any]) -> list[str]:
    """The ids of the members in an assignment."""
    peers = group_of(said).get("peers")
    return [p for p in peers if isinstance(p, str)] if isinstance(peers, list) else []
