"""The `nats` tool's commands for clusters say the same of servers of ours and of nats-servers."""

import asyncio

from tests.client.mesh import Cluster
from tests.client.nats_tool import compare, needs_tool
from tests.client.test_meta_leader import led_by
from tests.servers import Servers

pytestmark = needs_tool

SYS = "--user=sys --password=sys"
SET_UP = (
    "stream add S --subjects=s.> --replicas=3 --storage=file --defaults",
    "stream add M --subjects=m.> --replicas=3 --storage=memory --defaults",
    "stream add ONE --subjects=one --replicas=1 --defaults",
    "stream add FIVE --subjects=five --replicas=5 --defaults",
    "consumer add S D --pull --defaults",
    "consumer add S R1 --pull --replicas=1 --defaults",
    "pub s.{{.Count}} some --count=10 --jetstream -q",
    "pub m.x other --count=5 --jetstream -q",
    "pub one x --jetstream -q",
    "consumer next S D --count=3 --ack --raw",
)
STREAMS = (
    "stream ls",
    "stream ls --names",
    "stream info S",
    "stream info ONE",
    "stream state S",
    "stream report",
    "stream find --replicas=3",
    "stream find --replicas=1",
    "stream find --leader=A",
    "stream find --leader=A --invert",
    "stream edit S --replicas=5 --force",
    "stream edit S --description=changed --force",
    "stream cluster step-down ONE --force",
    "stream cluster step-down NONE --force",
    "stream cluster balance",
    "stream cluster cancel-move S --force",
    "stream cluster evacuate NONE A --force",
    "consumer ls S",
    "consumer info S D",
    "consumer info S R1",
    "consumer report S",
    "consumer find S --replicas=3",
    "consumer cluster step-down S D --force",
    "consumer cluster step-down S NONE --force",
    "consumer cluster balance S",
)
SERVERS = (
    f"server list {SYS}",
    f"server list 3 {SYS}",
    f"server info A {SYS}",
    f"server ping 3 {SYS}",
    f"server check meta --expect=3 --lag-critical=100 --seen-critical=10s {SYS}",
    f"server check meta --expect=5 --lag-critical=100 --seen-critical=10s {SYS}",
    "server check stream --stream=S --peer-expect=3 --peer-lag-critical=100 "
    "--peer-seen-critical=10s",
    "server check stream --stream=S --peer-expect=5",
    "server check consumer --stream=S --consumer=D",
    "server check jetstream",
    "server check jetstream --replica-seen-critical=1m --replica-lag-critical=100",
    "server check connection",
    f"server check server --name=A --js-required {SYS}",
    f"server report jetstream {SYS}",
    f"server report jetstream --account=ONE --sort=name {SYS}",
    f"server report connections --account=ONE {SYS}",
    f"server report accounts {SYS}",
    f"server report routes {SYS}",
    f"server report health --js-enabled {SYS}",
    f"server report health --account=ONE --stream=S --consumer=D {SYS}",
    f"server report downgrade 0 {SYS}",
    f"server report cpu {SYS}",
    f"server report mem {SYS}",
    f"server account info ONE {SYS}",
    f"server request jetstream --name=A {SYS}",
    f"server request raft --name=A {SYS}",
    f"server request routes --name=A {SYS}",
    f"server request jetstream-health {SYS}",
    f"server request variables --name=A {SYS}",
    "account info",
    "account report statistics",
    "account report connections",
)
BUCKETS = (
    "kv add B --replicas=3 --history=5",
    "kv put B k v",
    "kv get B k --raw",
    "kv del B k --force",
    "kv history B k",
    "kv ls",
    "kv info B",
    "object add O --replicas=3",
    "object put O ../server.conf --name=conf --force --no-progress",
    "object ls O",
    "object get O conf --output=HOME/conf --force --no-progress",
    "object info O",
    "object del O conf --force",
    "server check kv --bucket=B",
    "bench js pub sync bench.x --create --stream=BENCH --replicas=3 --msgs=50 --size=16 "
    "--no-progress",
    "bench js ordered --stream=BENCH --msgs=50 --no-progress",
    f"server cluster step-down --host=NONE --force {SYS}",
    f"server cluster peer-remove NONE --force {SYS}",
    f"server cluster peer-remove A --force {SYS}",
)
VARYING = (
    (r"\b[SC]-R\d[FM]-\w{8}", "<group>"),
    (r"Leader: \w+( \(.*\))?", "Leader: <member>"),
    (r"Replica: .*", "Replica: <member>"),
    (r"\b[ABC]\*?(, [ABC]\*?)*(?= +│)", "<members>"),
    (r"led by \w+", "led by <member>"),
    (r"leader elected \"\w+\"", "leader elected <member>"),
    (r"step down of \"\w+\"", "step down of <member>"),
    (r"SHA-256 \w+", "SHA-256 <digest>"),
    (r"(cpu|mem|subscriptions)=\d+", r"\1=<figure>"),
    (r"Client ID: \d+", "Client ID: <cid>"),
    (r"│ \d+ +│ (?=NATS CLI)", "│ <cid> │ "),
)
"""Which member leads, and figures of each."""
BY_CHANCE = (
    *("stream find --leader", "stream cluster balance", "consumer cluster", "bench"),
    *("server list", "server info", "server ping", "server report jetstream"),
    *("server report routes", "server report cpu", "server report mem", "server account info"),
    *("server request", "server report accounts", "account report statistics"),
    "account report connections",
)
"""What shows who happens to lead, the insides of servers, or servers as they answer."""
NEWER = ("stream cluster cancel-move",)
"""A request of nats-server 2.15, which the older one leaves without an answer."""
COMMANDS = (*SET_UP, *STREAMS, *SERVERS, *BUCKETS)
SAYS_OTHERWISE = tuple(words for words in COMMANDS if words.startswith(BY_CHANCE + NEWER))


def test_the_tool_says_the_same_of_a_cluster(servers: Servers) -> None:
    both = []
    for kinds in ("ooo", "ppp"):
        cluster = Cluster(servers)
        cluster.start_all(kinds)
        asyncio.run(cluster.ready())
        asyncio.run(led_by(cluster, "B"))  # which the tool says at some places, and peers it lists
        both.append(cluster.members[0])
    compare(both, COMMANDS, VARYING, SAYS_OTHERWISE)
