"""Plays the same JetStream operations on the server under test and on nats-server."""

from collections.abc import Iterator
from functools import partial
from itertools import zip_longest

import pytest

from tests.client import (
    batch_cases,
    consumer_cases,
    delivery_cases,
    fast_cases,
    jetstream_cases,
    priority_cases,
    publish_cases,
    republish_cases,
    reset_cases,
    source_cases,
    transform_cases,
)
from tests.client.jetstream_cases import Case
from tests.client.recorder import Heard, Recorder, played, until_alike
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CASES = [
    *(jetstream_cases.CASES + consumer_cases.CASES + delivery_cases.CASES),
    *(batch_cases.CASES + fast_cases.CASES + publish_cases.CASES),
    *(priority_cases.CASES + reset_cases.CASES + transform_cases.CASES + republish_cases.CASES),
    *source_cases.CASES,
]
# Answers that depend on timers come in another order once in a while on a loaded machine: later
# tries have longer periods.
PATIENCE = (1, 1, 1, 2, 2, 4, 4, 8)


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> Iterator[tuple[Server, Server]]:
    """Both with the same name: answers tell it."""
    options = {"jetstream": True, "args": ["-n", "one"]}
    yield (module_servers.under_test(**options), module_servers.peer(**options))


def play(server: Server, case: Case, stream: str, patience: int) -> list[Heard]:
    return played(Recorder(server.port, stream, patience), case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_same_answers(pair: tuple[Server, Server], case: Case) -> None:
    plays = [partial(play, server, case) for server in pair]
    ours, theirs = until_alike(CASES.index(case), PATIENCE, plays)
    for mine, other in zip_longest(ours, theirs):
        assert mine == other
