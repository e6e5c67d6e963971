"""The routes of a server as a state machine: what to say, which links to keep, whom to dial.

No sockets or clocks: a driver hands in events, and does what the mesh asks for. Handshake, pools
and gossip are nats-server's (docs/links.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from jsserver.text.goformat import quote

from . import compression
from .model import Gossip, Link, Peer, Reason, Refused, Settings, Target, Transport
from .words import Info, RouteConnect, connect_line, gossip_line, info_line, read

RETRY = 1.0
RETRY_MAX = 30.0
ANNOUNCED_MAX = 1000
"""Servers at most that are dialled because others have announced them."""
PROTOCOL = 3
"""The version of the routes' protocol."""


def agreed_size(own: int, others: int) -> int:
    """The number of connections in a pool: the larger of the two wishes. 0: no pool, but a single
    connection for all accounts, as one side is old or has no pool (-1 in its configuration)."""
    if own <= 0 or others <= 0:
        return 0
    return max(own, others)


class Mesh:
    """The routes of a server."""

    def __init__(
        self,
        settings: Settings,
        targets: list[Target],
        transport: Transport,
        nonce: Callable[[], str],
        rand: random.Random,
    ) -> None:
        self.settings = settings
        self.targets = targets
        self.peers: dict[str, Peer] = {}
        self._links: dict[int, Link] = {}
        self._transport = transport
        self._nonce = nonce
        self._random = rand

    # ---- events

    def start(self, now: float) -> None:
        """Dials the configured servers."""
        for target in self.targets:
            target.at = now
        self.tick(now)

    def tick(self, now: float) -> float | None:
        """Dials servers that are due; when to call again, None: not scheduled."""
        due = [target for target in self.targets if target.at is not None and target.at <= now]
        for target in due:
            target.at = None
            peer = self.peers.get(target.peer)
            if peer is not None:
                self._fill(peer, target)
            elif not target.dialling:
                self._dial(target)
        return min((t.at for t in self.targets if t.at is not None), default=None)

    def dialled(self, number: int, target: Target, account: str, address: str) -> None:
        """A dialled connection has become this link; `opened` or `closed` follows."""
        self._links[number] = Link(number=number, address=address, target=target, account=account)

    def unreachable(self, target: Target, account: str, why: str, now: float) -> None:
        """A server could not be reached."""
        target.dialling.discard(account)
        self._complain(target, why)
        self._again(target, now)

    def opened(self, number: int, address: str) -> None:
        """A dialled or accepted link is connected."""
        link = self._links.get(number)
        if link is None:
            own = self._info(nonce=self._nonce())
            self._links[number] = Link(number=number, address=address, greeting=own)
            self._transport.write(number, info_line(own))
            return
        assert link.target is not None
        s = self.settings
        connect = RouteConnect(
            user=link.target.user,
            password=link.target.password,
            tls_required=s.tls,
            name=s.server_id,
            cluster=s.cluster,
            cluster_dynamic=s.cluster_dynamic,
            headers=s.headers,
            lnoc=True,
        )
        self._transport.write(number, connect_line(connect))

    def connect(self, number: int, text: bytes) -> None:
        """A CONNECT came in."""
        with self._hearing(number, "CONNECT") as link:
            said = read(text, RouteConnect)
            self._check_connect(link, said)
            link.connect = said

    def info(self, number: int, text: bytes) -> None:
        """An INFO came in: about the other server itself, or about a third one."""
        with self._hearing(number, "INFO") as link:
            said = read(text, Info)
            if link.info is None:
                self._first_info(link, said)
            elif said.gateway:
                self._transport.gateway(said, link.info.server_id)
            elif said.server_id != link.info.server_id:
                self._heard_of(said)
            else:
                self._said_more(link, link.info, said)

    @contextmanager
    def _hearing(self, number: int, verb: str) -> Iterator[Link]:
        """Frames the handling of a line: the link reads on afterwards, or is refused on an
        error."""
        link = self._links[number]
        try:
            yield link
        except ValueError as error:
            self._refuse(link, Refused(Reason.PROTOCOL, f"invalid {verb}: {error}"))
        except Refused as refused:
            self._refuse(link, refused)
        else:
            if not link.switching:
                self._transport.resume(number)
            link.switching = False

    def error(self, number: int, text: bytes) -> None:
        """An -ERR came in; the other server closes the link."""
        link = self._links.get(number)
        where = link.address if link is not None else ""
        self._transport.log("error", f"Route {where}: {text.decode(errors='replace').strip()}")

    def hailed(self, number: int) -> None:
        """The first PONG: the other server has admitted the link. Dials the pool's next
        connection."""
        link = self._links.get(number)
        if link is not None and link.target is not None and link.peer is not None:
            self._fill(link.peer, link.target)

    def closed(self, number: int, now: float) -> None:
        """A link was closed."""
        link = self._links.pop(number, None)
        if link is None:
            return
        target = link.target
        if target is not None:
            target.dialling.discard(link.account)
            if link.peer is None and link.info is None and target in self.targets:
                self._complain(target, "not reached, or not let in")
        if link.peer is not None:
            self._leave(link.peer, link)
            target = target or self._named(link.peer)
        if target is not None and (link.peer is None or link.dialled or not link.peer.links()):
            self._again(target, now)

    def shown(self) -> list[Link]:
        """The open links; in any thread."""
        return [link for link in list(self._links.values()) if link.peer is not None]

    def elsewhere(self) -> tuple[list[str], list[str]]:
        """The URLs of the other servers for clients, and for WebSocket clients, without those of
        servers that are shutting down."""
        staying = [peer.info for peer in self.peers.values() if not peer.leaves]
        plain = dict.fromkeys(url for info in staying for url in info.connect_urls)
        websocket = dict.fromkeys(url for info in staying for url in info.ws_connect_urls)
        return list(plain), list(websocket)

    def leaf_urls(self) -> list[str]:
        """The other servers' URLs for leaf nodes."""
        found = (url for peer in self.peers.values() for url in peer.info.leafnode_urls)
        return list(dict.fromkeys(found))

    def follow(self, targets: list[Target], now: float) -> None:
        """Takes the configured servers anew: closes the connections that were dialled to servers
        that are not configured any more."""
        wanted = {target.named: target for target in targets}
        for target in [t for t in self.targets if t.explicit]:
            if wanted.pop(target.named, None) is None:
                self.targets.remove(target)
                for link in list(self._links.values()):
                    if link.target is target:
                        self._transport.cut(link.number, Reason.REMOVED)
        for target in wanted.values():
            target.at = now
            self.targets.append(target)

    def recompress(self, mode: str) -> None:
        """Takes a changed compression mode. Closes links that have to negotiate again."""
        self.settings.compression = mode
        for link in self.shown():
            if link.compression in (compression.NOT_SUPPORTED, mode):
                continue
            if compression.changes(link, mode):
                self._transport.relevel(link.number, mode)
            else:
                self._transport.cut(link.number, Reason.REMOVED)

    def close_all(self) -> None:
        """Closes all links, which are dialled again."""
        for link in list(self._links.values()):
            self._transport.cut(link.number, Reason.REMOVED)

    def judge_logins(self) -> None:
        """Closes links that were accepted with another login than the present one."""
        for link in self.shown():
            if not link.dialled and link.connect is not None and not self._may_come(link.connect):
                self._refuse(link, Refused(Reason.LOGIN, "Authorization Violation"))

    def _may_come(self, said: RouteConnect) -> bool:
        s = self.settings
        return not s.user or (said.user == s.user and s.fits(s.password, said.password))

    def tell(self) -> None:
        """Announces this server's changed INFO to all others."""
        for link in self.shown():
            self._tell(link)

    def _tell(self, link: Link) -> None:
        own = self._info(account=link.account, place=link.place)
        self._transport.write(link.number, info_line(own))

    def gateway_urls(self) -> list[str]:
        """The other servers' URLs for gateways."""
        found = (peer.info.gateway_url for peer in self.peers.values())
        return [url for url in dict.fromkeys(found) if url]

    def leave(self) -> None:
        """Asks the other servers to send clients elsewhere."""
        info = self._info()
        info.ldm = True
        for peer in self.peers.values():
            for link in peer.links()[:1]:
                self._transport.write(link.number, info_line(info))

    def name_of(self, number: int) -> str:
        """The name of a link's server; "": not known yet."""
        link = self._links.get(number)
        return "" if link is None or link.info is None else link.info.server_name

    def id_of(self, number: int) -> str:
        """The id of a link's server; "": not known yet."""
        link = self._links.get(number)
        return "" if link is None or link.info is None else link.info.server_id

    # ---- lines to send

    def _said_more(self, link: Link, before: Info, said: Info) -> None:
        """Another INFO about a server with open links."""
        if said.ldm:
            if link.peer is not None and not link.peer.leaves:
                link.peer.leaves = True
                self._transport.clients_change()
            return
        counts_other = said.export != before.export
        before.import_, before.export = said.import_, said.export
        if counts_other:
            self._transport.tell_again(link.number)

    def _info(
        self, *, nonce: str = "", account: str = "", place: int = 0, chosen: str = ""
    ) -> Info:
        """`chosen`: the negotiated compression mode."""
        s = self.settings
        info = Info(
            server_id=s.server_id,
            server_name=s.server_name,
            version=s.version,
            proto=PROTOCOL,
            go=s.go,
            host=s.host,
            port=s.port,
            headers=s.headers,
            auth_required=bool(s.user),
            tls_required=s.tls,
            tls_verify=s.tls,
            max_payload=s.max_payload,
            nonce=nonce,
            cluster=s.cluster,
            cluster_dynamic=s.cluster_dynamic,
            connect_urls=s.connect_urls,
            ws_connect_urls=s.ws_connect_urls,
            import_=s.imports,
            export=s.exports,
            leafnode_urls=s.leafnode_urls,
            jetstream=s.jetstream,
            gateway_url=s.gateway_url,
            compression=compression.announced(s.compression, chosen),
            lnoc=True,
            lnocu=True,
            route_pool_size=max(s.pool_size, 0),
            route_pool_idx=place,
            route_account=account,
        )
        if s.advertise:
            info.ip = f"nats-route://{s.advertise}/"
        return info

    def _check_connect(self, link: Link, said: RouteConnect) -> None:
        s = self.settings
        if said.lang:
            raise Refused(Reason.PORT, "attempted to connect to route port")
        if said.gateway:
            name = quote(said.gateway)
            raise Refused(
                Reason.GATEWAY, f"Rejecting connection from gateway {name} on the Route port"
            )
        if not self._may_come(said):
            raise Refused(Reason.LOGIN, "Authorization Violation")
        if said.cluster and not self._agree(said.cluster, said.cluster_dynamic, said.name):
            other, own = quote(said.cluster), quote(s.cluster)
            raise Refused(
                Reason.CLUSTER, f"Rejecting connection, cluster name {other} does not match {own}"
            )

    # ---- handshake

    def _first_info(self, link: Link, said: Info) -> None:
        s = self.settings
        if said.server_id == s.server_id:
            if link.target in self.targets:
                self.targets.remove(link.target)  # it is this server's own address
            raise Refused(Reason.DUPLICATE)
        if not link.dialled and link.connect is None:
            raise Refused(Reason.LOGIN, "Authorization Violation")
        if said.cluster and not self._agree(said.cluster, said.cluster_dynamic, said.server_id):
            raise Refused(Reason.CLUSTER)
        if not link.dialled and said.server_name == s.server_name:
            self._transport.log(
                "error", f"Remote server has a duplicate name: {quote(said.server_name)}"
            )
            raise Refused(Reason.NAME)
        if link.target is None:
            link.account = said.route_account
        if self._compress(link, said.compression):
            return
        link.info = said
        if link.target is not None:
            link.target.peer = said.server_id
        size = agreed_size(s.pool_size, said.route_pool_size)
        self._check_place(link, said, size)
        self._register(link, said, size)

    def _compress(self, link: Link, others: str) -> bool:
        """Begins compression, if it is negotiated; whether it was. The other side then repeats its
        INFO."""
        try:
            if not compression.begins(link, self.settings.compression, others):
                return False
        except ValueError as error:
            raise Refused(Reason.PROTOCOL, str(error)) from None
        line = info_line(self._info(account=link.account, chosen=link.compression))
        if link.dialled:
            self._transport.write(link.number, line)
            line = b""
        link.switching = True
        self._transport.compress(link.number, link.compression, line)
        return True

    def _agree(self, name: str, dynamic: bool, server_id: str) -> bool:
        """Whether both servers use the same cluster name. A configured name wins over a generated
        one, and the larger of two generated names over the smaller. A server that changes its name
        reconnects to all servers but this."""
        s = self.settings
        if name == s.cluster:
            return True
        if not s.cluster_dynamic or (dynamic and name < s.cluster):
            return False
        s.cluster, s.cluster_dynamic = name, dynamic
        self._transport.renamed(name)
        for peer in self.peers.values():
            for link in peer.links():
                if peer.info.server_id != server_id:
                    self._transport.cut(link.number, Reason.CLUSTER)
        return True

    def _check_place(self, link: Link, said: Info, size: int) -> None:
        if not size:
            if link.account:
                text = f"Not possible to have a dedicated route for account {quote(link.account)}"
                raise Refused(Reason.PROTOCOL, f"{text} between those servers")
        elif link.dialled:
            if said.route_pool_idx:
                idx = said.route_pool_idx
                text = f"Route pool index should not be set but is set to {idx}"
                raise Refused(Reason.PROTOCOL, text)
        elif not 0 <= said.route_pool_idx < size:
            idx, theirs = said.route_pool_idx, said.route_pool_size
            text = f"Invalid route pool index: {idx} - pool size is {theirs}"
            raise Refused(Reason.PROTOCOL, text)
        if link.account and not self._transport.has_account(link.account):
            text = f"Unable to lookup account {quote(link.account)}: account missing"
            raise Refused(Reason.PROTOCOL, text)
        if link.account and link.account not in self.settings.accounts:
            raise Refused(Reason.PROTOCOL, f"No route for account {quote(link.account)}")

    def _register(self, link: Link, said: Info, size: int) -> None:
        peer = self.peers.get(said.server_id)
        if peer is None:
            peer = Peer(info=said, pool=[None] * max(size, 1), pooled=size > 0)
        if link.account:
            if link.account in peer.accounts:
                peer.accounts[link.account].named = link.target
                raise Refused(Reason.DUPLICATE)
            is_new = True
            peer.accounts[link.account] = link
        else:
            place = said.route_pool_idx
            is_new = not any(peer.pool)
            if link.dialled:
                place = next((n for n, other in enumerate(peer.pool) if other is None), -1)
            if place < 0:
                for other in peer.pool:
                    assert other is not None, "a place that is free is taken"
                    other.named = link.target
            if place < 0 or peer.pool[place] is not None:
                raise Refused(Reason.DUPLICATE)
            peer.pool[place], link.place = link, place
        is_known = said.server_id in self.peers
        self.peers[said.server_id] = peer
        link.peer = peer
        if not is_known:
            self._transport.clients_change()
        if link.target is not None:
            link.target.attempts, link.target.was_there = 0, True
            link.target.dialling.discard(link.account)
            own = self._info(account=link.account, place=link.place, chosen=link.compression)
            own.gossip_mode = link.target.gossip
            self._transport.write(link.number, info_line(own))
        self._transport.open_link(
            link.number, pooled=peer.pooled, place=link.place, account=link.account
        )
        told, s = link.greeting, self.settings
        if told is not None and (told.import_, told.export) != (s.imports, s.exports):
            self._tell(link)  # the permissions have changed since the link's first INFO
        if not is_known:
            self._transport.joined(link.number)
        if is_new:
            self._announce(said, link)

    def _fill(self, peer: Peer, target: Target) -> None:
        """Dials the next connection that a peer's pool lacks, and those that accounts lack."""
        if not peer.pooled:
            return
        wanted = [account for account in self.settings.accounts if account not in peer.accounts]
        if None in peer.pool:
            wanted.append("")
        for account in wanted:
            if account not in target.dialling:
                self._dial(target, account)

    # ---- gossip

    def _announce(self, newcomer: Info, link: Link) -> None:
        """Tells the other servers about a new one and its address: over the pool about its pool,
        and over an account's own connection about the account's, where there is one."""
        target = link.target
        if target is not None and not target.explicit and target.gossip != Gossip.OVERRIDE.value:
            return
        if newcomer.gossip_mode == Gossip.DISABLED.value:
            return
        host = link.address.rpartition(":")[0]
        ip = newcomer.ip or f"nats-route://{host}:{newcomer.port}/"
        said = msgspec.structs.replace(newcomer, ip=ip, nonce="")
        for peer in self.peers.values():
            if peer.info.server_id == newcomer.server_id or (link.account and not peer.pooled):
                continue
            over = peer.accounts.get(link.account) or next(iter(peer.links()), None)
            if over is not None:
                said.gossip_mode = self._gossip_mode(link, over).value
                self._transport.write(over.number, gossip_line(said))

    def _gossip_mode(self, of: Link, over: Link) -> Gossip:
        """What the receiver may tell others about a newcomer, once it has dialled the newcomer."""
        decides = over.target if of.target is None else of.target
        if decides is not None and decides.explicit:
            return Gossip.OVERRIDE
        return Gossip.DISABLED if of.target is None else Gossip.DEFAULT

    def _heard_of(self, said: Info) -> None:
        """Dials a server that another one has announced, unless it is connected or configured."""
        if said.server_id in self.peers or said.server_id == self.settings.server_id or not said.ip:
            return
        account = said.route_account
        if account and (self.settings.pool_size <= 0 or account not in self.settings.accounts):
            return
        address = said.ip.removeprefix("nats-route://").rstrip("/")
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise ValueError(f"no address: {said.ip}")
        host = host.strip("[]")
        if any(t.address == (host, int(port)) or t.peer == said.server_id for t in self.targets):
            return
        if sum(not target.explicit for target in self.targets) >= ANNOUNCED_MAX:
            text = f"{ANNOUNCED_MAX} announced servers are dialled already, and {address} is not"
            self._transport.log("warn", text)
            return
        target = Target(host=host, port=int(port), explicit=False, peer=said.server_id)
        target.gossip = said.gossip_mode
        target.user, target.password = self.settings.user, self.settings.password_sent
        self.targets.append(target)
        self._dial(target)

    # ---- dialling and closing

    def _dial(self, target: Target, account: str = "") -> None:
        target.dialling.add(account)
        self._transport.dial(target, account)

    def _complain(self, target: Target, why: str) -> None:
        where = f"{target.host}:{target.port}"
        attempt = target.attempts + 1
        level = self.settings.reports().level(attempt, was_there=target.was_there)
        self._transport.log(
            level, f"Error trying to connect to route {where} (attempt {attempt}): {why}"
        )

    def _refuse(self, link: Link, refused: Refused) -> None:
        text = refused.error or refused.reason.value
        level = "debug" if refused.reason is Reason.DUPLICATE else "error"
        self._transport.log(level, f"Route {link.address}: {text}")
        self._transport.cut(link.number, refused.reason, refused.error)

    def _leave(self, peer: Peer, link: Link) -> None:
        if link.account:
            if peer.accounts.get(link.account) is link:
                del peer.accounts[link.account]
        elif peer.pool[link.place] is link:
            peer.pool[link.place] = None
        if not peer.links():
            self.peers.pop(peer.info.server_id, None)
            self._transport.clients_change()

    def _named(self, peer: Peer) -> Target | None:
        """The target whose server is this peer; None: it is no target."""
        return next((t for t in self.targets if t.peer == peer.info.server_id), None)

    def _again(self, target: Target, now: float) -> None:
        """Schedules the next attempt to dial a server, or to complete its pool."""
        if target not in self.targets or target.at is not None:
            return
        target.attempts += 1
        if not target.explicit and target.attempts > self.settings.connect_retries + 1:
            self.targets.remove(target)
            return
        wait = RETRY
        if self.settings.connect_backoff:
            wait = min(RETRY * 2 ** (target.attempts - 1), RETRY_MAX)
        target.at = now + wait + self._random.random() * (1.0 if target.explicit else 0.1)
