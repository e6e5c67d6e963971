"""Leaf nodes and hubs whose configuration changes while they run, beside nats-server in the same
place."""

import re
from collections.abc import Callable

import pytest

from tests.certificates import Authority
from tests.client.leafs import MIXED, Tree
from tests.client.mesh import page
from tests.client.reloads import FAILED, reload
from tests.client.tls import block
from tests.servers import Server, Servers, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

ACCOUNTS = """accounts {
    A { users: [{ user: a, password: a }] }
    B { users: [{ user: b, password: b }] }
}
"""
LINE = re.compile(r"\[INF\] (Reloaded: LeafNode .*)")


def change(server: Server, before: str, after: str) -> None:
    assert server.config.count(before) == 1
    reload(server, server.config.replace(before, after))


def joined(server: Server) -> set[str]:
    """The accounts here that are joined to a hub, or to a leaf node."""
    return {leaf["account"] for leaf in page(server, "leafz")["leafs"]}


def ids(server: Server) -> list[int]:
    return [leaf["id"] for leaf in page(server, "leafz")["leafs"]]


def told(server: Server) -> list[str]:
    """What the log says of leaf nodes in reloads, without ports."""
    return [re.sub(r":\d{4,5}\b", ":PORT", line) for line in LINE.findall(server.log())]


def tree_of(servers: Servers, kinds: str, **options: str) -> Tree:
    tree = Tree(servers)
    tree.add_hub(kinds[0], rest=ACCOUNTS, block=options.get("block", ""), monitor=True)
    tree.add_leaf(
        kinds[1],
        rest=ACCOUNTS,
        url=tree.url.replace("//", "//a:a@"),
        remote="account: A\n" + options.get("remote", ""),
        monitor=True,
    )
    wait_until(lambda: joined(tree.hub) == joined(tree.members[1]) == {"A"}, "it is joined", 20)
    return tree


def lines_of(servers: Servers, kinds: tuple[str, str], run: Callable[[str], list[str]]) -> None:
    """What logs say is the same with ours and with nats-server."""
    found = [run(kind) for kind in kinds]
    assert found[0] == found[1]
    assert found[0]


def test_remotes_come_and_go(servers: Servers) -> None:
    def run(kinds: str) -> list[str]:
        tree = tree_of(servers, kinds)
        leaf = tree.members[1]
        first = f'{{ url: "nats://a:a@127.0.0.1:{tree.port}"\naccount: A\n }}'
        second = first.replace("a:a", "b:b").replace("account: A", "account: B")
        change(leaf, first, f"{first}, {second}")
        wait_until(lambda: joined(leaf) == joined(tree.hub) == {"A", "B"}, "both are", 20)
        change(leaf, f"{first}, {second}", second)
        wait_until(lambda: joined(leaf) == joined(tree.hub) == {"B"}, "one is", 20)
        change(leaf, "account: B", "account: B, disabled: true")
        wait_until(lambda: not joined(leaf) | joined(tree.hub), "none is", 20)
        change(leaf, "account: B, disabled: true", "account: B")
        wait_until(lambda: joined(leaf) == {"B"}, "it is joined again", 20)
        change(leaf, "b:b@", "a:a@")
        wait_until(lambda: joined(tree.hub) == {"A"}, "another user joins", 20)
        return told(leaf)

    lines_of(servers, ("po", "pp"), run)
    run("op")


def test_first_remote_of_a_server(servers: Servers) -> None:
    """One that had nothing to do with leaf nodes at its start."""
    for kinds in MIXED:
        tree = Tree(servers)
        tree.add_hub(kinds[0], monitor=True)
        make = servers.under_test if kinds[1] == "o" else servers.peer
        leaf = make(config="server_name: LATE\n", monitor=True)
        remotes = f'leafnodes {{ remotes: [ {{ url: "{tree.url}" }} ] }}\n'
        reload(leaf, leaf.config + remotes)
        wait_until(lambda o=leaf: joined(o) == {"$G"}, "it is joined", 20)  # type: ignore[misc]
        reload(leaf, leaf.config.replace(remotes, ""))
        wait_until(lambda o=leaf: not joined(o), "it is not any more", 20)  # type: ignore[misc]


@pytest.mark.parametrize("side", ["hub", "leaf"])
def test_compression(servers: Servers, side: str) -> None:
    """Another level is taken by connections that are there; those that have to agree anew come
    again."""

    def run(kinds: str) -> list[str]:
        option = {"block" if side == "hub" else "remote": "compression: s2_fast"}
        tree = tree_of(servers, kinds, **option)
        changed = tree.members[side == "leaf"]

        def mode() -> str:
            return "".join(leaf["compression"] for leaf in page(changed, "leafz")["leafs"])

        shown = [mode()]
        now = "s2_fast"
        for after in ("s2_best", "s2_auto", "off", "s2_better", "accept"):
            before = ids(changed)
            change(changed, f"compression: {now}", f"compression: {after}")
            now = after
            comes_anew = after in ("off", "s2_better", "accept")
            if comes_anew:
                wait_until(lambda b=before: ids(changed) not in ([], b), "anew", 20)  # type: ignore[misc]
            else:
                assert ids(changed) == before
            shown.append(mode())
        return shown + told(changed)

    # The changed server's kind is that of its place.
    kinds = ("op", "pp") if side == "hub" else ("po", "pp")
    lines_of(servers, kinds, run)


def test_connections_without_compression_stay_so(servers: Servers) -> None:
    """The other side has none, and then this side has none either."""
    for kinds in ("op", "pp"):
        tree = tree_of(servers, kinds, block="compression: s2_fast", remote="compression: off")
        before = ids(tree.hub)
        change(tree.hub, "compression: s2_fast", "compression: off")
        assert ids(tree.hub) == before


def test_tls(servers: Servers, authority: Authority) -> None:
    """Certificates, and whether a handshake comes first, on both sides."""
    own, stranger = authority.server(), authority.server()

    def run(kinds: str) -> list[str]:
        trusts = f'tls {{ ca_file: "{authority.cert}" }}'
        tree = tree_of(servers, kinds, block=block(own, authority), remote=trusts)
        leaf = tree.members[1]
        before = ids(leaf)
        change(tree.hub, block(own, authority), block(stranger, authority))
        assert ids(leaf) == before
        # Who comes from now on makes a handshake first, and who does not is not let in.
        first = block(stranger, authority, "handshake_first: true")
        change(tree.hub, block(stranger, authority), first)
        change(leaf, trusts, trusts.replace(" }", ", handshake_first: true }"))
        change(leaf, "account: A", "account: A, disabled: true")
        wait_until(lambda: not ids(leaf), "it has left", 20)
        change(leaf, "account: A, disabled: true", "account: A")
        wait_until(lambda: bool(ids(leaf)), "it is back", 20)
        return told(tree.hub) + told(leaf)

    lines_of(servers, ("oo", "pp"), run)
    for kinds in ("op", "po"):
        run(kinds)


def test_what_stays_as_it_is(servers: Servers, authority: Authority) -> None:
    """Of the block, and of a remote that stays."""
    hub = 'leafnodes { listen: "127.0.0.1:%d", %s }\n'
    remote = 'leafnodes { remotes: [ { url: "nats://127.0.0.1:%d"\n%s } ]\n%s }\n'
    own = authority.server()
    in_block = {
        "no_advertise: true": "leafnodes.no_advertise: old=false, new=true",
        'advertise: "127.0.0.1:7777"': "leafnodes.advertise",
        "authorization { user: x, password: secret }": "leafnodes.authorization",
        "authorization { timeout: 3 }": "leafnodes.authorization",
        "min_version: 2.10.0": "leafnodes.min_version",
        "isolate_leafnode_interest: true": "leafnodes.isolate",
        "reconnect: 3s": "leafnodes.reconnect: old=1s, new=3s",
        "dial_timeout: 3s": "leafnodes.dial_timeout: old=1s, new=3s",
        block(own, authority): "leafnodes.tls",
    }
    of_remote = {
        "deny_imports: foo": "deny_imports",
        "deny_exports: foo": "deny_exports",
        "hub: true": "hub",
        "isolate_leafnode_interest: true": "isolate",
        "request_isolation: true": "request_isolation",
        "no_randomize: true": "no_randomize",
        "ignore_discovered_servers: true": "ignore_discovered_servers",
        "first_info_timeout: 3s": "first_info_timeout",
        "dial_timeout: 3s": "dial_timeout",
        "tls { insecure: true }": "tls",
    }
    for start in (servers.under_test, servers.peer):
        ours = start == servers.under_test
        port = free_port()
        server = start(config=hub % (port, ""))
        for more, name in in_block.items():
            reload(server, hub % (port, more), says=FAILED)
            assert not ours or f"config reload not supported for {name}" in server.log()
        assert "secret" not in server.log()
        server = start(config=remote % (port, "", ""))
        for more, name in of_remote.items():
            reload(server, remote % (port, more, ""), says=FAILED)
            shown = f'leafnodes.remotes (urls=["nats://127.0.0.1:{port}"], account="$G"): {name}'
            assert not ours or f"config reload not supported for {shown}" in server.log()
