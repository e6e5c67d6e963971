"""Reads the `exports` and `imports` of an account. What of them may be, `links.py` says."""

from __future__ import annotations

import re
from functools import partial

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Value
from jsserver.config.options import (
    Account,
    Latency,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from jsserver.config.values import (
    OptionError,
    Problems,
    as_bool,
    as_int,
    as_text,
    only_off,
    type_name,
)
from jsserver.text.goformat import parse_duration, quote

if TYPE_CHECKING:
    from typing import Any

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_SAMPLING = 100
BAD_SAMPLING = "bad sampling percentage, should be 1-100"
_ON_STREAM = "Detected {} directive on non-service"
_trace = only_off("message tracing across accounts (allow_trace)")


class _Item:
    """One entry of a list of exports or imports: its fields by name, in any letter case."""

    def __init__(self, value: Value, kind: str, known: set[str], problems: Problems) -> None:
        if not isinstance(value.data, dict):
            got = type_name(value)
            raise OptionError(value, f"{kind} Items should be a map with type entry, got {got}")
        self.fields: dict[str, Value] = {}
        self.problems = problems
        for key, entry in value.data.items():
            if key.lower() in known:
                self.fields[key.lower()] = entry
            elif not entry.used:
                problems.error(entry, f'unknown field "{key}"')

    def get(self, *names: str) -> Value | None:
        return next((self.fields[name] for name in names if name in self.fields), None)

    def either(self, say: str) -> bool:
        """Whether it is a stream and not a service."""
        stream, service = self.get("stream"), self.get("service")
        if stream is not None and service is not None:
            raise OptionError(service, say)
        return stream is not None


# ---- exports


_RESPONSE = ("response", "response_type")
_THRESHOLD = ("threshold", "response_threshold", "response_max_time", "response_time")
_EXPORT = {
    *("stream", "service", "accounts", "latency", "account_token_position", "allow_trace"),
    *_RESPONSE,
    *_THRESHOLD,
}


def _subject(value: Value, what: str) -> str:
    if not isinstance(value.data, str):
        raise OptionError(value, f"Expected {what} name to be string, got {type_name(value)}")
    return value.data


def _accounts(value: Value | None) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value.data, list):
        got = type_name(value)
        raise OptionError(
            value, f"interface conversion: interface {{}} is {got}, not []interface {{}}"
        )
    return [as_text(entry) for entry in value.data] or None


def _is_once(value: Value) -> bool:
    if not isinstance(value.data, str):
        raise OptionError(value, f"Expected response type to be string, got {type_name(value)}")
    kind = value.data.lower()
    if kind not in ("single", "singleton", "stream", "chunk", "chunked"):
        raise OptionError(value, f"Unknown response type: {quote(value.data)}")
    return kind in ("single", "singleton")


def _threshold(value: Value) -> int:
    expected = "Expected response threshold to be a parseable time duration, got "
    if not isinstance(value.data, str):
        raise OptionError(value, expected + type_name(value))
    try:
        return parse_duration(value.data)
    except ValueError:
        raise OptionError(value, expected + quote(value.data)) from None


def _sampling(value: Value) -> int:
    number = value.data
    if isinstance(number, str):
        if number.strip().lower() == "headers":
            return 0
        text = number.removesuffix("%")
        if not _NUMBER.fullmatch(text):
            why = f"strconv.Atoi: parsing {quote(text)}: invalid syntax"
            raise OptionError(value, f"Failed to parse latency sample: {why}")
        number = int(text)
    if type(number) is not int:
        got = type_name(value)
        raise OptionError(value, f"Expected latency sample to be a string or map/struct, got {got}")
    if not 1 <= number <= _MAX_SAMPLING:
        raise OptionError(value, BAD_SAMPLING)
    return number


def _latency(value: Value) -> Latency:
    if isinstance(value.data, str):
        return Latency(subject=value.data)
    if not isinstance(value.data, dict):
        got = type_name(value)
        raise OptionError(value, f"Expected latency entry to be a map/struct or string, got {got}")
    latency = Latency()
    sampling, subject = value.data.get("sampling"), value.data.get("subject")
    if sampling is not None:
        latency.sampling = _sampling(sampling)
    if subject is None:
        raise OptionError(value, "Latency subject required, but missing")
    if not isinstance(subject.data, str):
        raise OptionError(subject, "Expected latency subject to be a string, got string")
    latency.subject = subject.data
    return latency


def _read_export(account: Account, value: Value, problems: Problems) -> None:
    item = _Item(value, "Export", _EXPORT, problems)
    response, threshold = item.get(*_RESPONSE), item.get(*_THRESHOLD)
    latency, trace = item.get("latency"), item.get("allow_trace")
    position = item.get("account_token_position")
    stream, service = item.get("stream"), item.get("service")
    common: dict[str, Any] = {
        "accounts": _accounts(item.get("accounts")),
        "token_position": 0 if position is None else as_int(position),
    }
    if stream is not None and service is not None:
        shown = quote(as_text(service))
        raise OptionError(service, f"Detected service {shown} but already saw a stream")
    if stream is not None:
        for given, name in ((response, "response"), (threshold, "response")):
            if given is not None:
                raise OptionError(given, _ON_STREAM.format(name))
        for given, name in ((latency, "latency"), (trace, "allow_trace")):
            if given is not None:
                raise OptionError(given, _ON_STREAM.format(name))
        account.stream_exports.append(StreamExport(subject=_subject(stream, "stream"), **common))
    elif service is not None:
        export = ServiceExport(subject=_subject(service, "service"), **common)
        if response is not None:
            export.once = _is_once(response)
        if threshold is not None:
            export.threshold = _threshold(threshold) or export.threshold
        if latency is not None:
            export.latency = _latency(latency)
        if trace is not None:
            _trace(account, trace, problems)
        account.service_exports.append(export)


# ---- imports


_IMPORT = {"stream", "service", "prefix", "to", "share", "allow_trace"}


def _source(value: Value, what: str, problems: Problems) -> dict[str, str]:
    """Account and subject of what is imported."""
    if not isinstance(value.data, dict):
        got = type_name(value)
        raise OptionError(value, f"{what} entry should be an account map, got {got}")
    found = {"account": "", "subject": ""}
    for key, entry in value.data.items():
        if key.lower() in found:
            found[key.lower()] = as_text(entry)
        elif not entry.used:
            problems.error(entry, f'unknown field "{key}"')
    if not all(found.values()):
        raise OptionError(value, "Expect an account name and a subject")
    return found


def _read_import(
    taken: dict[tuple[str, str], ServiceImport],
    account: Account,
    value: Value,
    problems: Problems,
) -> None:
    """`taken`: the services that are imported already, by exporter and local subject."""
    item = _Item(value, "Import", _IMPORT, problems)
    stream, service = item.get("stream"), item.get("service")
    prefix, to, trace = item.get("prefix"), item.get("to"), item.get("allow_trace")
    share = item.get("share")
    named = "" if to is None else as_text(to)
    before = "" if prefix is None else as_text(prefix)
    shared = share is not None and as_bool(share)
    if item.either("Detected service but already saw a stream") and stream is not None:
        source = _source(stream, "Stream", problems)
        if before and to is not None:
            raise OptionError(to, "Stream import can not have a 'prefix' and a 'to' property")
        if trace is not None:
            _trace(account, trace, problems)
        account.stream_imports.append(StreamImport(to=named, prefix=before, **source))
    elif service is not None:
        if trace is not None:
            raise OptionError(trace, "Detected allow_trace directive on a non-stream")
        one = ServiceImport(to=named, share=shared, **_source(service, "Service", problems))
        other = taken.setdefault((one.account, one.to or one.subject), one)
        if other is not one:
            raise OptionError(value, "D" + duplicate(one.to or one.subject, other)[1:])
        account.service_imports.append(one)


def duplicate(to: str, other: ServiceImport) -> str:
    """What is said of a second import under the same subject."""
    return (
        f"duplicate service import subject {quote(to)}, previously used in import for account "
        f"{quote(other.account)}, subject {quote(other.subject)}"
    )


def _read_each(read: Any, what: str, account: Account, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, list):
        raise OptionError(value, f"{what} should be an array, got {type_name(value)}")
    for entry in value.data:
        try:
            read(account, entry, problems)
        except OptionError as error:
            problems.error(error.value, str(error))


def read_exports(account: Account, value: Value, problems: Problems) -> None:
    """Reads a list of exports into the account."""
    _read_each(_read_export, "Exports", account, value, problems)


def read_imports(account: Account, value: Value, problems: Problems) -> None:
    """Reads a list of imports into the account."""
    taken = {(i.account, i.to or i.subject): i for i in account.service_imports}
    _read_each(partial(_read_import, taken), "Imports", account, value, problems)
