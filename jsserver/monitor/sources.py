"""What the pages need to know, as protocols that the running server fulfils.

Everything here is called in the monitoring thread: an answer is a snapshot, made in a moment.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jsserver.access.clients import Connection
from jsserver.api.dispatch import Dispatcher
from jsserver.cext.engine import Item
from jsserver.config.options import Options

if TYPE_CHECKING:
    from jsserver.access.info import Urls
    from jsserver.access.responses import Figures
    from jsserver.cext.tls import SecurityContext
    from jsserver.cluster.groups import RaftMember, Replica
    from jsserver.cluster.moves import Usage
    from jsserver.config.links import Sharing
    from jsserver.config.options import Mapping as SubjectMapping
    from jsserver.jwt.claims import Account as AccountClaims
    from jsserver.links.gatewaymodel import GatewayLink
    from jsserver.links.gateways import Gateways
    from jsserver.links.leafmodel import LeafLink
    from jsserver.links.model import Link
    from jsserver.links.words import SubjectPermission


class Subscriptions(Protocol):
    """A search for subscriptions: gives those of a page, a few at once."""

    @property
    def total(self) -> int:
        """How many were found so far."""

    def __iter__(self) -> Iterator[list[Item]]: ...


class Plane(Protocol):
    """The data plane; every method takes its lock for a moment."""

    def stats(self) -> Mapping[str, int]:
        """Counters of the whole."""

    def connections(self, account: Any = None) -> Sequence[Item]:
        """Open connections, all or an account's, each with `ConnNumbers`, as `read_connection`
        takes them."""

    def routes(self) -> Sequence[Item]:
        """Likewise connections to other servers of the cluster."""

    def leafs(self) -> Sequence[Item]:
        """Likewise connections to leaf nodes and hubs."""

    def gateways(self) -> Sequence[Item]:
        """Likewise connections to servers of other clusters."""

    def connection(self, cid: int) -> Item | None:
        """One open connection."""

    def subscriptions(
        self,
        account: Any = None,
        *,
        matching: bytes | None = None,
        overlapping: bytes | None = None,
        cids: Collection[int] | None = None,
        offset: int = 0,
        most: int | None = None,
    ) -> Subscriptions:
        """A search for those that are wanted; gives a page of them, each with `SubNumbers` and the
        texts subject, queue and sid."""


class AccountHandle(Protocol):
    """An account of the data plane."""

    @property
    def id(self) -> int:
        """By which the data plane names it."""

    def sublist(self) -> Mapping[str, float]:
        """Counters of its subscriptions."""


class Accounts(Protocol):
    """The server's accounts by name."""

    def __getitem__(self, name: str) -> AccountHandle: ...

    def __contains__(self, name: object) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def items(self) -> Iterable[tuple[str, AccountHandle]]:
        """Names and accounts, in the order in which they were made."""

    def name_of(self, account: int) -> str:
        """The name of the account with this id, of a closed one too."""

    def tag_of(self, name: str) -> str:
        """What people call an account."""


class StoreFolder(Protocol):
    """Where JetStream keeps its files."""

    @property
    def path(self) -> str:
        """The folder with the accounts' folders."""


class JetStream(Protocol):
    """JetStream of the server, once it is enabled; sizes in bytes."""

    @property
    def dispatcher(self) -> Dispatcher:
        """The API with its accounts, streams and consumers."""

    @property
    def store(self) -> StoreFolder:
        """The store."""

    @property
    def max_memory(self) -> int:
        """The most that memory streams may take."""

    @property
    def max_store(self) -> int:
        """The most that file streams may take."""


class Holdings(Protocol):
    """What the server has of what its cluster has assigned."""

    def groups(self) -> "list[RaftMember]":
        """All Raft groups that the server is a member of, the meta group too."""

    def count(self) -> int:
        """How many groups() are."""

    def group_of(self, account: str, stream: str, consumer: str = "") -> str:
        """The name of the Raft group of a stream or consumer, "" where none is assigned."""

    def assigned(self, account: str) -> dict[str, frozenset[str]]:
        """Streams of an account that the server is to run, with those of their consumers that it
        is to run."""

    def usage(self, account: str) -> "Usage":
        """What an account uses on all members."""


class MetaMember(Protocol):
    """The server's part in the meta group of its cluster."""

    @property
    def leader(self) -> str:
        """The name of the server that leads, "" for none."""

    @property
    def trouble(self) -> str:
        """Why it is no good member at the moment, as nats-server says it; "": it is one."""

    @property
    def size(self) -> int:
        """How many members there are to be."""

    @property
    def pending(self) -> tuple[int, int]:
        """Entries of the log that no snapshot stands for, and bytes of these."""

    @property
    def last_snapshot(self) -> int:
        """When the last one was made, in ns since the epoch; 0: not yet."""

    def replicas(self) -> "list[Replica]":
        """The other members, where this server leads."""

    @property
    def holdings(self) -> Holdings:
        """What the server has of what is assigned."""


class Server(Protocol):
    """The server that is watched; times in ns since the epoch."""

    @property
    def id(self) -> str:
        """The public key that names it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def options(self) -> Options:
        """What it was started with, as it is now in force."""

    @property
    def port(self) -> int:
        """Where clients connect."""

    @property
    def auth_required(self) -> bool:
        """Whether clients must prove anything."""

    @property
    def monitor_security(self) -> "SecurityContext | None":
        """What monitoring is secured by, if it is."""

    @property
    def certificate_ends(self) -> str:
        """When its certificate does, in RFC 3339; "" without TLS."""

    @property
    def websocket_certificate_ends(self) -> str:
        """When that of clients behind WebSocket does."""

    @property
    def peer_answers(self) -> "Figures | None":
        """What is kept of OCSP responders' answers about clients, if it is."""

    @property
    def started(self) -> int:
        """When it started."""

    @property
    def config_loaded(self) -> int:
        """When it took its configuration."""

    @property
    def accepting(self) -> bool:
        """Whether it takes connections: not before it is ready, not while it shuts down."""

    @property
    def plane(self) -> Plane:
        """Its data plane."""

    @property
    def jetstream(self) -> JetStream | None:
        """None unless it is enabled."""

    @property
    def meta(self) -> MetaMember | None:
        """None where it is in no cluster with JetStream."""

    @property
    def accounts(self) -> Accounts:
        """Its accounts."""

    @property
    def system_account(self) -> str:
        """The system account's name, "" without one."""

    @property
    def pinned_account_fails(self) -> int:
        """Logins to accounts that are none of those that are pinned."""

    @property
    def websocket_port(self) -> int:
        """Where clients that speak WebSocket connect; 0: nowhere."""

    @property
    def cluster(self) -> str:
        """The name of the cluster that it is in, "" for none."""

    @property
    def connect_urls(self) -> "Urls":
        """Where clients are told that they may connect."""

    @property
    def route_port(self) -> int:
        """Where other servers of the cluster connect; 0: nowhere."""

    def routes(self) -> "list[Link]":
        """Its open connections to other servers of the cluster."""

    @property
    def interest(self) -> "tuple[SubjectPermission | None, SubjectPermission | None]":
        """What interest of its own those are told of, and what of theirs counts; None: all."""

    @property
    def leaf_port(self) -> int:
        """Where leaf nodes connect; 0: nowhere."""

    @property
    def gateway_port(self) -> int:
        """Where servers of other clusters connect; 0: nowhere."""

    @property
    def gateways(self) -> "Gateways | None":
        """Those to other clusters, if there are any."""

    def gateway_links(self) -> "list[GatewayLink]":
        """Its open connections to other clusters."""

    def leafs(self) -> "list[LeafLink]":
        """Its open connections to leaf nodes and hubs."""

    def shared(self, account: str) -> "tuple[Sharing | None, list[SubjectMapping]]":
        """What accounts share, if they do, and what is mapped in this one."""

    def waiting(self) -> Mapping[str, int]:
        """What waits for the control plane, by what it is called."""

    def claims(self, account: str) -> "tuple[AccountClaims, str] | None":
        """What the token of an account says, with that; None for one that has none."""

    def complete(self, connection: Connection) -> None:
        """Says of an open connection who is behind it, as monitoring may show it."""
