"""Gateways whose configuration changes while they run, beside nats-server in the same place."""

import pytest

from tests.certificates import Authority
from tests.client.reloads import FAILED, reload
from tests.client.test_gateway_tls import PAIRS, linked, pair
from tests.client.tls import block
from tests.servers import Servers, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

UNKNOWN = "a" * 64
CUT = "Disconnect 2 clients due to pinned certs reload"


@pytest.mark.parametrize("kinds", [*PAIRS, "p-p"])
def test_certificates(servers: Servers, authority: Authority, kinds: str) -> None:
    """Another certificate is shown to who comes; who is not pinned any more is cut, both ways."""
    own, other = (block(authority.server(), authority) for _ in range(2))
    both = pair(servers, kinds, own, own)
    changed = both.clusters["A"].members[0]
    wait_until(lambda: all(map(linked, both.members)), "both are joined", 30)
    plain = changed.config
    reload(changed, plain.replace(own, other))
    assert linked(changed)
    reload(changed, plain.replace("timeout: 5", f'timeout: 5, pinned_certs: ["{UNKNOWN}"]'))
    wait_until(lambda: not any(map(linked, both.members)), "they are not any more", 30)
    assert CUT in changed.log()
    reload(changed, plain)
    wait_until(lambda: all(map(linked, both.members)), "they are again", 30)


def test_what_stays_as_it_is(servers: Servers, authority: Authority) -> None:
    own = block(authority.server(), authority)
    changes = {
        "reject_unknown_cluster: true": "gateway.reject_unknown",
        "authorization { user: x, password: secret }": "gateway.authorization",
        "connect_retries: 3": "gateway.connect_retries: old=0, new=3",
        "connect_backoff: true": "gateway.connect_backoff: old=false, new=true",
        'advertise: "127.0.0.1:5555"': "gateway.advertise",
        'gateways: [ { name: B, url: "nats://127.0.0.1:1" } ]': "gateway.gateways",
        own: "gateway.tls",
    }
    for start in (servers.under_test, servers.peer):
        base = 'server_name: S\ngateway { name: A, listen: "127.0.0.1:%d"\n%s }\n'
        port = free_port()
        server = start(config=base % (port, ""))
        for more, name in changes.items():
            reload(server, base % (port, more), says=FAILED)
            said = f"config reload not supported for {name}"
            assert start != servers.under_test or said in server.log()
        assert start != servers.under_test or "secret" not in server.log()
