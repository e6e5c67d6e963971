"""Compression between servers, of ours and of nats-server in any mixture: which mode a pair of them
has, that all that is sent arrives, and how a stream that is damaged ends."""

import asyncio
import os
import random
import socket
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client

from jsserver.cext.bytes import s2_encode
from tests.client.aio import asynchronous, until
from tests.client.dialled import ROUTE, Dialled
from tests.client.leafs import Tree
from tests.client.mesh import Cluster, Heard, clients, clients_of, meet, page
from tests.servers import Server, Servers
from tests.waiting import wait_until

MODES = {
    "not_supported": "not_supported",
    "off": "off",
    "accept": "accept",
    "fast": "s2_fast",
    "better": "s2_better",
    "best": "s2_best",
    "auto": "{ mode: s2_auto, rtt_thresholds: [1h] }",
}
"""What a configuration says; of the last one all round trips are as short as they need be."""
SENDING = ("fast", "better", "best", "auto")
COUNT = 1000
LARGE = 1 << 20
PAIRS = ("op", "po", "oo")

pytestmark = pytest.mark.usefixtures("peer_present")


def shown(mode: str) -> str:
    """A mode as the pages show it, of a server that has it and sends to one that agrees."""
    return "s2_uncompressed" if mode == "auto" else f"s2_{mode}"


# ---- which mode


@pytest.mark.parametrize("order", ["own first", "peers first"])
def test_pairs_agree_as_two_nats_servers(servers: Servers, order: str) -> None:
    """A mesh of one server of each kind and mode, all of which show the mode of each other."""
    cluster = Cluster(servers)
    kinds = "op" if order == "own first" else "po"
    modes = {}
    for kind in kinds:
        for mode, said in MODES.items():
            block = f"pool_size: -1\ncompression: {said}"
            cluster.add(kind, block=block, server=f"{kind}{mode}", monitor=True)
            modes[f"{kind}{mode}"] = kind, mode

    def all_there() -> bool:
        return all(len(page(s, "routez")["routes"]) == len(modes) - 1 for s in cluster.members)

    wait_until(all_there, "each server has a route to each other one")

    def agreed() -> dict[tuple[str, str], dict[str, str]]:
        found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for server in cluster.members:
            routez = page(server, "routez")
            kind, mode = modes[routez["server_name"]]
            for route in routez["routes"]:
                others_kind, others_mode = modes[route["remote_name"]]
                found[mode, others_mode][kind + others_kind] = route["compression"]
        return found

    for pair, by_kinds in agreed().items():
        assert len(set(by_kinds.values())) == 1, (pair, by_kinds)
    assert agreed()["fast", "best"]["oo"] == "s2_fast"
    assert agreed()["accept", "auto"]["op"] == "s2_fast"
    assert agreed()["auto", "fast"]["op"] == "s2_uncompressed"


def leafs_of(server: Server, count: int) -> list[dict[str, Any]]:
    """As the page shows them, once there are so many."""
    wait_until(lambda: page(server, "leafz")["leafnodes"] == count, f"{count} links to leaf nodes")
    found: list[dict[str, Any]] = page(server, "leafz")["leafs"]
    return found


@pytest.mark.parametrize("hubs", MODES)
def test_hubs_and_leaf_nodes_agree_as_two_nats_servers(servers: Servers, hubs: str) -> None:
    """A hub of each kind, and a leaf node of each mode and kind at both."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for kind in "op":
        tree = Tree(servers)
        tree.add_hub(kind, block=f"compression: {MODES[hubs]}", monitor=True)
        names = {}
        for leafs_kind in "op":
            for mode, said in MODES.items():
                leaf = tree.add_leaf(leafs_kind, remote=f"compression: {said}", monitor=True)
                names[f"LEAF{len(tree.members) - 1}"] = leafs_kind, mode, leaf
        for one in leafs_of(tree.hub, len(names)):
            leafs_kind, mode, leaf = names[one["name"]]
            (there,) = leafs_of(leaf, 1)
            seen = {"hub": one["compression"], "leaf": there["compression"]}
            found.setdefault(mode, {})[kind + leafs_kind] = seen
    for mode, by_kinds in found.items():
        assert all(seen == by_kinds["pp"] for seen in by_kinds.values()), (mode, by_kinds)


# ---- what is sent arrives


async def exchange(found: list[Client]) -> None:
    """Each of two clients sends the other one messages of all sorts."""
    heard = Heard()
    for number, client in enumerate(found):
        await heard.listen(client, f"plain{number}", f"to.{number}")
        await heard.listen(client, f"large{number}", f"large.{number}")
        await heard.listen(client, f"queue{number}", f"work.{number}", "group")

        async def answer(message: Any) -> None:
            await message.respond(message.data[::-1])

        await client.subscribe(f"service.{number}", cb=answer)
    await meet(found)
    rand = random.Random(7)
    sizes = [rand.choice((0, 1, 17, 200, 5000)) for _ in range(COUNT)]
    bodies = [rand.randbytes(n) if n % 2 else (b"%d again " % n * n)[:n] for n in sizes]
    noise = os.urandom(LARGE)
    large = [noise, b"x" * LARGE, (noise[:1000] * LARGE)[:LARGE]]
    for number, client in enumerate(found):
        for n, body in enumerate(bodies):
            headers = {"Nth": str(n)} if n % 3 == 0 else None
            await client.publish(f"to.{1 - number}", body, headers=headers)
            await client.publish(f"work.{1 - number}", body)
        for body in large:
            await client.publish(f"large.{1 - number}", body)
        await client.flush()
    await until(lambda: heard.counts("large") == [len(large)] * 2, 60)
    await until(lambda: heard.counts("plain") == heard.counts("queue") == [COUNT] * 2, 60)
    for key, messages in heard.messages.items():
        assert [m.data for m in messages] == (large if key.startswith("large") else bodies)
    for number, client in enumerate(found):
        asked = [client.request(f"service.{1 - number}", body, timeout=20) for body in bodies]
        answers = await asyncio.gather(*asked)
        assert [answer.data for answer in answers] == [body[::-1] for body in bodies]


@pytest.mark.parametrize("mode", SENDING)
@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_all_that_is_sent_over_routes_arrives(
    servers: Servers, kinds: str, mode: str
) -> None:
    cluster = Cluster(servers)
    block = f"compression: {MODES[mode]}"
    cluster.start(kinds, block=block, rest="max_payload: 2MB", monitor=True)
    async with clients(cluster) as found:
        await exchange(found)
    for server in cluster.members:
        routes = page(server, "routez")["routes"]
        assert {route["compression"] for route in routes} == {shown(mode)}


@pytest.mark.parametrize("mode", SENDING)
@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_all_that_is_sent_to_a_leaf_node_arrives(
    servers: Servers, kinds: str, mode: str
) -> None:
    tree = Tree(servers)
    said, rest = f"compression: {MODES[mode]}", "max_payload: 2MB"
    tree.add_hub(kinds[0], block=said, rest=rest, monitor=True)
    tree.add_leaf(kinds[1], remote=said, rest=rest, monitor=True)
    async with clients_of(tree.members) as found:
        await exchange(found)
    for server in tree.members:
        (leaf,) = leafs_of(server, 1)
        assert leaf["compression"] == shown(mode)


# ---- streams that are damaged

NAMED = '"X"'
"""As the log names the server that these tests are."""
PLAIN = b"RS+ $G some.subject\r\nPING\r\n"


class Compressed(Dialled):
    """A route to a server, that sends compressed from the first INFO on."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.say("CONNECT", ROUTE.connect)
        self.say("INFO", ROUTE.info | {"compression": "s2_fast"})
        one = b"INFO %s \r\n" % msgspec.json.encode(ROUTE.info | {"compression": "s2_fast"})
        self.send(one + b"PING\r\n")

    def send(self, plain: bytes) -> None:
        self.socket.sendall(s2_encode(plain))


DAMAGED = {
    "no stream": (b"RS+ $G some.subject\r\n", "a chunk of an unknown kind or impossible size"),
    "checksum": (s2_encode(PLAIN)[:-1] + b"?", "a chunk's checksum does not fit"),
    "too long": (b"\x00\xff\xff\xff1234", "a chunk of an unknown kind or impossible size"),
    "too much": (b"\x00\x0c\x00\x00crc!\xff\xff\xff\xff\x07...", "a compressed chunk is corrupt"),
    "unknown kind": (b"\x02\x04\x00\x00crc!", "a chunk of an unknown kind or impossible size"),
    "snappy": (b"\xff\x06\x00\x00sNaPpX", "no S2 or Snappy stream"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_stream_ends_the_route(servers: Servers, case: str) -> None:
    data, why = DAMAGED[case]
    cluster = Cluster(servers)
    server = cluster.add("o", block="compression: accept")
    route = Compressed(cluster.ports[0])
    with route.socket:
        route.socket.sendall(data)
        server.wait_log(f"{NAMED} - read error: {why}")
        server.wait_log("Router connection closed: Read Error")


def test_a_stream_that_is_cut_ends_the_route(servers: Servers) -> None:
    cluster = Cluster(servers)
    server = cluster.add("o", block="compression: accept")
    route = Compressed(cluster.ports[0])
    with route.socket:
        whole = s2_encode(os.urandom(1000))
        route.socket.sendall(whole[: len(whole) // 2])
        route.socket.shutdown(socket.SHUT_WR)
        server.wait_log(f"{NAMED} - read error: the compressed stream ends early")
        server.wait_log("Router connection closed: Read Error")
