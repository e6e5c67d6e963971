"""A small synchronous client that speaks WebSocket, for tests that look at every byte."""

import contextlib
import re
import ssl

from tests.client.raw import READ_BYTES, RawClient
from tests.servers import Server
from tests.websocket import Frames, Seen, compressed, frame, request

LISTENING = re.compile(r"Listening for websocket clients on wss?://\S+:(\d+)\s")


def websocket_port(server: Server) -> int:
    found = LISTENING.search(server.log())
    assert found, f"it does not listen for WebSocket:\n{server.log()}"
    return int(found[1])


def ask(port: int, raw: bytes, timeout: float = 5.0) -> tuple[list[bytes], bytes, bool]:
    """What is answered to requests for WebSocket, one after another: the HTTP answers, what the
    first message over frames holds, and whether the end came instead of it."""
    answers: list[bytes] = []
    with RawClient(port, timeout=timeout) as client:
        client.send(raw)
        said = b""
        while True:
            head, end, rest = said.partition(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            if end and head.startswith(b"HTTP/1.1 101"):
                frames = Frames()
                frames.feed(rest)
                if frames.data:
                    return [*answers, head], frames.taken(), False
            elif end and length:
                size = 0 if raw.startswith(b"HEAD") else int(length[1])
                if len(rest) >= size:
                    answers.append(head + end + rest[:size])
                    said = rest[size:]
                    if len(answers) == raw.count(b" HTTP/1.") and b"Connection: close" not in head:
                        return answers, b"", False
                    continue
            try:
                data = client.socket.recv(READ_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                return [*answers, said], b"", True
            said += data


class WsClient(RawClient):
    """As RawClient; `reply` is the head of the answer to its request, `seen` are the frames."""

    def __init__(
        self,
        server: Server | int,
        raw: bytes = b"",
        *,
        deflate: bool = False,
        masked: bool = True,
        timeout: float = 10.0,
        receive_buffer: int = 0,
        context: ssl.SSLContext | None = None,
        session: ssl.SSLSession | None = None,
    ) -> None:
        port = server if isinstance(server, int) else websocket_port(server)
        super().__init__(port, timeout=timeout, receive_buffer=receive_buffer)
        if context is not None:
            self.socket = context.wrap_socket(
                self.socket, server_hostname="localhost", session=session
            )
        self.deflate = deflate
        self.masked = masked
        self.frames = Frames()
        if not raw:
            headers = {}
            if deflate:
                headers["sec_websocket_extensions"] = "permessage-deflate"
            if not masked:
                headers["nats_no_masking"] = "true"
            raw = request(**headers)
        self.socket.sendall(raw)
        whole = b""
        while b"\r\n\r\n" not in whole:
            data = self.socket.recv(READ_BYTES)
            assert data, f"no answer to the request, but {whole!r}"
            whole += data
        self.reply, _, rest = whole.partition(b"\r\n\r\n")
        self.take(rest)

    @property
    def seen(self) -> list[Seen]:
        return self.frames.seen

    def take(self, raw: bytes) -> None:
        self.frames.feed(raw)
        self.buffer += self.frames.taken()

    def raw(self, data: bytes) -> None:
        """Sends bytes as they are."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def send(self, data: bytes) -> None:
        make = compressed if self.deflate and len(data) > 64 else frame
        self.raw(make(data, masked=self.masked))

    def _more(self, end: float) -> bool:
        before = bytes(self.buffer)
        self.buffer.clear()
        try:
            more = super()._more(end)
            raw = bytes(self.buffer)
        finally:
            self.buffer[:] = before
        self.take(raw)
        return more
