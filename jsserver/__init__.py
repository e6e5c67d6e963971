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


def called_as_jsserver() -> bool:
    """Whether the program was started under its own name, not in nats-server's place."""
    return os.path.basename(sys.argv[0]) == "jsserver"


def program() -> str:
    """What messages call the program: scripts and client suites look for nats-server's name, and
    who calls it by its own reads that."""
    return "jsserver" if called_as_jsserver() else "nats-server"
