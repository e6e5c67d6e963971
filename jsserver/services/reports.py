"""Reports to the leader of the meta group: of assets that failed, and of steps towards a wish.

Lives in the event loop.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from jsserver.text.goformat import escape_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jsserver.cluster.meta import Name
    from jsserver.instances.backend import AccountHandle


class Kind(Enum):
    """What is reported: the subjects of reports about streams and about consumers."""

    RESULT = (b"$SYS.JSC.STREAM.ASSIGNMENT.RESULT", b"$SYS.JSC.CONSUMER.ASSIGNMENT.RESULT")
    """A member failed to create or change the asset."""
    STEP = (b"$SYS.JSC.STREAM.ASSIGNMENT.RECONCILE", b"$SYS.JSC.CONSUMER.ASSIGNMENT.RECONCILE")
    """The leader of the asset took a step towards the members of the asset's wish."""


class Reports:
    """Sends the reports of one server that are of one kind."""

    def __init__(self, system: AccountHandle, kind: Kind) -> None:
        self._system = system
        self._kind = kind
        self.taken: Callable[[bytes], bool] = lambda report: False
        """Takes a report directly where this server is the meta leader; whether it did."""

    def say(self, asset: Name, what: Mapping[str, object]) -> None:
        """Reports about an asset; `what`: the keys of the report beside the asset's name."""
        names = {"account": asset.account, "stream": asset.stream}
        if asset.consumer:
            names["consumer"] = asset.consumer
        report = escape_json(msgspec.json.encode({**names, **what}))
        if not self.taken(report):
            of_stream, of_consumer = self._kind.value
            subject = of_consumer if asset.consumer else of_stream
            self._system.publish(subject, b"", b"", report)
