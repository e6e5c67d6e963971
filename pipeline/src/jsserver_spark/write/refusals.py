"""What a server says when it does not take a message, as errors that name row and subject."""

import re
from typing import Self

import msgspec

from jsserver_spark.errors import NatsError

_STATUS = re.compile(rb"NATS/\d\.\d +(\d{3}) *([^\r\n]*)")
_NO_RESPONDERS = 503


class PublishError(NatsError):
    """A row was not published. `code` is the server's err_code or 0; `row` counts from 0; `passes`:
    another try may go well."""

    def __init__(
        self, text: str, code: int = 0, row: int = -1, subject: str = "", passes: bool = False
    ) -> None:
        super().__init__(text, code, row, subject, passes)
        self.code = code
        self.row = row
        self.subject = subject
        self.passes = passes

    def __str__(self) -> str:
        return str(self.args[0])

    def reworded(self, text: str) -> Self:
        return type(self)(text, self.code, self.row, self.subject, self.passes)


class BadRow(PublishError):
    """Its subject, headers or size cannot be sent."""


class NotAcked(PublishError):
    """No ack came in time, over all retries."""


class NoStream(PublishError):
    """No stream takes the subject."""


class StreamMismatch(PublishError):
    """Another stream than the expected one takes the subject."""


class WrongLastSequence(PublishError):
    """The stream or the subject was written to in between."""


class TooLarge(PublishError):
    """The stream takes no message of this size."""


class TtlRefused(PublishError):
    """The stream allows no TTL of a message, or it is none."""


class StreamFull(PublishError):
    """The stream's or the account's limits are reached."""


_KINDS: dict[int, tuple[type[PublishError], str]] = {
    10023: (StreamFull, "the account's resources are used up"),
    10028: (StreamFull, "the account's memory is used up"),
    10047: (StreamFull, "the account's storage is used up"),
    10054: (TooLarge, "see the stream's max_msg_size"),
    10060: (StreamMismatch, "see the option stream and the column stream"),
    10070: (WrongLastSequence, ""),
    10071: (WrongLastSequence, ""),
    10077: (StreamFull, "the stream discards new messages"),
    10097: (TooLarge, "headers take at most 64 KiB"),
    10164: (WrongLastSequence, ""),
    10165: (TtlRefused, "seconds, a duration such as 1h30m, or never"),
    10166: (TtlRefused, "set allow_msg_ttl in the stream's configuration"),
}

_PASSING = frozenset({10008, 10158, 10167})
"""JetStream is not available yet; the same id is in process; the stream is behind."""


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: _Error | None = None


def refusal(row: int, subject: str, said: bytes) -> PublishError:
    """The error that an answer to a row is."""
    at = f"row {row} (subject {subject!r})"
    if status := _STATUS.match(said):
        if int(status[1]) == _NO_RESPONDERS:
            text = f"{at}: no stream takes the subject, or JetStream is off"
            return NoStream(text, 0, row, subject, passes=True)
        text = f"{at}: {status[1].decode()} {status[2].decode(errors='replace')}"
        return PublishError(text, 0, row, subject)
    try:
        error = msgspec.json.decode(said, type=_Answer).error
    except msgspec.DecodeError:
        error = None
    if error is None:
        text = f"{at}: the answer is no stream's: {said[:200].decode(errors='replace')!r}"
        return NoStream(text, 0, row, subject)
    kind, advice = _KINDS.get(error.err_code, (PublishError, ""))
    text = f"{at}: {error.description} ({error.err_code})"
    if advice:
        text += f"; {advice}"
    return kind(text, error.err_code, row, subject, error.err_code in _PASSING)
