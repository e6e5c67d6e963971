"""The `nats` tool's account and server commands say the same of this server and of nats-server."""

from pathlib import Path

from tests.client.nats_tool import compare, needs_tool
from tests.servers import Servers

pytestmark = needs_tool

CONFIG = """
accounts {
  SYS { users = [ { user: sys, password: sys } ] }
  ONE { jetstream { max_mem: 10MB, max_file: 20MB, max_streams: 10, max_consumers: 20 }
        users = [ { user: one, password: one } ] }
  TWO { jetstream: enabled, users = [ { user: two, password: two } ] }
  BARE { users = [ { user: bare, password: bare } ] }
}
system_account: SYS
no_auth_user: one
"""
SYS = "--user=sys --password=sys"
SET_UP = (
    "stream add A --subjects=a.> --storage=file --defaults",
    "stream add B --subjects=b.> --storage=memory --defaults "
    "--metadata=io.nats.monitor.msgs-warn:5",
    "stream add SMALL --subjects=s --max-bytes=1000 --defaults",
    "pub a.{{.Count}} some --count=10 --jetstream -q",
    "pub b.x other --count=3 --jetstream -q",
    "pub a.stamp 1700000000 --jetstream -q",
    "consumer add A C --pull --defaults --metadata=io.nats.monitor.outstanding-ack-critical:1",
    "consumer add A P --pull --pinned-groups=g --defaults",
    "consumer next A C --count=3 --no-ack --raw",
    "consumer next A C --count=1 --ack --raw",
    "stream add T --subjects=t --storage=memory --defaults --user=two --password=two",
    "pub t x --count=2 --jetstream -q --user=two --password=two",
)
ACCOUNT = (
    "account info",
    "account info --user=two --password=two",
    "account info --user=bare --password=bare",
    "account report connections",
    "account report connections --sort=in-msgs --top=1",
    "account report connections --state=closed --closed-reason=none",
    "account report statistics",
    "account backup backup -f",
    "account backup backup2 -f --check --no-consumers",
    "account backup backup -f",
    "stream rm A -f",
    "stream rm B -f",
    "stream rm SMALL -f",
    "account restore backup",
    "account restore backup",
    "account restore none",
    "stream ls",
    "consumer info A C",
    "stream info A --json",
)
CHECKS = (
    "server check connection",
    "server check connection --connect-critical=1ns --connect-warn=1ns",
    "server check stream --stream=A",
    "server check stream --stream=A --msgs-warn=20 --msgs-critical=5",
    "server check stream --stream=A --msgs-warn=30 --msgs-critical=20",
    "server check stream --stream=A --subjects-warn=5 --subjects-critical=100",
    "server check stream --stream=A --peer-expect=1",
    "server check stream --stream=A --peer-expect=3",
    "server check stream --stream=A --min-sources=1",
    "server check stream --stream=B",
    "server check stream --stream=NONE",
    "server check consumer --stream=A --consumer=C",
    "server check consumer --stream=A --consumer=C --outstanding-ack-critical=10",
    "server check consumer --stream=A --consumer=C --unprocessed-critical=1",
    "server check consumer --stream=A --consumer=C --waiting-critical=1",
    "server check consumer --stream=A --consumer=C --redelivery-critical=1",
    "server check consumer --stream=A --consumer=C --last-delivery-critical=1h",
    "server check consumer --stream=A --consumer=C --last-ack-critical=1ms",
    "server check consumer --stream=A --consumer=P --pinned",
    "server check consumer --stream=A --consumer=P --last-ack-critical=1h",
    "server check consumer --stream=A --consumer=NONE",
    "server check consumer --stream=NONE --consumer=C",
    "server check message --stream=A --subject=a.1 --content=some",
    "server check message --stream=A --subject=a.1 --content=other",
    "server check message --stream=A --subject=a.stamp --body-timestamp --age-critical=1h",
    "server check message --stream=A --subject=a.1 --age-critical=1h --age-warn=1m",
    "server check message --stream=A --subject=none",
    "server check message --stream=NONE",
    f"server check meta --expect=1 --lag-critical=1 --seen-critical=1s {SYS}",
    "server check request --subject=none",
    "server check jetstream",
    "server check jetstream --streams-warn=10 --streams-critical=20",
    "server check jetstream --consumers-warn=1 --consumers-critical=5",
    "server check jetstream --mem-warn=0 --mem-critical=0",
    "server check jetstream --no-replicas --user=two --password=two",
    "server check jetstream --user=bare --password=bare",
    f"server check server --name=one {SYS}",
    f"server check server --name=one --js-required {SYS}",
    f"server check server --name=one --auth-required {SYS}",
    f"server check server --name=one --tls-required {SYS}",
    f"server check server --name=one --conn-warn=1 --conn-critical=100 {SYS}",
    f"server check server --name=one --uptime-warn=1h --uptime-critical=1s {SYS}",
    f"server check server --name=none {SYS} --timeout=1s",
    "server check credential --credential=none",
)
REPORTS = (
    f"server report accounts {SYS}",
    f"server report accounts ONE --json {SYS}",
    f"server report accounts NONE {SYS}",
    f"server report connections {SYS}",
    f"server report connections --account=ONE --state=closed --sort=cid {SYS}",
    f"server report connections --json --subject=none {SYS}",
    f"server report cpu {SYS}",
    f"server report mem {SYS}",
    f"server report health {SYS}",
    f"server report health --js-enabled --account=ONE --stream=A {SYS}",
    f"server report health --account=ONE --stream=NONE {SYS}",
    f"server report health --server-only {SYS}",
    f"server report jetstream {SYS}",
    f"server report jetstream --account=ONE {SYS}",
    f"server report downgrade 0 {SYS}",
    f"server report downgrade 0 --json --all {SYS}",
    f"server report downgrade 1 {SYS}",
    f"server report gateways {SYS}",
    f"server report leafnodes {SYS}",
    f"server report routes {SYS}",
    "server report accounts",
    f"server list {SYS}",
    f"server list 1 --json {SYS}",
    f"server ping 1 {SYS}",
    f"server info {SYS}",
    f"server info one {SYS}",
    f"server account info ONE {SYS}",
    f"server account ls {SYS}",
    f"server account purge TWO -f {SYS}",
    "stream ls --user=two --password=two",
    f"server request accounts {SYS}",
    f"server request connections {SYS}",
    f"server request gateways {SYS}",
    f"server request jetstream-health {SYS}",
    f"server request jetstream {SYS}",
    f"server request jetstream --streams --consumer --config {SYS}",
    f"server request leafnodes {SYS}",
    f"server request raft {SYS}",
    f"server request routes {SYS}",
    f"server request subscriptions {SYS}",
    f"server request subscriptions --detail --filter-account=ONE {SYS}",
    f"server request variables {SYS}",
    f"server request ipqueue {SYS}",
    f"server request kick 99999 one {SYS}",
)
VARYING = (
    (r"(cpu|mem|subscriptions)=\d+", r"\1=<figure>"),
    (r"│ \d+ +│ (?=NATS CLI)", "│ <cid> │ "),
    (r"│ \d+ +│ (?=Client Closed)", "│ <subscriptions> │ "),
    (r"Client ID: \d+", "Client ID: <cid>"),
    (r"/\S+/jetstream\b", "<store>"),
    (r"(?m)^ *(Always sync writes|Write sync Frequency).*\n", ""),
    (r"Subscriptions: \d+", "Subscriptions: <figure>"),
    (r"(?<=Cores: 2) [\d.]+%", " <figure>"),
    (r"\([\d.]+\)", "(<figure>)"),
    (r"(max|min|avg): [\d.]+", r"\1: <figure>"),
)
"""Figures of each server, and what differs on purpose: when files are synced, and that
subscriptions of connections that ended are counted, not listed."""
INSIDE = (
    *("server request", "server list", "server account info", "account report statistics"),
    *("server report cpu", "server report mem"),
)
SAYS_OTHERWISE = tuple(w for w in REPORTS + ACCOUNT if w.startswith(INSIDE))
"""Monitoring shows the insides of each server; what is compared of it is in tests of its own."""


def test_the_tool_says_the_same_of_a_server(servers: Servers, tmp_path: Path) -> None:
    both = [
        start(jetstream=True, args=["-n", "one"], config=CONFIG)
        for start in (servers.under_test, servers.peer)
    ]
    compare(both, (*SET_UP, *CHECKS, *REPORTS, *ACCOUNT), VARYING, SAYS_OTHERWISE)
