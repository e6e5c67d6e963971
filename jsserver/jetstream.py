"""JetStream of one server: the store directory, the API and what ties them to the data plane."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

from jsserver import API_LEVEL
from jsserver.accounts import Accounts
from jsserver.api.advisories import ClientInfo
from jsserver.api.dispatch import Dispatcher, Request
from jsserver.assets.limits import AccountLimits, ServerSettings
from jsserver.ballast import Ballast
from jsserver.cext import engine
from jsserver.cext.bytes import hh64
from jsserver.cext.engine import Item
from jsserver.clients import read_connection
from jsserver.config.options import AUTOMATIC, Options
from jsserver.goformat import byte_size, rfc3339_nano
from jsserver.instances.account import Account
from jsserver.instances.backend import AdvisoryKind, ConsumerAdvisory, ConsumerGone, PauseOver
from jsserver.instances.mending import Mender
from jsserver.instances.shared import Shared
from jsserver.logs import Logger
from jsserver.storedir import StoreDir, memory_of_machine


class LogBridge(logging.Handler):
    """Takes what modules say through `logging` into the server's log."""

    def __init__(self, log: Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        if record.levelno >= logging.ERROR:
            self._log.error(text)
        elif record.levelno >= logging.WARNING:
            self._log.warn(text)
        elif record.levelno >= logging.INFO:
            self._log.info(text)


class JetStream:
    """Opens what is on disk, answers `$JS.API`, and closes everything again."""

    def __init__(
        self,
        options: Options,
        plane: engine.DataPlane,
        accounts: Accounts,
        log: Logger,
        finished: Callable[[int], None],
        name: str,
        server_id: str,
    ) -> None:
        self.options = options
        self.accounts = accounts
        self.log = log
        self.store = StoreDir(options.store_dir, options.port)
        self.ballast = Ballast(self.store.path)
        try:
            self.ballast.make()
        except OSError as e:
            log.warn(f"No room for a ballast in {self.store.path}: {e.strerror}")
        js = options.jetstream
        self.max_memory = js.max_memory
        if self.max_memory == AUTOMATIC:
            self.max_memory = memory_of_machine() // 4 * 3
        self.max_store = js.max_store
        if self.max_store == AUTOMATIC:
            self.max_store = self.store.free() // 4 * 3
        self.settings = ServerSettings(
            server_name=name,
            server_id=server_id,
            domain=js.domain,
            strict=js.strict,
            max_memory=self.max_memory,
            max_storage=self.max_store,
            duplicate_window=js.limits.duplicate_window,
            max_ack_pending=js.limits.max_ack_pending,
            max_request_batch=js.limits.max_request_batch,
            request_queue_limit=js.request_queue_limit,
            info_queue_limit=js.info_queue_limit or js.request_queue_limit,
        )
        plane.open_store(
            sync_interval=js.sync_interval or 0,
            domain=js.domain.encode(),
            max_memory=self.max_memory,
            max_storage=self.max_store,
            max_payload=options.max_payload,
            ballast=os.fsencode(self.ballast.path),
        )
        self.shared = Shared(accounts, self.settings, hh64)
        self.dispatcher = Dispatcher(self.shared, self.client_info, finished)
        self.mender = Mender(self.shared, self.ballast.make, plane.has_room)
        self._connection = plane.connection
        logging.getLogger("jsserver").addHandler(LogBridge(log))

    def banner(self) -> None:
        log = self.log
        log.info("Starting JetStream")
        if self.store.temporary:
            log.warn("Temporary storage directory used, data could be lost on system reboot")
        log.info("---------------- JETSTREAM ----------------")
        log.info(f"  Max Memory:      {byte_size(self.max_memory)}")
        log.info(f"  Max Storage:     {byte_size(self.max_store)}")
        log.info(f'  Store Directory: "{self.store.path}"')
        if self.settings.domain:
            log.info(f"  Domain:          {self.settings.domain}")
        log.info(f"  API Level:       {API_LEVEL}")
        log.info("-------------------------------------------")

    async def start(self) -> None:
        """Brings streams and consumers back into service, then takes requests."""
        for name, handle in self.accounts.items():
            account = Account(name, self.shared, self.store.path / name, AccountLimits())
            account.on_unwritten = partial(self.mender.stream_unwritten, account)
            await self.dispatcher.add_account(account)
            handle.serve_requests(b"$JS.API.>")
            if self.settings.domain:
                handle.serve_domain(self.settings.domain)

    def request(self, item: Item) -> None:
        _, cid, (account,), (subject, reply, headers, payload) = item
        self.dispatcher.submit(
            Request(
                account=self.accounts.name_of(account),
                subject=subject,
                reply=reply,
                headers=headers,
                payload=payload,
                connection=cid,
            )
        )

    def event(self, item: Item) -> None:
        """What streams and consumers report."""
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
        elif kind == engine.INBOX_STORE_ERROR:
            found = self.dispatcher.accounts.get(account)
            if found is not None:
                self.mender.stream_failed(found, stream, numbers[0])
        elif kind == engine.INBOX_DISK_FULL:
            self.mender.disk_full(numbers[0])

    def client_info(self, cid: int) -> ClientInfo | None:
        """The connection behind a request, for the audit."""
        item = self._connection(cid)
        if item is None:
            return None
        c = read_connection(item)
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
            kind="Client",
            client_type="nats",
        )

    async def close(self) -> None:
        await self.mender.close()
        await self.dispatcher.close()

    def close_store(self) -> None:
        """Lets go of the directory; after the commit thread ended."""
        self.store.close()
