"""A cluster whose configuration changes while its members run, each of ours beside one of
nats-server in the same place."""

import json

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.dialled import ROUTE, Dialled
from tests.client.mesh import ACCOUNTS, Cluster, clients, page
from tests.client.reloads import FAILED, reload
from tests.client.test_route_permissions_diff import OPEN, crossing
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

ROUTES_OF_A_PEER = 4
NO_RULES = "permissions { import: { deny: [nobody] }, export: { deny: [nobody] } }"
RULES = {
    "import": 'permissions { import: { deny: ["a.*", "b"] } }',
    "export": 'permissions { export: { deny: ["a.x", "b.*"] } }',
    "export allow": f'permissions {{ export: {{ allow: ["a.x", "b.>", {OPEN}] }} }}',
    "both": 'permissions { import: { deny: "a.x" }, export: { deny: "a.y" } }',
    "none": "",
}


def change(server: Server, before: str, after: str) -> None:
    assert server.config.count(before) == 1
    reload(server, server.config.replace(before, after))


def rules_known(server: Server, other: Server) -> bool:
    """Whether a server has heard on each route which rules the other one has now."""
    rules = [page(other, "routez").get(key) for key in ("import", "export")]
    found = page(server, "routez")["routes"]
    print(rules, found[0].get("import"), found[0].get("export"))
    return all([route.get(key) for key in ("import", "export")] == rules for route in found)


def routes(server: Server) -> int:
    found: int = page(server, "routez")["num_routes"]
    return found


async def all_routes(members: list[Server]) -> None:
    """Waits until two members have all of their routes: one that opens while nats-server changes
    its rules is told the old ones for good."""
    await until(lambda: all(routes(member) == ROUTES_OF_A_PEER for member in members), 20)


@pytest.mark.parametrize("rules", RULES)
@asynchronous
async def test_permissions(servers: Servers, rules: str) -> None:
    """What crosses once the rules are other ones, and when they are as before again."""
    found: list[list[list[str]]] = []
    for kinds in ("op", "po", "pp"):
        cluster = Cluster(servers)
        for kind in kinds:
            cluster.add(kind, block=NO_RULES, monitor=True)
        await all_routes(cluster.members)
        changed = cluster.members[kinds.index("o")] if "o" in kinds else cluster.members[0]
        other = next(one for one in cluster.members if one is not changed)
        sender, receiver = (cluster.members.index(one) for one in (changed, other))
        found.append([])
        for before, after in ((NO_RULES, RULES[rules]), (RULES[rules], NO_RULES)):
            change(changed, before or "routes:", after if before else f"{after}\nroutes:")
            await until(lambda o=other, c=changed: rules_known(o, c), 20)  # type: ignore[misc]
            found[-1].append(await crossing(cluster, sender, receiver))
            found[-1].append(await crossing(cluster, receiver, sender))
    assert found[0] == found[1] == found[2]


@asynchronous
async def test_interest_of_who_stays(servers: Servers) -> None:
    """Subscriptions that were there before a reload cross as if they came behind it."""
    for kinds in ("op", "po", "oo"):
        cluster = Cluster(servers, kinds)
        cluster.add(kinds[0], block=NO_RULES, monitor=True)
        cluster.add(kinds[1], monitor=True)
        await all_routes(cluster.members)
        changed, other = cluster.members
        async with connected(changed) as here, connected(other) as there:
            got: list[str] = []

            async def take(message: object, got: list[str] = got) -> None:
                got.append(str(getattr(message, "subject", "")))

            await here.subscribe("here", cb=take)
            await there.subscribe("there", cb=take)
            await here.flush()

            async def cross(got: list[str] = got) -> bool:
                await there.publish("here", b"")
                await here.publish("there", b"")
                await there.flush()
                await here.flush()
                return {"here", "there"} <= set(got)

            await until(cross, 20)
            shut = "permissions { import: { deny: here }, export: { deny: there } }"
            change(changed, NO_RULES, shut)

            async def silent(got: list[str] = got) -> bool:
                got.clear()
                await cross()
                await cross()
                return not got

            await until(silent, 20)
            change(changed, shut, NO_RULES)
            await until(cross, 20)


@pytest.mark.parametrize("kinds", ["op", "oo", "pp"])
@asynchronous
async def test_routes_that_are_named_later(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.add(kinds[0], monitor=True)
    second = cluster.add(kinds[1], routes=[], monitor=True)
    dialled = f'routes: ["nats://127.0.0.1:{cluster.ports[0]}"]'
    change(second, "routes: []", dialled)
    await until(lambda: routes(second) == ROUTES_OF_A_PEER, 20)
    assert "Reloaded: cluster routes" in second.log()
    change(second, dialled, "routes: []")
    await until(lambda: routes(second) == 0 and routes(cluster.members[0]) == 0, 20)


@pytest.mark.parametrize("kinds", ["op", "po", "oo"])
@asynchronous
async def test_a_login_is_for_who_comes(servers: Servers, kinds: str) -> None:
    """Who came by the login before is cut, and comes again by the new one alone."""
    login = "authorization { user: u, password: %s }"
    cluster = Cluster(servers)
    first = cluster.add(kinds[0], block=login % "old", monitor=True)
    url = f'"nats://u:%s@127.0.0.1:{cluster.ports[0]}"'
    second = cluster.add(kinds[1], block=f"routes: [{url % 'old'}]", routes=[], monitor=True)
    await until(lambda: routes(second) == ROUTES_OF_A_PEER, 20)
    change(first, login % "old", login % "new")
    assert "Reloaded: cluster" in first.log()
    await until(lambda: routes(first) == 0, 20)
    change(second, url % "old", url % "new")
    await until(lambda: routes(first) == routes(second) == ROUTES_OF_A_PEER, 20)


def test_who_comes_meanwhile_hears_of_new_rules(servers: Servers) -> None:
    cluster = Cluster(servers)
    member = cluster.add("o", block=NO_RULES)
    coming = Dialled(cluster.ports[0])
    assert coming.info["export"] == {"deny": ["nobody"]}
    change(member, NO_RULES, RULES["both"])
    coming.say("CONNECT", ROUTE.connect)
    coming.say("INFO", ROUTE.info)
    told = next(line for line in coming.file if line.startswith(b"INFO "))
    assert json.loads(told.removeprefix(b"INFO "))["export"] == {"deny": ["a.y"]}
    coming.socket.close()


def test_what_stays_as_it_is(servers: Servers) -> None:
    cluster = Cluster(servers)
    member = cluster.add("o")
    reload(member, member.config.replace("name: C", "name: D"), says=FAILED)
    assert 'cluster.name: old="C", new="D"' in member.log()


def shown(server: Server, key: str) -> list[object]:
    return [route.get(key) for route in page(server, "routez")["routes"]]


async def cross(cluster: Cluster, **options: str) -> None:
    """Messages go from each member to the other."""
    async with clients(cluster, **options):
        pass  # who meets has heard of the other


@pytest.mark.parametrize("kinds", ["op", "po", "oo"])
@asynchronous
async def test_compression(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds, block="compression: off", monitor=True)
    await all_routes(cluster.members)
    for mode in ("s2_fast", "s2_best", "off"):
        before = {one: shown(one, "rid") for one in cluster.members}
        for member in cluster.members:
            was = member.config.partition("compression: ")[2].split()[0]
            change(member, f"compression: {was}", f"compression: {mode}")
        for member in cluster.members:
            every = [mode] * ROUTES_OF_A_PEER
            await until(lambda m=member, e=every: shown(m, "compression") == e, 30)  # type: ignore[misc]
            assert mode != "s2_best" or shown(member, "rid") == before[member]
        await cross(cluster)


@pytest.mark.parametrize("kinds", ["op", "po", "oo"])
@asynchronous
async def test_pools_and_accounts(servers: Servers, kinds: str) -> None:
    """All members have the new pool or the account's own connection once all are reloaded."""
    cluster = Cluster(servers)
    cluster.start(kinds, block="pool_size: 3", rest=ACCOUNTS, monitor=True)
    await all_routes(cluster.members)
    for block, count in (("pool_size: 5", 6), ("pool_size: 2\naccounts: [ONE]", 4), ("", 4)):
        for member in cluster.members:
            text = member.config
            start = text.index("pool_size")
            end = text.index("}", start)
            reload(member, f"{text[:start]}{block or 'pool_size: 3'}\n{text[end:]}")
        await until(lambda c=count: all(routes(one) == c for one in cluster.members), 40)  # type: ignore[misc]
        await cross(cluster)
