"""What serves clients: the data plane with its accounts, threads and listeners.

The data plane alone answers everything but the JetStream API, `$SYS` requests, passwords and the
pages of monitoring. So a start opens this first, and loads what those need, which takes longer,
while clients are served already; what they ask of the control plane waits for it. For that reason
nothing here imports asyncio, msgspec or typing.

Where the control plane has to do something before a client may come, which is to recover streams,
to check passwords and to write of what clients do, it opens the client port itself once it can.
"""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from jsserver import NATS_VERSION, TYPE_CHECKING, __version__, called_as_jsserver, commit
from jsserver.access import info
from jsserver.access.accounts import Accounts
from jsserver.access.configured import Configured
from jsserver.cext.engine import (
    LISTEN_CLIENTS,
    LISTEN_WEBSOCKET,
    DataPlane,
    ListenerConfig,
    PlaneConfig,
)
from jsserver.config import ConfigError, advice
from jsserver.config.options import Options
from jsserver.process import priority
from jsserver.process.logs import Logger
from jsserver.process.sockets import bound_port, host_port, open_listener
from jsserver.services.subjects import API, OBJECTS, SYSTEM, is_plain_subject, of_the_system_account
from jsserver.text.goformat import failure, quote, split_address
from jsserver.text.identity import PREFIX_CURVE, PREFIX_SERVER, public_key, short_hash

if TYPE_CHECKING:
    import socket

    from jsserver.access.secured import Certified, Secured, Staples
    from jsserver.cext.tls import SecurityContext
    from jsserver.disk.storage import Storage
    from jsserver.process.runfiles import PortsFile
    from jsserver.text.nkeys import BoxPair, SigningPair

MOST_ASKED = 128
"""Requests of one connection that the control plane has, where its queues have room for as many:
one connection alone fills none of them."""

ANY_HOST = "0.0.0.0"
FILES_MIN = 64
"""Open files without which there is no room for clients and streams."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR2)
"""Those that the server takes; they wait until its event loop is there."""


class StartError(Exception):
    """Why the server cannot start; told on a fatal log line."""


def explained(error: BaseException | None, message: str = "") -> str:
    """One line for the operator: why a start failed, or what should never happen and where."""
    if isinstance(error, OSError):
        return failure(error)
    if isinstance(error, StartError | ConfigError):
        return str(error)
    if error is None:
        return f"Internal error: {message}"
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"Internal error: {error!r}{place}"


def _terms(
    options: Options,
    info: tuple[bytes, bytes, bytes] | None,
    *,
    later_head: bytes = b"",
    ping_interval: int = 0,
    handshake_timeout: int = 0,
) -> ListenerConfig:
    """What holds for those who come by these options: whether they are looked at, whether one who
    has not said so much as CONNECT is let in (never by a key, as in nats-server), and whether INFO
    has a nonce.

    Where nothing has to be proven whoever says nothing may stay until it would not have answered
    the last PING.
    """
    named = options.no_auth_user in {user.name for user in options.users if user.name}
    patience = options.ping_interval * (max(options.ping_max, 0) + 1)
    return ListenerConfig(
        handshake_timeout=handshake_timeout,
        ping_interval=ping_interval,
        auth_timeout=int(options.auth_timeout * 1e9) if options.auth_required else patience,
        auth_required=options.asks_everybody,
        no_auth_user=named or options.only_system_users or not options.auth_required,
        nonce=options.signs_nonces,
        info=info,
        later_head=later_head,
    )


class Front:
    """Everything of a server that clients meet; open() and close() frame its life."""

    def __init__(self, options: Options, log: Logger) -> None:
        """StartError where nothing can be started so, or JetStream cannot have its directory."""
        if reason := advice.refusal(options):
            raise StartError(reason)
        self.options = options
        self.log = log
        self.id = public_key(PREFIX_SERVER)
        self.xkey = public_key(PREFIX_CURVE)
        self.keys: tuple[SigningPair, BoxPair] | None = None
        """What the server signs with and opens with, where it has to."""
        if options.by_token:
            from jsserver.text.nkeys import BoxPair, SigningPair

            self.keys = SigningPair(PREFIX_SERVER), BoxPair()
            self.id, self.xkey = (pair.public for pair in self.keys)
        self.name = options.server_name or self.id
        self.started = time.time_ns()
        self.plane = DataPlane(options.reactors)
        self._clients = self.plane.listener(LISTEN_CLIENTS)
        self._websockets = self.plane.listener(LISTEN_WEBSOCKET)
        self.accounts = Accounts(self.plane)
        self.plane.name_server(self.name.encode(), short_hash(self.name).encode())
        self.configured = Configured(self.accounts)
        self.configured.follow(options, self.configured.coming(options))
        if options.system:
            self.accounts[options.system].become_system()
        self.storage = self._take_storage() if options.jetstream.enabled else None
        self.port = 0
        self.http_port = 0
        self.websocket_port = 0
        self.monitor: socket.socket | None = None
        """Where monitoring is to be served."""
        self.security: SecurityContext | None = None
        """What clients' connections are secured by."""
        self._through_websocket: SecurityContext | None = None
        self.staples: Staples = {}
        """Those of certificates that are secured with from now on."""
        self.certificate_ends = ""
        """When the certificate of clients' connections does, in RFC 3339; "" without TLS."""
        self.websocket_certificate_ends = ""
        self._listener: socket.socket | None = None
        self._websocket_listener: socket.socket | None = None
        self._ports_file: PortsFile | None = None
        self._threads: list[threading.Thread] = []

    def _take_storage(self) -> Storage:
        # Imported only here: a server without JetStream starts without it.
        from jsserver.disk.storage import Storage
        from jsserver.disk.storedir import StoreDirError

        accounts = self.options.jetstream_accounts
        try:
            storage = Storage(self.options, self.plane, self.log)
        except StoreDirError as e:
            raise StartError(f"Can't start JetStream: {e}") from e
        if lacks := storage.lacks(accounts.values(), storage.max_memory, storage.max_store):
            storage.directory.close()
            raise StartError(
                "Can't start JetStream: Error enabling jetstream on configured accounts: " + lacks
            )
        return storage

    # ---- start

    def announce(self, without_effect: Sequence[str] = ()) -> None:
        """Says what is about to start, and writes the pid file; StartError where that fails."""
        o, log = self.options, self.log
        if called_as_jsserver():
            log.info("Starting jsserver")
            log.info(f"  Version:  {__version__}, in place of nats-server {NATS_VERSION}")
        else:
            log.info("Starting nats-server")
            log.info(f"  Version:  {NATS_VERSION}")
            log.info(f"  jsserver: {__version__}")
        log.info(f"  Git:      [{commit() or 'not set'}]")
        log.info(f"  Name:     {self.name}")
        if self.storage is not None:
            log.info(f"  Node:     {short_hash(self.name)}")
        log.info(f"  ID:       {self.id}")
        if o.operators.claims:
            self._announce_operators()
        for line in advice.of_passwords(o):
            log.warn(line)
        if o.config_file:
            log.info(f"Using configuration file: {o.config_file} ({o.config_digest})")
        for line in without_effect:
            log.warn(line)
        for line in (*advice.of_payloads(o), *advice.of_domains(o), *advice.of_store(o)):
            log.warn(line)
        if o.pid_file and (reason := self._write_pid()):
            raise StartError(f"Could not write pidfile: {reason}")

    def _write_pid(self) -> str:
        """Why the pid file cannot be written; "": it is."""
        from jsserver.process.runfiles import write_pid_file

        path = self.options.pid_file
        try:
            write_pid_file(path)
        except OSError as e:
            return f"open {path}: {(e.strerror or str(e)).lower()}"
        return ""

    def write_files(self, before: Options) -> None:
        """Writes the files for scripts that are to stand elsewhere than before."""
        o = self.options
        if o.pid_file and o.pid_file != before.pid_file and (reason := self._write_pid()):
            self.log.error(f"Failed to write pidfile: {reason}")
        if o.ports_file_dir != before.ports_file_dir:
            if self._ports_file is not None:
                self._ports_file.remove()
                self._ports_file = None
            if o.ports_file_dir:
                self._write_ports()

    def _announce_operators(self) -> None:
        def at(seconds: int) -> str:
            moment = time.localtime(seconds)
            return f"{time.strftime('%Y-%m-%d %H:%M:%S %z', moment)} {moment.tm_zone}"

        o, log = self.options, self.log
        log.info("Trusted Operators")
        for claims in o.operators.claims:
            log.info(f"  System  : {quote(claims.aud)}")
            log.info(f"  Operator: {quote(claims.name)}")
            log.info(f"  Issued  : {at(claims.iat)}")
            log.info(f"  Expires : {at(claims.exp) if claims.exp else 'Never'}")
        for line in advice.of_operators(o):
            log.warn(line)

    def open(self) -> bool:
        """Starts the data plane, and listens if the control plane has nothing to do before;
        whether it listens. StartError or OSError."""
        self.limit()
        self._allow_files()
        for number in range(self.plane.reactors):
            self.spawn(f"reactor-{number}", self._prompt(partial(self.plane.run, number)))
        if self.storage is not None:
            self.storage.announce(self.log)
            self.spawn("commit", self._prompt(self.plane.run_commits))
        self._offer_services()
        o = self.options
        alone = (
            not o.asks_everybody
            and not (o.debug or o.trace)  # whose lines the control plane writes
            and not self._responders_first
            and (
                self.storage is None
                or not any(self.storage.holds_streams(name) for name in o.jetstream_accounts)
            )
        )
        if alone:
            self.listen()
        return alone

    @property
    def _responders_first(self) -> bool:
        """Whether no client can be served before somebody was asked about a certificate."""
        blocks = [*filter(None, (self.options.tls, self.options.websocket.tls))]
        if not blocks:
            return False
        from jsserver.access.certificates import to_staple

        return any(tls.inquires for tls in blocks) or any(True for _ in to_staple(self.options))

    def _offer_services(self) -> None:
        for name in self.accounts:
            self.offer_services(name)

    def offer_services(self, name: str) -> None:
        """From now on what clients of an account ask of the control plane goes to its inbox."""
        account = self.accounts[name]
        if self.storage is not None:
            account.serve_requests(API.encode())
            if self.options.jetstream.object_requests.enabled:
                account.serve_requests(OBJECTS.encode())
            if self.storage.domain and name != self.options.system:
                account.serve_domain(self.storage.domain)
        for subject in self._services_of(name):
            account.serve_requests(subject.encode())

    def _services_of(self, account: str) -> Sequence[str]:
        """What the system account offers to an account, and to its own users; nothing where there
        is none."""
        if not self.options.system:
            return ()
        if account == self.options.system:
            return of_the_system_account(self.id)
        if not is_plain_subject(account):
            self.log.warn(
                f"Account {quote(account)} is offered none of {', '.join(SYSTEM)}, and has no"
                " events: its name cannot be part of a subject"
            )
            return ()
        return SYSTEM

    def limit(self) -> None:
        """Holds clients to what the options say, and whoever comes from now on to a login."""
        o = self.options
        js = o.jetstream
        config = PlaneConfig(
            max_payload=o.max_payload,
            max_control_line=o.max_control_line,
            max_pending=o.max_pending,
            max_subscriptions=o.max_subscriptions,
            max_sub_tokens=o.max_sub_tokens,
            max_connections=o.max_connections,
            headers=not o.no_header_support,
            stall=not o.no_fast_producer_stall,
            max_requests=js.request_queue_limit,
            max_asking=min(MOST_ASKED, js.request_queue_limit, js.info_queue_limit or MOST_ASKED),
            ping_interval=o.ping_interval,
            ping_max=o.ping_max,
            write_deadline=o.write_deadline,
            debug=o.debug,
            trace=o.trace,
        )
        self.plane.configure(config)
        self._clients.configure(_terms(o, None))

    def _allow_files(self) -> None:
        """As many open files as the machine lets this process have: connections and blocks."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= hard < FILES_MIN:
            raise StartError(
                f"The limit of open files is {hard}, and a server needs {FILES_MIN} (ulimit -n, or"
                " LimitNOFILE= of a unit)"
            )
        if soft == hard:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as e:
            self.log.warn(f"The limit of open files stays at {soft}: {e}")

    def listen(self) -> None:
        """Opens the ports, that of monitoring first; StartError if one cannot be had, ConfigError
        if it cannot be secured."""
        o = self.options
        if o.http_port or o.https_port:
            self.monitor, self.http_port = self._open(
                o.http_host, o.http_port or o.https_port, "Can't start monitoring on {}"
            )
            where = host_port(o.http_host, self.http_port)
            self.log.info(f"Starting {self._monitor_scheme} monitor on {where}")
        by = self.secured(o, self.staples)
        if o.websocket.port:
            self._listen_websocket(by.websocket if by else None)
        # Last: who can connect is served at once.
        self._listener, self.port = self._open(o.host, o.port, "Error listening on port: {}")
        self._clients.configure(_terms(o, self._info()))
        self._secure(by.clients if by else None)
        self._clients.listen(self._listener.fileno())
        self.log.info(f"Listening for client connections on {host_port(o.host, self.port)}")
        if o.proxy_protocol:
            self.log.info("PROXY protocol enabled for client connections")
        if o.tls is not None:
            self.log.info(
                f"TLS {'required' if o.tls_required else 'available'} for client connections"
            )
            for line in advice.of_handshakes(o):
                self.log.warn(line)
        self.log.info("Server is ready")
        if o.ports_file_dir:
            self._write_ports()

    def _secure(self, by: Certified | None) -> None:
        """Has clients that connect from now on secured so."""
        self.security, self.certificate_ends = (by.context, by.ends) if by else (None, "")
        self._clients.secure(by and by.context.security(), self.options.proxy_protocol)

    def secured(self, options: Options, staples: Staples) -> Secured | None:
        """What connections are secured by where these options hold; None: nothing. ConfigError."""
        if options.tls is None and options.websocket.tls is None:
            return None
        from jsserver.access.secured import secured  # a server without TLS goes without it

        return secured(options, staples, self.log)

    def staple(self, digest: bytes, response: bytes, until: int) -> None:
        """Has handshakes with a certificate carry another response from now on."""
        self.staples[digest] = (response, until)
        for context in filter(None, (self.security, self._through_websocket)):
            context.staple(digest, response, until)

    def renew(self, by: Secured | None) -> None:
        """Has clients told, held and secured as the options say now, where there is a choice from
        their next connection on."""
        self.staples = by.staples if by else {}
        self._secure(by.clients if by else None)
        self._clients.configure(_terms(self.options, self._info()))
        self.limit()
        if self.websocket_port:
            self._websockets.secure(self._take_websocket(by.websocket if by else None))
            self._websockets.configure(self._websocket_config())

    def _take_websocket(self, by: Certified | None) -> object:
        """What the data plane secures connections behind WebSocket by."""
        self._through_websocket, self.websocket_certificate_ends = (
            (by.context, by.ends) if by else (None, "")
        )
        return by and by.context.security()

    def _listen_websocket(self, by: Certified | None) -> None:
        block = self.options.websocket
        host = block.host or ANY_HOST
        try:
            listener = open_listener(host, block.port)
        except OSError as e:
            raise StartError(f"Unable to listen for websocket connections: {e}") from e
        self._websocket_listener, self.websocket_port = listener, bound_port(listener)
        self._websockets.configure(self._websocket_config())
        self._websockets.secure(self._take_websocket(by))
        self._websockets.listen(listener.fileno())
        where = host_port(host, self.websocket_port)
        self.log.info(f"Listening for websocket clients on {self._websocket_scheme}://{where}")
        for line in advice.of_websocket(self.options):
            self.log.warn(line)

    def _websocket_config(self) -> ListenerConfig:
        from jsserver.config.websocket import patience_of  # which has been loaded where it is set

        block, view = self.options.websocket, self.options.through_websocket
        secured = block.tls is not None
        host = block.host or ANY_HOST
        pieces = partial(
            self._pieces, host, self.websocket_port, tls_required=secured, tls_available=secured
        )
        return _terms(
            view,
            pieces(auth_required=view.auth_required),
            later_head=pieces(auth_required=self.options.auth_required)[0],
            ping_interval=max(block.ping_interval, 0),
            handshake_timeout=patience_of(block),
        )

    @staticmethod
    def _open(host: str, port: int, failure: str) -> tuple[socket.socket, int]:
        """A listener and its real port."""
        try:
            listener = open_listener(host, port)
        except OSError as e:
            where = host_port(host, max(port, 0))
            raise StartError(f'{failure.format(where)}, "{e}"') from e
        return listener, bound_port(listener)

    def _info(self) -> tuple[bytes, bytes, bytes]:
        o = self.options
        host, port = o.host, self.port
        if o.client_advertise:
            host = o.client_advertise
            if ":" in host.rpartition("]")[2]:
                host, port = split_address(host)
            host = host.strip("[]")
        return self._pieces(
            host,
            port,
            auth_required=o.auth_required and not o.no_auth_user,
            tls_required=o.tls_required,
            tls_available=o.tls is not None and o.allow_non_tls,
        )

    def _pieces(
        self, host: str, port: int, *, auth_required: bool, tls_required: bool, tls_available: bool
    ) -> tuple[bytes, bytes, bytes]:
        o = self.options
        return info.pieces(
            server_id=self.id,
            server_name=self.name,
            host=host,
            port=port,
            headers=not o.no_header_support,
            auth_required=auth_required,
            tls_required=tls_required,
            tls_verify=o.tls is not None and o.tls.verify,
            tls_available=tls_available,
            jetstream=self.storage is not None,
            domain=o.jetstream.domain if o.jetstream.enabled else "",
            xkey=self.xkey,
        )

    @property
    def _websocket_scheme(self) -> str:
        return "ws" if self.options.websocket.tls is None else "wss"

    @property
    def _monitor_scheme(self) -> str:
        return "https" if self.options.https_port else "http"

    def _write_ports(self) -> None:
        from jsserver.process.runfiles import PortsFile

        o = self.options
        self._ports_file = PortsFile(o.ports_file_dir)
        listeners = {"nats": ("nats" if o.tls is None else "tls", o.host, self.port)}
        if self.monitor is not None:
            listeners["monitoring"] = (self._monitor_scheme, o.http_host, self.http_port)
        if self._websocket_listener is not None:
            listeners["websocket"] = (self._websocket_scheme, o.websocket.host, self.websocket_port)
        try:
            self._ports_file.write(listeners)
        except OSError as e:
            self.log.error(f"Error writing ports file: {e.strerror}: {o.ports_file_dir}")

    @staticmethod
    def _prompt(body: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            priority.ask_for_short_turns()
            body()

        return run

    def spawn(self, name: str, target: Callable[[], object]) -> None:
        """Starts a thread that close() waits for."""
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    # ---- stop

    def refuse(self) -> None:
        """Lets no more clients in."""
        self._clients.listen(-1)
        self._websockets.listen(-1)
        for listener in (self._listener, self._websocket_listener):
            if listener is not None:
                listener.close()

    def stop(self) -> None:
        """Cuts the clients; streams were closed before."""
        if self.storage is not None:
            self.plane.stop_commits()
        self.plane.stop()

    def close(self) -> None:
        """Waits for the threads, and lets go of everything."""
        for thread in self._threads:
            thread.join(10)
        if not any(thread.is_alive() for thread in self._threads):
            self.plane.close()  # else whoever hangs in a system call would come back to nothing
        if self.storage is not None:
            self.storage.directory.close()
        if self._ports_file is not None:
            self._ports_file.remove()
