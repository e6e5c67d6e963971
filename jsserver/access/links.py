"""What accounts share, put into the data plane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import ServiceLink, StreamLink
from jsserver.config.links import ServiceRoute, StreamRoute

_FOREVER = (1 << 62) - 1
"""ns; a threshold that no reply passes."""

Route = ServiceRoute | StreamRoute
Imports = Mapping[tuple[object, ...], Route]
"""What an account is to import, in order, by what two imports are the same by."""
Wanted = Mapping[str, Imports]
"""What accounts are to import, by their names; those that are not named nothing."""


def keyed(routes: Iterable[Route]) -> Imports:
    """Routes as they can be compared with others."""
    return {_key(route): route for route in routes}


class Links:
    """The imports of a server's accounts, whose handles are those of `accounts`."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._exports: dict[tuple[str, str], int] = {}
        self._linked: dict[str, Imports] = {}
        """What each account imports."""

    def narrow(self, wanted: Wanted) -> None:
        """No account imports any more what is not wanted."""
        for name, imports in list(self._linked.items()):
            coming = wanted.get(name, {})
            if not imports.keys() <= coming.keys():
                self._link(name, {key: imports[key] for key in imports if key in coming})

    def follow(self, wanted: Wanted) -> None:
        """Accounts import from now on what is wanted, and those that they import from are open.

        What is taken away goes first, everywhere: no message passes by some of the imports that
        there were and some of those that come.
        """
        self.narrow(wanted)
        for name, imports in wanted.items():
            if list(imports) != list(self._linked.get(name, ())):
                self._link(name, imports)

    def follow_one(self, account: str, imports: Imports) -> None:
        """This account imports from now on what is wanted, and the others what they import."""
        if list(imports) != list(self._linked.get(account, ())):
            self._link(account, imports)

    def _link(self, account: str, imports: Imports) -> None:
        routes = imports.values()
        self._accounts[account].link(
            [self._service(route) for route in routes if isinstance(route, ServiceRoute)],
            [self._stream(route) for route in routes if isinstance(route, StreamRoute)],
        )
        if imports:
            self._linked[account] = imports
        else:
            self._linked.pop(account, None)

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


def _key(route: Route) -> tuple[object, ...]:
    """What two imports are the same by."""
    transform = route.transform
    common = (
        *(type(route), route.exporter, route.local, route.subject),
        None if transform is None else tuple(transform.parts),
    )
    if isinstance(route, StreamRoute):
        return common
    export = route.export
    latency = None if export is None else export.latency
    return (
        *common,
        route.share,
        None if export is None else (export.subject, export.once, export.threshold),
        None if latency is None else (latency.subject, latency.sampling),
    )


def _raw(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")
