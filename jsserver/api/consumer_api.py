"""Handlers of `$JS.API.CONSUMER.*` that the control plane answers."""

import msgspec

from jsserver.assets import consumers
from jsserver.assets.changes import AskedConsumer, DeleteConsumer, PauseConsumer, PutConsumer
from jsserver.instances.account import Account
from jsserver.instances.running import Consumer, Stream
from jsserver.instances.shared import Shared
from jsserver.text import goformat, nuid
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import (
    ConsumerConfig,
    ConsumerCreateRequest,
    ConsumerPageRequest,
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumerUnpinRequest,
)

from .call import LIST_LIMIT, NAMES_LIMIT, Call, dynamic_metadata, is_own, page, placed
from .responses import (
    ConsumerInfo,
    ConsumerList,
    ConsumerNames,
    ConsumerPauseResponse,
    ConsumerResetResponse,
    PriorityGroupState,
    Response,
    SequenceInfo,
    SuccessResponse,
)


def consumer_info(
    shared: Shared,
    stream: Stream,
    consumer: Consumer,
    *,
    listed: bool = False,
    changed: bool = False,
) -> ConsumerInfo:
    """A consumer as CREATE and INFO show it; `listed`: as an element of a list; `changed`: as it
    was when it was made, last updated or reset."""
    config = consumer.config
    if not listed:
        config = msgspec.structs.replace(config, metadata=dynamic_metadata(config.metadata))
    state = consumer.handle.changed_state() if changed else consumer.handle.state()
    now = shared.clock()
    remaining = consumers.pause_left(config, now)
    return ConsumerInfo(
        stream_name=stream.name,
        name=consumer.name,
        created=goformat.rfc3339_nano(consumer.created),
        config=config,
        delivered=_position(state.delivered_consumer, state.delivered_stream, state.delivered_ts),
        ack_floor=_position(state.floor_consumer, state.floor_stream, state.floor_ts),
        num_ack_pending=state.num_ack_pending,
        num_redelivered=0 if config.max_deliver == 1 else state.num_redelivered,
        num_waiting=state.num_waiting,
        num_pending=state.num_pending,
        cluster=placed(shared, consumer),
        push_bound=state.push_bound,
        paused=remaining > 0,
        pause_remaining=remaining,
        ts=goformat.rfc3339_nano(now),
        priority_groups=[
            PriorityGroupState(
                group=group,
                pinned_client_id=state.pinned_id.decode(),
                pinned_ts=goformat.rfc3339_nano(state.pinned_ts)
                if state.pinned_ts
                else goformat.ZERO_TIME,
            )
            for group in config.priority_groups[:1]
        ],
    )


async def _counted(call: Call, consumer: Consumer) -> Consumer:
    """The consumer, when what is pending is counted: in a large stream that may take a while."""
    if consumer.handle.counting():
        await call.shared.run(consumer.handle.state)
    return consumer


def _position(consumer_seq: int, stream_seq: int, ts: int) -> SequenceInfo:
    return SequenceInfo(
        consumer_seq=consumer_seq,
        stream_seq=stream_seq,
        last_active=goformat.rfc3339_nano(ts) if ts else "",
    )


# ---- creation and update -----------------------------------------------------------------------


async def create(call: Call) -> ConsumerInfo:
    """CONSUMER.CREATE.<stream>[.<consumer>[.<filter>]]."""
    account, (stream, *rest) = call.account, call.args
    lock = account.lock(stream)  # of one whose name stands in the body, or is new
    if rest:
        lock = account.consumer_lock(stream, rest[0])
    async with lock:
        request = await call.request(ConsumerCreateRequest)
        name = rest[0] if rest else ""
        wanted = ".".join(rest[1:]) if len(rest) > 1 else None
        return await _put(call, AskedConsumer(stream, name, wanted, False, request))


async def create_durable(call: Call) -> ConsumerInfo:
    """CONSUMER.DURABLE.CREATE.<stream>.<consumer>."""
    stream, name = call.args
    async with call.account.consumer_lock(stream, name):
        request = await call.request(ConsumerCreateRequest)
        return await _put(call, AskedConsumer(stream, name, None, True, request))


async def _put(call: Call, asked: AskedConsumer) -> ConsumerInfo:
    """Creates or updates; the lock is held."""
    account = call.account
    change = await _change(call, asked)
    decision = await account.change_consumer(change, call.place)
    stream = account.stream(change.stream)
    consumer = stream.consumer(change.name)
    if decision.is_open:
        call.made = consumer.handle
    _tell_put(call, stream, consumer, made=decision.before is None)
    sourcing = change.config.sourcing
    if sourcing:
        await call.shared.run(_reset, stream, consumer, 0)
    if not decision.is_open:
        await _counted(call, consumer)
    changed = decision.is_open and not sourcing
    info = consumer_info(call.shared, stream, consumer, changed=changed)
    call.shows(stream)
    return info


async def _change(call: Call, asked: AskedConsumer) -> PutConsumer:
    """The consumer that a request asks for, with its defaults; what is wrong with it is judged with
    all the rest."""
    request, account = asked.request, call.account
    name, created = asked.consumer, call.shared.clock()
    try:
        stream = account.stream(request.stream_name)
    except ApiError as error:
        asked = msgspec.structs.replace(asked, wrong=error)
        return PutConsumer(request.stream_name, name, request.config, created, asked=asked)
    config = msgspec.structs.replace(request.config, name=name)
    config = consumers.for_source(config, stream.config, nuid.token(8))
    name = config.name
    there = stream.consumers.get(name)
    if there is not None:
        config = consumers.kept(config, there.config)
    try:
        config = await call.work(_checked, account, stream, config, request.pedantic)
    except ApiError as error:
        asked = msgspec.structs.replace(asked, wrong=error)
    return PutConsumer(
        stream=stream.name,
        name=name or _free_name(stream),
        config=config,
        created=created,
        action=request.action,
        heard=there is not None and _is_heard(account, there, config),
        asked=asked,
    )


def _checked(
    account: Account, stream: Stream, asked: ConsumerConfig, pedantic: bool
) -> ConsumerConfig:
    """The configuration that was asked for with its defaults, or ApiError."""
    settings, limits = account.shared.settings, account.limits
    config = consumers.normalise(asked, stream.config, settings, limits, pedantic)
    consumers.check(config, stream.config, settings, limits)
    return config


def _is_heard(account: Account, consumer: Consumer, config: ConsumerConfig) -> bool:
    """Whether somebody listens where a consumer delivers that is to deliver elsewhere."""
    here = consumer.config.deliver_subject
    return here != config.deliver_subject and account.handle.subject_interest(here.encode())


def _tell_put(call: Call, stream: Stream, consumer: Consumer, *, made: bool) -> None:
    """That it was made, and that it is paused: also of one that was there, as nats-server does."""
    account, name = call.account.name, consumer.name
    if made and not is_own(call.shared, consumer):
        call.advisories.consumer(account, stream.name, name, "create")
    until = consumer.config.pause_until
    if consumers.pause_left(consumer.config, call.shared.clock()):
        call.advisories.pause(account, stream.name, name, True, until)


def _free_name(stream: Stream) -> str:
    while True:
        name = nuid.token(8)
        if name not in stream.consumers and name not in stream.offline:
            return name


# ---- the rest ----------------------------------------------------------------------------------


async def info(call: Call) -> ConsumerInfo:
    """CONSUMER.INFO."""
    call.no_body()
    stream = call.account.stream(call.args[0])
    consumer = await _counted(call, stream.consumer(call.args[1]))
    answer = consumer_info(call.shared, stream, consumer)
    call.shows(stream)
    return answer


async def delete(call: Call) -> SuccessResponse:
    """CONSUMER.DELETE."""
    call.no_body()
    account = call.account
    async with account.consumer_lock(call.args[0], call.args[1]):
        stream = account.stream(call.args[0])
        consumer = stream.consumer(call.args[1])
        await account.change_consumer(DeleteConsumer(stream.name, consumer.name), call.place)
        call.advisories.consumer(account.name, stream.name, consumer.name, "delete")
    return SuccessResponse(success=True)


def _names(stream: Stream) -> list[str]:
    """A stream's consumers, offline ones too: in order."""
    return sorted([*stream.listed, *stream.offline])


async def names(call: Call) -> ConsumerNames:
    """CONSUMER.NAMES."""
    request = await call.optional(ConsumerPageRequest)
    stream = call.account.stream(call.args[0])
    found = page(_names(stream), request.offset, NAMES_LIMIT)
    return ConsumerNames(
        total=found.total, offset=found.offset, limit=NAMES_LIMIT, consumers=found.names
    )


async def list_all(call: Call) -> ConsumerList:
    """CONSUMER.LIST."""
    request = await call.optional(ConsumerPageRequest)
    stream = call.account.stream(call.args[0])
    found = page(_names(stream), request.offset, LIST_LIMIT)
    answer = ConsumerList(total=found.total, offset=found.offset, limit=LIST_LIMIT)
    for name in found.names:
        consumer = stream.consumers.get(name)
        if consumer is not None:
            await _counted(call, consumer)
            answer.consumers.append(consumer_info(call.shared, stream, consumer, listed=True))
        else:
            answer.missing = [*(answer.missing or ()), name]
            answer.offline = {**(answer.offline or {}), name: stream.offline[name]}
    call.shows(stream)
    return answer


async def pause(call: Call) -> ConsumerPauseResponse:
    """CONSUMER.PAUSE: until a time, or no longer."""
    request = await call.optional(ConsumerPauseRequest)
    account = call.account
    async with account.consumer_lock(call.args[0], call.args[1]):
        stream = account.stream(call.args[0])
        consumer = stream.consumer(call.args[1])
        until = consumers.pause_end(request.pause_until)
        before = consumer.config.pause_until
        await account.change_consumer(PauseConsumer(stream.name, consumer.name, until), call.place)
        remaining = consumers.pause_left(consumer.config, call.shared.clock())
        shown = until or goformat.ZERO_TIME
        if until != before:
            call.advisories.pause(account.name, stream.name, consumer.name, remaining > 0, shown)
    return ConsumerPauseResponse(paused=remaining > 0, pause_until=shown, pause_remaining=remaining)


async def reset(call: Call) -> ConsumerResetResponse:
    """CONSUMER.RESET: what was delivered is forgotten."""
    seq = (await call.loosely(ConsumerResetRequest)).seq
    async with call.account.consumer_lock(call.args[0], call.args[1]):
        stream = call.account.stream(call.args[0])
        consumer = stream.consumer(call.args[1])
        consumers.check_reset(consumer.config, seq, stream.handle.at_time)
        seq = await call.shared.run(_reset, stream, consumer, seq)
        await _counted(call, consumer)
        info = consumer_info(call.shared, stream, consumer, changed=True)
    call.shows(stream)
    return ConsumerResetResponse(**msgspec.structs.asdict(info), reset_seq=seq)


def _reset(stream: Stream, consumer: Consumer, seq: int) -> int:
    seq = consumer.handle.reset(seq)
    stream.handle.wait_durable()
    return seq


async def unpin(call: Call) -> Response:
    """CONSUMER.UNPIN: the client that is pinned in a group is so no longer."""
    group = (await call.loosely(ConsumerUnpinRequest)).group
    if not group:
        raise errcodes.INVALID_JSON(err="consumer group not specified")
    if not consumers.is_group_name(group):
        raise errcodes.CONSUMER_INVALID_GROUP_NAME()
    stream = call.account.stream(call.args[0])
    consumer = stream.consumer(call.args[1])
    if group not in consumer.config.priority_groups:
        raise errcodes.CONSUMER_INVALID_PRIORITY_GROUP()
    consumer.handle.unpin()
    call.advisories.unpinned(call.account.name, stream.name, consumer.name, group, "admin")
    return Response()
