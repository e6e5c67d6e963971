"""Where the parts of a job run: in this process, in processes of ours, or as tasks of Spark."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, Protocol, TypeVar

from jsserver_spark.errors import NatsError

AHEAD = 2
"""Parts for each worker that are under way or done and not taken yet."""

In = TypeVar("In")
Out = TypeVar("Out")


class Runner(Protocol):
    """Maps a picklable function over parts; results come in the parts' order."""

    workers: int
    name: str

    def map(self, function: Callable[[In], Out], parts: Iterable[In]) -> Iterator[Out]: ...
    def close(self) -> None: ...


class _Attempt(Generic[In, Out]):
    """A function that returns the error a user should see, rather than raise it far away."""

    def __init__(self, function: Callable[[In], Out]) -> None:
        self._function = function

    def __call__(self, part: In) -> tuple[NatsError | None, Out | None]:
        try:
            return None, self._function(part)
        except NatsError as error:
            return error, None


def _value(attempt: tuple[NatsError | None, Any]) -> Any:
    error, value = attempt
    if error is not None:
        raise error
    return value


def _in_order(
    submit: Callable[[In], "concurrent.futures.Future[Any]"], parts: Iterable[In], ahead: int
) -> Iterator[Any]:
    waiting: deque[concurrent.futures.Future[Any]] = deque()
    try:
        for part in parts:
            waiting.append(submit(part))
            if len(waiting) >= ahead:
                yield _value(waiting.popleft().result())
        while waiting:
            yield _value(waiting.popleft().result())
    except BrokenProcessPool:
        raise NatsError("a worker process ended on its own (out of memory?)") from None
    finally:
        for future in waiting:
            future.cancel()


class Local:
    """Runs parts one after another, here."""

    workers = 1
    name = "this process"

    def map(self, function: Callable[[In], Out], parts: Iterable[In]) -> Iterator[Out]:
        return map(function, parts)

    def close(self) -> None:
        """Nothing is open."""


def _worker_started() -> None:
    """In each worker: Ctrl-C is its parent's to handle, and it does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Processes:
    """Runs parts in processes of ours."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.name = f"{workers} processes"
        self._pool = concurrent.futures.ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), _worker_started
        )

    def map(self, function: Callable[[In], Out], parts: Iterable[In]) -> Iterator[Out]:
        attempt = _Attempt(function)
        return _in_order(lambda part: self._pool.submit(attempt, part), parts, AHEAD * self.workers)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class Spark:
    """Runs each part as a job of one task: results come as they are done, in order."""

    def __init__(self, session: Any, *, ours: bool) -> None:
        self._session = session
        self._context = session.sparkContext
        self._ours = ours
        self._tag = f"jsserver-{uuid.uuid4()}"
        self.workers = max(1, int(self._context.defaultParallelism))
        self.name = f"Spark at {self._context.master}"
        self._pool = concurrent.futures.ThreadPoolExecutor(self.workers)

    def map(self, function: Callable[[In], Out], parts: Iterable[In]) -> Iterator[Out]:
        attempt = _Attempt(function)
        return _in_order(
            lambda part: self._pool.submit(self._run, attempt, part), parts, AHEAD * self.workers
        )

    def _run(self, attempt: Any, part: Any) -> Any:
        self._context.addJobTag(self._tag)
        try:
            return self._context.parallelize([part], 1).map(attempt).collect()[0]
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            raise NatsError(f"a task of Spark failed: {first}") from error

    def close(self) -> None:
        self._context.cancelJobsWithTag(self._tag)
        self._pool.shutdown(cancel_futures=True)
        if self._ours:
            self._session.stop()


def runner_of(master: str = "", processes: int = 0) -> Runner:
    """Spark where a master is named, under spark-submit, or with a session at work; otherwise, and
    with a session of Spark Connect, `processes` of ours (0: as many as cores)."""
    if not processes and (master or "PYSPARK_GATEWAY_PORT" in os.environ):
        return Spark(session_of(master), ours=True)
    session = None if processes else _active_session()
    if session is not None:
        return Spark(session, ours=False)
    workers = processes or cores()
    return Local() if workers == 1 else Processes(workers)


def cores() -> int:
    """Those this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _active_session() -> Any:
    """The session of this process, where Spark was started already, and can run tasks of ours."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return session if _runs_tasks(session) else None


def _runs_tasks(session: Any) -> bool:
    """Spark Connect's sessions do not: they have no SparkContext."""
    return getattr(session, "sparkContext", None) is not None


def session_of(master: str) -> Any:
    """A session at `master`, or at what spark-submit says; workers run this Python. NatsError."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("jsserver")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master:
        builder = builder.master(master).config("spark.ui.enabled", "false")
    try:
        session = builder.getOrCreate()
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise NatsError(
            f"Spark did not start (option --master {master or 'not given'}): {first}"
        ) from error
    if not _runs_tasks(session):
        raise NatsError(
            "Spark Connect runs no tasks of a job: leave --master and SPARK_REMOTE out, and the job"
            " runs in processes of its own"
        )
    session.sparkContext.setLogLevel("WARN")
    return session


@contextlib.contextmanager
def running(given: Runner | None, master: str = "", processes: int = 0) -> Iterator[Runner]:
    """A runner for a block: the one given, or one of our own that is closed behind it."""
    if given is not None:
        yield given
        return
    runner = runner_of(master, processes)
    try:
        yield runner
    finally:
        runner.close()
