"""Decides about the certificates of clients: whether OCSP responders say that they are good, before
their connections are anything.

Lives in the event loop. A certificate is looked up once at a time, however many connections come
with it; a connection whose answer is too late ends with the time for its handshake.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from jsserver.access.certificates import Certificate, parse, read, subject_text
from jsserver.access.ocsp import REVOKED, STATUSES, UNKNOWN, Answer, get, read_answer
from jsserver.access.responses import Cache, Figures
from jsserver.cext.engine import DataPlane, Item
from jsserver.cext.tls import OcspError, ocsp_request
from jsserver.config.options import OcspPeer, Options
from jsserver.process.logs import Logger
from jsserver.process.tasks import Tasks
from jsserver.text.goformat import SECOND

FETCHES = 64
"""Responders that are waited for at the same time."""


class _NotGood(Exception):
    """Why a certificate is not to be trusted."""


class _Link(NamedTuple):
    """A certificate of a chain, with the one that signed it."""

    certificate: Certificate
    issuer: Certificate

    @property
    def name(self) -> str:
        return subject_text(self.certificate.subject, others=False)

    @property
    def responders(self) -> list[str]:
        urls = self.certificate.responders
        return [url for url in urls if urlsplit(url).scheme in ("http", "https")]


class Peers:
    """Answers what the data plane asks about its peers; start() and close() frame its life.
    `on_refused` gets the certificate of each that is refused, and the one of its chain for which it
    is, with the reason."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        log: Logger,
        on_refused: Callable[[Certificate, Certificate, str], None] | None,
    ) -> None:
        self._options = options
        self._plane = plane
        self._log = log
        self._cache = Cache(options.ocsp_cache, log)
        self._on_refused = on_refused
        self._deciding = Tasks()
        self._fetches: dict[str, asyncio.Task[bytes]] = {}
        """By the certificates' digests."""
        self._free = asyncio.Semaphore(FETCHES)
        self._saving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Takes what is kept of another run."""
        kind = self._options.ocsp_cache.kind
        if kind == "local":
            await asyncio.to_thread(self._cache.load)
            self._saving = asyncio.create_task(self._save_regularly())
        self._log.info(f"OCSP peer cache online, type [{kind}]")

    async def close(self) -> None:
        """Decides about nobody any more; what is kept is in its file."""
        self._deciding.cancel()
        for fetch in self._fetches.values():
            fetch.cancel()
        if self._saving is not None:
            self._saving.cancel()
            await self._save()

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._options.ocsp_cache.save_interval)
            await self._save()

    async def _save(self) -> None:
        kept = self._cache.to_save()
        if kept is not None:
            await asyncio.to_thread(self._cache.save, kept)

    def figures(self) -> Figures | None:
        """What is kept, from any thread; None: nothing is to be."""
        return self._cache.figures() if self._options.ocsp_cache.kind == "local" else None

    def asked(self, item: Item) -> None:
        """A handshake was made with a certificate that is trusted; its connection waits."""
        self._deciding.begin(self._decide(item))

    async def _decide(self, item: Item) -> None:
        _, through_websocket = item.numbers
        tls = self._options.websocket.tls if through_websocket else self._options.tls
        settings = None if tls is None else tls.ocsp_peer
        good = False
        try:
            if settings is None or not settings.verify:  # by a reload, meanwhile
                good = True
            else:
                good = await self._is_valid(item.texts[1], settings)
        except Exception as error:  # whatever it was, this one does not come in
            self._log.error(f"OCSP verify fail: {error!r}")
        finally:
            self._plane.answer_peer(item.cid, good)

    async def _is_valid(self, raw: bytes, settings: OcspPeer) -> bool:
        """Whether every certificate that names a responder is good; the last one is trusted as it
        is."""
        chain = []
        while raw:
            value, raw = read(raw)
            chain.append(parse(value.whole))
        if not chain:
            self._log.error("Peer certificate is nil, rejecting OCSP peer")
            return False
        for link in map(_Link, chain, chain[1:]):
            try:
                if link.responders:
                    await self._check(link, settings)
            except _NotGood as why:
                self._log.debug(str(why))
                if self._on_refused is not None:
                    self._on_refused(chain[0], link.certificate, str(why))
                return False
        return True

    async def _check(self, link: _Link, settings: OcspPeer) -> None:
        """_NotGood where the certificate is not to be trusted."""
        answer, was_revoked = self._recall(link, settings)
        if answer is None:
            try:
                answer = await self._ask(link, settings)
            except OcspError as error:
                self._log.error(f"Could not parse OCSP CA response for [{link.name}]: {error}")
                return self._doubt(link, settings, "Failed OCSP response parse")
            except (OSError, ValueError) as error:
                return self._unreachable(link, settings, was_revoked, error)
            if not is_current(answer, settings):
                self._log.warn(f"New OCSP CA response obtained for [{link.name}] but not current")
                return self._doubt(link, settings, "OCSP response not in effectivity window")
            self._cache.put(link.certificate.digest, answer, link.name)
        if answer.status == REVOKED or (answer.status == UNKNOWN and not settings.unknown_is_good):
            status = STATUSES[answer.status]
            self._log.warn(f"OCSP verify fail for [{link.name}] with CA status [{status}]")
            return self._doubt(link, settings, f"Invalid OCSP response status: {status}")
        self._log.debug(f"OCSP verify pass for [{link.name}]")
        return None

    def _recall(self, link: _Link, settings: OcspPeer) -> tuple[Answer | None, bool]:
        """What is kept of a certificate, as far as it is still the time for it, and whether it says
        or said that the certificate is revoked."""
        key = link.certificate.digest
        raw = self._cache.get(key)
        if raw is None:
            return None, False
        try:
            answer = read_answer(raw, link.certificate.der, link.issuer.der)
        except OcspError as error:
            self._log.debug(f"Invalid cached OCSP response for [{link.name}]: {error}")
            self._cache.drop(key)
            return None, False
        if is_current(answer, settings):
            return answer, answer.status == REVOKED
        self._cache.drop(key)
        return None, answer.status == REVOKED

    async def _ask(self, link: _Link, settings: OcspPeer) -> Answer:
        key = link.certificate.digest
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = asyncio.get_running_loop().create_task(self._fetch(link, settings))
            self._fetches[key] = fetch
            fetch.add_done_callback(lambda _: self._fetches.pop(key, None))
        raw = await asyncio.shield(fetch)
        return read_answer(raw, link.certificate.der, link.issuer.der)

    async def _fetch(self, link: _Link, settings: OcspPeer) -> bytes:
        request = ocsp_request(link.certificate.der, link.issuer.der)
        why: Exception = OSError("no available OCSP servers")
        for url in link.responders:
            try:
                async with self._free:
                    return await get(url, request, settings.ca_timeout)
            except (OSError, ValueError) as error:
                why = error
        raise OSError(f"exhausted OCSP responders: {why}")

    def _unreachable(
        self, link: _Link, settings: OcspPeer, was_revoked: bool, error: Exception
    ) -> None:
        what = f"Attempt to obtain OCSP response from CA responder for [{link.name}] failed"
        self._log.warn(f"{what}: {error}")
        what = f"Failed to obtain OCSP CA response for [{link.name}] but AllowWhenCAUnreachable set"
        if not settings.warn_only and settings.allow_when_ca_unreachable:
            if not was_revoked:
                self._log.warn(f"{what}; no cached revocation so allowing")
                return
            self._log.warn(f"{what}; cached revocation exists so rejecting")
        self._doubt(link, settings, "Failed OCSP response fetch")

    def _doubt(self, link: _Link, settings: OcspPeer, why: str) -> None:
        if not settings.warn_only:
            raise _NotGood(why)
        self._log.warn(f"OCSP verify fail for [{link.name}] but WarnOnly is true so allowing")


def is_current(answer: Answer, settings: OcspPeer) -> bool:
    """Whether it is the time for an answer."""
    now, skew = time.time_ns(), int(settings.allowed_clockskew * SECOND)
    ends = answer.ends or answer.begins + int(settings.cache_ttl_when_next_update_unset * SECOND)
    return answer.begins <= now + skew and ends >= now - skew
