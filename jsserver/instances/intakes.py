"""Mirrors and sources of an account's streams: their consumers are made, watched and made again.

What they deliver the data plane takes in by itself (cext/stream/intake.pxi). Here is decided where
a consumer starts, and when a new one is asked for: where the deliveries do not follow each other,
a message cannot be stored, or nothing comes. All requests go through subjects, wherever the origin
is. Pauses after a refusal are nats-server's; what is not answered is asked again soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec

from jsserver.assets import sources
from jsserver.process.tasks import Tasks
from jsserver.text import goformat, nuid, transforms
from jsserver.wire import errcodes
from jsserver.wire.errors import ErrorBody
from jsserver.wire.types import ConsumerConfig, SourceInfo, StreamSource

from . import positions
from .backend import AccountHandle, IntakeState, StoreError, StreamClosed
from .locks import Hold
from .metafiles import MetaFiles
from .positions import Positions
from .running import Stream
from .shared import Shared
from .turns import spread

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

ANSWER_SECONDS, ANSWER_MOST_SECONDS = 4.0, 30.0
"""How long an answer is waited for: at first, and at most. Each wait in vain doubles it."""
TOLD_SECONDS = 10.0
"""Between two lines of the log about messages that are not stored."""
BETWEEN_SECONDS = 2.0
"""Between two requests at least."""
BACKOFF_SECONDS = 10.0
"""More after each failure, up to MOST_SECONDS."""
MOST_SECONDS = 120.0
KEEP_SECONDS = 5.0
"""Between two looks whether positions are to be written down."""
HIGHEST_SEQUENCE = 1 << 61
"""That an origin may be told of: files hold sequences below twice as much."""
MANY = 64
"""Sources of a stream and their transforms, from which on the event loop does not look at all of
them at once."""
SILENCE_SECONDS = sources.SILENCE / goformat.SECOND
LEVEL = b"NATS/1.0\r\nNats-Required-Api-Level: 4\r\n\r\n"
OLD_SERVER = (errcodes.REQUIRED_API_LEVEL().body.err_code, 10025)
"""What servers answer that do not know consumers for sourcing."""


class _Made(msgspec.Struct):
    """What counts of the configuration of a consumer."""

    ack_policy: str = ""


class _Position(msgspec.Struct):
    stream_seq: int = 0


class _Answer(msgspec.Struct):
    """To the request for a consumer."""

    name: str = ""
    config: _Made | None = None
    delivered: _Position = msgspec.field(default_factory=_Position)
    error: ErrorBody | None = None


class _Refused(Exception):
    """Why there is no consumer."""

    def __init__(self, error: ErrorBody) -> None:
        super().__init__(error.description)
        self.error = error


def _jitter() -> float:
    return 0.1 + os.urandom(1)[0] / 2560


class Intake:
    """A mirror or one source of a stream that is served."""

    def __init__(
        self,
        account: str,
        handle: AccountHandle,
        shared: Shared,
        stream: Stream,
        source: StreamSource,
        alone: bool,
        lost: Callable[[], None],
    ) -> None:
        """`alone`: no other source of the stream reads a stream of this name. `lost`: is called
        when the data plane has ended the intake by itself."""
        self.account = account
        self.source = source
        self.id = next(_ids)
        self.mirror = stream.config.mirror is not None
        self._handle = handle
        self._shared = shared
        self._stream = stream
        self._lost = lost
        self._consumer = sources.consumer_name(
            stream.config, source, account, shared.settings.domain, alone
        )
        self.key = sources.identity(source)
        self._head, self._tail = (part.encode() for part in sources.header_parts(source))
        mapped = source.subject_transforms
        parsed = [transforms.parse_mapping(t.src, t.dest) for t in mapped]
        self._transforms = [None if t is None else t.compiled() for t in parsed]
        self.position = 0
        """The last sequence of the origin that is dealt with."""
        self._learned = False
        self._error: ErrorBody | None = None
        self._asked = False
        self._lag = 0
        self._told: tuple[str, int] = "", 0
        """Why a message was not stored, and behind which, as the log says."""
        self._told_at = 0.0
        self._heard = 0.0
        """When something came; 0: never."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def parts(self) -> tuple[bytes, bytes]:
        """What its messages are known by."""
        return self._head, self._tail

    def start(self, position: int) -> None:
        """Begins behind this sequence of the origin, unless it was stopped."""
        if not self._stopped:
            self.position = position
            self._learned = True
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Takes nothing in any more."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
        self._look()
        self._stream.handle.leave_off(self.id)

    def wake(self) -> None:
        """Looks at once whether something is to be done."""
        self._wake.set()

    def drop_consumer(self) -> None:
        """Asks the origin to remove the consumer, if it was made for this stream alone."""
        if self.source.consumer is not None:
            return
        asked = f"CONSUMER.DELETE.{self.source.name}.{self._consumer}"
        subject = sources.api_subject(self.source, asked)
        self._handle.request(subject.encode(), b"", b"", b"")

    def reached(self) -> int | None:
        """The last sequence of the origin that is dealt with; None: not known yet."""
        self._look()
        return self.position if self._learned else None

    def info(self) -> SourceInfo:
        """As stream information shows it. In any thread."""
        self._look()
        source = self.source
        since = time.monotonic() - self._heard
        return SourceInfo(
            name=source.name,
            external=source.external,
            lag=self._lag,
            active=int(since * goformat.SECOND) if self._heard else -1,
            error=self._error,
            filter_subject=source.filter_subject if self._asked or not self.mirror else "",
            subject_transforms=source.subject_transforms,
        )

    # ---- its life --------------------------------------------------------------------------------

    async def _run(self) -> None:
        fails, patience = 0, ANSWER_SECONDS
        await asyncio.sleep(_jitter())
        while True:
            await self._shared.turns.come()
            asked = time.monotonic()
            self._wake.clear()
            self._error, self._asked = None, True
            try:
                await self._connect(patience)
            except _Refused as refused:
                self._error, fails = refused.error, fails + 1
                patience = ANSWER_SECONDS
                self._warn(refused.error)
            except TimeoutError:  # a link may have been cut, or a leader gone
                fails, patience = 0, min(patience * 2, ANSWER_MOST_SECONDS)
            except StoreError as error:
                if not self._stream.failing:  # else the log has said why
                    log.warning("%s: %s", self._title, error)
            else:
                fails, patience = 0, ANSWER_SECONDS
                await self._while_it_comes()
            pause = BETWEEN_SECONDS - (time.monotonic() - asked)
            backoff = min(fails * BACKOFF_SECONDS, MOST_SECONDS)
            await self._pause(max(pause, 0) + _jitter(), backoff)

    async def _pause(self, least: float, backoff: float) -> None:
        """A pause, whose second part ends when somebody wakes it."""
        self._wake.clear()
        await asyncio.sleep(least)
        if backoff and not self._wake.is_set():
            await self._woken(backoff)

    async def _woken(self, seconds: float) -> None:
        """Waits for that, or so long. What ends it meanwhile does so: wait_for may pass over it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _while_it_comes(self) -> None:
        """Returns when the consumer has to be made anew."""
        while True:
            await self._woken(SILENCE_SECONDS)
            self._wake.clear()
            state = self._look()
            if state is None:
                self._lost()
                return
            if state.broken or state.idle > sources.SILENCE:
                if state.refused:
                    self._tell(state.refused)
                self._stream.handle.leave_off(self.id)
                return

    def _look(self) -> IntakeState | None:
        """How far it is, which is noted."""
        state = self._stream.handle.intake(self.id)
        if state is not None:
            self.position = max(self.position, state.seq)
            self._lag = state.lag
            self._heard = time.monotonic() - state.idle / goformat.SECOND
        return state

    # ---- its consumer ----------------------------------------------------------------------------

    async def _connect(self, patience: float) -> None:
        """Has a consumer made and takes in what it delivers. _Refused, StoreError; TimeoutError
        where no answer came within `patience` seconds."""
        made = self.source.consumer
        if made is not None:
            subject = f"CONSUMER.RESET.{self.source.name}.{made.name}"
            asked = sources.api_subject(self.source, subject)
            answer = await self._ask(asked, b"", b"", patience)
            deliver, name = made.deliver_subject, made.name
            config = self._checked(answer)
            if config.ack_policy != "flow_control":
                wrong = (
                    errcodes.MIRROR_CONSUMER_REQUIRES_ACK_FC
                    if self.mirror
                    else errcodes.SOURCE_CONSUMER_REQUIRES_ACK_FC
                )
                raise _Refused(wrong().body)
        else:
            deliver = sources.deliver_subject(self.source, self.mirror, nuid.token(8))
            answer = await self._make(deliver, patience)
            self._checked(answer)
            name = answer.name
        self._stream.handle.take_in(
            self.id,
            deliver.encode(),
            f"{self.source.name}.{name}".encode(),
            max(answer.delivered.stream_seq, 0 if self.mirror else self.position),
            self.mirror,
            self._head,
            self._tail,
            self._transforms,
        )

    async def _make(self, deliver: str, patience: float) -> _Answer:
        """The answer to the request for a consumer, also of a server that is older."""
        subject, request = sources.consumer_request(
            self._stream.config,
            self.source,
            self._consumer,
            self.account,
            self._shared.settings.domain,
            deliver,
            self._start(),
        )
        answer = await self._ask(subject, LEVEL, msgspec.json.encode(request), patience)
        if answer.error is None or answer.error.err_code not in OLD_SERVER:
            return answer
        named = request.config.name
        request.config.sourcing = False
        request.config.name = f"{named}_{nuid.token(8)}"
        subject = subject.replace(named, request.config.name, 1)
        return await self._ask(subject, b"", msgspec.json.encode(request), patience)

    async def _ask(self, subject: str, headers: bytes, body: bytes, patience: float) -> _Answer:
        asking = self._shared.asking
        answer = await asking.ask(self._handle, subject, headers, body, patience)
        try:
            return msgspec.json.decode(answer, type=_Answer)
        except msgspec.DecodeError:
            return _Answer(error=errcodes.INVALID_JSON(err="consumer create response").body)

    def _checked(self, answer: _Answer) -> _Made:
        if answer.error is not None:
            raise _Refused(answer.error)
        if answer.config is None or not 0 <= answer.delivered.stream_seq <= HIGHEST_SEQUENCE:
            failed = (
                errcodes.MIRROR_CONSUMER_SETUP_FAILED
                if self.mirror
                else errcodes.SOURCE_CONSUMER_SETUP_FAILED
            )
            raise _Refused(failed(err="invalid consumer create response").body)
        return answer.config

    def _start(self) -> ConsumerConfig:
        """Where the consumer starts: behind what is there, else where the configuration says."""
        source, state = self.source, self._stream.handle.state()
        first = source.opt_start_seq
        if self.mirror and (state.last_seq or self._stream.started):
            first = state.last_seq + 1
        elif not self.mirror and self.position:
            first = self.position + 1
        if first:
            return ConsumerConfig(deliver_policy="by_start_sequence", opt_start_seq=first)
        start = goformat.instant(source.opt_start_time) if source.opt_start_time else 0
        if not self.mirror and state.last_ts and (source.opt_start_time or state.first_seq > 1):
            start = max(start, state.last_ts)  # what came before is here, or was
        if not start:
            return ConsumerConfig(deliver_policy="all")
        return ConsumerConfig(
            deliver_policy="by_start_time", opt_start_time=goformat.rfc3339_nano(start)
        )

    @property
    def _title(self) -> str:
        what = "mirror" if self.mirror else "source"
        return f"Stream '{self.account} > {self._stream.name}', {what} {self.source.name}"

    def _tell(self, why: str) -> None:
        """The log says what stands in the way, once, or now and then where it moves."""
        now = time.monotonic()
        if self._told == (why, self.position) or now - self._told_at < TOLD_SECONDS:
            return
        self._told, self._told_at = (why, self.position), now
        log.warning(
            "%s: the message behind sequence %d of the origin is not stored: %s",
            self._title,
            self.position,
            why,
        )

    def _warn(self, error: ErrorBody) -> None:
        log.warning("%s: no consumer: %s (%d)", self._title, error.description, error.err_code)


_ids = itertools.count(1)


class Intakes:
    """Those of one account."""

    def __init__(
        self,
        account: str,
        handle: AccountHandle,
        shared: Shared,
        lock: Callable[[str], Hold],
    ) -> None:
        self._lock = lock
        """The one of a stream's name."""
        self._account = account
        self._handle = handle
        self._shared = shared
        self._of: dict[str, dict[str, Intake]] = {}
        self._streams: dict[str, Stream] = {}
        """Those that have some."""
        self._kept: dict[str, dict[str, int]] = {}
        """Positions that are written down."""
        self._keeper: asyncio.Task[None] | None = None
        self._beginning = Tasks()

    def follow(self, stream: Stream) -> None:
        """A stream that is served, new or with another configuration."""
        for intake in self._place(stream, self._made(stream)):
            self._end(intake, True)

    async def follow_many(self, stream: Stream) -> None:
        """As `follow`, of a stream that may have thousands of sources; its lock is held."""
        if sources.weight(stream.config) < MANY:
            self.follow(stream)
        else:
            made = await self._shared.compute(self._made, stream)
            async for intake in spread(self._place(stream, made)):
                self._end(intake, True)

    def _made(self, stream: Stream) -> dict[str, Intake]:
        """All that the stream is to have, of which some run. In any thread."""
        running = self._of.get(stream.name, {})
        repeated = sources.repeated(stream.config)
        wanted = {sources.identity(s): s for s in sources.of_stream(stream.config)}
        return {
            key: running.get(key)
            or Intake(
                self._account,
                self._handle,
                self._shared,
                stream,
                source,
                source.name not in repeated,
                partial(self.failed, stream.name),
            )
            for key, source in wanted.items()
        }

    def _place(self, stream: Stream, made: dict[str, Intake]) -> list[Intake]:
        """Those of a stream are these from now on, and the new ones begin. What ran before and is
        to end."""
        running = self._of.get(stream.name, {})
        begun = [intake for key, intake in made.items() if key not in running]
        ended = [intake for key, intake in running.items() if key not in made]
        if made:
            self._of[stream.name], self._streams[stream.name] = made, stream
        else:
            self._forget(stream.name)
        if begun:
            self._beginning.begin(self._begin(stream, begun))
            if self._keeper is None:
                self._keeper = asyncio.get_running_loop().create_task(self._keep())
        self._wake_waiting(stream.name)
        return ended

    async def _begin(self, stream: Stream, begun: list[Intake]) -> None:
        found = await _positions(self._shared, stream, begun)
        async for intake, position in spread(zip(begun, found, strict=True)):
            intake.start(position)

    def _wake_waiting(self, origin: str) -> None:
        """What waits for a stream of this account looks whether it is there now."""
        for intakes in self._of.values():
            for intake in intakes.values():
                if intake.source.external is None and intake.source.name == origin:
                    intake.wake()

    def end(self, stream: str, *, removed: bool) -> None:
        """Ends the intakes of a stream that stops; `removed`: for good, on other servers, too."""
        for intake in self._of.get(stream, {}).values():
            self._end(intake, removed)
        self._forget(stream)

    async def end_many(self, stream: str, *, removed: bool) -> None:
        """As `end`, for a stream that may have thousands of sources."""
        async for intake in spread(self._forget(stream).values()):
            self._end(intake, removed)

    def _forget(self, stream: str) -> dict[str, Intake]:
        self._streams.pop(stream, None)
        self._kept.pop(stream, None)
        return self._of.pop(stream, {})

    async def close(self) -> None:
        """Ends all, and writes down how far they came."""
        if self._keeper is not None:
            self._keeper.cancel()
        self._beginning.cancel()
        for intakes in self._of.values():
            for intake in intakes.values():
                self._end(intake, False)
        await self._write()
        for stream in list(self._of):
            self._forget(stream)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            await self._write()

    async def _write(self) -> None:
        """Writes down the positions of sources that are not what is written."""
        for name, stream in list(self._streams.items()):
            if await self._unwritten(name, stream) is None:
                continue
            async with self._lock(name):  # nobody takes its place, or opens it again, meanwhile
                now = await self._unwritten(name, stream)
                if now is None:
                    continue
                files = self._shared.files
                if await self._shared.run(positions.write, files, stream, now):
                    self._kept[name] = now.origins

    async def _unwritten(self, name: str, stream: Stream) -> Positions | None:
        """The positions of a stream's sources; None: nothing to write down. Nothing is written for
        a replicated stream, because its group may not agree on the last messages."""
        if self._streams.get(name) is not stream or stream.member is not None:
            return None
        if stream.config.mirror is not None or stream.directory is None:
            return None
        intakes = list(self._of[name].values())
        work = self._shared.compute if len(intakes) >= MANY else _at_once
        now = await work(_reached, stream, intakes)
        return now if now is not None and now.origins != self._kept.get(name, {}) else None

    def failed(self, name: str) -> None:
        """The disk, or the stream's group, may refuse messages that were taken in: all positions
        are read from the stream again once it is reopened, or leads again."""
        stream = self._streams.get(name)
        if stream is not None:
            self.end(name, removed=False)
            if stream.member is None or stream.member.leads():
                self.follow(stream)

    def broken(self, stream: str, id: int) -> None:
        """What the data plane took in has ended."""
        for intake in self._of.get(stream, {}).values():
            if intake.id == id:
                intake.wake()

    def info(self, stream: Stream) -> list[SourceInfo]:
        """Of a stream's mirror or sources. In any thread."""
        return [intake.info() for intake in list(self._of.get(stream.name, {}).values())]

    def _end(self, intake: Intake, removed: bool) -> None:
        intake.stop()
        if removed:
            intake.drop_consumer()


async def _at_once(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return function(*args, **kwargs)


def _reached(stream: Stream, intakes: list[Intake]) -> Positions | None:
    """How far these are in a stream; None: of one that is not known yet. In any thread."""
    try:
        last = stream.handle.state().last_seq  # first: what is behind it may count, too
    except StoreError:
        return None
    now: dict[str, int] = {}
    for intake in intakes:
        seq = intake.reached()
        if seq is None:
            return None
        now[intake.key] = seq
    return Positions(stream_seq=last, origins=now)


async def _positions(shared: Shared, stream: Stream, intakes: list[Intake]) -> list[int]:
    """How far the origins of sources were taken in, by what is stored and written down. A disk that
    fails is waited for."""
    told = ""
    while True:
        try:
            return await shared.run(_find, shared.files, stream, intakes)
        except StoreError as error:
            if str(error) != told:
                told = str(error)
                log.warning("Stream '%s': no sources are asked: %s", stream.name, told)
        await asyncio.sleep(BETWEEN_SECONDS)


def _find(files: MetaFiles, stream: Stream, intakes: list[Intake]) -> list[int]:
    with contextlib.suppress(StreamClosed):  # deleted meanwhile, and its intakes with it
        handle = stream.handle
        if stream.config.mirror is not None:
            handle.sourced([], 0)  # only whether it can be read
            return [0] * len(intakes)
        kept = positions.read(files, stream.directory)
        if kept.stream_seq > handle.state().last_seq:  # of messages that are lost
            kept = Positions()
        names = [intake.key for intake in intakes]
        behind = kept.stream_seq if all(name in kept.origins for name in names) else 0
        stored = handle.sourced([intake.parts for intake in intakes], behind)
        return [
            max(last, kept.origins.get(name, 0)) for last, name in zip(stored, names, strict=True)
        ]
    return [0] * len(intakes)
