"""Configurations of thousands of users, imports and mappings: no dearer than in nats-server."""

import os
import signal
from pathlib import Path

import pytest

from bench.configurations import mappings, shares, tenants, users
from tests.client.reloads import DONE, rewrite
from tests.servers import Server, Servers
from tests.waiting import wait_until

MOST = 1.5
"""Processor time of ours for one of nats-server's."""
SLACK = 0.05
"""Seconds: the clock counts hundredths, and other work of the machine costs both a little."""
ROUNDS = 3
FEW = users(2)
FORMS = {
    "users": users(1000),
    "accounts": tenants(2000, 20),
    "shares": shares(1000),
    "mappings": mappings(2000),
}


def started(server: Server) -> float:
    """Processor seconds of a start."""
    server.start()
    spent = server.cpu_seconds()
    server.kill()
    return spent


def reloaded(server: Server, text: str) -> float:
    """Processor seconds of a reload of another configuration of the same size."""
    server.start()
    before = server.cpu_seconds()
    rewrite(server, text)
    os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: DONE in server.log(), "the reload")
    spent = server.cpu_seconds() - before
    server.kill()
    return spent


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_start_and_a_reload_cost_no_more(
    servers: Servers, peer_present: None, tmp_path: Path, form: str
) -> None:
    text = FORMS[form]
    other = text.replace("password: p }", "password: q }")
    cost: dict[str, dict[str, float]] = {"ours": {}, "peer": {}}
    for who, make in (("ours", servers.under_test), ("peer", servers.peer)):
        small, large = make(config=FEW), make(config=text)
        small.kill()
        large.kill()
        # What any start costs is another matter: only what the configuration adds is compared.
        least = min(started(small) for _ in range(ROUNDS))
        cost[who]["start"] = min(started(large) for _ in range(ROUNDS)) - least
        cost[who]["reload"] = min(reloaded(large, other) for _ in range(ROUNDS))
    for what, peer in cost["peer"].items():
        assert cost["ours"][what] <= MOST * peer + SLACK, cost
