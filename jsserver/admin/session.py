"""Runs a command that is a client of a running server, and reports its errors."""

import argparse
import sys
from collections.abc import Callable

from jsserver.client.connection import Connection, ConnectionFailed
from jsserver.client.credentials import CredentialsError
from jsserver.client.login import login_of

FAILED = 1
"""The exit code after an error."""
TIMEOUT = 10
"""Seconds to wait for an answer."""


class CommandFailed(Exception):
    """The text is for the user."""


def run(
    program: str, options: argparse.Namespace, work: Callable[[Connection], int]
) -> int:
    """Logs in as the options say, and does the work; the exit code of the process. `program`: the
    name before each error."""
    try:
        credentials, tls = login_of(options)
        with Connection(
            options.server, name=program, credentials=credentials, tls=tls, timeout=TIMEOUT
        ) as connection:
            return work(connection)
    except (CommandFailed, ConnectionFailed, CredentialsError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return FAILED
