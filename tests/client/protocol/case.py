"""What a raw protocol conversation is made of, and the configurations it is held under.

A case is a list of steps over named connections. A step is the connection's name and what to do
there: bytes to send, `SYNC` (PING and read up to the PONG), `END` (read up to the end of the
stream), a number of frames to read, `OPEN` (connect and do nothing), `BYTEWISE(data)` (send a byte
at a time), `PAUSE(seconds)` or `CLOSE`.
"""

from dataclasses import dataclass
from typing import Final

SYNC: Final = "sync"
END: Final = "end"
OPEN: Final = "open"
CLOSE: Final = "close"


@dataclass(frozen=True)
class BYTEWISE:
    data: bytes


@dataclass(frozen=True)
class PAUSE:
    seconds: float


Action = bytes | str | int | BYTEWISE | PAUSE
Step = tuple[str, Action]


@dataclass(frozen=True)
class Case:
    """`config` names a server's configuration; `info` keeps the first INFO in the comparison;
    `counted` compares how many frames of each kind came and not which (random choices)."""

    name: str
    steps: tuple[Step, ...]
    config: str = "plain"
    info: bool = False
    counted: bool = False


CASES: list[Case] = []


def case(
    name: str, *steps: Step, config: str = "plain", info: bool = False, counted: bool = False
) -> None:
    CASES.append(Case(name, steps, config, info, counted))


def one(name: str, *data: bytes, config: str = "plain") -> None:
    """A case with one connection that sends all of it."""
    case(name, ("a", b"".join(data)), config=config)


# Users of the configuration `users`: the hash is of the password `secret`.
BCRYPT = "$2b$04$8cY.w04ePYAO6PJMGfHZKOK4HXW724BHqJjWIKO1pYHGlBBWFoG6S"

CONFIGS: Final[dict[str, str]] = {
    "plain": "",
    "named": 'server_name: "s1"\nclient_advertise: "nats.example.org:4333"\nmax_payload: 2MB\n',
    "jetstream": "",
    "limits": "max_payload: 100\nmax_control_line: 64\nmax_subscriptions: 3\n",
    "tokens": "max_sub_tokens: 3\n",
    "connections": "max_connections: 2\n",
    "connections_again": "max_connections: 2\n",
    "no_headers": "no_header_support: true\n",
    "timers": 'ping_interval: "200ms"\nping_max: 2\n',
    "single": 'authorization { user: "u", password: "p", timeout: 0.4 }\n',
    "single_bcrypt": f'authorization {{ user: "u", password: "{BCRYPT}" }}\n',
    "token": 'authorization { token: "tok", timeout: 0.4 }\n',
    "token_bcrypt": f'authorization {{ token: "{BCRYPT}" }}\n',
    "users": f"""
authorization {{
  timeout: 0.4
  default_permissions: {{ publish: "dflt.>", subscribe: ["dflt.>", "_INBOX.>"] }}
  users: [
    {{ user: "all", password: "x", permissions: {{}} }}
    {{ user: "dflt", password: "x" }}
    {{ user: "hash", password: "{BCRYPT}", permissions: {{ publish: ">" , subscribe: ">" }} }}
    {{ user: "allow", password: "x", permissions: {{
        publish: {{ allow: ["a.*", "b.>", "c"] }}
        subscribe: {{ allow: ["a.*", "b.>", "_INBOX.>"] }} }} }}
    {{ user: "deny", password: "x", permissions: {{
        publish: {{ deny: ["no.>", "x.*.z"] }}
        subscribe: {{ deny: ["no.>", "x.*.z"] }} }} }}
    {{ user: "both", password: "x", permissions: {{
        publish: {{ allow: ["p.>"], deny: ["p.secret"] }}
        subscribe: {{ allow: ["p.>"], deny: ["p.secret"] }} }} }}
    {{ user: "queues", password: "x", permissions: {{
        publish: ">"
        subscribe: {{ allow: ["q.any", "q.one v1", "q.wild v*", "q.tok v.*", "q.both", "q.both v2"]
                     deny: ["q.any bad"] }} }} }}
    {{ user: "service", password: "x", permissions: {{
        subscribe: "svc"
        publish: {{ allow: [] }}
        allow_responses: true }} }}
    {{ user: "service2", password: "x", permissions: {{
        subscribe: "svc"
        allow_responses: {{ max: 2, expires: "400ms" }} }} }}
    {{ user: "standard", password: "x", permissions: {{}}
       allowed_connection_types: ["mqtt", "Standard"] }}
    {{ user: "elsewhere", password: "x", permissions: {{}}
       allowed_connection_types: ["WEBSOCKET", "MQTT", "MQTT_WS", "LEAFNODE", "LEAFNODE_WS",
                                  "IN_PROCESS"] }}
    {{ user: "anywhere", password: "x", permissions: {{}}, allowed_connection_types: [] }}
    {{ user: "mute", password: "x", permissions: {{ publish: {{ deny: ">" }},
        subscribe: {{ deny: ">" }} }} }}
  ]
}}
""",
    "no_auth_user": """
accounts {
  A { users: [ { user: "a", password: "x" }, { user: "guest", password: "y",
        permissions: { publish: "open.>", subscribe: ["open.>", "_INBOX.>"] } } ] }
  B { users: [ { user: "b", password: "x" } ] }
}
no_auth_user: guest
""",
}

SHORT_HEADERS = b'CONNECT {"headers":true,"verbose":false}\r\n'
CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
HEADERS = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
VERBOSE = b'CONNECT {"verbose":true,"pedantic":false}\r\n'
PEDANTIC = b'CONNECT {"verbose":false,"pedantic":true}\r\n'

SUB_ALL = CONNECT + b"SUB > 1\r\n"
HELLO = b"NATS/1.0\r\nA: b\r\n\r\n"  # 18 bytes


def user(name: str, password: str = "x", more: str = "") -> bytes:
    options = f'"verbose":false,"pedantic":false,"user":"{name}","pass":"{password}"{more}'
    return f"CONNECT {{{options}}}\r\n".encode()
