"""The same operations on consumers of three replicas in a cluster of ours, in one of nats-servers,
and in a mixed one where ours leads the consumers."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest

import pytest

from tests.client import consumer_cases, delivery_cases, priority_cases, reset_cases
from tests.client.jetstream_cases import Case
from tests.client.mesh import Cluster
from tests.client.raw import Frame, RawApp
from tests.client.recorder import Heard, Recorder, played, until_alike
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

ALL = consumer_cases.CASES + delivery_cases.CASES + priority_cases.CASES + reset_cases.CASES
LEFT_OUT = (
    *("pause_told_again", "pull_no_wait", "pull_max_bytes", "pull_consumer_deleted"),
    *("next_forms", "redelivery_comes_first", "work_queue", "pending_gone_by_limit"),
    *("pending_gone_by_delete", "pending_gone_by_purge_of_a_subject", "requests_while_paused"),
    *("requests_while_paused_and_many_wait", "start_points"),
    *("filters_with_a_wildcard_inside_their_last_token", "filters", "filters_and_purges"),
    *("consumer_numbers", "thresholds_of_consumers_that_become_durable", "pause"),
    *("push_flow_control", "push_name_in_use", "push_name_in_use_by_others"),
    *("stream_captures_pushes_later", "overflow_without_waiting"),
    "overflow_serves_others_first",
    *("bare_requests_of_a_pinned_consumer", "reset_of_pull_consumers"),
    *("reset_while_somebody_waits", "reset_of_a_push_consumer", "reset_of_last_messages"),
    *("reset_in_an_interest_stream", "reset_in_a_workqueue", "acked_by_flow_control"),
    *("confirmations_that_ack_nothing", "flow_control_of_a_workqueue"),
)
"""Operations whose answers depend on which server applies a message or a change first, or on how
long a delivery waits for other members."""
CASES = [case for case in ALL if case.__name__ not in LEFT_OUT]
PATIENCE = (1, 2, 4, 8)
PLACED = ("cluster", "num_replicas")
"""Keys of answers about leaders and members."""
LED_SECONDS = 30


class ReplicatedRecorder(Recorder):
    """A cluster. Its streams have three replicas, and so have durable consumers, which `leader`
    leads."""

    def __init__(self, port: int, leader: str, stream: str, patience: int) -> None:
        super().__init__(port, stream, patience)
        self.port = port
        self.leader = leader

    def note(self, *what: object) -> None:
        super().note(*map(unplaced, what))

    def client_request(self, subject: str, data: bytes, header: bytes = b"") -> Frame:
        if subject.startswith("$JS.API.STREAM.CREATE."):
            data = json.dumps({"num_replicas": 3} | json.loads(data)).encode()
        frame = super().client_request(subject, data, header)
        if self.leader and subject.startswith("$JS.API.CONSUMER.DURABLE.CREATE."):
            made = json.loads(frame.payload)
            if made.get("cluster", {}).get("replicas"):
                self._lead(f"{made['stream_name']}.{made['name']}")
        return frame

    def fill(self, count: int, subject: str = "a", size: int = 0) -> None:
        """As on one server, and until all members have the messages: the consumer's leader counts
        what is pending by its own replica of the stream."""
        super().fill(count, subject, size)
        with RawApp(self.port, timeout=LED_SECONDS) as other:
            end = time.monotonic() + LED_SECONDS
            while not self._current(other) and time.monotonic() < end:
                time.sleep(0.01)  # until the slowest disk has them

    def _current(self, client: RawApp) -> bool:
        replicas = client.api(f"STREAM.INFO.{self.stream}").get("cluster", {}).get("replicas", [])
        return all(one["current"] and not one.get("lag") for one in replicas)

    def _lead(self, asset: str) -> None:
        body = {"placement": {"preferred": self.leader}}
        with RawApp(self.port, timeout=LED_SECONDS) as other:
            end = time.monotonic() + LED_SECONDS
            while self._leads(other, asset) != self.leader:
                assert time.monotonic() < end
                other.api(f"CONSUMER.LEADER.STEPDOWN.{asset}", body)
                time.sleep(0.1)  # until the others have voted

    @staticmethod
    def _leads(client: RawApp, asset: str) -> str:
        # A meta leader that knows no leader of the consumer names no cluster either.
        placed: dict[str, str] = client.api(f"CONSUMER.INFO.{asset}").get("cluster", {})
        return placed.get("leader", "")


def unplaced(value: object) -> object:
    if isinstance(value, dict):
        return {key: unplaced(inner) for key, inner in value.items() if key not in PLACED}
    return [unplaced(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def ports(module_servers: Servers) -> Iterator[dict[str, int]]:
    """The URLs of each cluster for clients: its second server."""
    found = {}
    for kinds in ("ooo", "opp", "ppp"):
        cluster = Cluster(module_servers)
        cluster.start_all(kinds)
        asyncio.run(cluster.whole())
        found[kinds] = cluster.members[1].port
    yield found


def play(port: int, leader: str, case: Case, stream: str, patience: int) -> list[Heard]:
    recorder = ReplicatedRecorder(port, leader, stream, patience)
    return played(recorder, case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_same_answers(ports: dict[str, int], case: Case) -> None:
    clusters = (("ooo", ""), ("opp", "A"), ("ppp", ""))
    plays = [partial(play, ports[kinds], leader, case) for kinds, leader in clusters]
    ours, mixed, theirs = until_alike(CASES.index(case), PATIENCE, plays)
    for mine, both, other in zip_longest(ours, mixed, theirs):
        assert mine == both == other
