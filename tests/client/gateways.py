"""Clusters that are joined by gateways for tests, of ours and of nats-server in any mixture."""

from typing import Any

from tests.client.mesh import Cluster
from tests.servers import Server, Servers, free_port

MIXED = ("o-o", "o-p", "p-o", "oo-p", "po-o", "pp-o", "op-op", "oo-pp")
"""Two clusters by the kinds of their servers: o is ours, p nats-server."""


class Supercluster:
    """Clusters that are joined by gateways: each names all that there are, by its first server."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.clusters: dict[str, Cluster] = {}

    def start(self, kinds: str, *, block: str = "", rest: str = "", **options: Any) -> None:
        """Starts clusters A, B, ... of servers of these kinds, with a dash between two clusters.
        `block`: more of each `gateway`; `rest`: beside it."""
        parts = dict(zip("ABCD", kinds.split("-"), strict=False))
        first = {name: free_port() for name in parts}
        named = ", ".join(
            f'{{ name: {name}, urls: ["nats://127.0.0.1:{port}"] }}' for name, port in first.items()
        )
        for name, members in parts.items():
            cluster = self.clusters[name] = Cluster(self.servers, name)
            for number, kind in enumerate(members):
                port = free_port() if number else first[name]
                self.add(name, kind, port, f"gateways: [{named}]\n{block}", rest, **options)
            assert cluster.members

    def add(
        self, name: str, kind: str, gate: int, block: str, rest: str = "", **options: Any
    ) -> Server:
        """Starts one server more of a cluster. `gate`: the port for other clusters; `block`: what
        stands in its `gateway`; `rest`: beside it."""
        cluster = self.clusters.setdefault(name, Cluster(self.servers, name))
        config = f"""
            {rest}
            gateway {{
                name: {name}
                listen: "127.0.0.1:{gate}"
                {block}
            }}
        """
        options.setdefault("server", f"{name}{len(cluster.members) + 1}")
        return cluster.add(kind, rest=config, **options)

    @property
    def members(self) -> list[Server]:
        """The servers of all clusters."""
        return [member for cluster in self.clusters.values() for member in cluster.members]
