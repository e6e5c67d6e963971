"""JetStream of a server: the API, and its connections with the data plane and the store
directory."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from jsserver.access.accounts import Accounts
from jsserver.access.clients import Connection, read_connection
from jsserver.api.advisories import ClientInfo
from jsserver.api.dispatch import Dispatcher
from jsserver.api.responder import Request
from jsserver.assets.limits import AccountLimits, ServerSettings
from jsserver.cext import engine
from jsserver.cext.bytes import hh64
from jsserver.cext.engine import Item
from jsserver.config.jetstreams import ObjectRequests
from jsserver.config.member import only_votes, served_accounts
from jsserver.config.options import GLOBAL_ACCOUNT, AssetLimits, Options
from jsserver.disk.storage import Storage
from jsserver.instances.account import Account
from jsserver.instances.backend import (
    AdvisoryKind,
    BatchAbandoned,
    ConsumerAdvisory,
    ConsumerGone,
    PauseOver,
    SourceBroken,
)
from jsserver.instances.mending import Mender
from jsserver.instances.shared import Shared
from jsserver.process.logs import Logger
from jsserver.text.goformat import duration, quote, rfc3339_nano
from jsserver.wire import errcodes


class LogBridge(logging.Handler):
    """Passes what modules log through `logging` on to the server's log."""

    def __init__(self, log: Logger) -> None:
        super().__init__(logging.INFO)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        if record.levelno >= logging.ERROR:
            self._log.error(text)
        elif record.levelno >= logging.WARNING:
            self._log.warn(text)
        else:
            self._log.info(text)


def limits_of(own: AssetLimits) -> AccountLimits:
    """An account's limits by the configuration."""
    return AccountLimits(
        max_memory=own.max_memory,
        max_storage=own.max_store,
        max_streams=own.max_streams,
        max_consumers=own.max_consumers,
        max_ack_pending=own.max_ack_pending,
        memory_max_stream_bytes=own.memory_max_stream_bytes,
        storage_max_stream_bytes=own.store_max_stream_bytes,
        max_bytes_required=own.max_bytes_required,
    )


TOGETHER = 64
"""Accounts after which other tasks get a turn."""


def _grant_of(limits: AccountLimits | None) -> tuple[int, int]:
    return (0, 0) if limits is None else (max(limits.max_memory, 0), max(limits.max_storage, 0))


class JetStream:
    """Recovers streams and consumers from disk, answers `$JS.API`, and closes everything again."""

    def __init__(
        self,
        options: Options,
        plane: engine.DataPlane,
        storage: Storage,
        accounts: Accounts,
        log: Logger,
        finished: Callable[[int, int], None],
        name: str,
        server_id: str,
    ) -> None:
        self.accounts = accounts
        self._limits = served_accounts(options)
        self._options = options
        self.store = storage.directory
        self.keys = storage.keys
        """Keys of an encrypted store; None: not encrypted."""
        self.max_memory = storage.max_memory
        self.max_store = storage.max_store
        js = options.jetstream
        self.settings = ServerSettings(
            server_name=name,
            server_id=server_id,
            domain=js.domain,
            strict=js.strict,
            max_memory=self.max_memory,
            max_storage=self.max_store,
            sync_interval=js.sync_interval or 0,
            duplicate_window=js.limits.duplicate_window,
            max_ack_pending=js.limits.max_ack_pending,
            max_request_batch=js.limits.max_request_batch,
            request_queue_limit=js.request_queue_limit,
            info_queue_limit=js.info_queue_limit or js.request_queue_limit,
        )
        self.shared = Shared(accounts, self.settings, hh64, keys=storage.keys)
        self.dispatcher = Dispatcher(
            self.shared, self.client_info, finished, options.system, Path(self.store.path)
        )
        if js.object_requests.enabled:
            self._answer_objects(js.object_requests, finished)
        self.mender = Mender(self.shared, storage.ballast.make, plane.has_room)
        self._connection = plane.connection
        self.complete: Callable[[Connection], None] = lambda _: None
        """Fills in who is behind an open connection."""
        plane.limit_batches(
            per_stream=js.limits.max_batch_inflight_per_stream,
            total=js.limits.max_batch_inflight_total,
            size=js.limits.max_batch_size,
            timeout=js.limits.batch_timeout,
        )
        self._of_cluster: dict[str, AccountLimits] = {}
        """Limits of operator mode's accounts in the JetStream of the whole cluster."""
        self._granted = (0, 0)
        self._grants: dict[str, tuple[int, int]] = {}
        """Granted bytes in memory and in files: to all accounts together, and by account."""
        self._left = False
        """Whether JetStream has ended here for good."""
        self._log = log
        logging.getLogger("jsserver").addHandler(LogBridge(log))

    def _answer_objects(
        self, options: ObjectRequests, finished: Callable[[int, int], None]
    ) -> None:
        # Imported late: few servers answer these.
        from jsserver.objects.service import Objects
        from jsserver.objects.uploads import Limits

        limits = Limits(options.max_uploads, options.upload_timeout)
        self.dispatcher.add(Objects(self.shared, self.dispatcher.accounts, limits, finished))

    async def start(self) -> None:
        """Recovers streams and consumers; requests are answered from then on."""
        began = time.monotonic_ns()
        for name, own in self._limits.items():
            await self._add(name, limits_of(own))
        streams = [s for a in self.dispatcher.accounts.values() for s in a.streams.values()]
        if streams:
            messages = sum(stream.handle.state().messages for stream in streams)
            took = duration((time.monotonic_ns() - began) // 10**6 * 10**6)
            self._log.info(f"Restored {len(streams)} streams with {messages} messages in {took}")

    async def follow(self, wanted: Mapping[str, AssetLimits]) -> None:
        """Gives the configured accounts JetStream with these limits, and takes it from all others,
        whose data stays on disk. The global account keeps it until the server stops, as with
        nats-server."""
        for number, name in enumerate([*self.dispatcher.accounts]):
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            if name not in wanted and name != GLOBAL_ACCOUNT:
                await self.configure(name, None)
        for number, (name, own) in enumerate(wanted.items()):
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            try:
                await self.configure(name, limits_of(own))
            except Exception as error:  # the other accounts are served all the same
                self._log.error(f"Error enabling jetstream on account {quote(name)}: {error}")

    def limits_in_cluster(self, account: str) -> AccountLimits | None:
        """An account's limits in the JetStream of the whole cluster; None: it has no JetStream."""
        if self._options.operators.enabled:
            return self._of_cluster.get(account)
        own = self._options.jetstream_accounts.get(account)
        return None if own is None else limits_of(own)

    def room(self) -> tuple[int, int]:
        """Free bytes in memory and in files, without reservations."""
        used = [account.handle.usage() for account in self.dispatcher.accounts.values()]
        reserved = self.shared.reserved
        return (
            self.max_memory - max(reserved.memory, sum(usage.memory for usage in used)),
            self.max_store - max(reserved.storage, sum(usage.storage for usage in used)),
        )

    def limit(self, max_memory: int, max_store: int) -> None:
        """Sets how many bytes the streams of all accounts may use."""
        self.max_memory = self.settings.max_memory = max_memory
        self.max_store = self.settings.max_storage = max_store

    async def _add(self, name: str, limits: AccountLimits) -> None:
        self._grant(name, limits)
        account = Account(name, self.shared, Path(self.store.path) / name, limits)
        account.on_unwritten = partial(self.mender.stream_unwritten, account)
        account.on_no_room = partial(self.mender.no_room, account)
        self.accounts[name].have_jetstream(True)
        await self.dispatcher.add_account(account)

    async def configure(self, name: str, limits: AccountLimits | None) -> None:
        """Gives a running account JetStream with limits, or takes it away (None); ApiError: the
        server lacks the granted room."""
        running = self.dispatcher.accounts.get(name)
        if limits is None:
            self._of_cluster.pop(name, None)
            if running is not None:
                self._grant(name, None)
                await self.dispatcher.remove_account(name)
                self.accounts[name].have_jetstream(False)
            return
        self._of_cluster[name] = limits
        if only_votes(self._options) or self._left:
            return
        memory, storage = self._granted_with(name, limits)
        if 0 <= self.max_memory < memory:
            raise errcodes.MEMORY_RESOURCES_EXCEEDED()
        if 0 <= self.max_store < storage:
            raise errcodes.STORAGE_RESOURCES_EXCEEDED()
        if running is None:
            await self._add(name, limits)
        elif running.limits != limits:
            self._grant(name, limits)
            running.limit(limits)

    async def leave(self) -> None:
        """Takes JetStream from all accounts until the server is started again; what they have stays
        on disk."""
        self._left = True
        for name in [*self.dispatcher.accounts]:
            await self.configure(name, None)

    def _granted_with(self, name: str, limits: AccountLimits | None) -> tuple[int, int]:
        """Bytes in memory and in files that all accounts are granted, if this one gets these
        limits."""
        memory, storage = self._granted
        before = self._grants.get(name, (0, 0))
        now = _grant_of(limits)
        return memory - before[0] + now[0], storage - before[1] + now[1]

    def _grant(self, name: str, limits: AccountLimits | None) -> None:
        self._granted = self._granted_with(name, limits)
        self._grants[name] = _grant_of(limits)

    def request(self, item: Item) -> None:
        _, cid, (account, cost), (subject, reply, headers, payload) = item
        self.dispatcher.submit(
            Request(
                account=self.accounts.name_of(account),
                subject=subject,
                reply=reply,
                headers=headers,
                payload=payload,
                connection=cid,
                cost=cost,
            )
        )

    def event(self, item: Item) -> None:
        """Takes an event of a stream or consumer."""
        kind, _, (account_id, *numbers), texts = item
        stream, consumer, more = (t.decode("utf-8", "surrogateescape") for t in texts)
        account = self.accounts.name_of(account_id)
        if kind == engine.INBOX_CONSUMER_GONE:
            self.dispatcher.on_event(
                ConsumerGone(account=account, stream=stream, consumer=consumer, id=numbers[0])
            )
        elif kind == engine.INBOX_PAUSE_OVER:
            self.dispatcher.on_event(PauseOver(account=account, stream=stream, consumer=consumer))
        elif kind == engine.INBOX_ADVISORY:
            self.dispatcher.on_event(
                ConsumerAdvisory(
                    account=account,
                    stream=stream,
                    consumer=consumer,
                    kind=AdvisoryKind(numbers[0]),
                    stream_seq=numbers[1],
                    consumer_seq=numbers[2],
                    deliveries=numbers[3],
                    ack_time=numbers[4],
                    reason=more,
                )
            )
        elif kind == engine.INBOX_BATCH_GONE:
            self.dispatcher.on_event(
                BatchAbandoned(
                    account=account,
                    stream=stream,
                    batch=texts[1].decode("utf-8", "replace"),
                    reason=more,
                )
            )
        elif kind == engine.INBOX_INTAKE:
            self.dispatcher.on_event(SourceBroken(account=account, stream=stream, id=numbers[0]))
        elif kind == engine.INBOX_STORE_ERROR:
            found = self.dispatcher.accounts.get(account)
            if found is not None:
                self.mender.stream_failed(found, stream, numbers[0])
        elif kind == engine.INBOX_DISK_FULL:
            self.dispatcher.advisories.out_of_storage()
            self.mender.disk_full(numbers[0])

    def connection_gone(self, cid: int) -> None:
        """A connection was closed."""
        self.dispatcher.connection_gone(cid)

    def client_info(self, cid: int) -> ClientInfo | None:
        """The connection behind a request, for the audit."""
        item = self._connection(cid)
        if item is None:
            return None
        c = read_connection(item)
        self.complete(c)
        return ClientInfo(
            start=rfc3339_nano(c.start),
            host=c.ip,
            id=cid,
            acc=self.accounts.name_of(c.account),
            user=c.user,
            name=c.name,
            lang=c.lang,
            ver=c.version,
            rtt=c.rtt,
            server=self.settings.server_name,
            issuer_key=c.issuer,
            name_tag=c.name_tag,
            tags=list(c.tags),
            kind="Client",
            client_type=c.type,
        )

    async def close(self) -> None:
        await self.mender.close()
        await self.dispatcher.close()
