"""Reading a range of a stream from a live server, whatever happens to the connection meanwhile."""

import itertools
import logging
from collections.abc import Iterator

import pyarrow as pa

from jsserver_spark.cext.bytes import subjects_overlap
from jsserver_spark.cext.columns import ReplyError
from jsserver_spark.client.connection import ConnectionFailed
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream, failure
from jsserver_spark.live.answers import Misdirected
from jsserver_spark.live.fetch_consumer import ConsumerReader
from jsserver_spark.live.fetch_direct import DirectReader
from jsserver_spark.live.fetch_range import Range
from jsserver_spark.live.fetch_single import SingleReader
from jsserver_spark.options import SourceOptions
from jsserver_spark.patience import AWAY_SECONDS, Patience
from jsserver_spark.schema import Table, table_of

RETRY_SECONDS = 30.0
"""How long a read that began may get nowhere before it fails."""
HEADERS_ONLY_BYTES = 1024
"""Message size from which leaving payloads at the server is worth a consumer."""
ALL_SHARE = 1 / 32
"""Of a stream's messages: where several filters choose more, all are read, and those taken from
them. nats-server picks a message for a consumer with many filters at the cost of dozens."""
ALL_BYTES = 1024
"""Messages of so many bytes cost twice as much to read as small ones."""

log = logging.getLogger(__name__)


def fetch(
    options: SourceOptions,
    stream: str,
    first: int,
    last: int,
    table: Table | None = None,
    created: int = 0,
    earliest: bool = False,
    own: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Rows with first <= seq <= last in order of seq, as `table` or what the options ask for.

    Over a connection of its own; after a lost one it goes on behind the last row. `created`, where
    given, is the stream's: one of the same name that was made later is another one. `earliest`:
    what retention removes before it is read was not asked for. `own`: the stream itself is asked
    for each row, and no direct get, which its replicas and mirrors answer.
    NatsError; DataLossError when rows that were there at planning are gone.
    """
    wanted = Range(options, table or table_of(options), stream, first, last, created, earliest)
    wanted.own = own
    patience = Patience(AWAY_SECONDS)
    while wanted.done < last:
        try:
            for batch in _attempt(wanted, patience):
                patience.progress()
                yield batch
        except ConnectionFailed as error:
            patience.wait(failure(error))
        except NatsError as error:
            patience.wait(error)
        except ReplyError as error:
            raise NatsError(str(error)) from None
        finally:
            wanted.close()


def _attempt(wanted: Range, patience: Patience) -> Iterator[pa.RecordBatch]:
    api = JetStream(wanted.options, "jsserver-spark-read")
    try:
        wanted.open(api.stream_info(wanted.stream))
        patience.seconds = RETRY_SECONDS  # it was there, and is likely to come back
        try:
            yield from _reader(api, wanted).read()
            return
        except Misdirected as error:
            log.warning("%s, as a mirror of it does; reading on from the stream itself", error)
            wanted.own = True
    finally:
        api.close()
    api = JetStream(wanted.options, "jsserver-spark-read")  # answers are under way on the other one
    try:
        yield from _reader(api, wanted).read()
    finally:
        api.close()


def _reader(api: JetStream, wanted: Range) -> DirectReader | ConsumerReader | SingleReader:
    config, filters = wanted.info.config, wanted.filters
    several = len(filters) > 1
    if wanted.own and config.retention != "limits":
        return SingleReader(api, wanted)  # through a consumer, reading would remove messages
    if not config.allow_direct and config.retention != "limits":
        raise NatsError(
            f"stream {wanted.stream!r} has retention {config.retention!r}: reading it through a"
            " consumer would remove messages. Set its allow_direct, and it is read without one"
        )
    if wanted.own or not config.allow_direct:
        return ConsumerReader(api, wanted)
    if config.retention != "limits":
        return DirectReader(api, wanted, filters if several else ())
    apart = not any(subjects_overlap(a, b) for a, b in itertools.combinations(filters, 2))
    heavy = wanted.mean_bytes >= HEADERS_ONLY_BYTES
    if "data" not in wanted.table.sources and heavy:
        return ConsumerReader(api, wanted)
    if several and apart:
        consumer = ConsumerReader(api, wanted)
        if consumer.share() <= ALL_SHARE * (1 + wanted.mean_bytes / ALL_BYTES):
            return consumer
        consumer.delete()
    return DirectReader(api, wanted, filters if several else ())
