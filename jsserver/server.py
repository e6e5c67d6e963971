"""One server from start to stop: listeners, data plane, JetStream, signals, and what it tells of itself."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading

from jsserver import NATS_VERSION
from jsserver.auth import Authenticator, is_bcrypt
from jsserver.cext.net import DataPlane
from jsserver.clients import Connection
from jsserver.config.options import Options
from jsserver.identity import PREFIX_CURVE, PREFIX_SERVER, public_key, short_hash
from jsserver.inbox import Inbox, Item
from jsserver.info import InfoHead, InfoTail, pieces
from jsserver.logs import LogError, Logger
from jsserver.notify import Notifier
from jsserver.procs import join_launcher
from jsserver.runfiles import PortsFile, write_pid_file
from jsserver.sockets import bound_port, host_port, open_listener

STOP_SIGNALS = {signal.SIGINT: "interrupt", signal.SIGTERM: "terminated"}


class StartError(Exception):
    """Why the server cannot start; told on a fatal log line."""


class Server:
    """A running server; start() and stop() frame its life in one event loop."""

    def __init__(self, options: Options, log: Logger) -> None:
        self.options = options
        self.log = log
        self.id = public_key(PREFIX_SERVER)
        self.xkey = public_key(PREFIX_CURVE)
        self.name = options.server_name or self.id
        self.plane = DataPlane()
        self.authenticator = Authenticator(options.authorization, options.no_auth_user)
        self.stopped = asyncio.Event()
        self.listener: socket.socket | None = None
        self.port = 0
        self.jetstream = self._make_jetstream() if options.jetstream.enabled else None
        self.monitor = None
        self.ports_file = PortsFile(options.ports_file_dir) if options.ports_file_dir else None
        self.inbox = Inbox(
            self.plane,
            log,
            self.authenticator,
            on_request=self._request,
            on_event=self._event,
            on_closed=self._connection_closed,
            max_traced=options.max_traced_msg_len,
        )
        self._threads: list[threading.Thread] = []
        self._notify = Notifier.from_environment()

    def _make_jetstream(self):  # type: ignore[no-untyped-def]
        from jsserver.jetstream import JetStream
        from jsserver.storedir import StoreDirError

        try:
            return JetStream(self.options, self.plane, self.log, self.name, self.id)
        except StoreDirError as e:
            raise StartError(f"Can't start JetStream: {e}") from e
