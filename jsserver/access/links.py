"""What accounts share, put into the data plane."""

from __future__ import annotations

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import ServiceLink, StreamLink
from jsserver.config.links import ServiceRoute, Sharing, StreamRoute

_FOREVER = (1 << 62) - 1
"""ns; a threshold that no reply passes."""


class Links:
    """The imports of a server's accounts, whose handles are those of `accounts`."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._exports: dict[tuple[str, str], int] = {}

    def apply(self, account: str, sharing: Sharing) -> None:
        """The account imports from now on what `sharing` says; the accounts it imports from are
        open."""
        self._accounts[account].link(
            [self._service(route) for route in sharing.services(account)],
            [self._stream(route) for route in sharing.streams(account)],
        )

    def _number(self, exporter: str, subject: str) -> int:
        """Of an export, in whatever order imports of it come."""
        return self._exports.setdefault((exporter, subject), len(self._exports))

    def _service(self, route: ServiceRoute) -> ServiceLink:
        export = route.export
        latency = None if export is None else export.latency
        as_asked = route.transform is None and route.subject == route.local
        is_pattern = as_asked and set(route.subject.split(".")) & {"*", ">"}
        return ServiceLink(
            exporter=self._accounts[route.exporter],
            local=_raw(route.local),
            subject=b"" if is_pattern or route.transform else _raw(route.subject),
            transform=None if route.transform is None else route.transform.compiled(),
            export=self._number(route.exporter, (route if export is None else export).subject),
            once=export is None or export.once,
            threshold=_FOREVER if export is None else export.threshold,
            share=route.share,
            latency=b"" if latency is None else _raw(latency.subject),
            sampling=0 if latency is None else latency.sampling,
        )

    def _stream(self, route: StreamRoute) -> StreamLink:
        return StreamLink(
            exporter=self._accounts[route.exporter],
            subject=_raw(route.subject),
            local=_raw(route.local),
            literal=route.literal,
            transform=None if route.transform is None else route.transform.compiled(),
            back=None if route.back is None else route.back.compiled(),
        )


def _raw(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")
