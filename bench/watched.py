"""This server, which tells for how long its engine lock was held at most.

Whoever connects to the socket `$HOLDS` hears of the time since the last one did: nanoseconds, as
text.
"""

import contextlib
import os
import socket
import sys
import threading

from jsserver import cli, front
from jsserver.cext.engine import DataPlane, PlaneClosed


class Watched(DataPlane):
    """A data plane that answers at `$HOLDS`."""

    def __init__(self, _reactors: int = 1) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.environ["HOLDS"])
        listener.listen()
        threading.Thread(target=self._answer, args=(listener,), daemon=True).start()

    def _answer(self, listener: socket.socket) -> None:
        while True:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(PlaneClosed, OSError):
                peer.sendall(b"%d" % self.longest_hold())


if __name__ == "__main__":
    vars(front)["DataPlane"] = Watched
    sys.exit(cli.main())
