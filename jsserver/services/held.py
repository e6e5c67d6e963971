"""Streams and consumers that the cluster assigns to this server: creates, changes and removes them
as the meta group decides, and answers for them where this server leads.

Lives in the event loop. Changes of a stream and of its consumers are carried out in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from jsserver.cext import replicas as NEWS
from jsserver.cluster import follow
from jsserver.cluster.answers import Asset
from jsserver.cluster.follow import Step
from jsserver.cluster.meta import Change, Name, Op, StreamAssignment, peers_of
from jsserver.instances import metafiles, recovery
from jsserver.instances.backend import StoreError
from jsserver.instances.loads import Loads
from jsserver.instances.running import Consumer, Stream
from jsserver.process.tasks import Tasks
from jsserver.services.anew import Anew
from jsserver.services.answering import Answering
from jsserver.services.answers import encoded
from jsserver.services.asking import Asking
from jsserver.services.changes import agreed, owed_for
from jsserver.services.membership import Duty, Member, Owes, owes
from jsserver.services.movers import Movers
from jsserver.services.refusals import Refusals
from jsserver.services.regrouping import Regrouping
from jsserver.services.replicas import Replicas, clear
from jsserver.services.restores import Restores, is_restored
from jsserver.services.settling import Settling
from jsserver.text.goformat import escape_json, quote
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.access.accounts import Accounts
    from jsserver.assets.assigned import StreamAssignment as Wanted
    from jsserver.cext.engine import Item
    from jsserver.cluster.meta import MetaState
    from jsserver.instances.account import Account
    from jsserver.process.logs import Logger
    from jsserver.services.jetstream import JetStream
    from jsserver.services.needed import Needed
    from jsserver.wire.types import StreamAlternate

PROPOSE = b"$NRG.P._meta_"
"""The subject on which members ask the meta leader to propose an entry."""
AGAIN_MIN, AGAIN_MAX = 5.0, 60.0
"""Seconds between requests to remove an inactive consumer; doubles with each request."""


class Held:
    """The assets that run on this server; replace() and follow() apply assignments."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        jetstream: JetStream,
        log: Logger,
        *,
        peer: str,
        cluster: Callable[[], str],
        needed: Needed,
    ) -> None:
        """`peer`: this server's id; `cluster`: the cluster's name; `needed`: fetches accounts."""
        self._system = accounts[system_account]
        self._dispatcher = jetstream.dispatcher
        self._shared = jetstream.shared
        self._log = log
        self._peer = peer
        self._cluster = cluster
        self._needed = needed
        self._state: MetaState | None = None
        """The meta group's; None: not known yet."""
        self._steps: dict[tuple[str, str], deque[Step]] = {}
        """Steps to take, by account and stream. The first one may be under way."""
        self._tasks = Tasks()
        self._asking: dict[tuple[str, str, str], asyncio.TimerHandle] = {}
        """Timers by consumer whose removal was asked for, and by stream to be reopened."""
        self._removed: dict[tuple[str, str], Change] = {}
        """Streams that entries of an earlier life have removed."""
        self.asking = Asking(self._system, peer)
        """Asks other servers before this one answers."""
        self._closed = False
        self._loads = Loads()
        self.answering = Answering(accounts, system_account, self._dispatcher)
        """Answers requests."""
        self.replicas = Replicas(peer, cluster)
        """The members of replicated assets."""
        self._regrouping = Regrouping(self.replicas, peer)
        self._anew = Anew(log, self.asset, self._open_again)
        self._settling = Settling(
            self._dispatcher,
            self._shared,
            self.answering,
            self.asking,
            tasks=self._tasks,
        )
        self.movers = Movers(self._system, peer, cluster, self.replicas, self._ask, self.asset)
        self.placed = self.replicas.placed
        self.refusals = Refusals(self._system)
        """Reports failures to the meta leader."""
        self.restores = Restores(
            peer,
            self._dispatcher,
            self.replicas,
            self.refusals,
            state=lambda: self._state,
            ask=self._ask,
            answer=self._settling.answer,
            done=self._opened,
        )
        self.propose: Callable[[bytes], bool] = lambda entry: False
        """Proposes an entry, if this server is the meta leader."""

    @property
    def cluster(self) -> str:
        """The cluster's present name."""
        return self._cluster()

    async def close(self) -> None:
        """Finishes the steps under way, and closes all members."""
        self._closed = True
        self.movers.close()
        for timer in self._asking.values():
            timer.cancel()
        await self.restores.close()
        await self._tasks.under_way()
        await self.replicas.close_all()

    # ---- assignments

    def skip(self, changes: Iterable[Change]) -> None:
        """Notes the removals among replayed entries; replace() follows when the replay is over."""
        for change in changes:
            if not change.consumer and change.removes:
                self._removed[change.account, change.stream] = change

    def replace(self, state: MetaState) -> None:
        """Follows the whole state: any assignment may have changed."""
        self._state = state
        self.movers.follow(state)
        for name in self._dispatcher.accounts:
            self.serve(name)
        for name in filter(self._has_any, state.streams.keys() - self._dispatcher.accounts.keys()):
            self._needed.want(name, self._has_any)
        for (account, name), change in self._removed.items():
            if name not in state.streams.get(account, {}):
                self._put(account, name, Step(None, change=change._replace(reply="")))
        self._removed.clear()

    def serve(self, account: str) -> None:
        """Runs what is assigned of an account, once the account has JetStream."""
        running = self._dispatcher.accounts.get(account)
        if self._state is None or running is None:
            return
        if running.instances.groups is None:
            running.instances.groups = self.replicas.of(account)
        mine = {
            name: stream
            for name, stream in self._state.streams.get(account, {}).items()
            if self._peer in peers_of(stream.said)
        }
        for name in {*running.streams} - mine.keys():
            self._put(account, name, Step(None))
        self._tasks.begin(self._shared.run(recovery.tell_unassigned, running, mine.keys()))
        for name, stream in mine.items():
            self._put(account, name, Step(stream.said, consumers=self._own(stream)))
            for consumer in self._own(stream):
                self._put(account, name, Step(stream.consumers[consumer], consumer))

    def follow(self, state: MetaState, changes: Iterable[Change]) -> None:
        """Follows these changes of the state."""
        self._state = state
        self.movers.follow(state)
        for change in changes:
            account, name = change.account, change.stream
            stream = state.streams.get(account, {}).get(name)
            said = change.said
            if change.removes:
                said = None
                if self._peer not in peers_of(change.said or {}):
                    continue
            elif said is None or self._peer not in peers_of(said):
                said = None
                if not self._runs(account, name, change.consumer):
                    continue
            # An entry that comes at the same time may have removed the stream again.
            consumers = self._running(account, name) if stream is None else self._own(stream)
            self._put(account, name, Step(said, change.consumer, change, consumers))

    def _own(self, stream: StreamAssignment) -> frozenset[str]:
        known = stream.consumers.items()
        return frozenset(name for name, said in known if self._peer in peers_of(said))

    def _running(self, account: str, stream: str) -> frozenset[str]:
        """The consumers that run here."""
        found = self._stream(Name(account, stream))
        return frozenset() if found is None else frozenset(found[1].consumers)

    def _runs(self, account: str, stream: str, consumer: str) -> bool:
        """Whether an asset runs here or is about to."""
        return (account, stream) in self._steps or self.asset(account, stream, consumer) is not None

    def asset(self, account: str, stream: str, consumer: str = "") -> Stream | Consumer | None:
        """The stream, or with `consumer` the consumer, that runs here; None: it does not."""
        found = self._stream(Name(account, stream))
        if found is None or not consumer:
            return None if found is None else found[1]
        return found[1].consumers.get(consumer)

    def _stream(self, asset: Name) -> tuple[Account, Stream] | None:
        """The stream of an asset that runs here, and its account; None: it does not."""
        account = self._dispatcher.accounts.get(asset.account)
        stream = None if account is None else account.streams.get(asset.stream)
        return None if account is None or stream is None else (account, stream)

    def seen(self, account: str, stream: str, consumer: str = "") -> Asset | None:
        """The asset's role on this server; None: it does not run here."""
        found = self.asset(account, stream, consumer)
        if found is None:
            return Asset.LEADS if self.restores.has(Name(account, stream)) else None
        return found.member.seen() if isinstance(found.member, Member) else Asset.LEADS

    def leads(self, account: str, stream: str, consumer: str = "") -> bool:
        """Whether this server leads the asset; an asset with one replica is always led."""
        return self.seen(account, stream, consumer) in (Asset.LEADS, Asset.BEGAN)

    def _put(self, account: str, stream: str, step: Step) -> None:
        if self._closed:
            return
        steps = self._steps.get((account, stream))
        if steps is not None:
            steps.append(step)
            return
        self._steps[account, stream] = deque([step])
        self._tasks.begin(self._work(account, stream))

    async def _work(self, account: str, name: str) -> None:
        steps = self._steps[account, name]
        while steps and not self._closed:
            running = await self._account(account, name, steps[0])
            if running is not None:
                await self._take(running, name, steps[0])
            steps.popleft()
        del self._steps[account, name]

    async def _account(self, account: str, name: str, step: Step) -> Account | None:
        """The account, fetched if it is not loaded; None: it cannot be had."""
        if self._needed.lacks(account) and not await self._needed.bring(account):
            if step.said is not None:
                self._failed(account, name, step, errcodes.NO_ACCOUNT())
            self._needed.want(account, self._has_any)
        return self._dispatcher.accounts.get(account)

    def _has_any(self, account: str) -> bool:
        """Whether streams of the account are assigned to this server."""
        found = {} if self._state is None else self._state.streams.get(account, {})
        return any(self._peer in peers_of(stream.said) for stream in found.values())

    async def _take(self, account: Account, name: str, step: Step) -> None:
        lock = account.lock(name)
        if step.consumer:
            lock = account.consumer_lock(name, step.consumer)
        try:
            running = self.asset(account.name, name, step.consumer)
            await self._regrouping.hand_on(step.change, running)
            async with lock:
                if step.consumer:
                    await self._follow_consumer(account, name, step)
                else:
                    await self._follow_stream(account, name, step)
        except (ApiError, StoreError, OSError) as error:
            self._failed(account.name, name, step, error)
        except Exception as error:  # the next steps are taken all the same
            self._log.error(f"Error following the assignment of stream {quote(name)}: {error!r}")
            self._anew.failed(Name(account.name, name, step.consumer), step)

    # ---- streams

    async def _follow_stream(self, account: Account, name: str, step: Step) -> None:
        wanted = follow.runs(step.said)
        running = account.streams.get(name)
        asset = Name(account.name, name)
        if step.anew and running is not None:
            await account.leave_stream(running)
            if step.empty:
                await self._begin_empty(account, running)
            running = None
        owed, gone = self._owes(running, step), owed_for(account.name, running)
        if wanted is None:
            self.restores.end(asset)
            removed = step.change is not None and step.change.removes
            if running is None and removed:
                running = await self._find_removed(account, name, step)
            if running is not None and removed:
                await self._settling.settle_last(account, running, asset, owed)
                await account.assign_stream(name, None)
                for one, owed_of_one in gone:
                    self._settling.tell_gone(one, owed_of_one, step.change)
            elif running is not None and step.change is not None:
                # other servers hold the stream now
                await account.intakes.end_many(name, removed=False)
                await account.assign_stream(name, None)
            elif running is not None:
                await self._put_aside(account, running)
            if step.change is not None and removed:
                self._settling.settle_removal(owed, step.change, told=running is not None)
            return
        assert step.said is not None
        if self.restores.is_under_way(asset, wanted.created):
            return
        self.replicas.say(asset, step.said, self._regrouping.begins(step.change, step.said))
        if running is None:
            self._say_consumers(asset)
            running = await self._load(account, name, wanted)
            if running is None and await self.restores.begin(account, wanted, step.change):
                return
        elif running.created != wanted.created:
            await account.assign_stream(name, None)
            running = None
        else:
            await self._regrouping.stream(account, running)
        if running is None or running.config != wanted.config:
            after = wanted if running is None else running.assignment.updated(wanted.config)
            await account.assign_stream(name, after)
        stream = account.streams[name]
        for consumer in {*stream.listed} - step.consumers - self.restores.awaited(asset):
            await account.assign_consumer(stream, consumer, None)
        owed = owes(stream)
        if owed.leads:
            made = running is None
            await self._settling.tell_stream(owed, account, stream, step.change, made=made)
        elif step.change is not None and not is_restored(step.change):
            self._settling.wait(owed, asset, step.change)
        self._opened(account, stream)

    async def _load(self, account: Account, name: str, wanted: Wanted) -> Stream | None:
        """Loads the stream from disk; None: there is none. ApiError if it is there and cannot
        run."""
        directory, asset = account.directory, Name(account.name, name)
        if directory is not None and self.replicas.is_half_restored(asset):
            await self._shared.run(metafiles.erase, directory / name)
            await self._shared.run(self.replicas.forget, asset)
        if directory is None or not (directory / name).is_dir():
            return None
        found = await self._loads.load(account, name)
        if isinstance(found, str):
            self._log.error(f"Stream '{account.name} > {name}' is offline: {found}")
            account.offline[name] = found
            raise errcodes.STREAM_OFFLINE_REASON(err=found)
        account.offline.pop(name, None)
        if found.created == wanted.created:
            account.adopt(found)
            return found
        await self._shared.run(account.instances.close, found)
        await self._shared.run(recovery.set_aside, account, name)
        return None

    async def _find_removed(self, account: Account, name: str, step: Step) -> Stream | None:
        """The stream on disk that was removed while this server was down; None: there is none."""
        said = None if step.change is None else step.change.said
        wanted = follow.runs(said)
        if said is None or wanted is None:
            return None
        self.replicas.say(Name(account.name, name), said)
        return await self._load(account, name, wanted)

    async def _begin_empty(self, account: Account, running: Stream) -> None:
        """Before a closed stream is opened with nothing: what it has is put aside."""
        if running.directory is not None:
            why = "differs from the other replicas, and is built anew"
            await self._shared.run(recovery.set_aside, account, running.name, why)
        await self._shared.run(clear, running)

    async def _put_aside(self, account: Account, running: Stream) -> None:
        """Moves aside a stream that is not assigned, though no entry is known to have removed
        it."""
        name, directory = running.name, running.directory
        await account.leave_stream(running)
        await self._shared.run(clear, running)
        if directory is not None:
            await self._shared.run(recovery.set_aside, account, name)

    # ---- consumers

    async def _follow_consumer(self, account: Account, name: str, step: Step) -> None:
        stream = account.streams.get(name)
        change, consumer = step.change, step.consumer
        running = None if stream is None else stream.consumers.get(consumer)
        wanted = follow.runs_consumer(step.said)
        asset = Name(account.name, name, consumer)
        owed = self._owes(running, step)
        stays = running is not None and wanted is not None and wanted.created == running.created
        gone = False
        if stream is not None and running is not None and not stays:
            await self._settling.settle_last(account, stream, asset, owed)
            await account.assign_consumer(stream, consumer, None)
            removed = change is not None and change.removes
            if not removed and (change is None or wanted is not None):
                self._settling.tell_gone(asset, owed, change)
            gone, running = True, None
        if wanted is None:
            if change is not None and change.removes:
                self._settling.settle_removal(owed, change, told=gone)
            return
        if stream is None:
            return  # creating the stream failed, which was reported
        assert step.said is not None
        self.replicas.say(asset, step.said, self._regrouping.begins(step.change, step.said))
        if running is not None:
            await self._regrouping.consumer(account, asset, running)
        before = None if running is None else running.config.pause_until
        if running is None or running.assignment != wanted:
            await account.assign_consumer(stream, consumer, wanted)
        now = stream.consumers[consumer]
        owed = owes(now)
        if owed.leads:
            self._settling.tell_consumer(owed, account, stream, now, change, before)
        elif change is not None:
            self._settling.wait(owed, asset, change, before)
        now.handle.begin()
        self._opened(account, stream)

    def _owes(self, running: Stream | Consumer | None, step: Step) -> Owes:
        """What this server owes before the step. Of an asset that does not run here, other servers
        may have answered all the same."""
        said = None if step.change is None else step.change.said
        if running is not None or said is None:
            return owes(running)
        return Owes(Duty.DOUBT, others=lambda: self.replicas.others(said))

    def _assigned(self, account: str, stream: str) -> StreamAssignment | None:
        return None if self._state is None else self._state.streams.get(account, {}).get(stream)

    def consumers_of(self, account: str, stream: str) -> int:
        """How many consumers a stream has on all servers."""
        found = self._assigned(account, stream)
        return 0 if found is None else len(found.consumers)

    def alternates_of(self, account: str, stream: str, near: str) -> list[StreamAlternate]:
        """A stream and its mirrors, those in the cluster `near` first; none without a mirror."""
        found = [] if self._state is None else self._state.alternates(account, stream)
        for one in found:
            one.domain = self._shared.settings.domain
        return sorted(found, key=lambda one: one.cluster != near)

    def remove_consumer(self, account: str, stream: str, consumer: str) -> None:
        """Asks the meta group to remove a consumer that was inactive too long, until it is gone."""
        self._ask_removal((account, stream, consumer), AGAIN_MIN)

    def _ask_removal(self, asset: tuple[str, str, str], pause: float) -> None:
        self._asking.pop(asset, None)
        found = self._assigned(*asset[:2])
        said = None if found is None else found.consumers.get(asset[2])
        if said is None or self._closed or not self.leads(*asset):
            return
        self._ask(bytes([Op.REMOVE_CONSUMER]) + escape_json(msgspec.json.encode(said)))
        timer = asyncio.get_running_loop().call_later
        self._asking[asset] = timer(pause, self._ask_removal, asset, min(pause * 2, AGAIN_MAX))

    def _ask(self, entry: bytes) -> None:
        """Has the meta leader propose an entry."""
        if not self.propose(entry):
            self._system.publish(PROPOSE, b"", b"", entry)

    # ---- members of groups

    def _say_consumers(self, asset: Name) -> None:
        """Prepares the groups of a stream's consumers before the stream is opened with them."""
        if (stream := self._assigned(asset.account, asset.stream)) is not None:
            for consumer in self._own(stream):
                self.replicas.say(asset._replace(consumer=consumer), stream.consumers[consumer])

    def _opened(self, account: Account, stream: Stream) -> None:
        """Notes an opened asset. A stream may remove messages once all its consumers are open."""
        member = stream.member
        if not isinstance(member, Member):
            return
        of_consumers = [consumer.member for consumer in stream.consumers.values()]
        for one in (*of_consumers, member):
            if isinstance(one, Member):
                self._look(account, stream, one.name)
                self._anew.look(one)
        said = self._assigned(account.name, stream.name)
        own = None if said is None else self._own(said) | self.restores.awaited(member.name)
        if not member.served and own is not None and own <= stream.consumers.keys():
            member.served = True
            member.handle.serve()

    def told(self, item: Item) -> None:
        """An INBOX_REPLICA."""
        _, number, what = item.numbers[:3]
        member = self.replicas.member(number)
        if member is None:
            return
        found = self._stream(member.name)
        if found is None:
            return  # the stream is being opened, and looks for news when it is open
        account, stream = found
        match what:
            case NEWS.NEWS_ROLE:
                self._look(account, stream, member.name)
            case NEWS.NEWS_JOINED:
                self.replicas.joined(member)
            case NEWS.NEWS_PURGED | NEWS.NEWS_DELETED | NEWS.NEWS_RESET:
                self._agreed(member, stream, item)
            case NEWS.NEWS_FAILED | NEWS.NEWS_DIVERGED:
                self._anew.look(member)

    def _agreed(self, member: Member, stream: Stream, item: Item) -> None:
        """What was asked for on this server, or by who led before, is done."""
        what, value = item.numbers[2:4]
        reply = item.texts[0].decode("utf-8", "surrogateescape")
        if not member.leads() and not self.answering.expects(reply):
            return
        now = stream.consumers.get(member.name.consumer)
        answer = agreed(self._shared, stream, now, what, value)
        self.answering.settle(reply, encoded(answer), refused=answer.error is not None)

    def _open_again(self, asset: Name, empty: bool) -> None:
        """Opens a stream with its consumers, or one of these; `empty`: with nothing."""
        account, name, consumer = asset
        found = self._assigned(account, name)
        if found is None or self._peer not in peers_of(found.said):
            return
        own = self._own(found)
        if not consumer:
            self._put(account, name, Step(found.said, consumers=own, anew=True, empty=empty))
        elif empty:
            self._put(account, name, Step(None, consumer))
        for one in own & {consumer} if consumer else own:
            self._put(account, name, Step(found.consumers[one], one, anew=True))

    def rebuild(self, asset: Name) -> str:
        """Has a stream's replica built anew from what the others hold, and what it has put aside;
        why that cannot be, "" where it is begun."""
        found = self._stream(asset)
        member = None if found is None else found[1].member
        if not isinstance(member, Member):
            return f"stream '{asset}' has no replica here that others have, too"
        if member.leads():
            return f"this server leads stream '{asset}'"
        if not member.leader:
            return f"stream '{asset}' has no leader"
        self._open_again(asset, True)
        return ""

    def _look(self, account: Account, stream: Stream, asset: Name) -> None:
        """Notices that an asset's leader has changed."""
        now = stream.consumers.get(asset.consumer) if asset.consumer else stream
        member = None if now is None else now.member
        if not isinstance(member, Member):
            return
        changed = self.replicas.look(member)
        if not changed and not self._settling.waits(asset):
            return
        leads = member.leads()
        if self.replicas.is_rescued(member) and (found := self._assigned(*asset[:2])) is not None:
            said = found.consumers.get(asset.consumer) if asset.consumer else found.said
            self._put(*asset[:2], Step(said, asset.consumer, consumers=self._own(found)))
        if changed and not asset.consumer:
            self._start_intakes(account, stream, leads)
        if leads and self._settling.waits(asset):
            self._tasks.begin(self._settling.settle_waiting(account, stream, asset, owes(now)))
        elif not leads and member.leader not in ("", self._peer):
            self._settling.led_by(asset, member.leader)

    def _start_intakes(self, account: Account, stream: Stream, leads: bool) -> None:
        if stream.config.mirror is None and not stream.config.sources:
            return
        intakes = account.intakes
        if leads:
            self._tasks.begin(intakes.follow_many(stream))
        else:
            self._tasks.begin(intakes.end_many(stream.name, removed=False))

    def _failed(self, account: str, name: str, step: Step, error: Exception) -> None:
        """Reports a failure to the meta leader, which tells the requester."""
        asset = Name(account, name, step.consumer)
        self._log.error(f"Error following the assignment of '{asset}': {error}")
        self._anew.failed(asset, step)
        change = step.change
        if change is None or change.removes or not change.reply:
            return
        self.refusals.of_change(asset, change, error)
