"""Advisories about streams and consumers of a cluster: each one is sent once, by the asset's
leader.

Lives in the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jsserver.api.consumer_api import consumer_info
from jsserver.api.responses import (
    TYPE_PREFIX,
    ConsumerResetResponse,
    PurgeResponse,
    Response,
    SuccessResponse,
)
from jsserver.assets import consumers
from jsserver.cext import replicas as NEWS
from jsserver.cluster.meta import Name
from jsserver.instances.backend import StoreError
from jsserver.services.membership import Owes, owes
from jsserver.text.goformat import ZERO_TIME
from jsserver.wire import errcodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.api.advisories import Advisories
    from jsserver.instances.running import Consumer, Stream
    from jsserver.instances.shared import Shared


def owed_for(account: str, stream: Stream | None) -> list[tuple[Name, Owes]]:
    """The consumers of a stream, and what this server owes for them."""
    if stream is None:
        return []
    consumers = sorted(stream.consumers.items())
    return [(Name(account, stream.name, name), owes(one)) for name, one in consumers]


def tell_gone(advisories: Advisories, asset: Name) -> None:
    """Sends the advisory that an asset was deleted."""
    account, stream, consumer = asset
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


def agreed(
    shared: Shared, stream: Stream, consumer: Consumer | None, what: int, value: int
) -> Response:
    """The answer to a change that a group has agreed on; `what`, `value`: the group's news."""
    if what == NEWS.NEWS_PURGED:
        purged = PurgeResponse(success=True, purged=value)
        purged.type = f"{TYPE_PREFIX}stream_purge_response"
        return purged
    if what == NEWS.NEWS_DELETED:
        done = SuccessResponse(type=f"{TYPE_PREFIX}stream_msg_delete_response", success=value == 0)
        if value:
            done.error = errcodes.STREAM_MSG_DELETE_FAILED(err="no message found").body
        return done
    if consumer is None:
        return Response(error=errcodes.CONSUMER_NOT_FOUND().body)
    info = msgspec.structs.asdict(consumer_info(shared, stream, consumer, changed=True))
    reset = ConsumerResetResponse(**info, reset_seq=value)
    reset.type = f"{TYPE_PREFIX}consumer_reset_response"
    return reset
