"""API requests in a cluster: every server gets each one through the system account, and exactly one
server answers.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from jsserver.api.endpoints import ENDPOINTS
from jsserver.api.levels import required_level
from jsserver.api.requester import requester
from jsserver.api.responses import TYPE_PREFIX, Response
from jsserver.cluster import answers
from jsserver.cluster.answers import Answer, Api, By, Meta, Seen
from jsserver.cluster.meta import account_of, peers_of
from jsserver.cluster.proposals import Asked
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.access.accounts import Accounts
    from jsserver.cext.engine import Item
    from jsserver.cluster.meta import MetaState
    from jsserver.process.logs import Logger
    from jsserver.services.answering import Answering
    from jsserver.services.metalead import MetaLead
    from jsserver.services.needed import Needed

SUBJECT = b"$JS.API.>"
WAITING_MAX = 1024
"""The most requests that wait before they are answered; further ones get no answer from here."""
OTHER_TYPES = {
    "META.LEADER.STEPDOWN": "meta_leader_stepdown_response",
    "SERVER.REMOVE": "meta_server_remove_response",
    "SERVER.EVACUATE": "meta_server_evacuate_response",
    "STREAM.PEER.EVACUATE": "stream_evacuate_peer_response",
    "ACCOUNT.PURGE": "account_purge_response",
    "ACCOUNT.STREAM.MOVE": "stream_update_response",
    "ACCOUNT.STREAM.CANCEL_MOVE": "stream_update_response",
}
"""Types of the answers that only a cluster gives."""


class _Config(msgspec.Struct):
    direct: bool = False


class _CreateRequest(msgspec.Struct):
    """The part of a consumer's request that decides who creates the consumer."""

    config: _Config = msgspec.field(default_factory=_Config)


class Held(Protocol):
    """The streams and consumers of this server."""

    def seen(self, account: str, stream: str, consumer: str) -> answers.Asset | None:
        """The asset's role on this server; None: the server does not hold the asset."""

    def answer(self, api: Api, asked: Asked) -> None:
        """Answers a request about an asset that this server leads."""


class ClusterApi:
    """Decides whether this server answers a request, and has it answered."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        lead: MetaLead,
        held: Held,
        log: Logger,
        *,
        answering: Answering,
        state: Callable[[], MetaState],
        meta: Callable[[], Meta],
        online: Callable[[list[str]], list[str]],
        needed: Needed,
    ) -> None:
        """`state`: the meta group's; `meta`: this server's role in the meta group, if it does not
        lead; `online`: the peers that are online; `needed`: fetches accounts that are not
        loaded."""
        self._accounts = accounts
        self._system_account = system_account
        self._system = accounts[system_account]
        self._lead = lead
        self._held = held
        self._log = log
        self._answering = answering
        self._state = state
        self._meta = meta
        self._online = online
        self._needed = needed
        self._bringing: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._system.serve_requests(SUBJECT)

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is an API request; whether it was."""
        subject, reply, headers, payload = item.texts
        if item.numbers[0] != self._system.id or not subject.startswith(SUBJECT[:-1]):
            return False
        api = answers.read(subject.decode("utf-8", "surrogateescape"))
        if api is None or not reply:
            return True
        client = requester(headers, dict[str, Any])
        if (client is None) != api.system:
            return True
        account = "" if client is None else account_of({"client": client})
        asked = Asked(
            account,
            subject.decode("utf-8", "surrogateescape"),
            reply.decode("utf-8", "surrogateescape"),
            payload,
            client or {},
            api.args,
        )
        if self._is_of_leader(api, account, payload):
            api = api._replace(by=By.STREAM)
        verdict = answers.verdict(api, self._seen(api, account))
        unknown = verdict.answer is Answer.META and account and self._needed.lacks(account)
        if not verdict.delay and not unknown:
            self._answer(api, asked, headers, verdict.answer)
        elif self._waiting < WAITING_MAX:
            self._waiting += 1
            loop = asyncio.get_running_loop()
            if verdict.delay:
                loop.call_later(verdict.delay, self._later, api, asked, headers)
            else:
                task = loop.create_task(self._bring(api, asked, headers))
                self._bringing.add(task)
                task.add_done_callback(self._bringing.discard)
        return True

    def _is_of_leader(self, api: Api, account: str, body: bytes) -> bool:
        """Whether the stream's leader creates the requested consumer by itself, without the meta
        group: that of a mirror or a source, if the stream's retention is `limits`."""
        if api.name != "CONSUMER.CREATE" or b'"direct"' not in body:
            return False
        stream = self._state().streams.get(account, {}).get(api.args[0])
        if stream is None or stream.said["stream"].get("retention", "limits") != "limits":
            return False
        try:
            return msgspec.json.decode(body, type=_CreateRequest).config.direct
        except msgspec.DecodeError:
            return False

    async def _bring(self, api: Api, asked: Asked, headers: bytes) -> None:
        """Answers once the account is fetched: its limits were not known."""
        await self._needed.bring(asked.account)
        self._later(api, asked, headers)

    def _later(self, api: Api, asked: Asked, headers: bytes) -> None:
        """Answers after a delay, if no server has a leader's answer by now."""
        self._waiting -= 1
        verdict = answers.verdict(api, self._seen(api, asked.account))
        if self._system_account in self._accounts:
            self._answer(api, asked, headers, verdict.answer)

    # ---- which server answers

    def _seen(self, api: Api, account: str) -> Seen:
        meta = Meta.LEADS if self._lead.leads else self._meta()
        if api.by in (By.META, By.INTEREST):
            return Seen(meta)
        stream = api.args[0]
        consumer = api.args[1] if api.by is By.CONSUMER else ""
        assigned = self._state().streams.get(account, {}).get(stream)
        if assigned is None:
            return Seen(meta)
        of_stream = self._asset(account, stream, "", peers_of(assigned.said))
        said = assigned.consumers.get(consumer)
        if said is None:
            return Seen(meta, of_stream)
        return Seen(meta, of_stream, self._asset(account, stream, consumer, peers_of(said)))

    def _asset(self, account: str, stream: str, consumer: str, peers: list[str]) -> answers.Asset:
        here = self._held.seen(account, stream, consumer)
        if here is not None:
            return here
        return answers.Asset.ELSEWHERE if self._online(peers) else answers.Asset.OFFLINE

    # ---- answers

    def _answer(self, api: Api, asked: Asked, headers: bytes, what: Answer) -> None:
        if what is Answer.SILENT:
            return
        try:
            if not required_level(headers):
                raise errcodes.REQUIRED_API_LEVEL()
            if what is Answer.ASSET:
                self._held.answer(api, asked)
                return
            answer = self._said(api, asked, what)
        except ApiError as error:
            answer = failed(api, error)
        except Exception:
            self._log.error(f"JetStream API request on '{asked.subject}' failed")
            raise
        if answer is not None:
            self._answering.send(api.name, asked, answer)

    def _said(self, api: Api, asked: Asked, what: Answer) -> Response | None:
        if what is Answer.UNAVAILABLE:
            raise errcodes.CLUSTER_NOT_AVAIL()
        if what is Answer.OFFLINE:
            of_consumer = api.by is By.CONSUMER
            raise errcodes.CONSUMER_OFFLINE() if of_consumer else errcodes.STREAM_OFFLINE()
        if api.by is By.STREAM:
            raise errcodes.STREAM_NOT_FOUND()
        if api.by is By.CONSUMER:
            known = api.args[0] in self._state().streams.get(asked.account, {})
            raise errcodes.CONSUMER_NOT_FOUND() if known else errcodes.STREAM_NOT_FOUND()
        said = partial(failed, api)
        return self._lead.handle(api.name, asked, self._state(), said)


def failed(api: Api, error: ApiError) -> Response:
    """The answer to a refused request."""
    endpoint = ENDPOINTS.get(api.name)
    answer = Response() if endpoint is None else endpoint.empty()
    answer.type, answer.error = type_of(api), error.body
    return answer


def type_of(api: Api) -> str:
    """The type of the answer to a request."""
    endpoint = ENDPOINTS.get(api.name)
    return TYPE_PREFIX + (OTHER_TYPES[api.name] if endpoint is None else endpoint.answer)
