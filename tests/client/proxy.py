"""A proxy between two servers that cuts or holds their connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """Passes connections on to a port, until it cuts or holds them."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._writers: list[asyncio.StreamWriter] = []
        self._open = asyncio.Event()
        self._open.set()
        self._shut = False
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.release()
            self.cut()

    def cut(self) -> None:
        """Resets all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def shut(self) -> None:
        """Resets all connections, and takes no new ones."""
        self._shut = True
        self.cut()

    def reopen(self) -> None:
        self._shut = False

    def hold(self) -> None:
        """Takes nothing more from connections that are open."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._shut:
            writer.transport.abort()
            return
        try:
            there, out = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, out]
        await asyncio.gather(self._pass(reader, out, held=True), self._pass(there, writer))

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, held: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if held:
                    await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
