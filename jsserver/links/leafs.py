"""The leaf nodes and hubs of a server as a state machine: what to say, which links to keep, whom to
dial.

No sockets or clocks, as in mesh.py. The handshake is nats-server's (docs/links.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import structs

from jsserver.text.goformat import quote

from . import compression
from .leafmodel import (
    LOOP_DELAY,
    MIN_VERSION,
    PUT_OFF,
    SAME_CLUSTER,
    TOO_MANY,
    VIOLATION_DELAY,
    Address,
    LeafLink,
    LeafReason,
    LeafRefused,
    LeafSettings,
    LeafTerms,
    LeafTransport,
    Remote,
    Rules,
    check_cluster,
    merged,
    version,
)
from .leafwords import LeafConnect, LeafInfo
from .words import connect_line, info_line, read
from .yielding import Yielding

PROTOCOL = 3
ANSWER_SECONDS = 2.0
"""Seconds to wait for a hub's answer to CONNECT."""
FOUND_MAX = 1000
"""Addresses at most that are dialled because a hub has announced them."""
CLIENT_API = ["$JS.API.>", "$KV.>", "$OBJ.>"]
"""Subjects that do not cross leaf links, because JetStream on both sides would answer them."""
SERVER_API = ["$JSC.>", "$NRG.>", *CLIENT_API]
"""The same for the system account."""


class Leafs:
    """The leaf nodes and hubs of a server."""

    def __init__(
        self,
        settings: LeafSettings,
        remotes: list[Remote],
        transport: LeafTransport,
        nonce: Callable[[], str],
        rand: random.Random,
    ) -> None:
        self.settings = settings
        self.remotes = remotes
        self._links: dict[int, LeafLink] = {}
        self._transport = transport
        self._nonce = nonce
        self._random = rand
        self._yielding = Yielding(remotes, transport)
        for remote in remotes:
            self._mix(remote)

    def _mix(self, remote: Remote) -> None:
        if not remote.no_randomize:
            self._random.shuffle(remote.addresses)

    # ---- events

    def start(self, now: float) -> None:
        """Dials the configured hubs."""
        for remote in self.remotes:
            if not remote.disabled:
                remote.at = now
        self.tick(now)

    def tick(self, now: float) -> float | None:
        """Dials hubs that are due, and closes links that missed their deadline; when to call
        again."""
        for remote in self.remotes:
            if remote.at is not None and remote.at <= now:
                remote.at = None
                self._transport.dial(remote, remote.next_address())
        for link in list(self._links.values()):
            if link.until is not None and link.until <= now:
                link.until = None
                if link.info is None:
                    self._transport.cut(link.number, LeafReason.READ)
                else:
                    error = "Stale Leaf Node Connection - Closing"
                    self._transport.cut(link.number, LeafReason.STALE, error)
        times = [r.at for r in self.remotes] + [link.until for link in self._links.values()]
        times += self._yielding.tick(now)
        return min((at for at in times if at is not None), default=None)

    def follow(self, remotes: list[Remote], mode: str, now: float) -> None:
        """Takes a changed configuration: its hubs, and the compression mode for leaf nodes. Closes
        links to hubs that are gone, and links that have to negotiate compression again."""
        wanted = {remote.identity: remote for remote in remotes}
        for remote in list(self.remotes):
            new = wanted.pop(remote.identity, None)
            if new is None:
                self.remotes.remove(remote)
                self._cut_all(remote)
                self._yielding.over(remote)
            else:
                self._follow_remote(remote, new, now)
        for remote in wanted.values():
            self._mix(remote)
            self.remotes.append(remote)
            remote.at = None if remote.disabled else now
        if mode != self.settings.compression:
            self.settings.compression = mode
            self._recompress(None, mode)

    def _follow_remote(self, remote: Remote, new: Remote, now: float) -> None:
        remote.tls, remote.first, remote.label = new.tls, new.first, new.label
        by = remote.compression, remote.rtt_thresholds
        remote.compression, remote.rtt_thresholds = new.compression, new.rtt_thresholds
        was_disabled, remote.disabled = remote.disabled, new.disabled
        if new.disabled:
            remote.at = None
            self._cut_all(remote)
            self._yielding.over(remote)
        elif was_disabled:
            remote.at = now
        elif by != (new.compression, new.rtt_thresholds):
            self._recompress(remote, new.compression)

    def _cut_all(self, remote: Remote) -> None:
        for link in list(self._links.values()):
            if link.remote is remote:
                self._transport.cut(link.number, LeafReason.CHANGED)

    def _recompress(self, remote: Remote | None, mode: str) -> None:
        """Changes the compression of links to a hub, or, with None, of links to leaf nodes."""
        for link in self.shown():
            if link.remote is not remote or link.websocket:
                continue
            is_off = link.compression == mode == compression.OFF
            if is_off or link.compression == compression.NOT_SUPPORTED:
                continue
            if compression.changes(link, mode):
                self._transport.relevel(link.number, mode)
            else:
                self._transport.cut(link.number, LeafReason.CHANGED)

    def dialled(
        self, number: int, remote: Remote, address: str, *, websocket: bool = False
    ) -> None:
        """A dialled connection has become this link; `opened` or `closed` follows."""
        if remote.disabled or remote not in self.remotes:
            self._transport.cut(number, LeafReason.CHANGED)  # removed while it was dialled
        self._links[number] = LeafLink(
            number=number,
            address=address,
            remote=remote,
            account=remote.account,
            websocket=websocket,
            secured=remote.first or websocket,
        )

    def unreachable(self, remote: Remote, where: str, why: str, now: float) -> None:
        """A hub could not be reached."""
        if remote.disabled or remote not in self.remotes:
            return
        remote.attempts += 1
        self._yielding.failed(remote, now)
        self._transport.log(
            self.settings.reports().level(remote.attempts, was_there=remote.was_there),
            "Error trying to connect as leafnode to remote server "
            f"{quote(where)} (attempt {remote.attempts}): {why}",
        )
        self._again(remote, now)

    def opened(self, number: int, address: str, now: float, *, websocket: bool = False) -> None:
        """A dialled or accepted link is connected."""
        link = self._links.get(number)
        if link is None:
            link = self._links[number] = LeafLink(number=number, address=address)
            link.nonce, link.websocket = self._nonce(), websocket
            line = info_line(self._info(link, said=self._mode(link)))
            self._transport.write(number, line)
            self._transport.log("info", "Leafnode connection created", number)
            return
        assert link.remote is not None
        link.until = now + link.remote.first_info
        account = link.remote.account
        text = f"Leafnode connection created for account: {account}"
        self._transport.log("info", text, number)

    def connect(self, number: int, text: bytes, now: float) -> None:
        """A CONNECT came in."""
        link = self._links[number]
        try:
            if link.remote is not None or link.connect is not None:
                raise LeafRefused(LeafReason.PROTOCOL)
            link.connect = read(text, LeafConnect)
        except ValueError as error:
            refused = LeafRefused(LeafReason.PROTOCOL, f"invalid CONNECT: {error}")
            self._refuse(link, refused)
        except LeafRefused as refused:
            self._refuse(link, refused)
        else:
            self._transport.login(number, text, link.nonce)

    def admitted(self, number: int, account: str, rules: Rules) -> None:
        """A leaf node's login was accepted."""
        link = self._links.get(number)
        if link is None or link.connect is None:
            return
        link.account, link.rules = account, rules
        try:
            self._check_connect(link, link.connect)
            self._let_in(link, link.connect)
        except LeafRefused as refused:
            self._refuse(link, refused)
            return
        self._transport.resume(number)

    def info(self, number: int, text: bytes, now: float) -> None:
        """An INFO came in."""
        link = self._links[number]
        with self._hearing(link):
            said = read(text, LeafInfo)
            if link.remote is None:
                self._compress(link, self._mode(link), said.compression)
            elif link.info is None:
                self._first_info(link, link.remote, said, now)
            elif not link.open and said.connect_info:
                self._answered(link, link.remote, said)
            self._discover(link, said)

    def secured(self, number: int, now: float) -> None:
        """TLS with a hub is established, as the hub's INFO demanded."""
        link = self._links[number]
        if link.remote is None or link.first_info is None:
            return
        link.secured = True
        with self._hearing(link):
            self._first_info(link, link.remote, link.first_info, now)

    @contextmanager
    def _hearing(self, link: LeafLink) -> Iterator[None]:
        """Frames the handling of an INFO: the link reads on afterwards, or is refused on an
        error."""
        try:
            yield
        except ValueError as error:
            self._refuse(link, LeafRefused(LeafReason.PROTOCOL, f"invalid INFO: {error}"))
        except LeafRefused as refused:
            self._refuse(link, refused)
        else:
            if not link.switching:
                self._transport.resume(link.number)
            link.switching = False

    def error(self, number: int, raw: bytes) -> None:
        """An -ERR came in; the other server closes the link."""
        link = self._links.get(number)
        text = raw.decode(errors="replace").strip()
        self._transport.log("error", f"Leafnode Error {text}", number)
        if link is None:
            return
        for said, delay, what in PUT_OFF:
            if said in text:
                self._later(link, delay)
                what += f". Delaying attempt to reconnect for {delay:.0f}s"
                self._transport.log("error", what, number)
                return
        if "Loop detected" in text:
            self._later(link, LOOP_DELAY)
            self._transport.log("error", self._loop_text(link), number)

    def looped(self, number: int) -> None:
        """This server's own interest has come back on a link: there is a loop."""
        link = self._links.get(number)
        if link is not None:
            self._later(link, LOOP_DELAY)
            self._refuse(link, LeafRefused(LeafReason.PROTOCOL, self._loop_text(link)))

    def violated(self, number: int) -> None:
        """The data plane closes a link whose other side violated its permissions."""
        link = self._links.get(number)
        if link is not None:
            self._later(link, VIOLATION_DELAY)

    def closed(self, number: int, now: float) -> None:
        """A link was closed."""
        link = self._links.pop(number, None)
        if link is not None and link.remote is not None:
            if not link.open and link.info is not None:
                self._yielding.failed(link.remote, now)
            self._again(link.remote, now)

    def name_of(self, number: int) -> str:
        """The name of a link's server; "": not known yet."""
        link = self._links.get(number)
        return "" if link is None else link.name

    def said_of(self, number: int) -> tuple[str, str]:
        """Name and version in a leaf node's CONNECT; "" of a hub, which has sent none."""
        link = self._links.get(number)
        said = None if link is None else link.connect
        return ("", "") if said is None else (said.name, said.version)

    def remote_of(self, number: int) -> Remote | None:
        """The hub that a link was dialled to; None: it was accepted."""
        link = self._links.get(number)
        return None if link is None else link.remote

    def shown(self) -> list[LeafLink]:
        """The open links; in any thread."""
        return [link for link in list(self._links.values()) if link.open]

    def announce(self) -> None:
        """Announces to leaf nodes the changed URLs at which they may connect."""
        for link in self._links.values():
            if link.open and link.remote is None:
                self._transport.write(link.number, info_line(self._info(link)))

    # ---- lines to send

    def _info(self, link: LeafLink, *, answers: bool = False, said: str = "") -> LeafInfo:
        """`answers`: it answers a CONNECT; `said`: the compression mode to announce."""
        s = self.settings
        info = LeafInfo(
            server_id=s.server_id,
            server_name=s.server_name,
            version=s.version,
            proto=PROTOCOL,
            go=s.go,
            host=s.host,
            port=s.port,
            headers=s.headers,
            auth_required=True,
            tls_required=s.tls and not link.websocket,
            tls_verify=s.tls and s.tls_verify and not link.websocket,
            max_payload=s.max_payload,
            jetstream=s.jetstream,
            ip=f"{s.host}:{s.port}",
            client_id=link.number,
            nonce="" if answers else link.nonce,
            cluster=s.cluster,
            domain=s.domain,
            compression="" if said == compression.NOT_SUPPORTED else said,
            api_lvl=s.api_level,
            info_on_connect=True,
            leafnode_urls=s.urls,
            ws_connect_urls=s.ws_urls,
        )
        if answers:
            info.connect_info, info.remote_account = True, link.account
            info.acc_is_sys = link.account == s.system
            info.import_, info.export = link.rules.subscribe, link.rules.publish
        return info

    def _say_connect(self, link: LeafLink, remote: Remote, said: LeafInfo) -> None:
        s = self.settings
        try:
            who = self._transport.sign(remote, said.nonce)
        except ValueError as error:
            self._transport.log("error", str(error), link.number)
            raise LeafRefused(LeafReason.LOGIN) from None
        connect = LeafConnect(
            version=s.version,
            server_id=s.server_id,
            domain=s.domain,
            name=s.server_name,
            is_hub=remote.hub,
            cluster=s.cluster or s.server_name,
            headers=s.headers and said.headers,
            jetstream=self._transport.has_jetstream(link.account),
            deny_pub=remote.deny_imports,
            isolate=remote.request_isolation,
            compress_mode=link.compression,
            remote_account=link.account,
            protocol=PROTOCOL,
        )
        for key, value in who.items():
            setattr(connect, key, value)
        self._transport.write(link.number, connect_line(connect))

    # ---- accepted links: leaf nodes

    def _check_connect(self, link: LeafLink, said: LeafConnect) -> None:
        s = self.settings
        if said.lang:
            raise LeafRefused(LeafReason.PORT, "attempted to connect to leaf node port")
        check_cluster(said.cluster)
        if said.cluster and said.cluster == s.cluster:
            raise LeafRefused(LeafReason.CLUSTER, SAME_CLUSTER)
        if said.gateway:
            name = quote(said.gateway)
            text = f"Rejecting connection from gateway {name} on the leafnode port"
            raise LeafRefused(LeafReason.GATEWAY, text)
        if s.min_version is not None and version(said.version) < s.min_version:
            self._transport.write(link.number, info_line(self._info(link, answers=True)))
            text = f"{MIN_VERSION} {quote(s.min_version_text)}"
            raise LeafRefused(LeafReason.VERSION, text)

    def _let_in(self, link: LeafLink, said: LeafConnect) -> None:
        s = self.settings
        link.remote_account, link.spoke = said.remote_account, said.is_hub
        link.compression = link.compression or said.compress_mode or compression.NOT_SUPPORTED
        self._supersede(link)
        self._check_limit(link)
        link.isolated = s.isolate or said.isolate
        deny, outgoing = self._denied(link)
        rules = link.rules
        tells = merged(rules.publish, deny)
        terms = LeafTerms(
            account=link.account,
            to_hub=link.spoke,
            cluster=said.cluster,
            isolated=link.isolated,
            headers=s.headers and said.headers,
            sends=merged(rules.subscribe, [*said.deny_pub, *deny, *outgoing]),
            tells=tells,
            accepts=tells if link.spoke else rules.publish,
        )
        self._transport.write(link.number, info_line(self._info(link, answers=True)))
        link.open = True
        self._transport.open_link(link.number, terms)

    def _supersede(self, link: LeafLink) -> None:
        """Closes an older link of the same server for the same accounts: it is most likely dead."""
        who = link.name, link.cluster, link.account, link.remote_account
        if not link.name or not link.remote_account:
            return
        for other in list(self._links.values()):
            same = (other.name, other.cluster, other.account, other.remote_account) == who
            if other is not link and other.remote is None and other.open and same:
                other.open = False
                text = LeafReason.DUPLICATE.value
                self._transport.cut(other.number, LeafReason.DUPLICATE, text)
                text = "Replacing connection from same server"
                self._transport.log("warn", text, link.number)
                return

    def _check_limit(self, link: LeafLink) -> None:
        """Refuses a link beyond the account's limit."""
        most = self._transport.most_leafs(link.account)
        if most < 0:
            return
        there = sum(other.open and other.account == link.account for other in self._links.values())
        if there >= most:
            raise LeafRefused(LeafReason.LIMIT, TOO_MANY)

    # ---- dialled links: hubs

    def _first_info(self, link: LeafLink, remote: Remote, said: LeafInfo, now: float) -> None:
        # nats-server 2.15 names no URLs where it is not to advertise any.
        is_hub = said.leafnode_urls is not None or said.info_on_connect
        if said.client_id == 0 or not is_hub:
            raise LeafRefused(LeafReason.PORT)
        check_cluster(said.cluster)
        remote.tls = remote.tls or (said.tls_required and not link.websocket)
        if remote.tls and not link.secured:
            link.first_info = said
            link.until = None
            link.switching = True
            self._transport.secure(link.number, remote)
            return
        if self._compress(link, self._mode(link), said.compression):
            link.until = now + remote.first_info
            return
        link.info = said
        self._say_connect(link, remote, said)
        if said.info_on_connect:
            link.until = now + ANSWER_SECONDS
        else:
            self._answered(link, remote, said)

    def _mode(self, link: LeafLink) -> str:
        """The compression mode for a link. WebSocket has its own compression, and S2 around its
        frames would not pass proxies."""
        if link.websocket:
            return compression.OFF
        return self.settings.compression if link.remote is None else link.remote.compression

    def _compress(self, link: LeafLink, own: str, others: str) -> bool:
        """Begins compression, if it is negotiated; whether it was. The hub then repeats its
        INFO."""
        try:
            if not compression.begins(link, own, others):
                return False
        except ValueError as error:
            raise LeafRefused(LeafReason.PROTOCOL, str(error)) from None
        said = compression.announced(own, link.compression)
        line = info_line(self._info(link, said=said))
        if link.remote is not None:
            self._transport.write(link.number, line)
            line = b""
        link.switching = True
        self._transport.compress(link.number, link.compression, line)
        return True

    def _answered(self, link: LeafLink, remote: Remote, said: LeafInfo) -> None:
        s = self.settings
        assert link.info is not None, "a hub answers once it has said who it is"
        link.until = None
        self._check_limit(link)
        link.remote_account, link.spoke = said.remote_account, not remote.hub
        link.rules = Rules(publish=said.export, subscribe=said.import_)
        link.isolated = s.isolate or remote.isolate
        deny, outgoing = self._denied(link)
        tells = merged(said.import_, [*remote.deny_imports, *deny])
        terms = LeafTerms(
            account=link.account,
            to_hub=link.spoke,
            cluster=link.info.cluster,
            isolated=link.isolated,
            headers=s.headers and link.info.headers,
            sends=merged(said.export, [*remote.deny_exports, *deny, *outgoing]),
            tells=tells,
            accepts=tells if link.spoke else None,
        )
        remote.attempts, remote.was_there = 0, True
        self._yielding.over(remote)
        link.open = True
        self._transport.open_link(link.number, terms)

    def _discover(self, link: LeafLink, said: LeafInfo) -> None:
        """Takes the other servers of the hub's cluster as further addresses."""
        remote = link.remote
        urls = said.ws_connect_urls if link.websocket else said.leafnode_urls
        if remote is None or remote.ignore_discovered or not urls:
            return
        known = {address.place for address in remote.addresses}
        found: list[Address] = []
        for url in urls:
            host, _, port = url.rpartition(":")
            if not port.isdecimal() or not host.isprintable() or " " in host:
                continue  # as part of a request for WebSocket it would say something else
            login = remote.addresses[0]
            address = structs.replace(login, host=host.strip("[]"), port=int(port))
            if address.place not in known and len(found) < FOUND_MAX:
                found.append(address)
        remote.found = found

    def _denied(self, link: LeafLink) -> tuple[list[str], list[str]]:
        """Subjects that keep the JetStream domains of both sides apart: those denied in both
        directions, and those not sent to the other side."""
        s = self.settings
        log = self._transport.log
        if link.account in s.undenied and link.account != s.system:
            return [], []
        same = s.domain == link.domain and (s.jetstream or s.domain)
        if link.account == s.system:
            name = f"{link.name}/{link.cluster}" if link.cluster else link.name
            log("info", f"System account connected from {name}", link.number)
            log("info", "JetStream not extended, domains differ", link.number)
            return SERVER_API, []
        if same:
            return CLIENT_API, []
        domains = f"local {quote(s.domain)}, remote {quote(link.domain)}"
        log("info", f"JetStream using domains: {domains}", link.number)
        return CLIENT_API, [f"$JS.{s.domain}.API.>"] if s.jetstream and s.domain else []

    # ---- dialling and closing

    def _later(self, link: LeafLink, delay: float) -> None:
        if link.remote is not None:
            link.remote.delay = delay

    def _loop_text(self, link: LeafLink) -> str:
        account = quote(link.account)
        what = f"Loop detected for leafnode account={account}"
        return f"{what}. Delaying attempt to reconnect for {LOOP_DELAY:.0f}s"

    def _refuse(self, link: LeafLink, refused: LeafRefused) -> None:
        if refused.reason is LeafReason.PORT and not refused.error:
            text = "attempted to connect to wrong port"
        else:
            text = refused.error or refused.reason.value
        self._transport.log("error", text, link.number)
        link.until = None
        self._transport.cut(link.number, refused.reason, refused.error)

    def _again(self, remote: Remote, now: float) -> None:
        """Schedules the next attempt to dial a hub."""
        if remote.disabled or remote not in self.remotes:
            return
        wait = self.settings.reconnect
        remote.at = now + wait + self._random.random() * wait + remote.delay
        remote.delay = 0.0
