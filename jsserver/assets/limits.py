"""What an account may use of JetStream and what it uses: limits, reservations, request counts."""

from collections.abc import Sequence

import msgspec

from jsserver.text.goformat import byte_size
from jsserver.wire import errcodes
from jsserver.wire.types import Int64, StreamConfig, Wire, always

from .patterns import PatternIndex


class AccountLimits(Wire):
    """Ceilings of an account; -1 is none. Its JSON is the `limits` of INFO."""

    max_memory: Int64 = always(-1)
    max_storage: Int64 = always(-1)
    max_streams: Int64 = always(-1)
    max_consumers: Int64 = always(-1)
    max_ack_pending: Int64 = always(-1)
    memory_max_stream_bytes: Int64 = always(-1)
    storage_max_stream_bytes: Int64 = always(-1)
    max_bytes_required: bool = always(False)
    tiers: dict[str, "AccountLimits"] = msgspec.field(default_factory=dict)
    """By how many replicas a stream has, `R1` and so on: where there are any, there are no other
    streams, and the limits beside them are those of one replica."""

    def most(self) -> tuple[int, int]:
        """Bytes of memory and of files that the copies of all streams may take on all servers; -1
        is no limit. Of tiers, as many as all of them may together."""
        if not self.tiers:
            return self.max_memory, self.max_storage
        memory = storage = 0
        for name, of in self.tiers.items():
            copies = int(name[1:]) if name[1:].isdecimal() else 1
            memory = -1 if memory < 0 or of.max_memory < 0 else memory + of.max_memory * copies
            storage = -1 if storage < 0 or of.max_storage < 0 else storage + of.max_storage * copies
        return memory, storage

    def check_tier(self, replicas: int) -> None:
        """Raises if streams with as many replicas are none of the account's."""
        if self.tiers and f"R{max(replicas, 1)}" not in self.tiers:
            raise errcodes.NO_LIMITS()


OF_TIERS = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)
"""What INFO shows where there are tiers, which have limits of their own."""


class ServerSettings(msgspec.Struct, kw_only=True):
    """What the configuration says about JetStream as a whole. 0 or -1: no limit. Only the maxima of
    bytes change while the server runs."""

    server_name: str
    server_id: str = ""
    domain: str = ""
    strict: bool = True
    max_memory: int = -1
    max_storage: int = -1
    duplicate_window: int = 0
    max_ack_pending: int = 0
    max_request_batch: int = 0
    sync_interval: int = 0
    """Nanoseconds; 0: what is answered is on disk."""
    request_queue_limit: int = 10_000
    """Requests waiting to be worked on; with one more, all of them are dropped unanswered."""
    info_queue_limit: int = 10_000


class Reservations:
    """Streams, consumers and bytes promised to the streams of an account, or of the server. Bytes
    are those of one replica, and of all."""

    __slots__ = ("all_memory", "all_storage", "consumers", "memory", "storage", "streams")

    def __init__(self) -> None:
        self.streams = 0
        self.consumers = 0
        self.memory = 0
        self.storage = 0
        self.all_memory = 0
        self.all_storage = 0

    def move(self, was: Sequence[StreamConfig], now: Sequence[StreamConfig]) -> None:
        """A stream had these configurations and has those. Of more than one, as long as it is
        open which will be, the most that any of them asks for is reserved; none is no stream."""
        for configs, sign in ((was, -1), (now, 1)):
            self.streams += sign * bool(configs)
            in_memory = [c for c in configs if c.storage == "memory"]
            in_files = [c for c in configs if c.storage == "file"]
            self.memory += sign * max(map(_bytes, in_memory), default=0)
            self.storage += sign * max(map(_bytes, in_files), default=0)
            self.all_memory += sign * max(map(_all_bytes, in_memory), default=0)
            self.all_storage += sign * max(map(_all_bytes, in_files), default=0)


def _copies(config: StreamConfig) -> int:
    """How many replicas a configuration asks for."""
    return max(config.num_replicas, 1)


def _bytes(config: StreamConfig) -> int:
    """What a configuration reserves, of each replica."""
    return max(config.max_bytes, 0)


def _all_bytes(config: StreamConfig) -> int:
    """What all replicas reserve."""
    return _bytes(config) * max(config.num_replicas, 1)


class RequestStats:
    """API requests of an account."""

    __slots__ = ("errors", "inflight", "total")

    def __init__(self) -> None:
        self.total = 0
        self.errors = 0
        self.inflight = 0


class Claims:
    """What the streams of an account have for themselves, and what they may have; `server` is what
    all accounts have reserved together."""

    __slots__ = ("_of_replicas", "limits", "reserved", "server", "settings", "subjects")

    def __init__(
        self, limits: AccountLimits, settings: ServerSettings, server: Reservations
    ) -> None:
        self.limits = limits
        self.settings = settings
        self.server = server
        self.reserved = Reservations()
        self.subjects = PatternIndex()
        self._of_replicas: dict[int, Reservations] = {}

    def reserve(self, was: Sequence[StreamConfig], now: Sequence[StreamConfig]) -> None:
        """As `Reservations.move`, of all that are concerned."""
        for reserved in (self.reserved, self.server):
            reserved.move(was, now)
        for replicas in {_copies(config) for config in (*was, *now)}:
            self.of_replicas(replicas).move(
                [config for config in was if _copies(config) == replicas],
                [config for config in now if _copies(config) == replicas],
            )

    def of_replicas(self, replicas: int) -> Reservations:
        """What the streams with as many replicas have; their consumers are not counted."""
        return self._of_replicas.setdefault(replicas, Reservations())

    def tier(self, config: StreamConfig) -> tuple[AccountLimits, Reservations]:
        """The limits of the tier that a stream is of, and what its streams have."""
        replicas = _copies(config)
        limits = self.limits.tiers.get(f"R{replicas}")
        return (self.limits, self.reserved) if limits is None else (
            limits,
            self.of_replicas(replicas),
        )

    def check_room(self, config: StreamConfig, old: StreamConfig | None) -> None:
        """Raises if the bytes that a stream reserves exceed what its account or the server has.

        `old` is the present configuration of the stream, whose reservation falls away."""
        limits, account = self.tier(config)
        server, settings = self.server, self.settings
        memory = config.storage == "memory"
        wanted = max(config.max_bytes, 1)
        if old is not None:
            wanted -= max(old.max_bytes, 0)
        tiered = bool(self.limits.tiers)  # then limits are of one replica, else of all
        more = max(config.max_bytes, 1) * (1 if tiered else max(config.num_replicas, 1))
        if old is not None:
            more -= _bytes(old) if tiered else _all_bytes(old)
        if memory:
            exceeded, option = errcodes.MEMORY_RESOURCES_EXCEEDED, "max_memory_store"
            of_account = limits.max_memory, account.memory if tiered else account.all_memory
            limit, reserved = settings.max_memory, server.memory
        else:
            exceeded, option = errcodes.STORAGE_RESOURCES_EXCEEDED, "max_file_store"
            of_account = limits.max_storage, account.storage if tiered else account.all_storage
            limit, reserved = settings.max_storage, server.storage
        if 0 <= of_account[0] < of_account[1] + more:
            raise exceeded()
        if 0 <= limit < reserved + wanted:
            error = exceeded()
            asked = max(config.max_bytes, 1)
            others = reserved + wanted - asked
            error.add_note(
                f"{option}: {byte_size(others)} of {byte_size(limit)} are reserved for other"
                f" streams, this one asks for {byte_size(asked)}"
            )
            raise error
