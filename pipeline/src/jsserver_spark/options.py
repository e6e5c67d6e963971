"""The options of both formats: their names, what they may be, and what they are when not given."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from jsserver_spark.errors import OptionError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

FENCE_BUCKET = "jsserver_spark_fence"

SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
"""What Spark itself reads from the options of a streaming write, and hands on with the others."""

REFUSED = {
    "pushdown": (
        "Spark keeps the filters of one query for the next query of the same table, which then"
        " misses rows: so none are taken. Name what to read by startingOffsets, startingTimestamp"
        " and filterSubjects"
    ),
    "provider": (
        "it comes from CREATE TABLE ... USING, and Spark gives a Python format no options when such"
        " a table is read: use CREATE TEMPORARY VIEW ... USING ... OPTIONS (...)"
    ),
    "kafka.bootstrap.servers": "name the servers by 'servers', as nats://host:4222",
    "assign": "streams have no partitions to choose from: name them by 'subscribe'",
    "groupidprefix": "no consumer group is made, a checkpoint is all that a query has",
    "kafka.group.id": "no consumer group is made, a checkpoint is all that a query has",
    "includetimestamp": "the column timestamp is always there",
}
"""Options that users know from elsewhere, and what to do instead."""

_T = TypeVar("_T", bound="Options")


# ---- what a value may be -----------------------------------------------------------------------


def text(value: str) -> str:
    return value


def texts(value: str) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def boolean(value: str) -> bool:
    lower = value.strip().lower()
    if lower not in ("true", "false"):
        raise ValueError("must be true or false")
    return lower == "true"


def count(low: int = 1, high: int = 1 << 62) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value) if re.fullmatch(r"\s*\d+\s*", value) else -1
        if not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return parse


def size(low: int = 1, high: int = 1 << 62) -> Callable[[str], int]:
    """Bytes: a number, or one with a unit such as 32MiB, 4m, 1g (powers of 1,024)."""

    def parse(value: str) -> int:
        found = _SIZE.fullmatch(value.strip())
        number = int(float(found[1]) * _UNITS.get(found[2].lower(), 1)) if found else -1
        if not low <= number <= high:
            raise ValueError(f"must be a size such as 32MiB, from {low} to {high} bytes")
        return number

    return parse


def seconds(value: str) -> float:
    """A duration: a number of seconds, or one with a unit such as 500ms, 5 min, 2h."""
    found = _DURATION.fullmatch(value.strip().lower())
    if not found:
        raise ValueError("must be a duration such as 30s, 500ms or 5m")
    unit = found[2] or "s"
    return float(found[1]) * (_SECONDS["ms"] if unit == "ms" else _SECONDS[unit[0]])


def one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        lower = {word.lower(): word for word in words}
        if value.strip().lower() not in lower:
            raise ValueError(f"must be {' or '.join(words)}")
        return lower[value.strip().lower()]

    return parse


# ---- declaring and reading them ----------------------------------------------------------------


def option(name: str, parse: Callable[[str], Any], default: Any = "", *, alias: str = "") -> Any:
    """A field of Options: `name` is what users write; `alias` another word for it."""
    return dataclasses.field(
        default=default, metadata={"name": name, "parse": parse, "alias": alias}
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given to one reader or writer, checked. Pickled into tasks."""

    @classmethod
    def read(cls: type[_T], given: Mapping[str, str], what: str) -> _T:
        """`what` stands in errors, such as "reading format nats". OptionError."""
        fields = {}
        for field in dataclasses.fields(cls):
            for name in (field.metadata["name"], field.metadata["alias"]):
                if name:
                    fields[name.lower()] = (name, field)
        values: dict[str, Any] = {}
        for key, value in given.items():
            if key.lower() in SPARKS_OWN:
                continue
            if key.lower() in REFUSED:
                raise OptionError(f"option {key!r} is not there: {REFUSED[key.lower()]}")
            if key.lower() not in fields:
                raise OptionError(f"unknown option {key!r} for {what}{_nearest(key, fields)}")
            name, field = fields[key.lower()]
            if field.name in values:
                raise OptionError(f"option {name!r} is given twice, under two names")
            try:
                values[field.name] = field.metadata["parse"](str(value))
            except ValueError as error:
                raise OptionError(f"option {name!r} is {value!r}: {error}") from None
        made = cls(**values)
        made.check()
        return made

    def check(self) -> None:
        """Raises OptionError where options do not go together."""

    def given(self, name: str) -> bool:
        """Whether the option of that name has another value than its default."""
        for field in dataclasses.fields(self):
            if field.metadata["name"] == name:
                return bool(getattr(self, field.name) != field.default)
        raise KeyError(name)


def _nearest(key: str, fields: Mapping[str, tuple[str, Any]]) -> str:
    close = difflib.get_close_matches(key.lower(), fields, 1)
    return f"; did you mean {fields[close[0]][0]!r}?" if close else ""


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(Options):
    """How a server is reached."""

    servers: tuple[str, ...] = option("servers", texts, ("nats://127.0.0.1:4222",))
    user: str = option("user", text)
    password: str = option("password", text)
    token: str = option("token", text)
    credentials_file: str = option("credentialsFile", text)
    credentials: str = option("credentials", text)
    nkey_seed_file: str = option("nkeySeedFile", text)
    tls_ca_file: str = option("tls.caFile", text)
    tls_cert_file: str = option("tls.certFile", text)
    tls_key_file: str = option("tls.keyFile", text)
    tls_verify: bool = option("tls.verify", boolean, True)
    connect_timeout: float = option("connectTimeout", seconds, 5.0)
    request_timeout: float = option("requestTimeout", seconds, 10.0)
    js_domain: str = option("jsDomain", text)
    api_prefix: str = option("apiPrefix", text)

    def check(self) -> None:
        ways = {
            "user": self.user,
            "token": self.token,
            "credentialsFile": self.credentials_file,
            "credentials": self.credentials,
            "nkeySeedFile": self.nkey_seed_file,
        }
        chosen = [name for name, value in ways.items() if value]
        if len(chosen) > 1:
            raise OptionError(f"options {' and '.join(map(repr, chosen))} exclude each other")
        if self.js_domain and self.api_prefix:
            raise OptionError("options 'jsDomain' and 'apiPrefix' exclude each other")
        if self.tls_key_file and not self.tls_cert_file:
            raise OptionError("option 'tls.keyFile' needs 'tls.certFile'")

    def __repr__(self) -> str:
        """Without secrets: this ends up in logs."""
        return f"{type(self).__name__}(servers={','.join(self.servers)!r}, ...)"


@dataclass(frozen=True, kw_only=True)
class RowOptions(Options):
    """What a row holds and how large batches are, for every format that is read."""

    filter_subjects: tuple[str, ...] = option("filterSubjects", texts, ())
    include_headers: bool = option("includeHeaders", boolean, False)
    headers_format: str = option("headersFormat", one_of("map", "array", "raw"), "map")
    include_data: bool = option("includeData", boolean, True)
    include_nanos: bool = option("includeNanos", boolean, False)
    columns: tuple[str, ...] = option("columns", texts, ())
    schema_mode: str = option("schemaMode", one_of("nats", "kafka"), "nats")
    partition_token: int = option("partitionToken", count(1, 64), 0)
    batch_rows: int = option("batchRows", count(1, 1 << 20), 10_000)
    fetch_bytes: int = option("fetchBytes", size(1 << 10, 64 << 20), 4 << 20)
    split_bytes: int = option("splitBytes", size(1 << 16), 32 << 20)
    min_partitions: int = option("minPartitions", count(1, 100_000), 1)
    fail_on_data_loss: bool = option("failOnDataLoss", boolean, True)


@dataclass(frozen=True, kw_only=True, repr=False)
class SourceOptions(RowOptions, ConnectionOptions):
    """Reading format `nats`."""

    stream: str = option("stream", text)
    streams: tuple[str, ...] = option("streams", texts, (), alias="subscribe")
    stream_pattern: str = option("streamPattern", text, alias="subscribePattern")
    starting_offsets: str = option("startingOffsets", text)
    ending_offsets: str = option("endingOffsets", text)
    starting_timestamp: str = option("startingTimestamp", text)
    ending_timestamp: str = option("endingTimestamp", text)
    starting_offsets_by_timestamp: str = option("startingOffsetsByTimestamp", text)
    ending_offsets_by_timestamp: str = option("endingOffsetsByTimestamp", text)
    timestamp_strategy: str = option(
        "startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error"
    )
    max_offsets_per_trigger: int = option("maxOffsetsPerTrigger", count(), 0)
    max_bytes_per_trigger: int = option("maxBytesPerTrigger", size(), 0)
    min_offsets_per_trigger: int = option("minOffsetsPerTrigger", count(), 0)
    max_trigger_delay: float = option("maxTriggerDelay", seconds, 900.0)
    archive_path: str = option("archivePath", text)

    def check(self) -> None:
        super().check()
        given = [bool(self.stream), bool(self.streams), bool(self.stream_pattern)]
        if sum(given) != 1:
            raise OptionError(
                "name what to read by exactly one of the options 'stream', 'streams' and"
                " 'streamPattern'"
            )
        for one, other, reason in (
            ("startingOffsets", "startingTimestamp", ""),
            ("endingOffsets", "endingTimestamp", ""),
            ("maxOffsetsPerTrigger", "maxBytesPerTrigger", ": Spark takes one limit"),
        ):
            if self.given(one) and self.given(other):
                raise OptionError(f"options {one!r} and {other!r} exclude each other{reason}")


@dataclass(frozen=True, kw_only=True, repr=False)
class SinkOptions(ConnectionOptions):
    """Writing format `nats`."""

    subject: str = option("subject", text)
    stream: str = option("stream", text)
    sink_id: str = option("sinkId", text)
    run_id: str = option("runId", text)
    id_column: tuple[str, ...] = option("idColumn", texts, ())
    max_inflight: int = option("maxInflight", count(1, 1 << 20), 4096)
    max_inflight_bytes: int = option("maxInflightBytes", size(1 << 10), 8 << 20)
    ack_timeout: float = option("ackTimeout", seconds, 10.0)
    retries: int = option("retries", count(0, 100), 5)
    min_dedup_window: float = option("minDedupWindow", seconds, 600.0)
    fence: bool = option("fence", boolean, True)
    fence_bucket: str = option("fenceBucket", text, FENCE_BUCKET)
    atomic: bool = option("atomic", boolean, False)
    allow_purge: bool = option("allowPurge", boolean, False)


@dataclass(frozen=True, kw_only=True)
class StoreOptions(RowOptions):
    """Reading format `nats-store`."""

    path: str = option("path", text)
    account: str = option("account", text, "$G")
    stream: str = option("stream", text)
    mode: str = option("mode", one_of("FAILFAST", "PERMISSIVE"), "FAILFAST")
    encryption_key_file: str = option("encryptionKeyFile", text)
    starting_offsets: str = option("startingOffsets", text)
    ending_offsets: str = option("endingOffsets", text)
    starting_timestamp: str = option("startingTimestamp", text)
    ending_timestamp: str = option("endingTimestamp", text)

    def check(self) -> None:
        super().check()
        if not self.path:
            raise OptionError(
                "option 'path' is missing: a store directory, a stream's directory or a backup"
            )
