"""Which threads go first: those that ask for short turns."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jsserver.process import priority


def in_a_thread(body: Callable[[], object]) -> tuple[int, dict[str, str]]:
    """The nice level and the scheduler's figures of a thread after it ran `body`."""
    found: list[tuple[int, dict[str, str]]] = []

    def run() -> None:
        body()
        text = Path("/proc/thread-self/sched").read_text()
        figures = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        found.append((nice, {k.strip(): v.strip() for k, v in figures.items()}))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(autouse=True)
def scheduler_figures() -> None:
    if not Path("/proc/thread-self/sched").exists():
        pytest.skip("this kernel shows nothing of its scheduler")


def test_short_turns_are_asked_for_one_thread_alone() -> None:
    nice, figures = in_a_thread(priority.ask_for_short_turns)
    _, others = in_a_thread(lambda: None)
    if "se.slice" not in others:
        pytest.skip("this kernel has no turns of different length")
    assert int(figures["se.slice"]) == priority.SLICE_NS
    assert int(others["se.slice"]) > priority.SLICE_NS
    assert nice == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_machine_without_the_call_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "SCHED_SETATTR", {})
    _, figures = in_a_thread(priority.ask_for_short_turns)
    _, others = in_a_thread(lambda: None)
    assert figures.get("se.slice") == others.get("se.slice")
