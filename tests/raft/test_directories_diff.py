"""Directories of groups go both ways between a cluster of three nats-servers and ours."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cext.raft import append_entry, peer_state
from tests.cext.raftlog import Directory, Machine, read_snapshot
from tests.peer import REASON, find_peer
from tests.raft.cluster import NAMES, Cluster, Pump, peer_id, started

pytestmark = pytest.mark.skipif(find_peer() is None, reason=REASON)

MESSAGES = 300


async def fill(client: Any, js: Any) -> None:
    await js.add_stream(name="ORD", subjects=["ord.>"], num_replicas=3)
    await js.add_consumer("ORD", durable_name="D", ack_policy="explicit", num_replicas=3)
    for n in range(MESSAGES):
        await js.publish("ord.a", b"message %d" % n)
    pulled = await js.pull_subscribe("ord.>", durable="D", stream="ORD")
    for message in await pulled.fetch(10, timeout=5):
        await message.ack_sync()


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with a stream and a consumer of three replicas, after kill -9 of all."""
    with started(tmp_path) as cluster:
        cluster.ask(fill)
        cluster.stop(signal.SIGKILL)
        yield cluster


def test_a_killed_clusters_directories_are_read(killed: Cluster) -> None:
    kinds = set()
    for group in killed.groups("N1"):
        logs: list[dict[int, bytes]] = []
        for name in NAMES:
            path = killed.base / "copies" / name / group.decode()
            shutil.copytree(killed.groups(name)[group], path)
            machine = Machine()
            d = Directory(machine, path, group, peer_id(name))
            assert (d.found["lost"], d.found["aside"], d.found["fresh"]) == (False, 0, False)
            s = d.state()
            assert s["term"] == int.from_bytes((path / "tav.idx").read_bytes()[:8], "little")
            known = peer_state((path / "peers.idx").read_bytes())
            assert known is not None
            assert sorted(known["peers"]) == sorted(map(peer_id, NAMES))
            for file in path.glob("snapshots/*"):
                snapshot = read_snapshot(group, file.read_bytes())
                assert snapshot is not None
                assert file.name == f"snap.{snapshot[0]}.{snapshot[1]}"
            logs.append({i: d.load(i) or b"" for i in range(s["first"], s["last"] + 1)})
            d.close()
        for index in set.intersection(*(set(log) for log in logs)):
            assert len({log[index] for log in logs}) == 1
            assert append_entry(logs[0][index]) is not None
        kinds.add(group[:1])
        if group.startswith(b"S-"):
            assert len(max(logs, key=len)) > 10
    assert kinds == {b"_", b"S", b"C"}


def test_nats_servers_go_on_with_what_ours_wrote(killed: Cluster) -> None:
    terms: dict[bytes, int] = {}
    for group in killed.groups("N1"):
        pump = Pump(killed, group)
        leader = pump.elect()
        s = pump.members[leader].state()
        assert s["role"] == "leader", (group, s)
        assert s["commit"] == s["last"]
        terms[group] = s["term"]
        for d in pump.members.values():
            assert (d.state()["last"], d.state()["last_term"]) == (s["last"], s["term"])
        pump.close()

    async def goes_on(client: Any, js: Any) -> None:
        await js.publish("ord.b", b"later", headers={"Nats-Msg-Id": "1"})
        state = (await js.stream_info("ORD")).state
        assert state.messages == MESSAGES + 1
        assert (await js.get_msg("ORD", MESSAGES)).data == b"message %d" % (MESSAGES - 1)
        assert (await js.consumer_info("ORD", "D")).ack_floor.stream_seq == 10

    killed.start()
    killed.ask(goes_on)
    killed.stop(signal.SIGTERM)
    for name in NAMES:
        for group, path in killed.groups(name).items():
            assert not list(path.glob("damaged-*"))
            machine = Machine()
            d = Directory(machine, path, group, peer_id(name))
            assert not d.found["lost"]
            assert d.state()["term"] >= terms[group]
            assert d.state()["last_term"] >= terms[group]
            d.close()
