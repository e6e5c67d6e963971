"""The gateways of a server as a state machine: which clusters to dial, what to say, and whom to
admit.

No sockets or clocks: a driver hands in events, and does what the gateways ask for. Each server
dials each remote cluster once, and sends messages on that connection; messages come in on
connections that remote servers dialled. Handshake and gossip are nats-server's (docs/links.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from jsserver.text.goformat import quote

from .gatewaymodel import (
    GatewayLink,
    GatewayReason,
    GatewayRefused,
    GatewaySettings,
    GatewayTransport,
    Place,
    Remote,
)
from .gatewaywords import BEGIN, COMPLETE, GOSSIP, GatewayInfo
from .words import RouteConnect, connect_line, gossip_line, info_line, read

RETRY = 1.0
RETRY_MAX = 30.0
AGAIN = 0.1
"""Seconds: a lost link is dialled again within AGAIN, one to a configured cluster RETRY later."""
ANNOUNCED_MAX = 1000
"""Clusters at most that are dialled because others have announced them."""
PLACES_MAX = 1000
"""Addresses at most of a cluster."""
ACCOUNTS_MAX = 1_000_000
"""Accounts at most whose interest mode is remembered for a link."""
PROTOCOL = 3


def place_of(url: str) -> Place | None:
    """The address in a URL that another server announces; None: it is not valid."""
    host, _, port = url.rpartition(":")
    if not host or not port.isdecimal():
        return None
    return Place(host.strip("[]"), int(port))


class Gateways:
    """The gateways of a server."""

    def __init__(
        self,
        settings: GatewaySettings,
        remotes: list[Remote],
        transport: GatewayTransport,
        rand: random.Random,
    ) -> None:
        self.settings = settings
        self.remotes = {remote.name: remote for remote in remotes}
        self._links: dict[int, GatewayLink] = {}
        self._transport = transport
        self._random = rand

    # ---- events

    def start(self, now: float) -> None:
        """Dials the configured clusters."""
        for remote in self.remotes.values():
            remote.at = now
        self.tick(now)

    def tick(self, now: float) -> float | None:
        """Dials the clusters that are due; when to call again, None: not scheduled."""
        for remote in list(self.remotes.values()):
            if remote.at is not None and remote.at <= now:
                remote.at = None
                if not remote.busy:
                    self._begin(remote)
        return min((r.at for r in self.remotes.values() if r.at is not None), default=None)

    def dialled(self, number: int, remote: Remote, place: Place, address: str) -> None:
        """A dialled connection has become this link; `opened` or `closed` follows."""
        self._links[number] = GatewayLink(
            number=number, address=address, remote=remote, place=place
        )

    def unreachable(self, remote: Remote, place: Place, why: str, now: float) -> None:
        """An address of a remote cluster could not be reached."""
        self._complain(remote, place, why)
        remote.busy = False
        if remote.trying:
            self._dial_next(remote)
        else:
            self._wait(remote, now)

    def opened(self, number: int, address: str) -> None:
        """A dialled or accepted link is connected."""
        link = self._links.get(number)
        if link is None:
            self._links[number] = GatewayLink(number=number, address=address)
            self._transport.log("info", "Processing inbound gateway connection", number)
            self._transport.write(number, info_line(self._info()))
        else:
            name = quote(link.name)
            text = f"Creating outbound gateway connection to {name}"
            self._transport.log("info", text, number)

    def connect(self, number: int, text: bytes) -> None:
        """A CONNECT came in."""
        with self._hearing(number, "CONNECT") as link:
            said = read(text, RouteConnect)
            if link.remote is None and link.connect is None:
                self._check_connect(link, said)
                link.connect = said

    def info(self, number: int, text: bytes, now: float) -> None:
        """An INFO came in."""
        with self._hearing(number, "INFO") as link:
            said = read(text, GatewayInfo)
            if link.remote is not None:
                self._of_outbound(link, link.remote, said, now)
            elif link.info is None:
                self._first_of_inbound(link, said, now)

    @contextmanager
    def _hearing(self, number: int, verb: str) -> Iterator[GatewayLink]:
        """Frames the handling of a line: the link reads on afterwards, or is refused on an
        error."""
        link = self._links[number]
        try:
            yield link
        except ValueError as error:
            self._refuse(link, GatewayRefused(GatewayReason.PROTOCOL, f"invalid {verb}: {error}"))
        except GatewayRefused as refused:
            self._refuse(link, refused)
        else:
            self._transport.resume(number)

    def error(self, number: int, text: bytes) -> None:
        """An -ERR came in; the other server closes the link."""
        said = text.decode(errors="replace").strip()
        self._transport.log("error", f"Gateway Error {said}", number)

    def closed(self, number: int, now: float) -> None:
        """A link was closed."""
        link = self._links.pop(number, None)
        if link is None or link.remote is None:
            return
        remote = link.remote
        remote.busy = False
        if link.info is None and link.place is not None:
            self._complain(remote, link.place, "not reached, or not let in")
        if link.info is None and remote.trying:
            self._dial_next(remote)
        elif link.info is None:
            self._wait(remote, now)
        elif self.remotes.get(remote.name) is remote:
            remote.attempts = 0
            delay = RETRY if remote.explicit else 0.0
            remote.at = now + delay + self._random.random() * AGAIN

    def heard(self, said: GatewayInfo, now: float) -> None:
        """Another server of this cluster knows a remote cluster."""
        if said.gateway_cmd == GOSSIP:
            self._discover(said, now)

    def greet(self) -> list[bytes]:
        """The lines about remote clusters for a server that is new in this cluster."""
        linked = (link.remote for link in self._links.values() if link.open)
        return [self._gossip(remote) for remote in linked if remote is not None and remote.places]

    def reached(self, urls: list[str]) -> None:
        """Announces changed URLs of this cluster's servers to remote clusters."""
        if urls == self.settings.urls:
            return
        self.settings.urls = urls
        line = info_line(self._info())
        for link in self._links.values():
            if link.open and link.remote is None:
                self._transport.write(link.number, line)

    def shown(self) -> list[GatewayLink]:
        """The open links; in any thread."""
        return [link for link in list(self._links.values()) if link.open]

    def name_of(self, number: int) -> str:
        """The name of a link's server; "": not known yet."""
        link = self._links.get(number)
        return "" if link is None or link.info is None else link.info.server_name

    # ---- lines to send

    def names(self) -> set[str]:
        """The names of the servers that open links go to or come from."""
        return {self.name_of(link.number) for link in self.shown()}

    def _info(self) -> GatewayInfo:
        s = self.settings
        return GatewayInfo(
            server_id=s.server_id,
            server_name=s.server_name,
            version=s.version,
            proto=PROTOCOL,
            host=s.host,
            port=s.port,
            headers=s.headers,
            auth_required=bool(s.user),
            tls_required=s.tls,
            tls_verify=s.tls,
            max_payload=s.max_payload,
            gateway=s.name,
            gateway_urls=s.urls,
            gateway_url=s.url,
            gateway_nrp=True,
            gateway_iom=True,
        )

    def _gossip(self, remote: Remote) -> bytes:
        """The line about a remote cluster for servers of this cluster. The id in it belongs to no
        server, so that nobody dials it as a route."""
        info = GatewayInfo(
            server_id=f"GW{self.settings.server_id}",
            server_name=self.settings.server_name,
            gateway=remote.name,
            gateway_urls=remote.urls,
            gateway_cmd=GOSSIP,
        )
        return gossip_line(info)

    # ---- accepted links

    def _check_connect(self, link: GatewayLink, said: RouteConnect) -> None:
        s = self.settings
        if s.user and not (said.user == s.user and s.fits(s.password, said.password)):
            raise GatewayRefused(GatewayReason.LOGIN, "Authorization Violation")
        if not said.gateway:
            raise GatewayRefused(GatewayReason.PORT, "attempted to connect to gateway port")
        if s.reject_unknown and said.gateway not in self.remotes:
            name = quote(said.gateway)
            text = f"Rejecting connection from gateway {name}"
            self._transport.log("error", text, link.number)
            raise GatewayRefused(
                GatewayReason.GATEWAY, f"Connection to gateway {quote(s.name)} rejected"
            )

    def _first_of_inbound(self, link: GatewayLink, said: GatewayInfo, now: float) -> None:
        if link.connect is None:
            raise GatewayRefused(GatewayReason.LOGIN, "Authorization Violation")
        self._check_name(link, said)
        link.info, link.open = said, True
        name = quote(said.gateway)
        text = f"Inbound gateway connection from {name} ({said.server_id}) registered"
        self._transport.log("info", text, link.number)
        self._transport.open_link(
            link.number,
            inbound=True,
            cluster=said.gateway,
            headers=self.settings.headers and said.headers,
        )
        self._discover(said, now)
        for remote in self.remotes.values():
            if remote.name != said.gateway and remote.places:
                about = GatewayInfo(server_id=self.settings.server_id, gateway_cmd=GOSSIP)
                about.gateway, about.gateway_urls = remote.name, remote.urls
                self._transport.write(link.number, gossip_line(about))

    def _check_name(self, link: GatewayLink, said: GatewayInfo) -> None:
        if self._transport.is_member(said.server_name):
            name = quote(said.server_name)
            text = f"Remote server has a duplicate name: {name}"
            self._transport.log("error", text, link.number)
            raise GatewayRefused(GatewayReason.NAME)

    # ---- dialled links

    def _of_outbound(
        self, link: GatewayLink, remote: Remote, said: GatewayInfo, now: float
    ) -> None:
        if not said.gateway:
            name = quote(remote.name)
            text = f"Attempt to connect to gateway {name} using wrong port"
            raise GatewayRefused(GatewayReason.PORT, text)
        if said.gateway != remote.name:
            if link.info is not None and said.gateway_cmd == GOSSIP:
                if not self.settings.reject_unknown or said.gateway in self.remotes:
                    self._discover(said, now)
                return
            self._refuse_name(link, remote, said)
        if said.gateway_cmd:
            self._commanded(link, said)
            return
        self._check_name(link, said)
        self._follow_places(remote, said.gateway_urls)
        if link.info is None:
            self._first_of_outbound(link, remote, said)
        self._transport.tell_cluster(self._gossip(remote))

    def _refuse_name(self, link: GatewayLink, remote: Remote, said: GatewayInfo) -> None:
        wanted, found = quote(remote.name), quote(said.gateway)
        text = f"Failing connection to gateway {wanted}, remote gateway name is {found}"
        self._transport.log("error", text, link.number)
        own = quote(self.settings.name)
        raise GatewayRefused(
            GatewayReason.GATEWAY,
            f"Connection from {own} rejected, wanted to connect to {wanted}, this is {found}",
        )

    def _first_of_outbound(self, link: GatewayLink, remote: Remote, said: GatewayInfo) -> None:
        s = self.settings
        if not said.gateway_iom:
            name = quote(remote.name)
            text = f"Gateway {name} is of version {said.version}; 2.9.0 is the oldest that"
            self._transport.log("error", f"{text} can be joined", link.number)
            raise GatewayRefused(GatewayReason.VERSION)
        link.info = said
        user, password = s.user, s.password_sent
        if link.place is not None and link.place.login is not None:
            user, password = link.place.login
        connect = RouteConnect(
            echo=False,
            headers=False,
            tls_required=s.tls or remote.tls,
            user=user,
            password=password,
            name=s.server_id,
            gateway=s.name,
        )
        self._transport.write(link.number, connect_line(connect) + info_line(self._info()))
        remote.attempts, remote.trying, remote.was_there = 0, [], True
        link.open = True
        self._transport.open_link(
            link.number,
            inbound=False,
            cluster=remote.name,
            headers=s.headers and said.headers,
        )
        name = quote(remote.name)
        text = f"Outbound gateway connection to {name} ({said.server_id}) registered"
        self._transport.log("info", text, link.number)

    def _commanded(self, link: GatewayLink, said: GatewayInfo) -> None:
        """The other side announces an account's interest."""
        if said.gateway_cmd not in (BEGIN, COMPLETE):
            name = quote(said.gateway)
            text = f"Received unknown command {said.gateway_cmd} from gateway {name}"
            self._transport.log("warn", text, link.number)
            return
        which = "start" if said.gateway_cmd == BEGIN else "complete"
        if not said.gateway_cmd_payload:
            text = f"Account absent from receive-all-subscriptions-{which} command"
            raise GatewayRefused(GatewayReason.PROTOCOL, text)
        account = said.gateway_cmd_payload.decode(errors="replace")
        if account in link.modes or len(link.modes) < ACCOUNTS_MAX:
            link.modes[account] = said.gateway_cmd == COMPLETE

    # ---- remote clusters

    def _follow_places(self, remote: Remote, urls: list[str]) -> None:
        """Sets the addresses of a cluster: those configured, and those its servers announce now."""
        places = list(remote.configured)
        known = {place.address for place in places}
        for url in urls:
            place = place_of(url)
            if place is not None and place.address not in known and len(places) < PLACES_MAX:
                known.add(place.address)
                places.append(place)
        remote.places = places

    def _discover(self, said: GatewayInfo, now: float) -> None:
        """Dials a cluster that is not known yet."""
        if not said.gateway or said.gateway == self.settings.name:
            return
        remote = self.remotes.get(said.gateway)
        if remote is not None:
            self._follow_places(remote, [*remote.urls, *said.gateway_urls])
            return
        if sum(not remote.explicit for remote in self.remotes.values()) >= ANNOUNCED_MAX:
            name = quote(said.gateway)
            text = f"{ANNOUNCED_MAX} announced clusters are dialled already, and {name} is not"
            self._transport.log("warn", text)
            return
        remote = Remote(name=said.gateway, explicit=False)
        self._follow_places(remote, said.gateway_urls)
        if remote.places:
            self.remotes[remote.name] = remote
            remote.at = now

    # ---- dialling and closing

    def _begin(self, remote: Remote) -> None:
        remote.attempts += 1
        remote.trying = list(remote.places)
        self._random.shuffle(remote.trying)
        if remote.trying:
            self._dial_next(remote)

    def _dial_next(self, remote: Remote) -> None:
        place = remote.trying.pop()
        remote.busy = True
        name, where = quote(remote.name), place.address
        text = f"Connecting to {remote.kind} gateway {name} ({where}) at {where}"
        reports, attempt = self.settings.reports(), remote.attempts
        is_told = reports.are_due(attempt, was_there=remote.was_there)
        self._transport.log("info" if is_told else "debug", f"{text} (attempt {attempt})")
        self._transport.dial(remote, place)

    def _complain(self, remote: Remote, place: Place, why: str) -> None:
        name, where = quote(remote.name), place.address
        attempt = remote.attempts
        self._transport.log(
            self.settings.reports().level(attempt, was_there=remote.was_there),
            f"Error connecting to {remote.kind} gateway {name} ({where}) at {where}"
            f" (attempt {attempt}): {why}",
        )

    def _wait(self, remote: Remote, now: float) -> None:
        """Schedules the next attempt, after all addresses have failed."""
        inbound = any(
            link.remote is None and link.open and link.name == remote.name
            for link in self._links.values()
        )
        if not remote.explicit and remote.attempts > self.settings.connect_retries and not inbound:
            self.remotes.pop(remote.name, None)
            return
        wait = RETRY
        if self.settings.connect_backoff:
            wait = min(RETRY * 2 ** min(remote.attempts - 1, 5), RETRY_MAX)
        remote.at = now + wait

    def _refuse(self, link: GatewayLink, refused: GatewayRefused) -> None:
        text = refused.error or refused.reason.value
        self._transport.log("error", text, link.number)
        self._transport.cut(link.number, refused.reason, refused.error)


def gossip_of(said: msgspec.Struct) -> GatewayInfo:
    """The part of a route's INFO that is about gateways."""
    return msgspec.convert(said, GatewayInfo, from_attributes=True)
