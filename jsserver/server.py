"""The control plane of one server, from its start to its end."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from jsserver import StartError
from jsserver.access.auth import Authenticator
from jsserver.access.clients import Connection
from jsserver.cext.engine import INBOX_GROUP, INBOX_REPLICA, Item
from jsserver.config.member import only_votes
from jsserver.front import SIGNALS, Front, explained
from jsserver.monitor.closed import ClosedConnections
from jsserver.process import garbage
from jsserver.process.notify import Notifier
from jsserver.services.answers import Identity
from jsserver.services.certificates import Certificates
from jsserver.services.inbox import Finished, Inbox
from jsserver.services.reload import Reload
from jsserver.services.system import System
from jsserver.services.watched import Watched
from jsserver.text.identity import short_hash

if TYPE_CHECKING:
    from jsserver.access.refusal import Refused
    from jsserver.access.websocket import Websockets
    from jsserver.monitor.monitor import Monitor
    from jsserver.services.delegates import Delegates
    from jsserver.services.events import Events
    from jsserver.services.followers import Parts
    from jsserver.services.gateways import GatewayService
    from jsserver.services.held import Held
    from jsserver.services.jetstream import JetStream
    from jsserver.services.leafs import LeafService
    from jsserver.services.metagroup import MetaGroup
    from jsserver.services.needed import Needed
    from jsserver.services.operators import Operators
    from jsserver.services.relay import Relay
    from jsserver.services.routes import Routes

STOP_SIGNALS = {signal.SIGINT: "interrupt", signal.SIGTERM: "terminated"}


class Server:
    """Decides what the data plane asks; start() and stop() frame its life in one event loop."""

    def __init__(self, front: Front) -> None:
        options = front.options
        self.front = front
        self.options = options
        self.log = front.log
        self.plane = front.plane
        self.accounts = front.accounts
        self.finished = Finished(self.plane)
        self.stopped = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None
        """The way to the end of a lame duck."""
        self.jetstream = self._make_jetstream()
        self.monitor: Monitor | None = None
        self.closed = ClosedConnections(options.max_closed_clients)
        self.leafs = self._make_leafs()
        self.gateways: GatewayService | None = None
        self.routes = self._make_routes()
        self.gateways = self._make_gateways()
        self.meta = self._make_meta()
        self.inbox = Inbox(
            self.plane,
            self.log,
            Authenticator(options),
            options,
            self.accounts,
            self._make_websockets(),
            self.routes,
            self.leafs,
            self.gateways,
            on_request=self._request,
            on_event=self._event,
            on_connected=self._connected,
            on_closed=self._closed,
        )
        if self.jetstream is not None:
            self.jetstream.complete = self.inbox.complete
        self.relay = self._make_relay()
        self.inbox.measured = None if self.relay is None else self.relay.measured
        self.identity = Identity(options, front.name, front.id, lambda: front.cluster)
        self.system = System(
            self.plane,
            self.accounts,
            options.system,
            self.identity,
            self.inbox.admissions,
            finished=self.finished,
            relay=self.relay,
            events=lambda: self.events,
            pages=self._make_pages,
            reload=lambda: self.reload.ask(),
        )
        self.delegates = self._make_delegates()
        self._notify = Notifier.from_environment()
        self.certificates = Certificates(
            options,
            self.plane,
            self.log,
            self.inbox,
            front.listeners,
            self.stopped,
            lambda: None if self.events is None else self.events.peer_refused,
        )
        self.watched = self._make_watched()
        self.events = self._make_events()
        self.reload = Reload(self.log, self._reloaded_parts)

    def _make_jetstream(self) -> JetStream | None:
        front = self.front
        if front.storage is None:
            return None
        # Imported only here: a server without JetStream starts without it.
        from jsserver.services.jetstream import JetStream

        return JetStream(
            front.options,
            front.plane,
            front.storage,
            front.accounts,
            front.log,
            self.finished,
            front.name,
            front.id,
        )

    def _make_routes(self) -> Routes | None:
        front = self.front
        if front.mesh is None:
            return None
        # Imported only here: a server that is in no cluster starts without it.
        from jsserver.services.routes import Routes

        return Routes(
            front.options,
            front.plane,
            front.mesh,
            front.accounts,
            front.log,
            name=front.name,
            server_id=front.id,
            cluster=front.cluster,
            renamed=self._renamed,
            advertise=front.advertise,
            met=self._met,
            lost=self._lost,
            security=lambda: front.listeners.links,
            leafs=self._leafs_elsewhere,
            gateways=lambda: self.gateways,
        )

    def _make_gateways(self) -> GatewayService | None:
        front = self.front
        if not front.options.gateway.port:
            return None
        # Imported only here: a server whose cluster is alone starts without it.
        from jsserver.services.gateways import GatewayService

        return GatewayService(
            front.options,
            front.plane,
            front.log,
            name=front.name,
            server_id=front.id,
            routes=self.routes,
            met=self._met,
            lost=lambda server: self._lost(server, far=True),
            security=lambda: front.listeners.links,
        )

    def _renamed(self, cluster: str) -> None:
        self.front.rename_cluster(cluster)
        if self.leafs is not None:
            self.leafs.leafs.settings.cluster = cluster

    def _leafs_elsewhere(self, urls: list[str], ws_urls: list[str]) -> None:
        if self.leafs is not None:
            self.leafs.elsewhere(urls, ws_urls)

    def _make_leafs(self) -> LeafService | None:
        front = self.front
        if front.leafs is None:
            return None
        # Imported only here: a server without leaf nodes and hubs starts without it.
        from jsserver.services.leafs import LeafService

        leafs = LeafService(
            front.options,
            front.plane,
            front.leafs,
            front.accounts,
            front.log,
            name=front.name,
            server_id=front.id,
            cluster=front.cluster,
            sources=front.configured.mapped,
            security=lambda: front.listeners.links,
        )
        leafs.on_opened, leafs.on_closed = self._leaf_opened, self._leaf_closed
        leafs.leads = lambda account, may: (
            None if self.meta is None else self.meta.holdings.may_lead(account, may=may)
        )
        return leafs

    def _leafs_now(self) -> LeafService | None:
        """The leaf nodes and hubs, as soon as the options speak of any."""
        if self.leafs is None and self.options.leafnodes.enabled:
            self.front.have_leafs()
            self.leafs = self.watched.leaf_nodes = self._make_leafs()
            assert self.leafs is not None, "there are links to hubs now"
            self.inbox.lead_leafs(self.leafs)
            self.leafs.start(0, [], [])
        return self.leafs

    def _make_relay(self) -> Relay | None:
        if (self.routes is None and self.gateways is None) or not self.options.system:
            return None
        from jsserver.services.relay import Relay

        return Relay(self.accounts, self.options.system, self.front.id, self.front.name)

    def _make_held(self, needed: Needed) -> Held | None:
        front = self.front
        if self.jetstream is None or only_votes(self.options):
            return None
        # Imported only here: a server alone starts without it.
        from jsserver.services.held import Held

        held = Held(
            front.accounts,
            self.options.system,
            self.jetstream,
            front.log,
            peer=short_hash(front.name),
            cluster=lambda: front.cluster,
            needed=needed,
        )
        self.jetstream.shared.member = held
        return held

    def _make_meta(self) -> MetaGroup | None:
        front, routes = self.front, self.routes
        jetstream = self.jetstream
        if front.storage is None or routes is None or jetstream is None:
            return None
        # Imported only here: a server alone starts without it.
        from jsserver.services.metagroup import MetaGroup
        from jsserver.services.needed import Needed

        needed = Needed(lambda: None if self.delegates is None else self.delegates.tenants)
        return MetaGroup(
            front.options,
            front.plane,
            front.accounts,
            front.storage.directory.path,
            front.log,
            name=front.name,
            cluster=lambda: front.cluster,
            routed=routes.names,
            settings=jetstream.settings,
            held=self._make_held(needed),
            jetstream=jetstream,
            needed=needed,
        )

    def _make_watched(self) -> Watched:
        front = self.front
        return Watched(
            self.options,
            self.plane,
            self.accounts,
            self.inbox,
            id=front.id,
            name=front.name,
            started=front.started,
            identity=self.identity,
            closed=self.closed,
            configured=front.configured,
            listeners=front.listeners,
            certificates=self.certificates,
            jetstream=self.jetstream,
            meta=self.meta,
            routes=self.routes,
            leafs=self.leafs,
            gateways=self.gateways,
            delegates=self.delegates,
            waiting=self._waiting,
        )

    def _make_delegates(self) -> Delegates | None:
        if not self.options.by_token:
            return None
        # Imported only here: a server without tokens starts without signatures.
        from jsserver.services.delegates import Delegates

        assert self.front.keys is not None, "a server that lets in by tokens has keys"
        return Delegates(
            self.options,
            self.plane,
            self.accounts,
            self.inbox,
            self.log,
            identity=self.identity,
            keys=self.front.keys,
            jetstream=self.jetstream,
            offer=self.front.offer_services,
        )

    def _make_pages(self) -> Operators:
        from jsserver.services.operators import Operators  # with it comes monitoring

        return Operators(self.watched)

    def _reloaded_parts(self) -> Parts:
        from jsserver.services.followers import Parts  # which most servers never need

        front = self.front
        return Parts(
            options=self.options,
            log=self.log,
            plane=self.plane,
            accounts=self.accounts,
            configured=front.configured,
            inbox=self.inbox,
            listeners=front.listeners,
            certificates=self.certificates,
            jetstream=self.jetstream,
            storage=front.storage,
            delegates=self.delegates,
            routes=self.routes,
            leafs=self._leafs_now,
            offer=front.offer_services,
            limit=front.limit,
            renew=front.renew,
            write_files=front.write_files,
            watch_system=self.watch_system,
            loaded=self._loaded,
        )

    def _loaded(self) -> None:
        self.watched.config_loaded = time.time_ns()

    def _make_events(self) -> Events | None:
        o = self.options
        name = o.system
        wanted = o.operators.enabled or o.authorization.callout is not None
        linked = self.routes is not None or self.gateways is not None  # whose other servers listen
        wanted = bool(name) and (wanted or linked)
        if not wanted and not any(user.account == name for user in o.users):
            return None
        # Imported only here: a server that nobody hears events of starts without it.
        from jsserver.services.events import Events

        return Events(self.watched, name)

    def _make_websockets(self) -> Websockets | None:
        if self.options.websocket.port == 0:
            return None
        from jsserver.access.websocket import Websockets

        return Websockets(self.plane, self.log, self.options)

    def _waiting(self) -> dict[str, int]:
        found = self.system.waiting()
        if self.jetstream is not None:
            found["JetStream API requests"] = self.jetstream.dispatcher.waiting
        return found

    # ---- what comes out of the inbox

    def _request(self, item: Item) -> None:
        subject = item.texts[0]
        for taker in (self.relay, self.delegates, self.meta):
            if taker is not None and taker.take(item):
                self.finished(item.cid, item.numbers[1])
                return
        if subject.startswith(b"$SYS."):
            self.system.request(item)
        elif self.jetstream is not None:
            self.jetstream.request(item)

    def _connected(self, cid: int, account: str) -> None:
        if self.events is not None:
            self.events.connected(cid, account)

    def _closed(self, connection: Connection, member: bool, refusal: Refused | None) -> None:
        self.closed.add(connection)
        if self.events is not None:
            self.events.closed(connection, member, refusal)
        if self.delegates is not None:
            self.delegates.closed(connection.cid)
        if self.jetstream is not None:
            self.jetstream.connection_gone(connection.cid)

    def _leaf_opened(self, connection: Connection, account: str) -> None:
        if self.events is not None:
            self.events.leaf_connected(connection, account)

    def _leaf_closed(self, connection: Connection, account: str) -> None:
        if self.events is not None:
            self.events.leaf_closed(connection, account)

    def _met(self) -> None:
        if self.events is not None:
            self.events.hurry()

    def _lost(self, server: str, far: bool = False) -> None:
        for one in (None if far else self.meta, self.relay):
            if one is not None:
                one.lost(server)

    def _event(self, item: Item) -> None:
        if item.kind == INBOX_GROUP and self.meta is not None:
            self.meta.told(item.numbers[1])
        elif item.kind == INBOX_REPLICA and self.meta is not None:
            self.meta.told_by_replica(item)
        elif item.kind not in (INBOX_GROUP, INBOX_REPLICA) and self.jetstream is not None:
            self.jetstream.event(item)

    # ---- start

    async def start(self, listening: bool) -> None:
        """Serves; StartError or OSError when that is not possible. `listening`: clients are served
        already, and their requests wait."""
        self._attending = asyncio.create_task(self._notify.attend())
        await self.certificates.take_peers(self.options)
        if not listening:
            self.inbox.open()
        if self.jetstream is not None:
            await self.jetstream.start()
        if self.delegates is not None:
            await self._start_accounts(self.delegates)
        if self.meta is not None:
            self.meta.removal.ended = self.watched.end_jetstream
            await self.meta.start()
        if listening:
            self.inbox.open()
        else:
            await self._listen()
        if self.leafs is not None:
            listeners = self.front.listeners
            ws_urls = listeners.connect_urls().websocket
            self.leafs.start(listeners.leaf_port, listeners.leaf_urls(), ws_urls)
        if self.routes is not None:
            listeners = self.front.listeners
            told = [] if self.options.leafnodes.no_advertise else listeners.leaf_urls()
            reached = "".join(listeners.gateway_urls())
            self.routes.start(listeners.route_port, listeners.connect_urls(), told, reached)
        if self.gateways is not None:
            listeners = self.front.listeners
            self.gateways.start(listeners.gateway_port, listeners.gateway_urls())
        monitoring = self.front.listeners.take_monitoring()
        if monitoring is not None:
            # Imported only here: a server that is not watched starts without it.
            from jsserver.monitor.monitor import Monitor

            self.monitor = Monitor(self.watched, self.closed)
            self.watched.page_requests = self.monitor.requests
            await self.monitor.start(monitoring)
        self.watched.accepting = True
        if self.events is not None:
            self.events.start()
        self._notify.ready()
        self.reload.begin()
        self.front.spawn("cleanup", _remove_stale_folders)

    async def _listen(self) -> None:
        """Opens the ports, once it is known what certificates are to be shown with."""
        stapled = await self.certificates.learn_staples(self.options)
        self.front.listeners.staples = dict(one.staple for one in stapled)
        self.front.listen()
        self.certificates.attend_staples(stapled)

    async def _start_accounts(self, delegates: Delegates) -> None:
        """The accounts that the server cannot be without: the system's, and those with streams,
        unless a cluster says which streams there are."""
        storage = self.front.storage if self.meta is None else None
        names = [] if storage is None else list(filter(storage.holds_streams, storage.accounts()))
        names += [remote.account for remote in self.options.leafnodes.remotes]
        try:
            await delegates.start(names)
        except ValueError as error:
            raise StartError(str(error)) from None

    # ---- signals and stop

    def watch_signals(self) -> None:
        """Takes the signals that were held back."""
        loop = asyncio.get_running_loop()
        for number, text in STOP_SIGNALS.items():
            loop.add_signal_handler(number, self._trapped, text)
        loop.add_signal_handler(signal.SIGUSR1, self._reopen)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        loop.add_signal_handler(signal.SIGUSR2, self._become_lame_duck)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # what came during the start comes now

    def _trapped(self, text: str) -> None:
        self.log.info(f'Trapped "{text}" signal')
        self.stopped.set()

    def _reopen(self) -> None:
        self.log.info('Trapped "user defined signal 1" signal')
        self.log.reopen()

    def _become_lame_duck(self) -> None:
        self.log.info('Trapped "user defined signal 2" signal')
        if self._leaving is None and not self.stopped.is_set():
            from jsserver.services.lameduck import lame_duck

            front = self.front
            way = lame_duck(
                self.options,
                self.log,
                self.plane,
                front.listeners,
                self.events,
                self.routes,
                front.send_elsewhere,
            )
            self._leaving = asyncio.create_task(way)
            self._leaving.add_done_callback(lambda _: self.stopped.set())

    def _hang_up(self) -> None:
        self.log.info('Trapped "hangup" signal')
        self.reload.ask()

    def watch_system(self) -> None:
        """The system account is told of what happens once it has users."""
        if self.events is None:
            self.events = self._make_events()
            if self.events is not None:
                self.events.start()

    async def stop(self) -> None:
        """Stops listening, closes connections and streams; what was acked is on disk afterwards."""
        self.log.info("Initiating Shutdown...")
        self._notify.stopping()
        await self.close()
        self.log.info("Server Exiting..")

    async def close(self) -> None:
        """Ends what start() began, however far it came."""
        self.watched.accepting = False
        if self._leaving is not None:
            self._leaving.cancel()
        await self.reload.close()
        if self.events is not None:
            self.events.stop()
        self.front.listeners.close()
        if self.routes is not None:
            self.routes.close()
        if self.meta is not None:
            await self.meta.close()
        if self.leafs is not None:
            self.leafs.close()
        if self.jetstream is not None:
            await self.jetstream.close()
        if self.monitor is not None:
            await self.monitor.close()
        self.system.close()
        await self.certificates.close()
        if self.delegates is not None:
            self.delegates.close()
        self.front.stop()
        self.inbox.close()
        await asyncio.to_thread(self.front.close)


def _remove_stale_folders() -> None:
    from jsserver.process.procs import remove_stale_folders  # nobody waits for it

    remove_stale_folders()


async def serve(front: Front, listening: bool) -> int:
    """Runs one server until a signal ends it; the exit code."""
    log = front.log
    server = Server(front)
    server.watch_signals()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: log.error(explained(context.get("exception"), context["message"]))
    )
    try:
        await server.start(listening)
    except Exception as e:
        # Whatever it was: the operator reads one line, and no thread keeps the process alive.
        log.fatal(explained(e))
        await server.close()
        return 1
    garbage.begin()
    await server.stopped.wait()
    await server.stop()
    return 0
