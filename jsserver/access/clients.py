"""What the control plane knows of connections: their CONNECT options, users, and counters."""

from __future__ import annotations

import msgspec

from jsserver.cext.engine import (
    CLOSE_REASONS,
    HUB_KIND,
    INBOX_CLOSED,
    LEAF_KIND,
    ConnNumbers,
    DataPlane,
    Item,
)

CLOSE_CODES = {text: code for code, text in CLOSE_REASONS.items()}
"""The numbers that the data plane closes connections with, by what they stand for."""
THROTTLED = "Connection Throttled"
"""The reason where too many TLS handshakes come, which nats-server has no text of its own for."""
HIDDEN = "[REDACTED]"
"""The name that is shown for a client with a token."""
TYPE_PLAIN, TYPE_WEBSOCKET = "nats", "websocket"
"""What monitoring calls types of connections."""
TYPE_LEAF = "leafnode"
"""The type of connections to leaf nodes and hubs, which is not shown."""
CLIENT_OVER_TCP, LEAF_OVER_TCP = "STANDARD", "LEAFNODE"
"""What users may be limited to: the types of connections without more around them."""
LEAF_OVER_WEBSOCKET = "LEAFNODE_WS"

NOTED_KIND = 3
"""Which number of an item about a connection tells its kind."""


class Connect(msgspec.Struct):
    """The options of CONNECT that the control plane reads; the data plane reads its own."""

    user: str | None = ""
    password: str | None = msgspec.field(name="pass", default="")
    auth_token: str | None = ""
    name: str | None = ""
    lang: str | None = ""
    version: str | None = ""
    nkey: str | None = ""
    sig: str | None = ""
    proxy_sig: str | None = ""
    jwt: str | None = ""
    protocol: int | None = 0
    connection_type: str = CLIENT_OVER_TCP
    """What the connection is, which no client says."""
    proxy: str = ""
    """The key of the trusted proxy that it comes by, likewise."""


KNOWN = frozenset(f.encode_name for f in msgspec.structs.fields(Connect)) - {
    *("connection_type", "proxy"),
}


def decode_connect(raw: bytes) -> Connect:
    """Keys are matched without regard to case, as Go's decoder does. Whatever was sent: a text that
    the data plane has refused, and cut the connection for, gives no options.
    """
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        known = {k.lower(): msgspec.json.decode(v) for k, v in fields.items() if k.lower() in KNOWN}
        return msgspec.convert(known, Connect)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Connect()


class Connection(msgspec.Struct, kw_only=True):
    """One connection at one instant; times in ns since the epoch, rtt in ns (0: unknown)."""

    cid: int
    ip: str
    port: int
    reason: str
    start: int
    last_activity: int
    rtt: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    subscriptions: int
    now: int
    pending: int
    stalls: int
    chunks: int = 0
    """Pieces of memory that hold what is pending."""
    account: int
    type: str = TYPE_PLAIN
    name: str
    lang: str
    version: str
    secured: bytes = b""
    """What access.certificates reads; empty without TLS."""
    user: str = ""
    """Who it says it is; a token is not shown."""
    nkey: str = ""
    jwt: str = ""
    """What it brought; whether that may be shown is said by what let it in."""
    issuer: str = ""
    """The key that its user is known by the word of."""
    tags: tuple[str, ...] = ()
    name_tag: str = ""
    """What people call its user."""
    proxy: str = ""
    """The key of the trusted proxy that it came by."""

    @property
    def shown_reason(self) -> str:
        """The reason for its end as monitoring and the log show it, in nats-server's words."""
        return "Maximum Connections Exceeded" if self.reason == THROTTLED else self.reason


def read_connection(item: Item) -> Connection:
    """A Connection from an inbox or snapshot item of the data plane."""
    _, cid, numbers, (address, raw, secured) = item
    num = ConnNumbers(*numbers)
    options = decode_connect(raw)
    figures = num._asdict()
    through_websocket = figures.pop("websocket")
    del figures["compression"], figures["kind"]  # of links to other servers
    return Connection(
        cid=cid,
        ip=address.decode(),
        **{**figures, "reason": CLOSE_REASONS[num.reason]},
        type=TYPE_WEBSOCKET if through_websocket else TYPE_PLAIN,
        name=options.name or "",
        lang=options.lang or "",
        version=options.version or "",
        nkey=options.nkey or "",
        jwt=options.jwt or "",
        secured=secured,
        user=options.nkey or options.user or (HIDDEN if options.auth_token else ""),
    )


def kind_of(item: Item) -> int:
    """The kind of the connection that an item is about, as the data plane numbers kinds."""
    return item.numbers[-1] if item.kind == INBOX_CLOSED else item.numbers[NOTED_KIND]


def is_leaf(item: Item) -> bool:
    """Whether an item is about a leaf node or a hub."""
    return kind_of(item) in (LEAF_KIND, HUB_KIND)


def gave_up(plane: DataPlane, item: Item) -> bool:
    """Whether a client has gone that waits to be let in; links to leaf nodes end by themselves."""
    return not is_leaf(item) and plane.connection(item.cid) is None
