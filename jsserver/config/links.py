"""What accounts may import of each other, and what becomes of the subjects.

`Sharing` is plain data: a reader of accounts, from a configuration or from tokens, tells it what
they export, then what they import; it refuses, with nats-server's words, what may not be. Where an
export wants a token, the reader says in the import that the token is good (`activated`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jsserver import TYPE_CHECKING
from jsserver.cext.bytes import (
    PatternIndex,
    subject_covers,
    subject_is_literal,
    subject_is_valid,
    subjects_overlap,
)
from jsserver.config.block import Block
from jsserver.config.options import (
    Account,
    Export,
    Import,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from jsserver.config.sharing import duplicate
from jsserver.text.goformat import quote
from jsserver.text.transforms import (
    Transform,
    TransformError,
    parse,
    reverse,
    with_places,
    with_wildcards,
)

if TYPE_CHECKING:
    from typing import Any

SEARCH_DEPTH = 1024
"""Accounts that a search for cycles goes through at most."""

_INVALID = "sublist: invalid subject"
_CYCLE = "import forms a cycle"
_TOO_DEEP = "search cycle depth exhausted"
_BAD_PUBLISH = "invalid publish subject"


class LinkError(Exception):
    """An export or import that may not be; the text says why."""


class ServiceRoute(Block):
    """A service import that may be: requests to `local` go to `subject` of the exporter, which is
    the local one where both are the same pattern, or made of it by `transform`."""

    exporter: str = ""
    local: str = ""
    subject: str = ""
    transform: Transform | None = None
    export: ServiceExport | None = None
    share: bool = False


class StreamRoute(Block):
    """A stream import that may be: what the exporter sends on `subject` is heard on `local`.
    `literal`: both are one subject. Else `transform` leads there and `back`, or they are named
    alike."""

    exporter: str = ""
    subject: str = ""
    local: str = ""
    literal: bool = False
    transform: Transform | None = None
    back: Transform | None = None


def api_elsewhere(system: str) -> ServiceRoute:
    """Of an account whose JetStream is on other servers of the cluster: requests go there by the
    system account."""
    api = "$JS.API.>"
    export = ServiceExport(subject=api)
    return ServiceRoute(exporter=system, local=api, subject=api, export=export, share=True)


class _Exports:
    """What an account exports of one kind, by subject, in the order in which it was said."""

    def __init__(self) -> None:
        self.by_subject: dict[str, Any] = {}
        self._patterns: list[str] = []
        self._index = PatternIndex()

    def add(self, export: Any) -> None:
        self.by_subject[export.subject] = export
        if not subject_is_literal(export.subject):
            self._patterns.append(export.subject)
            self._index.add([export.subject])

    def get(self, subject: str) -> Any:
        """The export by which a subject may be imported: of its very name, or the first that has
        it."""
        if (export := self.by_subject.get(subject)) is not None:
            return export
        found = self._index.first_covering(subject)
        return None if found is None else self.by_subject[self._patterns[found]]


class _Routes:
    """What an account imports of one kind, in order."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._literal: dict[str, list[Any]] = {}
        self._patterns: list[tuple[str, Any]] = []

    def add(self, route: Any, named: str) -> None:
        """`named`: the subjects by which the search for cycles comes upon it."""
        self.all.append(route)
        if subject_is_literal(named):
            self._literal.setdefault(named, []).append(route)
        else:
            self._patterns.append((named, route))

    def meeting(self, subject: str) -> Iterator[Any]:
        """Those of which a name has subjects in common with this one."""
        if subject_is_literal(subject):
            yield from self._literal.get(subject, ())
        else:
            for named, routes in self._literal.items():
                if subjects_overlap(subject, named):
                    yield from routes
        for named, route in self._patterns:
            if subjects_overlap(subject, named):
                yield route


class _Shared:
    """One account's."""

    def __init__(self) -> None:
        self.stream_exports = _Exports()
        self.service_exports = _Exports()
        self.streams = _Routes()
        self.services = _Routes()
        self.heard: set[tuple[str, str]] = set()
        """Exporters and subjects of the streams."""
        self.asked: dict[tuple[str, str], str] = {}
        """Subjects of the services, by exporter and local subject."""


def _approves(exports: _Exports, account: str, wanted: Import) -> bool:
    export = exports.get(wanted.subject) if subject_is_valid(wanted.subject) else None
    if export is None:
        return False
    if export.token_position:
        tokens = [] if wanted.subject in exports.by_subject else wanted.subject.split(".")
        at = export.token_position
        return 0 < at <= len(tokens) and bool(tokens[at - 1] == account)
    if export.needs_token:
        return wanted.activated
    return export.accounts is None or account in export.accounts


class Sharing:
    """What a set of accounts exports and imports. Exports come before the imports that use them."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Shared] = {}

    def _of(self, account: str) -> _Shared:
        shared = self._accounts.get(account)
        if shared is None:
            shared = self._accounts[account] = _Shared()
        return shared

    def services(self, account: str) -> Sequence[ServiceRoute]:
        """What it imports."""
        return self._of(account).services.all

    def streams(self, account: str) -> Sequence[StreamRoute]:
        """What it imports."""
        return self._of(account).streams.all

    def routes(self, account: str) -> list[ServiceRoute | StreamRoute]:
        """What it imports of both."""
        return [*self.services(account), *self.streams(account)]

    def stream_exports(self, account: str) -> Sequence[StreamExport]:
        """What others may hear of it."""
        return list(self._of(account).stream_exports.by_subject.values())

    def service_exports(self, account: str) -> Sequence[ServiceExport]:
        """What others may ask of it."""
        return list(self._of(account).service_exports.by_subject.values())

    # ---- exports

    def export_stream(self, account: str, export: StreamExport) -> None:
        """LinkError where the token is none of the subject's wildcards."""
        self._check_position(export)
        self._of(account).stream_exports.add(export)

    def export_service(self, account: str, export: ServiceExport) -> None:
        """As `export_stream`."""
        self._check_position(export)
        self._of(account).service_exports.add(export)

    def _check_position(self, export: Export) -> None:
        if at := export.token_position:
            tokens = export.subject.split(".")
            if not 0 < at <= len(tokens) or tokens[at - 1] != "*":
                raise LinkError(_INVALID)

    def check_latency(self, account: str, export: ServiceExport) -> None:
        """LinkError where reports about a service cannot be made, or would be about reports."""
        if export.latency is None:
            return
        subject = export.latency.subject
        exports = self._of(account).service_exports
        if not subject_is_valid(subject) or not subject_is_literal(subject):
            raise LinkError(_BAD_PUBLISH)
        if exports.get(subject) is not None:
            raise LinkError(_BAD_PUBLISH)
        if not export.once:
            raise LinkError("bad service response type")

    # ---- imports

    def import_stream(self, account: str, wanted: StreamImport) -> None:
        """LinkError where it may not hear that, or hears it already."""
        theirs = self._of(wanted.account)
        if not _approves(theirs.stream_exports, account, wanted):
            raise LinkError("stream import not authorized")
        subject, local = wanted.subject, wanted.to or wanted.subject
        if wanted.prefix:
            if not subject_is_literal(wanted.prefix):
                raise LinkError("stream import prefix can not contain wildcard tokens")
            local = f"{wanted.prefix.removesuffix('.')}.{subject}"
        for name in (local, subject):
            self._search(account, wanted.account, name, self._streams_like)
        route = StreamRoute(exporter=wanted.account, subject=subject, local=local)
        route.literal = subject_is_literal(subject)
        if not route.literal and local != subject:
            what = f"stream import subject from {quote(subject)} to {quote(local)}"
            try:
                route.transform = parse(subject, with_places(local), reversible=True)
                route.back = None if route.transform is None else reverse(route.transform)
            except TransformError as error:
                raise LinkError(f"failed to create mapping transform for {what}: {error}") from None
            route.local = with_wildcards(local)
        ours = self._of(account)
        if (wanted.account, subject) in ours.heard:
            raise LinkError("stream import already exists")
        ours.heard.add((wanted.account, subject))
        ours.streams.add(route, route.local)

    def import_service(self, account: str, wanted: ServiceImport) -> None:
        """LinkError where it may not ask that, or asks for it already."""
        theirs = self._of(wanted.account)
        subject, local = wanted.subject, wanted.to or wanted.subject
        if not subject_is_valid(local) or not subject_is_valid(subject):
            raise LinkError(_INVALID)
        if not _approves(theirs.service_exports, account, wanted):
            raise LinkError("service import not authorized")
        is_pattern = not subject_is_literal(subject)
        start = with_wildcards(local) if is_pattern else local
        self._search(account, wanted.account, start, self._services_like)
        ours = self._of(account)
        if (other := ours.asked.get((wanted.account, local))) is not None:
            raise LinkError(duplicate(local, ServiceImport(account=wanted.account, subject=other)))
        route = ServiceRoute(exporter=wanted.account, local=local, subject=subject)
        route.export = theirs.service_exports.get(subject)
        route.share = wanted.share
        if is_pattern and subject != local:
            route.subject = with_wildcards(subject)
            try:
                back = parse(route.subject, with_places(local), reversible=True)
                route.transform = None if back is None else reverse(back)
            except TransformError as error:
                what = f"service import subject from {quote(local)} to {quote(route.subject)}"
                raise LinkError(f"failed to create mapping transform for {what}: {error}") from None
            route.local = start
        ours.asked.setdefault((route.exporter, route.local), route.subject)
        ours.services.add(route, route.subject)

    # ---- cycles

    def _services_like(self, account: str, subject: str) -> Iterator[tuple[str, str]]:
        """Where a request goes on from an account: the next one, and the subject there."""
        for route in self._of(account).services.meeting(subject):
            local = route.local
            yield route.exporter, local if subject_covers(subject, local) else subject

    def _streams_like(self, account: str, subject: str) -> Iterator[tuple[str, str]]:
        """Where what an account exports comes from."""
        shared = self._of(account)
        if not shared.streams.all or shared.stream_exports.get(subject) is None:
            return
        for route in shared.streams.meeting(subject):
            local = route.local
            yield route.exporter, local if subject_covers(subject, local) else subject

    def _search(
        self,
        account: str,
        exporter: str,
        subject: str,
        following: Callable[[str, str], Iterator[tuple[str, str]]],
    ) -> None:
        """LinkError where imports lead from the exporter back to the account."""
        visited = {account}
        path = [(exporter, following(exporter, subject))]
        while path:
            at, ways = path[-1]
            way = next(ways, None)
            if way is None:
                path.pop()
                continue
            exporter, subject = way
            if exporter in visited:
                raise LinkError(_CYCLE)
            visited.add(at)
            if len(visited) >= SEARCH_DEPTH:
                raise LinkError(_TOO_DEEP)
            path.append((exporter, following(exporter, subject)))


def _failure(step: Callable[[str, Any], None], account: str, item: Any) -> str:
    """What is wrong with an export or import, that is else taken; "": nothing."""
    try:
        step(account, item)
    except LinkError as error:
        return str(error)
    return ""


def share(accounts: Sequence[Account], *, has_system: bool = True) -> tuple[Sharing, list[str]]:
    """What accounts of a configuration share, and what is wrong about it.

    `has_system`: there is a system account, without which no latency is reported.
    """
    sharing = Sharing()
    errors: list[str] = []
    names = {account.name for account in accounts}

    def take(kind: str, step: Callable[[str, Any], None], items: list[tuple[str, Any]]) -> None:
        for account, item in items:
            if isinstance(item, Import) and item.account not in names:
                errors.append(f"{quote(item.account)} account not defined for {kind}")
                continue
            for name in getattr(item, "accounts", None) or ():
                if name not in names:
                    errors.append(f"{quote(name)} account not defined for {kind}")
            if why := _failure(step, account, item):
                errors.append(f"Error adding {kind} {quote(item.subject)}: {why}")

    take(
        "stream export",
        sharing.export_stream,
        [(a.name, e) for a in accounts for e in a.stream_exports],
    )
    services = [(a.name, e) for a in accounts for e in a.service_exports]
    take("service export", sharing.export_service, services)
    for account, export in services:
        if export.latency is not None:
            what = f"Error adding service latency sampling for {quote(export.subject)}"
            if not has_system:
                errors.append(f"{what}: system account not setup")
            elif why := _failure(sharing.check_latency, account, export):
                errors.append(f"{what} on subject {quote(export.latency.subject)}: {why}")
    take(
        "stream import",
        sharing.import_stream,
        [(a.name, i) for a in accounts for i in a.stream_imports],
    )
    take(
        "service import",
        sharing.import_service,
        [(a.name, i) for a in accounts for i in a.service_imports],
    )
    return sharing, errors
