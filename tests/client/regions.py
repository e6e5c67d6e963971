"""Clusters with JetStream that gateways join, for tests: one meta group over all of them."""

from collections.abc import Mapping

from tests.client.aio import until
from tests.client.mesh import ACCOUNTS, Cluster, page
from tests.servers import Server, Servers, free_port


def urls(ports: list[int]) -> str:
    return ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)


class Regions:
    """Clusters A, B, ... whose servers A1, A2, ... know all others from the beginning, so that no
    cluster elects a meta leader alone."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.clusters: dict[str, Cluster] = {}

    def start(self, kinds: str, rests: Mapping[str, str] | None = None) -> None:
        """Starts servers of these kinds, with a dash between two clusters. `rests`: more of the
        configuration of a server, by its name."""
        parts = dict(zip("ABCD", kinds.split("-"), strict=False))
        gates = {name: [free_port() for _ in members] for name, members in parts.items()}
        named = ", ".join(f"{{ name: {name}, urls: [{urls(at)}] }}" for name, at in gates.items())
        for name, members in parts.items():
            cluster = self.clusters[name] = Cluster(self.servers, name)
            routes = [free_port() for _ in members]
            for kind, route, gate in zip(members, routes, gates[name], strict=True):
                server = f"{name}{len(cluster.members) + 1}"
                gateway = (
                    f'gateway {{ name: {name}, listen: "127.0.0.1:{gate}", gateways: [{named}] }}'
                )
                rest = f"{ACCOUNTS}\n{gateway}\n{(rests or {}).get(server, '')}"
                cluster.add(
                    kind,
                    rest=rest,
                    server=server,
                    routes=routes,
                    port=route,
                    jetstream=True,
                    monitor=True,
                )

    @property
    def members(self) -> list[Server]:
        """The servers of all clusters."""
        return [one for cluster in self.clusters.values() for one in cluster.members]

    def member(self, name: str) -> Server:
        """The server with this name."""
        return self.clusters[name[0]].members[int(name[1:]) - 1]

    def leader(self) -> str:
        """The name of the meta leader, if all that run agree; "" otherwise."""
        running = [one for one in self.members if one.running]
        said = {page(one, "jsz").get("meta_cluster", {}).get("leader") for one in running}
        return (said.pop() or "") if len(said) == 1 else ""

    async def whole(self) -> None:
        """Waits until all know the meta leader, and how many they are."""

        def known() -> bool:
            found = [page(one, "jsz").get("meta_cluster", {}) for one in self.members]
            sizes = {one.get("cluster_size") for one in found}
            return sizes == {len(self.members)} and bool(self.leader())

        await until(known, 60)
