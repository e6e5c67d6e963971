"""Servers are evacuated by the requests of nats-server 2.15, where a server of ours leads the meta
group; answers are those of nats-server 2.15.3."""

import pytest

from tests.client.aio import api, asynchronous, connected
from tests.client.mesh import NAMES, placeable
from tests.client.test_cluster_care import held_by
from tests.client.test_meta_leader import leads, led_by
from tests.client.test_regrouped import alike, held, loaded, made, started, stream, take
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

STREAM = "io.nats.jetstream.api.v1.stream_evacuate_peer_response"
SERVER = "io.nats.jetstream.api.v1.meta_server_evacuate_response"
Requests = tuple[tuple[str, dict[str, object] | None, int], ...]
"""Names, bodies, and the errors that answer them."""
REQUESTS: Requests = (
    ("STREAM.PEER.EVACUATE.S", None, 10003),
    ("STREAM.PEER.EVACUATE.S", {}, 10003),
    ("STREAM.PEER.EVACUATE.S", {"peer": "ZZ"}, 10040),
    ("STREAM.PEER.EVACUATE.S", {"peer": "A", "x": 1}, 10025),
    ("STREAM.PEER.EVACUATE.NO", {"peer": "A"}, 10059),
)
OF_SYSTEM: Requests = (
    ("SERVER.EVACUATE", {}, 10003),
    ("SERVER.EVACUATE", {"peer": "ZZ"}, 10044),
    ("SERVER.EVACUATE", {"peer_id": "ZZ"}, 10044),
    ("SERVER.EVACUATE", {"peer": "A", "x": 1}, 10025),
)


@pytest.mark.parametrize("kinds", ["oooo", "popo"])
@asynchronous
async def test_streams_leave_a_server_that_is_evacuated(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with (
        connected(cluster.members[1]) as client,
        connected(cluster.members[1], user="sys", password="sys") as system,
    ):
        await led_by(cluster, NAMES[kinds.index("o")])
        await placeable(client, 4)
        full = {"name": "FULL", "subjects": ["full"], "num_replicas": 4}
        assert "error" not in await api(client, "STREAM.CREATE.FULL", full)
        await made(client, stream(3))
        for asks, requests, type_ in ((client, REQUESTS, STREAM), (system, OF_SYSTEM, SERVER)):
            for name, body, code in requests:
                refused = await api(asks, name, body)
                assert (refused["error"]["err_code"], refused["type"]) == (code, type_)
        async with loaded(client) as load:
            members = await held(client, 3)
            await take(load)
            gone = max(members)
            answer = await api(client, "STREAM.PEER.EVACUATE.S", {"peer": gone})
            assert answer == {"type": STREAM, "success": True}
            await held(client, 3, {*NAMES[:4]} - {gone})
            await take(load)
            # A stream that every server holds stays whole.
            refused = await api(client, "STREAM.PEER.EVACUATE.FULL", {"peer": gone})
            assert refused["error"]["err_code"] == 10075
            left = next(name for name in NAMES[:4] if name not in (gone, leads(cluster)))
            answer = await api(system, "SERVER.EVACUATE", {"peer": left})
            assert answer == {"type": SERVER, "success": True}
            members = await held(client, 3, {*NAMES[:4]} - {left})
            await take(load)
        assert held_by(cluster)[left] == 1
        await alike(cluster, load, members)
