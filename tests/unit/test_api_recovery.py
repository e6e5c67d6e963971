"""Streams and consumers come back after a restart; what cannot be served is kept and named."""

import json
import shutil
from pathlib import Path

import pytest

from jsserver.instances import metafiles, recovery
from jsserver.instances.metafiles import MetaFiles
from jsserver.instances.recovery import TOGETHER
from jsserver.instances.rounds import alone

from .api_server import ACCOUNT, SYSTEM_ACCOUNT, ApiServer, stub_hash
from .fake_backend import FakeAccount


def restarted(directory: Path, engine: FakeAccount) -> ApiServer:
    """A server on the same directory and disk."""
    fresh = FakeAccount()
    fresh.disks = engine.disks
    return ApiServer(directory, engine=fresh)


def rewrite(directory: Path, asset: str, **changes: object) -> None:
    """Changes the stored configuration, with a right checksum."""
    config = json.loads((directory / "meta.inf").read_bytes())
    body = json.dumps({**config, **changes}).encode()
    alone(MetaFiles(stub_hash).update(directory, asset, body))


def test_everything_comes_back(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A", subjects=["a.>"], metadata={"k": "<v>"}, max_bytes=100)
        api.stream("M", storage="memory")
        api.engine.store("a.x", b"data")
        api.consumer("A", "d", durable_name="d", ack_policy="explicit", filter_subject="a.x")
        api.consumer("A", "e")
        api.consumer("A", "m", mem_storage=True, durable_name="m")
        stream, consumers = api.ok("STREAM.INFO.A"), api.ok("CONSUMER.LIST.A")
    with restarted(tmp_path, api.engine) as again:
        assert again.ok("STREAM.NAMES")["streams"] == ["A"]
        back = again.ok("STREAM.INFO.A")
        assert back["created"] == stream["created"] and back["config"] == stream["config"]
        assert back["state"]["messages"] == 1 and back["state"]["consumer_count"] == 2
        assert again.engine.streams["A"].active
        listed = again.ok("CONSUMER.LIST.A")["consumers"]
        before = [c for c in consumers["consumers"] if c["name"] != "m"]
        for key in ("name", "created", "config"):
            kept = [
                {k: v for k, v in c["config"].items() if k != "name"} if key == "config" else c[key]
                for c in listed
            ]
            assert kept == [
                {k: v for k, v in c["config"].items() if k != "name"} if key == "config" else c[key]
                for c in before
            ]
        info = again.ok("INFO")
        assert (info["streams"], info["consumers"], info["reserved_storage"]) == (1, 2, 100)
        assert again.refused("STREAM.CREATE.B", {"name": "B", "subjects": ["a.b"]})[0] == 10065


def make_many(directory: Path) -> None:
    """So many streams that a start syncs them together."""
    with ApiServer(directory) as api:
        for n in range(TOGETHER):
            api.stream(f"S{n}")


def test_many_streams_are_synced_at_one_go_before_they_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_many(tmp_path)
    opened: list[int] = []
    fresh = FakeAccount()

    def sync(_: int) -> None:
        assert not any(stream.active for stream in fresh.streams.values())
        opened.append(len(fresh.streams))

    monkeypatch.setattr(recovery, "sync_file_system", sync)
    with ApiServer(tmp_path, engine=fresh) as again:
        assert again.ok("STREAM.NAMES")["total"] == TOGETHER
    assert opened == [0, TOGETHER]  # what a kill left, and what opening changed
    assert all(stream.synced for stream in fresh.streams.values())


def test_a_file_system_that_cannot_be_synced_leaves_it_to_each_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_many(tmp_path)

    def sync(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(recovery, "sync_file_system", sync)
    fresh = FakeAccount()
    with ApiServer(tmp_path, engine=fresh) as again:
        assert again.ok("STREAM.NAMES")["total"] == TOGETHER
    assert not any(stream.synced for stream in fresh.streams.values())


def test_what_opening_changed_may_be_synced_stream_by_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the second sync fails: what cannot be synced is offline, alone."""
    make_many(tmp_path)
    fresh = FakeAccount()
    each: list[str] = []

    def sync(_: int) -> None:
        if fresh.streams:
            raise OSError(5, "Input/output error")

    def sync_one(directory: Path) -> None:
        each.append(directory.parent.name)
        if each[-1] == "S7":
            raise OSError(5, "Input/output error", str(directory))

    monkeypatch.setattr(recovery, "sync_file_system", sync)
    monkeypatch.setattr(metafiles, "sync_files", sync_one)
    with ApiServer(tmp_path, engine=fresh) as again:
        listed = again.ok("STREAM.LIST")
        assert again.ok("STREAM.NAMES")["total"] == TOGETHER
    assert list(listed["offline"]) == ["S7"]
    assert sorted(each) == sorted(f"S{n}" for n in range(TOGETHER))


def test_a_stream_on_another_file_system_is_synced_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_many(tmp_path)
    device = recovery._device

    def elsewhere(directory: str) -> int | None:
        found = device(directory)
        return found if Path(directory).parent.name != "S7" or found is None else found + 1

    monkeypatch.setattr(recovery, "_device", elsewhere)
    fresh = FakeAccount()
    with ApiServer(tmp_path, engine=fresh) as again:
        assert again.ok("STREAM.NAMES")["total"] == TOGETHER
    assert [name for name, stream in fresh.streams.items() if not stream.synced] == ["S7"]


def test_few_streams_and_those_of_an_interval_are_not_synced_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_many(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(recovery, "sync_file_system", synced.append)
    with ApiServer(tmp_path, sync_interval=1) as again:
        again.ok("STREAM.DELETE.S0")
    with ApiServer(tmp_path) as again:
        assert again.ok("STREAM.NAMES")["total"] == TOGETHER - 1
    assert synced == []


def test_updates_and_pauses_survive(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A")
        api.ok("STREAM.UPDATE.A", {"name": "A", "description": "new", "subjects": ["n"]})
        api.consumer("A", "d", durable_name="d")
        api.consumer("A", "d", durable_name="d", description="newer")
        api.ok("CONSUMER.PAUSE.A.d", {"pause_until": "2101-01-01T00:00:00Z"})
    with restarted(tmp_path, api.engine) as again:
        assert again.ok("STREAM.INFO.A")["config"]["description"] == "new"
        info = again.ok("CONSUMER.INFO.A.d")
        assert info["config"]["description"] == "newer" and info["paused"] is True
        assert again.engine.streams["A"].consumers[0].prepared.pause_until > 0


def test_deletions_survive(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A")
        api.stream("B")
        api.consumer("B", "c", durable_name="c")
        api.ok("STREAM.DELETE.A")
        api.ok("CONSUMER.DELETE.B.c")
    with restarted(tmp_path, api.engine) as again:
        assert again.ok("STREAM.NAMES")["streams"] == ["B"]
        assert again.ok("CONSUMER.NAMES.B")["consumers"] == []


def test_what_a_crash_left_is_cleared(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A")
    streams = tmp_path / "streams"
    shutil.copytree(streams / "A", streams / ".new-x")
    shutil.copytree(streams / "A", streams / ".del-y")
    shutil.copytree(streams / "A", streams / "A" / ".new-z")
    with restarted(tmp_path, api.engine) as again:
        assert again.ok("STREAM.NAMES")["streams"] == ["A"]
    assert [p.name for p in streams.iterdir()] == ["A"]
    left = sorted(p.name for p in (streams / "A").iterdir())
    assert left == ["meta.inf", "meta.sum", "msgs", "obs"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"metadata": {"_nats.req.level": "5"}},
            "unsupported - required API level: 5, current API level: 4",
        ),
        ({"bogus": 1}, 'json: unknown field "bogus"'),
        ({"name": "B"}, 'configuration of stream "B" found here'),
        ({"Created": "yesterday"}, 'field Created: "yesterday" is not a time in RFC 3339 form'),
    ],
)
def test_a_stream_that_cannot_be_served_is_offline(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A")
        api.stream("Z", subjects=["z"])
    directory = tmp_path / "streams" / "A"
    rewrite(directory, "A", **changes)
    content = (directory / "meta.inf").read_bytes()
    with restarted(tmp_path, api.engine) as again:
        assert again.refused("STREAM.INFO.A") == (10194, f"stream is offline: {reason}")
        assert again.refused("STREAM.CREATE.A", {"name": "A"})[0] == 10194
        page = again.ok("STREAM.LIST")
        assert page["total"] == 2 and page["offline"] == {"A": reason} and page["missing"] == ["A"]
        assert [s["config"]["name"] for s in page["streams"]] == ["Z"]
        assert again.ok("STREAM.NAMES")["streams"] == ["A", "Z"]
    assert (directory / "meta.inf").read_bytes() == content


def test_a_purge_of_the_account_removes_what_is_offline(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A")
        api.stream("B")
    rewrite(tmp_path / "streams" / "A", "A", bogus=1)
    with restarted(tmp_path, api.engine) as again:
        assert list(again.ok("STREAM.LIST")["offline"]) == ["A"]
        answer = again.raw(f"ACCOUNT.PURGE.{ACCOUNT}", account=SYSTEM_ACCOUNT)
        assert answer is not None and json.loads(answer)["initiated"]
        assert again.ok("STREAM.LIST")["total"] == 0
        assert not (tmp_path / "streams" / "A").exists()
        again.stream("A")


def test_damage_is_kept_and_named(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A")
        api.consumer("A", "c", durable_name="c")
        api.stream("B")
    (tmp_path / "streams" / "A" / "obs" / "c" / "meta.sum").write_bytes(b"0" * 16)
    (tmp_path / "streams" / "B" / "meta.inf").unlink()
    with restarted(tmp_path, api.engine) as again:
        reason = "meta.sum is not the checksum of meta.inf"
        assert again.refused("CONSUMER.INFO.A.c") == (10195, f"consumer is offline: {reason}")
        assert again.ok("CONSUMER.LIST.A")["offline"] == {"c": reason}
        assert again.refused("STREAM.INFO.B")[0] == 10194
    assert (tmp_path / "streams" / "B" / "meta.sum").exists()


def test_a_store_that_does_not_open_does_not_stop_the_start(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("A")
    engine = FakeAccount()
    engine.broken = "block 1 is damaged"
    with ApiServer(tmp_path, engine=engine) as again:
        assert again.refused("STREAM.INFO.A") == (10194, "stream is offline: block 1 is damaged")
        assert (tmp_path / "streams" / "A").is_dir()
