"""Clusters that are killed as a whole, and what is left of them, for the tests of rescues."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import api, connected, until
from tests.client.mesh import NAMES, Cluster
from tests.servers import Server, command_under_test

COUNT = 120
"""Messages of each stream."""
ACKED = 40
"""Of these that the consumer has acked."""
SYSTEM = "SYS"


class Message(NamedTuple):
    """What a stream has under a sequence."""

    seq: int
    subject: str
    data: bytes
    header: bytes
    time: str


def tool(*words: str) -> tuple[int, str, str]:
    """`jsserver cluster`: exit code, output, errors."""
    done = subprocess.run(
        [*command_under_test(), "cluster", *words], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def told(*words: str) -> dict[str, Any]:
    """What it says as JSON."""
    _, out, errors = tool(*words, "--json")
    assert out, errors
    found: dict[str, Any] = json.loads(out)
    return found


async def fill(cluster: Cluster) -> None:
    """A stream on all members with a consumer that has acked some of it, and one on each."""
    size = len(cluster.members)
    async with connected(cluster.members[0]) as client:
        for name, peers, tags in (
            ("ALL", size, []),
            *((f"ONE{name}", 1, [name.lower()]) for name in NAMES[:size]),
        ):
            config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": peers}

            async def made(
                name: str = name,
                about: object = config | {"placement": {"tags": tags}},
            ) -> bool:
                return "error" not in await api(client, f"STREAM.CREATE.{name}", about)

            await until(made)
        js = client.jetstream(timeout=10)
        for name in ("ALL", *(f"ONE{name}" for name in NAMES[:size])):
            for n in range(COUNT):
                headers = {"A": str(n)} if n % 3 == 0 else None
                await js.publish(f"{name}.{n % 5}", b"%d" % n * (n % 40), headers=headers)
        about = {"durable_name": "D", "ack_policy": "explicit", "ack_wait": 10 * 10**9}
        body = {"stream_name": "ALL", "config": about}

        async def held() -> bool:
            return "error" not in await api(client, "CONSUMER.DURABLE.CREATE.ALL.D", body)

        await until(held)
        pulled = await js.pull_subscribe_bind("D", "ALL")
        for message in await pulled.fetch(ACKED, timeout=20):
            await message.ack_sync()

        async def current() -> bool:
            """All members have the whole."""
            about = await api(client, "STREAM.INFO.ALL", {})
            replicas = about["cluster"].get("replicas", [])
            return len(replicas) == size - 1 and all(
                one["current"] and not one.get("lag") for one in replicas
            )

        await until(current)


async def messages(client: Client, stream: str) -> list[Message]:
    """All that a stream has."""
    about = await api(client, f"STREAM.INFO.{stream}", {})
    assert "error" not in about, about
    found = []
    for seq in range(about["state"]["first_seq"], about["state"]["last_seq"] + 1):
        answer = await api(client, f"STREAM.MSG.GET.{stream}", {"seq": seq})
        if "error" not in answer:
            one = answer["message"]
            data, header = one.get("data", "").encode(), one.get("hdrs", "").encode()
            found.append(Message(one["seq"], one["subject"], data, header, one["time"]))
    return found


async def kill_all(members: Sequence[Server]) -> None:
    """As a power cut of the machine room, but for the disks' caches."""
    await asyncio.gather(*(asyncio.to_thread(member.kill) for member in members))


def lose(member: Server) -> None:
    """Its disk is gone."""
    shutil.rmtree(member.store)


def groups_of(store: Path) -> list[Path]:
    """The directories of groups in a store."""
    return sorted(path for path in store.glob(f"jetstream/{SYSTEM}/_js_/*") if path.is_dir())


async def asked(client: Client, subject: str, body: object) -> dict[str, Any]:
    """As `api`; where nobody answers, an answer with an error."""
    data = json.dumps(body).encode()
    try:
        answer = await client.request(f"$JS.API.{subject}", data, timeout=2)
    except (NoRespondersError, NoAnswer):
        return {"error": {"description": "no answer"}}
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def served(client: Client, stream: str, seconds: float = 60.0) -> dict[str, Any]:
    """What a stream says of itself, once anybody does."""
    found: dict[str, Any] = {}

    async def there() -> bool:
        nonlocal found
        found = await asked(client, f"STREAM.INFO.{stream}", {})
        return "error" not in found and bool(found["cluster"].get("leader"))

    await until(there, seconds)
    return found
