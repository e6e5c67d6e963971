"""Archives that somebody has changed, and what two servers make of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.archives import Files, archive_of, changed, files_of
from tests.client.backups import backup, restore
from tests.client.raw import RawApp
from tests.client.test_backup_diff import strip
from tests.servers import Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(60)]

CONFIG = {"name": "S", "subjects": ["s.>"], "storage": "file", "num_replicas": 1}
META = "obs/C/meta.inf"
HOUR = 3_600_000_000_000
CONSUMERS: list[dict[str, Any]] = [
    {"ack_policy": "none"},
    {"max_deliver": 2, "backoff": [1, 2, 3]},
    {"deliver_subject": "a.*", "max_waiting": 0},
    {"deliver_subject": "s.a", "max_waiting": 0},
    {"deliver_subject": "a", "max_waiting": 0},
    {"deliver_subject": "a"},
    {"filter_subject": "elsewhere"},
    {"filter_subjects": ["s.b", "s.>"]},
    {"filter_subject": "s.b", "filter_subjects": ["s.c"]},
    {"name": "D"},
    {"durable_name": "D"},
    {"max_waiting": -5, "max_ack_pending": -7},
    {"ack_wait": -5},
    {"num_replicas": 3},
    {"direct": True},
    {"deliver_policy": "by_start_sequence"},
    {"deliver_policy": "last", "opt_start_seq": 5},
    {"priority_policy": "overflow"},
    {"priority_groups": ["x"]},
    {"sample_freq": "often"},
    {"description": "x" * 5000},
    {"flow_control": True},
    {"idle_heartbeat": 5},
    {"durable_name": "", "inactive_threshold": HOUR},
    {"pause_until": "2099-01-01T00:00:00Z"},
]
WORKQUEUE = {"retention": "workqueue"}


def cases(files: Files) -> Iterator[tuple[dict[str, Any], Files]]:
    """Configurations of the stream and archives."""
    for fields in CONSUMERS:
        yield CONFIG, changed(files, META, **fields)
    yield CONFIG, files | {"obs/C/o.dat": b"damaged" * 5}
    yield CONFIG, files | {"obs/C/o.dat": b""}
    yield CONFIG | {"sealed": True}, files
    yield CONFIG | {"mirror_direct": True}, files
    second = {name.replace("/C/", "/D/"): data for name, data in files.items() if "/C/" in name}
    two = changed(files | second, "obs/D/meta.inf", Name="D", name="D", durable_name="D")
    yield CONFIG, two
    yield CONFIG | {"max_consumers": 1}, two
    yield CONFIG | WORKQUEUE, two
    yield CONFIG | WORKQUEUE, changed(files, META, deliver_policy="new")
    yield CONFIG | WORKQUEUE, changed(files, META, ack_policy="none")


def made_of(client: RawApp, config: dict[str, Any], archive: bytes) -> Any:
    """What went wrong, or the stream and its consumers."""
    answer = restore(client, config, archive)
    if "error" in answer:
        assert client.api("STREAM.NAMES")["streams"] is None
        return answer
    found: Any = client.api("CONSUMER.LIST.S")
    assert client.api("STREAM.DELETE.S")["success"]
    listed = sorted(found["consumers"] or [], key=lambda one: str(one["name"]))
    state = {name: answer["state"][name] for name in ("messages", "first_seq", "last_seq")}
    return (
        state,
        answer["config"]["sealed"],
        [(one["name"], strip(one["config"])) for one in listed],
    )


def test_a_restore_takes_no_consumer_that_a_creation_refuses(servers: Servers) -> None:
    ours, peer = servers.under_test(jetstream=True), servers.peer(jetstream=True)
    with RawApp(ours.port) as client, RawApp(peer.port) as other:
        assert "error" not in client.api("STREAM.CREATE.S", CONFIG)
        for _ in range(5):
            client.request("s.a", b"x")
        consumer = {"durable_name": "C", "ack_policy": "explicit"}
        body = {"stream_name": "S", "config": consumer}
        assert "error" not in client.api("CONSUMER.DURABLE.CREATE.S.C", body)
        files = files_of(backup(client, "S")[1])
        assert client.api("STREAM.DELETE.S")["success"]
        for config, changed_files in cases(files):
            archive = archive_of(changed_files, "S")
            what = (config, changed_files[META], changed_files["obs/C/o.dat"])
            assert made_of(client, config, archive) == made_of(other, config, archive), what
