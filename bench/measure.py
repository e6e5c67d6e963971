"""Measures one scenario on one freshly started server."""

import json
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.scenarios import Scenario
from bench.servers import PEER_NAME, Server, free_port
from bench.tool import Figures, Run, Tool
from jsserver.bench.wire import BenchError

LISTEN_SECONDS = 20.0
SETTLE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a scenario: messages a second, microseconds, processor seconds for a million
    messages, bytes."""

    rate: float
    latency_us: dict[str, float]
    cpu_per_million: float
    peak_bytes: int


def measure(name: str, scenario: Scenario, tool: Tool) -> Sample:
    """Starts the server `name`, runs the scenario on it and ends it."""
    monitor = free_port()
    config = scenario.peer_config if name == PEER_NAME else ""
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        server = Server(name, Path(folder), config, f"http: 127.0.0.1:{monitor}")
        try:
            server.start()
            for words in scenario.setup:
                tool.run(server.url, words)
            return _run(server, monitor, scenario, tool)
        finally:
            server.kill()


def _run(server: Server, monitor: int, scenario: Scenario, tool: Tool) -> Sample:
    listeners: list[Run] = []
    try:
        before = subscriptions(monitor) if scenario.listeners else 0
        for words in scenario.listeners:
            listeners.append(tool.start(server.url, words))
        if listeners:
            _wait_listening(monitor, before + scenario.subscriptions, listeners)
        time.sleep(SETTLE_SECONDS)
        server.reset_peak()
        cpu = server.cpu_seconds()
        figures = tool.run(server.url, scenario.command)
        if scenario.counted == "listener":
            figures = _together([listener.finish() for listener in listeners])
        time.sleep(SETTLE_SECONDS)
        return Sample(
            rate=figures.rate,
            latency_us=figures.latency_us if scenario.waits else {},
            cpu_per_million=(server.cpu_seconds() - cpu) / scenario.messages * 1e6,
            peak_bytes=server.peak_memory(),
        )
    finally:
        for listener in listeners:
            listener.end()


def _together(figures: list[Figures]) -> Figures:
    return Figures(sum(f.rate for f in figures), figures[0].latency_us)


def subscriptions(monitor: int) -> int:
    """How many subscriptions the server has, from its monitoring page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/varz", timeout=10) as page:
        return int(json.load(page)["subscriptions"])


def _wait_listening(monitor: int, wanted: int, listeners: list[Run]) -> None:
    end = time.monotonic() + LISTEN_SECONDS
    while subscriptions(monitor) < wanted:
        for listener in listeners:
            if listener.process.poll() is not None:
                listener.finish()
                raise BenchError(f"{' '.join(listener.words)} ended before it had to")
        if time.monotonic() > end:
            raise BenchError(f"no subscription within {LISTEN_SECONDS:.0f} s")
        time.sleep(0.05)
