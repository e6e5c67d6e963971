"""Answers requests about the streams and consumers that are assigned to this server.

The dispatcher answers for an asset that runs here, as on a server alone, but its answers travel in
the system account.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import msgspec

from jsserver.api.consumer_api import consumer_info
from jsserver.api.messages import check_delete, refusal
from jsserver.api.responder import Request
from jsserver.api.responses import Response, SuccessResponse
from jsserver.api.stream_api import check_purge, described
from jsserver.assets import consumers
from jsserver.cext.replicas import ConsumerReplica
from jsserver.cluster import answers
from jsserver.cluster.groups import is_lost
from jsserver.cluster.meta import Name
from jsserver.cluster.stepdown import successor
from jsserver.instances.backend import StoreError
from jsserver.instances.running import Consumer, Stream
from jsserver.process.tasks import Tasks
from jsserver.services.answering import headers_of
from jsserver.services.answers import encoded
from jsserver.services.clusterapi import failed, type_of
from jsserver.services.membership import Member
from jsserver.wire import decode, errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import (
    ConsumerResetRequest,
    MessageDeleteRequest,
    PurgeRequest,
    StreamStateInfo,
)

if TYPE_CHECKING:
    from jsserver.access.accounts import Accounts
    from jsserver.api.responses import ConsumerInfo, StreamInfo
    from jsserver.cext.engine import Item
    from jsserver.cext.groups import GroupFace
    from jsserver.cluster.answers import Api
    from jsserver.cluster.proposals import Asked
    from jsserver.cluster.stepdown import Known
    from jsserver.services.held import Held
    from jsserver.services.jetstream import JetStream
    from jsserver.services.unheld import Unheld

REPLICATED = (
    *("STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.LEADER.STEPDOWN"),
    *("CONSUMER.RESET", "CONSUMER.LEADER.STEPDOWN"),
)
"""Requests about an asset with replicas that its group has to agree on."""
LOOKING = 0.05
"""Seconds between two looks whether that was agreed on."""
STREAM_INFO, CONSUMER_INFO = "$JSC.SI.", "$JSC.CI."
"""Prefixes of the subjects on which servers ask an asset's leader for its INFO."""


class HeldApi:
    """Passes requests to the assets of this server."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        jetstream: JetStream,
        held: Held | None,
        unheld: Unheld,
        *,
        own: str,
        known: Known,
    ) -> None:
        """`held`: the assets that run here, None where none can; `own`: this server's id; `known`:
        facts about the members."""
        self._system = accounts[system_account]
        self._system_account = system_account
        self._dispatcher = jetstream.dispatcher
        self._shared = jetstream.shared
        self._held = held
        self._unheld = unheld
        self._own = own
        self._known = known
        self._tasks = Tasks()
        if held is not None:
            for prefix in (STREAM_INFO, CONSUMER_INFO):
                self._system.serve_requests(f"{prefix}>".encode())

    # ---- requests of clients

    def seen(self, account: str, stream: str, consumer: str) -> answers.Asset | None:
        """The asset's role on this server; None: the server does not hold the asset."""
        found = None if self._held is None else self._held.seen(account, stream, consumer)
        if found is not None:
            return found
        return self._unheld.seen(account, stream, consumer)

    def leader(self, account: str, stream: str, consumer: str) -> str:
        """The id of the server that leads what is held here; "": none is known."""
        member = self._member(account, stream, consumer)
        leader = "" if member is None else member.looked()
        return "" if leader == self._own else leader

    def others(self, account: str, stream: str, consumer: str) -> set[str]:
        """The ids of the other servers that hold what is held here, can be reached, and ask before
        they answer."""
        member = self._member(account, stream, consumer)
        return set() if member is None else member.others()

    def may_be_done(self, account: str, stream: str, consumer: str) -> bool:
        """Whether a server that does not ask before it answers led last what is held here."""
        member = self._member(account, stream, consumer)
        return member is not None and member.was_led_by_others()

    def _member(self, account: str, stream: str, consumer: str) -> Member | None:
        found = None if self._held is None else self._held.asset(account, stream, consumer)
        member = None if found is None else found.member
        return member if isinstance(member, Member) else None

    def answer(self, api: Api, asked: Asked) -> None:
        """Answers a request about an asset that this server leads."""
        asset = api.args[: 2 if api.by is answers.By.CONSUMER else 1]
        held = self._held
        found = None if held is None else held.asset(asked.account, *asset)
        stream = Name(asked.account, api.args[0])
        if held is None or (found is None and not held.restores.has(stream)):
            self._unheld.answer(api, asked)
            return
        if found is None:
            held.answering.send(api.name, asked, failed(api, errcodes.STREAM_NOT_FOUND()))
            return
        if isinstance(found.member, Member) and api.name in REPLICATED:
            self._answer_replicated(api, asked, found, found.member)
            return
        if api.name.endswith("LEADER.STEPDOWN"):  # one replica: no other server can lead
            done = SuccessResponse(type=type_of(api), success=True)
            held.answering.send(api.name, asked, done)
            return
        request = Request(
            account=asked.account,
            subject=asked.subject.encode("utf-8", "surrogateescape"),
            reply=held.answering.way_to(asked.reply).encode("utf-8", "surrogateescape"),
            headers=headers_of(asked),
            payload=asked.body,
            cost=0,
            through=self._system_account,
        )
        self._dispatcher.submit(request)

    # ---- changes that a group has to agree on

    def _answer_replicated(
        self, api: Api, asked: Asked, asset: Stream | Consumer, member: Member
    ) -> None:
        """Proposes the change; the requester is answered when the group has agreed."""
        assert self._held is not None
        answering, term = self._held.answering, member.replica.state().term
        try:
            answer = self._asked(api, asked, asset, member)
        except ApiError as error:
            answer = failed(api, error)
        if answer is False:
            answering.retry(asked)
        elif answer is None:
            answering.expect(api.name, asked)
            asyncio.get_running_loop().call_later(LOOKING, self._look, asked, member, term)
        else:
            answering.send(api.name, asked, answer)

    def _look(self, asked: Asked, member: Member, term: int) -> None:
        """Whether what was proposed in this term is lost: then whoever leads now is asked."""
        assert self._held is not None
        if not self._held.answering.expects(asked.reply):
            return
        try:
            lost = is_lost(member.replica.state(), term)
        except ValueError:
            return  # it is closed
        if lost:
            self._held.answering.retry(asked)
        else:
            asyncio.get_running_loop().call_later(LOOKING, self._look, asked, member, term)

    def _asked(
        self, api: Api, asked: Asked, asset: Stream | Consumer, member: Member
    ) -> Response | Literal[False] | None:
        """An answer for now; None: the group is asked, and the answer comes with what it says;
        False: this server does not lead any more."""
        replica = member.replica
        subject = asked.subject.encode("utf-8", "surrogateescape")
        reply = asked.reply.encode("utf-8", "surrogateescape")
        client = msgspec.json.encode(asked.client)
        if api.name.endswith("LEADER.STEPDOWN"):
            if not replica.hand_over(self._to(asked, replica)):
                return False
            return SuccessResponse(type=type_of(api), success=True)
        strict = self._shared.settings.strict
        if isinstance(replica, ConsumerReplica):
            assert isinstance(asset, Consumer)
            seq = decode.decode(asked.body, ConsumerResetRequest, False).seq
            stream = self._dispatcher.accounts[asked.account].streams[api.args[0]]
            consumers.check_reset(asset.config, seq, stream.handle.at_time)
            done_so_far = replica.propose_reset(seq, reply)
        elif api.name == "STREAM.PURGE":
            assert isinstance(asset, Stream)
            has = decode.has_object(asked.body)
            purge = decode.decode(asked.body, PurgeRequest, strict) if has else PurgeRequest()
            check_purge(asset, purge)
            done_so_far = replica.propose_purge(
                subject=subject,
                reply=reply,
                client=client,
                filter=purge.filter.encode(),
                seq=purge.seq,
                keep=purge.keep,
            )
        else:
            assert isinstance(asset, Stream)
            if decode.is_empty(asked.body):
                raise errcodes.BAD_REQUEST()
            one = decode.decode(asked.body, MessageDeleteRequest, strict)
            check_delete(asset)
            refused = refusal(asset, one.seq) if asset.handle.get(one.seq) is None else None
            if refused is not None:
                raise refused
            done_so_far = replica.propose_delete(
                subject=subject,
                reply=reply,
                client=client,
                seq=one.seq,
                erase=not one.no_erase,
            )
        return None if done_so_far else False

    def _to(self, asked: Asked, replica: GroupFace) -> bytes:
        """The id of the member that is to lead next; b"": any."""
        peers = [peer.id.decode("latin-1") for peer in replica.peers()]
        return successor(asked.body, self._own, peers, self._known).encode()

    # ---- requests of other servers

    def take(self, item: Item) -> bool:
        """Whether a message out of the inbox is what another server asks."""
        subject, reply, _, payload = item.texts
        text = subject.decode("utf-8", "surrogateescape")
        if item.numbers[0] != self._system.id:
            return False
        if not text.startswith((STREAM_INFO, CONSUMER_INFO)):
            return False
        if reply:
            self._tasks.begin(self._say(text, payload, reply))
        return True

    async def _say(self, subject: str, payload: bytes, reply: bytes) -> None:
        of_state = subject.startswith(STREAM_INFO) and _asks_state(payload)
        said = await (self._state(subject) if of_state else self.info(subject))
        if said is not None:
            self._system.publish(reply, b"", b"", said)

    async def _state(self, subject: str) -> bytes | None:
        """What each member says of a stream that a nats-server 2.15 leads, as it asks before others
        hold the stream; None: it is not here."""
        asset = subject.split(".")[2:]
        account = self._dispatcher.accounts.get(asset[0]) if len(asset) == 2 else None
        stream = None if account is None else account.streams.get(asset[1])
        if account is None or stream is None:
            return None
        try:
            state = (await described(account, stream, listed=True)).state
        except (StoreError, KeyError):
            return None  # it was removed meanwhile
        return None if state is None else encoded(_MemberState(self._own, state))

    async def info(self, subject: str) -> bytes | None:
        """This server's answer to an INFO subject between servers; None: it does not lead the
        asset."""
        asset = subject.split(".")[2:]
        if not 2 <= len(asset) <= 3 or self._held is None or not self._held.leads(*asset):
            return None
        account = self._dispatcher.accounts[asset[0]]
        info: StreamInfo | ConsumerInfo
        try:
            stream = account.streams[asset[1]]
            if len(asset) == 2:
                info = await described(account, stream, listed=True)
                info.domain = ""
            else:
                consumer = stream.consumers[asset[2]]
                info = consumer_info(self._shared, stream, consumer, listed=True)
        except (StoreError, KeyError):
            return None  # the asset was removed meanwhile, or its restore is not over
        return encoded(info)


class _StateRequest(msgspec.Struct):
    state: bool = False


class _MemberState(msgspec.Struct):
    peer: str
    state: StreamStateInfo


def _asks_state(payload: bytes) -> bool:
    """Whether a server asks for a stream's state alone."""
    try:
        return bool(payload) and msgspec.json.decode(payload, type=_StateRequest).state
    except (msgspec.DecodeError, RecursionError):
        return False
