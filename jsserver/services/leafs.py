"""The leaf nodes and hubs of a server: carries out the state machine's decisions with sockets, data
plane and clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from jsserver import NATS_VERSION
from jsserver.access.auth import Authenticator, permission_set
from jsserver.access.clients import (
    CLOSE_CODES,
    LEAF_OVER_TCP,
    LEAF_OVER_WEBSOCKET,
    TYPE_LEAF,
    read_connection,
)
from jsserver.access.info import GO
from jsserver.cext import engine
from jsserver.cext.engine import Item
from jsserver.config.leafnodes import options_for_leafs, version_of
from jsserver.config.options import GLOBAL_ACCOUNT, Permissions
from jsserver.config.options import SubjectPermission as Rule
from jsserver.links.leafmodel import (
    Address,
    HttpProxy,
    LeafReason,
    LeafSettings,
    LeafTerms,
    Remote,
    Rules,
)
from jsserver.links.leafs import Leafs
from jsserver.links.upgrade import Upgrade
from jsserver.links.words import SubjectPermission
from jsserver.services.linked import (
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
from jsserver.services.tunnels import dial_through
from jsserver.text import nuid
from jsserver.text.goformat import SECOND, quote

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jsserver.access.accounts import Accounts
    from jsserver.access.auth import Admission
    from jsserver.access.clients import Connect, Connection
    from jsserver.access.refusal import Refused
    from jsserver.access.secured import Links
    from jsserver.cext.engine import DataPlane, LeafHandle, PermissionSet
    from jsserver.cext.tls import SecurityContext
    from jsserver.config.leafs import LeafProxy, LeafRemote
    from jsserver.config.options import Options
    from jsserver.process.logs import Logger

LOOP = "$LDS."
ANSWERS = b"_GR_.>"
"""Replies to requests of other clusters: this server forwards them."""
SHAKE = 30 * SECOND
"""Nanoseconds at most for a hub's whole handshake, whatever its steps may take."""
API_LEVEL = 4
DOMAIN_SUBJECTS = (
    *("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>"),
    *("$KV.>", "$OBJ.>"),
)
"""The subjects of JetStream requests, behind `$JS.<domain>.API.`."""


def said_rules(rules: Rule | None) -> SubjectPermission | None:
    """The rules in the form that the other server is told; None: all is allowed."""
    if rules is None or not (rules.allow or rules.deny):
        return None
    return SubjectPermission(allow=rules.allow or [], deny=rules.deny or [])


def plane_rules(
    publish: SubjectPermission | None, subscribe: SubjectPermission | None = None
) -> PermissionSet | None:
    """The rules in the data plane's form; None: all is allowed."""

    def rule(given: SubjectPermission | None) -> Rule | None:
        return None if given is None else Rule(allow=given.allow or None, deny=given.deny or None)

    if publish is None and subscribe is None:
        return None
    return permission_set(Permissions(publish=rule(publish), subscribe=rule(subscribe)))


def _proxy_of(proxy: LeafProxy | None, dial_timeout: int) -> HttpProxy | None:
    if proxy is None:
        return None
    timeout = (proxy.timeout or dial_timeout) / SECOND
    return HttpProxy(**{**vars(proxy), "timeout": timeout})


def remote_of(remote: LeafRemote, dial_timeout: int) -> Remote:
    """A configured hub in the state machine's form."""
    return Remote(
        addresses=[Address(**vars(url)) for url in remote.urls],
        account=remote.account or GLOBAL_ACCOUNT,
        credentials=remote.credentials,
        nkey=remote.nkey,
        hub=remote.hub,
        deny_imports=remote.deny_imports,
        deny_exports=remote.deny_exports,
        isolate=remote.isolate,
        request_isolation=remote.request_isolation,
        no_randomize=remote.no_randomize,
        ignore_discovered=remote.ignore_discovered_servers,
        disabled=remote.disabled,
        compression=remote.compression,
        rtt_thresholds=remote.rtt_thresholds,
        tls=remote.tls is not None or any(url.secured for url in remote.urls),
        first=remote.tls is not None and remote.tls.first,
        deflate=remote.ws_compression,
        no_masking=remote.ws_no_masking,
        migrate=remote.migrate_delay / SECOND if remote.migrate else None,
        proxy=_proxy_of(remote.proxy, remote.dial_timeout or dial_timeout),
        label=remote.label,
        identity=remote.identity,
        first_info=remote.first_info_timeout / SECOND,
        dial_timeout=(remote.dial_timeout or dial_timeout) / SECOND,
    )


class LeafService:
    """The leaf nodes and hubs of a server; start() and close() frame their life in one event
    loop."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        handle: LeafHandle,
        accounts: Accounts,
        log: Logger,
        *,
        name: str,
        server_id: str,
        cluster: str,
        sources: Callable[[str], list[str]],
        security: Callable[[], Links | None],
    ) -> None:
        """`sources`: the subjects that an account maps; `security`: TLS of links."""
        self._security = security
        self._options = options
        self._plane = plane
        self._handle = handle
        self._accounts = accounts
        self._log = log
        self._sources = sources
        self._urls: list[str] = []
        """URLs at which leaf nodes reach this server."""
        self._ws_urls: list[str] = []
        """Likewise over WebSocket."""
        self._framed: set[int] = set()
        """The connections over WebSocket, by their numbers."""
        self._upgrades: dict[int, Upgrade] = {}
        """What was asked of hubs over WebSocket, until the link opens."""
        self._where: dict[int, str] = {}
        """Remote addresses by connection number."""
        self._by_default: SecurityContext | None = None
        """TLS for hubs without a `tls` block."""
        self._users: dict[int, Admission] = {}
        """The users of leaf nodes, by connection number."""
        self._told: dict[int, str] = {}
        """The accounts of the links that `on_opened` has heard of."""
        self.on_opened: Callable[[Connection, str], None] = lambda connection, account: None
        """Hears of each link that has opened, with its account."""
        self.on_closed: Callable[[Connection, str], None] = lambda connection, account: None
        """Hears of the end of each of these."""
        self.leads: Callable[[str, bool], None] = lambda account, may: None
        """Sets whether this server may lead streams and consumers of an account."""
        self.ask: Callable[[Item], None] = lambda item: None
        """Has a login decided."""
        self._authenticators = self._make_authenticators(options)
        o = options.leafnodes
        js = options.jetstream
        settings = LeafSettings(
            server_id=server_id,
            server_name=name,
            version=NATS_VERSION,
            go=GO,
            cluster=cluster,
            host=o.host,
            port=o.port,
            max_payload=options.max_payload,
            headers=not options.no_header_support,
            jetstream=js.enabled,
            domain=js.domain,
            reports=reports_of(options),
            min_version=version_of(o.min_version),
            min_version_text=o.min_version,
            isolate=o.isolate,
            compression=o.compression,
            reconnect=o.reconnect / SECOND,
            tls=o.tls is not None,
            tls_verify=o.tls is not None and o.tls.verify,
            api_level=API_LEVEL,
            system=options.system,
            undenied=frozenset(n for n, domain in options.default_domains.items() if not domain),
        )
        remotes = [remote_of(remote, o.dial_timeout) for remote in o.remotes]
        self.leafs = Leafs(settings, remotes, self, new_nonce, random.Random())
        self._pace = Pace(self.leafs.tick)

    def start(self, port: int, urls: list[str], ws_urls: list[str]) -> None:
        """Begins to dial. `port`: the leaf nodes' port; `urls`: the URLs announced for it;
        `ws_urls`: those for WebSocket."""
        s = self.leafs.settings
        s.port, self._urls, self._ws_urls = port, urls, ws_urls if port else []
        if urls:
            host, _, reached = urls[0].rpartition(":")
            s.host, s.port = host.strip("[]"), int(reached)
        s.urls, s.ws_urls = [*urls, *s.urls], [*self._ws_urls, *s.ws_urls]
        o = self._options.leafnodes
        self._handle.limit(
            ping_interval=max(o.ping_interval, 0),
            ping_max=max(o.ping_max, 0),
            write_deadline=max(o.write_deadline, 0),
            whole_writes=o.write_timeout == "close",
        )
        self._open_accounts()
        self.leafs.start(self._pace.now())
        self._pace.go_on()

    @property
    def _write_deadline(self) -> int:
        return self._options.leafnodes.write_deadline or self._options.write_deadline

    def _open_accounts(self) -> None:
        for remote in self.leafs.remotes:
            if remote.account not in self._accounts:
                self._accounts.open(remote.account)

    def follow_block(self) -> None:
        """Takes a changed block `leafnodes` from the options."""
        o = self._options.leafnodes
        remotes = [remote_of(remote, o.dial_timeout) for remote in o.remotes]
        self.leafs.follow(remotes, o.compression, self._pace.now())
        self._open_accounts()
        self._pace.go_on()

    def elsewhere(self, others: list[str], ws_others: list[str]) -> None:
        """Announces further URLs to leaf nodes, those of other servers."""
        s = self.leafs.settings
        urls = list(dict.fromkeys([*self._urls, *others]))
        ws_urls = list(dict.fromkeys([*self._ws_urls, *ws_others]))
        if (urls, ws_urls) != (s.urls, s.ws_urls):
            s.urls, s.ws_urls = urls, ws_urls
            self.leafs.announce()

    def close(self) -> None:
        """Stops dialling; the data plane closes the connections."""
        self._pace.close()

    # ---- news from the data plane

    def said(self, item: Item) -> None:
        """An INBOX_LEAF: a leaf node or hub has sent a protocol line."""
        number, now = item.cid, self._pace.now()
        what, text = item.numbers[2], item.texts[2]
        if what == engine.SAID_OPENED:
            where = self._where.setdefault(number, address_of(item))
            self._upgrades.pop(number, None)
            self.leafs.opened(number, where, now, websocket=number in self._framed)
        elif what == engine.SAID_INFO:
            self.leafs.info(number, text, now)
        elif what == engine.SAID_CONNECT:
            self._asking = item
            self.leafs.connect(number, text, now)
        elif what == engine.SAID_ERROR:
            self.leafs.error(number, text)
        elif what == engine.SAID_LOOP:
            self.leafs.looped(number)
        elif what == engine.SAID_SECURED:
            self.leafs.secured(number, now)
        self._pace.go_on()

    @property
    def accepts(self) -> bool:
        """Whether leaf nodes may come."""
        return bool(self._options.leafnodes.port)

    def framed(self, number: int) -> None:
        """A connection that asked for WebSocket is a leaf node's."""
        self._framed.add(number)

    def upgraded(self, item: Item) -> bool:
        """An INBOX_UPGRADE: the answer of a hub that was asked for WebSocket. False: this is no
        answer, but the request of somebody else."""
        upgrade = self._upgrades.get(item.cid)
        if upgrade is None:
            return False
        try:
            agreed = upgrade.judge(item.texts[1])
        except ValueError as error:
            upgrade.trouble = str(error)
            self.log("error", f"Error soliciting websocket connection: {error}", item.cid)
            self._plane.refuse_websocket(item.cid, b"", False)
            return True
        self._plane.open_websocket(
            item.cid, b"", masked=False, deflate=agreed.deflate, masks=agreed.masks, leaf=True
        )
        return True

    def failed(self, item: Item) -> None:
        """An INBOX_ERROR of a leaf node or hub."""
        self._where.setdefault(item.cid, address_of(item))  # errors may come before the opening
        line = error_line(item).replace("TLS handshake", "TLS leafnode handshake", 1)
        self.log("error", line, item.cid)

    def violated(self, item: Item) -> None:
        """An INBOX_VIOLATION of a leaf node or hub."""
        _, number, _, (_, _, what, subject, *_) = item
        action = what.decode().partition(" ")[0]
        text = f"{action} Violation on {quote(subject)} - Check other side configuration"
        self.log("error", text, number)
        self.leafs.violated(number)

    def ended(self, item: Item) -> None:
        """An INBOX_CLOSED of a leaf node or hub."""
        number = item.cid
        connection = read_connection(item)
        reason = connection.reason
        where = self._where.setdefault(number, address_of(item))
        self._described(connection)
        slow = slow_line(connection, self._options, self._write_deadline)
        if slow:
            self.log("info", slow, number)
        name = self.leafs.name_of(number)
        whose = f" - Remote: {name}" if name else ""
        remote = self.leafs.remote_of(number)
        if remote is not None and reason == "Connect Failed":
            upgrade = self._upgrades.pop(number, None)
            why = (upgrade and upgrade.trouble) or "connection refused"
            self.leafs.unreachable(remote, where, why, self._pace.now())
            self.leafs.closed(number, self._pace.now())
        else:
            self.log("info", f"Leafnode connection closed: {reason}{whose}", number)
            self.leafs.closed(number, self._pace.now())
        del self._where[number]
        self._framed.discard(number)
        self._upgrades.pop(number, None)
        self._users.pop(number, None)
        if number in self._told:
            self.on_closed(connection, self._told.pop(number))
        self._pace.go_on()

    # ---- logins

    @staticmethod
    def _make_authenticators(options: Options) -> dict[str, Authenticator]:
        """Who decides about logins, by the type of the connection."""
        view = options_for_leafs(options)
        return {kind: Authenticator(view, kind) for kind in (LEAF_OVER_TCP, LEAF_OVER_WEBSOCKET)}

    def connection_type(self, number: int) -> str:
        """What users may be limited to, of a connection."""
        return LEAF_OVER_WEBSOCKET if number in self._framed else LEAF_OVER_TCP

    def authenticator_of(self, number: int) -> Authenticator:
        """Who decides about the login of a leaf node."""
        return self._authenticators[self.connection_type(number)]

    def follow(self, options: Options) -> None:
        """Takes new options for logins. Leaf nodes whose users have changed are closed, and may
        reconnect."""
        before, self._authenticators = self._authenticators, self._make_authenticators(options)
        for number, admission in self._users.items():
            through = self.connection_type(number)
            name, kind = admission.user, admission.kind
            if name and admission.proof is None:
                both = before[through], self._authenticators[through]
                had, has = (one.known(name, kind) for one in both)
                stays = had is not None and has is not None and had.user == has.user
            else:
                guest = self._authenticators[through].guest
                stays = admission.proof is not None or guest == admission
            if not stays:
                self._plane.close_connection(number, CLOSE_CODES["Client Closed"])

    def decide(self, item: Item, options: Connect, outcome: Admission | Refused | None) -> bool:
        """Admits a leaf node, or refuses it if `outcome` is no admission; whether it was
        admitted."""
        from jsserver.access.auth import Admission

        number = item.cid
        if number not in self._where:
            return False  # closed meanwhile
        if not isinstance(outcome, Admission) or outcome.account not in self._accounts:
            who = f" - User {quote(options.user)}" if options.user else ""
            self.log("error", f"authentication error{who}", number)
            self.cut(number, LeafReason.LOGIN, "Authorization Violation")
            return False
        account = outcome.account
        if not outcome.user and self._options.leafnodes.account:
            account = self._options.leafnodes.account
        rules = outcome.rules or Permissions()
        said = Rules(publish=said_rules(rules.publish), subscribe=said_rules(rules.subscribe))
        self._users[number] = outcome
        self.leafs.admitted(number, account, said)
        self._pace.go_on()
        return True

    def login(self, link: int, text: bytes, nonce: str) -> None:
        item = self._asking
        address, options, _, secured = item.texts
        self.ask(item._replace(texts=(address, options, text, nonce.encode(), secured)))

    # ---- what the state machine asks for

    def dial(self, remote: Remote, address: Address) -> None:
        self._pace.begin(self._dial(remote, address))

    def write(self, link: int, data: bytes) -> None:
        self._handle.write(link, data)

    def resume(self, link: int) -> None:
        self._handle.resume(link)

    def compress(self, link: int, mode: str, first: bytes) -> None:
        remote = self.leafs.remote_of(link)
        goes_by = self._options.leafnodes if remote is None else remote
        compress(self._handle, link, mode, goes_by.rtt_thresholds, first)

    def relevel(self, link: int, mode: str) -> None:
        remote = self.leafs.remote_of(link)
        goes_by = self._options.leafnodes if remote is None else remote
        relevel(self._handle, link, mode, goes_by.rtt_thresholds)

    def secure(self, link: int, remote: Remote) -> None:
        assert remote.address is not None, "the hub was dialled"
        self._handle.secure(link, *self._secured(remote, remote.address.host))

    def sign(self, remote: Remote, nonce: str) -> dict[str, str]:
        from jsserver.client.credentials import (
            Credentials,
            CredentialsError,
            read_credentials_file,
        )

        try:
            if remote.credentials:
                who = read_credentials_file(remote.credentials).connect_fields(nonce)
            else:
                who = Credentials(nkey_seed=remote.nkey).connect_fields(nonce)
        except CredentialsError as error:
            raise ValueError(str(error)) from None
        address = remote.address
        if address is not None and address.user:
            who["user"] = address.user
            who["password"] = address.password or ""
            if address.password is None:
                who["auth_token"] = address.user
        return who

    def open_link(self, link: int, terms: LeafTerms) -> None:
        account = terms.account
        if account not in self._accounts:
            self.log("error", f"Unable to lookup account {account} for a leafnode connection", link)
            self.cut(link, LeafReason.ACCOUNT)
            return
        prefix = f"$JS.{self._options.jetstream.domain}.API."
        more = [source.encode() for source in self._sources(account)]
        if self._options.jetstream.domain and self.has_jetstream(account):
            more += [(prefix + subject).encode() for subject in DOMAIN_SUBJECTS]
        if self._options.gateway.port:
            more.append(ANSWERS)
        user = self._users.get(link)
        opened = self._handle.open(
            link,
            self._accounts[account],
            to_hub=terms.to_hub,
            cluster=terms.cluster.encode(),
            loop=(LOOP + nuid.new()).encode(),
            isolated=terms.isolated,
            headers=terms.headers,
            permissions=plane_rules(terms.sends, terms.tells),
            accepts=plane_rules(terms.accepts),
            more=more,
            max_subscriptions=-1 if user is None else user.max_subscriptions,
            max_payload=-1 if user is None else user.max_payload,
        )
        item = self._plane.connection(link, leaf=True) if opened else None
        if item is not None:
            self._told[link] = account
            self.on_opened(self._described(read_connection(item)), account)

    def _described(self, connection: Connection) -> Connection:
        """A link as events tell of it."""
        number = connection.cid
        connection.type = TYPE_LEAF
        if not connection.ip:  # the data plane was not told where it dials
            connection.ip = self._where[number].rpartition(":")[0].strip("[]")
        connection.name, connection.version = self.leafs.said_of(number)
        connection.user = self._users[number].user if number in self._users else ""
        return connection

    def cut(self, link: int, reason: LeafReason, error: str = "") -> None:
        code = CLOSE_CODES[reason.value]
        self._plane.close_connection(link, code, error.encode() if error else None)

    def has_jetstream(self, account: str) -> bool:
        js = self._options.jetstream
        return js.enabled and account != self._options.system

    def may_lead(self, account: str, *, may: bool) -> None:
        self.leads(account, may)

    def most_leafs(self, account: str) -> int:
        return self._accounts.most_leafs(account)

    def log(self, level: str, text: str, link: int = 0) -> None:
        who = f"{self._where[link]} - lid:{link} - " if link in self._where else ""
        getattr(self._log, level)(who + text)

    # ---- dialling, and the clock

    async def _dial(self, remote: Remote, address: Address) -> None:
        where = f"{address.host}:{address.port}"
        try:
            if remote.proxy is not None:
                fd, reached = await dial_through(remote.proxy, address.host, address.port), where
            else:
                fd, reached = await begin_to_dial(address.host, address.port)
        except OSError as error:
            self.leafs.unreachable(remote, where, str(error), self._pace.now())
            self._pace.go_on()
            return
        at_once = remote.first or (address.websocket and remote.tls)
        security, certified = self._secured(remote, address.host) if at_once else (None, b"")
        timeout = int(remote.dial_timeout * SECOND)
        upgrade = Upgrade(remote, address) if address.websocket else None
        request = upgrade.request if upgrade is not None else b""
        number = self._handle.dial(fd, timeout, SHAKE, security, certified, request)
        self._where[number] = reached
        if upgrade is not None:
            self._upgrades[number] = upgrade
            self._framed.add(number)
        self.leafs.dialled(number, remote, where, websocket=address.websocket)

    def _secured(self, remote: Remote, host: str) -> tuple[Any, bytes]:
        """TLS of a connection to a hub, and the name that the hub's certificate must have."""
        links = self._security()
        context = links.hubs.get(remote.label) if links is not None else None
        if context is None:
            # No configuration for this hub: verify by the system's authorities.
            from jsserver.config.options import Tls
            from jsserver.config.tls import security_context

            context = self._by_default = self._by_default or security_context(
                Tls(), optional=False, dials=True
            )
        others = (address.host for address in remote.addresses)
        return context.security(), certified_name(host, others)
