"""Runs a command on a store directory that no server runs on, and reports its errors."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
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


def give_back(root: Path) -> None:
    """Gives what root has made in a user's directory to that user, whose server could not open it
    otherwise; OSError. Links, and files that have other names, too, may lead outside: they stay."""
    owner = root.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for _, folders, files, at in os.fwalk(root, follow_symlinks=False):
        for name in (*folders, *files):
            if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid == 0:
                _give(name, at, owner)


def _give(name: str, at: int, owner: os.stat_result) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=at)
    except OSError:
        return  # a link, or a socket
    try:
        found = os.fstat(descriptor)
        is_file = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if found.st_uid == 0 and (is_file or stat.S_ISDIR(found.st_mode)):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone(root: Path, changes: bool = True) -> Iterator[None]:
    """No server runs on the directory meanwhile; Refused. `changes`: the command writes. What root
    writes is the directory's owner's in the end."""
    if user := places.server_on(root):
        raise Refused(f"{user} runs on this directory: stop it first")
    with contextlib.ExitStack() as held:
        if changes:
            held.callback(give_back, root)
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
