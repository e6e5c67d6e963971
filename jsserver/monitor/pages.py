"""From a request's path to its page, and from the page to the answer."""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from posixpath import normpath

import msgspec

from jsserver import NATS_VERSION, __version__, commit
from jsserver.monitor import (
    accountz,
    connz,
    gatewayz,
    healthz,
    insides,
    jsz,
    leafz,
    raftz,
    routez,
    subsz,
    varz,
)
from jsserver.monitor.closed import ClosedConnections
from jsserver.monitor.http import TEXT, Request, Response
from jsserver.monitor.process import ProcessUsage
from jsserver.monitor.query import BadParameter, Query
from jsserver.monitor.sources import Server
from jsserver.text.goformat import escape_json
from jsserver.wire.pieces import pieces

HTML = "text/html; charset=utf-8"
JSON = "application/json"
ANYWHERE = ("Access-Control-Allow-Origin", "*")
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")

LINKS = (
    ("varz", "General"),
    ("jsz", "JetStream"),
    ("connz", "Connections"),
    ("accountz", "Accounts"),
    ("accstatz", "Account statistics"),
    ("subsz", "Subscriptions"),
    ("routez", "Routes"),
    ("leafz", "Leafnodes"),
    ("gatewayz", "Gateways"),
    ("raftz", "Raft groups"),
    ("healthz", "Health"),
)

Page = Callable[[Query], Response]


class Pages:
    """Makes the answers, in the one monitoring thread; the health in one of its own."""

    def __init__(self, server: Server, closed: ClosedConnections) -> None:
        self._server = server
        self._closed = closed
        self._usage = ProcessUsage()
        self.requests: dict[str, int] = {}
        self._base = server.options.http_base_path.rstrip("/")
        self._pages: dict[str, Page] = {
            "/": self._index,
            "/varz": self._varz,
            "/connz": self._connz,
            "/subsz": self._subsz,
            "/subscriptionsz": self._subsz,
            "/jsz": self._jsz,
            "/healthz": self._healthz,
            "/routez": self._routez,
            "/gatewayz": self._gatewayz,
            "/leafz": self._leafz,
            "/accountz": self._accountz,
            "/accstatz": self._accstatz,
            "/raftz": self._raftz,
            "/stacksz": self._stacksz,
            "/ipqueuesz": self._ipqueuesz,
            "/debug/vars": self._debug_vars,
        }

    def answer(self, request: Request) -> Response:
        """The answer to a request, whatever its method."""
        if request.path == "*":
            return Response(content_type=TEXT)
        cleaned = _cleaned(request.path)
        if cleaned != request.path:
            return _redirect(cleaned, request.query)
        name = self._name(request.path)
        page = self._pages.get(name)
        if page is None:
            return Response(status=404, headers=(NO_SNIFFING,), body=b"404 page not found\n")
        self.requests[name] = self.requests.get(name, 0) + 1
        try:
            return page(Query(request.query))
        except (BadParameter, jsz.NotLeader) as error:
            return Response(status=400, body=str(error).encode("utf-8", "surrogateescape"))

    def urgent(self, request: Request) -> bool:
        """Whether it must be answered even while other pages take their time."""
        return self._name(request.path) == "/healthz"

    def _name(self, path: str) -> str:
        """The path below the base path; the base path itself, without a slash, is the root."""
        if not self._base:
            return path
        if path == self._base:
            return "/"
        below = path.removeprefix(self._base + "/")
        return "/" + below if below and below != path else ""

    # ---- pages

    def _index(self, query: Query) -> Response:
        import html  # half a megabyte of entities, for the two answers that are HTML

        base = html.escape(self._base)
        links = "\n".join(f'<li><a href="{base}/{p}">{name}</a> /{p}</li>' for p, name in LINKS)
        versions = f"jsserver v{__version__} {commit()}".rstrip()
        body = (
            '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
            f"<title>{html.escape(self._server.name)}</title></head>\n<body>\n"
            f"<h1>{html.escape(self._server.name)}</h1>\n<p>v{NATS_VERSION}</p>\n"
            f"<p>{versions}</p>\n"
            f"<ul>\n{links}\n</ul>\n</body>\n</html>\n"
        )
        return Response(content_type=HTML, body=body.encode("utf-8", "replace"))

    def _varz(self, query: Query) -> Response:
        return _pretty(varz.varz(self._server, self._usage, self.requests, time.time_ns()))

    def _connz(self, query: Query) -> Response:
        wanted = connz.Wanted.read(query)
        return _pretty(connz.connz(self._server, self._closed, wanted, time.time_ns()))

    def _subsz(self, query: Query) -> Response:
        return _pretty(subsz.subsz(self._server, subsz.Wanted.read(query), time.time_ns()))

    def _jsz(self, query: Query) -> Response:
        return _pretty(jsz.jsz(self._server, jsz.Wanted.read(query), time.time_ns()))

    def _healthz(self, query: Query) -> Response:
        status, page = healthz.healthz(self._server, healthz.Wanted.read(query))
        return _json(msgspec.json.encode(page), status)

    def _routez(self, query: Query) -> Response:
        return _pretty(routez.routez(self._server, routez.Wanted.read(query), time.time_ns()))

    def _gatewayz(self, query: Query) -> Response:
        wanted = gatewayz.Wanted.read(query)
        return _pretty(gatewayz.gatewayz(self._server, wanted, time.time_ns()))

    def _leafz(self, query: Query) -> Response:
        return _pretty(leafz.leafz(self._server, leafz.Wanted.read(query), time.time_ns()))

    def _accountz(self, query: Query) -> Response:
        return _pretty(accountz.accountz(self._server, query.text("acc"), time.time_ns()))

    def _accstatz(self, query: Query) -> Response:
        unused = query.flag("unused")
        return _pretty(accountz.accstatz(self._server, self._closed, unused, time.time_ns()))

    def _stacksz(self, query: Query) -> Response:
        """Where every thread of the control plane is. Those of the data plane run no Python."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [
            f"thread {names.get(ident, '?')}:\n" + "".join(traceback.format_stack(frame))
            for ident, frame in sys._current_frames().items()
        ]
        return Response(content_type=TEXT, body="\n".join(stacks).encode("utf-8", "replace"))

    def _ipqueuesz(self, query: Query) -> Response:
        everything, name = query.flag("all"), query.text("queues")
        page = insides.waiting(self._server.waiting(), everything=everything, name=name)
        return _json(msgspec.json.format(msgspec.json.encode(page), indent=3))

    def _debug_vars(self, query: Query) -> Response:
        return Response(
            content_type=JSON + "; charset=utf-8",
            body=insides.encoded(insides.debug_vars(self._usage)),
        )

    def _raftz(self, query: Query) -> Response:
        page = raftz.raftz(self._server, raftz.Wanted.read(query))
        if page is None:
            return Response(status=404, body=b"No Raft nodes registered")
        return _json(msgspec.json.format(msgspec.json.encode(page), indent=3))


def _pretty(page: msgspec.Struct) -> Response:
    body, *more = pieces(page, pretty=True)
    return Response(content_type=JSON, headers=(ANYWHERE,), body=body, more=more)


def _json(raw: bytes, status: int = 200) -> Response:
    return Response(status=status, content_type=JSON, headers=(ANYWHERE,), body=escape_json(raw))


def _cleaned(path: str) -> str:
    """The path without empty, `.` and `..` parts; a slash at the end stays."""
    plain = normpath(path).replace("//", "/", 1)
    return plain + "/" if path.endswith("/") and plain != "/" else plain


def _redirect(path: str, query: str) -> Response:
    import html
    from urllib.parse import quote_from_bytes

    to = quote_from_bytes(path.encode("utf-8", "surrogateescape"))
    if query:
        to += "?" + query
    link = html.escape(to).encode("utf-8", "surrogateescape")
    return Response(
        status=307,
        content_type=HTML,
        headers=(("Location", to),),
        body=b'<a href="' + link + b'">Temporary Redirect</a>.\n\n',
    )
