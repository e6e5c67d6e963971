"""jsserver: a NATS server with JetStream."""

import os
import sys

#: As in `typing`, for modules that a start loads first: `typing` itself takes a tenth of a start.
TYPE_CHECKING = False

__version__ = "0.1.0"

#: The nats-server release whose protocol, API and files this server speaks.
#: Clients gate features on it, so it is what INFO, /varz and --version report.
NATS_VERSION = "2.14.5"
API_LEVEL = 4


class StartError(Exception):
    """Why the server cannot start; told on a fatal log line."""


def called_as_jsserver() -> bool:
    """Whether the program was started under its own name, not in nats-server's place."""
    return os.path.basename(sys.argv[0]) == "jsserver"


def program() -> str:
    """What messages call the program: scripts and client suites look for nats-server's name, and
    who calls it by its own reads that."""
    return "jsserver" if called_as_jsserver() else "nats-server"


BUILT_FROM = ""
"""A commit: what setup.py writes into packages; in a checkout, which moves on, it is empty."""
SHORT, _WHOLE = 7, 40
"""Hexadecimal digits of a commit: those that are shown, and all."""


def commit(root: str = "") -> str:
    """The first digits of the commit that this is; "" where nobody knows. `root` is the folder of
    the checkout."""
    found = BUILT_FROM or _head(root or os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return found[:SHORT]


def _head(root: str) -> str:
    """The commit that is checked out, without the help of git, which may not be there."""
    git = os.path.join(root, ".git")
    head = _text(git, "HEAD")
    if not head.startswith("ref: "):
        return _whole(head)
    name = head.removeprefix("ref: ")
    packed = _text(git, "packed-refs").splitlines()
    rows = (line.partition(" ") for line in packed)
    return _whole(_text(git, name)) or next((_whole(h) for h, _, ref in rows if ref == name), "")


def _whole(text: str) -> str:
    return text if len(text) == _WHOLE and not text.strip("0123456789abcdef") else ""


def _text(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
