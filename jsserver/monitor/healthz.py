"""`/healthz`: whether the server, or one of its accounts, streams or consumers, is healthy."""

import contextlib
import logging
from collections.abc import Mapping

import msgspec

from jsserver.instances import damage
from jsserver.instances.account import Account
from jsserver.instances.backend import StoreError
from jsserver.instances.running import Consumer, Stream
from jsserver.monitor.query import Query, clean
from jsserver.monitor.sources import Server
from jsserver.text.goformat import quote
from jsserver.wire.types import Wire

log = logging.getLogger(__name__)


class HealthError(Wire):
    """One reason why the server is not healthy."""

    type: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    error: str = ""


class Healthz(Wire):
    """The page."""

    status: str
    error: str = ""
    errors: list[HealthError] = msgspec.field(default_factory=list)


class Verdict(msgspec.Struct):
    """The HTTP status, and the errors, which are empty for 200."""

    code: int
    errors: list[HealthError]


class Wanted(msgspec.Struct, kw_only=True):
    """The parameters of a request."""

    enabled: bool = False
    """The old name of `enabled_only`."""
    enabled_only: bool = False
    server_only: bool = False
    meta_only: bool = False
    details: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """From a query string; BadParameter."""
        enabled, enabled_only = query.flag("js-enabled"), query.flag("js-enabled-only")
        server_only = query.flag("js-server-only")
        meta_only = query.flag("js-meta-only")
        return cls(
            enabled=enabled,
            enabled_only=enabled_only,
            server_only=server_only,
            meta_only=meta_only,
            details=query.flag("details"),
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
        )

    def __post_init__(self) -> None:
        if self.enabled:
            log.warning("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
            self.enabled_only = True


def healthz(server: Server, wanted: Wanted) -> tuple[int, Healthz]:
    """HTTP status and page for a request."""
    verdict = _judge(server, wanted)
    if verdict.code == 200:
        return 200, Healthz(status="ok", errors=_damaged(server, wanted))
    first = verdict.errors[0].error
    log.warning("Healthcheck failed: %s", quote(first))
    if wanted.details:
        return verdict.code, Healthz(status="error", errors=verdict.errors)
    status = "error" if verdict.code in (400, 500) else "unavailable"
    return verdict.code, Healthz(status=status, error=first)


def _failed(code: int, type: str, error: str, **asked: str) -> Verdict:
    names = {kind: clean(name) for kind, name in asked.items()}
    return Verdict(code, [HealthError(type=type, error=error, **names)])


def _judge(server: Server, wanted: Wanted) -> Verdict:
    if wanted.stream and not wanted.account:
        text = '"account" must not be empty when checking stream health'
        return _failed(400, "BAD_REQUEST", text)
    if wanted.consumer and not wanted.stream:
        text = '"stream" must not be empty when checking consumer health'
        return _failed(400, "BAD_REQUEST", text)
    if not server.accepting:
        text = "failed to be ready for connections after 1ms: server"
        return _failed(500, "CONNECTION", text)
    if wanted.server_only or not server.options.jetstream.enabled:
        return Verdict(200, [])
    if server.jetstream is None:
        return _failed(503, "JETSTREAM", "JetStream not enabled (10076)")
    if wanted.enabled_only:
        return Verdict(200, [])
    if server.meta is not None and server.meta.trouble:
        return _failed(503, "JETSTREAM", server.meta.trouble)
    if server.meta is not None and wanted.meta_only:
        return Verdict(200, [])
    accounts = server.jetstream.dispatcher.accounts
    if not wanted.account:
        errors = [e for account in list(accounts.values()) for e in _unwell(server, account)]
        full = server.jetstream.dispatcher.shared.full
        if full:
            errors.append(HealthError(type="JETSTREAM", error=f"JetStream {full}"))
        return Verdict(503 if errors else 200, errors)
    account = accounts.get(wanted.account)
    assigned = None if server.meta is None else server.meta.holdings.assigned(wanted.account)
    if account is None or (assigned is not None and not assigned):
        text = f"JetStream account {quote(wanted.account)} not found"
        return _failed(404, "ACCOUNT", text, account=wanted.account)
    if not wanted.stream:
        errors = _unwell(server, account)
        return Verdict(503 if errors else 200, errors)
    if assigned is not None and wanted.stream in assigned:
        consumers = assigned[wanted.stream]
        if wanted.consumer:
            consumers = consumers & {wanted.consumer}
        if consumers or not wanted.consumer:
            errors = _not_current(account, {wanted.stream: consumers})
            if errors:
                return Verdict(503, errors)
    return _judge_stream(account, wanted)


def _judge_stream(account: Account, wanted: Wanted) -> Verdict:
    names = {"account": wanted.account, "stream": wanted.stream}
    if wanted.stream in account.offline:
        reason = account.offline[wanted.stream]
        return Verdict(503, [_stream_error(account.name, wanted.stream, reason)])
    stream = account.streams.get(wanted.stream)
    if stream is None:
        text = f"JetStream stream {quote(wanted.stream)} not found on account "
        return _failed(404, "STREAM", text + quote(wanted.account), **names)
    if stream.failing:
        return Verdict(503, [_failing(account.name, stream)])
    if not wanted.consumer:
        errors = [*_consumers_offline(account.name, stream)]
        return Verdict(503 if errors else 200, errors)
    if wanted.consumer in stream.offline:
        reason = stream.offline[wanted.consumer]
        return Verdict(503, [_consumer_error(account.name, stream.name, wanted.consumer, reason)])
    if wanted.consumer not in stream.consumers:
        text = (
            f"JetStream consumer {quote(wanted.consumer)} not found for stream "
            f"{quote(wanted.stream)} on account {quote(wanted.account)}"
        )
        return _failed(404, "CONSUMER", text, **names, consumer=wanted.consumer)
    return Verdict(200, [])


def _failing(account: str, stream: Stream) -> HealthError:
    text = f"JetStream stream '{account} > {stream.name}' {stream.failing}"
    return HealthError(type="STREAM", account=account, stream=stream.name, error=clean(text))


def _not_current(
    account: Account, assigned: Mapping[str, frozenset[str]]
) -> list[HealthError]:
    """Errors of assigned assets that are not healthy here. Where a stream is not, its consumers are
    not listed."""
    errors = []
    for name, consumers in assigned.items():
        stream = account.streams.get(name)
        why = _why(account.offline.get(name), stream, "stream not found")
        if why:
            errors.append(_lags(account.name, name, "", why))
        if stream is None:
            continue
        for consumer in sorted(consumers):
            running = stream.consumers.get(consumer)
            why = _why(stream.offline.get(consumer), running, "consumer not found")
            if why:
                errors.append(_lags(account.name, name, consumer, why))
    return errors


def _why(offline: str | None, running: Stream | Consumer | None, missing: str) -> str:
    """Why an asset is not healthy, "" where it is; offline assets are reported elsewhere."""
    if running is None:
        return "" if offline is not None else missing
    return "" if running.member is None else running.member.trouble()


def _lags(account: str, stream: str, consumer: str, why: str) -> HealthError:
    kind = "consumer" if consumer else "stream"
    which = " > ".join(filter(None, (account, stream, consumer)))
    text = f"JetStream {kind} '{which}' is not current: {why}"
    return HealthError(
        type=kind.upper(), account=account, stream=stream, consumer=consumer, error=clean(text)
    )


def _unwell(server: Server, account: Account) -> list[HealthError]:
    """Errors of an account: assets that could not be loaded or written, or are not current."""
    offline = list(account.offline.items())
    errors = [_stream_error(account.name, name, reason) for name, reason in offline]
    for stream in list(account.streams.values()):
        errors += _consumers_offline(account.name, stream)
        if stream.failing:
            errors.append(_failing(account.name, stream))
    if server.meta is not None:
        errors += _not_current(account, server.meta.holdings.assigned(account.name))
    return errors


def _damaged(server: Server, wanted: Wanted) -> list[HealthError]:
    """Warnings about damaged files, although the server is healthy."""
    if wanted.server_only or wanted.enabled_only or server.jetstream is None:
        return []
    errors = []
    for account in list(server.jetstream.dispatcher.accounts.values()):
        for stream in list(account.streams.values()):
            if wanted.account not in ("", account.name) or wanted.stream not in ("", stream.name):
                continue
            with contextlib.suppress(StoreError):
                what = damage.summary(stream.handle.lost())
                if what:
                    errors.append(_stream_damaged(account.name, stream.name, what))
                for name, consumer in list(stream.consumers.items()):
                    if wanted.consumer in ("", name) and consumer.damaged:
                        errors.append(_consumer_damaged(account.name, stream.name, name))
    return errors


def _stream_damaged(account: str, stream: str, what: str) -> HealthError:
    text = f"JetStream stream '{account} > {stream}' {what}"
    return HealthError(type="STREAM", account=account, stream=stream, error=clean(text))


def _consumers_offline(account: str, stream: Stream) -> list[HealthError]:
    offline = list(stream.offline.items())
    return [_consumer_error(account, stream.name, name, reason) for name, reason in offline]


def _consumer_damaged(account: str, stream: str, consumer: str) -> HealthError:
    text = f"JetStream consumer '{account} > {stream} > {consumer}' had a damaged state"
    return HealthError(
        type="CONSUMER", account=account, stream=stream, consumer=consumer, error=clean(text)
    )


def _stream_error(account: str, stream: str, reason: str) -> HealthError:
    text = f"JetStream stream '{account} > {stream}' could not be recovered: {reason}"
    return HealthError(type="STREAM", account=account, stream=stream, error=clean(text))


def _consumer_error(account: str, stream: str, consumer: str, reason: str) -> HealthError:
    which = f"{account} > {stream} > {consumer}"
    text = f"JetStream consumer '{which}' could not be recovered: {reason}"
    return HealthError(
        type="CONSUMER", account=account, stream=stream, consumer=consumer, error=clean(text)
    )
