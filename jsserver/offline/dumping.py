"""`jsserver store dump`: the messages of a stream as lines or JSON, and where its consumers are."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from jsserver.cext.bytes import subject_matches
from jsserver.text.goformat import rfc3339_nano

from . import blocks, caches, consumers, seals
from .blocks import Block, Row
from .messages import Read, Walk, messages_of
from .places import Place, Unreadable, found
from .removed import Removed
from .usage import index_of

_SHOWN = 120
"""Bytes of a payload in a line."""


@dataclass(frozen=True)
class Wanted:
    """Which messages: sequences `first` to `last`, of a subject pattern ("": any)."""

    first: int
    last: int
    subject: str
    limit: int


@dataclass(frozen=True)
class Form:
    """How they are shown."""

    json: bool
    raw: bool
    deleted: bool
    consumers: bool


def dump(place: Place, wanted: Wanted, form: Form, out: TextIO) -> list[str]:
    """Writes the messages that are live, in order; what could not be read. Unreadable."""
    encrypted = seals.is_encrypted(place.folder)
    if encrypted:
        try:
            seals.of_stream(place)
        except seals.Locked as error:
            raise Unreadable(f"stream {place.name}: {error}") from None
    faults: list[str] = []
    walk = Walk(place, index_of(place, encrypted))
    read = partial(blocks.read_or_fault, place, encrypted=encrypted)
    gone = _gone(walk, read, faults)
    left, before = wanted.limit, wanted.first - 1 if wanted.first else 0
    for block, row in _messages(walk, read, gone, wanted):
        if left == 0:
            break
        if form.deleted and row[1] > before + 1 and not wanted.subject:
            _deleted(before + 1, row[1] - 1, form, out)
        before = row[1]
        if not wanted.subject or subject_matches(wanted.subject, block.subject(row)):
            left -= 1
            _show(block, row, form, out)
    last = min(walk.last, wanted.last)
    if form.deleted and not wanted.subject and left and last > before:
        _deleted(before + 1, last, form, out)
    if form.consumers:
        for name in place.consumers():
            _consumer(place, name, form, out, faults)
    return faults


def _gone(walk: Walk, read: Read, faults: list[str]) -> Removed:
    """Removed messages that still stand in blocks with live ones."""
    gone = Removed()
    for look in walk.looks(read):
        block = look.block
        if block.fault:
            faults.append(f"{block.number}.blk: {block.fault}")
        for row in block.rows():
            if row[6] == blocks.Kind.BAD:
                faults.append(f"{block.number}.blk at {row[0]}, {row[3]} bytes: no good record")
        if look.span.live and look.span.gone:
            for row in messages_of(block):
                if not walk.is_live(block.number, row[1]):
                    gone.add(row[1])
    return gone


def _messages(walk: Walk, read: Read, gone: Removed, wanted: Wanted) -> Iterator[tuple[Block, Row]]:
    for span in walk.spans:
        if not span.live or span.last < wanted.first or span.first > wanted.last:
            continue
        block = read(span.number)
        for row in messages_of(block):
            if wanted.first <= row[1] <= wanted.last and row[1] not in gone:
                yield block, row


def _deleted(first: int, last: int, form: Form, out: TextIO) -> None:
    if form.json:
        out.write(json.dumps({"deleted": [first, last]}) + "\n")
    elif not form.raw:
        out.write(f"{first}-{last} not there\n")


def _show(block: Block, row: Row, form: Form, out: TextIO) -> None:
    payload, header = block.payload(row), block.header(row)
    if form.raw:
        out.flush()
        out.buffer.write(payload)
        return
    subject = block.subject(row).decode("utf-8", "backslashreplace")
    time = rfc3339_nano(row[2])
    if form.json:
        told = {
            "seq": row[1],
            "time": time,
            "subject": subject,
            "headers": _headers(header),
            "header_size": row[4],
            "size": len(payload),
            "data": base64.b64encode(payload).decode(),
        }
        out.write(json.dumps(told) + "\n")
        return
    out.write(f"{row[1]} {time} {_safe(subject)} {row[4]} {len(payload)} {_text(payload)}\n")


def _headers(header: bytes) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for line in header.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            texts = out.setdefault(name.decode("utf-8", "backslashreplace"), [])
            texts.append(value.strip().decode("utf-8", "backslashreplace"))
    return out


def _text(payload: bytes) -> str:
    """A payload that no terminal obeys: quoted, cut where it is long."""
    shown = _safe(payload[:_SHOWN].decode("utf-8", "backslashreplace"))
    return f'"{shown}"' + ("..." if len(payload) > _SHOWN else "")


def _safe(text: str) -> str:
    """What cannot be printed as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _consumer(place: Place, name: str, form: Form, out: TextIO, faults: list[str]) -> None:
    try:
        data = found(place.folder / "obs" / name / consumers.STATE)
        if data and seals.is_encrypted(place.folder / "obs" / name):
            data = seals.opened(seals.of_consumer(place, name), data, consumers.STATE)
        told = consumers.state(data) if data else None
    except (Unreadable, caches.Damaged, seals.Locked) as error:
        faults.append(f"consumer {name}: {consumers.STATE}: {error}")
        return
    if form.json:
        made: dict[str, object] = {"consumer": name, "state": None}
        if told is not None:
            made["state"] = {
                "delivered": {"consumer_seq": told.delivered[0], "stream_seq": told.delivered[1]},
                "ack_floor": {"consumer_seq": told.ack_floor[0], "stream_seq": told.ack_floor[1]},
                "pending": sorted(told.pending),
                "redelivered": {str(seq): n for seq, n in sorted(told.redelivered.items())},
            }
        out.write(json.dumps(made) + "\n")
    elif told is None:
        out.write(f"consumer {_safe(name)}: no {consumers.STATE}, as before a clean stop\n")
    else:
        out.write(
            f"consumer {_safe(name)}: delivered {told.delivered[1]}, acked up to"
            f" {told.ack_floor[1]}, {len(told.pending)} wait for an ack\n"
        )
