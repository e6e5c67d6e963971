"""The `nats` tool's stream commands say the same of this server and of nats-server."""

from pathlib import Path

from tests.client.nats_tool import compare, needs_tool
from tests.servers import Servers

pytestmark = needs_tool

DEFAULTS = "--defaults --storage=file"
COMMANDS = (
    f"stream add ORDERS --subjects=orders.> {DEFAULTS}",
    "stream add BATCH --subjects=batch.> --storage=memory --allow-batch --allow-direct --defaults",
    f"stream add LIMITS --subjects=l.* --max-msgs=5 --max-bytes=10000 --discard=new {DEFAULTS}",
    f"stream add ORDERS --subjects=other.> {DEFAULTS}",
    f"stream add OVERLAP --subjects=orders.new {DEFAULTS}",
    "stream add",
    "stream ls",
    "stream ls --names",
    "stream ls --subject=orders.*",
    "stream ls --json",
    "pub orders.new zero",
    "pub orders.new one",
    "pub orders.new two --jetstream",
    "pub orders.old three -H A:b --jetstream",
    "pub orders.old four -H Nats-Msg-Id:1 --jetstream",
    "pub orders.old five -H Nats-Msg-Id:1 --jetstream",
    "pub l.a {{.Count}} --count=7 --jetstream",
    "stream info ORDERS",
    "stream info ORDERS --json",
    "stream info NONE",
    "stream state ORDERS",
    "stream state ORDERS --json",
    "stream subjects ORDERS",
    "stream subjects ORDERS --json",
    "stream get ORDERS 1",
    "stream get ORDERS 1 --json",
    "stream get ORDERS 99",
    "stream get ORDERS --last-for=orders.old",
    "stream get ORDERS --last-for=none",
    "stream view ORDERS 2 --raw",
    "stream view ORDERS 10 --subject=orders.old",
    "stream rmm ORDERS 2 -f",
    "stream rmm ORDERS 2 -f",
    "stream gaps ORDERS --no-progress",
    "stream report",
    "stream report --json",
    "stream find --empty",
    "stream find --replicas=1",
    "stream find --leader=none",
    "stream find --subject=orders.old",
    "stream edit ORDERS --description=changed --max-msgs=100 -f",
    "stream edit ORDERS --max-msgs-per-subject=1 -f",
    "stream edit ORDERS --storage=memory -f",
    "stream edit ORDERS --allow-batch -f",
    "stream edit NONE --description=x -f",
    "stream info ORDERS --json",
    "stream copy ORDERS COPY --subjects=copy.>",
    "stream info COPY --json",
    "stream purge ORDERS --subject=orders.new -f",
    "stream purge ORDERS --keep=1 -f",
    "stream purge ORDERS -f",
    "stream purge ORDERS --json -f",
    "stream purge NONE -f",
    "stream seal COPY -f",
    "stream edit COPY --description=x -f",
    "pub copy.a sealed --jetstream",
    "stream rm COPY -f",
    "stream rm NONE -f",
    "pub orders.new six --count=20 --jetstream -q",
    "consumer add ORDERS PULL --pull --defaults",
    "consumer next ORDERS PULL --ack --raw",
    "consumer info ORDERS PULL",
    "stream backup ORDERS HOME/backup --consumers --no-progress",
    "stream rm ORDERS -f",
    "stream restore HOME/backup --no-progress",
    "stream info ORDERS --json",
    "consumer info ORDERS PULL",
    "stream cluster step-down ORDERS",
    "stream cluster peer-remove ORDERS",
    "stream graph NONE",
    "account info",
    "server check stream --stream=ORDERS",
    "server check jetstream",
)
SAYS_OTHERWISE = ("account info", "server check jetstream")
"""Limits of the machine, and how many requests there were: only how they end is compared."""


def test_the_tool_says_the_same(servers: Servers, tmp_path: Path) -> None:
    both = [
        start(jetstream=True, args=["-n", "one"]) for start in (servers.under_test, servers.peer)
    ]
    compare(both, COMMANDS, says_otherwise=SAYS_OTHERWISE)
