"""The control plane's view of the data plane."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from jsserver.cext.bytes import SubjectTransform
from jsserver.cext.consumer import StreamHandle
from jsserver.cext.stream import EnvBox

CLOSE_REASONS: dict[int, str]
COMPRESSION_LEVELS: tuple[str, ...]
INBOX_CONSUMER_GONE: int
INBOX_ADVISORY: int
INBOX_STORE_ERROR: int
INBOX_PAUSE_OVER: int
INBOX_LOG: int
INBOX_DISK_FULL: int
INBOX_BATCH_GONE: int
INBOX_INTAKE: int
INBOX_GROUP: int
INBOX_REPLICA: int
INBOX_REQUEST: int
INBOX_CONNECT: int
INBOX_OPENED: int
INBOX_CLOSED: int
INBOX_VIOLATION: int
INBOX_TRACE: int
INBOX_LATENCY: int
INBOX_MEASURED: int
INBOX_ERROR: int
LINE_QUOTED: int
LINE_DEBUG: int
LINE_PROXY: int
INBOX_UPGRADE: int
LISTEN_CLIENTS: int
LISTEN_WEBSOCKET: int
LISTEN_ROUTES: int
LISTEN_LEAFS: int
LISTEN_GATEWAYS: int
INBOX_PEER: int
INBOX_LINK: int
INBOX_LEAF: int
INBOX_GATEWAY: int
CLIENT_KIND: int
ROUTE_KIND: int
LEAF_KIND: int
HUB_KIND: int
GATEWAY_KIND: int
SAID_OPENED: int
SAID_INFO: int
SAID_CONNECT: int
SAID_ERROR: int
SAID_HAILED: int
SAID_LOOP: int
SAID_SECURED: int

class Item(NamedTuple):
    """What the data plane tells: an inbox item (INBOX_*), a connection or a subscription."""

    kind: int
    cid: int
    numbers: tuple[int, ...]
    texts: tuple[bytes, ...]

class ConnNumbers(NamedTuple):
    """The numbers of a connection, open or just closed; times in ns."""

    reason: int
    port: int
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
    account: int
    chunks: int
    websocket: int
    compression: int
    kind: int

class SubNumbers(NamedTuple):
    """The numbers of a subscription."""

    account: int
    delivered: int
    max: int
    internal: int

class Subscriptions:
    """A search for subscriptions: gives those of the page, a few at once."""

    @property
    def total(self) -> int:
        """How many were found so far."""
    def __iter__(self) -> Iterator[list[Item]]: ...
    def __next__(self) -> list[Item]: ...
    def count(self) -> int: ...

Rules = list[tuple[bytes, bytes]] | None

class PermissionSet:
    def __init__(
        self,
        publish_allow: Rules = None,
        publish_deny: Rules = None,
        subscribe_allow: Rules = None,
        subscribe_deny: Rules = None,
        responses: tuple[int, float] | None = None,
    ) -> None: ...

class AccountUsage(NamedTuple):
    """Bytes that an account's streams hold."""

    memory: int
    storage: int

class AnsweredRequests(NamedTuple):
    """Requests of the API that an account's streams answered themselves, and those whose answers
    wait for the disk."""

    total: int
    errors: int
    inflight: int

class AccountTraffic(NamedTuple):
    """Clients of an account, its subscriptions, and what its clients have moved: `in` is what they
    sent."""

    clients: int
    subscriptions: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int

class PlaneConfig(NamedTuple):
    """Limits and switches of the data plane; durations in ns, sizes in bytes."""

    max_payload: int  # bytes of a message's headers and payload; -1: unlimited
    max_control_line: int  # bytes of a protocol line
    max_pending: int  # bytes that wait to be written to one client
    max_subscriptions: int  # of one client; 0: unlimited
    max_sub_tokens: int  # of a subscription's subject; 0: unlimited
    max_connections: int  # clients
    headers: bool  # messages may have headers
    stall: bool  # a publisher waits for clients that fall behind
    max_requests: int  # INBOX_REQUEST items that wait in the inbox; what is more is dropped
    max_asking: int  # those of a connection that the control plane has; it is not read beyond
    ping_interval: int  # ns between PINGs to a connection
    ping_max: int  # PINGs without an answer, beyond which it does not
    write_deadline: int  # ns until a connection that takes no bytes is closed
    whole_writes: bool  # or a client that does not take all that waited when they began
    debug: bool  # the log is told of connections
    trace: bool  # the log is told of protocol lines

class ListenerConfig(NamedTuple):
    """What connections of a listener are told and held to; durations in ns."""

    handshake_timeout: int  # until the request for WebSocket must have come, where one has to
    ping_interval: int  # between PINGs; 0: as all have it
    auth_timeout: int  # until a client that has not proven who it is is closed
    auth_required: bool  # clients have to prove who they are
    no_auth_user: bool  # who proves nothing is let in as a user that the configuration names
    nonce: bool  # INFO has a nonce, which clients with keys sign
    info: tuple[bytes, bytes, bytes] | None
    """The pieces of INFO: up to and with `"max_payload":`, from there up to and with
    `"client_id":`, and the rest; None: as it was."""
    later_head: bytes  # the first piece of INFO for who is connected; b"": no other

class PlaneClosed(RuntimeError): ...

class ServiceLink(NamedTuple):
    """Requests that go to another account's service; accounts.pxi says what the fields are."""

    exporter: AccountHandle
    local: bytes
    subject: bytes
    transform: SubjectTransform | None
    export: int
    once: bool
    threshold: int
    share: bool
    latency: bytes
    sampling: int

class StreamLink(NamedTuple):
    """Another account's messages that are heard; accounts.pxi says what the fields are."""

    exporter: AccountHandle
    subject: bytes
    local: bytes
    literal: bool
    transform: SubjectTransform | None
    back: SubjectTransform | None

class MappingTable:
    """Mappings of an account, made in advance; accounts.pxi says what these are."""

    def __init__(
        self, mappings: Sequence[tuple[bytes, list[tuple[SubjectTransform, int]]]] = ()
    ) -> None: ...

class AccountHandle:
    name: str
    id: int
    def close(self) -> None: ...
    def pointer(self) -> Any: ...
    def limit_clients(
        self, max_connections: int, max_subscriptions: int, max_payload: int
    ) -> None: ...
    def become_system(self) -> None: ...
    def map_subjects(self, table: MappingTable | None) -> MappingTable: ...
    def link(self, services: list[ServiceLink], streams: list[StreamLink]) -> None: ...
    def replies(self) -> tuple[int, int]: ...
    def publish(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None: ...
    def serve_requests(self, subject: bytes) -> None: ...
    def serve_acks(self, subject: bytes) -> None: ...
    def request(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None: ...
    def serve_answers(self, subject: bytes) -> None: ...
    def stop_requests(self, subject: bytes) -> None: ...
    def serve_domain(self, domain: str) -> None: ...
    def subject_interest(self, subject: bytes) -> bool: ...
    def subscribed(self, subject: bytes) -> bool: ...
    def outstanding(self, subject: bytes) -> int: ...
    def may_receive(self, cid: int, subject: bytes) -> bool: ...
    def have_jetstream(self, has: bool) -> None: ...
    def open_stream(
        self, directory: str | None, prepared: Any, synced: bool = False
    ) -> StreamHandle: ...
    def usage(self) -> AccountUsage: ...
    def requests(self) -> AnsweredRequests: ...
    def set_limits(self, max_memory: int, max_storage: int) -> None: ...
    def traffic(self) -> AccountTraffic: ...
    def sublist(self) -> dict[str, float]: ...

class ListenerHandle:
    """Accepts connections of one sort; DataPlane.listener() makes it."""

    def configure(self, config: ListenerConfig) -> None: ...
    def tell(self) -> None: ...
    def secure(self, security: Any, proxied: bool = False) -> None: ...
    def listen(self, fd: int) -> None: ...

class LinkHandle:
    """Connections to other servers."""

    def write(self, cid: int, line: bytes) -> bool: ...
    def resume(self, cid: int) -> None: ...
    def compress(self, cid: int, level: int, thresholds: tuple[int, ...], first: bytes) -> None: ...
    def relevel(self, cid: int, level: int, thresholds: tuple[int, ...]) -> None: ...
    def secure(self, cid: int, security: Any, name: bytes) -> None: ...

class MeshHandle(LinkHandle):
    """The routes of a data plane; DataPlane.mesh() makes it."""

    def pin(self, account: AccountHandle) -> None: ...
    def limit(
        self, *, ping_interval: int, ping_max: int, write_deadline: int, whole_writes: bool
    ) -> None: ...
    def dial(self, fd: int, timeout: int, security: Any = None, name: bytes = b"") -> int: ...
    def unpin(self, account: AccountHandle) -> None: ...
    def resize(self, places: int) -> None: ...
    def open(
        self,
        cid: int,
        *,
        pooled: bool,
        place: int = 0,
        account: AccountHandle | None = None,
        origins: bool = True,
        permissions: PermissionSet | None = None,
        server: bytes = b"      ",
    ) -> bool: ...
    def restrict(self, cid: int, permissions: PermissionSet | None) -> None: ...
    def tell_again(self, cid: int) -> None: ...

class GatewayHandle(LinkHandle):
    """The connections to other clusters of a data plane; DataPlane.gateway_links() makes it."""

    def limit(
        self, *, ping_interval: int, ping_max: int, write_deadline: int, whole_writes: bool
    ) -> None: ...
    def dial(
        self, fd: int, timeout: int, patience: int, security: Any = None, name: bytes = b""
    ) -> int: ...
    def open(
        self, cid: int, *, inbound: bool, name: bytes, hash: bytes, headers: bool = True
    ) -> bool: ...

class LeafHandle(LinkHandle):
    """The leaf nodes and hubs of a data plane; DataPlane.leaf_links() makes it."""

    def limit(
        self, *, ping_interval: int, ping_max: int, write_deadline: int, whole_writes: bool
    ) -> None: ...
    def dial(
        self,
        fd: int,
        timeout: int,
        patience: int,
        security: Any = None,
        name: bytes = b"",
        request: bytes = b"",
    ) -> int: ...
    def open(
        self,
        cid: int,
        account: AccountHandle,
        *,
        to_hub: bool,
        cluster: bytes,
        loop: bytes,
        isolated: bool = False,
        headers: bool = True,
        permissions: PermissionSet | None = None,
        accepts: PermissionSet | None = None,
        more: list[bytes] = ...,
        max_subscriptions: int = -1,
        max_payload: int = -1,
    ) -> bool: ...

class DataPlane(EnvBox):
    inbox_fd: int
    reactors: int
    def __init__(self, reactors: int = 1) -> None: ...
    def run(self, number: int = 0) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def configure(self, config: PlaneConfig) -> None: ...
    def name_server(self, name: bytes, hash: bytes, cluster: bytes = b"") -> None: ...
    def listener(self, sort: int) -> ListenerHandle: ...
    def mesh(self, places: int) -> MeshHandle: ...
    def leaf_links(self) -> LeafHandle: ...
    def gateway_links(self, cluster: bytes, server: bytes, command: bytes) -> GatewayHandle: ...
    def answer_peer(self, cid: int, good: bool) -> bool: ...
    def send_elsewhere(self, cid: int) -> bool: ...
    def open_websocket(
        self,
        cid: int,
        reply: bytes,
        masked: bool,
        deflate: bool,
        frame_max: int = 0,
        whole: bool = False,
        masks: bool = False,
        leaf: bool = False,
    ) -> bool: ...
    def refuse_websocket(self, cid: int, reply: bytes, again: bool) -> bool: ...
    def drain(self) -> list[Item]: ...
    def dropped(self) -> int: ...
    def requests_done(self, cid: int, count: int) -> None: ...
    def admit(
        self,
        cid: int,
        account: AccountHandle,
        permissions: PermissionSet | None,
        user: bytes = b"",
        max_subscriptions: int = -1,
        max_payload: int = -1,
    ) -> bool: ...
    def restrict(self, cid: int, permissions: PermissionSet | None) -> None: ...
    def refuse(self, cid: int) -> None: ...
    def close_connection(self, cid: int, reason: int, error: bytes | None = None) -> bool: ...
    def account(self, name: str, hash: bytes) -> AccountHandle: ...
    def open_store(
        self,
        *,
        sync_interval: int,
        domain: bytes,
        max_memory: int,
        max_storage: int,
        max_payload: int,
        ballast: bytes = b"",
        directory: bytes = b"",
        files: object = None,
    ) -> tuple[int, int, int, bool, bool]: ...
    def limit_batches(self, *, per_stream: int, total: int, size: int, timeout: int) -> None: ...
    def limit_store(self, max_memory: int, max_storage: int) -> None: ...
    def has_room(self) -> None: ...
    def run_commits(self) -> None: ...
    def stop_commits(self) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def connections(self, account: AccountHandle | None = None) -> list[Item]: ...
    def routes(self) -> list[Item]: ...
    def leafs(self) -> list[Item]: ...
    def gateways(self) -> list[Item]: ...
    def longest_hold(self) -> int: ...
    def connection(self, cid: int, leaf: bool = False) -> Item | None: ...
    def subscriptions(
        self,
        account: AccountHandle | None = None,
        *,
        matching: bytes | None = None,
        within: bytes | None = None,
        overlapping: bytes | None = None,
        queue: bytes | None = None,
        clients: bool = False,
        cids: Collection[int] | None = None,
        offset: int = 0,
        most: int | None = None,
    ) -> Subscriptions: ...
