"""Requests of a client of the system account to all servers of a cluster, of either kind."""

import json
import time
from collections.abc import Iterator
from typing import Any

from jsserver.admin.session import CommandFailed
from jsserver.client.connection import (
    Connection,
    ConnectionFailed,
    Message,
    TimedOut,
    new_inbox,
    publish_frame,
)

API = "$JS.API."
SERVER = "$SYS.REQ.SERVER."
GATHERING = 5.0
"""Seconds to wait for servers that do not answer."""


class System:
    """Sends requests, one at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def api(self, name: str, body: Any = None, account: str = "") -> dict[str, Any]:
        """The answer of JetStream's API, which may be an error. `account`: the account to ask for,
        "" for the system account itself. TimedOut: no answer."""
        header = b""
        if account:
            who = json.dumps({"acc": account})
            header = f"NATS/1.0\r\nNats-Request-Info: {who}\r\n\r\n".encode()
        data = b"" if body is None else json.dumps(body).encode()
        return _decoded(self._connection.request(API + name, data, header))

    def server(self, id: str, what: str, body: Any = None) -> dict[str, Any]:
        """A server's answer about itself; CommandFailed."""
        data = b"" if body is None else json.dumps(body).encode()
        answer = _decoded(self._connection.request(f"{SERVER}{id}.{what}", data))
        if "error" in answer:
            raise CommandFailed(f"{what} of server {id}: {answer['error']['description']}")
        return answer

    def statistics(self) -> list[dict[str, Any]]:
        """STATSZ of all servers that answer; CommandFailed: none did."""
        found: list[dict[str, Any]] = []
        for answer in self._all("STATSZ"):
            found.append(answer)
            if len(found) >= max(one["statsz"].get("active_servers", 0) for one in found):
                break
        if not found:
            raise CommandFailed("no server answers: log in as a user of the system account")
        return found

    def _all(self, what: str) -> Iterator[dict[str, Any]]:
        """The servers' answers, in the order of their arrival."""
        connection, inbox = self._connection, new_inbox()
        sid = connection.subscribe(inbox)
        connection.send(publish_frame(f"{SERVER}PING.{what}", b"{}", inbox))
        end = time.monotonic() + GATHERING
        try:
            while (left := end - time.monotonic()) > 0:
                connection.socket.settimeout(left)
                op = connection.next_op()
                if isinstance(op, Message) and op.sid == sid and op.data:
                    yield _decoded(op)
                elif isinstance(op, Message) and op.sid == sid:
                    return  # no subscribers
        except TimedOut:
            return
        finally:
            connection.socket.settimeout(connection.timeout)
            connection.unsubscribe(sid)


def _decoded(answer: Message) -> dict[str, Any]:
    try:
        decoded = json.loads(answer.data)
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise ConnectionFailed(f"no answer of a server: {answer.data[:80]!r}")
    return decoded
