"""The `nats` tool's stream commands say the same of this server and of nats-server.

`NATS_TOOL` names the tool, if it is not `nats` in the path; without one nothing is run.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.servers import Server, Servers

TOOL = os.environ.get("NATS_TOOL") or shutil.which("nats")
pytestmark = [
    pytest.mark.usefixtures("peer_present"),
    pytest.mark.skipif(TOOL is None, reason="there is no nats tool"),
]

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
VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)?( UTC)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d\b", "<time>"),
    (r"\b[\d.]+(h|m|s|ms|us|µs|ns)([\d.]+(m|s|ms))*\b", "<span>"),
    (r"127\.0\.0\.1:\d+", "<server>"),
    (r"_INBOX\.[\w.]+", "<inbox>"),
    (r"[\d.]+ ([KMGT]i?)?B", "<size>"),
    (r"\"ts\": ?\"[^\"]*\"", '"ts":<time>'),
    (r"N[A-Z0-9]{55}", "<id>"),
    (r"max_(memory|storage|mem|file)\S*", "<limit>"),
    (r"\b\d{9,}\b", "<number>"),
    (r"jetstream_\S*=\S+", "<figure>"),
)
SAYS_OTHERWISE = ("account info", "server check jetstream")
"""Limits of the machine, and how many requests there were: only how they end is compared."""


def run(server: Server, words: str) -> tuple[str, int, list[str]]:
    home = server.folder / "home"
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [str(TOOL), "-s", server.url, *words.replace("HOME", str(home)).split()],
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "TZ": "UTC"},
    )
    text = done.stdout + done.stderr
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    text = re.sub(r"[ ─━]{2,}", " ", text.replace(str(home), "HOME"))
    lines = [line.strip() for line in text.splitlines()]
    return words, done.returncode, [] if words in SAYS_OTHERWISE else lines


def test_the_tool_says_the_same(servers: Servers, tmp_path: Path) -> None:
    both = [
        start(jetstream=True, args=["-n", "one"]) for start in (servers.under_test, servers.peer)
    ]
    differing = []
    for words in COMMANDS:
        ours, theirs = (run(server, words) for server in both)
        if ours != theirs:
            time.sleep(0.2)
            differing.append((ours, theirs))
    for ours, theirs in differing:
        print("\n".join([f"== {ours[0]}: {ours[1]}", *ours[2], f"-- {theirs[1]}", *theirs[2]]))
    assert [ours[0] for ours, _ in differing] == []
