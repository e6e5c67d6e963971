"""Reports assets that this member failed to create or change to the meta leader, which answers the
requester.

Lives in the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsserver.api.responses import TYPE_PREFIX, Response
from jsserver.cluster.meta import Op
from jsserver.services.reports import Kind, Reports
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

if TYPE_CHECKING:
    from jsserver.cluster.meta import Change, Name
    from jsserver.instances.backend import AccountHandle


class Refusals:
    """The reports of this server."""

    def __init__(self, system: AccountHandle) -> None:
        self.reports = Reports(system, Kind.RESULT)

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
        self.reports.say(asset, why)
