"""Mirrors and sources of three replicas are refused, stored, shown and promoted in a cluster of
ours as in one of nats-servers."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from typing import Any

import pytest

from tests.client import source_cases
from tests.client.jetstream_cases import Case
from tests.client.mesh import Cluster
from tests.client.raw import Frame
from tests.client.recorder import Heard, played, until_alike
from tests.client.test_replicated_diff import ReplicatedRecorder
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LEFT_OUT = ("mirror_without_origin", "mirror_serves_direct_gets")
"""nats-servers say nothing of an origin that is missing, ours tell the error. And a member that has
not yet heard of a deletion still answers direct gets, in the mirror's place."""
CASES = [case for case in source_cases.CASES if case.__name__ not in LEFT_OUT]
PATIENCE = (1, 4)
SOURCING = "io.nats.jetstream.api.v1.consumer_reset_response"
"""The type by which nats-servers answer a request for a consumer for sourcing."""


class OriginRecorder(ReplicatedRecorder):
    """A cluster, whose streams keep their three replicas when they are updated."""

    def note(self, *what: object) -> None:
        super().note(*map(known, what))

    def client_request(self, subject: str, data: bytes, header: bytes = b"") -> Frame:
        if subject.startswith("$JS.API.STREAM.UPDATE."):
            data = json.dumps({"num_replicas": 3} | json.loads(data)).encode()
        return super().client_request(subject, data, header)


def known(value: object) -> object:
    """An answer without the known differences, which docs/compatibility.md names."""
    if not isinstance(value, dict):
        return value
    said: dict[str, Any] = {**value}
    if said.get("type") == SOURCING:
        said["type"] = SOURCING.replace("reset", "create")
        del said["reset_seq"]
    if isinstance(config := said.get("config"), dict) and "mirror" in config:
        said["config"] = {key: one for key, one in config.items() if key != "duplicate_window"}
    if isinstance(listed := said.get("streams"), list):  # a mirror has no subject, nor its name
        said["streams"] = [one for one in listed if "mirror" not in one["config"]]
        said["total"] = len(said["streams"])
    if "alternates" in said:  # nats-servers tell them in any order
        said["alternates"].sort(key=lambda one: one["name"])
    return said


@pytest.fixture(scope="module")
def ports(module_servers: Servers) -> Iterator[tuple[int, int]]:
    """A port for clients of a cluster of ours, and of one of nats-servers."""
    found = []
    for kinds in ("ooo", "ppp"):
        cluster = Cluster(module_servers)
        cluster.start_all(kinds)
        asyncio.run(cluster.whole())
        found.append(cluster.members[1].port)
    yield found[0], found[1]


def play(port: int, case: Case, stream: str, patience: int) -> list[Heard]:
    return played(OriginRecorder(port, "", stream, patience), case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_same_answers(ports: tuple[int, int], case: Case) -> None:
    plays = [partial(play, port, case) for port in ports]
    ours, theirs = until_alike(CASES.index(case), PATIENCE, plays)
    for mine, other in zip_longest(ours, theirs):
        assert mine == other
