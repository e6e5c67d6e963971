"""Tokens of accounts by request, for users of the system account: changed, looked up, listed,
packed and deleted (`$SYS.REQ.CLAIMS.>`, `$SYS.REQ.ACCOUNT.*.CLAIMS.>`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from jsserver.access.accounts import Accounts
from jsserver.access.operator import OperatorMode, Tenant
from jsserver.access.refusal import Refused
from jsserver.access.resolvers import Directory, NotFound, NotStored
from jsserver.cext.engine import Item
from jsserver.jwt.claims import Account, Other
from jsserver.jwt.tokens import TokenError, decode_as
from jsserver.jwt.validation import is_key, issues_of, refusal
from jsserver.process.logs import Logger
from jsserver.services.answers import ServerInfo, encoded
from jsserver.services.tenants import Tenants
from jsserver.text.identity import PREFIX_ACCOUNT
from jsserver.wire.types import Wire, always

LOOKUP = "$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP"
PENDING_MAX = 1024
"""Requests that wait; more are dropped, as by a server that is too busy."""
EXPIRY_SECONDS = 60.0
"""How often a directory is looked through for what is over."""

_UPDATE = ("$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.ACCOUNT.*.CLAIMS.UPDATE")
_ALL = "$SYS.REQ.CLAIMS."
_OF_ONE = re.compile(r"\$SYS\.(?:REQ\.)?ACCOUNT\.([^.]+)\.CLAIMS\.(UPDATE|LOOKUP)")


T = TypeVar("T")


class Status(Wire):
    """That something was done."""

    account: str = ""
    code: int = 0
    message: str = ""


class Failed(Wire):
    """Why it was not."""

    account: str = ""
    code: int = always(500)
    description: str = ""


class Outcome(Wire):
    """The answer to a change."""

    server: ServerInfo
    data: Status | None = None
    error: Failed | None = None


class Listed(Wire):
    """The accounts that there are tokens of."""

    data: list[str]
    server: ServerInfo


class Words(NamedTuple):
    """What changes are called, by what there is to change."""

    updated: str
    failed: str
    invalid: str
    skipped: str


_IN_ALL = Words("jwt updated", "jwt update resulted in error", "jwt validation failed", "")
_IN_CACHE = Words(
    "jwt updated cache",
    "jwt update cache resulted in error",
    "jwt update cache validation failed",
    "jwt update cache skipped",
)
_RUNNING = Words(
    "jwt updated", "jwt update resulted in error", "jwt validation failed", "jwt update skipped"
)


class ClaimRequests:
    """Takes requests one after the other; files are read and written in a thread of their own."""

    def __init__(
        self,
        mode: OperatorMode,
        tenants: Tenants,
        accounts: Accounts,
        system_account: str,
        directory: Directory | None,
        log: Logger,
        *,
        cache: bool,
        deletes: bool,
        info: Callable[[], ServerInfo],
    ) -> None:
        """`directory`: None where tokens are not kept by this server."""
        self._mode = mode
        self._tenants = tenants
        self._system = accounts[system_account]
        self._system_account = system_account
        self._directory = directory
        self._log = log
        self._deletes = deletes or cache
        self._info = info
        self._words = _RUNNING if directory is None else _IN_CACHE if cache else _IN_ALL
        self._pool = ThreadPoolExecutor(1, "claims")
        self._waiting: asyncio.Queue[Item] = asyncio.Queue(PENDING_MAX)
        subjects = list(_UPDATE)
        if directory is not None:
            subjects += [_ALL + name for name in ("UPDATE", "LIST", "DELETE")]
            if not cache:
                subjects += [LOOKUP.format("*"), _ALL + "PACK"]
        for subject in subjects:
            self._system.serve_requests(subject.encode())
        self._id = self._system.id
        self._task = asyncio.create_task(self._serve())

    def judge_by(self, mode: OperatorMode) -> None:
        """Tokens are judged by this from now on."""
        self._mode = mode

    def close(self) -> None:
        """Answers nothing more."""
        self._task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def take(self, item: Item) -> bool:
        """Whether a request out of the inbox is for this; it is answered some time later."""
        subject = item.texts[0].decode("utf-8", "replace")
        mine = subject.startswith(_ALL) or _OF_ONE.fullmatch(subject) is not None
        if not mine or item.numbers[0] != self._id:
            return False
        if not self._waiting.full():
            self._waiting.put_nowait(item)
        return True

    async def _serve(self) -> None:
        expires = time.monotonic() + EXPIRY_SECONDS
        while True:
            try:
                async with asyncio.timeout(expires - time.monotonic()):
                    item = await self._waiting.get()
                await self._answer(item)
            except TimeoutError:
                if self._directory is not None:
                    await self._in_thread(self._directory.expire)
                expires = time.monotonic() + EXPIRY_SECONDS
            except Exception as error:  # the next one is answered all the same
                self._log.error(f"Internal error: {error!r} at a request about claims")

    async def _answer(self, item: Item) -> None:
        subject, reply, _, payload = item.texts
        text = subject.decode("utf-8", "replace")
        token = payload.decode("utf-8", "replace")
        one = _OF_ONE.fullmatch(text)
        if one is not None and one[2] == "UPDATE":
            await self._update(reply, token, one[1])
        elif text == _ALL + "UPDATE":
            await self._update(reply, token, "")
        elif text == _ALL + "DELETE":
            await self._delete(reply, token)
        elif not reply or self._directory is None:
            return
        elif one is not None:
            await self._look_up(reply, one[1], self._directory)
        elif text == _ALL + "LIST":
            packed = await self._in_thread(self._directory.pack)
            names = [name for name, _ in packed]
            self._say(reply, Listed(data=names, server=self._info()))
        elif text == _ALL + "PACK":
            await self._pack(reply, payload, self._directory)

    # ---- changes

    async def _update(self, reply: bytes, token: str, account: str) -> None:
        """`account`: whose token it has to be; "": anybody's."""
        words = self._words
        try:
            tenant, wrong = await self._in_thread(lambda: self._read(token, account))
        except TokenError as error:
            known = account if words.skipped else ""
            self._fail(reply, known or "n/a", words.failed, str(error))
            return
        except Refused as error:
            self._fail(reply, account or decode_as(token, Account).sub, words.failed, str(error))
            return
        if wrong:
            self._fail(reply, tenant.name, words.invalid, wrong)
            return
        running = self._tenants.get(tenant.name)
        if words.skipped and running is None:
            self._succeed(reply, tenant.name, words.skipped)
            return
        try:
            if self._directory is not None:
                directory = self._directory
                await self._in_thread(lambda: directory.store(tenant.name, token))
            elif running is not None and running.claims.iat > tenant.claims.iat:
                raise NotStored("a newer jwt is in use")
        except NotStored as error:
            self._fail(reply, tenant.name, words.failed, str(error))
            return
        if running is not None:
            if tenant.expired(time.time()):
                self._tenants.end(tenant.name)
            else:
                await self._tenants.apply(tenant)
        self._succeed(reply, tenant.name, words.updated)

    async def merge(self, account: str, token: str) -> None:
        """Another server has this token, which counts where it is newer than the one that is
        here."""
        directory = self._directory
        try:
            tenant, wrong = await self._in_thread(lambda: self._read(token, account))
            if wrong or directory is None:
                return
            if not await self._in_thread(lambda: _keep_newer(directory, tenant)):
                return
            if self._tenants.get(account) is not None:
                await self._tenants.apply(tenant)
        except (TokenError, Refused, NotStored):
            return
        self._log.debug(f"{self._words.updated} - {account}")

    def _read(self, token: str, account: str) -> tuple[Tenant, str]:
        """The account of a token, and what is wrong with its claims; Refused or TokenError."""
        claims = decode_as(token, Account)
        if account and claims.sub != account:
            raise Refused("subject does not match jwt content")
        tenant = self._mode.believed(claims, token)
        wrong = [i.text for i in issues_of(claims, int(time.time())) if i.blocking]
        return tenant, f"validation errors: [{' '.join(wrong)}]" if wrong else ""

    async def _delete(self, reply: bytes, token: str) -> None:
        claims = Other()
        try:
            claims = await self._in_thread(lambda: decode_as(token, Other))
            names = self._deletable(claims)
        except (TokenError, Refused) as error:
            what = f"delete accounts request by {claims.sub} failed"
            self._fail(reply, "", what, str(error))
            return
        directory = self._directory
        if directory is None:
            return
        failed = []
        for name in names:
            try:
                there_was = await self._in_thread(partial(directory.delete, name))
            except NotStored as error:
                failed.append(str(error))
            else:
                if there_was:
                    await self._tenants.remove(name)
        done = f"deleted {len(names) - len(failed)} accounts"
        if failed:
            self._fail(reply, "", f"{done}, failed for {len(failed)}", "\n".join(failed))
        else:
            self._succeed(reply, "", done)

    def _deletable(self, claims: Other) -> list[str]:
        """The accounts that an operator wants to be deleted; Refused."""
        if not self._deletes:
            raise Refused("delete must be enabled in server config")
        if claims.sub != claims.iss:
            raise Refused("not self signed")
        if not self._mode.trusts(claims.iss):
            raise Refused("not trusted")
        wrong = refusal(issues_of(claims, int(time.time())))
        if wrong:
            raise Refused(wrong)
        names = claims.nats.get("accounts")
        if not isinstance(names, list):
            raise Refused("malformed request")
        for name in names:
            if not isinstance(name, str) or not is_key(name, PREFIX_ACCOUNT):
                raise Refused("malformed request")
            if name == self._system_account:
                raise Refused("not allowed to delete system account")
        return names

    # ---- questions

    async def _look_up(self, reply: bytes, account: str, directory: Directory) -> None:
        try:
            token = await self._in_thread(lambda: directory.fetch(account))
        except NotFound:
            token = ""
        self._system.publish(reply, b"", b"", token.encode())

    async def _pack(self, reply: bytes, digest: bytes, directory: Directory) -> None:
        """All tokens and an empty message behind them; that alone to a server with the same."""
        if digest != directory.digest:
            for name, token in await self._in_thread(directory.pack):
                self._system.publish(reply, b"", b"", f"{name}|{token}".encode())
        self._system.publish(reply, b"", b"", b"")

    # ---- answers

    def _succeed(self, reply: bytes, account: str, message: str) -> None:
        self._log.debug(f"{message} - {account}" if account else message)
        status = Status(account=account, code=200, message=message)
        self._say(reply, Outcome(server=self._info(), data=status))

    def _fail(self, reply: bytes, account: str, what: str, why: str) -> None:
        self._log.error(" - ".join(part for part in (what, account, why) if part))
        failed = Failed(account=account, description=f"{what} - {why}")
        self._say(reply, Outcome(server=self._info(), error=failed))

    def _say(self, reply: bytes, answer: msgspec.Struct) -> None:
        if reply:
            self._system.publish(reply, b"", b"", encoded(answer))

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)


def _keep_newer(directory: Directory, tenant: Tenant) -> bool:
    """Whether the account's token was newer than the one that was kept, and is kept now; NotStored.
    Of two of the same second the one stays that is there: two servers that took each other's would
    never agree."""
    try:
        if decode_as(directory.fetch(tenant.name), Account).iat >= tenant.claims.iat:
            return False
    except (NotFound, TokenError):
        pass  # there is none, or one that is worth nothing
    return directory.store(tenant.name, tenant.token)
