"""This server as the meta leader: proposes what requests ask for, and answers them.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import sample
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from jsserver.api.responses import TYPE_PREFIX, AccountPurgeResponse, Response, SuccessResponse
from jsserver.cluster import pages, unassigned
from jsserver.cluster.desired import Report, Terms, written
from jsserver.cluster.groups import is_lost
from jsserver.cluster.leader import Leader, Told, encoded
from jsserver.cluster.stepdown import successor
from jsserver.process.tasks import Tasks
from jsserver.services.replies import Replies
from jsserver.services.reports import Kind
from jsserver.text.goformat import rfc3339_nano
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
    from jsserver.cext.groups import GroupState
    from jsserver.cluster.meta import Change, MetaState
    from jsserver.cluster.moves import Members
    from jsserver.cluster.proposals import Asked
    from jsserver.services.answering import Answering

CREATE, DELETE = b"$SYS.JSC.CONSUMER.ASSIGNMENT.CREATE", b"$SYS.JSC.CONSUMER.ASSIGNMENT.DELETE"
"""The subjects on which members ask for assignments by themselves."""
REPORTS = (*Kind.RESULT.value, *Kind.STEP.value, CREATE, DELETE)
"""The subjects on which the meta leader hears members."""
EVERYBODY = b"$SYS.REQ.SERVER.PING"
"""A request to all servers for their statistics. It has no reply subject: every server then
publishes them to all."""
GATHERING = 4.0
"""Seconds to wait for the INFO answers of a list's page, as nats-server does."""

PROPOSED_MAX = 4096
"""The most requests that are remembered until their entries are agreed on."""
ASKING = 2.0
"""Seconds to wait for the INFO of an asset that may get other members."""


class Group(Protocol):
    """The meta group, as the leader uses it."""

    def propose(self, entry: bytes) -> bool:
        """Proposes an entry; False: this server is not the leader."""

    def hand_over(self, to: str) -> bool:
        """Hands the lead to a member, with "" to any."""

    def remove(self, peer: str) -> bool:
        """Removes a member; False: this server is not the leader, or another change of members is
        under way."""

    def members(self) -> dict[str, str]:
        """The members' names by id."""


class PeerRequest(Wire):
    """STREAM.PEER.REMOVE and EVACUATE, CONSUMER.PEER.REMOVE and EVACUATE."""

    peer: str = ""


class ServerRequest(Wire):
    """SERVER.REMOVE, SERVER.EVACUATE."""

    peer: str = ""
    peer_id: str = ""


class Proposed(NamedTuple):
    """A request whose entry waits to be agreed on."""

    asked: Asked
    term: int
    """The term in which the entry was proposed."""


class MetaLead:
    """The lead of the meta group; begin() and end() frame each time that this server leads."""

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
        """`own`: this server's id; `info`: this server's own answer to an INFO subject, None where
        it does not lead the asset."""
        self._accounts = accounts
        self._system_account = system_account
        self._system = accounts[system_account]
        self._group = group
        self._members = members
        self._settings = settings
        self._own = own
        self._own_info = info
        self._leader: Leader | None = None
        self._former: Leader | None = None
        """This server's last lead: members may agree on what was proposed in it later."""
        self._term = 0
        """The term of the lead."""
        self._proposed: dict[bytes, Proposed] = {}
        """Requests whose entries are not agreed on yet, by their first entries."""
        self._replies = Replies(accounts)
        self._answering = answering
        self._tasks = Tasks()

    @property
    def leads(self) -> bool:
        """Whether this server is the meta leader."""
        return self._leader is not None

    def look(self, now: GroupState, state: MetaState) -> None:
        """Begins to lead, or ends the lead, as the group says. What was proposed in a lead and is
        lost with it is done by whoever leads now."""
        self._term = now.term
        if now.role != "leader":
            self.end()
        elif self._leader is None:
            self.begin(state)
        for entry, (asked, term) in [*self._proposed.items()]:
            if is_lost(now, term):
                del self._proposed[entry]
                self._answering.retry(asked)

    def begin(self, state: MetaState) -> None:
        """Begins to lead. `state` has all that was agreed on before."""
        before = self._leader or self._former
        if self._leader is None:
            for subject in REPORTS:
                self._system.serve_requests(subject)
        self._leader = Leader(state, self._members, self._settings, now=time.time_ns, token=token)
        if before is not None:
            self._leader.take_over(before)
        self._system.publish(EVERYBODY, b"", b"", b"")

    def end(self) -> None:
        """Ends the lead, if this server has it."""
        if self._leader is not None:
            for subject in REPORTS:
                self._system.stop_requests(subject)
            self._former, self._leader = self._leader, None

    def close(self) -> None:
        """Ends the lead, and drops the answers that are being prepared."""
        self.end()
        self._tasks.cancel()

    # ---- entries that are agreed on

    def applied(self, entry: bytes, change: Change) -> None:
        """Sends the answers that an applied entry allows."""
        self._proposed.pop(entry, None)
        if self._leader is not None:
            for told in self._leader.applied(entry, change):
                self._tell(told)
        elif self._former is not None:
            for told in self._former.due(entry):
                self._tell(told)

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is for the leader: an answer to its own request, or
        a member's report of a failure. Whether it was."""
        if item.numbers[0] != self._system.id:
            return False
        if self._replies.take(item):
            return True
        subject, _, _, payload = item.texts
        if subject in Kind.STEP.value:
            self.step(payload)
        elif subject in Kind.RESULT.value:
            self.result(payload)
        elif subject in (CREATE, DELETE):
            self._asked(payload, creates=subject == CREATE)
        return subject in REPORTS

    def result(self, payload: bytes) -> bool:
        """Takes a member's report of a failure; False: this server is not the leader."""
        if self._leader is None:
            return False
        entry, told = self._leader.result(payload)
        if told is not None:
            self._tell(told)
        if entry is not None:
            self._propose(entry)
        return True

    def step(self, payload: bytes) -> bool:
        """Writes the step of a report down; False: this server does not lead."""
        if self._leader is None:
            return False
        terms = Terms(rfc3339_nano(time.time_ns()), token, lambda peers: sample(peers, len(peers)))
        with suppress(ApiError, msgspec.DecodeError, RecursionError):  # it is void
            report = msgspec.json.decode(payload, type=Report)
            judge = self._leader.judge(report.account)
            there = judge.known(report.stream)
            if there is not None:
                made = written(there, report, terms)
                self._propose_all(self._leader.regrouped(judge, made))
        return True

    def _asked(self, payload: bytes, *, creates: bool) -> None:
        """Assigns or removes a consumer that a member asks about."""
        if self._leader is None:
            return
        void = ApiError, ValueError, msgspec.DecodeError, decode.Unreadable, RecursionError
        with suppress(*void):
            about = unassigned.read(payload)
            judge, moves = self._leader.judge(about.account), self._leader.moves
            made = (
                unassigned.assigned(about, judge, moves)
                if creates
                else unassigned.removed(about, judge)
            )
            self._propose_all(self._leader.regrouped(judge, made))

    def _tell(self, told: Told) -> None:
        self._answering.settle(told.reply, told.body, refused=told.refused)

    def _propose_all(self, entries: list[bytes]) -> bool:
        """False: this server does not lead any more."""
        return all([self._propose(entry) for entry in entries])

    def _propose(self, entry: bytes) -> bool:
        if self._group.propose(entry):
            return True
        if self._leader is not None:
            self._leader.refused(entry)
        return False

    # ---- requests

    def handle(
        self,
        name: str,
        asked: Asked,
        state: MetaState,
        failed: Callable[[ApiError], Response],
    ) -> Response | None:
        """The answer to a request, or ApiError; None: it comes later, or from another server.
        `failed`: makes the answer for an error that is found later."""
        assert self._leader is not None
        match name:
            case "INFO":
                return self._leader.info(asked.account)
            case "STREAM.NAMES":
                return pages.stream_names(state, asked)
            case "CONSUMER.NAMES":
                return pages.consumer_names(state, asked)
            case "STREAM.LIST":
                self._tasks.begin(self._gather(pages.stream_list(state, asked), asked))
                return None
            case "CONSUMER.LIST":
                self._tasks.begin(self._gather(pages.consumer_list(state, asked), asked))
                return None
            case "META.LEADER.STEPDOWN":
                return self._step_down(asked)
            case "SERVER.REMOVE":
                return self._remove(asked)
            case "ACCOUNT.PURGE":
                return self._purge(asked)
            case "STREAM.PEER.REMOVE":
                return self._remove_peer(asked)
            case "STREAM.PEER.EVACUATE":
                return self._evacuate(asked)
            case "CONSUMER.PEER.REMOVE":
                return self._consumer_off(asked, "remove", at_once=True)
            case "CONSUMER.PEER.EVACUATE":
                return self._consumer_off(asked, "evacuate", at_once=False)
            case "SERVER.EVACUATE":
                return self._evacuate_all(asked)
        subject = self._leader.moves.asks(name, asked)
        if subject:
            self._tasks.begin(self._handle_later(name, asked, subject, failed))
        else:
            self._agree(name, asked, self._leader.handle(name, asked))
        return None

    async def _handle_later(
        self, name: str, asked: Asked, subject: str, failed: Callable[[ApiError], Response]
    ) -> None:
        """Handles a request once the asset's leader has answered an INFO request, or not in
        time."""
        info = await self._info(subject, ASKING)
        if self._system_account not in self._accounts:
            return
        if self._leader is None:
            self._answering.retry(asked)
            return
        try:
            self._agree(name, asked, self._leader.handle(name, asked, info))
        except ApiError as error:
            self._answering.send(name, asked, failed(error))

    def _agree(self, name: str, asked: Asked, entries: list[bytes]) -> None:
        """Proposes a request's entries; the answer follows when the first of them is agreed on."""
        self._answering.expect(name, asked)
        first, *rest = entries
        if not self._propose(first):
            self._answering.retry(asked)
            return
        self._proposed[first] = Proposed(asked, self._term)
        if len(self._proposed) > PROPOSED_MAX:
            del self._proposed[next(iter(self._proposed))]
        self._propose_all(rest)

    def _remove_peer(self, asked: Asked) -> Response | None:
        assert self._leader is not None
        peer = _peer_in(asked)
        found, replaced = self._leader.remove_peer(asked.account, asked.args[0], peer)
        if not self._propose_all(found):
            self._answering.retry(asked)
            return None
        if not replaced:
            raise errcodes.PEER_REMAP()
        kind = f"{TYPE_PREFIX}stream_remove_peer_response"
        return SuccessResponse(type=kind, success=True)

    def _evacuate(self, asked: Asked) -> Response:
        assert self._leader is not None
        peer = _peer_in(asked)
        self._propose_all(self._leader.evacuate(asked.account, asked.args[0], peer))
        kind = f"{TYPE_PREFIX}stream_evacuate_peer_response"
        return SuccessResponse(type=kind, success=True)

    def _consumer_off(self, asked: Asked, what: str, *, at_once: bool) -> Response | None:
        assert self._leader is not None
        stream, consumer = asked.args[:2]
        peer = _peer_in(asked)
        made = self._leader.consumer_off(asked.account, stream, consumer, peer, at_once=at_once)
        if not self._propose_all(made):
            self._answering.retry(asked)
            return None
        kind = f"{TYPE_PREFIX}consumer_{what}_peer_response"
        return SuccessResponse(type=kind, success=True)

    def joined(self, peer: str) -> None:
        """Gives a new member of the group the streams that lack one."""
        if self._leader is not None:
            self._propose_all(self._leader.joined(peer))

    def left(self, peer: str) -> None:
        """Moves the assets of a member that has left the group."""
        if self._leader is not None:
            self._propose_all(self._leader.left(peer))

    async def _gather(self, listed: pages.Listed, asked: Asked) -> None:
        """Answers a list with the INFO answers of its assets' leaders."""
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

    # ---- requests of the system account

    def _step_down(self, asked: Asked) -> Response | None:
        peers = self._group.members()
        if not self._group.hand_over(successor(asked.body, self._own, peers, self._members)):
            self._answering.retry(asked)
            return None
        kind = f"{TYPE_PREFIX}meta_leader_stepdown_response"
        return SuccessResponse(type=kind, success=True)

    def _remove(self, asked: Asked) -> Response:
        if not self._group.remove(self._member_in(asked)):
            raise errcodes.CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT()
        kind = f"{TYPE_PREFIX}meta_server_remove_response"
        return SuccessResponse(type=kind, success=True)

    def _evacuate_all(self, asked: Asked) -> Response:
        assert self._leader is not None
        self._propose_all(self._leader.evacuate_all(self._member_in(asked)))
        kind = f"{TYPE_PREFIX}meta_server_evacuate_response"
        return SuccessResponse(type=kind, success=True)

    def _member_in(self, asked: Asked) -> str:
        """The id of the member of the meta group that a request names; ApiError."""
        request = decode.decode(asked.body, ServerRequest, strict=True)
        if not request.peer and not request.peer_id:
            raise errcodes.BAD_REQUEST()
        peer = request.peer_id or short_hash(request.peer)
        if peer not in self._group.members():
            raise errcodes.CLUSTER_SERVER_NOT_MEMBER()
        return peer

    def _purge(self, asked: Asked) -> Response:
        assert self._leader is not None
        self._propose_all(self._leader.purged(asked.args[0]))
        kind = f"{TYPE_PREFIX}account_purge_response"
        return AccountPurgeResponse(type=kind, initiated=True)


def _peer_in(asked: Asked) -> str:
    """The id of the server that a request about an asset names; ApiError."""
    if decode.is_empty(asked.body):
        raise errcodes.BAD_REQUEST()
    request = decode.decode(asked.body, PeerRequest, strict=True)
    if not request.peer:
        raise errcodes.BAD_REQUEST()
    return short_hash(request.peer)
