"""Runs a command on a store directory that no server runs on, and reports its errors."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from jsserver.cext.store import lock_directory

from . import places, seals
from .places import NoStore, Unreadable

DONE, FAILED = 0, 2
"""Exit codes."""


class Refused(Exception):
    """The command cannot be carried out; the text says why."""


@contextlib.contextmanager
def alone(root: Path, changes: bool = True) -> Iterator[None]:
    """No server runs on the directory meanwhile; Refused. `changes`: the command writes."""
    if user := places.server_on(root):
        raise Refused(f"{user} runs on this directory: stop it first")
    with contextlib.ExitStack() as held:
        if changes:
            try:
                held.callback(os.close, lock_directory(root))
            except BlockingIOError as error:
                raise Refused(str(error.strerror)) from None
        yield


def run(
    program: str, options: argparse.Namespace, work: Callable[[argparse.Namespace], int]
) -> int:
    """Does the work; the exit code of the process. `program`: the name before each error."""
    try:
        code = work(options)
        sys.stdout.flush()
        return code
    except (NoStore, Refused, seals.Locked) as error:
        sys.stderr.write(f"{program}: {error}\n")
    except Unreadable as error:
        sys.stderr.write(f"{program}: {options.directory}: {error}\n")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on
        return DONE
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{program}: interrupted\n")
    except OSError as error:
        where = error.filename or options.directory
        sys.stderr.write(f"{program}: {where}: {error.strerror}\n")
    return FAILED
