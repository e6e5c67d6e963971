"""Advisories about streams, consumers and leaders in a cluster with servers of ours: the same as of
three nats-servers, each sent once."""

import json
import re
from typing import Any

import pytest

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import Cluster
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

EVENTS = "$JS.EVENT.ADVISORY.>"
STREAM = {"name": "S", "subjects": ["s.*"], "num_replicas": 3}
ALONE = {"name": "T", "subjects": ["t.*"], "num_replicas": 1}
CONSUMER = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
OF_T = {"stream_name": "T", "config": {"durable_name": "E", "ack_policy": "explicit"}}
STEPS: list[tuple[str, object, int]] = [
    ("STREAM.CREATE.S", STREAM, 4),
    ("STREAM.CREATE.T", ALONE, 2),
    ("CONSUMER.DURABLE.CREATE.S.D", CONSUMER, 4),
    ("CONSUMER.DURABLE.CREATE.T.E", OF_T, 2),
    ("STREAM.UPDATE.S", {**STREAM, "max_msgs": 10}, 2),
    ("STREAM.INFO.S", None, 1),
    ("STREAM.INFO.NONE", None, 1),
    ("INFO", None, 1),
    ("STREAM.NAMES", None, 1),
    ("STREAM.PURGE.S", None, 1),
    ("STREAM.LEADER.STEPDOWN.S", {}, 3),
    ("CONSUMER.DELETE.S.D", None, 2),
    ("STREAM.DELETE.S", None, 2),
    ("STREAM.DELETE.T", None, 3),
]
"""Requests, and how many advisories each causes."""
VARIES = {"id", "timestamp", "server", "leader", "replicas", "response"}


def shown(account: str, subject: str, body: bytes) -> str:
    """The parts of an advisory that are the same everywhere."""
    event: dict[str, Any] = json.loads(body)
    if "replicas" in event:
        event["members"] = sorted(one["name"] for one in event["replicas"])
    if "response" in event:
        event["answer"] = re.sub(r"\d", "0", str(sorted(json.loads(event["response"]))))
    if event.get("client"):
        event["client"] = sorted(event["client"])
    kept = {key: value for key, value in event.items() if key not in VARIES}
    return f"{account} {subject} {json.dumps(kept, sort_keys=True)}"


async def told(servers: Servers, kinds: str) -> list[list[str]]:
    """The advisories of each step, sorted."""
    cluster = Cluster(servers)
    cluster.start_all(kinds)
    await cluster.ready()
    first = cluster.members[0]
    steps = []
    async with connected(first) as client, connected(first, user="sys", password="sys") as system:
        heard: list[str] = []
        for name, one in (("account", client), ("system", system)):

            async def take(message: Any, name: str = name) -> None:
                if "PROBE" not in message.subject and b"PROBE" not in message.data:
                    heard.append(shown(name, message.subject, message.data))

            await one.subscribe(EVENTS, cb=take)
            await one.flush()
        for subject, body, count in STEPS:
            heard.clear()
            await api(client, subject, body)
            await until(lambda count=count: len(heard) >= count, 30)  # type: ignore[misc]
            steps.append(sorted(heard))
    return steps


@asynchronous
async def test_events_are_theirs(servers: Servers) -> None:
    theirs = await told(servers, "ppp")
    for kinds in ("ooo", "oop"):
        ours = await told(servers, kinds)
        for (subject, _, _), mine, wanted in zip(STEPS, ours, theirs, strict=True):
            assert mine == wanted, (kinds, subject)
