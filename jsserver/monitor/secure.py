"""Monitoring over TLS: a connection's reader and writer, with a session of the data plane's TLS
between them and the socket."""

import asyncio

from jsserver.cext.tls import SecurityContext, Session


class SecureStream:
    """Reader and writer of one connection; both ends are the server's."""

    def __init__(
        self,
        context: SecurityContext,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._session = Session(context)
        self._reader = reader
        self._writer = writer

    @property
    def transport(self) -> asyncio.BaseTransport:
        """The socket's."""
        return self._writer.transport

    async def read(self, n: int) -> bytes:
        """What came, at least a byte; b"" at the end. OSError where it is no TLS."""
        while True:
            data = await self._reader.read(n)
            if not data:
                return b""
            try:
                plain = self._session.receive(data)
            finally:
                self._pass_on()
            if plain or self._session.ended:
                return plain

    def write(self, data: bytes) -> None:
        self._session.send(data)
        self._pass_on()

    async def drain(self) -> None:
        await self._writer.drain()

    def can_write_eof(self) -> bool:
        return self._writer.can_write_eof()

    def write_eof(self) -> None:
        """Says that no more comes."""
        self._session.finish()
        self._pass_on()
        self._writer.write_eof()

    def close(self) -> None:
        if not self._writer.is_closing() and not self._writer.transport.is_closing():
            self._session.finish()
            self._pass_on()
        self._writer.close()

    def _pass_on(self) -> None:
        if data := self._session.outgoing():
            self._writer.write(data)
