"""Clusters with JetStream in operator mode: accounts of tokens have streams and consumers on all
members, whichever member sees the account first."""

import asyncio
import contextlib
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import Cluster, mixtures
from tests.jwts import ACCOUNT_LIMITS, Account, Operator, User
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

OPERATOR = Operator()
JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
STORING = Account(OPERATOR, name="STORING", limits={**ACCOUNT_LIMITS, **JETSTREAM})
SYSTEM = User(OPERATOR.sys)


def login(user: User) -> dict[str, Any]:
    """The options with which a nats-py client logs in as the user."""
    return {
        "user_jwt_cb": lambda: user.token.encode(),
        "signature_cb": lambda nonce: user.signature(nonce).encode(),
    }


def block(*accounts: Account, resolver: str = "MEMORY") -> str:
    """The configuration of operator mode with these accounts preloaded."""
    preload = "\n".join(f"{a.public}: {a.token}" for a in [OPERATOR.sys, *accounts])
    return f"operator: {OPERATOR.token}\nresolver: {resolver}\nresolver_preload {{\n{preload}\n}}"


async def three(client: Client, name: str, **more: Any) -> dict[str, Any]:
    """Creates a stream of three replicas, once there are three members for it."""
    body = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3, **more}
    data = json.dumps(body).encode()
    made: dict[str, Any] = {}

    async def placed() -> bool:
        nonlocal made
        try:
            answer = await client.request(f"$JS.API.STREAM.CREATE.{name}", data, timeout=5)
        except NoAnswer:
            return False  # the meta leader has changed meanwhile
        made = json.loads(answer.data)
        return "error" not in made

    await until(placed, 60)
    return made


@pytest.mark.parametrize("kinds", mixtures("oop", soak=["ooo", "ppo"]))
@asynchronous
async def test_accounts_of_tokens_have_streams(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start_all(kinds, itertools.repeat(block(STORING)))
    await cluster.whole()
    user = User(STORING)
    async with connected(cluster.members[0], **login(user)) as client:
        await three(client, "S")
        js = client.jetstream()
        await meet_stream(client, "S.a")
        for number in range(19):
            assert (await js.publish("S.a", b"1")).seq == number + 2
    async with connected(cluster.members[2], **login(user)) as client:
        js = client.jetstream()
        subscription = await js.pull_subscribe("S.>", "D")
        messages = await subscription.fetch(20, timeout=20)
        assert [message.data for message in messages] == [b"1"] * 20
        for message in messages:
            await message.ack_sync()
        info = await api(client, "STREAM.INFO.S")
        assert len(info["cluster"]["replicas"]) == 2


async def meet_stream(client: Client, subject: str) -> None:
    """Publishes to a stream once the client's server knows of a subscriber."""

    async def published() -> bool:
        try:
            return (await client.jetstream().publish(subject, b"1")).seq >= 1
        except NoStreamResponseError:
            return False

    await until(published, 30)


def full(folder: Any, *accounts: Account, more: str = "") -> str:
    """The configuration of operator mode with a directory of tokens, which has these at the
    start."""
    return block(*accounts, resolver=f"{{ type: full, dir: '{folder}', {more} }}")


async def push(client: Client, account: Account, token: str = "", count: int = 3) -> None:
    """Publishes an account's token, and waits until so many servers have stored it."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    await client.publish("$SYS.REQ.CLAIMS.UPDATE", (token or account.token).encode(), reply=inbox)
    for _ in range(count):
        assert b"jwt updated" in (await answers.next_msg(10)).data


@pytest.mark.parametrize("kinds", mixtures("ooo", "poo", soak=["opp"]))
@asynchronous
async def test_accounts_come_later(servers: Servers, tmp_path: Path, kinds: str) -> None:
    cluster = Cluster(servers)
    rests = [full(tmp_path / str(n), more="interval: '2s', timeout: '2s'") for n in range(3)]
    cluster.start_all(kinds, rests)
    await cluster.whole()
    first, _, last = cluster.members
    late = Account(OPERATOR, name="LATE", limits={**ACCOUNT_LIMITS, **JETSTREAM})
    async with connected(first, **login(SYSTEM)) as system:
        await push(system, late, late.made(iat=int(time.time()) - 10))
    async with connected(first, **login(User(late))) as client:
        await three(client, "S")
        await meet_stream(client, "S.a")
    await asyncio.to_thread(last.stop)
    other = Account(OPERATOR, name="OTHER", limits={**ACCOUNT_LIMITS, **JETSTREAM})
    smaller = late.limited(**{**JETSTREAM, "streams": 1})
    async with connected(first, **login(SYSTEM)) as system:
        await push(system, other, count=2)
        await push(system, late, smaller, count=2)
    async with connected(first, **login(User(late))) as client:
        refused = await api(client, "STREAM.CREATE.T", {"name": "T"})
        assert refused["error"]["err_code"] == 10027  # the account's limit on streams
    await asyncio.to_thread(last.start)
    async with connected(last, **login(User(other))) as client:
        await three(client, "O")
        await meet_stream(client, "O.a")

    async def has_heard() -> bool:
        there = (tmp_path / "2" / f"{late.public}.jwt").read_text()
        return there == smaller

    await until(has_heard, 30)
    async with connected(last, **login(User(late))) as client:
        pull = await client.jetstream().pull_subscribe("S.>", "D")
        messages: list[Msg] = []

        async def got() -> bool:
            with contextlib.suppress(ServiceUnavailableError):  # the leader is not known here yet
                messages.extend(await pull.fetch(1, timeout=30))
            return bool(messages)

        await until(got, 60)
        assert messages[0].data == b"1"
        await messages[0].ack_sync()


TIERS = {
    "R1": {**JETSTREAM, "streams": 1},
    "R3": {**JETSTREAM, "disk_storage": 10_000, "streams": 2},
}
TIERED = Account(OPERATOR, name="TIERED", limits={**ACCOUNT_LIMITS, "tiered_limits": TIERS})


@asynchronous
async def test_limits_by_replicas_hold_for_the_cluster(servers: Servers) -> None:
    said = []
    for kinds in ("ooo", "ppp"):
        cluster = Cluster(servers)
        cluster.start_all(kinds, itertools.repeat(block(TIERED)))
        await cluster.whole()
        async with connected(cluster.members[0], **login(User(TIERED))) as client:
            await three(client, "A", max_bytes=4_000)
            answers: list[Any] = []
            for name, replicas, size in (
                *(("B", 3, 7_000), ("B", 3, 5_000), ("C", 3, 100)),
                *(("D", 1, -1), ("E", 1, -1), ("F", 2, -1)),
            ):
                body = {"name": name, "num_replicas": replicas, "max_bytes": size}
                made = await api(client, f"STREAM.CREATE.{name}", body)
                answers.append((made.get("error") or {}).get("err_code"))
            durable = {"stream_name": "A", "config": {"durable_name": "X", "ack_policy": "all"}}
            assert "error" not in await api(client, "CONSUMER.DURABLE.CREATE.A.X", durable)
            info = await api(client, "INFO")
            for _, tier in sorted(info["tiers"].items()):
                answers.append([tier[key] for key in ("streams", "consumers", "limits")])
            answers.append([info[key] for key in ("streams", "consumers", "limits")])
            said.append(answers)
        for member in cluster.members:
            await asyncio.to_thread(member.stop)
    assert said[0] == said[1]
