"""Keys of the logs of Raft groups in an encrypted store: whether a server can read a group's log,
and what of its directory stands under another key.

A group's blocks have key files as a stream's have, whose account is the group's name. Votes,
members and snapshots are in clear, with nats-server, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsserver.disk.keys import Keys

META = ("meta.inf", "meta.sum", "meta.key")
"""nats-server's description of a log, which it writes anew where there is none."""


def check(directory: str, keys: Keys | None) -> None:
    """OSError where the blocks of a group are encrypted, and none of them opens with these keys.
    Nothing is touched."""
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
    """A description under another key goes, once the blocks are under the current one."""
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
