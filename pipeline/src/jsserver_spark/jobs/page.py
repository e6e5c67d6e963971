"""A report as one page of HTML: plots are SVG in the page, nothing is loaded from elsewhere."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jsserver_spark.jobs.progress import amount
from jsserver_spark.text.goformat import rfc3339_nano

if TYPE_CHECKING:
    from jsserver_spark.jobs.report import Report

WIDTH, HEIGHT = 920, 220
LEFT, BOTTOM, TOP = 76, 26, 12
TICKS = 4

STYLE = """
:root { --ink: #1c2733; --soft: #5b6b7b; --line: #d8e0e8; --one: #2f6db5; --two: #2a9d74; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff; margin: 2rem auto;
  max-width: 960px; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
p { margin: .2rem 0; color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem; min-width: 8rem; }
.card b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 500; }
td.bar { width: 40%; text-align: left; } td.bar i { display: block; height: .8rem;
  background: var(--one); border-radius: 2px; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
"""


def page(made: Report) -> str:
    """The whole page."""
    from jsserver_spark.jobs.report import gap_line, size_class

    found = made.found
    title = html.escape(f"Stream {made.stream}")
    whole = max(found.total.messages, 1)
    parts = [
        f"<h1>{title}</h1>",
        f"<p>Read from: {made.source}. Sequences {made.first:,} to {made.last:,}.</p>",
        _cards(made),
        *_rates(made),
        "<h2>Top subjects</h2>",
        _bars(
            ("subject", "messages", "bytes", ""),
            [
                (subject, f"{count.messages:,}", amount(count.bytes), count.messages / whole)
                for subject, count in made.top()
            ],
        ),
        f"<p>{len(found.subjects):,} subjects in all.</p>" if found.subjects else "",
        "<h2>Payload sizes</h2>",
        _bars(
            ("payload", "messages", "share", ""),
            [
                (
                    size_class(n),
                    f"{found.sizes[n]:,}",
                    f"{100 * found.sizes[n] / whole:.1f} %",
                    found.sizes[n] / whole,
                )
                for n in sorted(found.sizes)
            ],
        ),
        "<h2>Gaps</h2>",
        _coverage(made),
        f"<p>{html.escape(gap_line(found, 40))}</p>",
        *_days(made),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _cards(made: Report) -> str:
    found = made.found
    total = found.total
    cards = [
        (f"{total.messages:,}", "messages"),
        (amount(total.bytes), "of messages"),
        (amount(total.bytes / max(total.messages, 1)), "on average"),
        (amount(found.largest), "largest payload"),
        (f"{found.with_headers:,}", "with headers"),
        (f"{found.missing:,}", "sequences missing"),
    ]
    if made.size:
        share = 100 * made.size / max(made.archived_bytes, 1)
        cards.append((amount(made.size), f"on disk, {share:.0f} %"))
    inner = "".join(f'<div class="card"><b>{b}</b><span>{s}</span></div>' for b, s in cards)
    return f'<div class="cards">{inner}</div>'


def _rates(made: Report) -> list[str]:
    found = made.found
    if not found.times:
        return []
    spans = range(min(found.times), max(found.times) + 1)
    seconds = found.span_us / 1e6
    counts = [found.times.get(span) for span in spans]
    starts = [span * found.span_us for span in spans]
    messages = [count.messages / seconds if count else 0.0 for count in counts]
    sizes = [count.bytes / seconds if count else 0.0 for count in counts]
    note = f"<p>Means over {seconds:g} s, UTC.</p>"
    return [
        "<h2>Messages per second</h2>",
        note,
        _plot(starts, found.span_us, messages, "var(--one)", _number),
        "<h2>Bytes per second</h2>",
        _plot(starts, found.span_us, sizes, "var(--two)", amount),
    ]


def _number(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def _unit(size: float) -> int:
    """The largest unit of bytes that is not above."""
    unit = 1
    while size >= unit * 1024:
        unit *= 1024
    return unit


def nice(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten that is not below."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999999)


def _plot(
    starts: Sequence[int],
    span: int,
    values: Sequence[float],
    color: str,
    told: Callable[[float], str],
) -> str:
    unit = _unit(max(values)) if told is amount else 1
    high = nice(max(values) / TICKS / unit) * TICKS * unit
    wide, tall = WIDTH - LEFT - 8, HEIGHT - BOTTOM - TOP
    step = wide / len(values)
    shapes = []
    for tick in range(TICKS + 1):
        y = TOP + tall - tall * tick / TICKS
        label = html.escape(told(high * tick / TICKS))
        shapes.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d8e0e8"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for i, value in enumerate(values):
        size = tall * value / high
        if size > 0:
            about = html.escape(f"{_when(starts[i])}: {told(value)}/s")
            shapes.append(
                f'<rect x="{LEFT + i * step:.2f}" y="{TOP + tall - size:.2f}"'
                f' width="{max(step - 0.5, 0.5):.2f}" height="{size:.2f}" fill="{color}">'
                f"<title>{about}</title></rect>"
            )
    ends = ((0.0, "start", starts[0]), (0.5, "middle", (starts[0] + starts[-1] + span) // 2))
    for share, anchor, micros in (*ends, (1.0, "end", starts[-1] + span)):
        shapes.append(
            f'<text x="{LEFT + wide * share:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">'
            f"{_when(micros)}</text>"
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(shapes)}</svg>'


def _when(micros: int) -> str:
    return rfc3339_nano(micros * 1000)[:19].replace("T", " ")


def _bars(head: Sequence[str], rows: Sequence[tuple[str, str, str, float]]) -> str:
    highest = max((row[3] for row in rows), default=0.0) or 1.0
    lines = ["<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"]
    for name, one, two, share in rows:
        width = 100 * share / highest
        lines.append(
            f"<tr><td>{html.escape(name)}</td><td>{one}</td><td>{two}</td>"
            f'<td class="bar"><i style="width:{width:.1f}%"></i></td></tr>'
        )
    return f"<table>{''.join(lines)}</table>"


def _coverage(made: Report) -> str:
    """A strip from the first sequence to the last; gaps are light."""
    whole = made.last - made.first + 1
    if whole <= 0:
        return ""
    wide = WIDTH - 16
    shapes = [f'<rect x="8" y="4" width="{wide}" height="22" rx="3" fill="#2f6db5"/>']
    for first, last in made.found.gaps:
        x = 8 + wide * (first - made.first) / whole
        width = max(wide * (last - first + 1) / whole, 0.7)
        shapes.append(
            f'<rect x="{x:.2f}" y="4" width="{width:.2f}" height="22" fill="#f2c14e">'
            f"<title>{first:,} to {last:,}</title></rect>"
        )
    shapes.append(f'<text x="8" y="42">{made.first:,}</text>')
    shapes.append(f'<text x="{WIDTH - 8}" y="42" text-anchor="end">{made.last:,}</text>')
    return f'<svg viewBox="0 0 {WIDTH} 48" role="img">{"".join(shapes)}</svg>'


def _days(made: Report) -> list[str]:
    if not made.days:
        return []
    lines = ["<tr><th>day</th><th>files</th><th>messages</th><th>bytes</th><th>on disk</th></tr>"]
    lines += [
        f"<tr><td>{day.date}</td><td>{day.files}</td><td>{day.rows:,}</td>"
        f"<td>{amount(day.bytes)}</td><td>{amount(day.size)}</td></tr>"
        for day in made.days
    ]
    return ["<h2>Files</h2>", f"<table>{''.join(lines)}</table>"]
