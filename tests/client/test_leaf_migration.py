"""Streams that a leaf node gives up to other members of its cluster while its hub is away."""

import pytest

from tests.client.aio import api, asynchronous, connected, until
from tests.client.leafs import Tree
from tests.client.mesh import ACCOUNTS, NAMES, Cluster
from tests.client.test_replicated import leader, led_by
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

WAYS = ("jetstream_cluster_migrate: true", "js_cluster_migrate { leader_migrate_delay: 500ms }")


@pytest.mark.parametrize(
    ("kinds", "way"),
    [
        ("opp", WAYS[0]),
        ("ooo", WAYS[1]),
        pytest.param("poo", WAYS[1], marks=pytest.mark.soak),
    ],
)
@asynchronous
async def test_streams_are_led_where_the_hub_is_reached(
    servers: Servers, kinds: str, way: str
) -> None:
    tree = Tree(servers)
    tree.add_hub("o")
    remote = f'{{ url: "{tree.url}", account: ONE\n{way} }}'
    away = f"{ACCOUNTS}\nleafnodes {{ reconnect: 200ms, remotes: [ {remote} ] }}"
    members = Cluster(servers)
    members.start_all(kinds, rests=[away, ACCOUNTS, ACCOUNTS])
    await members.ready()
    async with connected(members.members[1]) as client:
        config = {"name": "S", "subjects": ["s"], "num_replicas": 3}
        assert "error" not in await api(client, "STREAM.CREATE.S", config, 10)
        consumer = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        assert "error" not in await api(client, "CONSUMER.CREATE.S.D", consumer, 10)
        await led_by(client, "STREAM", "S", NAMES[0])
        await led_by(client, "CONSUMER", "S.D", NAMES[0])
        tree.hub.stop()

        async def led_elsewhere(subject: str) -> bool:
            return await leader(client, subject) not in ("", NAMES[0])

        await until(lambda: led_elsewhere("STREAM.INFO.S"), 30)
        await until(lambda: led_elsewhere("CONSUMER.INFO.S.D"), 30)
        tree.hub.start()
        await led_by(client, "STREAM", "S", NAMES[0])
        await led_by(client, "CONSUMER", "S.D", NAMES[0])
