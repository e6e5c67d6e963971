"""Reports to the leader of the meta group: steps of an asset towards the members of a wish.

Lives in the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jsserver.text.goformat import escape_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.cluster.meta import Name
    from jsserver.cluster.proposals import Said
    from jsserver.instances.backend import AccountHandle

STREAM_STEP = b"$SYS.JSC.STREAM.ASSIGNMENT.RECONCILE"
CONSUMER_STEP = b"$SYS.JSC.CONSUMER.ASSIGNMENT.RECONCILE"
"""The subjects of reports."""


class Reports:
    """Sends the reports of one server."""

    def __init__(self, system: AccountHandle) -> None:
        self._system = system
        self.step: Callable[[bytes], bool] = lambda told: False
        """Takes a report where this server leads the meta group itself."""

    def say(self, asset: Name, step: Said) -> None:
        """Reports a step of an asset, as nats-server reports it."""
        names: Said = {"account": asset.account, "stream": asset.stream}
        if asset.consumer:
            names["consumer"] = asset.consumer
        told = escape_json(msgspec.json.encode(names | step))
        if not self.step(told):
            self._system.publish(CONSUMER_STEP if asset.consumer else STREAM_STEP, b"", b"", told)
