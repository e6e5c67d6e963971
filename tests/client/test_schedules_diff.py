"""What schedules do over a restart, beside nats-server."""

import time

import pytest

from tests.client.raw import RawApp, header_block
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

PATTERNS = {"every": "@every 4s", "cron": "*/4 * * * * *"}


def plan(server: Server) -> None:
    """A stream with schedules that have not run yet."""
    with RawApp(server.port) as app:
        config = {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True}
        assert "error" not in app.api("STREAM.CREATE.S", config)
        for name, pattern in PATTERNS.items():
            lines = f"Nats-Schedule: {pattern}", f"Nats-Schedule-Target: s.out.{name}"
            app.request(f"s.plan.{name}", b"x", header=header_block(*lines))


def runs(server: Server) -> set[str]:
    """The schedules that have published."""
    with RawApp(server.port) as app:
        state = app.api("STREAM.INFO.S", {"subjects_filter": "s.out.>"})["state"]
        assert isinstance(state, dict)
        return set(state.get("subjects", {}))


def test_first_runs_that_fall_into_downtime_come_at_the_start(servers: Servers) -> None:
    both = [servers.under_test(jetstream=True), servers.peer(jetstream=True)]
    for server in both:
        plan(server)
        server.stop()
    missed = time.time() + 8
    wait_until(lambda: time.time() > missed, "the first runs are due")
    for server in both:
        server.start()
        due = {f"s.out.{name}" for name in PATTERNS}
        wait_until(lambda s=server, due=due: runs(s) == due, "each has run", 3)  # type: ignore[misc]
