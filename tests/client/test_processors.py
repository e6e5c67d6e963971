"""How the threads of a server that serves share the processors with each other and with others."""

import os
import re
from pathlib import Path

import pytest

from jsserver.process.priority import SLICE_NS
from tests.client.raw import RawApp
from tests.servers import Server, Servers


@pytest.fixture
def tasks(servers: Servers) -> list[Path]:
    """Of each thread that a server has after logins and requests of the API."""
    server: Server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        stream = {"name": "S", "subjects": ["s"]}
        consumer = {"stream_name": "S", "config": {"name": "C"}}
        assert "error" not in client.api("STREAM.CREATE.S", stream)
        assert "error" not in client.api("CONSUMER.CREATE.S.C", consumer)
        assert "error" not in client.api("STREAM.DELETE.S")
    return list(Path(f"/proc/{server.pid}/task").iterdir())


def test_all_have_the_nice_level_that_the_server_was_started_with(tasks: list[Path]) -> None:
    """One with a lower one would wait behind every busy process, and the others for it."""
    levels = {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks}
    assert levels == {os.getpriority(os.PRIO_PROCESS, 0)}


def test_those_of_the_data_plane_have_short_turns(tasks: list[Path]) -> None:
    """Reactor, commit thread and the two that this starts; none that runs Python."""
    if not Path("/proc/self/sched").exists():
        pytest.skip("this kernel shows nothing of its scheduler")
    figures = [(task / "sched").read_text() for task in tasks]
    turns = [int(n) for text in figures for n in re.findall(r"(?m)^se\.slice +: +(\d+)$", text)]
    if not turns:
        pytest.skip("this kernel has no turns of different length")
    assert turns.count(SLICE_NS) == 4
    assert len(turns) == len(tasks) > 4
