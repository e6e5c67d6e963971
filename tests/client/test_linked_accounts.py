"""Accounts whose clients are at several servers: limits, changed claims, kicks and callouts. What
happens in mixed clusters is what happens among nats-servers."""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.gateways import Supercluster
from tests.client.mesh import Cluster, meet, mixtures, page
from tests.client.test_callout_diff import ISSUER, user_of
from tests.client.test_callout_diff import response as callout_response
from tests.client.test_operator_cluster import OPERATOR, SYSTEM, full, login, push
from tests.jwts import Account, User
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

KINDS = ("op", "po", "pp")
"""Two members of a cluster; what the last ones do is what all have to."""
Case = Callable[[Servers, str], Awaitable[Any]]


async def alike(servers: Servers, case: Case) -> Any:
    found = {kinds: await case(servers, kinds) for kinds in KINDS}
    assert found == dict.fromkeys(KINDS, found["pp"])
    return found["pp"]


async def outcome(server: Server, user: User) -> str:
    """What a client hears that connects."""
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    options = {**login(user), "allow_reconnect": False, "error_cb": note, "connect_timeout": 10}
    try:
        async with connected(server, **options):
            return "in"
    except Exception as error:
        return str(error)


def operated(servers: Servers, kinds: str, folder: Path, account: Account) -> Cluster:
    """Two servers that share the accounts of directories."""
    cluster = Cluster(servers)
    folder = folder / kinds
    for number, kind in enumerate(kinds):
        cluster.add(kind, rest=full(folder / str(number), account))
    return cluster


async def linked(cluster: Cluster) -> None:
    async with contextlib.AsyncExitStack() as stack:
        users = [
            await stack.enter_async_context(connected(member, **login(SYSTEM)))
            for member in cluster.members
        ]
        await meet(users)


@asynchronous
async def test_connections_are_counted_at_all_servers(servers: Servers, tmp_path: Path) -> None:
    async def case(servers: Servers, kinds: str) -> list[str]:
        account = Account(OPERATOR, name="MAIN")
        account.token = account.limited(conn=2)
        user = User(account)
        cluster = operated(servers, kinds, tmp_path, account)
        await linked(cluster)
        one, other = cluster.members
        found: list[str] = []

        async def refused(server: Server) -> bool:
            found.append(await outcome(server, user))
            return found[-1] != "in"

        async def welcome(server: Server) -> bool:
            return await outcome(server, user) == "in"

        async with connected(one, **login(user)):
            async with connected(other, **login(user)):
                for server in (one, other):
                    await until(lambda s=server: refused(s), 20)  # type: ignore[misc]
            for server in (one, other):
                await until(lambda s=server: welcome(s), 20)  # type: ignore[misc]
        return sorted({*found} - {"in"})

    assert await alike(servers, case)


LIMITED = """
    accounts {
        SYS { users: [{ user: sys, password: sys }] }
        A { users: [{ user: a, password: a }], limits { max_connections: 1, max_leafnodes: 1 } }
    }
    system_account: SYS
"""


@pytest.mark.parametrize("kinds", mixtures("o-o", "o-p", "p-o", soak=["p-p"]))
@asynchronous
async def test_connections_are_counted_at_other_clusters(servers: Servers, kinds: str) -> None:
    joined = Supercluster(servers)
    joined.start(kinds, rest=LIMITED)
    one, other = joined.members
    login = {"user": "a", "password": "a", "allow_reconnect": False}

    async def enters(server: Server, stack: contextlib.AsyncExitStack) -> bool:
        try:
            await stack.enter_async_context(connected(server, **login, connect_timeout=10))
        except Exception:
            return False
        return True

    async def lets_in() -> bool:
        async with contextlib.AsyncExitStack() as stack:
            return await enters(one, stack)

    async def refuses() -> bool:
        return not await lets_in()

    system = {"user": "sys", "password": "sys"}
    async with connected(one, **system) as here, connected(other, **system) as there:
        await meet([here, there])
        assert await lets_in()
    async with contextlib.AsyncExitStack() as stack:
        await until(lambda: enters(other, stack), 20)
        await until(refuses, 20)
    await until(lets_in, 20)
    if kinds.startswith("p"):
        return  # nats-server counts the connections of a lost server for minutes
    async with contextlib.AsyncExitStack() as stack:
        await until(lambda: enters(other, stack), 20)
        await until(refuses, 20)
        other.kill()
        await until(lets_in, 20)


@asynchronous
async def test_claims_that_change(servers: Servers, tmp_path: Path) -> None:
    """A token is pushed at one server; clients of the other one feel it."""

    async def case(servers: Servers, kinds: str) -> list[Any]:
        account = Account(OPERATOR, name="MAIN")
        user = User(account)
        cluster = operated(servers, kinds, tmp_path, account)
        await linked(cluster)
        one, other = cluster.members
        found: list[Any] = []
        async with connected(one, **login(SYSTEM)) as system:
            closed = asyncio.Event()

            async def end() -> None:
                closed.set()

            options = {**login(user), "allow_reconnect": False, "closed_cb": end}
            async with connected(other, **options) as client:
                revoked = account.made(revocations={user.public: int(time.time()) + 10})
                await push(system, account, revoked, count=2)
                await asyncio.wait_for(closed.wait(), 20)
                found.append(str(client.last_error))
            found.append(await outcome(other, user))
            found.append(await outcome(one, user))
        return found

    assert await alike(servers, case)


USERS = """
    accounts {
        SYS { users: [{ user: sys, password: sys }] }
        AUTH { users: [{ user: auth, password: auth }] }
        APP {}
    }
    system_account: SYS
    authorization { auth_callout {
        issuer: %s, account: AUTH, auth_users: [auth, sys]
    } }
"""


@asynchronous
async def test_a_callout_at_another_server(servers: Servers) -> None:
    """The service of the callout listens at one server, and clients come to the other one."""

    async def case(servers: Servers, kinds: str) -> list[Any]:
        cluster = Cluster(servers)
        cluster.start(kinds, rest=USERS % ISSUER.public)
        one, other = cluster.members
        auth = {"user": "auth", "password": "auth"}
        asked: list[str] = []

        async def answer(message: Any) -> None:
            request = decoded(message.data)
            asked.append(request["server_id"]["name"])
            if request["connect_opts"].get("user") == "bob":
                jwt = user_of(request, aud="APP", name="bob")
                await message.respond(callout_response(request, jwt=jwt).encode())
            else:
                await message.respond(callout_response(request, error="no").encode())

        async with connected(one, **auth) as service, connected(other, **auth) as near:
            await service.subscribe("$SYS.REQ.USER.AUTH", cb=answer)
            await meet([service, near])
            found: list[Any] = []
            for server in (other, one):
                for user in ("bob", "eve"):
                    options = {"user": user, "password": "x", "allow_reconnect": False}
                    try:
                        async with connected(server, **options, connect_timeout=10) as client:
                            await client.publish("x", b"")
                            await client.flush()
                            found.append("in")
                    except Exception as error:
                        found.append(str(error))
            return [*found, [name for n, name in enumerate(asked) if name not in asked[:n]]]

    assert await alike(servers, case) == [
        *("in", "nats: 'Authorization Violation'") * 2,
        ["B", "A"],
    ]


def decoded(token: bytes) -> dict[str, Any]:
    """What a request of a callout asks."""
    body = token.split(b".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
    return found["nats"]  # type: ignore[no-any-return]


KICKED = "accounts { SYS { users: [{user: sys, password: sys}] } }\nsystem_account: SYS"


@asynchronous
async def test_a_client_of_another_server_is_kicked(servers: Servers) -> None:
    async def case(servers: Servers, kinds: str) -> list[Any]:
        cluster = Cluster(servers)
        cluster.start(kinds, rest=KICKED, monitor=True)
        one, other = cluster.members
        sys = {"user": "sys", "password": "sys"}
        async with connected(one, **sys) as system, connected(other, **sys) as there:
            await meet([system, there])
            async with connected(other) as client:
                before = client.stats["reconnects"]
                number = client.client_id
                server = page(other, "varz")["server_id"]
                found = []
                for verb, body in (
                    ("LDM", {"cid": number}),
                    ("KICK", {"cid": number}),
                    ("KICK", {"cid": 10**6}),
                ):
                    answer = await system.request(
                        f"$SYS.REQ.SERVER.{server}.{verb}", json.dumps(body).encode(), timeout=10
                    )
                    data = json.loads(answer.data)
                    found.append(data.get("error"))
                await until(lambda: client.stats["reconnects"] > before)
        return found

    await alike(servers, case)
