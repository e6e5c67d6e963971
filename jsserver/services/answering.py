"""Sends the answers to API requests in a cluster, counts them for the account, and audits them.

Lives in the event loop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from jsserver.api.advisories import AUDIT, ClientInfo
from jsserver.api.endpoints import ENDPOINTS
from jsserver.services.answers import encoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.access.accounts import Accounts
    from jsserver.api.dispatch import Dispatcher
    from jsserver.api.responses import Response
    from jsserver.cluster.proposals import Asked


EXPECTED_MAX = 4096
"""The most requests that are remembered for answers that come later."""
MAPPED = "_GR_."
"""What replies of another cluster's requests begin with, `_GR_.<cluster>.<server>.<reply>`: an
answer goes straight to that server, also before anybody here knows who listens at the reply."""
MAPPED_REPLY = 19
"""Where the reply stands in these."""
MAPPED_SECONDS = 2.0
"""Seconds for which an answer goes there; after them its own reply is known everywhere. Others
than this server are told of the reply alone, for a cluster takes no such answers of its own."""


class Answering:
    """The answers of this server."""

    def __init__(self, accounts: Accounts, system_account: str, dispatcher: Dispatcher) -> None:
        self._system = accounts[system_account]
        self._system_account = system_account
        self._dispatcher = dispatcher
        self._expected: dict[str, tuple[str, Asked]] = {}
        """By their replies."""
        self._mapped: dict[str, tuple[str, float]] = {}
        """Whole replies by the ones in them, and until when an answer goes there."""
        self.again: Callable[[Asked], None] = lambda asked: None
        """Has a request judged anew: this server did not lead any more when it was to do that."""

    def note(self, reply: str) -> str:
        """Takes the reply of a request, and gives it back as it is known in the cluster of who
        asks."""
        if not reply.startswith(MAPPED):
            return reply
        now, own = time.monotonic(), reply[MAPPED_REPLY:]
        for old, (_, until) in list(self._mapped.items()):
            if until > now and len(self._mapped) < EXPECTED_MAX:
                break
            del self._mapped[old]
        self._mapped.pop(own, None)
        self._mapped[own] = reply, now + MAPPED_SECONDS
        return own

    def way_to(self, reply: str) -> str:
        """The subject on which an answer reaches the reply."""
        whole, until = self._mapped.get(reply, (reply, 0.0))
        return whole if time.monotonic() < until else reply

    def send(self, name: str, asked: Asked, answer: Response) -> None:
        """Answers the request `name`, such as `STREAM.INFO`, unless it has no reply subject."""
        if asked.reply:
            self._send(name, asked, encoded(answer), answer.error is not None)

    def expect(self, name: str, asked: Asked) -> None:
        """Remembers a request that settle() answers later, if no other server does. As with
        nats-server, the audit then lacks the request's body, except for a pause."""
        body = asked.body if name == "CONSUMER.PAUSE" else b""
        self._expected[asked.reply] = name, asked._replace(body=body)
        if len(self._expected) > EXPECTED_MAX:
            del self._expected[next(iter(self._expected))]

    def expects(self, reply: str) -> bool:
        """Whether a request of this server's is not answered yet."""
        return reply in self._expected

    def retry(self, asked: Asked) -> None:
        """Nothing has come of a request, which whoever leads now is to do."""
        self._expected.pop(asked.reply, None)
        self.again(asked)

    def settle(self, reply: str, body: bytes, *, refused: bool) -> None:
        """Sends the answer of a request that was expected, or of an unknown one."""
        name, asked = self._expected.pop(reply, ("", None))
        if asked is not None:
            self._send(name, asked, body, refused)
        elif reply:
            self._publish(reply, body)

    def _publish(self, reply: str, body: bytes) -> None:
        to = self.way_to(reply).encode("utf-8", "surrogateescape")
        self._system.publish(to, b"", b"", body)

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


def headers_of(asked: Asked) -> bytes:
    """What says who asks, as headers of a request."""
    if not asked.client:
        return b""
    return b"NATS/1.0\r\nNats-Request-Info: " + msgspec.json.encode(asked.client) + b"\r\n\r\n"


def client_of(said: object) -> ClientInfo:
    """The requester in a request or an assignment; an empty one for the system account."""
    try:
        return msgspec.convert(said, ClientInfo, strict=False)
    except msgspec.ValidationError:
        return ClientInfo()
