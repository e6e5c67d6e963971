"""Answers to requests of a cluster's API: sent, counted for the account, and told to who listens.

Lives in the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jsserver.api.advisories import AUDIT, ClientInfo
from jsserver.api.endpoints import ENDPOINTS
from jsserver.services.answers import encoded

if TYPE_CHECKING:
    from jsserver.access.accounts import Accounts
    from jsserver.api.dispatch import Dispatcher
    from jsserver.api.responses import Response
    from jsserver.cluster.proposals import Asked


EXPECTED_MAX = 4096
"""Requests of which it is known who asked, for answers that come later."""


class Answering:
    """Those of one server."""

    def __init__(self, accounts: Accounts, system_account: str, dispatcher: Dispatcher) -> None:
        self._system = accounts[system_account]
        self._system_account = system_account
        self._dispatcher = dispatcher
        self._expected: dict[str, tuple[str, Asked]] = {}
        """By their replies."""

    def send(self, name: str, asked: Asked, answer: Response) -> None:
        """Answers a request of this name, as `STREAM.INFO`; nobody where no reply is wanted."""
        if asked.reply:
            self._send(name, asked, encoded(answer), answer.error is not None)

    def expect(self, name: str, asked: Asked) -> None:
        """The answer is given by settle(), or by another server. What was asked for is not told
        then, but for a pause, as by nats-server."""
        body = asked.body if name == "CONSUMER.PAUSE" else b""
        self._expected[asked.reply] = name, asked._replace(body=body)
        if len(self._expected) > EXPECTED_MAX:
            del self._expected[next(iter(self._expected))]

    def settle(self, reply: str, body: bytes, *, refused: bool) -> None:
        """Answers a request that was expected."""
        name, asked = self._expected.pop(reply, ("", None))
        if asked is not None:
            self._send(name, asked, body, refused)
        elif reply:
            self._publish(reply, body)

    def _publish(self, reply: str, body: bytes) -> None:
        self._system.publish(reply.encode("utf-8", "surrogateescape"), b"", b"", body)

    def _send(self, name: str, asked: Asked, body: bytes, refused: bool) -> None:
        self._publish(asked.reply, body)
        endpoint = ENDPOINTS.get(name)
        if endpoint is not None and not (endpoint.errors_audited if refused else endpoint.audited):
            return
        running = self._dispatcher.accounts.get(asked.account)
        if running is not None:
            running.stats.total += 1
            running.stats.errors += refused
        account, advisories = asked.account or self._system_account, self._dispatcher.advisories
        if advisories.wanted(account, AUDIT):
            advisories.audit(account, asked.subject, client_of(asked.client), asked.body, body)


def client_of(said: object) -> ClientInfo:
    """Who asks, as a request or an assignment says; nobody in particular of the system account."""
    try:
        return msgspec.convert(said, ClientInfo, strict=False)
    except msgspec.ValidationError:
        return ClientInfo()
