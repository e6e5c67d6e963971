"""Entries that three nats-servers agreed on make the same streams here as in their own stores."""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nats.errors
import pytest

from jsserver.cext.stream import Message, StreamState
from tests.cext.raft import append_entry
from tests.cext.stream import PyMember, TestEnv
from tests.client.random_requests import RandomRequests
from tests.peer import REASON, find_peer
from tests.raft.cluster import NAMES, Cluster, log_of, started
from tests.unit.stream_world import FILE, SECOND, World, compiled

pytestmark = pytest.mark.skipif(find_peer() is None, reason=REASON)

NORMAL = 0
#: name: what its creation asks for, and its consumers.
STREAMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "PLAIN": ({}, {}),
    "ROLL": ({"allow_rollup_hdrs": True, "max_msgs_per_subject": 5}, {}),
    "MANY": ({"max_msgs": 40, "max_bytes": 20000, "max_msgs_per_subject": 9}, {}),
    "NEW": ({"max_msgs": 60, "discard": "new", "allow_atomic": True}, {}),
    "LIVES": ({"allow_msg_ttl": True, "allow_rollup_hdrs": True}, {}),
    "MARKS": ({"allow_msg_ttl": True, "subject_delete_marker_ttl": 3600 * SECOND}, {}),
    "COUNT": ({"allow_msg_counter": True}, {}),
    "TIMED": ({"allow_msg_schedules": True, "allow_rollup_hdrs": True}, {}),
    "BATCH": ({"allow_atomic": True, "allow_batched": True}, {}),
    "WANTED": ({"retention": "interest"}, {"A": "WANTED.a", "B": "WANTED.*"}),
    "SOME": ({"retention": "interest"}, {"A": "SOME.a"}),
    "WORK": ({"retention": "workqueue"}, {"A": ""}),
    "NAMED": ({"subject_transform": {"src": "NAMED.a", "dest": "NAMED.other.a"}}, {}),
}


class Requests(RandomRequests):
    """Random publishes and requests to the streams of a cluster."""

    def __init__(self, client: Any, seed: int) -> None:
        super().__init__(seed)
        self.client = client

    async def ask(self, subject: str, body: bytes, headers: Any = None) -> Any:
        return await self.client.request(subject, body, timeout=5, headers=headers)

    async def create(self) -> None:
        for name, (config, consumers) in STREAMS.items():
            body = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3, "storage": FILE}
            body |= {"retention": "limits", "duplicate_window": 60 * SECOND} | config
            assert "error" not in await self.api(f"STREAM.CREATE.{name}", body)
            for consumer, wanted in consumers.items():
                asked = {"durable_name": consumer, "ack_policy": "explicit", "num_replicas": 3}
                asked |= {"filter_subject": wanted} if wanted else {}
                path = f"CONSUMER.DURABLE.CREATE.{name}.{consumer}"
                made = await self.api(path, {"stream_name": name, "config": asked})
                assert "error" not in made

    async def step(self, name: str) -> None:
        pick = self.random.random()
        subject = self.random.choice("abc")
        if name == "COUNT":
            await self.publish(name, subject, b"", Nats_Incr=self.random.randint(-5, 50))
        elif pick < 0.08:
            await self.remove(name)
        elif pick < 0.12:
            await self.purge(name)
        elif pick < 0.3 and name in ("BATCH", "NEW"):
            await self.batch(name)
        elif pick < 0.4 and name == "BATCH":
            await self.fast(name)
        elif pick < 0.3 and STREAMS[name][1]:
            await self.take(name)
        else:
            await self.publish(name, subject, self.body(), **self.lines(name))

    def lines(self, name: str) -> dict[str, object]:
        lines: dict[str, object] = {}
        chance = self.random.random
        if chance() < 0.3:
            lines["Nats_Msg_Id"] = f"id{self.random.randint(0, 40)}"
        if STREAMS[name][0].get("allow_rollup_hdrs") and chance() < 0.1:
            lines["Nats_Rollup"] = self.random.choice(["sub", "all"])
        if STREAMS[name][0].get("allow_msg_ttl") and chance() < 0.4:
            lines["Nats_TTL"] = self.random.choice(["1s", "1", "2h", "never"])
        if name == "TIMED" and chance() < 0.2:
            lines = self.scheduled(name)
        return lines

    async def remove(self, name: str) -> None:
        state = await self.state(name)
        seq = self.random.randint(state["first_seq"], state["last_seq"] + 2)
        body = {"seq": seq, "no_erase": self.random.random() < 0.5}
        await self.api(f"STREAM.MSG.DELETE.{name}", body)

    async def fast(self, name: str) -> None:
        number, n = next(self.numbers), self.random.randint(1, 6)
        for at in range(1, n + 1):
            operation = 2 if at == n else min(at - 1, 1)
            reply = f"answers.fast{number}.10.ok.{at}.{operation}.$FI"
            await self.client.publish(f"{name}.{self.random.choice('abc')}", self.body(), reply)

    async def take(self, name: str) -> None:
        consumer = self.random.choice(list(STREAMS[name][1]))
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}"
        with contextlib.suppress(nats.errors.TimeoutError):  # the leader may not be ready
            message = await self.client.request(subject, b'{"no_wait":true}', timeout=1)
            if message.reply:
                await self.client.request(message.reply, b"", timeout=1)

    async def settled(self) -> None:
        """All that is to end soon is gone, and every server has applied the same."""
        for name in STREAMS:
            for _ in range(60):
                info = await self.api(f"STREAM.INFO.{name}")
                replicas = info["cluster"]["replicas"]
                if all(r["current"] and not r.get("lag") for r in replicas):
                    break
                await asyncio.sleep(0.2)  # until it is asked again


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Streams changed at random; then the first server was killed, the others were stopped."""

    async def create(client: Any, _: Any) -> None:
        await Requests(client, 0).create()

    async def change(client: Any, _: Any) -> None:
        requests = Requests(client, 4711)
        for _ in range(60):
            await asyncio.gather(*(requests.step(name) for name in STREAMS))
        await asyncio.sleep(3)  # until lives of a second have ended, and schedules were due
        await requests.settled()

    with started(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.ask(create)
        cluster.ask(change)
        cluster.running[0].kill()  # a server that is stopped cuts its logs
        cluster.running[0].wait()
        cluster.stop(signal.SIGTERM)  # what limits removed is on disk
        yield cluster


def records(folder: Path, to: Path) -> list[bytes]:
    """The log of a killed server's group."""
    log = log_of(folder, to)
    assert min(log) == 1, "nothing of it is in a snapshot"
    return [record for record in log.values() if record is not None]


def entries(log: list[bytes]) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for record in log:
        said = append_entry(record)
        assert said is not None
        for kind, data in said["entries"]:
            found.append((said["pindex"] + 1, data if kind == NORMAL else None))
    return found


def world(name: str, env: TestEnv, directory: Path) -> World:
    config, _ = STREAMS[name]
    params = {"name": name, "subjects": [f"{name}.>"], "duplicate_window": 60 * SECOND} | config
    if name == "NAMED":
        params["subject_transform"] = compiled("NAMED.a", "NAMED.other.a")
    env.start_commits()
    return World(env, bytes(directory), active=False, storage=FILE, **params)


def close(made: World) -> None:
    made.stream.close(False)
    made.env.stop_commits()


def contents(made: World) -> tuple[StreamState, list[Message], Sequence[int]]:
    state = made.stream.state()._replace(last_ts=0)
    found = [made.stream.get(seq) for seq in range(state.first_seq, state.last_seq + 1)]
    return state, [m for m in found if m is not None], made.stream.deleted()


def group_of(cluster: Cluster, server: str, name: str) -> Path:
    """Of a stream: the group whose log has its name or subjects."""
    for path in cluster.groups(server).values():
        if path.name.startswith("S-") and name in told_of(path):
            return path
    raise AssertionError(f"no group of {name}")


def told_of(path: Path) -> str:
    text = b"".join(file.read_bytes() for file in sorted((path / "msgs").glob("*.blk")))
    names = [name for name in STREAMS if f"{name}.".encode() in text]
    return names[0] if names else ""


@pytest.mark.parametrize("name", STREAMS)
def test_replicas_are_equal(ended: Cluster, name: str, tmp_path: Path) -> None:
    folder = group_of(ended, "N1", name)
    log = entries(records(folder, tmp_path / "log"))
    assert len(log) > 30
    env = TestEnv(now=time.time_ns())
    (tmp_path / "ours").mkdir()
    ours = world(name, env, tmp_path / "ours")
    for consumer, wanted in STREAMS[name][1].items():
        filters = (wanted.encode(),) if wanted else ()
        ours.consumer(name=consumer.encode(), filters=filters)
    member = PyMember(env, ours.stream)
    member.recovered()
    assert member.commit(log) == 0
    env.advance(SECOND)
    index = log[-1][0]
    assert (member.refused, member.applied(index)) == (0, index)
    found = contents(ours)
    close(ours)
    for server in NAMES[1:]:
        shutil.copytree(ended.base / server / "jetstream/$G/streams" / name, tmp_path / server)
        theirs = world(name, TestEnv(now=env.now), tmp_path / server)
        expected = contents(theirs)
        close(theirs)
        assert found == expected, server
