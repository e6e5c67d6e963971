"""OCSP: responders are asked about the server's own certificates, and about clients'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from jsserver import StartError
from jsserver.cext.engine import DataPlane
from jsserver.config import ConfigError
from jsserver.config.options import Options
from jsserver.listeners.listeners import Listeners
from jsserver.process.logs import Logger
from jsserver.services.inbox import Inbox

if TYPE_CHECKING:
    from jsserver.access.certificates import Certificate
    from jsserver.access.responses import Figures
    from jsserver.services.peers import Peers
    from jsserver.services.stapling import Stapled, Stapling


class Certificates:
    """OCSP of a server: take_peers() and learn_staples() begin what close() ends."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        log: Logger,
        inbox: Inbox,
        listeners: Listeners,
        stopped: asyncio.Event,
        peer_refused: Callable[[], Callable[[Certificate, Certificate, str], None] | None],
    ) -> None:
        """`stopped`: set when the server has to stop; `peer_refused`: returns what is called for
        clients whose certificates are refused."""
        self._options = options
        self._plane = plane
        self._log = log
        self._inbox = inbox
        self._listeners = listeners
        self._stopped = stopped
        self._peer_refused = peer_refused
        self._stapling: Stapling | None = None
        self._peers: Peers | None = None

    @property
    def peer_answers(self) -> Figures | None:
        """Cached answers about clients' certificates; None: not checked."""
        return None if self._peers is None else self._peers.figures()

    async def take_peers(self, options: Options) -> None:
        """Begins to check clients' certificates, if the options ask for it."""
        blocks = filter(None, (options.tls, options.websocket.tls))
        if self._peers is None and any(tls.inquires for tls in blocks):
            from jsserver.services.peers import Peers  # loaded only when needed

            self._peers = Peers(self._options, self._plane, self._log, self._peer_refused())
            self._inbox.on_peer = self._peers.asked
            await self._peers.start()

    async def learn_staples(self, options: Options) -> list[Stapled]:
        """The certificates to show with an OCSP response, and the responses; ConfigError."""
        if options.tls is None and options.websocket.tls is None:
            return []
        if self._stapling is None:
            from jsserver.services.stapling import Stapling  # loaded only with TLS

            self._stapling = Stapling(self._log, self._listeners.staple, self._stopped.set)
        learning = asyncio.create_task(self._stapling.learn(options))
        stopping = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({learning, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not learning.done():
            learning.cancel()
            raise StartError("Ended while OCSP responders were asked")
        try:
            return learning.result()
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def attend_staples(self, stapled: list[Stapled]) -> None:
        """Keeps responses fresh for these certificates, and for no others."""
        if self._stapling is not None:
            self._stapling.attend(stapled)

    async def close(self) -> None:
        """Stops asking responders."""
        if self._stapling is not None:
            self._stapling.close()
        if self._peers is not None:
            await self._peers.close()
