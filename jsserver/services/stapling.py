"""The OCSP responses that the server's certificates are shown with: asked for before the first
handshake and again long before they end, and kept in the store directory, as nats-server does.

Lives in the event loop; no handshake waits for a responder.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Callable

from jsserver.access.certificates import first_of, to_staple
from jsserver.access.ocsp import ANSWER_MAX, GOOD, STATUSES, Answer, get, post, read_answer
from jsserver.cext.tls import OcspError, ocsp_request, with_issuer
from jsserver.config.options import Ocsp, Options, Tls
from jsserver.process.logs import Logger
from jsserver.text.goformat import MINUTE, SECOND, duration, rfc3339_nano

FETCH_SECONDS = 30.0
"""How long a responder is waited for."""
WITHOUT_END = 24 * 60 * MINUTE
"""When an answer that does not say how long it holds is asked for again; ns."""
RETRY_FIRST, RETRY_MOST = SECOND, 2 * MINUTE
"""Between two questions when there was no good answer: doubled from the first on; ns."""
FOR_EVER = (1 << 63) - 1
_FOLDER = "ocsp"
_KIND = "Client"

Staple = Callable[[bytes, bytes, int], None]
"""Has handshakes with the certificate of a SHA-256 carry a response, until a time (ns)."""


class Stapled:
    """A certificate, its issuer's, and the last answer about it; all in DER."""

    def __init__(self, file: str, tls: Tls, ocsp: Ocsp, folder: str) -> None:
        """ValueError where that cannot be known."""
        try:
            with open(file, "rb") as f:
                chain = f.read()
            authorities = b""
            if tls.ca_file:
                with open(tls.ca_file, "rb") as f:
                    authorities = f.read()
        except OSError as error:
            raise ValueError(str(error)) from None
        self.file = file
        self.der, self.issuer = with_issuer(chain, authorities)
        self.digest = hashlib.sha256(self.der).digest()
        self.urls = ocsp.urls or first_of(chain).responders
        self.ends_server = ocsp.ends_server
        self.answer: Answer | None = None
        self._kept = os.path.join(folder, self.digest.hex()) if folder else ""

    @property
    def staple(self) -> tuple[bytes, tuple[bytes, int]]:
        """The SHA-256 of the certificate, and its response, with the time until when that holds."""
        answer = self.answer
        assert answer is not None, "it has learnt something"
        return self.digest, (answer.raw, answer.ends or FOR_EVER)

    def recall(self) -> Answer | None:
        """The answer that is kept, if it is still the time for it."""
        try:
            with open(self._kept, "rb") as f:
                self.answer = self._timely(f.read(ANSWER_MAX + 1))
        except (OSError, ValueError):
            return None
        return self.answer

    async def ask(self) -> Answer:
        """A new answer, of the first responder that has one; OcspError where none has."""
        request = ocsp_request(self.der, self.issuer)
        why = []
        for url in self.urls:
            for ask in (post, get):
                try:
                    raw = await ask(url, request, FETCH_SECONDS)
                    break
                except (OSError, ValueError) as error:
                    why.append(f"{url}: {error}")
            else:
                continue
            self.answer = self._timely(raw)
            return self.answer
        if not why:
            raise OcspError("no available ocsp servers")
        raise OcspError(f"exhausted ocsp servers: {'; '.join(why)}")

    def _timely(self, raw: bytes) -> Answer:
        answer = read_answer(raw, self.der, self.issuer)
        now = time.time_ns()
        if answer.ends and answer.ends < now:
            ended = rfc3339_nano(answer.ends)
            raise OcspError(f"invalid ocsp NextUpdate, is past time: {ended}")
        if answer.begins > now:
            begins = rfc3339_nano(answer.begins)
            raise OcspError(f"invalid ocsp ThisUpdate, is future time: {begins}")
        return answer

    def keep(self) -> None:
        """Keeps the answer for another start; a reader finds a whole file at any time. OSError."""
        if not self._kept or self.answer is None:
            return
        folder = os.path.dirname(self._kept)
        os.makedirs(folder, 0o750, exist_ok=True)
        fd, part = tempfile.mkstemp(prefix="tmp-cert-status", dir=folder)
        try:
            with open(fd, "wb") as f:
                f.write(self.answer.raw)
            os.replace(part, self._kept)
        except BaseException:
            os.unlink(part)
            raise


class Stapling:
    """`staple` is told of each answer, and `end` called where a certificate is no longer good and
    the configuration does not let the server go on with it."""

    def __init__(self, log: Logger, staple: Staple, end: Callable[[], None]) -> None:
        self._log = log
        self._staple = staple
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []

    async def learn(self, options: Options) -> list[Stapled]:
        """The certificates of these options that are to be stapled. ValueError where one cannot be
        shown with what it has to be. Nothing changes by it."""
        folder = os.path.join(options.store_dir, _FOLDER) if options.store_dir else ""
        found = []
        for file, tls in to_staple(options):
            stapled = Stapled(file, tls, options.ocsp, folder)
            try:
                answer = stapled.recall() or await self._ask(stapled)
            except OcspError as error:
                what = f"bad OCSP status update for certificate at '{file}'"
                raise ValueError(f"{what}: {error}") from None
            if answer.status != GOOD and stapled.ends_server:
                what = f"found existing OCSP status for certificate at '{file}'"
                raise ValueError(f"{what}: {STATUSES[answer.status]}")
            found.append(stapled)
        return found

    async def _ask(self, stapled: Stapled) -> Answer:
        answer = await stapled.ask()
        try:
            await asyncio.to_thread(stapled.keep)
        except OSError as error:
            self._log.warn(f"OCSP response for '{stapled.file}' is not kept: {error}")
        return answer

    def attend(self, found: list[Stapled]) -> None:
        """Asks about these certificates from now on, and about none of those before."""
        self.close()
        for _ in found:
            self._log.info(f"OCSP Stapling enabled for {_KIND} connections")
        self._tasks = [asyncio.create_task(self._attend(stapled)) for stapled in found]

    def close(self) -> None:
        """Asks nobody any more."""
        for task in self._tasks:
            task.cancel()

    async def _attend(self, stapled: Stapled) -> None:
        """Asks about a certificate for as long as the server runs."""
        what, retry = "Found", 0
        while True:
            answer = stapled.answer
            assert answer is not None, "who is attended to has learnt something"
            wait = _next(answer)
            status = STATUSES[answer.status]
            if what and answer.status == GOOD:
                until = rfc3339_nano(answer.ends) if answer.ends else "unset"
                self._log.info(
                    f"{what} OCSP status for {_KIND} certificate at '{stapled.file}': good, "
                    f"next update {until}, checking again in {duration(wait)}"
                )
            elif what:
                self._log.error(
                    f"{what} OCSP status for {_KIND} certificate at '{stapled.file}': {status}"
                )
                if stapled.ends_server:
                    self._end()
                    return
            await asyncio.sleep(max(wait, retry) / SECOND)
            try:
                await self._ask(stapled)
            except OcspError as error:
                retry = min(max(2 * retry, RETRY_FIRST), RETRY_MOST)
                again = max(_next(answer), retry)
                self._log.error(
                    f"Bad OCSP status update for certificate '{stapled.file}': {error}, trying "
                    f"again in {duration(again)}"
                )
                what = ""
            else:
                self._staple(stapled.digest, *stapled.staple[1])
                what, retry = "Received", 0


def _next(answer: Answer) -> int:
    """Ns until an answer is asked for again: half of what is left of it."""
    if not answer.ends:
        return WITHOUT_END
    return max((answer.ends - time.time_ns()) // 2, RETRY_FIRST)
