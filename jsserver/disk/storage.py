"""Where JetStream keeps its data, and how much it may keep: opened before any stream is."""

from __future__ import annotations

import os

from jsserver import API_LEVEL, TYPE_CHECKING
from jsserver.config.jetstreams import AUTOMATIC
from jsserver.config.options import AssetLimits, Options
from jsserver.disk.ballast import Ballast
from jsserver.disk.storedir import (
    WITHIN,
    StoreDir,
    StoreDirError,
    free,
    is_within_store,
    memory_of_machine,
)
from jsserver.process.logs import Logger
from jsserver.text.goformat import byte_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsserver.cext.engine import DataPlane
    from jsserver.disk.keys import Keys


def limits_of(options: Options, directory: str | os.PathLike[str]) -> tuple[int, int]:
    """Bytes of memory, and of the directory's file system, that streams may take; OSError."""
    js = options.jetstream
    memory = memory_of_machine() // 4 * 3 if js.max_memory == AUTOMATIC else js.max_memory
    store = free(directory) // 4 * 3 if js.max_store == AUTOMATIC else js.max_store
    return memory, store


def keys_of(options: Options) -> Keys | None:
    """What streams on disk are encrypted with; None: nothing."""
    js = options.jetstream
    if not js.key:
        return None
    from jsserver.disk.keys import Keys  # with OpenSSL, which else only TLS needs

    return Keys(js.key.encode(), js.prev_key.encode(), js.cipher)


class Storage:
    """The store directory of a server with its ballast, and the limits in bytes."""

    def __init__(self, options: Options, plane: DataPlane, log: Logger) -> None:
        """Takes the directory and gives the data plane what it needs; StoreDirError."""
        js = options.jetstream
        self._plane = plane
        self._configured = options.store_dir
        self.directory = StoreDir(options.store_dir, options.port)
        self.domain = js.domain
        self._cipher = {"chacha": "ChaCha20-Poly1305", "aes": "AES-GCM"}[js.cipher]
        self.ballast = Ballast(self.directory.path)
        try:
            self.ballast.make()
        except OSError as e:
            log.warn(f"No room for a ballast in {self.directory.path}: {e.strerror}")
        self.max_memory, self.max_store = limits_of(options, self.directory.path)
        self.keys = keys_of(options)
        try:
            rounds, files, size, damaged, outdated = plane.open_store(
                sync_interval=js.sync_interval or 0,
                domain=js.domain.encode(),
                max_memory=self.max_memory,
                max_storage=self.max_store,
                max_payload=options.max_payload,
                ballast=os.fsencode(self.ballast.path),
                directory=os.fsencode(self.directory.path),
                files=self.keys.files() if self.keys is not None else None,
            )
        except OSError as e:
            raise StoreDirError(f"{self.directory.path}: {e.strerror}") from e
        if outdated:
            log.warn(
                f"Left {rounds} rounds of the journal in {self.directory.path} out: nats-server"
                " has started on the directory since they were written"
            )
        elif rounds:
            log.info(f"Brought the journal into {files} files: {rounds} rounds, {size} bytes")
        if damaged:
            log.warn(f"A part of the journal in {self.directory.path} could not be read")

    def limit(self, max_memory: int, max_store: int) -> None:
        """How many bytes the streams of all accounts may hold from now on."""
        self.max_memory, self.max_store = max_memory, max_store
        self._plane.limit_store(max_memory, max_store)

    @staticmethod
    def lacks(accounts: Iterable[AssetLimits], max_memory: int, max_store: int) -> str:
        """What there would not be enough of, with these maxima, for what accounts are granted; "":
        nothing."""
        granted = list(accounts)
        for what, code, wanted, there_is in (
            ("memory", 10028, [a.max_memory for a in granted], max_memory),
            ("storage", 10047, [a.max_store for a in granted], max_store),
        ):
            if there_is >= 0 and sum(max(limit, 0) for limit in wanted) > there_is:
                return f"insufficient {what} resources available ({code})"
        return ""

    def announce(self, log: Logger) -> None:
        """Says what JetStream has."""
        log.info("Starting JetStream")
        if self.directory.temporary:
            log.warn("Temporary storage directory used, data could be lost on system reboot")
        if is_within_store(self._configured):
            log.warn(WITHIN.format(self._configured))
        log.info("---------------- JETSTREAM ----------------")
        log.info(f"  Max Memory:      {byte_size(self.max_memory)}")
        log.info(f"  Max Storage:     {byte_size(self.max_store)}")
        log.info(f'  Store Directory: "{self.directory.path}"')
        if self.keys is not None:
            log.info(f"  Encryption:      {self._cipher}")
        if self.domain:
            log.info(f"  Domain:          {self.domain}")
        log.info(f"  API Level:       {API_LEVEL}")
        log.info("-------------------------------------------")

    def accounts(self) -> list[str]:
        """The names of the folders of accounts that there are."""
        try:
            with os.scandir(self.directory.path) as entries:
                names = (entry.name for entry in entries if entry.is_dir())
                return sorted(name for name in names if not name.startswith(".jsserver"))
        except OSError:
            return []

    def holds_streams(self, account: str) -> bool:
        """Whether there is anything of the account's to recover."""
        try:
            with os.scandir(os.path.join(self.directory.path, account, "streams")) as entries:
                return any(entries)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # The recovery will say what is wrong.
