"""`verify_and_map`: which user a certificate stands for, compared with nats-server."""

import json
from typing import Any

import pytest

from tests.certificates import Issued
from tests.client.tls import Site, TlsClient, page
from tests.servers import Server, Servers

USERS = [
    "a@example.com",
    "app.example.com",
    "spiffe://example.com/one",
    "CN=alice,O=Acme",
    "C=US,O=Acme,CN=bob",
    "DC=com,DC=ex,CN=dora",
    "CN=eve\\\\,x,O=Acme",
    "CN=two,OU=a+O=b",
    "CN=u,O=x,DC=foo",
    "CN=odd",
    "O=x, CN = spaced",
    "bob",
    "127.0.0.9",
]
CERTIFICATES: dict[str, dict[str, Any]] = {
    "email": {"subject": "CN=x", "emails": ("z@example.com", "a@example.com")},
    "dns": {"subject": "CN=x", "dns": ("other", "app.example.com")},
    "uri": {"subject": "CN=x", "uris": ("spiffe://example.com/one",)},
    "email before subject": {"subject": "O=Acme,CN=alice", "emails": ("a@example.com",)},
    "dns before subject": {"subject": "O=Acme,CN=alice", "dns": ("app.example.com",)},
    "no such san, subject": {"subject": "O=Acme,CN=alice", "dns": ("nobody",)},
    "subject": {"subject": "O=Acme,CN=alice"},
    "subject turned": {"subject": "CN=alice,O=Acme"},
    "three parts": {"subject": "C=US,O=Acme,CN=bob"},
    "three parts turned": {"subject": "CN=bob,O=Acme,C=US"},
    "three parts mixed": {"subject": "O=Acme,CN=bob,C=US"},
    "part missing": {"subject": "O=Acme,CN=bob"},
    "plain name": {"subject": "CN=bob"},
    "domain": {"subject": "DC=com,DC=ex,CN=dora"},
    "domain turned": {"subject": "CN=dora,DC=ex,DC=com"},
    "several values": {"subject": "O=b+OU=a,CN=two"},
    "several values as two": {"subject": "O=b,OU=a,CN=two"},
    "unknown kind": {"subject": "GIVENNAME=g,CN=odd"},
    "unknown kind and more": {"subject": "UID=g,O=x,CN=u,DC=foo"},
    "spaces": {"subject": "O=x,CN=spaced"},
    "address": {"subject": "CN=x", "ips": ("127.0.0.9",)},
    "nobody": {"subject": "CN=nobody"},
}


def config(site: Site) -> str:
    users = "\n".join(f'{{ user: "{name}" }}' for name in USERS)
    return site.config(
        f'ca_file: "{site.authority.cert}", verify_and_map: true',
        more=f"""
        authorization {{ users: [
            {users}
            {{ user: "CN=locked", password: secret }}
            {{ user: "CN=ws", allowed_connection_types: [WEBSOCKET] }}
            {{ user: "CN=limited", permissions: {{ publish: ok }} }}
        ] }}""",
    )


@pytest.fixture(scope="module")
def pair(module_servers: Servers, site: Site) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=config(site), monitor=True) for start in starts]


def outcome(server: Server, site: Site, issued: Issued, **options: object) -> object:
    """What a client with the certificate hears, and whom monitoring shows."""
    with TlsClient(server.port, site.authority.client_context(issued)) as client:
        said = client.login(**options)
        if "PONG" not in said:
            return said
        (shown,) = page(server, "/connz?auth=1")["connections"]
        return said, shown["authorized_user"]


@pytest.mark.usefixtures("peer_present")
@pytest.mark.parametrize("name", CERTIFICATES)
def test_whom_a_certificate_stands_for(pair: list[Server], site: Site, name: str) -> None:
    issued = site.authority.issue(**CERTIFICATES[name])
    ours, theirs = (outcome(server, site, issued) for server in pair)
    assert ours == theirs


def test_users_are_found(servers: Servers, site: Site) -> None:
    """That the comparison does not compare refusals alone."""
    server = servers.under_test(config=config(site), monitor=True)
    found = {
        name: outcome(server, site, site.authority.issue(**options))
        for name, options in CERTIFICATES.items()
    }
    users = {name: told[1] if isinstance(told, tuple) else "" for name, told in found.items()}
    assert users["email"] == users["email before subject"] == "a@example.com"
    assert users["dns"] == users["dns before subject"] == "app.example.com"
    assert users["uri"] == "spiffe://example.com/one"
    assert users["subject"] == users["subject turned"] == "CN=alice,O=Acme"
    assert users["three parts mixed"] == "C=US,O=Acme,CN=bob"
    assert users["plain name"] == users["nobody"] == users["address"] == ""


@pytest.mark.usefixtures("peer_present")
@pytest.mark.parametrize(
    "options",
    [{}, {"user": "a@example.com"}, {"user": "other"}, {"user": "x", "pass": "y"}, {"pass": "y"}],
    ids=json.dumps,
)
def test_what_connect_says_besides(pair: list[Server], site: Site, options: dict[str, str]) -> None:
    issued = site.authority.issue("CN=x", emails=("a@example.com",))
    ours, theirs = (outcome(server, site, issued, **options) for server in pair)
    assert ours == theirs
    if options.get("user"):
        line = f'User "{options["user"]}" found in connect proto, but user required from cert'
        for server in pair:
            server.wait_log(line)


@pytest.mark.usefixtures("peer_present")
@pytest.mark.parametrize(
    ("subject", "options"),
    [
        ("CN=locked", {}),
        ("CN=locked", {"pass": "secret"}),
        ("CN=locked", {"user": "bob", "pass": "secret"}),
        ("CN=locked", {"pass": "wrong"}),
        ("CN=ws", {}),
        ("CN=limited", {}),
    ],
)
def test_users_with_conditions(
    pair: list[Server], site: Site, subject: str, options: dict[str, str]
) -> None:
    issued = site.authority.issue(subject)
    ours, theirs = (outcome(server, site, issued, **options) for server in pair)
    assert ours == theirs


@pytest.mark.usefixtures("peer_present")
def test_who_comes_without_tls_is_nobody(servers: Servers, site: Site) -> None:
    from tests.client.raw import RawClient

    said = []
    for start in (servers.under_test, servers.peer):
        server = start(config=config(site) + "\nallow_non_tls: true")
        with RawClient(server.port) as client:
            client.frame()
            client.send(b'CONNECT {"verbose":false,"user":"bob"}\r\nPING\r\n')
            said.append([frame.shown() for frame in client.until("EOF")])
    assert said[0] == said[1]
    assert said[0][0][0] == "-ERR"
