"""Runs a scenario's clients, a process each, and puts their figures together."""

import array
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Barrier
from typing import Any

from jsserver.bench.wire import BenchError, Connection
from jsserver.client.credentials import Credentials, Tls
from jsserver.process.procs import die_with_parent

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a scenario is asked for. `messages` is the total, `size` bytes of payload each,
    `batch` the messages in flight or asked for at once."""

    url: str
    subject: str = "bench"
    clients: int = 1
    messages: int = 100_000
    size: int = 128
    batch: int = 500
    storage: str = "file"
    stream: str = "benchstream"
    bucket: str = "benchbucket"
    consumer: str = "nats-bench"
    max_bytes: int = 1 << 30
    create: bool = False
    purge: bool = False
    subjects: int = 0
    credentials: Credentials = field(default_factory=Credentials)
    tls: Tls = field(default_factory=Tls)

    def connect(self) -> Connection:
        """A connection to the server that is loaded; BenchError."""
        return Connection(self.url, credentials=self.credentials, tls=self.tls)


@dataclass(slots=True)
class Worker:
    """One client of a scenario: which one it is and how many messages are its share."""

    options: Options
    index: int
    messages: int
    barrier: Barrier
    latencies: "array.array[float]" = field(default_factory=lambda: array.array("d"))
    started: float = 0.0

    def start_together(self) -> None:
        """Call once connected and prepared: time runs from here."""
        self.barrier.wait(START_SECONDS)
        self.started = time.monotonic()


@dataclass(slots=True)
class Outcome:
    """A scenario's figures; latencies in microseconds, empty where nothing is waited for."""

    scenario: str
    clients: int
    messages: int
    size: int
    seconds: float
    messages_per_second: float
    bytes_per_second: float
    latency_us: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        text = (
            f"{self.scenario} stats: {self.messages_per_second:,.0f} msgs/sec ~ "
            f"{self.bytes_per_second / (1 << 20):,.1f} MiB/sec"
        )
        return text + "".join(f" ~ {name}: {us:,.2f}us" for name, us in self.latency_us.items())


Scenario = Callable[[Worker], int]
"""Does a worker's share of the work; returns the messages it handled."""


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Minimum, mean, maximum and the percentiles of some seconds, in microseconds."""
    if not values:
        return {}
    ordered = sorted(values)
    last = len(ordered) - 1
    found = {"min": ordered[0], "avg": sum(ordered) / len(ordered), "max": ordered[-1]}
    for percent in PERCENTILES:
        # The nearest rank: with 100 values, P99 is the 99th.
        rank = min(last, max(0, -int(-len(ordered) * percent // 100) - 1))
        found[f"P{percent:g}"] = ordered[rank]
    return {name: seconds * 1e6 for name, seconds in found.items()}


def run(name: str, scenario: Scenario, options: Options, *, shared: bool = True) -> Outcome:
    """Runs `options.clients` workers at once. `shared`: they divide the messages among them;
    otherwise each handles all of them, as subscribers do."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(options.clients)
    pipes: list[Pipe] = []
    processes = []
    for index in range(options.clients):
        share = _share(options.messages, options.clients, index) if shared else options.messages
        ours, theirs = context.Pipe(duplex=False)
        worker = Worker(options, index, share, barrier)
        process = context.Process(target=_work, args=(scenario, worker, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        answers = [_answer(pipe) for pipe in pipes]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return _merged(name, options, answers)


def _share(messages: int, clients: int, index: int) -> int:
    return messages // clients + (index < messages % clients)


def _work(scenario: Scenario, worker: Worker, pipe: Pipe) -> None:
    die_with_parent()
    try:
        handled = scenario(worker)
        pipe.send((handled, worker.started, time.monotonic(), worker.latencies.tobytes()))
    except BenchError as error:
        worker.barrier.abort()
        pipe.send(str(error))
    except (KeyboardInterrupt, multiprocessing.context.ProcessError, OSError) as error:
        worker.barrier.abort()
        pipe.send(f"client {worker.index + 1}: {error!r}")


def _answer(pipe: Pipe) -> tuple[int, float, float, bytes]:
    try:
        answer = pipe.recv()
    except EOFError:
        raise BenchError("a client process ended without a result") from None
    if isinstance(answer, str):
        raise BenchError(answer)
    handled, started, ended, latencies = answer
    return handled, started, ended, latencies


def _merged(name: str, options: Options, answers: list[tuple[int, float, float, bytes]]) -> Outcome:
    handled = sum(answer[0] for answer in answers)
    seconds = max(answer[2] for answer in answers) - min(answer[1] for answer in answers)
    latencies = array.array("d")
    for answer in answers:
        latencies.frombytes(answer[3])
    rate = handled / seconds if seconds > 0 else 0.0
    return Outcome(
        scenario=name,
        clients=options.clients,
        messages=handled,
        size=options.size,
        seconds=seconds,
        messages_per_second=rate,
        bytes_per_second=rate * options.size,
        latency_us=percentiles(latencies),
    )
