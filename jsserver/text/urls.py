"""URLs of web pages' origins, read as Go's net/url reads the target of a request."""

from __future__ import annotations

import re

from jsserver.text.goformat import quote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_PORT = re.compile(r":[0-9]*")
_ESCAPE = re.compile(r"%.{0,2}", re.DOTALL)
_FORBIDDEN = re.compile(r"[ \"<>\\^`{|}\x00-\x20\x7f]")
DEFAULT_PORTS = {False: "80", True: "443"}


class Url:
    """Scheme in small letters, and host with its port as it is written; both may be empty."""

    __slots__ = ("host", "scheme")

    def __init__(self, scheme: str, host: str) -> None:
        self.scheme = scheme
        self.host = host


def parse_url(text: str) -> Url:
    """An absolute URL or path; ValueError in Go's words where it is neither."""

    def wrong(what: str) -> ValueError:
        return ValueError(f"parse {quote(text)}: {what}")

    if not text:
        raise wrong("empty url")
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise wrong("net/url: invalid control character in URL")
    scheme, rest = "", text
    found = _SCHEME.match(text)
    if found:
        scheme, rest = found[1].lower(), text[found.end() :]
    elif text.startswith(":"):
        raise wrong("missing protocol scheme")
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, "")  # such as mailto:somebody
        raise wrong("invalid URI for request")
    if not rest.startswith("//") or (not scheme and rest.startswith("///")):
        return Url(scheme, "")
    host = rest[2:].partition("/")[0].rpartition("@")[2]
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise wrong("missing ']' in host")
        port = host[end + 1 :]
    else:
        _, colon, port = host.rpartition(":")
        port = colon + port if colon else ""
    if port and not _PORT.fullmatch(port):
        raise wrong(f"invalid port {quote(port)} after host")
    escape = _ESCAPE.search(host)
    if escape:
        raise wrong(f"invalid URL escape {quote(escape[0])}")
    forbidden = _FORBIDDEN.search(host)
    if forbidden:
        raise wrong(f"invalid character {quote(forbidden[0])} in host name")
    return Url(scheme, host)


def host_and_port(text: str, secure: bool) -> tuple[str, str]:
    """A host in small letters and its port, which a scheme has by default; ValueError where there
    is more than one port."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        return text.lower(), DEFAULT_PORTS[secure]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"address {text}: too many colons in address")
    return host.lower(), port
