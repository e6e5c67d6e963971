"""This server, which tells for how long its engine lock was held at most.

A connection to the socket `$WATCHED` is told of the time since the connection before: nanoseconds,
as text.
"""

import contextlib
import os
import socket
import sys
import threading
from typing import NoReturn

from jsserver import cli, front
from jsserver.cext.engine import DataPlane, PlaneClosed


class Watched(DataPlane):
    """A data plane that answers at `$WATCHED`."""

    def __init__(self, _reactors: int = 1) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.environ["WATCHED"])
        listener.listen()
        threading.Thread(target=self._answer, args=(listener,), daemon=True).start()

    def _answer(self, listener: socket.socket) -> None:
        while True:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(PlaneClosed, OSError):
                peer.sendall(self.told())

    def told(self) -> bytes:
        """What is told since somebody last asked."""
        return b"%d" % self.longest_hold()


def serve(plane: type[Watched]) -> NoReturn:
    """The server with this data plane, for the words of the command line."""
    vars(front)["DataPlane"] = plane
    sys.exit(cli.main())


if __name__ == "__main__":
    serve(Watched)
