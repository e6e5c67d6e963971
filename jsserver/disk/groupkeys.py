"""Keys of Raft groups' logs in an encrypted store: checks that this server can read a log, and
drops what is left from a former key.

A log's blocks have key files as a stream's blocks do; in place of the account stands the group's
name. Votes, members and snapshots are not encrypted, as with nats-server.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsserver.disk.keys import Keys

META = ("meta.inf", "meta.sum", "meta.key")
"""nats-server's description of a log; it writes them anew where they are missing."""


def check(directory: str, keys: Keys | None) -> None:
    """Changes nothing. OSError: the group's blocks are encrypted, and these keys open none of
    them."""
    group, blocks = os.path.basename(directory), os.path.join(directory, "msgs")
    try:
        names = [name for name in os.listdir(blocks) if name.endswith(".key")]
    except FileNotFoundError:
        return
    if not names:
        return
    if keys is None:
        raise OSError(f"the log of group {group} is encrypted, and the configuration has no key")
    for name in names:
        with open(os.path.join(blocks, name), "rb") as file:
            if keys.seed(group, f"{group}:{name.removesuffix('.key')}", file.read()) is not None:
                return
    raise OSError(
        "neither the key nor the previous key of the configuration opens the log of group"
        f" {group}"
    )


def renew(directory: str, keys: Keys | None) -> None:
    """Removes a description under a former key; the blocks have the present key by now."""
    group, path = os.path.basename(directory), os.path.join(directory, "meta.key")
    try:
        with open(path, "rb") as file:
            sealed = file.read()
    except FileNotFoundError:
        return
    if keys is None or keys.is_current(group, group, sealed):
        return
    for name in META:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))
