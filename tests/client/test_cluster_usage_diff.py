"""An account's usage on all members of a cluster counts for its limits, as with three
nats-servers."""

import pytest
from nats.js.errors import APIError

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, page
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

MOST = 30_000
SIZE = 1000
LIMITED = ACCOUNTS.replace("jetstream: enabled", f"jetstream: {{ max_file: {MOST} }}")


async def taken(servers: Servers, kinds: str) -> tuple[int, int]:
    """How many messages of SIZE bytes a stream of three replicas takes before its account is full,
    and the error of the next message."""
    cluster = Cluster(servers)
    cluster.start_all(kinds, [LIMITED] * len(kinds))
    async with connected(cluster.members[0]) as client:

        async def made() -> bool:
            config = {"name": "S", "subjects": ["s"], "num_replicas": 3}
            return "error" not in await api(client, "STREAM.CREATE.S", config)

        await cluster.whole()
        await until(made, 60)
        context, count = client.jetstream(timeout=10), 0

        def counted() -> bool:
            """Whether each member knows the usage on the others."""
            used = [page(one, "jsz?acc=ONE")["account_details"][0] for one in cluster.members]
            return {one["storage"] for one in used} == {3 * count * (SIZE + 31)}

        while True:
            try:
                await context.publish("s", b"x" * SIZE)
            except APIError as error:
                return count, error.err_code or 0
            count += 1
            await until(counted, 30)


@asynchronous
async def test_limits_are_the_whole_cluster_s(servers: Servers) -> None:
    theirs, why = await taken(servers, "ppp")
    for kinds in ("ooo", "oop"):
        ours, error = await taken(servers, kinds)
        # Ours takes a message if one copy fits, nats-server only if all copies do.
        assert theirs <= ours <= theirs + 1, kinds
        assert error == why, kinds
