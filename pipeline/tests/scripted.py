"""A server that answers requests as a test says, for what real ones do only when they are ill."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

Answer = list[tuple[bytes, bytes]]
"""Header blocks and payloads of the messages that answer a request."""

INFO = b'INFO {"server_id":"x","version":"2.14.5","headers":true,"max_payload":1048576}\r\n'


class Scripted:
    """`answer(subject, body)` gives the messages; bytes are sent as they are; None: closes."""

    def __init__(self, answer: Callable[[str, Any], Answer | bytes | None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._sockets.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        sids: dict[str, str] = {}
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            connection.sendall(INFO)
            for line in lines:
                words = line.decode().split()
                if words[0] == "PING":
                    connection.sendall(b"PONG\r\n")
                elif words[0] == "SUB":
                    sids[words[1]] = words[-1]
                elif words[0] == "PUB":
                    body = lines.read(int(words[-1]) + 2)[:-2]
                    answer = self._answer(words[1], json.loads(body) if body else None)
                    if answer is None:
                        return
                    connection.sendall(_frames(answer, words[2], sids))


def _frames(answer: Answer | bytes, reply: str, sids: dict[str, str]) -> bytes:
    if isinstance(answer, bytes):
        return answer
    sid = sids.get(reply) or sids[reply.rpartition(".")[0] + ".*"]
    return b"".join(
        f"HMSG {reply} {sid} {len(head)} {len(head) + len(data)}\r\n".encode()
        + head
        + data
        + b"\r\n"
        if head
        else f"MSG {reply} {sid} {len(data)}\r\n".encode() + data + b"\r\n"
        for head, data in answer
    )


@contextlib.contextmanager
def scripted(answer: Callable[[str, Any], Answer | bytes | None]) -> Iterator[Scripted]:
    server = Scripted(answer)
    try:
        yield server
    finally:
        server.close()
