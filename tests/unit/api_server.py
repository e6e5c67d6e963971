"""The API over the fake data plane, as the unit tests of the API drive it."""

import asyncio
import hashlib
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from jsserver.api.dispatch import Dispatcher
from jsserver.api.responder import Request
from jsserver.assets.limits import AccountLimits, ServerSettings
from jsserver.instances.account import Account
from jsserver.instances.backend import Accounts
from jsserver.instances.shared import Shared

from .fake_backend import FakeAccount

T = TypeVar("T")

ACCOUNT = "$G"
SYSTEM_ACCOUNT = "SYS"
BARE_ACCOUNT = "other"
"""Without JetStream."""


def stub_hash(key: bytes, data: bytes) -> int:
    """Stands for HighwayHash-64 where the data plane is not built."""
    return int.from_bytes(hashlib.blake2b(data, key=key, digest_size=8).digest(), "little")


class ApiServer:
    """A dispatcher with one account, in an event loop of its own; a context manager."""

    def __init__(
        self,
        directory: Path | None = None,
        limits: AccountLimits | None = None,
        engine: FakeAccount | None = None,
        **settings: Any,
    ) -> None:
        self.engine = engine or FakeAccount()
        self.system = FakeAccount()
        self.directory = directory
        self.limits = limits or AccountLimits()
        self.settings = ServerSettings(server_name="srv", **settings)
        self.loop = asyncio.new_event_loop()

    def __enter__(self) -> "ApiServer":
        self.dispatcher = self.run(self._start())
        return self

    async def _start(self) -> Dispatcher:
        accounts = {ACCOUNT: self.engine, BARE_ACCOUNT: FakeAccount(), SYSTEM_ACCOUNT: self.system}
        shared = Shared(cast(Accounts, accounts), self.settings, stub_hash)
        dispatcher = Dispatcher(shared, system_account=SYSTEM_ACCOUNT)
        await dispatcher.add_account(Account(ACCOUNT, shared, self.directory, self.limits))
        return dispatcher

    def __exit__(self, *_: object) -> None:
        self.run(self.dispatcher.close())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))

    @property
    def account(self) -> Account:
        return self.dispatcher.accounts[ACCOUNT]

    def raw(
        self, subject: str, body: object = b"", headers: bytes = b"", account: str = ACCOUNT
    ) -> bytes | None:
        """The answer's bytes to a request on `$JS.API.<subject>`; None for silence."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(account, f"$JS.API.{subject}".encode(), b"r", headers, payload)
        return self.run(self.dispatcher.handle(request))

    def ask(self, subject: str, body: object = b"", headers: bytes = b"") -> dict[str, Any]:
        """The decoded answer."""
        answer = self.raw(subject, body, headers)
        assert answer is not None, f"silence on {subject}"
        decoded = json.loads(answer)
        assert isinstance(decoded, dict)
        return decoded

    def ok(self, subject: str, body: object = b"", headers: bytes = b"") -> dict[str, Any]:
        """An answer that must be no error."""
        answer = self.ask(subject, body, headers)
        assert "error" not in answer, answer
        return answer

    def refused(self, subject: str, body: object = b"", headers: bytes = b"") -> tuple[int, str]:
        """err_code and text of an answer that must be an error."""
        error = self.ask(subject, body, headers)["error"]
        return error["err_code"], error["description"]

    def stream(self, name: str, **config: Any) -> dict[str, Any]:
        return self.ok(f"STREAM.CREATE.{name}", {"name": name, **config})

    def consumer(self, stream: str, name: str, **config: Any) -> dict[str, Any]:
        body = {"stream_name": stream, "config": config}
        return self.ok(f"CONSUMER.CREATE.{stream}.{name}", body)
