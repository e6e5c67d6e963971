"""Reading a range of a stream from a live server, whatever happens to the connection meanwhile."""

import itertools
import logging
import time
from collections.abc import Iterator

import pyarrow as pa

from jsserver.cext.bytes import subjects_overlap
from jsserver.cext.columns import ReplyError
from jsserver.connection import ConnectionFailed
from jsserver.spark.answers import Interrupted
from jsserver.spark.errors import NatsError
from jsserver.spark.fetch_consumer import ConsumerReader
from jsserver.spark.fetch_direct import DirectReader
from jsserver.spark.fetch_range import Range
from jsserver.spark.jetstream import PATIENCE_SECONDS, JetStream
from jsserver.spark.options import SourceOptions
from jsserver.spark.schema import Table, table_of

RETRY_SECONDS = 30.0
"""How long a read may get nowhere before it fails."""
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 2.0
HEADERS_ONLY_BYTES = 1024
"""Message size from which leaving payloads at the server is worth a consumer."""

log = logging.getLogger(__name__)


def fetch(
    options: SourceOptions,
    stream: str,
    first: int,
    last: int,
    table: Table | None = None,
    created: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Rows with first <= seq <= last in order of seq, as `table` or what the options ask for.

    Over a connection of its own; after a lost one it goes on behind the last row. `created`, where
    given, is the stream's: one of the same name that was made later is another one.
    NatsError; DataLossError when rows that were there at planning are gone.
    """
    wanted = Range(options, table or table_of(options), stream, first, last, created)
    patience = _Patience()
    while wanted.done < last:
        try:
            for batch in _attempt(wanted, patience):
                patience.progress()
                yield batch
        except (ConnectionFailed, Interrupted, NatsError, ReplyError) as error:
            patience.wait(error)
        finally:
            wanted.close()


def _attempt(wanted: Range, patience: "_Patience") -> Iterator[pa.RecordBatch]:
    api = JetStream(wanted.options, "jsserver-spark-read")
    try:
        wanted.open(api.stream_info(wanted.stream))
        patience.started = True
        yield from _reader(api, wanted).read()
    finally:
        api.close()


def _reader(api: JetStream, wanted: Range) -> DirectReader | ConsumerReader:
    config, filters = wanted.info.config, wanted.filters
    state = wanted.info.state
    several = len(filters) > 1
    if not config.allow_direct:
        if config.retention != "limits":
            raise NatsError(
                f"stream {wanted.stream!r} has retention {config.retention!r}: reading it through a"
                " consumer would remove messages. Set its allow_direct, and it is read without one"
            )
        return ConsumerReader(api, wanted)
    if config.retention != "limits":
        return DirectReader(api, wanted, filters if several else ())
    apart = not any(subjects_overlap(a, b) for a, b in itertools.combinations(filters, 2))
    heavy = state.bytes >= HEADERS_ONLY_BYTES * max(state.messages, 1)
    if (several and apart) or ("data" not in wanted.table.sources and heavy):
        return ConsumerReader(api, wanted)
    return DirectReader(api, wanted, filters if several else ())


class _Patience:
    """How long one tries without getting anywhere."""

    def __init__(self) -> None:
        self.started = False
        """The stream was there: a server that is away from now on is likely to come back."""
        self.progress()

    def progress(self) -> None:
        self._since = 0.0
        self._pause = PAUSE_SECONDS

    def wait(self, error: Exception) -> None:
        """Raises what no patience helps against, and what lasted too long, as NatsError."""
        if isinstance(error, NatsError):
            if not error.passes:
                raise error from None
        elif not isinstance(error, ConnectionFailed | Interrupted):
            raise NatsError(str(error)) from None
        now = time.monotonic()
        self._since = self._since or now
        seconds = RETRY_SECONDS if self.started else PATIENCE_SECONDS
        if now - self._since > seconds:
            raise NatsError(f"{error} (tried for {seconds:g} s)") from None
        log.warning("%s; trying again", error)
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
