# What the control plane names by numbers, the records that configure the data plane, and what it is made of.

#: Texts for CloseReason, as monitoring and events show them.
CLOSE_REASONS = {
    0: "",
    CLOSE_CLIENT: "Client Closed",
    CLOSE_AUTH_TIMEOUT: "Authentication Timeout",
    CLOSE_AUTH_FAILURE: "Authentication Failure",
    CLOSE_SLOW_PENDING: "Slow Consumer (Pending Bytes)",
    CLOSE_SLOW_DEADLINE: "Slow Consumer (Write Deadline)",
    CLOSE_WRITE_ERROR: "Write Error",
    CLOSE_READ_ERROR: "Read Error",
    CLOSE_PARSE_ERROR: "Parse Error",
    CLOSE_STALE: "Stale Connection",
    CLOSE_PROTOCOL_VIOLATION: "Protocol Violation",
    CLOSE_BAD_VERSION: "Bad Client Protocol Version",
    CLOSE_MAX_CONNECTIONS: "Maximum Connections Exceeded",
    CLOSE_MAX_PAYLOAD: "Maximum Message Payload Exceeded",
    CLOSE_MAX_CONTROL_LINE: "Maximum Control Line Exceeded",
    CLOSE_MAX_SUBSCRIPTIONS: "Maximum Subscriptions Exceeded",
    CLOSE_SHUTDOWN: "Server Shutdown",
    CLOSE_REVOKED: "Credentials Revoked",
    CLOSE_HEADER_VIOLATION: "Message Header Violation",
    CLOSE_NO_RESPONDERS_HEADERS: "No Responders Requires Headers",
    CLOSE_KICKED: "Kicked",
    CLOSE_MISSING_ACCOUNT: "Missing Account",
    CLOSE_UNREACHABLE: "Connect Failed",
    CLOSE_MAX_ACCOUNT_CONNECTIONS: "Maximum Account Connections Exceeded",
    CLOSE_TLS_HANDSHAKE: "TLS Handshake Failure",
    CLOSE_AUTH_EXPIRED: "Authentication Expired",
    CLOSE_PROXY_REQUIRED: "Proxy Required",
    CLOSE_PROXY_NOT_TRUSTED: "Proxy Not Trusted",
    CLOSE_THROTTLED: "Connection Throttled",
    CLOSE_DUPLICATE_ROUTE: "Duplicate Route",
    CLOSE_DUPLICATE_NAME: "Duplicate Server Name",
    CLOSE_CLUSTER_NAME: "Cluster Name Conflict",
    CLOSE_WRONG_PORT: "Incorrect Port",
    CLOSE_WRONG_GATEWAY: "Wrong Gateway",
    CLOSE_SAME_CLUSTER: "Cluster Names Identical",
    CLOSE_MINIMUM_VERSION: "Minimum Version Required",
    CLOSE_DUPLICATE_LEAF: "Duplicate Remote LeafNode Connection",
}

#: Of what flows to other servers, by ConnNumbers.compression.
COMPRESSION_LEVELS = ("", "s2_uncompressed", "s2_fast", "s2_better", "s2_best")

INBOX_CONSUMER_GONE = EV_CONSUMER_GONE
INBOX_ADVISORY = EV_ADVISORY
INBOX_STORE_ERROR = EV_STORE_ERROR
INBOX_PAUSE_OVER = EV_PAUSE_OVER
INBOX_LOG = EV_LOG
INBOX_DISK_FULL = EV_DISK_FULL
INBOX_BATCH_GONE = EV_BATCH_GONE
INBOX_INTAKE = EV_INTAKE
INBOX_GROUP = EV_GROUP
INBOX_REPLICA = EV_REPLICA
INBOX_REQUEST = IN_REQUEST
INBOX_CONNECT = IN_CONNECT
INBOX_OPENED = IN_OPENED
INBOX_CLOSED = IN_CLOSED
INBOX_VIOLATION = IN_VIOLATION
INBOX_TRACE = IN_TRACE
INBOX_LATENCY = IN_LATENCY
INBOX_MEASURED = IN_MEASURED
INBOX_ERROR = IN_ERROR
LINE_QUOTED = NOTE_QUOTED
LINE_DEBUG = NOTE_DEBUG
LINE_PROXY = NOTE_PROXY
INBOX_UPGRADE = IN_UPGRADE
INBOX_PEER = IN_PEER
INBOX_LINK = IN_LINK
INBOX_LEAF = IN_LEAF
INBOX_GATEWAY = IN_GATEWAY
#: What is at the other end of a connection: a client, another server of the cluster, a leaf node, a hub, which is a leaf node
#: until the link is open, or a server of another cluster.
CLIENT_KIND = KIND_CLIENT
ROUTE_KIND = KIND_ROUTER
LEAF_KIND = KIND_LEAF
HUB_KIND = KIND_HUB
GATEWAY_KIND = KIND_GATEWAY
SAID_OPENED = LINK_OPENED
SAID_INFO = LINK_INFO
SAID_CONNECT = LINK_CONNECT
SAID_ERROR = LINK_ERROR
SAID_HAILED = LINK_HAILED
SAID_LOOP = LINK_LOOP
SAID_SECURED = LINK_SECURED


PlaneConfig = namedtuple(
    "PlaneConfig",
    "max_payload max_control_line max_pending max_subscriptions max_sub_tokens max_connections headers stall"
    " max_requests max_asking ping_interval ping_max write_deadline whole_writes debug trace",
)


ListenerConfig = namedtuple(
    "ListenerConfig", "handshake_timeout ping_interval auth_timeout auth_required no_auth_user nonce info later_head",
)


cdef int fill_limits(EngineLimits* limits, object config) except -1:
    limits.max_payload = config.max_payload
    limits.max_control_line = config.max_control_line
    limit_pending(limits, config.max_pending)
    limits.max_subscriptions = config.max_subscriptions
    limits.max_sub_tokens = config.max_sub_tokens
    limits.max_connections = config.max_connections
    limits.headers = config.headers
    limits.stall = config.stall
    return 0


cdef int fill_net_limits(NetLimits* limits, object config) except -1:
    limits.ping_interval = config.ping_interval
    limits.ping_max = config.ping_max
    limits.write_deadline = config.write_deadline
    limits.whole_writes = config.whole_writes
    return 0


cdef int fill_auth(ClientAuth* auth, object config) except -1:
    auth.timeout = config.auth_timeout
    auth.required = config.auth_required
    auth.no_user = config.no_auth_user
    auth.nonce = config.nonce
    return 0


class PlaneClosed(RuntimeError):
    """The data plane was closed."""


cdef Security* security_of(object capsule) except? NULL:
    return NULL if capsule is None else <Security*>PyCapsule_GetPointer(capsule, b"jsserver.Security")


cdef FileOps* files_of(object capsule) except? NULL:
    return NULL if capsule is None else <FileOps*>PyCapsule_GetPointer(capsule, b"jsserver.FileOps")


cdef struct Machine:
    # On the heap, because its parts point at each other.
    Engine engine
    Net net
    EnvLock lock
    Usage memory            # what the streams of all accounts hold
    Usage storage
    BatchRoom batches
    int64_t max_payload
    bint closed
