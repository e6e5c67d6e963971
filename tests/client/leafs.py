"""Hubs and leaf nodes for tests, of ours and of nats-server in any mixture."""

from typing import Any

from tests.servers import Server, Servers, free_port

MIXED = ("op", "po", "oo")
"""A hub and its leaf node by their kinds: o is ours, p nats-server."""


def server(servers: Servers, kind: str, config: str, **options: Any) -> Server:
    """One server of a kind."""
    return servers.of_kind(kind, config=config, **options)


class Tree:
    """A hub and the servers that are its leaf nodes."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.members: list[Server] = []
        self.port = free_port()
        """Of the hub, for leaf nodes."""

    @property
    def hub(self) -> Server:
        return self.members[0]

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self, kinds: str, *, block: str = "", rest: str = "", **remote: str) -> None:
        """Starts a hub and leaf nodes of these kinds. `block`: more of the hub's `leafnodes`;
        `rest`: beside it; `remote`: as add_leaf has it."""
        self.add_hub(kinds[0], block=block, rest=rest)
        for kind in kinds[1:]:
            self.add_leaf(kind, **remote)

    def add_hub(self, kind: str, *, block: str = "", rest: str = "", **options: Any) -> Server:
        listen = f'leafnodes {{ listen: "127.0.0.1:{self.port}"\n{block} }}'
        config = f"server_name: HUB\n{rest}\n{listen}\n"
        self.members.append(server(self.servers, kind, config, **options))
        return self.hub

    def add_leaf(
        self,
        kind: str,
        *,
        remote: str = "",
        url: str = "",
        block: str = "",
        rest: str = "",
        **options: Any,
    ) -> Server:
        """`remote`: more of its remote than the URL; `block`: more of its `leafnodes`; `rest`:
        beside that."""
        remotes = f'remotes: [ {{ url: "{url or self.url}"\n{remote} }} ]'
        leafnodes = f"leafnodes {{ {remotes}\nreconnect: 200ms\n{block} }}"
        config = f"server_name: LEAF{len(self.members)}\n{rest}\n{leafnodes}\n"
        self.members.append(server(self.servers, kind, config, **options))
        return self.members[-1]
