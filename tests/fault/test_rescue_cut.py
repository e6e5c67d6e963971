"""A rescue that ends at any of its writes is begun again; damaged files are named, and not used."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jsserver import clusters
from jsserver.cext.store import journal_drain
from jsserver.cluster.meta import MetaState
from jsserver.disk.quarantine import RESCUED
from jsserver.offline.stopped import DONE, FAILED
from jsserver.process.libc import call as call_c
from jsserver.rescue import carrying, command, groupfiles, grouplogs
from jsserver.rescue.groupfiles import EntryType
from tests.client.aio import api, connected, until
from tests.client.mesh import ACCOUNTS, Cluster
from tests.client.rescued import COUNT, fill, groups_of, kill_all, served, told, tool
from tests.fault.faulty import Faults
from tests.servers import Servers

OWN = "A"
NOBODY = 65534
"""A user that is not root."""


class Killed(BaseException):
    """As if the process ended here."""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one of three servers that were killed."""
    folder = tmp_path_factory.mktemp("cluster")
    servers = Servers(folder)
    cluster = Cluster(servers)
    tags = [f"{ACCOUNTS}\nserver_tags: [{name}]" for name in "abc"]

    async def run() -> None:
        await cluster.whole()
        await fill(cluster)
        await kill_all(cluster.members)

    try:
        cluster.start_all("ooo", tags)
        asyncio.run(run())
    finally:
        servers.end_all()
    return cluster.members[0].store


def files_of(store: Path) -> dict[Path, bytes]:
    """All that is in it, but for what locks it."""
    files = [path for path in store.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if path.suffix != ".lock"}


@pytest.fixture
def store(left: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(left, tmp_path / "store")


def rescue(store: Path, *more: str) -> int:
    """In this process."""
    return clusters.main(["rescue", str(store), "--server", OWN, "--yes", *more])


def outcome(store: Path) -> dict[str, Any]:
    """What a server would find: members and records of each group, and all assignments."""
    found: dict[str, Any] = {}
    for place in groups_of(store):
        log = grouplogs.read(place)
        assert not log.damage
        records = [(r.index, r.entries) for _, _, r in log.rows]
        found[place.name] = (log.peers(), records, (place / RESCUED).exists())
    meta = grouplogs.read(next(one for one in groups_of(store) if one.name == "_meta_"))
    assert meta.snapshot is not None
    state = MetaState.read(meta.snapshot.state)
    found["assigned"] = {(a, n): one.peers for a, n, one in state}
    return found


STEPS = ("rename", "fsync", "unlink", "mkdir")


def cut_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], int]:
    """The process ends before the step of this number; how many there were. Only the process ends,
    not the machine: nothing is synced."""
    seen = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == number:
                raise Killed
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for name in STEPS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr("jsserver.rescue.grouplogs.call", counted(call_c))
    return lambda: seen


def cuts(monkeypatch: pytest.MonkeyPatch, store: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy that a rescue has left after each number of its steps. `store`: its journal is empty,
    so that a rescue writes whole files alone, and copies may be links."""
    for number in range(1, 400):
        place = shutil.copytree(store, tmp_path / str(number), copy_function=os.link)
        with monkeypatch.context() as patched:
            seen = cut_at(patched, number)
            with contextlib.suppress(Killed):
                assert rescue(place) == DONE
            whole = seen() < number
        yield place
        if whole:
            return
        shutil.rmtree(place)
    raise AssertionError("it has no end")


def test_a_rescue_that_is_cut_short_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal_drain(store / "jetstream", look=False)
    whole = shutil.copytree(store, tmp_path / "whole")
    assert rescue(whole) == DONE
    wanted = outcome(whole)
    count = 0
    for place in cuts(monkeypatch, store, tmp_path):
        count += 1
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", lambda descriptor: None)
            assert rescue(place) == DONE
        assert outcome(place) == wanted
        capsys.readouterr()
        assert clusters.main(["rescue", str(place), "--server", OWN, "--json"]) == DONE
        assert json.loads(capsys.readouterr().out)["changes"] is False
    assert count > 20


def test_a_dry_run_changes_nothing(store: Path) -> None:
    before = files_of(store)
    assert tool("rescue", str(store), "--server", OWN)[0] == command.FOUND
    assert files_of(store) == before


def group(store: Path, start: str) -> Path:
    """The directory of the group whose name begins so."""
    return next(one for one in groups_of(store) if one.name.startswith(start))


def changed(path: Path, at: int) -> None:
    """One bit is another one."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("start", ["_meta_", "S-R3F", "C-R3F"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_changed_bit_of_a_log_is_named(store: Path, start: str, part: float) -> None:
    block = group(store, start) / "msgs" / "1.blk"
    used = len(block.read_bytes().rstrip(b"\0"))
    changed(block, int(used * part))
    before = files_of(store)
    code, out, _ = tool("rescue", str(store), "--server", OWN, "--yes")
    assert code == FAILED and "damage: " in out and "1.blk" in out
    assert files_of(store) == before
    code, out, errors = tool("rescue", str(store), "--server", OWN, "--yes", "--accept-damage")
    assert code in (DONE, FAILED), (out, errors)
    assert "Traceback" not in errors


@pytest.mark.parametrize("name", ["tav.idx", "peers.idx", "msgs/1.blk"])
@pytest.mark.parametrize("start", ["_meta_", "S-R3F"])
def test_short_files_are_named(store: Path, start: str, name: str) -> None:
    path = group(store, start) / name
    path.write_bytes(path.read_bytes()[:7])
    code, out, errors = tool("rescue", str(store), "--server", OWN, "--yes")
    assert code == FAILED, (out, errors)
    assert "Traceback" not in errors
    assert "damage: " in out or "says nothing of a cluster" in errors


def test_a_damaged_snapshot_of_the_meta_group_is_no_base(store: Path) -> None:
    assert rescue(store) == DONE
    (snapshot,) = (group(store, "_meta_") / "snapshots").iterdir()
    changed(snapshot, 40)
    code, out, errors = tool("rescue", str(store), "--server", OWN, "--yes")
    assert code == FAILED
    assert f"snapshots/{snapshot.name}: its checksum does not fit" in out + errors


def damage_meta(store: Path) -> None:
    """Nothing that the meta group has written can be read any more."""
    meta = group(store, "_meta_")
    for path in (*meta.glob("snapshots/*"), meta / "tav.idx", meta / "peers.idx"):
        changed(path, 3)
    for path in meta.glob("msgs/*.blk"):
        path.write_bytes(bytes(reversed(path.read_bytes())))


def test_streams_on_disk_are_assigned_where_the_meta_group_is_damaged(
    store: Path, servers: Servers
) -> None:
    damage_meta(store)
    words = ("rescue", str(store), "--server", OWN)
    code, _, errors = tool(*words, "--yes")
    assert code == FAILED and "--from-streams" in errors
    folders = {path for path in store.rglob("*") if path.is_dir()}
    plan = told(*words, "--from-streams", "--cluster", "C")
    fates = {(one["stream"], one.get("consumer", "")): one["fate"] for one in plan["assets"]}
    assert fates == {("ALL", ""): "found", ("ALL", "D"): "found", ("ONEA", ""): "found"}
    assert any("nothing says whose it is" in text for text in plan["damage"])
    code, out, _ = tool(*words, "--from-streams", "--cluster", "C", "--yes")
    assert code == FAILED and "--accept-damage" in out
    code, out, errors = tool(*words, "--from-streams", "--cluster", "C", "--yes", "--accept-damage")
    assert code == DONE, (out, errors)
    assert folders <= {path for path in store.rglob("*") if path.is_dir()}
    config = f"""
        server_name: A
        {ACCOUNTS}
        jetstream {{ store_dir: "{store}" }}
        cluster {{ name: C, listen: "127.0.0.1:-1", routes: ["nats://127.0.0.1:1"] }}
    """
    server = servers.under_test(config=config)

    async def look() -> None:
        async with connected(server) as client:
            for name in ("ALL", "ONEA"):
                about = await served(client, name)
                assert about["state"]["messages"] == COUNT
                assert about["config"]["num_replicas"] == 1

            async def is_served() -> bool:
                return "error" not in await api(client, "CONSUMER.INFO.ALL.D", {})

            # Acks that only the log of the consumer's group has are left out, as the plan says.
            await until(is_served, 30)

    asyncio.run(look())


def test_what_cannot_be_rescued_is_refused(store: Path, tmp_path: Path) -> None:
    for words, says in (
        ((str(store), "--server", "Z"), "is no member of the cluster of this directory"),
        ((str(store), "--server", OWN, "--with", "Z"), "is no member of the cluster"),
        ((str(store), "--server", OWN, "--with", "B"), "2 of 3 members are a majority"),
        ((str(store), "--server", "B"), "this is not the directory of B"),
        ((str(tmp_path / "none"), "--server", OWN), "no such directory"),
        ((str(tmp_path), "--server", OWN, "--system-account", "X"), "holds nothing of a cluster"),
    ):
        code, _, errors = tool("rescue", *words, "--yes")
        assert code == FAILED and says in errors, (words, errors)


def test_no_server_runs_meanwhile(store: Path) -> None:
    from jsserver.cext.store import lock_directory

    held = lock_directory(store / "jetstream")
    try:
        code, _, errors = tool("rescue", str(store), "--server", OWN)
        assert code == FAILED and "runs on this directory: stop it first" in errors
    finally:
        os.close(held)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_root_rescues_belongs_to_the_server_s_user(store: Path) -> None:
    for path in (store, *store.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    code, out, errors = tool("rescue", str(store), "--server", OWN, "--yes")
    assert code == DONE, (out, errors)
    assert {path.stat().st_uid for path in store.rglob("*")} == {NOBODY}


@pytest.mark.parametrize(
    ("operation", "error", "after"),
    [
        ("sync", errno.ENOSPC, 1),
        ("sync", errno.EIO, 9),
        ("rename", errno.EROFS, 2),
        ("mkdir", errno.EACCES, 1),
    ],
)
def test_a_disk_that_refuses_leaves_a_rescue_to_be_begun_again(
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
    tmp_path: Path,
    operation: str,
    error: int,
    after: int,
) -> None:
    whole = shutil.copytree(store, tmp_path / "whole")
    assert rescue(whole) == DONE
    faults = Faults(tmp_path, "/_js_/")
    faults.fail(operation, error, after=after, times=1000)
    with monkeypatch.context() as patched:
        for name, value in faults.env.items():
            patched.setenv(name, value)
        code, _, errors = tool("rescue", str(store), "--server", OWN, "--yes")
    assert faults.seen(operation)
    assert code == FAILED and os.strerror(error) in errors and "Traceback" not in errors, errors
    assert rescue(store) == DONE
    assert outcome(store) == outcome(whole)


def test_groups_files_are_read_as_they_are_written(store: Path) -> None:
    for place in groups_of(store):
        log = grouplogs.read(place)
        assert log.rows and not log.damage
        for _, data, record in log.rows:
            assert groupfiles.record_of(groupfiles.record_bytes(record)) == record
            assert groupfiles.record_bytes(record)[: len(data) - 1] == data[:-1]
        kinds = {kind for _, _, record in log.rows for kind, _ in record.entries}
        assert EntryType.NORMAL in kinds and EntryType.PEER_STATE in kinds | {EntryType.PEER_STATE}
    assert carrying.meta_folder(store / "jetstream", "").name == "_meta_"
