"""Tells the leader of the meta group what a member could not make: it answers who asked for that.

Lives in the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from jsserver.api.responses import TYPE_PREFIX, Response
from jsserver.cluster.meta import Op
from jsserver.text.goformat import escape_json
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.cluster.meta import Change, Name
    from jsserver.instances.backend import AccountHandle

STREAM_RESULT = b"$SYS.JSC.STREAM.ASSIGNMENT.RESULT"
CONSUMER_RESULT = b"$SYS.JSC.CONSUMER.ASSIGNMENT.RESULT"
"""On which the leader of the meta group hears of it."""


class Refusals:
    """Those of a server."""

    def __init__(self, system: AccountHandle) -> None:
        self._system = system
        self.result: Callable[[bytes], bool] = lambda told: False
        """Takes what there is to tell where this server leads the meta group itself."""

    def of_change(self, asset: Name, change: Change, error: Exception) -> None:
        """What an entry asks for cannot be made."""
        if not isinstance(error, ApiError):
            error = errcodes.STREAM_GENERAL(err=error)
        kind = "consumer" if asset.consumer else "stream"
        refused = Response(type=f"{TYPE_PREFIX}{kind}_create_response", error=error.body)
        if asset.consumer:
            self.say(asset, response=refused)
        elif change.op is Op.UPDATE_STREAM:
            self.say(asset, create_response=refused, is_update=True)
        else:
            self.say(asset, create_response=refused)

    def say(self, asset: Name, **why: Response | bool) -> None:
        """`why`: what is told beside the names."""
        result: dict[str, Any] = {"account": asset.account, "stream": asset.stream}
        if asset.consumer:
            result["consumer"] = asset.consumer
        told = escape_json(msgspec.json.encode(result | why))
        if not self.result(told):
            subject = CONSUMER_RESULT if asset.consumer else STREAM_RESULT
            self._system.publish(subject, b"", b"", told)
