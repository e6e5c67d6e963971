"""Reports assets that this member failed to create or change to the meta leader, which answers the
requester.

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
"""The subjects on which the meta leader gets these reports."""


class Refusals:
    """The reports of this server."""

    def __init__(self, system: AccountHandle) -> None:
        self._system = system
        self.result: Callable[[bytes], bool] = lambda told: False
        """Takes a report directly where this server is the meta leader; whether it did."""

    def of_change(self, asset: Name, change: Change, error: Exception) -> None:
        """Reports that an entry could not be carried out."""
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
        """Reports about an asset; `why`: further keys of the report."""
        result: dict[str, Any] = {"account": asset.account, "stream": asset.stream}
        if asset.consumer:
            result["consumer"] = asset.consumer
        told = escape_json(msgspec.json.encode(result | why))
        if not self.result(told):
            subject = CONSUMER_RESULT if asset.consumer else STREAM_RESULT
            self._system.publish(subject, b"", b"", told)
