"""What the formats ask a server for: streams, their states and messages, and a key-value bucket."""

import base64
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import msgspec

from jsserver_spark.client.connection import Connection, ConnectionFailed, Message, Refused
from jsserver_spark.client.credentials import (
    Credentials,
    CredentialsError,
    Tls,
    parse_credentials,
    read_credentials_file,
    read_seed_file,
)
from jsserver_spark.errors import NatsError
from jsserver_spark.options import FENCE_BUCKET, ConnectionOptions
from jsserver_spark.patience import AWAY_SECONDS, Patience
from jsserver_spark.text.goformat import SECOND, parse_rfc3339

FENCE = "finished batches of sinks of jsserver spark"
"""The description of a fence's bucket, whatever its name."""
API_PREFIX = "$JS.API"
NO_SUCH_STREAM = 10059
NOT_FOUND = 10037
"""No message found."""
WRONG_LAST_SEQUENCE = 10071
_PASSING_CODES = frozenset((10008, 10009, 10014))
"""JetStream is temporarily unavailable, not the leader, consumer not found: it may go later."""

_T = TypeVar("_T")


class ApiError(NatsError):
    """The server refused a request; `code` is its err_code."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text, code)
        self.code = code
        self.passes = code in _PASSING_CODES

    def __str__(self) -> str:
        return str(self.args[0])


class Unreachable(NatsError):
    """The server could not be reached or did not answer."""

    passes = True


class StreamState(msgspec.Struct, frozen=True):
    """Counts of a stream at one instant; an empty stream's first_seq is its last_seq + 1."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    num_deleted: int = 0


class StreamConfig(msgspec.Struct, frozen=True):
    """What the formats must know of a stream's configuration; `raw` in StreamInfo has all of it."""

    name: str
    subjects: tuple[str, ...] = ()
    retention: str = "limits"
    allow_direct: bool = False
    allow_msg_ttl: bool = False
    duplicate_window: int = 0
    """Nanoseconds."""

    description: str = ""
    num_replicas: int = 1
    max_msgs_per_subject: int = -1


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream's identity is its name and `created`, nanoseconds since 1970."""

    config: StreamConfig
    state: StreamState
    created: int
    raw: dict[str, Any]
    """The answer as it came."""

    @property
    def name(self) -> str:
        return self.config.name


class Stored(msgspec.Struct, frozen=True):
    """A message as its stream's leader shows it; `ts` in ns since 1970."""

    seq: int
    ts: int
    subject: str
    header: bytes
    data: bytes


class Entry(msgspec.Struct, frozen=True):
    """A key's value in a bucket, and the revision to name when it is replaced."""

    value: bytes
    revision: int


def connect(options: ConnectionOptions, name: str) -> Connection:
    """A connection as the options say; `name` is shown by the server.

    Unreachable; NatsError when the server, or what is to log in, refuses.
    """
    try:
        return Connection(
            options.servers,
            name=name,
            credentials=_credentials(options),
            tls=Tls(
                options.tls_ca_file,
                options.tls_cert_file,
                options.tls_key_file,
                options.tls_verify,
            ),
            connect_timeout=options.connect_timeout,
            timeout=options.request_timeout,
        )
    except (Refused, CredentialsError) as error:
        raise NatsError(f"{error}{_advice(str(error))}") from None
    except ConnectionFailed as error:
        raise Unreachable(f"{error}{_advice(str(error))}") from None


def failure(error: ConnectionFailed) -> NatsError:
    """What a user hears of it: a permission that is denied stays denied, all else may pass."""
    if isinstance(error, Refused) and "permissions violation" in str(error).lower():
        return NatsError(f"{error}: this user has to be allowed to")
    advice = ""
    if "nobody answers" in str(error):
        advice = " (is JetStream on? see the options jsDomain and apiPrefix)"
    return Unreachable(f"{error}{advice}")


def _credentials(options: ConnectionOptions) -> Credentials:
    if options.credentials_file:
        return read_credentials_file(options.credentials_file)
    if options.credentials:
        return parse_credentials(options.credentials, "option 'credentials'")
    if options.nkey_seed_file:
        return read_seed_file(options.nkey_seed_file)
    return Credentials(user=options.user, password=options.password, token=options.token)


def _advice(error: str) -> str:
    """Which option to change, where that can be told."""
    if "Authorization Violation" in error or "Authentication" in error:
        return " (see the options user, password, token, credentialsFile and nkeySeedFile)"
    if "EOF occurred" in error or "_REQUIRED" in error:
        return " (the server may want a client's certificate: options tls.certFile and tls.keyFile)"
    if "TLS" in error or "certificate" in error:
        return " (see the options tls.caFile, tls.certFile, tls.keyFile and tls.verify)"
    if "cannot connect" in error:
        return " (see the option servers)"
    return ""


class JetStream:
    """The JetStream API over one connection. NatsError, or ApiError with the server's err_code."""

    def __init__(self, options: ConnectionOptions, name: str = "jsserver-spark") -> None:
        self.connection = connect(options, name)
        self.prefix = api_prefix(options)

    def close(self) -> None:
        self.connection.close()

    def request(self, subject: str, body: bytes = b"", header: bytes = b"") -> Message:
        try:
            return self.connection.request(subject, body, header)
        except ConnectionFailed as error:
            raise failure(error) from None

    def api(self, verb: str, body: object = None) -> dict[str, Any]:
        """One API request, `verb` without the prefix; ApiError when it is refused."""
        payload = msgspec.json.encode(body) if body is not None else b""
        answer: dict[str, Any] = msgspec.json.decode(
            self.request(f"{self.prefix}.{verb}", payload).data
        )
        if "error" in answer:
            error = answer["error"]
            text = f"{verb}: {error.get('description')} ({error.get('err_code')})"
            raise ApiError(text, error.get("err_code", 0))
        return answer

    # ---- streams -------------------------------------------------------------------------------

    def stream_info(self, name: str) -> StreamInfo:
        """NatsError names the stream when there is none."""
        try:
            return _info(self.api(f"STREAM.INFO.{name}"))
        except ApiError as error:
            if error.code == NO_SUCH_STREAM:
                raise ApiError(
                    f"there is no stream {name!r} (see the options stream, streams and servers)",
                    error.code,
                ) from None
            raise

    def stream_infos(self) -> Iterator[StreamInfo]:
        """All of them, one request a page."""
        offset = 0
        while True:
            answer = self.api("STREAM.LIST", {"offset": offset})
            found = answer.get("streams") or []
            yield from map(_info, found)
            offset += len(found)
            if not found or offset >= answer["total"]:
                return

    def message_from(self, stream: str, seq: int, subject: str = ">") -> Stored | None:
        """The first message at or behind `seq` on a subject, from the stream's leader."""
        return self._message(stream, {"seq": seq, "next_by_subj": subject})

    def message_at(self, stream: str, seq: int) -> Stored | None:
        """The message of that sequence, from the stream's leader."""
        return self._message(stream, {"seq": seq})

    def _message(self, stream: str, body: dict[str, object]) -> Stored | None:
        try:
            found = self.api(f"STREAM.MSG.GET.{stream}", body)["message"]
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return Stored(
            int(found["seq"]),
            parse_rfc3339(found["time"]),
            found["subject"],
            base64.b64decode(found.get("hdrs", "")),
            base64.b64decode(found.get("data", "")),
        )

    # ---- a bucket (ADR-8) ----------------------------------------------------------------------

    def bucket_ensure(self, bucket: str, replicas: int) -> None:
        """Makes the bucket of a fence unless it is there."""
        self.api(
            f"STREAM.CREATE.KV_{bucket}",
            {
                "name": f"KV_{bucket}",
                "subjects": [f"$KV.{bucket}.>"],
                "max_msgs_per_subject": 1,
                "discard": "new",
                "deny_delete": True,
                "allow_rollup_hdrs": True,
                "allow_direct": True,
                "storage": "file",
                "description": FENCE,
                "num_replicas": replicas,
                "duplicate_window": 120 * SECOND,
                "max_age": 0,
                "max_bytes": -1,
                "max_msgs": -1,
                "max_consumers": -1,
                "max_msg_size": -1,
                "retention": "limits",
            },
        )

    def bucket_get(self, bucket: str, key: str) -> Entry | None:
        try:
            found = self.api(
                f"STREAM.MSG.GET.KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.{key}"}
            )["message"]
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return Entry(base64.b64decode(found.get("data", "")), int(found["seq"]))

    def bucket_put(self, bucket: str, key: str, value: bytes, revision: int) -> int | None:
        """Replaces what stands at `revision` (0: nothing); None when another writer was faster."""
        header = f"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {revision}\r\n\r\n".encode()
        subject = f"$KV.{bucket}.{key}"
        if self.prefix != API_PREFIX:
            subject = f"{self.prefix}.{subject}"  # there, and not into a bucket of that name here
        answer = msgspec.json.decode(self.request(subject, value, header).data)
        error = answer.get("error")
        if error is None:
            return int(answer["seq"])
        if error.get("err_code") == WRONG_LAST_SEQUENCE:
            return None
        text = f"bucket {bucket}: {error.get('description')} ({error.get('err_code')})"
        raise ApiError(text, error.get("err_code", 0))


def api_prefix(options: ConnectionOptions) -> str:
    if options.js_domain:
        return f"$JS.{options.js_domain}.API"
    return options.api_prefix.rstrip(".") or API_PREFIX


def is_fence(info: StreamInfo) -> bool:
    """Whether it is the bucket where sinks note their batches."""
    return info.name == f"KV_{FENCE_BUCKET}" or info.config.description == FENCE


def _info(answer: dict[str, Any]) -> StreamInfo:
    return StreamInfo(
        config=msgspec.convert(answer["config"], StreamConfig),
        state=msgspec.convert(answer["state"], StreamState),
        created=parse_rfc3339(answer["created"]),
        raw=answer,
    )


class Patient:
    """The JetStream API over a connection that is made when it is needed, and anew when it is lost.

    A context manager.
    """

    def __init__(self, options: ConnectionOptions, name: str) -> None:
        self._options = options
        self._name = name
        self._js: JetStream | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection until it is needed again."""
        if self._js is not None:
            self._js.close()
            self._js = None

    def ask_once(self, action: Callable[[JetStream], _T]) -> _T:
        """What `action` returns. NatsError."""
        try:
            if self._js is None:
                self._js = JetStream(self._options, self._name)
            return action(self._js)
        except NatsError as error:
            if error.passes:
                self.close()
            raise

    def ask(self, action: Callable[[JetStream], _T]) -> _T:
        """What `action` returns; repeated while the server is away, which it must bear.

        NatsError when the server stays away for AWAY_SECONDS.
        """
        patience = Patience(AWAY_SECONDS)
        while True:
            try:
                return self.ask_once(action)
            except NatsError as error:
                patience.wait(error)
