"""Turns requests about consumers into changes that the leader's judge decides on."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jsserver.api.responses import TYPE_PREFIX, ConsumerPauseResponse
from jsserver.assets import consumers
from jsserver.assets.assigned import StreamAssignment
from jsserver.assets.assignments import Assignments
from jsserver.assets.changes import AskedConsumer, PauseConsumer, PutConsumer
from jsserver.assets.limits import ServerSettings
from jsserver.cluster.proposals import Asked
from jsserver.text import goformat
from jsserver.wire import decode
from jsserver.wire.errors import ApiError
from jsserver.wire.types import ConsumerConfig, ConsumerCreateRequest, ConsumerPauseRequest


def consumer(
    asked: Asked,
    assets: Assignments,
    settings: ServerSettings,
    *,
    durable: bool,
    now: int,
    token: Callable[[int], str],
    heard: Callable[[str], bool],
) -> PutConsumer:
    """The requested consumer, with defaults filled in. An invalid configuration is not raised here
    but travels in `asked.wrong`, because the judge makes other checks first. `durable`: the request
    is CONSUMER.DURABLE.CREATE; `heard`: whether anybody subscribes to a subject."""
    request = decode.decode(asked.body, ConsumerCreateRequest, settings.strict)
    stream, *rest = asked.args
    filtered = ".".join(rest[1:]) if len(rest) > 1 else None
    of_one = msgspec.structs.replace(request.config, num_replicas=0)  # replicas: judged elsewhere
    bare = msgspec.structs.replace(request, config=of_one)
    words = AskedConsumer(stream, rest[0] if rest else "", filtered, durable, bare)
    name = words.consumer
    there = assets.streams.get(request.stream_name)
    if there is None:
        wrong = assets.absent(request.stream_name)
        assert isinstance(wrong, ApiError)
        words = msgspec.structs.replace(words, wrong=wrong)
        return PutConsumer(request.stream_name, name, request.config, now, asked=words)
    config = msgspec.structs.replace(request.config, name=name)
    config = consumers.for_source(config, there.config, token(8))
    name = config.name
    before = there.consumers.get(name)
    if before is not None:
        config = consumers.kept(config, before.config)
    limits = assets.claims.limits
    try:
        config = consumers.normalise(config, there.config, settings, limits, request.pedantic)
        consumers.check(config, there.config, settings, limits)
    except ApiError as error:
        words = msgspec.structs.replace(words, wrong=error)
    return PutConsumer(
        stream=there.config.name,
        name=name or _free_name(there, token),
        config=config,
        created=now,
        action=request.action,
        heard=before is not None and _moves(before.config, config, heard),
        asked=words,
    )


def _moves(before: ConsumerConfig, after: ConsumerConfig, heard: Callable[[str], bool]) -> bool:
    """Whether the deliver subject changes while somebody still subscribes to the old one."""
    here = before.deliver_subject
    return here != after.deliver_subject and heard(here)


def _free_name(stream: StreamAssignment, token: Callable[[int], str]) -> str:
    while True:
        name = token(8)
        if name not in stream.consumers and name not in stream.offline:
            return name


def pause(
    asked: Asked, assets: Assignments, settings: ServerSettings, now: int
) -> tuple[PauseConsumer, ConsumerPauseResponse]:
    """The requested pause, and the answer for when it is agreed on; ApiError."""
    request = ConsumerPauseRequest()
    if decode.has_object(asked.body):
        request = decode.decode(asked.body, ConsumerPauseRequest, settings.strict)
    stream, name = asked.args[:2]
    assets.stream(stream).consumer(name)
    until = consumers.pause_end(request.pause_until)
    left = 0
    if until:
        ends = goformat.parse_rfc3339(until)
        left = min(max(ends - now, 0), goformat.MAX_DURATION)
    answer = ConsumerPauseResponse(
        type=f"{TYPE_PREFIX}consumer_pause_response",
        paused=left > 0,
        pause_until=until or goformat.ZERO_TIME,
        pause_remaining=left,
    )
    return PauseConsumer(stream, name, until), answer
