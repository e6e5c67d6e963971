"""Reports of a service's latency: makes one of what the data plane measured, for the exporter."""

from __future__ import annotations

import json
import time
from typing import NamedTuple

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import Item
from jsserver.text.goformat import escape_json, rfc3339_nano
from jsserver.text.nuid import new

TYPE = "io.nats.server.metric.v1.service_latency"
DESCRIPTIONS = {
    400: "Bad Request",
    408: "Request Timeout",
    503: "Service Unavailable",
    504: "Service Timeout",
}
_B3 = ("X-B3-Sampled", "X-B3-Traceid", "X-B3-Parentspanid", "X-B3-Spanid")


class Times(NamedTuple):
    """What is measured of an answer; `start`: wall, and all in ns."""

    start: int
    service: int
    system: int
    total: int


def publish(accounts: Accounts, item: Item) -> None:
    """Publishes the report that an INBOX_LATENCY is about, of an answer from here."""
    _, _, (_, _, start, service, total), (_, _, responder, _, _) = item
    publish_with(accounts, item, Times(start, service, 0, total), responder)


def publish_with(accounts: Accounts, item: Item, times: Times, responder: bytes) -> None:
    """Publishes a report with these times and this responder, in the account that exports."""
    _, _, (account, status, *_), (subject, requestor, _, headers, _) = item
    name = accounts.name_of(account)
    if name not in accounts:
        return
    body = report((status, *times), requestor, responder, headers, new(), time.time_ns())
    accounts[name].publish(subject, b"", b"", body)


def report(
    numbers: tuple[int, ...],
    requestor: bytes,
    responder: bytes,
    headers: bytes,
    id: str,
    now: int,
) -> bytes:
    """The JSON of a report; numbers: status, start (wall), service, system, total (ns)."""
    status, start, service, system, total = numbers
    parts = [f'"type":"{TYPE}","id":"{id}","timestamp":"{rfc3339_nano(now)}","status":{status}']
    if status in DESCRIPTIONS:
        parts.append(f'"description":"{DESCRIPTIONS[status]}"')
    body = ",".join(parts).encode()
    if requestor:
        body += b',"requestor":' + requestor
    if responder:
        body += b',"responder":' + responder
    if shown := trace_headers(headers):
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        body += b',"header":' + escape_json(text.encode("utf-8", "replace"))
    times = (
        f',"start":"{rfc3339_nano(start)}","service":{service},"system":{system},"total":{total}'
    )
    return b"{" + body + times.encode() + b"}"


def trace_headers(block: bytes) -> dict[str, list[str]]:
    """Those of a request by which a tracing system asked for the report."""
    found: dict[str, list[str]] = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            canonical = "-".join(word.capitalize() for word in name.split("-"))
            found.setdefault(canonical, []).append(value.strip())
    if "Uber-Trace-Id" in found:
        return {n: v for n, v in found.items() if n == "Uber-Trace-Id" or n.startswith("Uberctx-")}
    if found.keys() & set(_B3[:2]):
        names: tuple[str, ...] = _B3
    else:
        names = ("B3",) if "B3" in found else ("Traceparent", "Tracestate")
    return {name: found[name] for name in names if name in found}
