"""What the meta leader does with requests: it proposes entries to the meta group, and answers.

No clock or network: the time, random names and facts about members are handed in. A change is
checked against all that is assigned or proposed. An asset's members answer when they have carried
a change out; where none of them is online, the leader answers when the entry is agreed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from jsserver.api.responses import TYPE_PREFIX, AccountInfo, Response, SuccessResponse
from jsserver.assets import streams
from jsserver.assets.changes import (
    Asked as AskedStream,
)
from jsserver.assets.changes import (
    ConsumerChange,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    StreamChange,
    UpdateStream,
)
from jsserver.assets.limits import ServerSettings
from jsserver.cluster import desired, proposals, wishes
from jsserver.cluster.account_info import account_info
from jsserver.cluster.judge import Decision, Judge, Undone
from jsserver.cluster.meta import Change, MetaState, Op, created_at, group_of, peers_of
from jsserver.cluster.moves import Members, MoveRequest, Moves, Regrouped, clusters_for
from jsserver.cluster.proposals import Asked, Said
from jsserver.text.goformat import SECOND, escape_json
from jsserver.text.identity import short_hash
from jsserver.wire import decode, errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import (
    Placement,
    RestoreRequest,
    StorageRequest,
    StreamConfig,
    StreamConfigRequest,
    StreamStateInfo,
)

YOUNG = 5 * SECOND
"""Age in ns up to which an asset is removed again if its members fail to create it."""
_NOT_UNDERSTOOD = (
    errcodes.STREAM_OFFLINE_REASON.err_code,
    errcodes.CONSUMER_OFFLINE_REASON.err_code,
)
"""Errors for an asset that needs a newer version of this server."""
RESULTS_KEPT = 1024
"""How many assets the leader remembers, to pass on the errors of their members."""


class Told(NamedTuple):
    """An answer as JSON, and the subject it goes to."""

    reply: str
    body: bytes
    refused: bool = False


class _Waiting(NamedTuple):
    """The answer to a proposal, until the proposal is agreed on."""

    reply: str
    answer: Response
    peers: list[str] | None
    """The members that answer if any of them is online; None: the leader always answers."""


class _Made(NamedTuple):
    """An asset whose creation or update was agreed on lately."""

    said: Said
    reply: str
    at: int
    new: bool

    def is_young(self, now: int) -> bool:
        """Whether the asset goes if its members fail to create it: a restored one at any age."""
        return self.new and (now - self.at < YOUNG or "restore_state" in self.said)


class Leader:
    """The meta leader's state, from its election until it loses the lead."""

    def __init__(
        self,
        state: MetaState,
        members: Members,
        settings: ServerSettings,
        *,
        now: Callable[[], int],
        token: Callable[[int], str],
    ) -> None:
        """`state`: the meta group's, which the caller keeps up to date; `now`: ns since the epoch;
        `token`: returns so many random characters."""
        self._state = state
        self._members = members
        self._settings = settings
        self._now = now
        self._token = token
        self.moves = Moves(state, members, now, token)
        self._judges: dict[str, Judge] = {}
        self._waiting: dict[bytes, _Waiting] = {}
        self._made: dict[tuple[str, str, str], _Made] = {}

    def take_over(self, before: Leader) -> None:
        """Answers what an earlier lead of this server has proposed, too."""
        self._waiting = before._waiting

    # ---- requests

    def handle(self, name: str, asked: Asked, info: Said | None = None) -> list[bytes]:
        """The entries to propose for the request `name`, in order; ApiError. `info`: the answer to
        the INFO request that `Moves.asks` wants; None: there was none."""
        match name:
            case "STREAM.CREATE":
                return [self._create(asked)]
            case "STREAM.UPDATE":
                return self._update(asked, info)
            case "STREAM.DELETE":
                return [self._delete(asked)]
            case "STREAM.RESTORE":
                return [self._restore(asked)]
            case "CONSUMER.CREATE":
                return [self._put_consumer(asked, info, durable=False)]
            case "CONSUMER.DURABLE.CREATE":
                return [self._put_consumer(asked, info, durable=True)]
            case "CONSUMER.DELETE":
                return [self._delete_consumer(asked)]
            case "CONSUMER.PAUSE":
                return [self._pause(asked)]
            case "ACCOUNT.STREAM.MOVE":
                return self._move(asked, info)
            case "STREAM.CANCEL_MOVE":
                return self._cancel(asked)
            case "ACCOUNT.STREAM.CANCEL_MOVE":
                return self._cancel_move(asked)
        raise errcodes.CLUSTER_UN_SUPPORT_FEATURE()

    def info(self, account: str) -> AccountInfo:
        """INFO: what the account uses, reserves and may use; ApiError."""
        assets, used = self.judge(account).assets, self._members.usage(account)
        return account_info(assets, used, self._settings.domain)

    def judge(self, account: str) -> Judge:
        """The judge of an account; ApiError where the account has no JetStream."""
        limits = self._members.limits(account)
        if limits is None:
            self._judges.pop(account, None)
            raise errcodes.NOT_ENABLED_FOR_ACCOUNT()
        found = self._judges.get(account)
        if found is not None:
            found.limit(limits)
        else:
            found = self._judges[account] = Judge(account, self._state, limits, self._settings)
        return found

    # ---- streams

    def _create(self, asked: Asked) -> bytes:
        judge, name = self.judge(asked.account), asked.args[0]
        request = decode.decode(asked.body, StreamConfigRequest, self._settings.strict)
        change = self._asked_for(asked, request)
        decision = judge.decide(change)
        if not decision.is_open:
            there = judge.said(name)
            if there is None:
                raise errcodes.STREAM_NOT_FOUND()
            said = proposals.answered(there, asked)
            return proposals.entry(Op.ASSIGN_STREAM, said)
        return self._new_stream(judge, change, decision, asked)

    def _new_stream(
        self,
        judge: Judge,
        change: CreateStream,
        decision: Decision,
        asked: Asked,
        restored: StreamStateInfo | None = None,
    ) -> bytes:
        """`restored`: the stream's state in the backup, if the stream is restored from one."""
        with Undone(judge, decision):
            cluster, peers = self._members.place(change.config, clusters_for(change.config, asked))
        storage = change.config.storage
        of = proposals.group("S", peers, storage, cluster, self._token(8))
        made = proposals.stream(change.config, change.created, of, self._token(8))
        said = proposals.answered(made, asked)
        if restored is not None:
            state = msgspec.to_builtins(restored)  # nats-server reads no time that is empty
            said["restore_state"] = {key: value for key, value in state.items() if value != ""}
        return self._propose(judge, Op.ASSIGN_STREAM, said, change, decision)

    def _restore(self, asked: Asked) -> bytes:
        judge, name = self.judge(asked.account), asked.args[0]
        if decode.is_empty(asked.body):
            raise errcodes.BAD_REQUEST()
        request = decode.decode(asked.body, RestoreRequest, self._settings.strict)
        if not request.config.name:
            request.config.name = name
        judge.assets.check_names(name, request.config)
        config = streams.normalise(request.config, self._terms(asked.account, pedantic=False))
        judge.assets.check_restore(config)
        if judge.said(name) is not None:
            raise errcodes.STREAM_NAME_EXIST_RESTORE_FAILED()
        change = CreateStream(config, self._now())
        return self._new_stream(judge, change, judge.decide(change), asked, request.state)

    def _asked_for(self, asked: Asked, request: StreamConfigRequest) -> CreateStream:
        name, now = asked.args[0], self._now()
        try:
            config = streams.normalise(request, self._terms(asked.account, request.pedantic))
        except ApiError as error:
            named = decode.decode(asked.body, StorageRequest, strict=False).storage
            return CreateStream(request, now, AskedStream(name, error, bool(named)))
        return CreateStream(config, now, AskedStream(name))

    def _terms(self, account: str, pedantic: bool) -> streams.Terms:
        assets = self.judge(account).assets
        return streams.Terms(self._settings, assets.claims.limits, pedantic, assets.config_of)

    def _update(self, asked: Asked, info: Said | None) -> list[bytes]:
        judge, name = self.judge(asked.account), asked.args[0]
        request = decode.decode(asked.body, StreamConfigRequest, self._settings.strict)
        config = streams.normalise(request, self._terms(asked.account, request.pedantic))
        if name != config.name:
            raise errcodes.STREAM_MISMATCH()
        return self._updated(judge, config, asked, info)

    def _updated(
        self,
        judge: Judge,
        config: StreamConfig,
        asked: Asked,
        info: Said | None,
        peers: list[str] | None = None,
    ) -> list[bytes]:
        """`peers`: the members from now on, while a move lasts old and new; None: the configuration
        decides."""
        change = UpdateStream(config)
        decision = judge.decide(change)
        there = judge.said(config.name)
        assert decision.before is not None and decision.after is not None and there is not None
        with Undone(judge, decision):
            old, new = decision.before.config, decision.after.config
            known = judge.known(config.name)
            held = [] if known is None else [*known.consumers.values()]
            wanted = Regrouped(there, held, old, new, peers)
            said, consumers = self.moves.regroup(wanted, asked, info)
        said = proposals.answered(proposals.changed(said, "stream", new), asked)
        first = self._propose(judge, Op.UPDATE_STREAM, said, change, decision)
        return [first, *self.regrouped(judge, [(Op.ASSIGN_CONSUMER, one) for one in consumers])]

    def regrouped(self, judge: Judge, made: list[tuple[Op, Said]]) -> list[bytes]:
        """Entries that give assets other members."""
        entries = []
        for op, said in made:
            without = {k: v for k, v in said.items() if k not in ("subject", "reply")}
            entries.append(proposals.entry(op, without))
            judge.regrouped(entries[-1], without)
        return entries

    def remove_peer(self, account: str, stream: str, peer: str) -> tuple[list[bytes], bool]:
        """The entries that remove a member from a stream, and whether another member replaces it;
        ApiError where `peer` is not a member of the stream."""
        judge = self.judge(account)
        there = judge.known(stream)
        if there is None:
            raise errcodes.STREAM_NOT_FOUND()
        made, replaced = self.moves.without(there, peer)
        return self.regrouped(judge, made), replaced

    def evacuate(self, account: str, stream: str, peer: str) -> list[bytes]:
        """The entries that move a stream off a server; ApiError where that cannot be."""
        judge = self.judge(account)
        there = judge.known(stream)
        if there is None:
            raise errcodes.STREAM_NOT_FOUND()
        return self.regrouped(judge, self.moves.evacuated(there, peer))

    def consumer_off(
        self, account: str, stream: str, consumer: str, peer: str, *, at_once: bool
    ) -> list[bytes]:
        """The entries by which a consumer leaves a server; ApiError where that cannot be.
        `at_once`: it does not wait until another server has all."""
        judge = self.judge(account)
        there = judge.known(stream)
        if there is None:
            raise errcodes.STREAM_NOT_FOUND()
        if consumer not in there.consumers:
            raise errcodes.CONSUMER_NOT_FOUND()
        made = self.moves.consumer_off(there, consumer, peer, at_once=at_once)
        return self.regrouped(judge, made)

    def evacuate_all(self, peer: str) -> list[bytes]:
        """The entries that move all streams off a server that other servers can take."""
        return self._of_all(lambda account, name: self.evacuate(account, name, peer))

    def left(self, peer: str) -> list[bytes]:
        """The entries that move all assets off a server that was removed from the cluster."""
        return self._of_all(lambda account, name: self.remove_peer(account, name, peer)[0])

    def _of_all(self, of_one: Callable[[str, str], list[bytes]]) -> list[bytes]:
        entries: list[bytes] = []
        for account, name, _ in self._state:
            with suppress(ApiError):  # the server does not hold it, or no other one can
                entries += of_one(account, name)
        return entries

    def joined(self, peer: str) -> list[bytes]:
        """The entries that give a new server the streams that lack a member."""
        entries: list[bytes] = []
        for account, name, _ in self._state:
            with suppress(ApiError):  # the account has no JetStream any more
                judge = self.judge(account)
                there = judge.known(name)
                if there is not None:
                    entries += self.regrouped(judge, self.moves.with_one_more(there, peer))
        return entries

    # ---- moves that the system account asks for

    def _movable(self, asked: Asked) -> tuple[Judge, StreamConfig, list[str], Asked]:
        account, name = asked.args[:2]
        if self._members.limits(account) is None:
            raise errcodes.NO_ACCOUNT()
        judge = self.judge(account)
        there, config = judge.said(name), judge.assets.config_of(name)
        if there is None or config is None:
            raise errcodes.STREAM_NOT_FOUND()
        cluster = str(group_of(there).get("cluster", ""))
        client = {**asked.client, "acc": account, "cluster": cluster}
        return judge, config, peers_of(there), asked._replace(account=account, client=client)

    def _move(self, asked: Asked, info: Said | None) -> list[bytes]:
        request = MoveRequest()
        if not decode.is_empty(asked.body):
            request = decode.decode(asked.body, MoveRequest, strict=True)
        judge, config, peers, asked = self._movable(asked)
        if request.server:
            source = short_hash(request.server)
            if self._members.tags_of(source) is None:
                raise errcodes.CLUSTER_SERVER_NOT_MEMBER()
            if source not in peers:
                raise errcodes.CLUSTER_PEER_NOT_MEMBER()
            peers = [source, *(peer for peer in peers if peer != source)]
        peers = self.moves.to(config, peers, request.tags, asked.cluster)
        return self._updated(judge, config, asked, info, peers)

    def _cancel_move(self, asked: Asked) -> list[bytes]:
        """ACCOUNT.STREAM.CANCEL_MOVE."""
        judge, config, peers, asked = self._movable(asked)
        there = judge.said(config.name)
        assert there is not None
        if self.moves.wishes(there):
            return self._take_back(judge, config, there, asked)
        if len(peers) <= config.num_replicas:
            raise errcodes.STREAM_MOVE_NOT_IN_PROGRESS()
        peers = peers[: config.num_replicas]
        placement = config.placement
        wanted = {tag.lower() for tag in placement.tags} if placement is not None else set()
        if any(wanted - {*(self._members.tags_of(peer) or ())} for peer in peers):
            config = msgspec.structs.replace(config, placement=None)
        return self._updated(judge, config, asked, None, peers)

    def _cancel(self, asked: Asked) -> list[bytes]:
        """STREAM.CANCEL_MOVE, of nats-server 2.15: also cancels that a stream gets more members or
        fewer, where that is done by a wish."""
        there = self.judge(asked.account).said(asked.args[0])
        if there is not None and not desired.goes_back_to(there):
            raise desired.NO_RECONFIGURE()
        return self._cancel_move(asked._replace(args=(asked.account, *asked.args)))

    def _take_back(
        self, judge: Judge, config: StreamConfig, there: Said, asked: Asked
    ) -> list[bytes]:
        """The entry by which a stream gets the members and the configuration that it had before
        its members began to change; ApiError where they do not change."""
        before = desired.goes_back_to(there)
        if not before:
            raise desired.NO_RECONFIGURE()
        placement = before.get("placement")
        config = msgspec.structs.replace(
            config,
            num_replicas=int(before.get("replicas") or 1),
            placement=None if placement is None else msgspec.convert(placement, Placement),
            retention=before.get("retention") or config.retention,
        )
        change = UpdateStream(config)
        decision = judge.decide(change)
        assert decision.after is not None
        said = desired.taken_back(there, self.moves.terms)
        said = proposals.changed(said, "stream", decision.after.config)
        said = proposals.answered(said, asked)
        return [self._propose(judge, Op.UPDATE_STREAM, said, change, decision)]

    def _delete(self, asked: Asked) -> bytes:
        if not decode.is_empty(asked.body):
            raise errcodes.NOT_EMPTY_REQUEST()
        judge, name = self.judge(asked.account), asked.args[0]
        there = judge.said(name)
        if there is None:
            raise errcodes.STREAM_NOT_FOUND()
        said = proposals.answered({**there, "sync": ""}, asked)
        done = SuccessResponse(type=f"{TYPE_PREFIX}stream_delete_response", success=True)
        return self._remove(judge, Op.REMOVE_STREAM, said, DeleteStream(name), done)

    def _remove(
        self,
        judge: Judge,
        op: Op,
        said: Said,
        change: StreamChange | ConsumerChange,
        done: Response,
    ) -> bytes:
        """The entry that removes an asset, even one that this version does not understand."""
        entry = proposals.entry(op, said)
        try:
            decision = judge.decide(change)
        except ApiError as error:
            if error.err_code not in _NOT_UNDERSTOOD:
                raise
        else:
            judge.proposed(entry, change, decision, said)
        self._waiting[entry] = _Waiting(said["reply"], done, peers_of(said))
        return entry

    def purged(self, account: str) -> list[bytes]:
        """The entries that remove all streams of an account, and their consumers with them."""
        entries = []
        for stream in self._state.streams.get(account, {}).values():
            entries.append(proposals.entry(Op.REMOVE_STREAM, {**stream.said, "sync": ""}))
        return entries

    # ---- consumers

    def _put_consumer(self, asked: Asked, info: Said | None, *, durable: bool) -> bytes:
        judge = self.judge(asked.account)
        change = wishes.consumer(
            asked,
            judge.assets,
            self._settings,
            durable=durable,
            now=self._now(),
            token=self._token,
            heard=lambda subject: self._members.heard(asked.account, subject),
        )
        decision = judge.decide(change)
        after = decision.after
        assert after is not None
        known = judge.known(change.stream)  # includes consumers whose new members are only proposed
        there = None if known is None else known.consumers.get(change.name)
        if there is None:
            with Undone(judge, decision):
                of_stream = judge.said(change.stream)
                assert of_stream is not None
                peers = self.moves.places(of_stream, change.config)
            in_memory = change.config.mem_storage or decision.stream.config.storage == "memory"
            storage = "memory" if in_memory else "file"
            of = proposals.group("C", peers, storage, asked.cluster, self._token(8))
            name = change.name
            there = proposals.consumer(name, change.stream, after.stored, after.created, of)
        elif decision.is_open:
            with Undone(judge, decision):
                there = self.moves.consumer(
                    there, judge.said(change.stream), decision.stream.config, change.config, info
                )
            there = proposals.changed(there, "consumer", after.stored)
        said = proposals.answered(there, asked)
        if not decision.is_open:
            return proposals.entry(Op.ASSIGN_CONSUMER, said)
        return self._propose(judge, Op.ASSIGN_CONSUMER, said, change, decision)

    def _delete_consumer(self, asked: Asked) -> bytes:
        if not decode.is_empty(asked.body):
            raise errcodes.NOT_EMPTY_REQUEST()
        judge = self.judge(asked.account)
        stream, name = asked.args[:2]
        if judge.said(stream) is None:
            raise errcodes.STREAM_NOT_FOUND()
        there = judge.said(stream, name)
        if there is None:
            raise errcodes.CONSUMER_NOT_FOUND()
        said = proposals.answered(there, asked)
        done = SuccessResponse(type=f"{TYPE_PREFIX}consumer_delete_response", success=True)
        return self._remove(judge, Op.REMOVE_CONSUMER, said, DeleteConsumer(stream, name), done)

    def _pause(self, asked: Asked) -> bytes:
        judge = self.judge(asked.account)
        stream, name = asked.args[:2]
        change, answer = wishes.pause(asked, judge.assets, self._settings, self._now())
        decision = judge.decide(change)
        there = judge.said(stream, name)
        assert decision.after is not None and there is not None
        changed = proposals.changed(there, "consumer", decision.after.stored)
        said = proposals.answered(changed, asked)
        del said["subject"], said["reply"]  # only the leader answers, not the members
        entry = self._propose(judge, Op.ASSIGN_CONSUMER, said, change, decision)
        self._waiting[entry] = _Waiting(asked.reply, answer, None)
        return entry

    # ---- proposals

    def _propose(
        self,
        judge: Judge,
        op: Op,
        said: Said,
        change: StreamChange | ConsumerChange,
        decision: Decision,
    ) -> bytes:
        entry = proposals.entry(op, said)
        judge.proposed(entry, change, decision, said)
        return entry

    def refused(self, entry: bytes) -> None:
        """Takes back a proposal that the group did not accept."""
        self._waiting.pop(entry, None)
        for judge in self._judges.values():
            judge.refused(entry)

    def applied(self, entry: bytes, change: Change) -> Iterator[Told]:
        """Notes an entry that was agreed on and applied to `state`. Yields the answers due."""
        judge = self._judges.get(change.account)
        if judge is not None:
            judge.applied(entry, change)
        self._note(entry, change)
        yield from self.due(entry)

    def due(self, entry: bytes) -> Iterator[Told]:
        """The answer to an entry that was agreed on, maybe after this lead."""
        waiting = self._waiting.pop(entry, None)
        if waiting is None or not waiting.reply:
            return
        if waiting.peers is None or not self._members.online(waiting.peers):
            refused = waiting.answer.error is not None
            yield Told(waiting.reply, encoded(waiting.answer), refused)

    # ---- errors that members report

    def _note(self, entry: bytes, change: Change) -> None:
        key = (change.account, change.stream, change.consumer)
        if entry[0] in (Op.REMOVE_STREAM, Op.REMOVE_CONSUMER):
            self._made.pop(key, None)
            return
        if entry[0] not in (Op.ASSIGN_STREAM, Op.UPDATE_STREAM, Op.ASSIGN_CONSUMER):
            return
        said = msgspec.json.decode(entry[1:], type=dict[str, Any])
        known = self._made.pop(key, None)
        age = self._now() - created_at(said)
        new = entry[0] != Op.UPDATE_STREAM and known is None and age < YOUNG
        self._made[key] = _Made(said, str(said.get("reply", "")), self._now(), new)
        while len(self._made) > RESULTS_KEPT:
            del self._made[next(iter(self._made))]

    def result(self, body: bytes) -> tuple[bytes | None, Told | None]:
        """Reads a member's report that it failed to create or change an asset: the entry that
        removes the asset, if it is to go, and the answer for the requester, if one waits."""
        try:
            said = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return None, None
        stream, consumer = str(said.get("stream", "")), str(said.get("consumer", ""))
        made = self._made.pop((str(said.get("account", "")), stream, consumer), None)
        found = (said.get(key) for key in ("create_response", "restore_response", "response"))
        response = next(filter(None, found), None)
        if made is None or not isinstance(response, dict) or not response.get("error"):
            return None, None
        told = Told(made.reply, encoded(response), True) if made.reply else None
        if not made.is_young(self._now()) or said.get("is_update"):
            return None, told
        op = Op.REMOVE_CONSUMER if consumer else Op.REMOVE_STREAM
        gone = {key: value for key, value in made.said.items() if key not in ("subject", "reply")}
        return proposals.entry(op, gone), told


def encoded(answer: Response | Said) -> bytes:
    """An answer as the bytes of its JSON."""
    return escape_json(msgspec.json.encode(answer))
