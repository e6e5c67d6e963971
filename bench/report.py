"""Puts the samples of a comparison into tables and JSON."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from bench.measure import Sample
from bench.servers import OWN_NAME, PEER_NAME

PERCENTILES = ("P50", "P99", "P99.9")
MEBIBYTE = 1 << 20


def median_of(samples: Sequence[Sample]) -> Sample:
    """Each figure's median by itself."""
    latency: dict[str, float] = {}
    for name in PERCENTILES:
        values = [s.latency_us[name] for s in samples if name in s.latency_us]
        if values:
            latency[name] = statistics.median(values)
    return Sample(
        rate=statistics.median(s.rate for s in samples),
        latency_us=latency,
        cpu_per_million=statistics.median(s.cpu_per_million for s in samples),
        peak_bytes=int(statistics.median(s.peak_bytes for s in samples)),
    )


class Row:
    """One scenario's samples of both servers, by the server's name; failures by name too."""

    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        self.samples: dict[str, list[Sample]] = {PEER_NAME: [], OWN_NAME: []}
        self.failures: dict[str, str] = {}

    def median(self, name: str) -> Sample | None:
        return median_of(self.samples[name]) if self.samples[name] else None

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "failures": self.failures,
            "servers": {
                name: [
                    {
                        "msgs_per_second": s.rate,
                        "latency_us": s.latency_us,
                        "cpu_seconds_per_million": s.cpu_per_million,
                        "peak_bytes": s.peak_bytes,
                    }
                    for s in samples
                ]
                for name, samples in self.samples.items()
            },
        }


def _ratio(own: float, peer: float) -> str:
    return f"{own / peer:.2f}" if peer > 0 else "-"


def _cells(row: Row) -> list[str]:
    peer, own = row.median(PEER_NAME), row.median(OWN_NAME)
    rate = [
        f"{sample.rate:,.0f}" if sample else "failed" if name in row.failures else "-"
        for name, sample in ((PEER_NAME, peer), (OWN_NAME, own))
    ]
    cpu = [f"{s.cpu_per_million:.2f}" if s else "-" for s in (peer, own)]
    memory = [f"{s.peak_bytes / MEBIBYTE:.0f}" if s else "-" for s in (peer, own)]
    ratios = ["-"] * 3
    if peer and own:
        ratios = [
            _ratio(own.rate, peer.rate),
            _ratio(own.cpu_per_million, peer.cpu_per_million),
            _ratio(own.peak_bytes, peer.peak_bytes),
        ]
    cells = [row.scenario]
    for pair, ratio in zip((rate, cpu, memory), ratios, strict=True):
        cells += [*pair, ratio]
    return cells


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|---|" + "---:|" * (len(head) - 1))
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _latency_rows(rows: Sequence[Row]) -> list[list[str]]:
    found = []
    for row in rows:
        medians = (row.median(PEER_NAME), row.median(OWN_NAME))
        peer, own = [sample.latency_us if sample else {} for sample in medians]
        if not peer and not own:
            continue
        cells = [row.scenario]
        for name in PERCENTILES:
            cells += [f"{side[name]:,.0f}" if name in side else "-" for side in (peer, own)]
            cells.append(_ratio(own.get(name, 0.0), peer.get(name, 0.0)) if peer and own else "-")
        found.append(cells)
    return found


def markdown(rows: Sequence[Row], *, facts: Sequence[str], rounds: int) -> str:
    """The tables with the machine's description."""
    lines = ["# Side by side with nats-server", ""]
    lines += [f"- {fact}" for fact in facts]
    lines += [
        f"- {time.strftime('%Y-%m-%d')}; medians of {rounds}, the servers in turn",
        "- both with their default settings: jsserver's acks wait for the disk, nats-server's do"
        " not,",
        "  except where a line says `peer always` (its `sync_interval: always`)",
        "- ratio: jsserver's figure divided by nats-server's",
        "",
    ]
    head = ["scenario"]
    for what in ("msgs/s", "CPU s per million", "peak MiB"):
        head += [f"{what}: nats-server", "jsserver", "ratio"]
    lines += _table(head, [_cells(row) for row in rows])
    latency = _latency_rows(rows)
    if latency:
        head = ["latency, µs"]
        for name in PERCENTILES:
            head += [f"{name}: nats-server", "jsserver", "ratio"]
        lines += ["", *_table(head, latency)]
    failures = [(r.scenario, n, text) for r in rows for n, text in r.failures.items()]
    if failures:
        lines += ["", "Failed:", ""]
        lines += [f"- {scenario} on {name}: {text}" for scenario, name, text in failures]
    return "\n".join(lines) + "\n"
