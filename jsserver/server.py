"""One server from start to stop: listeners, data plane, JetStream, signals, what it tells."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from jsserver import NATS_VERSION, __version__, called_as_jsserver, priority
from jsserver.accounts import Accounts
from jsserver.auth import GLOBAL_ACCOUNT, Authenticator, is_bcrypt
from jsserver.cext.engine import DataPlane, Item
from jsserver.config.options import Options
from jsserver.config.server import split_address
from jsserver.goformat import byte_size
from jsserver.identity import PREFIX_CURVE, PREFIX_SERVER, public_key, short_hash
from jsserver.inbox import Finished, Inbox
from jsserver.info import InfoHead, InfoTail, pieces
from jsserver.logs import LogError, Logger
from jsserver.monitor.closed import ClosedConnections
from jsserver.notify import Notifier
from jsserver.procs import remove_stale_folders
from jsserver.runfiles import PortsFile, write_pid_file
from jsserver.sockets import bound_port, host_port, open_listener
from jsserver.system import System

if TYPE_CHECKING:
    from jsserver.jetstream import JetStream
    from jsserver.monitor.monitor import Monitor

MAX_PAYLOAD_RECOMMENDED = 8 << 20
"""Bytes; above it the log warns, as nats-server does."""

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
        self.plane = DataPlane(options.reactors)
        self.finished = Finished(self.plane)
        self.authenticator = Authenticator(options.authorization, options.no_auth_user)
        self.stopped = asyncio.Event()
        self.started = self.config_loaded = time.time_ns()
        self.accounts = Accounts(self.plane)
        self.accounts.open(GLOBAL_ACCOUNT)
        self.system_account = ""
        self.accepting = False
        self.listener: socket.socket | None = None
        self.port = 0
        self.jetstream = self._make_jetstream() if options.jetstream.enabled else None
        self.monitor: Monitor | None = None
        watched = options.http_port != 0
        self.closed = ClosedConnections(options.max_closed_clients if watched else 0)
        self.ports_file = PortsFile(options.ports_file_dir) if options.ports_file_dir else None
        self.inbox = Inbox(
            self.plane,
            log,
            self.authenticator,
            options,
            self.accounts,
            on_request=self._request,
            on_event=self._event,
            on_closed=self.closed.add,
        )
        self.system = System(self)
        self._threads: list[threading.Thread] = []
        self._notify = Notifier.from_environment()

    def _make_jetstream(self) -> JetStream:
        # Imported only here: a server without JetStream starts without it.
        from jsserver.jetstream import JetStream
        from jsserver.storedir import StoreDirError

        try:
            return JetStream(
                self.options,
                self.plane,
                self.accounts,
                self.log,
                self.finished,
                self.name,
                self.id,
            )
        except StoreDirError as e:
            raise StartError(f"Can't start JetStream: {e}") from e

    @property
    def auth_required(self) -> bool:
        """Whether clients must prove anything."""
        return self.authenticator.required

    def user(self, cid: int) -> str:
        """Who is behind an open connection; "" if nobody in particular."""
        return self.inbox.user(cid)

    # ---- what comes out of the inbox

    def _request(self, item: Item) -> None:
        subject = item.texts[0]
        if subject.startswith(b"$SYS."):
            self.system.request(item)
            self.finished(item.cid)
        elif self.jetstream is not None:
            self.jetstream.request(item)

    def _event(self, item: Item) -> None:
        if self.jetstream is not None:
            self.jetstream.event(item)

    # ---- start

    async def start(self) -> None:
        """Opens everything and serves; StartError or OSError when that is not possible."""
        o = self.options
        self._attending = asyncio.create_task(self._notify.attend())
        self._limit()
        self._allow_files()
        for number in range(self.plane.reactors):
            self._spawn(f"reactor-{number}", self._prompt(partial(self.plane.run, number)))
        if self.jetstream is not None:
            self.jetstream.banner()
            self._spawn("commit", self._prompt(self.plane.run_commits))
        priority.step_back()
        self.inbox.open()
        if self.jetstream is not None:
            await self.jetstream.start()
        for _, account in self.accounts.items():
            self.system.serve(account)
        if o.http_port:
            await self._start_monitor()
        # Last: who can connect is served at once.
        self._listen()
        if self.listener is not None:
            self.plane.listen(self.listener.fileno())
        self.accepting = True
        self.log.info(f"Listening for client connections on {host_port(o.host, self.port)}")
        self.log.info("Server is ready")
        self._write_files()
        self._notify.ready()
        self._spawn("cleanup", remove_stale_folders)

    def announce(self, without_effect: Sequence[str] = ()) -> None:
        """Says what is about to start, and writes the pid file; StartError where that fails."""
        o, log = self.options, self.log
        if called_as_jsserver():
            log.info("Starting jsserver")
            log.info(f"  Version:  {__version__}, in place of nats-server {NATS_VERSION}")
        else:
            log.info("Starting nats-server")
            log.info(f"  Version:  {NATS_VERSION}")
        log.info("  Git:      [not set]")
        log.info(f"  Name:     {self.name}")
        if self.jetstream is not None:
            log.info(f"  Node:     {short_hash(self.name)}")
        log.info(f"  ID:       {self.id}")
        stored = [o.authorization.password, o.authorization.token]
        stored += [u.password for u in o.authorization.users]
        if any(p and not is_bcrypt(p) for p in stored):
            log.warn("Plaintext passwords detected, use nkeys or bcrypt")
        if o.config_file:
            log.info(f"Using configuration file: {o.config_file} ({o.config_digest})")
        for line in without_effect:
            log.warn(line)
        if o.max_payload > MAX_PAYLOAD_RECOMMENDED:
            log.warn(
                f"Maximum payloads over {byte_size(MAX_PAYLOAD_RECOMMENDED)} are generally"
                " discouraged and could lead to poor performance"
            )
        if o.pid_file:
            try:
                write_pid_file(o.pid_file)
            except OSError as e:
                reason = (e.strerror or str(e)).lower()
                raise StartError(f"Could not write pidfile: open {o.pid_file}: {reason}") from e

    def _limit(self) -> None:
        o = self.options
        self.plane.configure(
            max_payload=o.max_payload,
            max_control_line=o.max_control_line,
            max_pending=o.max_pending,
            max_subscriptions=o.max_subscriptions,
            max_sub_tokens=o.max_sub_tokens,
            max_connections=o.max_connections,
            headers=not o.no_header_support,
            stall=not o.no_fast_producer_stall,
            max_requests=o.jetstream.request_queue_limit,
            ping_interval=o.ping_interval,
            ping_max=o.ping_max,
            write_deadline=o.write_deadline,
            auth_timeout=int(o.authorization.timeout * 1e9),
            auth_required=self.authenticator.required,
            no_auth_user=bool(o.no_auth_user),
            debug=o.debug,
            trace=o.trace,
        )

    def _allow_files(self) -> None:
        """As many open files as the machine lets this process have: connections and blocks."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == hard:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as e:
            self.log.warn(f"The limit of open files stays at {soft}: {e}")

    def _listen(self) -> None:
        o = self.options
        try:
            self.listener = open_listener(o.host, o.port)
        except OSError as e:
            where = host_port(o.host, max(o.port, 0))
            raise StartError(f'Error listening on port: {where}, "{e}"') from e
        self.port = bound_port(self.listener)
        host, port = o.host, self.port
        if o.client_advertise:
            host = o.client_advertise
            if ":" in host.rpartition("]")[2]:
                host, port = split_address(host)
            host = host.strip("[]")
        head = InfoHead(
            server_id=self.id,
            server_name=self.name,
            host=host,
            port=port,
            headers=not o.no_header_support,
            max_payload=o.max_payload,
        )
        if self.authenticator.required and not o.no_auth_user:
            head.auth_required = True
        if self.jetstream is not None:
            head.jetstream = True
        tail = InfoTail(xkey=self.xkey)
        if o.jetstream.enabled and o.jetstream.domain:
            tail.domain = o.jetstream.domain
        self.plane.set_info(*pieces(head, tail))

    async def _start_monitor(self) -> None:
        # Imported only here: a server that is not watched starts without it.
        from jsserver.monitor.monitor import Monitor

        self.monitor = Monitor(self, self.closed)
        try:
            await self.monitor.start()
        except OSError as e:
            where = host_port(self.monitor.host, max(self.options.http_port, 0))
            raise StartError(f'Can\'t start monitoring on {where}, "{e}"') from e
        where = host_port(self.monitor.host, self.monitor.port)
        self.log.info(f"Starting http monitor on {where}")

    @staticmethod
    def _prompt(body: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            priority.ask_for_short_turns()
            body()

        return run

    def _spawn(self, name: str, target: Callable[[], object]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _write_files(self) -> None:
        o = self.options
        if self.ports_file is not None:
            listeners = {"nats": ("nats", o.host, self.port)}
            if self.monitor is not None:
                listeners["monitoring"] = ("http", self.monitor.host, self.monitor.port)
            try:
                self.ports_file.write(listeners)
            except OSError as e:
                self.log.error(f"Error writing ports file: {e.strerror}: {o.ports_file_dir}")

    # ---- signals and stop

    def watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number, text in STOP_SIGNALS.items():
            loop.add_signal_handler(number, self._trapped, text)
        loop.add_signal_handler(signal.SIGUSR1, self._reopen)
        loop.add_signal_handler(signal.SIGHUP, self._unavailable, "hangup", "configuration reload")
        loop.add_signal_handler(
            signal.SIGUSR2, self._unavailable, "user defined signal 2", "lame duck mode"
        )

    def _trapped(self, text: str) -> None:
        self.log.debug(f'Trapped "{text}" signal')
        self.stopped.set()

    def _reopen(self) -> None:
        self.log.debug('Trapped "user defined signal 1" signal')
        self.log.reopen()

    def _unavailable(self, text: str, what: str) -> None:
        self.log.error(f'Trapped "{text}" signal, but {what} is not available in this version')

    async def stop(self) -> None:
        """Stops listening, closes connections and streams; what was acked is on disk afterwards."""
        self.log.info("Initiating Shutdown...")
        self._notify.stopping()
        await self.close()
        self.log.info("Server Exiting..")

    async def close(self) -> None:
        """Ends what start() began, however far it came."""
        self.accepting = False
        self.plane.listen(-1)
        if self.listener is not None:
            self.listener.close()
        if self.jetstream is not None:
            await self.jetstream.close()
            self.plane.stop_commits()
        if self.monitor is not None:
            await self.monitor.close()
        self.system.close()
        self.plane.stop()
        self.inbox.close()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, 10)
        if not any(thread.is_alive() for thread in self._threads):
            self.plane.close()  # else whoever hangs in a system call would come back to nothing
        if self.jetstream is not None:
            self.jetstream.close_store()
        if self.ports_file is not None:
            self.ports_file.remove()


def internal_error(error: BaseException | None, message: str = "") -> str:
    """One line for what should never happen, with the place it came from."""
    if error is None:
        return f"Internal error: {message}"
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"Internal error: {error!r}{place}"


async def serve(options: Options, log: Logger, without_effect: Sequence[str] = ()) -> int:
    """Runs one server until a signal ends it; the exit code."""
    try:
        server = Server(options, log)
    except StartError as e:
        log.fatal(str(e))
        return 1
    server.watch_signals()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: log.error(internal_error(context.get("exception"), context["message"]))
    )
    try:
        server.announce(without_effect)
        await server.start()
    except Exception as e:
        # Whatever it was: the operator reads one line, and no thread keeps the process alive.
        log.fatal(str(e) if isinstance(e, StartError | OSError) else internal_error(e))
        await server.close()
        return 1
    # The start's objects live as long as the server: collections need not look at them again.
    gc.collect()
    gc.freeze()
    gc.enable()
    await server.stopped.wait()
    await server.stop()
    return 0


def run(options: Options, without_effect: Sequence[str] = ()) -> int:
    """The program's main part: a server in a new event loop; returns the exit code.

    `without_effect` is what the configuration sets in vain, for the log.
    """
    try:
        log = Logger(
            options.log_file,
            debug=options.debug,
            trace=options.trace,
            timestamps=options.logtime,
            utc=options.logtime_utc,
            size_limit=options.log_size_limit,
            max_files=options.log_max_num,
        )
    except LogError as e:
        sys.stderr.write(f"nats-server: {e}\n")
        return 1
    code = asyncio.run(serve(options, log, without_effect))
    log.close()
    return code
