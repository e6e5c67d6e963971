"""TLS by OpenSSL: a transport for connections, and sessions for what Python serves."""

from typing import Any

class ContextError(ValueError): ...
class SessionError(OSError): ...

def has_group(name: str) -> bool: ...

class SecurityContext:
    def __init__(
        self,
        pairs: list[tuple[bytes, bytes]],
        *,
        authorities: bytes = b"",
        verify: bool = False,
        min_version: int = 0x303,
        ciphers: str,
        groups: str,
        pins: list[bytes] | None = None,
        first: bool = False,
        optional: bool = False,
        fallback: int = 0,
        timeout: int,
        rate: int = 0,
    ) -> None: ...
    def security(self) -> Any: ...

class Session:
    ended: bool
    def __init__(self, context: SecurityContext) -> None: ...
    def receive(self, data: bytes) -> bytes: ...
    def send(self, data: bytes) -> None: ...
    def finish(self) -> None: ...
    def outgoing(self) -> bytes: ...
