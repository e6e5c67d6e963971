"""What members ask the leader of the meta group for by themselves, since nats-server 2.15: to
assign a consumer that came with a restored stream, and to remove one that nobody used for long.

No clock or network. A request that is void, such as one for a consumer of a removed stream, is
passed over: the member asks again as long as it has to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from jsserver.cluster import proposals
from jsserver.cluster.meta import PLAIN_MAX, Op, group_of
from jsserver.text.s2 import decompress
from jsserver.wire import decode
from jsserver.wire.types import ConsumerConfig

if TYPE_CHECKING:
    from jsserver.cluster.judge import Judge
    from jsserver.cluster.moves import Made, Moves

COMPRESSED = 1
"""The first byte of a request that is compressed by S2."""


class Consumer(msgspec.Struct, forbid_unknown_fields=True):
    """The consumer that is asked about."""

    account: str
    stream: str
    consumer: str
    created: str
    config: dict[str, Any] = {}
    """Empty where the consumer is to be removed."""
    state: dict[str, Any] | None = None
    """What was delivered and acked before."""


def read(body: bytes) -> Consumer:
    """The request; ValueError, msgspec.DecodeError."""
    if body[:1] == bytes([COMPRESSED]):
        body = decompress(body[1:], PLAIN_MAX)
    return msgspec.json.decode(body, type=Consumer)


def assigned(asked: Consumer, judge: Judge, moves: Moves) -> list[Made]:
    """The assignment of a new consumer; none where it is assigned already or cannot be. ApiError,
    decode.Unreadable."""
    there = judge.known(asked.stream)
    if there is None or asked.consumer in there.consumers or not asked.config:
        return []
    config = decode.parse(msgspec.json.encode(asked.config), ConsumerConfig, strict=True)
    peers = moves.places(there.said, config)
    of_stream = group_of(there.said)
    in_memory = config.mem_storage or there.said["stream"].get("storage") == "memory"
    storage, cluster = "memory" if in_memory else "file", str(of_stream.get("cluster", ""))
    said = {
        "client": there.said.get("client"),
        "created": asked.created,
        "name": asked.consumer,
        "stream": asked.stream,
        "consumer": asked.config,
        "group": proposals.group("C", peers, storage, cluster, moves.terms.token(8)),
    }
    if asked.state is not None:
        said["state"] = asked.state
    return [(Op.ASSIGN_CONSUMER, said)]


def removed(asked: Consumer, judge: Judge) -> list[Made]:
    """The removal of a consumer; none where another one has the name by now."""
    said = judge.said(asked.stream, asked.consumer)
    if said is None or said.get("created") != asked.created:
        return []
    return [(Op.REMOVE_CONSUMER, said)]
