"""The options of one server, typed, with nats-server's defaults.

Durations are nanoseconds, sizes bytes. `load.py` fills them from a file and from flags.
"""

import msgspec

from jsserver.goformat import MINUTE, SECOND

DEFAULT_PORT = 4222
DEFAULT_MAX_CONNECTIONS = 65536
DEFAULT_MAX_CONTROL_LINE = 4096
DEFAULT_MAX_PAYLOAD = 1 << 20
DEFAULT_MAX_PENDING = 64 << 20
DEFAULT_REACTORS = 1
MAX_REACTORS = 64
DEFAULT_MAX_CLOSED_CLIENTS = 10_000
DEFAULT_PING_INTERVAL = 2 * MINUTE
DEFAULT_PING_MAX = 2
DEFAULT_WRITE_DEADLINE = 10 * SECOND
DEFAULT_AUTH_TIMEOUT = 2.0
DEFAULT_REQUEST_QUEUE_LIMIT = 10_000
DEFAULT_RESPONSE_TTL = 2 * MINUTE
AUTOMATIC = -1
"""A JetStream limit that the server derives from the machine it runs on."""


class SubjectPermission(msgspec.Struct):
    """What may be published or subscribed to.

    A rule is a subject, for subscriptions also "subject queue". `allow` of None allows everything
    that `deny` does not forbid; an empty list allows nothing.
    """

    allow: list[str] | None = None
    deny: list[str] | None = None


class ResponsePermission(msgspec.Struct):
    """Leave to publish to the reply subjects of delivered messages: how many times, how long."""

    max: int = 1
    ttl: int = DEFAULT_RESPONSE_TTL


class Permissions(msgspec.Struct):
    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    responses: ResponsePermission | None = None


class User(msgspec.Struct):
    """A user; the password may be a bcrypt hash. Connection types of None are all types."""

    name: str = ""
    password: str = ""
    permissions: Permissions | None = None
    connection_types: list[str] | None = None


class Authorization(msgspec.Struct):
    """Who may connect: everybody if there is neither a name, a token nor a user."""

    username: str = ""
    password: str = ""
    token: str = ""
    timeout: float = DEFAULT_AUTH_TIMEOUT
    users: list[User] = []


class JetStreamLimits(msgspec.Struct):
    """Limits for assets of one server; 0 is none."""

    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_request_batch: int = 0
    duplicate_window: int = 0


class JetStream(msgspec.Struct):
    """The `jetstream` block.

    `sync_interval` None means that an ack is sent when the message is synced to disk; a duration
    means acks at once and a sync that often.
    """

    enabled: bool = False
    max_memory: int = AUTOMATIC
    max_store: int = AUTOMATIC
    domain: str = ""
    unique_tag: str = ""
    strict: bool = True
    sync_interval: int | None = None
    limits: JetStreamLimits = msgspec.field(default_factory=JetStreamLimits)
    request_queue_limit: int = DEFAULT_REQUEST_QUEUE_LIMIT
    info_queue_limit: int = 0


class Options(msgspec.Struct):
    """Everything a server is started with."""

    host: str = "0.0.0.0"
    port: int = DEFAULT_PORT
    client_advertise: str = ""
    server_name: str = ""
    server_tags: list[str] = []
    server_metadata: dict[str, str] = {}

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit: int = 0
    log_max_num: int = 0
    max_traced_msg_len: int = 0
    pid_file: str = ""
    ports_file_dir: str = ""

    http_host: str = ""
    http_port: int = 0
    http_base_path: str = ""

    max_connections: int = DEFAULT_MAX_CONNECTIONS
    max_subscriptions: int = 0
    max_sub_tokens: int = 0
    max_control_line: int = DEFAULT_MAX_CONTROL_LINE
    max_payload: int = DEFAULT_MAX_PAYLOAD
    max_pending: int = DEFAULT_MAX_PENDING
    max_closed_clients: int = DEFAULT_MAX_CLOSED_CLIENTS
    ping_interval: int = DEFAULT_PING_INTERVAL
    ping_max: int = DEFAULT_PING_MAX
    write_deadline: int = DEFAULT_WRITE_DEADLINE
    no_fast_producer_stall: bool = False
    lame_duck_duration: int = 2 * MINUTE
    lame_duck_grace_period: int = 10 * SECOND
    no_header_support: bool = False
    reactors: int = DEFAULT_REACTORS

    authorization: Authorization = msgspec.field(default_factory=Authorization)
    no_auth_user: str = ""
    system_account: str = ""

    store_dir: str = ""
    jetstream: JetStream = msgspec.field(default_factory=JetStream)

    config_file: str = ""
    config_digest: str = ""
