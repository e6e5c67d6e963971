"""The `nats` tool's commands for buckets say the same of this server and of nats-server."""

from pathlib import Path

from tests.client.nats_tool import compare, needs_tool
from tests.servers import Servers

pytestmark = needs_tool

KEYS = (
    "kv add PLAIN",
    "kv add PLAIN",
    "kv add PLAIN --history=3",
    "kv add FULL --description=all --history=5 --storage=memory --ttl=1h "
    "--marker-ttl=1m --max-value-size=100 --max-bucket-size=10000 --metadata=a:b",
    "kv add HISTORY --history=10",
    "kv add TOOMUCH --history=65",
    "kv add TTL --ttl=1h",
    "kv add a.b",
    "kv add PLACED --cluster=none --tags=x",
    "kv add COPIES --replicas=3",
    "kv put PLAIN a 1",
    "kv put PLAIN a 2",
    "kv put PLAIN b.c 3",
    "kv put PLAIN 'b d' 3",
    "kv put PLAIN b.* 3",
    "kv put NONE a 1",
    "kv put FULL big {{Random}} ".replace("{{Random}}", "x" * 150),
    "kv get PLAIN a",
    "kv get PLAIN a --raw",
    "kv get PLAIN a --revision=1",
    "kv get PLAIN a --revision=2 --raw",
    "kv get PLAIN a --revision=3",
    "kv get PLAIN none",
    "kv get NONE a",
    "kv create PLAIN a 4",
    "kv create PLAIN new 5",
    "kv create FULL new 5 --ttl=1h",
    "kv create PLAIN ttl 5 --ttl=1h",
    "kv update PLAIN a 6 1",
    "kv update PLAIN a 6 2",
    "kv update PLAIN none 6",
    "kv update PLAIN none 6 7",
    "kv del PLAIN a -f",
    "kv del PLAIN a -f",
    "kv get PLAIN a",
    "kv create PLAIN a 7",
    "kv get PLAIN a --raw",
    "kv put HISTORY k one",
    "kv put HISTORY k two",
    "kv del HISTORY k -f",
    "kv put HISTORY k three",
    "kv put HISTORY other four",
    "kv history HISTORY k",
    "kv history HISTORY none",
    "kv history PLAIN a",
    "kv revert HISTORY k 1 --force",
    "kv revert HISTORY k 3 --force",
    "kv revert HISTORY k 77 --force",
    "kv history HISTORY k",
    "watch:kv watch HISTORY",
    "watch:kv watch HISTORY k --history",
    "watch:kv watch HISTORY --no-deletes --history",
    "watch:kv watch HISTORY --updates",
    "watch:kv watch HISTORY --revision=3",
    "watch:kv watch NONE",
    "kv purge HISTORY k -f",
    "kv history HISTORY k",
    "kv purge PLAIN none -f",
    "kv ls",
    "kv ls --names",
    "kv ls PLAIN",
    "kv ls PLAIN b.>",
    "kv ls PLAIN --verbose",
    "kv ls PLAIN --verbose --display-value",
    "kv ls NONE",
    "kv info PLAIN",
    "kv info FULL",
    "kv info HISTORY",
    "kv info NONE",
    "kv edit PLAIN --history=7 --description=edited",
    "kv edit PLAIN --max-value-size=10 --max-bucket-size=2000 --ttl=2h",
    "kv edit PLAIN --marker-ttl=1m",
    "kv edit PLAIN --replicas=3",
    "kv edit PLAIN --metadata=c:d",
    "kv edit NONE --history=3",
    "kv info PLAIN",
    "stream info KV_PLAIN --json",
    "stream info KV_FULL --json",
    "kv put PLAIN long 12345678901",
    "kv compact HISTORY -f",
    "kv compact PLAIN -f",
    "kv compact NONE -f",
    "kv ls HISTORY",
    "kv info HISTORY",
    "server check kv --bucket=PLAIN",
    "server check kv --bucket=PLAIN --key=a",
    "server check kv --bucket=PLAIN --key=none",
    "server check kv --bucket=PLAIN --values-warn=1 --values-critical=2",
    "server check kv --bucket=NONE",
    "kv del TTL -f",
    "kv del NONE -f",
    "kv ls --names",
)
OBJECTS = (
    "object add PLAIN",
    "object add PLAIN",
    "object add FULL --ttl=1h --max-bucket-size=300000 --description=all "
    "--storage=memory --metadata=a:b",
    "object add a.b",
    "object add COPIES --replicas=3",
    "object put PLAIN small.txt --no-progress",
    "object put PLAIN small.txt --no-progress",
    "object put PLAIN small.txt --no-progress -f",
    "object put PLAIN large.bin --no-progress --name=large --description=big -H A:b",
    "object put PLAIN large.bin --no-progress --name=chunks --chunk-size=1000",
    "object put PLAIN empty --no-progress --name=empty",
    "object put PLAIN small.txt --no-progress --name='with blanks/and *'",
    "object put FULL large.bin --no-progress --name=large",
    "object put PLAIN none --no-progress",
    "object put NONE small.txt --no-progress",
    "object get PLAIN small.txt --no-progress -f",
    "object get PLAIN large --no-progress -O got.bin",
    "object get PLAIN large --no-progress -O got.bin",
    "object get PLAIN chunks --no-progress -O got2.bin",
    "object get PLAIN empty --no-progress -O got3.bin",
    "object get PLAIN none --no-progress -O got4.bin",
    "object get NONE none --no-progress",
    "object info PLAIN",
    "object info PLAIN large",
    "object info PLAIN chunks",
    "object info PLAIN none",
    "object info NONE",
    "object ls",
    "object ls --names",
    "object ls PLAIN",
    "object ls NONE",
    "watch:object watch PLAIN",
    "object edit PLAIN --description=edited --ttl=2h --max-bucket-size=900000 --metadata=c:d",
    "object edit NONE --description=edited",
    "object info PLAIN",
    "stream info OBJ_PLAIN --json",
    "stream info OBJ_FULL --json",
    "object del PLAIN large -f",
    "object del PLAIN large -f",
    "object del PLAIN none -f",
    "object ls PLAIN",
    "object info PLAIN large",
    "stream subjects OBJ_FULL",
    "object seal PLAIN -f",
    "object seal PLAIN -f",
    "object seal NONE -f",
    "object put PLAIN small.txt --no-progress --name=late",
    "object del PLAIN chunks -f",
    "object info PLAIN",
    "object del FULL -f",
    "object del NONE -f",
    "object ls --names",
)
OF_OBJECTS = ((r"\b[A-Za-z0-9]{22}\b", "<nuid>"), (r"\"consumer_count\": \d+", "<watchers>"))
"""Names that the client made up, and how many of its watchers are not forgotten yet."""


def test_the_tool_says_the_same_of_keys(servers: Servers, tmp_path: Path) -> None:
    both = [
        start(jetstream=True, args=["-n", "one"]) for start in (servers.under_test, servers.peer)
    ]
    compare(both, KEYS)


def test_the_tool_says_the_same_of_objects(servers: Servers, tmp_path: Path) -> None:
    both = [
        start(jetstream=True, args=["-n", "one"]) for start in (servers.under_test, servers.peer)
    ]
    for server in both:
        home = server.folder / "home"
        home.mkdir()
        (home / "small.txt").write_text("some text\n")
        (home / "large.bin").write_bytes(bytes(i * i % 251 for i in range(200_000)))
        (home / "empty").write_bytes(b"")
    compare(both, OBJECTS, OF_OBJECTS)
    whole = (both[0].folder / "home" / "large.bin").read_bytes()
    assert (both[0].folder / "home" / "got.bin").read_bytes() == whole
    assert (both[0].folder / "home" / "got2.bin").read_bytes() == whole
