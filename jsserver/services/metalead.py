"""This server as the leader of its cluster's meta group: proposes what is asked for, and answers.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from jsserver.api.responses import TYPE_PREFIX, AccountPurgeResponse, Response, SuccessResponse
from jsserver.cluster import pages
from jsserver.cluster.leader import Leader, Told, encoded
from jsserver.cluster.stepdown import successor
from jsserver.services.replies import Replies
from jsserver.text.identity import short_hash
from jsserver.text.nuid import token
from jsserver.wire import decode, errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import Wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jsserver.access.accounts import Accounts
    from jsserver.assets.limits import ServerSettings
    from jsserver.cext.engine import Item
    from jsserver.cluster.meta import Change, MetaState
    from jsserver.cluster.moves import Members
    from jsserver.cluster.proposals import Asked
    from jsserver.services.answering import Answering

RESULTS = (b"$SYS.JSC.STREAM.ASSIGNMENT.RESULT", b"$SYS.JSC.CONSUMER.ASSIGNMENT.RESULT")
"""On which members say what they could not make."""
EVERYBODY = b"$SYS.REQ.SERVER.PING"
"""On which servers are asked to say how they are: without a subject for answers all hear it."""
GATHERING = 4.0
"""Seconds for which the infos of a list are waited for, as with nats-server."""

ASKING = 2.0
"""Seconds for which the leader of an asset that is to move is waited for."""


class Group(Protocol):
    """What is asked of the meta group."""

    def propose(self, entry: bytes) -> bool:
        """False: this server does not lead."""

    def hand_over(self, to: str) -> bool:
        """Has another member lead; "": any."""

    def remove(self, peer: str) -> bool:
        """A member is none any more; False: this server does not lead, or another change of the
        members is under way."""

    def members(self) -> dict[str, str]:
        """Names of the members by their ids."""


class PeerRequest(Wire):
    """STREAM.PEER.REMOVE."""

    peer: str = ""


class RemoveRequest(Wire):
    """SERVER.REMOVE."""

    peer: str = ""
    peer_id: str = ""


class MetaLead:
    """begin() and end() frame each time that this server leads."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        group: Group,
        members: Members,
        settings: ServerSettings,
        *,
        own: str,
        info: Callable[[str], Awaitable[bytes | None]],
        answering: Answering,
    ) -> None:
        """`own`: this server's id; `info`: what this server says itself where others ask on a
        subject about an asset, None: it does not lead that."""
        self._accounts = accounts
        self._system_account = system_account
        self._system = accounts[system_account]
        self._group = group
        self._members = members
        self._settings = settings
        self._own = own
        self._own_info = info
        self._leader: Leader | None = None
        self._replies = Replies(accounts)
        self._answering = answering
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def leads(self) -> bool:
        """Whether this server leads now."""
        return self._leader is not None

    def begin(self, state: MetaState) -> None:
        """All that was agreed on before is in `state`."""
        if self._leader is None:
            for subject in RESULTS:
                self._system.serve_requests(subject)
        self._leader = Leader(state, self._members, self._settings, now=time.time_ns, token=token)
        self._system.publish(EVERYBODY, b"", b"", b"")

    def end(self) -> None:
        """Another one leads, or nobody."""
        if self._leader is not None:
            for subject in RESULTS:
                self._system.stop_requests(subject)
        self._leader = None

    def close(self) -> None:
        """Nothing is answered any more."""
        self.end()
        for task in self._tasks:
            task.cancel()

    # ---- what the group agrees on

    def applied(self, entry: bytes, change: Change) -> None:
        """An entry was applied, while this server leads."""
        if self._leader is not None:
            for told in self._leader.applied(entry, change):
                self._tell(told)

    def take(self, item: Item) -> bool:
        """Whether a message out of the inbox is for the leader: an answer, or what a member says
        that it could not make."""
        if item.numbers[0] != self._system.id:
            return False
        if self._replies.take(item):
            return True
        subject, _, _, payload = item.texts
        if subject not in RESULTS:
            return False
        self.result(payload)
        return True

    def result(self, payload: bytes) -> bool:
        """Takes what a member says that it could not make; False: this server does not lead."""
        if self._leader is None:
            return False
        entry, told = self._leader.result(payload)
        if told is not None:
            self._tell(told)
        if entry is not None:
            self._propose(entry)
        return True

    def _tell(self, told: Told) -> None:
        self._answering.settle(told.reply, told.body, refused=told.refused)

    def _propose_all(self, entries: list[bytes]) -> None:
        for entry in entries:
            self._propose(entry)

    def _propose(self, entry: bytes) -> None:
        if not self._group.propose(entry) and self._leader is not None:
            self._leader.refused(entry)  # whoever leads now is asked again

    # ---- requests

    def handle(
        self,
        name: str,
        asked: Asked,
        state: MetaState,
        failed: Callable[[ApiError], Response],
    ) -> Response | None:
        """The answer to a request, or ApiError; None: it comes later, or from others. `failed`:
        the answer that says an error which is found later."""
        assert self._leader is not None
        match name:
            case "INFO":
                return self._leader.info(asked.account)
            case "STREAM.NAMES":
                return pages.stream_names(state, asked)
            case "CONSUMER.NAMES":
                return pages.consumer_names(state, asked)
            case "STREAM.LIST":
                self._start(self._gather(pages.stream_list(state, asked), asked))
                return None
            case "CONSUMER.LIST":
                self._start(self._gather(pages.consumer_list(state, asked), asked))
                return None
            case "META.LEADER.STEPDOWN":
                return self._step_down(asked)
            case "SERVER.REMOVE":
                return self._remove(asked)
            case "ACCOUNT.PURGE":
                return self._purge(asked)
            case "STREAM.PEER.REMOVE":
                return self._remove_peer(asked)
        subject = self._leader.moves.asks(name, asked)
        if subject:
            self._start(self._handle_later(name, asked, subject, failed))
        else:
            self._agree(name, asked, self._leader.handle(name, asked))
        return None

    async def _handle_later(
        self, name: str, asked: Asked, subject: str, failed: Callable[[ApiError], Response]
    ) -> None:
        """Once the leader of the asset has said how it is."""
        info = await self._info(subject, ASKING)
        if self._leader is None or self._system_account not in self._accounts:
            return
        try:
            self._agree(name, asked, self._leader.handle(name, asked, info))
        except ApiError as error:
            self._answering.send(name, asked, failed(error))

    def _agree(self, name: str, asked: Asked, entries: list[bytes]) -> None:
        """Proposes what a request asks for; the answer comes when it is agreed on."""
        self._answering.expect(name, asked)
        self._propose_all(entries)

    def _remove_peer(self, asked: Asked) -> Response:
        assert self._leader is not None
        if decode.is_empty(asked.body):
            raise errcodes.BAD_REQUEST()
        request = decode.decode(asked.body, PeerRequest, strict=True)
        if not request.peer:
            raise errcodes.BAD_REQUEST()
        peer = short_hash(request.peer)
        found, replaced = self._leader.remove_peer(asked.account, asked.args[0], peer)
        self._propose_all(found)
        if not replaced:
            raise errcodes.PEER_REMAP()
        kind = f"{TYPE_PREFIX}stream_remove_peer_response"
        return SuccessResponse(type=kind, success=True)

    def joined(self, peer: str) -> None:
        """The group has a member more."""
        if self._leader is not None:
            self._propose_all(self._leader.joined(peer))

    def left(self, peer: str) -> None:
        """The group has a member less."""
        if self._leader is not None:
            self._propose_all(self._leader.left(peer))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _gather(self, listed: pages.Listed, asked: Asked) -> None:
        """Answers with what the leaders of a page's assets say of them."""
        asking = (self._info(subject, GATHERING) for subject in listed.subjects)
        found = await asyncio.gather(*asking)
        infos: dict[str, Any] = {}
        offline: dict[str, str] = {}
        for name, info in zip(listed.names, found, strict=True):
            if info is None:
                continue
            reason = info.get("offline_reason")
            if reason:
                offline[name] = str(reason)
            else:
                infos[name] = info
        if self._system_account in self._accounts:
            self._answering.expect(f"{listed.kind}.LIST", asked)
            self._tell(Told(asked.reply, encoded(listed.answer(infos, offline))))

    async def _info(self, subject: str, seconds: float) -> dict[str, Any] | None:
        try:
            payload = await self._own_info(subject)
            if payload is None:
                system = self._system_account
                _, payload = await self._replies.ask(system, subject, b"", b"", seconds)
            return msgspec.json.decode(payload, type=dict[str, Any])
        except (TimeoutError, msgspec.DecodeError, RecursionError):
            return None

    # ---- of the system account

    def _step_down(self, asked: Asked) -> Response:
        peers = self._group.members()
        self._group.hand_over(successor(asked.body, self._own, peers, self._members))
        kind = f"{TYPE_PREFIX}meta_leader_stepdown_response"
        return SuccessResponse(type=kind, success=True)

    def _remove(self, asked: Asked) -> Response:
        request = decode.decode(asked.body, RemoveRequest, strict=True)
        if not request.peer and not request.peer_id:
            raise errcodes.BAD_REQUEST()
        peer = request.peer_id or short_hash(request.peer)
        if peer not in self._group.members():
            raise errcodes.CLUSTER_SERVER_NOT_MEMBER()
        if not self._group.remove(peer):
            raise errcodes.CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT()
        kind = f"{TYPE_PREFIX}meta_server_remove_response"
        return SuccessResponse(type=kind, success=True)

    def _purge(self, asked: Asked) -> Response:
        assert self._leader is not None
        for entry in self._leader.purged(asked.args[0]):
            self._propose(entry)
        kind = f"{TYPE_PREFIX}account_purge_response"
        return AccountPurgeResponse(type=kind, initiated=True)
