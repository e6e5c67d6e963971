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

from jsserver import (
    NATS_VERSION,
    TYPE_CHECKING,
    StartError,
    __version__,
    called_as_jsserver,
    commit,
)
from jsserver.access.accounts import Accounts
from jsserver.access.configured import Configured
from jsserver.access.info import InfoBuilder, Urls
from jsserver.cext.engine import DataPlane, PlaneConfig
from jsserver.config import ConfigError, advice
from jsserver.config.member import only_votes, served_accounts
from jsserver.config.options import Options
from jsserver.listeners.listeners import Listeners
from jsserver.process import priority
from jsserver.process.logs import Logger
from jsserver.services.subjects import API, OBJECTS, SYSTEM, is_plain_subject, of_the_system_account
from jsserver.text.goformat import failure, quote
from jsserver.text.identity import PREFIX_CURVE, PREFIX_SERVER, public_key, short_hash

if TYPE_CHECKING:
    from jsserver.access.secured import Secured
    from jsserver.cext.engine import LeafHandle, MeshHandle
    from jsserver.disk.storage import Storage
    from jsserver.process.runfiles import PortsFile
    from jsserver.text.nkeys import BoxPair, SigningPair

MOST_ASKED = 128
"""Requests of one connection that the control plane has, where its queues have room for as many:
one connection alone fills none of them."""

FILES_MIN = 64
"""Open files without which there is no room for clients and streams."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR2)
"""Those that the server takes; they wait until its event loop is there."""


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
        self.accounts = Accounts(self.plane)
        self.cluster = ""
        self.mesh: MeshHandle | None = None
        """The routes to other servers of the cluster; None: it is in none."""
        if options.cluster.port:
            from jsserver.text import nuid

            self.cluster = options.cluster.name or nuid.new()
            self.mesh = self.plane.mesh(max(options.cluster.pool_size or 3, 0))
        self.leafs: LeafHandle | None = None
        """The links to leaf nodes and hubs; None: there are none."""
        if options.leafnodes.enabled:
            self.have_leafs()
        if options.gateway.port:
            self.cluster = options.gateway.name
        self.configured = Configured(self.accounts)
        self.configured.follow(options, self.configured.coming(options))
        if options.system:
            self.accounts[options.system].become_system()
        self.storage = self._take_storage() if options.jetstream.enabled else None
        has = self.storage is not None
        self._builder = InfoBuilder(self.id, self.name, self.xkey, jetstream=has)
        self._call_cluster(self.cluster)
        self.listeners = Listeners(options, self.plane, log, self._builder)
        self._ports_file: PortsFile | None = None
        self._threads: list[threading.Thread] = []

    def have_leafs(self) -> None:
        """There are leaf nodes or hubs from now on."""
        self.leafs = self.plane.leaf_links()

    def _call_cluster(self, name: str) -> None:
        self.cluster = self._builder.cluster = name
        raw = self.name.encode()
        self.plane.name_server(raw, short_hash(self.name).encode(), name.encode())

    def rename_cluster(self, name: str) -> None:
        """The cluster is called so from now on; clients that come are told so."""
        self._call_cluster(name)
        self.listeners.terms()

    def advertise(self, urls: Urls) -> None:
        """Clients are told that they may connect there instead: who is connected now, at once."""
        before, self._builder.urls = self._builder.urls, urls
        plain, websocket = urls.plain != before.plain, urls.websocket != before.websocket
        self.listeners.tell(plain=plain, websocket=websocket)

    def send_elsewhere(self, urls: Urls | None) -> None:
        """Clients are told, once, that they had better connect to one of these; None: to any."""
        self._builder.urls, self._builder.lame = urls or Urls([], []), True
        self.listeners.tell(plain=True, websocket=True)
        self._builder.lame = False

    def _take_storage(self) -> Storage:
        # Imported only here: a server without JetStream starts without it.
        from jsserver.disk.storage import Storage
        from jsserver.disk.storedir import StoreDirError

        accounts = served_accounts(self.options)
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
        if self.cluster:
            log.info(f"  Cluster:  {self.cluster}")
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
            from jsserver.text.denied import remedy  # few need it

            return f"open {path}: {(e.strerror or str(e)).lower()}{remedy(e, path)}"
        return ""

    def write_files(self, before: Options) -> None:
        """Writes the files for scripts that are to stand elsewhere than before."""
        o = self.options
        if o.pid_file and o.pid_file != before.pid_file and (reason := self._write_pid()):
            self.log.error(f"Failed to write pidfile: {reason}")
        if o.ports_file_dir != before.ports_file_dir:
            self._remove_ports()
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
            and not self.listeners.responders_first
            and (
                self.storage is None
                or not any(self.storage.holds_streams(name) for name in served_accounts(o))
            )
        )
        if alone:
            self.listen()
        return alone

    def _offer_services(self) -> None:
        for name in self.accounts:
            self.offer_services(name)

    def offer_services(self, name: str) -> None:
        """From now on what clients of an account ask of the control plane goes to its inbox."""
        account = self.accounts[name]
        if self.storage is not None and self.options.cluster.port:
            self._offer_to_cluster(name)
        elif self.storage is not None:
            account.serve_requests(API.encode())
            if self.options.jetstream.object_requests.enabled:
                account.serve_requests(OBJECTS.encode())
            if self.storage.domain and name != self.options.system:
                account.serve_domain(self.storage.domain)
        for subject in self._services_of(name):
            account.serve_requests(subject.encode())

    def _offer_to_cluster(self, name: str) -> None:
        """What is asked of JetStream goes to all servers of the cluster, by the system account."""
        if only_votes(self.options):
            return
        if self.storage is not None and self.storage.domain and name != self.options.system:
            self.accounts[name].serve_domain(self.storage.domain)

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
        """Holds clients to what the options say, and those that come from now on to a login."""
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
            whole_writes=o.write_timeout == "close",
            debug=o.debug,
            trace=o.trace,
        )
        self.plane.configure(config)
        self.listeners.terms()

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
        """Opens the ports; StartError if one cannot be had, ConfigError if it cannot be secured."""
        self.listeners.open()
        self.log.info("Server is ready")
        if self.options.ports_file_dir:
            self._write_ports()

    def renew(self, secured: Secured | None) -> None:
        """Has clients told, held and secured as the options say now, where there is a choice from
        their next connection on."""
        self.listeners.renew(secured)
        self.limit()

    def _write_ports(self) -> None:
        from jsserver.process.runfiles import PortsFile

        o = self.options
        self._ports_file = PortsFile(o.ports_file_dir)
        try:
            self._ports_file.write(self.listeners.urls())
        except OSError as e:
            self._ports_file = None
            self.log.error(f"Error writing ports file: {e.strerror}: {o.ports_file_dir}")

    def _remove_ports(self) -> None:
        if self._ports_file is None:
            return
        try:
            self._ports_file.remove()
        except OSError as e:
            self.log.error(f"Error cleaning up ports file: {failure(e)}")
        self._ports_file = None

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
            self.plane.close()  # else a thread in a system call would come back to nothing
        if self.storage is not None:
            self.storage.directory.close()
        self._remove_ports()
