"""API requests in a cluster: every server gets each one through the system account, and exactly one
server answers.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from jsserver.api.endpoints import ENDPOINTS
from jsserver.api.levels import required_level
from jsserver.api.requester import requester
from jsserver.api.responses import TYPE_PREFIX, Response
from jsserver.cluster import answers
from jsserver.cluster.answers import Answer, Api, By, Meta, Seen, Verdict
from jsserver.cluster.meta import account_of, peers_of
from jsserver.cluster.proposals import Asked
from jsserver.instances.backend import PlaneClosed
from jsserver.process.tasks import Tasks
from jsserver.services.answering import headers_of
from jsserver.text.identity import short_hash
from jsserver.wire import decode, errcodes
from jsserver.wire.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.access.accounts import Accounts
    from jsserver.cext.engine import Item
    from jsserver.cluster.meta import MetaState
    from jsserver.cluster.succession import Succession
    from jsserver.instances.backend import AccountHandle
    from jsserver.process.logs import Logger
    from jsserver.services.answering import Answering
    from jsserver.services.asking import Asking
    from jsserver.services.members import Members
    from jsserver.services.metalead import MetaLead
    from jsserver.services.needed import Needed

SUBJECT = b"$JS.API.>"
PASSED = b"$JSC.ASKED."
"""Before the id of a server, how often a request was passed on, and the subject of that: that
server leads now, and is to answer, if it did not so already."""
PASSED_MOST = 5
"""Times for which a request is passed on."""
PAUSE = 0.02
"""Seconds between two looks at who leads."""
REMEMBERED_MAX = 1024
"""Requests that are remembered, as each may come twice: from who asks, and passed on."""
REMEMBERED = 2.0
"""Seconds for which they are: who asks may have the same subject for all its answers."""
REPLY_WAIT = 1.0
"""Seconds for which a request that was passed on waits for the subscription to its reply: that
comes with the request itself, straight from the requester's server, and may be later."""
WAITING_MAX = 1024
"""The most requests that wait before they are answered; further ones get no answer from here."""
OTHER_TYPES = {
    "META.LEADER.STEPDOWN": "meta_leader_stepdown_response",
    "SERVER.REMOVE": "meta_server_remove_response",
    "SERVER.EVACUATE": "meta_server_evacuate_response",
    "STREAM.PEER.EVACUATE": "stream_evacuate_peer_response",
    "STREAM.CANCEL_MOVE": "stream_cancel_move_response",
    "CONSUMER.PEER.REMOVE": "consumer_remove_peer_response",
    "CONSUMER.PEER.EVACUATE": "consumer_evacuate_peer_response",
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

    def leader(self, account: str, stream: str, consumer: str) -> str:
        """The id of the server that leads what is held here; "": none is known."""

    def others(self, account: str, stream: str, consumer: str) -> set[str]:
        """The ids of the other servers that hold what is held here, can be reached, and ask before
        they answer."""

    def may_be_done(self, account: str, stream: str, consumer: str) -> bool:
        """Whether a server that does not ask before it answers led last what is held here."""

    def answer(self, api: Api, asked: Asked) -> None:
        """Answers a request about an asset that this server leads."""


class Waits(NamedTuple):
    """A request that nobody answers yet."""

    asked: Asked
    headers: bytes
    first: Answer
    """What was to be said when it came."""
    end: float
    """When that is said, by the clock of the loop."""
    may_be_done: bool = False
    """Whether a nats-server may have done it as it led, and leads no more by that."""


class Came(NamedTuple):
    """A request of late."""

    at: float
    direct: bool
    """Whether it came from who asks."""
    passed: int
    """How often it was passed on before it came; 0: it did not so."""
    number: int = 1
    """How often who asks has sent the same, with the same reply."""
    waits: bool = False
    """Whether this server waits until somebody leads."""
    failed_at: float = 0.0
    """When this server was found to lead no more as it was to do that; 0: it was not."""


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
        own: str,
        answering: Answering,
        asking: Asking,
        succession: Succession,
        state: Callable[[], MetaState],
        meta: Callable[[], Meta],
        members: Members,
        leader: Callable[[], str],
        needed: Needed,
    ) -> None:
        """`own`: the id of this server; `succession`, `state`: of the meta group; `meta`: who leads
        that where this server does not; `members`: facts about its members; `leader`: the id of
        who leads it; `needed`: brings accounts that do not run."""
        self._accounts = accounts
        self._system_account = system_account
        self._system = accounts[system_account]
        self._lead = lead
        self._held = held
        self._log = log
        self._answering = answering
        self._asking = asking
        self._succession = succession
        self._members = members
        self._state = state
        self._meta = meta
        self._leader = leader
        self._own = own
        self._needed = needed
        self._bringing = Tasks()
        self._waiting = 0
        self._came: dict[tuple[str, str], Came] = {}
        """Requests of late, by their subjects and replies."""
        self._to_own = PASSED + own.encode() + b"."
        answering.again = self._try_again
        asking.begin()
        self._system.serve_requests(SUBJECT)
        self._system.serve_requests(self._to_own + b"*." + SUBJECT)

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is an API request, or about the right to answer one;
        whether it was."""
        if self._asking.take(item):
            return True
        subject, reply, headers, payload = item.texts
        if item.numbers[0] != self._system.id:
            return False
        passed = 0
        if subject.startswith(self._to_own):
            times, _, subject = subject.removeprefix(self._to_own).partition(b".")
            passed = int(times) if times.isdigit() else PASSED_MOST
        if not subject.startswith(SUBJECT[:-1]):
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
            self._answering.note(reply.decode("utf-8", "surrogateescape")),
            payload,
            client or {},
            api.args,
        )
        api = self._by_whom(api, account, payload)
        end = asyncio.get_running_loop().time() + REPLY_WAIT
        self._judge(api, asked, headers, passed, end if passed else 0.0)
        return True

    def _await_reply(self, api: Api, asked: Asked, headers: bytes, passed: int, end: float) -> None:
        self._waiting -= 1
        with suppress(PlaneClosed):  # this server has ended meanwhile
            if self._system_account in self._accounts:
                self._judge(api, asked, headers, passed, end)

    def _judge(self, api: Api, asked: Asked, headers: bytes, passed: int, end: float) -> None:
        """`passed`: how often the request was passed on; `end`: when it is answered although
        nobody is known to listen for the answer, by the clock of the loop."""
        loop = asyncio.get_running_loop()
        if loop.time() < end and self._waiting < WAITING_MAX and not self._listens(asked):
            self._waiting += 1
            loop.call_later(PAUSE, self._await_reply, api, asked, headers, passed, end)
            return
        account = asked.account
        if self._is_known(asked, passed):
            return
        verdict = answers.verdict(api, self._seen(api, account))
        if passed and verdict.answer in (Answer.SILENT, Answer.PASS):
            verdict = Verdict(Answer.UNAVAILABLE, answers.DELAY)
        unknown = verdict.answer is Answer.META and account and self._needed.lacks(account)
        if not verdict.delay and not unknown:
            self._answer(api, asked, headers, verdict)
        elif verdict.delay:
            may_be_done = not passed and self._may_be_done(api, asked)
            self._wait(api, asked, headers, verdict, may_be_done=may_be_done)
        elif self._waiting < WAITING_MAX:
            self._waiting += 1
            self._bringing.begin(self._bring(api, asked, headers))

    def _wait(
        self,
        api: Api,
        asked: Asked,
        headers: bytes,
        verdict: Verdict,
        *,
        may_be_done: bool = False,
    ) -> None:
        """Judges a request anew until somebody leads, and answers it at the end of the delay."""
        if self._waiting < WAITING_MAX:
            self._waiting += 1
            self._note(asked, waits=True)
            loop = asyncio.get_running_loop()
            end = loop.time() + verdict.delay
            waits = Waits(asked, headers, verdict.answer, end, may_be_done)
            loop.call_later(PAUSE, self._later, api, waits)

    def _listens(self, asked: Asked) -> bool:
        """Whether the answer to a request would reach somebody."""
        return self._system.subject_interest(asked.reply.encode("utf-8", "surrogateescape"))

    def _by_whom(self, api: Api, account: str, body: bytes) -> Api:
        """The request with the role of the server that answers it: the stream's leader creates the
        consumer of a mirror or a source by itself, without the meta group, if the stream's
        retention is `limits`."""
        if api.name != "CONSUMER.CREATE" or b'"direct"' not in body:
            return api
        stream = self._state().streams.get(account, {}).get(api.args[0])
        if stream is None or stream.said["stream"].get("retention", "limits") != "limits":
            return api
        try:
            direct = msgspec.json.decode(body, type=_CreateRequest).config.direct
        except msgspec.DecodeError:
            return api
        return api._replace(by=By.STREAM) if direct else api

    def _is_known(self, asked: Asked, passed: int) -> bool:
        """Whether this server has done what is asked for: a request may come twice, from who asks
        and from who passes it on."""
        key, now = (asked.subject, asked.reply), time.monotonic()
        came = self._came.get(key)
        if came is None or now - came.at > REMEMBERED or (came.direct and not passed):
            number = 1 if came is None else came.number + (came.direct and not passed)
            self._remember(key, Came(now, direct=not passed, passed=passed, number=number))
            return False
        known = passed <= came.passed or came.waits or self._asking.has(_key(asked, came))
        most = max(passed, came.passed)
        self._came[key] = came._replace(direct=came.direct or not passed, passed=most)
        return known

    def _note(self, asked: Asked, **what: bool) -> None:
        """Something more is known of a request of late."""
        came = self._came.get((asked.subject, asked.reply))
        if came is not None:
            self._came[asked.subject, asked.reply] = came._replace(**what)

    def _remember(self, key: tuple[str, str], came: Came) -> None:
        self._came[key] = came
        if len(self._came) > REMEMBERED_MAX:
            del self._came[next(iter(self._came))]

    async def _bring(self, api: Api, asked: Asked, headers: bytes) -> None:
        """Answers once the account is fetched: its limits were not known."""
        await self._needed.bring(asked.account)
        self._waiting -= 1
        verdict = answers.verdict(api, self._seen(api, asked.account))
        if self._system_account in self._accounts:
            self._answer(api, asked, headers, verdict)

    def _later(self, api: Api, waits: Waits) -> None:
        with suppress(PlaneClosed):  # this server has ended meanwhile
            self._look_again(api, waits)

    def _look_again(self, api: Api, waits: Waits) -> None:
        """By now somebody may lead: this server, or one that the request is passed on to."""
        asked = waits.asked
        if self._system_account not in self._accounts:
            self._waiting -= 1
            return
        seen = self._seen(api, asked.account)
        verdict = answers.verdict(api, seen)
        if waits.may_be_done and verdict.answer in (Answer.META, Answer.ASSET):
            verdict = Verdict(Answer.SILENT)
        others = verdict.answer in (Answer.SILENT, Answer.PASS)
        if others and waits.first is Answer.UNAVAILABLE:
            leader = self._leads(api, asked, answers.decider(api, seen))
            came = self._came.get((asked.subject, asked.reply))
            passed = 0 if came is None else came.passed
            if leader and passed < PASSED_MOST:
                self._pass_on(leader, asked, waits.headers, passed)
                verdict = Verdict(Answer.SILENT)
            else:
                verdict = Verdict(waits.first, answers.DELAY)
        loop = asyncio.get_running_loop()
        if verdict.delay and loop.time() < waits.end:
            loop.call_later(PAUSE, self._later, api, waits)
            return
        self._waiting -= 1
        self._note(asked, waits=False)
        self._answer(api, asked, waits.headers, verdict)

    def _try_again(self, asked: Asked) -> None:
        """A request was to be done by this server, which did not lead any more."""
        api, key, now = answers.read(asked.subject), (asked.subject, asked.reply), time.monotonic()
        assert api is not None
        api = self._by_whom(api, asked.account, asked.body)
        came = self._came.get(key, Came(now, direct=True, passed=0))
        since = came.failed_at or now
        self._asking.give_up(_key(asked, came))
        self._remember(key, came._replace(failed_at=since))
        left = answers.DELAY - (now - since)
        verdict = Verdict(Answer.UNAVAILABLE, max(left, 0.0))
        if verdict.delay:
            self._wait(api, asked, headers_of(asked), verdict)
        else:
            self._answer(api, asked, headers_of(asked), verdict)

    def _leads(self, api: Api, asked: Asked, decider: By) -> str:
        """The id of the other server that is to answer a request, "" for none yet."""
        if decider is By.META:
            leader = self._leader()
            return "" if leader == self._own else leader
        consumer = api.args[1] if decider is By.CONSUMER else ""
        return self._held.leader(asked.account, api.args[0], consumer)

    def _pass_on(self, leader: str, asked: Asked, headers: bytes, passed: int) -> None:
        subject, reply = (
            text.encode("utf-8", "surrogateescape") for text in (asked.subject, asked.reply)
        )
        self._system.publish(passed_to(leader, passed + 1, subject), reply, headers, asked.body)

    # ---- who answers

    def _seen(self, api: Api, account: str) -> Seen:
        if not self._lead.leads:
            meta = self._meta()
        else:
            settled = self._succession.is_settled(time.monotonic())
            meta = Meta.LEADS if settled else Meta.BEGAN
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
        return answers.Asset.ELSEWHERE if self._members.online(peers) else answers.Asset.OFFLINE

    # ---- answers

    def _answer(self, api: Api, asked: Asked, headers: bytes, verdict: Verdict) -> None:
        what = verdict.answer
        if what is Answer.SILENT:
            return
        if what is Answer.PASS:
            leader = self._leads(api, asked, self._decider(api, asked))
            if leader:
                self._pass_on(leader, asked, headers, 0)
            else:
                self._wait(api, asked, headers, Verdict(Answer.UNAVAILABLE, answers.DELAY))
            return
        came = self._came.get((asked.subject, asked.reply))
        act = partial(self._act, api, asked, headers, verdict)
        others = partial(self._may_have, api, asked)
        self._asking.want(_key(asked, came), others, act, sure=verdict.sure)

    def _decider(self, api: Api, asked: Asked) -> By:
        return answers.decider(api, self._seen(api, asked.account))

    def _may_have(self, api: Api, asked: Asked) -> set[str]:
        """The ids of the other servers that may have answered a request."""
        decider = self._decider(api, asked)
        if decider is By.META:
            return self._members.others()
        consumer = api.args[1] if decider is By.CONSUMER else ""
        return self._held.others(asked.account, api.args[0], consumer)

    def _may_be_done(self, api: Api, asked: Asked) -> bool:
        """Whether a nats-server may have done a request, and leads no more by that."""
        if not api.name.endswith("LEADER.STEPDOWN"):
            return False
        if api.by is By.META:
            return self._succession.last not in {"", self._own, *self._members.others()}
        consumer = api.args[1] if api.by is By.CONSUMER else ""
        return self._held.may_be_done(asked.account, api.args[0], consumer)

    def _act(self, api: Api, asked: Asked, headers: bytes, verdict: Verdict) -> None:
        """Answers a request: this server has the right. While it asked others, it may have lost the
        lead."""
        what = verdict.answer
        if what in (Answer.META, Answer.ASSET) and not verdict.sure:
            seen = self._seen(api, asked.account)
            if answers.verdict(api, seen).answer is not what:
                self._try_again(asked)
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
            if api.name == "CONSUMER.INFO" and not decode.is_empty(asked.body):
                raise errcodes.NOT_EMPTY_REQUEST()
            known = api.args[0] in self._state().streams.get(asked.account, {})
            raise errcodes.CONSUMER_NOT_FOUND() if known else errcodes.STREAM_NOT_FOUND()
        said = partial(failed, api)
        return self._lead.handle(api.name, asked, self._state(), said)


def _key(asked: Asked, came: Came | None) -> str:
    """Of the right to answer a request."""
    number = 1 if came is None else came.number
    return f"{number} {asked.subject} {asked.reply}"


def passed_to(server: str, times: int = 1, subject: bytes = SUBJECT) -> bytes:
    """On which the server with this id hears of a request that is passed on to it."""
    return PASSED + f"{server}.{times}.".encode() + subject


def ours(system: AccountHandle, names: Callable[[], Iterable[str]]) -> set[str]:
    """The ids of those of these servers that pass requests on, which nats-servers do not."""
    ids = {short_hash(name) for name in names()}
    return {id for id in ids if system.subject_interest(passed_to(id))}


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
