"""The routes of a server: carries out the mesh's decisions with sockets, data plane and clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from jsserver import NATS_VERSION
from jsserver.access.auth import permission_set
from jsserver.access.clients import CLOSE_CODES, read_connection
from jsserver.access.info import GO, Urls
from jsserver.cext import engine
from jsserver.config.options import Permissions, SubjectPermission
from jsserver.config.otherservers import advertised
from jsserver.links import words
from jsserver.links.gateways import gossip_of
from jsserver.links.gatewaywords import gateway_hash
from jsserver.links.mesh import Mesh
from jsserver.links.model import Reason, Settings, Target
from jsserver.process.sockets import host_port
from jsserver.services.linked import (
    OtherClusters,
    Pace,
    address_of,
    begin_to_dial,
    certified_name,
    compress,
    error_line,
    new_nonce,
    relevel,
    reports_of,
    slow_line,
)
from jsserver.services.proving import Passwords, password_sent
from jsserver.text.goformat import SECOND, quote

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jsserver.access.accounts import Accounts
    from jsserver.access.secured import Links
    from jsserver.cext.engine import DataPlane, Item, MeshHandle, PermissionSet
    from jsserver.config.clusters import Cluster
    from jsserver.config.options import Options
    from jsserver.process.logs import Logger

DIAL_TIMEOUT = 2 * SECOND
DEFAULT_POOL = 3
MQTT = "$MQTT.>"
"""Subjects between servers that need no permission."""


def _told(rules: SubjectPermission | None) -> words.SubjectPermission | None:
    """Permissions in the form of INFO."""
    if rules is None:
        return None
    return words.SubjectPermission(allow=rules.allow or [], deny=rules.deny or [])


def _held(rules: SubjectPermission | None) -> SubjectPermission | None:
    """Permissions in the data plane's form."""
    if rules is None or rules.allow is None:
        return rules
    return SubjectPermission(allow=[*rules.allow, MQTT], deny=rules.deny)


def _targets(cluster: Cluster) -> list[Target]:
    return [
        Target(host=url.host, port=url.port, user=url.user, password=url.password)
        for url in cluster.routes
    ]


def _accounts(options: Options) -> list[str]:
    """The accounts with connections of their own; none without pools."""
    if options.cluster.pool_size < 0:
        return []
    named = [*options.cluster.accounts, *filter(None, [options.system])]
    return list(dict.fromkeys(named))


def _password_sent(cluster: Cluster) -> str:
    logins = ((url.user, url.password) for url in cluster.routes)
    return password_sent(cluster.password, cluster.username, logins)


def _permissions(cluster: Cluster) -> PermissionSet | None:
    if cluster.imports is None and cluster.exports is None:
        return None
    rules = Permissions(publish=_held(cluster.imports), subscribe=_held(cluster.exports))
    return permission_set(rules)


class Routes:
    """The mesh of a server; start() and close() frame its life in one event loop."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        handle: MeshHandle,
        accounts: Accounts,
        log: Logger,
        *,
        name: str,
        server_id: str,
        cluster: str,
        renamed: Callable[[str], None],
        advertise: Callable[[Urls], None],
        met: Callable[[], None],
        lost: Callable[[str], None],
        leafs: Callable[[list[str], list[str]], None],
        gateways: Callable[[], OtherClusters | None],
        security: Callable[[], Links | None],
    ) -> None:
        """`renamed`: is called when this server takes over another cluster name; `advertise`: with
        the URLs of all servers for clients; `met`: for each new server; `lost`: with the name of a
        lost one; `leafs`: with the other servers' URLs for leaf nodes, and those for WebSocket.
        `gateways`: the links to other clusters, if any; `security`: TLS of links."""
        self._gateways = gateways
        self._leafs = leafs
        self._security = security
        self._met = met
        self._lost = lost
        self._advertise = advertise
        self._urls = Urls([], [])
        """URLs at which clients reach this server."""
        self.told = self._urls
        """URLs that clients were told."""
        self._renamed = renamed
        self._options = options
        self._plane = plane
        self._handle = handle
        self._accounts = accounts
        self._log = log
        self._where: dict[int, str] = {}
        """Remote addresses by connection number."""
        self._passwords = Passwords()
        o = options.cluster
        self._port = o.port
        settings = Settings(
            server_id=server_id,
            server_name=name,
            version=NATS_VERSION,
            go=GO,
            cluster=cluster,
            cluster_dynamic=not o.name,
            host=o.host,
            port=o.port,
            user=o.username,
            password=o.password,
            fits=self._passwords.fits,
            password_sent=_password_sent(o),
            pool_size=o.pool_size or DEFAULT_POOL,
            max_payload=options.max_payload,
            headers=not options.no_header_support,
            jetstream=options.jetstream.enabled,
            connect_retries=o.connect_retries,
            connect_backoff=o.connect_backoff,
            reports=reports_of(options),
            tls=o.tls is not None,
            imports=_told(o.imports),
            exports=_told(o.exports),
            compression=o.compression,
        )
        self._permissions = _permissions(o)
        settings.accounts = _accounts(options)
        self.mesh = Mesh(settings, _targets(o), self, new_nonce, random.Random())
        self._pace = Pace(self.mesh.tick)

    def start(self, port: int, urls: Urls, leaf_urls: list[str], gateway_url: str) -> None:
        """Begins to dial. `port`: the routes' port; `urls`, `leaf_urls`, `gateway_url`: where
        clients, leaf nodes and other clusters connect."""
        s, o = self.mesh.settings, self._options.cluster
        self._urls = urls
        if not o.no_advertise:
            s.connect_urls, s.ws_connect_urls = urls
        s.leafnode_urls = leaf_urls
        s.gateway_url = gateway_url
        self._port = port
        self._advertise_own()
        self._limit()
        self._pin(s.accounts)
        self.mesh.start(self._pace.now())
        self._pace.go_on()

    def _advertise_own(self) -> None:
        """Sets where other servers are told to dial this one."""
        s, o = self.mesh.settings, self._options.cluster
        s.host, s.port, s.advertise = o.host, self._port, ""
        if o.advertise:
            s.host, s.port = advertised(o.advertise, self._port)
            s.advertise = host_port(s.host, s.port)

    def _pin(self, accounts: list[str]) -> None:
        for name in accounts:
            self._handle.pin(self._accounts.open(name))

    def _repool(self) -> None:
        """Takes another size of pools, and other accounts with connections of their own: all
        connections are made anew."""
        s, o = self.mesh.settings, self._options.cluster
        s.pool_size = o.pool_size or DEFAULT_POOL
        before, s.accounts = s.accounts, _accounts(self._options)
        for name in before:
            if name in self._accounts:
                self._handle.unpin(self._accounts[name])
        self._handle.resize(max(s.pool_size, 0))
        self._pin(s.accounts)
        self.mesh.close_all()

    def follow(self, before: Cluster) -> None:
        """Takes a changed block `cluster` from the options."""
        s, o = self.mesh.settings, self._options.cluster
        self._limit()
        s.tls = o.tls is not None
        s.user, s.password, s.password_sent = o.username, o.password, _password_sent(o)
        s.connect_retries, s.connect_backoff = o.connect_retries, o.connect_backoff
        s.imports, s.exports = _told(o.imports), _told(o.exports)
        s.connect_urls, s.ws_connect_urls = ([], []) if o.no_advertise else self._urls
        if (before.imports, before.exports) != (o.imports, o.exports):
            self._permissions = _permissions(o)
            for link in self.mesh.shown():
                self._handle.restrict(link.number, self._permissions)
            self.mesh.tell()  # the new permissions decide which interest other servers announce
        if before.routes != o.routes:
            self.mesh.follow(_targets(o), self._pace.now())
            self._pace.go_on()
        if (before.username, before.password) != (o.username, o.password):
            self.mesh.judge_logins()
        if before.no_advertise != o.no_advertise:
            self.clients_change()
        if before.advertise != o.advertise:
            self._advertise_own()
        if (before.compression, before.rtt_thresholds) != (o.compression, o.rtt_thresholds):
            self.mesh.recompress(o.compression)
        if (before.pool_size, before.accounts) != (o.pool_size, o.accounts):
            self._repool()

    def _limit(self) -> None:
        o = self._options.cluster
        self._handle.limit(
            ping_interval=max(o.ping_interval, 0),
            ping_max=max(o.ping_max, 0),
            write_deadline=max(o.write_deadline, 0),
            whole_writes=o.write_timeout == "close",
        )

    def close(self) -> None:
        """Stops dialling; the data plane closes the connections."""
        self._pace.close()
        self._passwords.close()

    # ---- news from the data plane

    @property
    def cluster(self) -> str:
        """The cluster's present name."""
        return self.mesh.settings.cluster

    def names(self) -> list[str]:
        """The names of the servers that this one is connected to; in any thread."""
        return [peer.info.server_name for peer in list(self.mesh.peers.values())]

    def said(self, item: Item) -> None:
        """An INBOX_LINK: a route has sent a protocol line."""
        number = item.cid
        what, text = item.numbers[2], item.texts[2]
        if what == engine.SAID_OPENED:
            where = self._where.setdefault(number, address_of(item))
            self._log.info(f"{where} - rid:{number} - Route connection created")
            self.mesh.opened(number, where)
        elif what == engine.SAID_INFO:
            self.mesh.info(number, text)
        elif what == engine.SAID_CONNECT:
            o = self._options.cluster
            self._passwords.connect(
                self._pace,
                (o.username, o.password),
                text,
                is_there=lambda: number in self._where,
                then=lambda: self.mesh.connect(number, text),
            )
        elif what == engine.SAID_ERROR:
            self.mesh.error(number, text)
        elif what == engine.SAID_HAILED:
            self.mesh.hailed(number)
            self._met()
        self._pace.go_on()

    def failed(self, item: Item) -> None:
        """An INBOX_ERROR of a route."""
        line = error_line(item).replace("TLS handshake", "TLS route handshake", 1)
        self._log.error(f"{self._named(item)} - {line}")

    def ended(self, item: Item) -> None:
        """An INBOX_CLOSED of a route."""
        number = item.cid
        connection = read_connection(item)
        who, reason = self._named(item), connection.reason
        o = self._options
        slow = slow_line(connection, o, o.cluster.write_deadline or o.write_deadline)
        if slow:
            self._log.info(f"{who} - {slow}")
        self._log.info(f"{who} - Router connection closed: {reason}")
        self._where.pop(number, None)
        name = self.mesh.name_of(number)
        self.mesh.closed(number, self._pace.now())
        if name and name not in self.names():
            self._lost(name)
        self._pace.go_on()

    def _named(self, item: Item) -> str:
        """The route's name in the log: address, number, and the server's name once known."""
        number = item.cid
        where = self._where.get(number) or address_of(item)
        name = self.mesh.name_of(number)
        return f"{where} - rid:{number}" + (f" - {quote(name)}" if name else "")

    # ---- what the mesh asks for

    def dial(self, target: Target, account: str) -> None:
        self._pace.begin(self._dial(target, account))

    def write(self, link: int, data: bytes) -> None:
        self._handle.write(link, data)

    def resume(self, link: int) -> None:
        self._handle.resume(link)

    def compress(self, link: int, mode: str, first: bytes) -> None:
        compress(self._handle, link, mode, self._options.cluster.rtt_thresholds, first)

    def relevel(self, link: int, mode: str) -> None:
        relevel(self._handle, link, mode, self._options.cluster.rtt_thresholds)

    def open_link(self, link: int, *, pooled: bool, place: int, account: str) -> None:
        handle = self._accounts[account] if account else None
        self._handle.open(
            link,
            pooled=pooled,
            place=place,
            account=handle,
            permissions=self._permissions,
            server=gateway_hash(self.mesh.id_of(link)),
        )

    def tell_again(self, link: int) -> None:
        self._handle.tell_again(link)

    def cut(self, link: int, reason: Reason, error: str = "") -> None:
        code = CLOSE_CODES[reason.value]
        self._plane.close_connection(link, code, error.encode() if error else None)

    def has_account(self, name: str) -> bool:
        return name in self._accounts

    def renamed(self, cluster: str) -> None:
        self._log.info(f"Cluster name updated to {cluster}")
        self._renamed(cluster)

    def clients_change(self) -> None:
        """Announces changed URLs. Where clients never heard of another server, they are not told of
        this one either."""
        self._leafs(self.mesh.leaf_urls(), self.mesh.elsewhere()[1])
        gateways = self._gateways()
        if gateways is not None:
            gateways.members_at(self.mesh.gateway_urls())
        if self._options.cluster.no_advertise:
            return
        others = zip(self.told, self._urls, self.mesh.elsewhere(), strict=True)
        urls = Urls(
            *(list(dict.fromkeys(own + new)) if told or new else [] for told, own, new in others)
        )
        if urls != self.told:
            self.told = urls
            self._advertise(urls)

    def tell_all(self, line: bytes) -> None:
        """Sends a line to each other server."""
        for peer in self.mesh.peers.values():
            for link in peer.links()[:1]:
                self._handle.write(link.number, line)

    def gateway(self, said: words.Info, peer: str) -> None:
        gateways = self._gateways()
        if gateways is None:
            name = quote(said.gateway)
            self._log.error(
                f"Received information about gateway {name} from {peer}, but gateway is not"
                " configured"
            )
        else:
            gateways.heard(gossip_of(said))

    def joined(self, link: int) -> None:
        gateways = self._gateways()
        for line in gateways.greet() if gateways is not None else ():
            self._handle.write(link, line)

    def leave(self) -> Urls:
        """Asks the other servers to send clients elsewhere; returns the URLs that remain."""
        self._urls = Urls([], [])
        self.mesh.leave()
        if self._options.cluster.no_advertise:
            return self._urls
        self.told = Urls(*self.mesh.elsewhere())
        return self.told

    def log(self, level: str, text: str) -> None:
        getattr(self._log, level)(text)

    # ---- dialling, and the clock

    async def _dial(self, target: Target, account: str) -> None:
        try:
            fd, reached = await begin_to_dial(target.host, target.port)
        except OSError as error:
            self.mesh.unreachable(target, account, str(error), self._pace.now())
            self._pace.go_on()
            return
        number = self._handle.dial(fd, DIAL_TIMEOUT, *self._secured(target.host))
        self._where[number] = reached
        self.mesh.dialled(number, target, account, reached)

    def _secured(self, host: str) -> tuple[Any, bytes]:
        """TLS of a route, and the name that the other server's certificate must have."""
        links = self._security()
        if links is None or links.routes is None:
            return None, b""
        others = (url.host for url in self._options.cluster.routes)
        return links.routes.context.security(), certified_name(host, others)
