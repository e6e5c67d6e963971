"""Handlers of `$JS.API.STREAM.*`, but for single messages."""

from functools import partial

import msgspec

from jsserver.assets import sources, streams
from jsserver.assets.changes import Asked, CreateStream, DeleteStream, UpdateStream
from jsserver.assets.patterns import captures
from jsserver.instances.account import Account
from jsserver.instances.backend import StoreError, StreamClosed
from jsserver.instances.intakes import MANY
from jsserver.instances.running import Stream
from jsserver.text import goformat
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import (
    ClusterInfo,
    LostMessages,
    PurgeRequest,
    StorageRequest,
    StreamConfig,
    StreamConfigRequest,
    StreamInfoRequest,
    StreamPageRequest,
    StreamStateInfo,
)

from .call import LIST_LIMIT, NAMES_LIMIT, Call, dynamic_metadata, page, placed
from .responses import (
    PurgeResponse,
    StreamInfo,
    StreamList,
    StreamNames,
    SuccessResponse,
)

SUBJECTS_LIMIT = 100_000
MANY_SUBJECTS = 4096
"""Of all streams, from which on the event loop does not compare all of them at once."""
DELETED_LIMIT = 1_000_000
"""Sequences that one answer lists: a gap may be as long as the numbers are."""


def time_text(ns: int) -> str:
    """A time on the wire; 0 is the zero time."""
    return goformat.rfc3339_nano(ns) if ns else goformat.ZERO_TIME


def stream_state(stream: Stream) -> StreamStateInfo:
    """The counts of a stream."""
    state = stream.handle.state()
    lost = stream.handle.lost()
    return StreamStateInfo(
        messages=state.messages,
        bytes=state.bytes,
        # Until a message, a purge or its configuration gives it one, there is no first sequence.
        first_seq=state.first_seq if state.last_seq or stream.started else 0,
        first_ts=time_text(state.first_ts),
        last_seq=state.last_seq,
        last_ts=time_text(state.last_ts),
        num_subjects=state.num_subjects,
        num_deleted=state.num_deleted,
        lost=LostMessages(lost.sequences, lost.bytes) if lost.sequences else None,
        consumer_count=len(stream.listed),
    )


def stream_info(account: Account, stream: Stream, listed: bool = False) -> StreamInfo:
    """A stream as CREATE, UPDATE and INFO show it; `listed`: as an element of a list."""
    config = stream.config
    if not listed:
        config = msgspec.structs.replace(config, metadata=dynamic_metadata(config.metadata))
    shared, read = account.shared, account.intakes.info(stream)
    state = stream_state(stream)
    if shared.member is not None:
        state.consumer_count = shared.member.consumers_of(account.name, stream.name)
    return StreamInfo(
        config=config,
        created=goformat.rfc3339_nano(stream.created),
        state=state,
        mirror=read[0] if read and config.mirror is not None else None,
        sources=read if config.mirror is None else [],
        domain=shared.settings.domain,
        cluster=placed(shared, stream),
        ts=goformat.rfc3339_nano(shared.clock()),
    )


async def described(account: Account, stream: Stream, listed: bool = False) -> StreamInfo:
    """As `stream_info`: of a stream with many sources beside the event loop."""
    if sources.weight(stream.config) < MANY:
        return stream_info(account, stream, listed)
    return await account.shared.compute(stream_info, account, stream, listed)


def normalised(account: Account, config: StreamConfig, pedantic: bool = False) -> StreamConfig:
    """A configuration that was asked for, with its defaults, or ApiError."""
    find = account.assignments.config_of
    terms = streams.Terms(account.shared.settings, account.limits, pedantic, find)
    return streams.normalise(config, terms)


def normalised_single(
    account: Account, config: StreamConfig, pedantic: bool = False
) -> StreamConfig:
    """As `normalised`, of a stream that is made here: it has one replica."""
    config = normalised(account, config, pedantic)
    if config.num_replicas > 1:
        raise errcodes.STREAM_REPLICAS_NOT_SUPPORTED()
    return config


async def create(call: Call) -> StreamInfo:
    """STREAM.CREATE: makes a stream, or finds that it is there already as wanted."""
    async with call.account.lock(call.args[0]):
        return await _create(call)


async def _create(call: Call) -> StreamInfo:
    account, name = call.account, call.args[0]
    change = await _asked(call, await call.request(StreamConfigRequest))
    decision = await account.change_stream(change, call.place)
    stream = account.stream(name)
    info = await described(account, stream)
    call.shows(stream)
    if decision.is_open:  # told after the look: the stream itself may capture what is told
        call.advisories.stream(account.name, name, "create")
    info.domain = ""
    info.did_create = True
    return info


async def _asked(call: Call, request: StreamConfigRequest) -> CreateStream:
    """The stream that a request asks for; what is wrong with it is judged with all the rest."""
    name, clock = call.args[0], call.shared.clock
    try:
        config = await call.work(normalised_single, call.account, request, request.pedantic)
    except ApiError as error:
        named = (await call.loosely(StorageRequest)).storage
        return CreateStream(request, clock(), Asked(name, error, bool(named)))
    return CreateStream(config, clock(), Asked(name))


async def update(call: Call) -> StreamInfo:
    """STREAM.UPDATE: replaces the whole configuration."""
    async with call.account.lock(call.args[0]):
        return await _update(call)


async def _update(call: Call) -> StreamInfo:
    request = await call.request(StreamConfigRequest)
    account = call.account
    config = await call.work(normalised, account, request, request.pedantic)
    name = call.args[0]
    if name != config.name:
        raise errcodes.STREAM_MISMATCH()
    await account.change_stream(UpdateStream(config), call.place)
    stream = account.stream(name)
    answer = await described(call.account, stream)
    call.shows(stream)
    call.advisories.stream(account.name, name, "modify")
    return answer


async def info(call: Call) -> StreamInfo:
    """STREAM.INFO, with deleted sequences or counts per subject on request."""
    request = await call.optional(StreamInfoRequest)
    stream = call.account.stream(call.args[0])
    answer = await described(call.account, stream)
    answer.cluster = answer.cluster or ClusterInfo(leader=call.shared.settings.server_name)
    answer.total = answer.offset = answer.limit = 0
    if call.shared.member is not None:
        asker = call.client()
        near = "" if asker is None else asker.cluster
        answer.alternates = call.shared.member.alternates_of(call.account.name, stream.name, near)
    assert answer.state is not None
    if request.deleted_details and answer.state.num_deleted:
        deleted = list(await call.shared.run(stream.handle.deleted, DELETED_LIMIT))
        answer.state.deleted = deleted
        if len(deleted) < DELETED_LIMIT:
            answer.state.num_deleted = len(deleted)
    if request.subjects_filter:
        wanted, start = request.subjects_filter.encode(), max(request.offset, 0)
        total, counts = await call.shared.run(stream.handle.subjects, wanted, start, SUBJECTS_LIMIT)
        if total:
            answer.total, answer.offset, answer.limit = total, start, SUBJECTS_LIMIT
            shown = {goformat.json_text(subject): count for subject, count in counts.items()}
            answer.state.subjects = shown or None
    call.shows(stream)
    return answer


async def delete(call: Call) -> SuccessResponse:
    """STREAM.DELETE: removes the stream and its consumers before it answers."""
    call.no_body()
    account = call.account
    name = call.args[0]
    async with account.lock(name):
        stream = account.stream(name)
        consumers = list(stream.consumers)
        await account.change_stream(DeleteStream(name), call.place)
        for consumer in consumers:
            call.advisories.consumer(account.name, name, consumer, "delete")
        call.advisories.stream(account.name, name, "delete")
    return SuccessResponse(success=True)


def check_purge(stream: Stream, request: PurgeRequest) -> None:
    """ApiError where a stream may not be purged so."""
    if request.seq and request.keep:
        raise errcodes.BAD_REQUEST()
    if stream.config.sealed:
        raise errcodes.STREAM_SEALED()
    if stream.config.deny_purge:
        raise errcodes.STREAM_PURGE_FAILED(err="stream purge not permitted")
    if request.seq > streams.HIGHEST_START:
        most = f"sequence can not be larger than {streams.HIGHEST_START}"
        raise errcodes.STREAM_PURGE_FAILED(err=most)


async def purge(call: Call) -> PurgeResponse:
    """STREAM.PURGE: everything, or by subject, sequence and number to keep."""
    request = await call.optional(PurgeRequest)
    name = call.args[0]
    if request.seq and request.keep:
        raise errcodes.BAD_REQUEST()
    async with call.account.lock(name):
        stream = call.account.stream(name)
        check_purge(stream, request)
        wanted = request.filter.encode() if request.filter else None
        purge = partial(stream.handle.purge, wanted, request.seq, request.keep)
        purged = purge(short=True)
        if purged is None:
            purged = await call.shared.run(purge)
        stream.started |= request in (PurgeRequest(), PurgeRequest(filter=">"))
        call.changed(stream)
    return PurgeResponse(success=True, purged=purged)


async def _names(call: Call, subject: str) -> list[str]:
    """All streams, offline ones too, or those that have a subject in common with a filter: in
    order."""
    account = call.account
    if not subject:
        return sorted([*account.names, *account.offline]) if account.offline else account.names
    return await capturing(call, subject)


async def capturing(call: Call, subject: str) -> list[str]:
    """The streams that have a subject in common with this one, in order."""
    account = call.account
    configs = [account.streams[name].config for name in account.names]
    if sum(len(config.subjects) for config in configs) < MANY_SUBJECTS:
        return _capturing(configs, subject)
    return await call.shared.compute(_capturing, configs, subject)


def _capturing(configs: list[StreamConfig], subject: str) -> list[str]:
    return [config.name for config in configs if captures(config.subjects, subject)]


async def names(call: Call) -> StreamNames:
    """STREAM.NAMES."""
    request = await call.optional(StreamPageRequest)
    found = page(await _names(call, request.subject), request.offset, NAMES_LIMIT)
    return StreamNames(
        total=found.total, offset=found.offset, limit=NAMES_LIMIT, streams=found.names or None
    )


async def list_all(call: Call) -> StreamList:
    """STREAM.LIST."""
    request = await call.optional(StreamPageRequest)
    account = call.account
    found = page(await _names(call, request.subject), request.offset, LIST_LIMIT)
    answer = StreamList(total=found.total, offset=found.offset, limit=LIST_LIMIT)
    shown: dict[str, StreamInfo] = {}
    offline: dict[str, str] = {}
    for name in found.names:
        if name in account.streams:
            try:
                shown[name] = await described(account, account.streams[name], listed=True)
            except StreamClosed:
                continue  # it was removed meanwhile
            except StoreError as error:
                offline[name] = str(error)
        elif name in account.offline:
            offline[name] = account.offline[name]
    failed = await call.settle(account.streams[n] for n in shown if n in account.streams)
    offline |= {name: reason for name, reason in failed.items() if reason}
    answer.streams = [info for name, info in shown.items() if name not in failed]
    answer.missing, answer.offline = sorted(offline) or None, offline or None
    return answer
