"""Servers that put groups of many streams into their journal: power cuts, kills, full disks and
calls that fail take back nothing that was acked."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from tests.client.raw import RawApp
from tests.fault.faulty import Faults
from tests.fault.many import JOURNAL as FOLDER
from tests.fault.many import SECONDS, Load, contents, last_seq
from tests.fault.powercut.disk import JOURNAL, LOOSE, OPEN, WRITE, Disk, read_log
from tests.fault.test_disk_full import NO_SPACE, small_disk
from tests.fault.test_disk_full import start as start_on
from tests.seeds import seed_of
from tests.servers import Server, Servers, command_under_test
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["small_disk"]

IMAGES = int(os.environ.get("POWERCUT_IMAGES", "16")) // 4
SEED = seed_of("POWERCUT_SEED")
STREAMS = 100
ACKED = 5000
"""Messages, before the server is killed."""
NOW = 1 << 62


def loaded(server: Server, load: Load) -> None:
    """Under load the server is killed."""
    with RawApp(server.port) as client:
        load.create(client)
    thread = threading.Thread(target=load.run, args=(server.port, threading.Event()))
    thread.start()
    try:
        wait_until(lambda: load.acked > ACKED, "the load is under way", SECONDS)
    finally:
        server.kill()
        thread.join()


@pytest.mark.timeout(120 + IMAGES * 60)
@pytest.mark.parametrize("key", ["", "a key of the server"])
@pytest.mark.parametrize("model", [JOURNAL, LOOSE])
def test_no_power_cut_takes_back_what_was_acked(
    tmp_path: Path, recorder: Path, model: str, key: str
) -> None:
    """Also where the next start is the first one with a key."""
    store, log = tmp_path / "store", tmp_path / "record"
    store.mkdir()
    env = {"LD_PRELOAD": str(recorder), "RECORD_ROOT": str(store), "RECORD_LOG": str(log)}
    args = ["-js", "-sd", str(store)]
    load = Load(STREAMS)
    loaded(Server(command_under_test(), tmp_path / "server", env=env, args=args).start(), load)
    events = read_log(log)
    segments = {e.inode for e in events if e.kind == OPEN and FOLDER in e.path}
    frames = [n for n, e in enumerate(events) if e.kind == WRITE and e.inode in segments]
    assert len(frames) > 10
    chance = random.Random(SEED)
    disk = Disk(str(store), model)
    at = 0
    for count, cut in enumerate(sorted(chance.choices(range(frames[2], len(events)), k=IMAGES))):
        for event in events[at:cut]:
            disk.follow(event)
        at = cut
        image = tmp_path / f"image{count}"
        disk.image(image, chance)
        kept = tmp_path / f"kept{count}"
        shutil.copytree(image, kept)
        config = f'jetstream {{ store_dir: "{image}", key: "{key}" }}'
        server = Server(command_under_test(), tmp_path / f"server{count}", config=config).start()
        try:
            load.check(server.port, events[cut - 1].time)
            server.stop()
            server.start()
            load.check(server.port, events[cut - 1].time)
            server.stop()
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, image {kept}: {error}") from error
        finally:
            server.kill()
        assert not (image / "jetstream" / FOLDER).exists()
        shutil.rmtree(image)
        shutil.rmtree(kept)


def test_nats_server_serves_what_was_acked_before_a_kill(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    load = Load(STREAMS)
    loaded(server, load)
    assert list((server.store / "jetstream" / FOLDER).iterdir())
    peer = servers.peer(jetstream=True).start_on_copy(server.store)
    load.check(peer.port, NOW)
    server.start()
    load.check(server.port, NOW)
    server.stop()
    assert not (server.store / "jetstream" / FOLDER).exists()


def test_what_nats_server_did_after_a_kill_stays(servers: Servers) -> None:
    """The journal holds what stood where nats-server has written since: a purge moves what stays to
    the beginning of the block."""
    server = servers.under_test(jetstream=True)
    load = Load(6, window=100, size=8000)
    loaded(server, load)
    peer = servers.peer(jetstream=True).start_on_copy(server.store)
    with RawApp(peer.port) as client:
        for n in range(load.streams):
            last = last_seq(client, f"S{n}")
            assert client.api(f"STREAM.PURGE.S{n}", {"seq": last - 20})["success"] is True
    load.rounds(peer.port, 2)
    served = contents(peer.port, load.streams)
    peer.stop()
    server.start_on_copy(peer.store)
    assert contents(server.port, load.streams) == served
    assert "nats-server has started on the directory since they were written" in server.log()
    server.restart()
    assert contents(server.port, load.streams) == served


def test_what_is_refused_on_a_full_disk_is_not_there(servers: Servers, small_disk: Path) -> None:
    server = start_on(servers, small_disk)
    load = Load(20, window=100, size=20_000)
    with RawApp(server.port) as client:
        load.create(client)
        load.rounds(server.port, 20)
        refused = {m.refused for m in load.sent} - {""}
        assert refused == {NO_SPACE}
        for n in range(load.streams):
            assert client.api(f"STREAM.MSG.DELETE.S{n}", {"seq": 1})["success"] is True
        gone = {m.stream: m for m in load.sent if m.seq == 1}
        assert len(gone) == load.streams
        for message in gone.values():
            message.acked = 0
        load.check(server.port, NOW)
        server.restart(kill=True)
        load.check(server.port, NOW)
    with RawApp(server.port) as client:
        for n in range(1, load.streams):
            assert client.api(f"STREAM.PURGE.S{n}").get("success")
    load.size = 60

    def goes_on() -> bool:
        sent = len(load.sent)
        load.rounds(server.port, 1)
        return not any(m.refused for m in load.sent[sent:])

    wait_until(goes_on, "it goes on")


@pytest.mark.parametrize("size", [3_000, 20_000, 100_000])
def test_what_fills_the_disk_leaves_room_for_deletions(
    servers: Servers, small_disk: Path, size: int
) -> None:
    """However much comes at once, and whatever else the server writes for later."""
    server = start_on(servers, small_disk)
    load = Load(20, window=200, size=size)
    with RawApp(server.port, timeout=SECONDS) as client:
        load.create(client)
        while not any(m.refused for m in load.sent):
            load.rounds(server.port, 1)
        for seq in range(1, 5):
            for n in range(load.streams):
                answer = client.api(f"STREAM.MSG.DELETE.S{n}", {"seq": seq})
                assert answer.get("success") is True, (n, seq, answer)


@pytest.mark.parametrize("call", ["pwrite", "sync", "open", "mkdir", "unlink", "truncate"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_journal_that_fails_refuses_nothing(
    servers: Servers, tmp_path: Path, call: str, error: int
) -> None:
    """The files are synced instead."""
    faults = Faults(tmp_path, f"/{FOLDER}")
    server = servers.under_test(jetstream=True, env=faults.env)
    load = Load(20)
    with RawApp(server.port) as client:
        load.create(client)
    faults.fail(call, error, after=1, times=1000)
    load.rounds(server.port, 20)
    assert {m.refused for m in load.sent} == {""}
    server.kill()
    faults.mend()
    server.start()
    load.check(server.port, NOW)
    load.rounds(server.port, 5)
    server.restart()
    load.check(server.port, NOW)


@pytest.mark.parametrize("call", ["pwrite", "sync"])
def test_blocks_that_fail_beside_the_journal_take_nothing_along(
    servers: Servers, tmp_path: Path, call: str
) -> None:
    faults = Faults(tmp_path, "/streams/S")
    server = servers.under_test(jetstream=True, env=faults.env)
    load = Load(20)
    with RawApp(server.port) as client:
        load.create(client)
    for turn in range(6):
        load.rounds(server.port, 2)
        faults.fail(call, errno.EIO, after=turn * 3, times=2)
        load.rounds(server.port, 2)
        faults.mend()
    load.check(server.port, NOW)
    server.restart(kill=True)
    load.check(server.port, NOW)
    server.restart()
    load.check(server.port, NOW)
