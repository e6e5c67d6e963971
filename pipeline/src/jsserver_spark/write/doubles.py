"""Rows that a stream dropped as duplicates, against what it holds under their ids."""

import logging

from jsserver_spark.cext.columns import Double
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.options import SinkOptions
from jsserver_spark.write.refusals import PublishError

log = logging.getLogger(__name__)

_COUNTER = b"Nats-Incr:"
"""A counter's message holds a sum, not what was published."""


class OtherRow(PublishError):
    """A row's id is that of another row, which the stream holds."""


class Doubles:
    """Looks at some of the rows that were dropped.

    `strict`: ids were made of where rows come from, so another row under the same id is lost. Ids
    that a column brings are the user's word, and payloads may have a clock in them.
    """

    def __init__(self, options: SinkOptions, name: str, *, strict: bool) -> None:
        self._options = options
        self._name = name
        self._strict = strict
        self._done = False

    def check(self, doubles: list[Double]) -> None:
        """OtherRow; NatsError when the server cannot be asked."""
        if not doubles or self._done:
            return
        api = JetStream(self._options, self._name)
        try:
            for double in doubles:
                self._check(api, double)
        except NatsError as error:
            if error.passes or isinstance(error, OtherRow):
                raise
            log.warning("rows that were dropped as duplicates are not compared: %s", error)
            self._done = True
        finally:
            api.close()

    def _check(self, api: JetStream, double: Double) -> None:
        stored = api.message_at(double.stream, double.seq)
        if stored is None or _COUNTER in stored.header:
            return
        if len(stored.data) == double.size and stored.data.startswith(double.start):
            return
        what = (
            f"row {double.row} was dropped as a duplicate of message {double.seq} of stream"
            f" {double.stream!r}, which holds another payload"
        )
        if not self._strict:
            log.warning("%s under the same id", what)
            self._done = True
            return
        raise OtherRow(
            f"{what}: rows come otherwise than they did when that was written, or another write has"
            " the same ids. Give rows ids of their own by the option idColumn",
            0,
            double.row,
        )
