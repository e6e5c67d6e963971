"""The streams a sink writes to, and whether they remember message ids for long enough."""

import math
import re

import pyarrow as pa
import pyarrow.compute as pc

from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import Patient, StreamInfo
from jsserver_spark.options import SinkOptions
from jsserver_spark.text.goformat import SECOND
from jsserver_spark.write.refusals import NoStream


class Targets:
    """Streams are looked up as rows for them come; every one of them is checked once."""

    def __init__(self, server: Patient, options: SinkOptions) -> None:
        self._server = server
        self._options = options
        self._names: set[str] = set()
        self._filters: list[str] = []
        self._window = math.inf
        self.replicas = 1
        """As many as the stream has that has most, of those known so far."""

    @property
    def window(self) -> float:
        """Seconds for which every stream remembers ids, whichever of them rows go to."""
        return max(self._options.min_dedup_window, self._window if self._names else 0)

    def check_stream(self, name: str) -> None:
        """NatsError when the stream does not exist or forgets ids too early."""
        if name not in self._names:
            self._check(self._server.ask(lambda js: js.stream_info(name)))

    def check_subject(self, subject: str) -> None:
        answer = self._server.ask(lambda js: js.api("STREAM.NAMES", {"subject": subject}))
        names = answer.get("streams") or []
        if not names:
            raise NoStream(f"no stream takes the subject {subject!r}", 0, -1, subject)
        for name in names:
            self.check_stream(name)

    def check_rows(self, rows: pa.RecordBatch, default_subject: str) -> None:
        """The streams that the rows name or whose subjects they have."""
        if "stream" in rows.schema.names:
            for name in pc.unique(rows.column("stream")).drop_null().to_pylist():
                self.check_stream(_text(name))
        elif "subject" in rows.schema.names:
            column = rows.column("subject")
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            subjects = pc.unique(column.cast(pa.large_binary()))  # they need not be UTF-8
            if subjects.null_count and default_subject:
                subjects = pa.concat_arrays([subjects, pa.array([default_subject], subjects.type)])
            subjects = subjects.drop_null()
            while len(unknown := self._unknown(subjects)):
                self.check_subject(_text(unknown[0].as_py()))
                subjects = unknown[1:]

    def _unknown(self, subjects: pa.Array) -> pa.Array:
        for pattern in self._filters:
            if len(subjects):
                matched = pc.match_substring_regex(subjects, pattern)
                subjects = subjects.filter(pc.invert(matched))
        return subjects

    def _check(self, info: StreamInfo) -> None:
        window = info.config.duplicate_window / SECOND
        least = self._options.min_dedup_window
        if window < least:
            raise NatsError(
                f"stream {info.name!r} forgets message ids after {window:g} s (duplicate_window),"
                f" less than the {least:g} s of the option minDedupWindow: rows written again later"
                " would be stored twice. Raise the stream's duplicate_window, for example with"
                f" `nats stream edit {info.name} --dupe-window={least:g}s`, or lower the option"
            )
        self._names.add(info.name)
        self.replicas = max(self.replicas, info.config.num_replicas)
        self._window = min(self._window, window)
        self._filters += [_regex(subject) for subject in info.config.subjects]


def _regex(subject: str) -> str:
    """A pattern of the subjects that a filter with wildcards takes."""
    tokens = [
        "[^.]+" if token == "*" else ".+" if token == ">" else re.escape(token)
        for token in subject.split(".")
    ]
    return f"^{'[.]'.join(tokens)}$"


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
