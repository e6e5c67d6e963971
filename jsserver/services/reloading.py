"""One reload: a running server takes all changes of its configuration file, or none.

A reload reads the file, finds the differences, and asks each component (followers.py,
following_logins.py) whether it can take its part. Only if all can, all do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from jsserver.config import ConfigError
from jsserver.config.load import load
from jsserver.config.naming import unchangeable
from jsserver.config.options import Options
from jsserver.config.reload import difference, take
from jsserver.process import garbage

from .followers import (
    Ceilings,
    Cluster,
    Component,
    ConfiguredAccounts,
    Leafnodes,
    Output,
    Parts,
    Proxies,
    ReloadError,
    RunFiles,
    Securing,
    Streams,
    SystemEvents,
    Tokens,
)
from .following_logins import Logins

COMPONENTS: tuple[type[Component], ...] = (
    Output,
    Logins,
    Proxies,
    Ceilings,
    Securing,
    Cluster,
    Leafnodes,
    RunFiles,
    SystemEvents,
    Tokens,
    Streams,
    ConfiguredAccounts,
)
"""In the order of taking and following. Checks run in the reverse order, so that components that
open files are checked last."""


class _Read(NamedTuple):
    """The contents of the file."""

    options: Options
    notes: list[str]
    refused: list[str]
    told: list[str]


class Reloading:
    """One change of a server's configuration."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._components = [component(parts) for component in COMPONENTS]

    async def run(self) -> None:
        """Takes the file's configuration; ReloadError: nothing has changed."""
        parts = self._parts
        read = await self._checked()
        for component in self._components:
            await component.prepare(read.options)
        await asyncio.sleep(0)
        self._take(read)
        del read
        for component in self._components:
            await component.follow()
        parts.loaded()
        parts.log.info(f"Reloaded server configuration ({parts.options.config_digest})")

    async def _checked(self) -> _Read:
        """Reads the file, and has all components check it; ReloadError."""
        parts, old = self._parts, self._parts.options
        if not old.config_file:
            raise ReloadError("can only reload config when a file is provided using -c or --config")
        jetstream = parts.jetstream
        has = (jetstream.max_memory, jetstream.max_store) if jetstream else (0, 0)
        try:
            read = await asyncio.to_thread(self._read, has)
        except ConfigError as error:
            raise ReloadError(str(error).strip()) from None
        if read.refused:
            raise ReloadError("\n".join(read.refused))
        refused = [reason async for reason in self._reasons(read.options)]
        if refused:
            for component in self._components:
                component.drop()
            raise ReloadError("\n".join(refused))
        for line in read.notes:
            parts.log.warn(line)
        return read

    async def _reasons(self, new: Options) -> AsyncIterator[str]:
        """Why components refuse the new options."""
        for component in reversed(self._components):
            try:
                await component.check(new)
            except ReloadError as error:
                yield str(error)

    def _read(self, has: tuple[int, int]) -> _Read:
        """Reads the file, in a thread, because many users take long; ConfigError. `has`: bytes in
        memory and in files that JetStream uses."""
        old = self._parts.options
        with garbage.paused(stays=True):
            loaded = load(old.config_file, old.flags)
            new, notes = loaded.options, [*loaded.warnings, *loaded.without_effect]
            differs = difference(old, new, memory=has[0], store=has[1])
            if differs.refused:
                found = unchangeable(differs.refused, old.config_file, old, new)
                lines = [f"config reload not supported for {option}" for option in found]
                return _Read(new, notes, lines, [])
            for component in self._components:
                component.read(old, new)
            return _Read(new, notes, [], differs.told)

    def _take(self, read: _Read) -> None:
        """Makes all components take the new options. Nothing here waits."""
        options = self._parts.options
        before = Options(**vars(options))
        for line in read.told:
            self._parts.log.info(line)
        take(options, read.options)
        for component in self._components:
            component.take(before)
