"""The load generator's connection: sends prepared buffers and counts replies by scanning."""

import json
import re
import time
from typing import Any

from jsserver.client import connection
from jsserver.client.connection import ConnectionFailed as BenchError
from jsserver.client.connection import new_inbox, publish_frame
from jsserver.client.credentials import Credentials, CredentialsError, Tls

__all__ = ["BenchError", "Connection", "new_inbox", "payload_of", "publish_frame"]

STATUS = b"NATS/1.0 "  # a header block that reports, instead of one that belongs to a message
CONTROL_LINE = re.compile(rb"(H?)MSG (\S+) (\S+) (?:(\S+) )?(?:(\d+) )?(\d+)\r\n")


class Connection(connection.Connection):
    """One client connection; every wait is bounded by the connection's timeout."""

    def __init__(
        self,
        url: str,
        name: str = "bench",
        credentials: Credentials | None = None,
        tls: Tls | None = None,
    ) -> None:
        try:
            super().__init__(url, name=name, credentials=credentials, tls=tls)
        except CredentialsError as error:
            raise BenchError(str(error)) from None

    def receive(self) -> bytes:
        """The bytes kept from before, or what comes next; pings in it are answered."""
        data = self.taken_bytes()
        if data:
            return data
        self.fill()
        data = self.taken_bytes()
        if b"PING\r\n" in data:
            self.send(b"PONG\r\n")
        if b"-ERR" in data:
            self._raise_error(data)
        return data

    def _raise_error(self, data: bytes) -> None:
        found = re.search(rb"(?:^|\r\n)-ERR ([^\r]*)", data)
        if found:
            raise BenchError(f"the server said: {found[1].decode(errors='replace')}")

    def count_until(self, mark: bytes, wanted: int) -> int:
        """Receives until `mark` was seen `wanted` times; returns how often it was.

        `mark` must occur once a message, and nowhere else in it.
        """
        seen = 0
        tail = b""
        overlap = len(mark) - 1
        while seen < wanted:
            data = tail + self.receive()
            seen += data.count(mark)
            # Short of one mark, so nothing is counted twice.
            tail = data[-overlap:] if overlap else b""
        return seen

    def ask(self, frame: bytes) -> bytes:
        """Sends a prepared request; the header and payload of the one message that answers."""
        self.send(frame)
        data = self.receive()
        while True:
            found = CONTROL_LINE.search(data)
            if found:
                end = found.end() + int(found[6])
                if len(data) >= end + 2:
                    self.give_back(data[end + 2 :])
                    answer = data[found.end() : end]
                    if found[1] and answer.startswith(STATUS):
                        status = answer[len(STATUS) :].partition(b"\r\n")[0].decode()
                        raise BenchError(f"{frame.split()[1].decode()} was answered: {status}")
                    return answer
            data += self.receive()

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A JetStream API request; an error answer is raised."""
        payload = json.dumps(body).encode() if body else b""
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{subject}", payload).data)
        if "error" in answer:
            error = answer["error"]
            raise BenchError(f"{subject}: {error.get('description')} ({error.get('err_code')})")
        return answer


def payload_of(size: int) -> bytes:
    """A payload that holds no protocol text."""
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def wait_for_server(url: str, seconds: float) -> None:
    """Waits until a server answers at `url`."""
    end = time.monotonic() + seconds
    while True:
        try:
            Connection(url).close()
            return
        except BenchError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
