"""Advisories about streams and consumers of a cluster: each one is sent once, by the asset's
leader.

Lives in the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsserver.assets import consumers
from jsserver.cluster.meta import Name
from jsserver.instances.backend import StoreError
from jsserver.services.replicas import is_led_elsewhere
from jsserver.text.goformat import ZERO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.api.advisories import Advisories
    from jsserver.instances.running import Consumer, Stream
    from jsserver.instances.shared import Shared


def led_here(account: str, stream: Stream) -> list[Name]:
    """A stream and its consumers, without those that another server leads; the stream last."""
    names = [name for name, one in stream.consumers.items() if not is_led_elsewhere(one)]
    found = [Name(account, stream.name, name) for name in sorted(names)]
    return found if is_led_elsewhere(stream) else [*found, Name(account, stream.name)]


def tell_gone(advisories: Advisories, assets: Iterable[Name]) -> None:
    """Sends the advisories that these assets were deleted."""
    for account, stream, consumer in assets:
        if consumer:
            advisories.consumer(account, stream, consumer, "delete")
        else:
            advisories.stream(account, stream, "delete")


def tell_put(
    advisories: Advisories, asset: Name, now: Consumer, before: str | None, clock: int
) -> None:
    """Sends the advisories of a new or updated consumer. `before`: the pause's end before the
    update, None: the consumer is new; `clock`: ns since the epoch."""
    until = now.config.pause_until
    if before is None:
        advisories.consumer(*asset, "create")
    if (before or "") != until:
        is_paused = consumers.pause_left(now.config, clock) > 0
        advisories.pause(*asset, is_paused, until or ZERO_TIME)


async def when_counted(shared: Shared, consumer: Consumer, then: Callable[[], None]) -> None:
    """Calls `then` once the consumer's pending messages are counted; never if it is removed."""
    if consumer.handle.counting():
        try:
            await shared.run(consumer.handle.state)
        except StoreError:
            return
    then()
