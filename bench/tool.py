"""Runs one bench command, with the `nats` tool where there is one, and reads its figures."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jsserver.bench.wire import BenchError
from jsserver.process.procs import die_with_parent

COMMAND_SECONDS = 180.0
RATE = re.compile(r"stats: ([\d,]+) msgs/sec")
CSV_PERCENTILES = {
    "P50": "P50LatencyMicroSecs",
    "P99": "P99LatencyMicroSecs",
    "P99.9": "P99.9LatencyMicroSecs",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Messages a second of all clients together, latency percentiles in microseconds."""

    rate: float
    latency_us: dict[str, float]


class Run:
    """A command under way."""

    def __init__(self, words: Sequence[str], process: "subprocess.Popen[str]", table: Path) -> None:
        self.words = words
        self.process = process
        self.table = table

    def finish(self, seconds: float = COMMAND_SECONDS) -> Figures:
        """Waits for its end and reads its figures."""
        try:
            output, errors = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise BenchError(f"{' '.join(self.words)}: not done within {seconds:.0f} s") from None
        if self.process.returncode != 0:
            said = (errors + output).strip()[-400:]
            raise BenchError(f"{' '.join(self.words)}: {said}")
        return self._read(output)

    def end(self) -> None:
        """Ends it before its time."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate()

    def _read(self, output: str) -> Figures:
        raise NotImplementedError


class _NatsRun(Run):
    def _read(self, output: str) -> Figures:
        rates = RATE.findall(output)
        if not rates:
            raise BenchError(f"{' '.join(self.words)}: no rate in its output:\n{output[-400:]}")
        # With several clients the line of all of them together is the last.
        return Figures(float(rates[-1].replace(",", "")), self._latency())

    def _latency(self) -> dict[str, float]:
        """The mean over the clients, by their messages, of each percentile."""
        if not self.table.exists():
            return {}
        lines = self.table.read_text().replace("#RunID", "RunID").splitlines()
        rows = list(csv.DictReader(lines))
        total = sum(int(row["MsgCount"]) for row in rows)
        if not total or CSV_PERCENTILES["P50"] not in rows[0]:
            return {}
        return {
            name: sum(float(row[column] or 0) * int(row["MsgCount"]) for row in rows) / total
            for name, column in CSV_PERCENTILES.items()
        }


class _OwnRun(Run):
    def _read(self, output: str) -> Figures:
        found = json.loads(output)
        latency = {n: us for n, us in found["latency_us"].items() if n in CSV_PERCENTILES}
        return Figures(found["messages_per_second"], latency)


class Tool:
    """The load generator in use: $NATS, `nats` on PATH, or `jsserver bench`.

    own: the latter whatever there is; it costs about a tenth of the processor time.
    """

    def __init__(self, folder: Path, *, own: bool = False) -> None:
        self.folder = folder
        self.nats = None if own else os.environ.get("NATS") or shutil.which("nats")

    @property
    def name(self) -> str:
        return "nats bench" if self.nats else "jsserver bench"

    def start(self, url: str, words: Sequence[str]) -> Run:
        descriptor, name = tempfile.mkstemp(suffix=".csv", dir=self.folder)
        os.close(descriptor)
        table = Path(name)
        table.unlink()
        if self.nats:
            command = [self.nats, "bench", *words, "-s", url, "--no-context", "--no-progress"]
            command += [] if words[1] == "serve" else ["--csv", str(table)]
        else:
            command = [sys.executable, "-m", "jsserver.bench", *words, "-s", url, "--json"]
        # Its own home: settings of the tool in the user's home must not matter.
        env = {**os.environ, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            preexec_fn=die_with_parent,
        )
        return (_NatsRun if self.nats else _OwnRun)(words, process, table)

    def run(self, url: str, words: Sequence[str]) -> Figures:
        return self.start(url, words).finish()
