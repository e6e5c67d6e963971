"""OCSP responses about peers that are kept: in memory, and in a file as nats-server writes it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
import time
from typing import Any, NamedTuple

from jsserver.access.ocsp import ANSWER_MAX, GOOD, REVOKED, STATUSES, UNKNOWN, Answer
from jsserver.cext.bytes import s2_encode
from jsserver.config.options import OcspCache
from jsserver.process.logs import Logger
from jsserver.text import s2
from jsserver.text.goformat import SECOND, parse_rfc3339, rfc3339_nano

FILE = "cache.json"
FILE_MAX = 256 << 20
"""Bytes of a file that is read."""
KEPT_MAX = 10_000
"""Responses that are kept; beyond it the one that came first goes."""
_NO_TIME = "0001-01-01T00:00:00Z"


class Figures(NamedTuple):
    """What monitoring shows."""

    hits: int
    misses: int
    responses: int
    revoked: int
    good: int
    unknown: int


class _Kept(NamedTuple):
    """A response, whom it is about, and when it came and ends (ns; 0: it does not say)."""

    raw: bytes
    status: int
    subject: str
    came: int
    ends: int


class Cache:
    """By certificates' SHA-256 in hex. Of the event loop, but for figures() and what it saves."""

    def __init__(self, settings: OcspCache, log: Logger) -> None:
        self._settings = settings
        self._log = log
        self._kept: dict[str, _Kept] = {}
        self._hits = self._misses = 0
        self._changed = False

    @property
    def is_local(self) -> bool:
        """Whether anything is kept."""
        return self._settings.kind == "local"

    def get(self, key: str) -> bytes | None:
        """The response about a certificate, if there is one."""
        if not self.is_local:
            return None
        kept = self._kept.get(key)
        if kept is None:
            self._misses += 1
            return None
        self._hits += 1
        return kept.raw

    def put(self, key: str, answer: Answer, subject: str) -> None:
        """Keeps a response instead of the one before."""
        if not self.is_local:
            return
        self._kept.pop(key, None)
        if len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        came = time.time_ns() // SECOND * SECOND
        self._kept[key] = _Kept(answer.raw, answer.status, subject, came, answer.ends)
        self._changed = True

    def drop(self, key: str) -> None:
        """The response that get() gave was of no use; one that says `revoked` may be kept even
        so."""
        kept = self._kept.get(key)
        if kept is None:
            return
        self._hits -= 1
        self._misses += 1
        if kept.status == REVOKED and self._settings.preserve_revoked:
            self._log.debug("Revoked OCSP response preserved by cache policy")
            return
        del self._kept[key]
        self._changed = True

    def figures(self) -> Figures:
        """From any thread."""
        statuses = [kept.status for kept in list(self._kept.values())]
        counts = (statuses.count(status) for status in (REVOKED, GOOD, UNKNOWN))
        return Figures(self._hits, self._misses, len(statuses), *counts)

    # ---- the file

    @property
    def _path(self) -> str:
        return os.path.join(self._settings.local_store, FILE)

    def load(self) -> None:
        """Takes what the file has; whatever it has, the server starts."""
        if not self.is_local:
            return
        try:
            with open(self._path, "rb") as f:
                entries = json.loads(f.read(FILE_MAX))
            self._kept = {_hex(key): _read(entry) for key, entry in entries.items()}
        except FileNotFoundError:
            self._log.debug("No OCSP peer cache found, starting with empty cache")
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._log.warn(f"Unable to load OCSP peer cache: {error}")
            self._changed = True

    def to_save(self) -> dict[str, _Kept] | None:
        """What save() is to write; None: nothing has changed since the last time."""
        if not self._changed:
            return None
        self._changed = False
        return dict(self._kept)

    def save(self, kept: dict[str, _Kept]) -> None:
        """Writes the file, in any thread; a reader finds a whole file at any time."""
        try:
            folder = self._settings.local_store
            os.makedirs(folder, 0o750, exist_ok=True)
            text = json.dumps({_base64(k): _written(v) for k, v in sorted(kept.items())}, indent=1)
            fd, part = tempfile.mkstemp(prefix="ocsprc-", dir=folder)
            try:
                with open(fd, "wb") as f:
                    f.write(text.encode())
                    f.flush()
                    os.fsync(f.fileno())
                os.replace(part, self._path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part)
                raise
        except OSError as error:
            self._changed = True
            self._log.error(f"Unable to save OCSP peer cache: {error}")


def _base64(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()


def _hex(key: str) -> str:
    return base64.b64decode(key, validate=True).hex()


def _written(kept: _Kept) -> dict[str, str]:
    return {
        "subject": kept.subject,
        "cached_at": rfc3339_nano(kept.came),
        "resp_status": STATUSES[kept.status],
        "resp_expires": rfc3339_nano(kept.ends) if kept.ends else _NO_TIME,
        "resp": base64.b64encode(s2_encode(kept.raw)).decode(),
    }


def _read(entry: dict[str, Any]) -> _Kept:
    status = entry["resp_status"]
    ends = entry["resp_expires"]
    return _Kept(
        s2.decompress(base64.b64decode(entry["resp"], validate=True), ANSWER_MAX),
        STATUSES.index(status) if status in STATUSES else UNKNOWN,
        str(entry.get("subject", "")),
        parse_rfc3339(entry["cached_at"]),
        0 if ends == _NO_TIME else parse_rfc3339(ends),
    )
