"""What the server tells about itself on `$JS.EVENT`: published only if somebody listens."""

from typing import Any

import msgspec

from jsserver.instances.backend import AdvisoryKind, BatchAbandoned, ConsumerAdvisory
from jsserver.instances.shared import Shared
from jsserver.text import goformat, nuid
from jsserver.wire.types import StreamStateInfo, Time, Wire, always

ADVISORY = "$JS.EVENT.ADVISORY."
METRIC = "$JS.EVENT.METRIC."
AUDIT = ADVISORY + "API"


class ClientInfo(Wire):
    """The connection that a request came from."""

    start: Time = ""
    host: str = ""
    id: int = 0
    acc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: int = 0
    server: str = ""
    cluster: str = ""
    stop: Time = ""
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    kind: str = ""
    client_type: str = ""


class Event(Wire):
    """What every advisory begins with."""

    type: str = always("")
    id: str = always("")
    timestamp: Time = always("")


class ApiAudit(Event):
    """An API request and its answer."""

    server: str = always("")
    client: ClientInfo | None = always(None)
    subject: str = always("")
    request: str = ""
    response: str = always("")
    domain: str = ""


class ApiLimitReached(Event):
    """Requests were dropped because too many were waiting."""

    server: str = always("")
    domain: str = ""
    dropped: int = always(0)


class OutOfSpace(Event):
    """The disk is full: nothing more is stored until there is room."""

    server: str = always("")
    server_id: str = always("")
    cluster: str = always("")
    domain: str = ""


class StreamAction(Event):
    """A stream was created, deleted or modified."""

    stream: str = always("")
    action: str = always("")
    domain: str = ""


class StreamBatchAbandoned(Event):
    """An atomic batch was dropped before its commit."""

    account: str = ""
    """In the system account: whose stream it is."""
    stream: str = always("")
    domain: str = ""
    batch: str = always("")
    reason: str = always("")


class SnapshotCreate(Event):
    """A snapshot begins."""

    stream: str = always("")
    state: StreamStateInfo | None = always(None)
    client: ClientInfo | None = always(None)
    domain: str = ""


class SnapshotComplete(Event):
    """A snapshot was sent."""

    stream: str = always("")
    start: Time = always("")
    end: Time = always("")
    client: ClientInfo | None = always(None)
    domain: str = ""


class RestoreCreate(Event):
    """A restore begins."""

    stream: str = always("")
    client: ClientInfo | None = always(None)
    domain: str = ""


class RestoreComplete(Event):
    """A restore ended, well or not."""

    stream: str = always("")
    start: Time = always("")
    end: Time = always("")
    bytes: int = always(0)
    client: ClientInfo | None = always(None)
    domain: str = ""


class ConsumerAction(Event):
    """A consumer was created or deleted."""

    stream: str = always("")
    consumer: str = always("")
    action: str = always("")
    domain: str = ""


class ConsumerPause(Event):
    """A consumer was paused or resumed."""

    stream: str = always("")
    consumer: str = always("")
    paused: bool = always(False)
    pause_until: Time = ""
    domain: str = ""


class MaxDeliver(Event):
    """A message was delivered as often as it may be without an acknowledgement."""

    stream: str = always("")
    consumer: str = always("")
    stream_seq: int = always(0)
    deliveries: int = always(0)
    domain: str = ""


class Nak(Event):
    """A message was refused."""

    stream: str = always("")
    consumer: str = always("")
    consumer_seq: int = always(0)
    stream_seq: int = always(0)
    deliveries: int = always(0)
    domain: str = ""


class Terminated(Event):
    """A message was given up by its receiver."""

    stream: str = always("")
    consumer: str = always("")
    consumer_seq: int = always(0)
    stream_seq: int = always(0)
    deliveries: int = always(0)
    reason: str = ""
    domain: str = ""


class GroupPinned(Event):
    """A client got the pin of a priority group."""

    account: str = ""
    stream: str = always("")
    consumer: str = always("")
    domain: str = ""
    group: str = always("")
    pinned_id: str = always("")


class GroupUnpinned(Event):
    """A client lost the pin of a priority group; `reason` is admin or timeout."""

    account: str = ""
    stream: str = always("")
    consumer: str = always("")
    domain: str = ""
    group: str = always("")
    reason: str = always("")


class AckMetric(Event):
    """A sampled acknowledgement."""

    stream: str = always("")
    consumer: str = always("")
    consumer_seq: int = always(0)
    stream_seq: int = always(0)
    ack_time: int = always(0)
    deliveries: int = always(0)
    domain: str = ""


class LeaderElected(Event):
    """A server leads a stream or a consumer from now on; `replicas` are all members."""

    account: str = ""
    """In the system account: whose asset it is."""
    stream: str = always("")
    consumer: str = ""
    leader: str = always("")
    replicas: list[Wire] = always([])
    domain: str = ""


class QuorumLost(Event):
    """So few members of a stream's or a consumer's group are heard that nobody can lead."""

    account: str = ""
    """In the system account: whose asset it is."""
    stream: str = always("")
    consumer: str = ""
    replicas: list[Wire] = always([])
    domain: str = ""


class DomainLeaderElected(Event):
    """A server, by its id, leads the meta group from now on; `replicas` are all members."""

    leader: str = always("")
    replicas: list[Wire] = always([])
    cluster: str = always("")
    domain: str = ""


class ServerRemoved(Event):
    """The server is a member of its cluster no more."""

    server: str = always("")
    server_id: str = always("")
    cluster: str = always("")
    domain: str = ""


class Advisories:
    """Builds and publishes events in an account."""

    def __init__(self, shared: Shared, system: str = "") -> None:
        self._shared = shared
        self._system = system
        """The system account's name."""

    def wanted(self, account: str, subject: str) -> bool:
        """Whether a client listens to this subject, in an account that there is still."""
        accounts = self._shared.accounts
        return account in accounts and accounts[account].subject_interest(subject.encode())

    def publish(self, account: str, subject: str, name: str, event: Event) -> None:
        """Completes the event and sends it."""
        event.type = f"io.nats.jetstream.{name}"
        event.id = nuid.new()
        event.timestamp = goformat.rfc3339_nano(self._shared.clock())
        body = goformat.escape_json(msgspec.json.encode(event))
        self._shared.accounts[account].publish(subject.encode(), b"", b"", body)

    def stream(self, account: str, stream: str, action: str) -> None:
        """`action` is create, delete or modify."""
        verb = {"create": "CREATED", "delete": "DELETED", "modify": "UPDATED"}[action]
        subject = f"{ADVISORY}STREAM.{verb}.{stream}"
        if self.wanted(account, subject):
            event = StreamAction(stream=stream, action=action, domain=self._domain)
            self.publish(account, subject, "advisory.v1.stream_action", event)

    def consumer(self, account: str, stream: str, consumer: str, action: str) -> None:
        """`action` is create or delete."""
        verb = {"create": "CREATED", "delete": "DELETED"}[action]
        subject = f"{ADVISORY}CONSUMER.{verb}.{stream}.{consumer}"
        if self.wanted(account, subject):
            event = ConsumerAction(
                stream=stream, consumer=consumer, action=action, domain=self._domain
            )
            self.publish(account, subject, "advisory.v1.consumer_action", event)

    def pause(self, account: str, stream: str, consumer: str, paused: bool, until: str) -> None:
        """A pause began or ended."""
        subject = f"{ADVISORY}CONSUMER.PAUSE.{stream}.{consumer}"
        if self.wanted(account, subject):
            event = ConsumerPause(
                stream=stream,
                consumer=consumer,
                paused=paused,
                pause_until=until,
                domain=self._domain,
            )
            self.publish(account, subject, "advisory.v1.consumer_pause", event)

    def batch_abandoned(self, told: BatchAbandoned) -> None:
        """What the data plane tells about a batch of a stream."""
        subject = f"{ADVISORY}STREAM.BATCH_ABANDONED.{told.stream}"
        name = "advisory.v1.stream_batch_abandoned"
        event = StreamBatchAbandoned(
            stream=told.stream, domain=self._domain, batch=told.batch, reason=told.reason
        )
        if self.wanted(told.account, subject):
            self.publish(told.account, subject, name, event)
        if self._system and self.wanted(self._system, subject):
            event.account = told.account
            self.publish(self._system, subject, name, event)

    def transfer(self, account: str, stream: str, step: str, event: Event) -> None:
        """A snapshot or a restore begins or ends; `step` is as in the subject."""
        subject = f"{ADVISORY}STREAM.{step}.{stream}"
        if self.wanted(account, subject):
            self.publish(account, subject, f"advisory.v1.{step.lower()}", event)

    def pinned(self, account: str, stream: str, consumer: str, group: str, id: str) -> None:
        """A client was pinned."""
        subject = f"{ADVISORY}CONSUMER.PINNED.{stream}.{consumer}"
        if self.wanted(account, subject):
            event = GroupPinned(
                account=account,
                stream=stream,
                consumer=consumer,
                group=group,
                pinned_id=id,
                domain=self._domain,
            )
            self.publish(account, subject, "advisory.v1.consumer_group_pinned", event)

    def unpinned(self, account: str, stream: str, consumer: str, group: str, reason: str) -> None:
        """A pin ended."""
        subject = f"{ADVISORY}CONSUMER.UNPINNED.{stream}.{consumer}"
        if self.wanted(account, subject):
            event = GroupUnpinned(
                account=account,
                stream=stream,
                consumer=consumer,
                group=group,
                reason=reason,
                domain=self._domain,
            )
            self.publish(account, subject, "advisory.v1.consumer_group_unpinned", event)

    def limit_reached(self, dropped: int) -> None:
        """Requests went unanswered, of whatever accounts: the system account hears it."""
        account, subject = self._system, f"{ADVISORY}API.LIMIT_REACHED"
        if account and self.wanted(account, subject):
            event = ApiLimitReached(
                server=self._shared.settings.server_name, dropped=dropped, domain=self._domain
            )
            self.publish(account, subject, "advisory.v1.api_limit_reached", event)

    def out_of_storage(self) -> None:
        """The disk is full: the system account hears it."""
        account, subject = self._system, f"{ADVISORY}SERVER.OUT_OF_STORAGE"
        if account and self.wanted(account, subject):
            settings = self._shared.settings
            event = OutOfSpace(
                server=settings.server_name, server_id=settings.server_id, domain=self._domain
            )
            self.publish(account, subject, "advisory.v1.server_out_of_space", event)

    def elected(
        self, account: str, stream: str, consumer: str, leader: str, replicas: list[Wire]
    ) -> None:
        """A server leads an asset of an account now. The account and the system account hear it."""
        event = LeaderElected(
            stream=stream,
            consumer=consumer,
            leader=leader,
            replicas=replicas,
            domain=self._domain,
        )
        self._of_group(account, event, "LEADER_ELECTED", "leader_elected")

    def quorum_lost(
        self, account: str, stream: str, consumer: str, replicas: list[Wire]
    ) -> None:
        """Nobody can lead an asset of an account. The account and the system account hear it."""
        event = QuorumLost(
            stream=stream, consumer=consumer, replicas=replicas, domain=self._domain
        )
        self._of_group(account, event, "QUORUM_LOST", "quorum_lost")

    def _of_group(
        self, account: str, event: LeaderElected | QuorumLost, what: str, name: str
    ) -> None:
        kind = "CONSUMER" if event.consumer else "STREAM"
        asset = f"{event.stream}.{event.consumer}" if event.consumer else event.stream
        subject, type = f"{ADVISORY}{kind}.{what}.{asset}", f"advisory.v1.{kind.lower()}_{name}"
        if self.wanted(account, subject):
            self.publish(account, subject, type, event)
        if self._system and self.wanted(self._system, subject):
            event.account = account
            self.publish(self._system, subject, type, event)

    def domain_leader(self, leader: str, cluster: str, replicas: list[Wire]) -> None:
        """A server leads the meta group now: the system account hears it."""
        subject = f"{ADVISORY}DOMAIN.LEADER_ELECTED"
        if self._system and self.wanted(self._system, subject):
            event = DomainLeaderElected(
                leader=leader, replicas=replicas, cluster=cluster, domain=self._domain
            )
            self.publish(self._system, subject, "advisory.v1.domain_leader_elected", event)

    def server_removed(self, cluster: str) -> None:
        """This server was removed from the cluster: the system account hears it."""
        subject = f"{ADVISORY}SERVER.REMOVED"
        if self._system and self.wanted(self._system, subject):
            own = self._shared.settings
            event = ServerRemoved(
                server=own.server_name,
                server_id=own.server_id,
                cluster=cluster,
                domain=self._domain,
            )
            self.publish(self._system, subject, "advisory.v1.server_removed", event)

    def audit(
        self, account: str, subject: str, client: ClientInfo | None, request: bytes, response: bytes
    ) -> None:
        """A request was worked on. The caller has asked whether somebody listens."""
        settings = self._shared.settings
        event = ApiAudit(
            server=settings.server_name,
            client=client,
            subject=subject,
            request=request.decode("utf-8", "replace"),
            response=response.decode("utf-8", "replace"),
            domain=settings.domain,
        )
        self.publish(account, AUDIT, "advisory.v1.api_audit", event)

    def delivery(self, told: ConsumerAdvisory) -> None:
        """What the data plane tells about a message of a consumer."""
        where = f"{told.stream}.{told.consumer}"
        group, _, more = told.reason.partition(" ")
        event: Event
        match told.kind:
            case AdvisoryKind.PINNED:
                return self.pinned(told.account, told.stream, told.consumer, group, more)
            case AdvisoryKind.UNPINNED:
                return self.unpinned(told.account, told.stream, told.consumer, group, more)
            case AdvisoryKind.MAX_DELIVER:
                subject, name = f"{ADVISORY}CONSUMER.MAX_DELIVERIES.{where}", "max_deliver"
                event = MaxDeliver(
                    stream=told.stream,
                    consumer=told.consumer,
                    stream_seq=told.stream_seq,
                    deliveries=told.deliveries,
                    domain=self._domain,
                )
            case AdvisoryKind.NAK:
                subject, name = f"{ADVISORY}CONSUMER.MSG_NAKED.{where}", "nak"
                event = Nak(domain=self._domain, **_position(told))
            case AdvisoryKind.TERM:
                subject, name = f"{ADVISORY}CONSUMER.MSG_TERMINATED.{where}", "terminated"
                event = Terminated(reason=told.reason, domain=self._domain, **_position(told))
            case AdvisoryKind.ACK_METRIC:
                subject, name = f"{METRIC}CONSUMER.ACK.{where}", "consumer_ack"
                event = AckMetric(ack_time=told.ack_time, domain=self._domain, **_position(told))
        kind = "metric" if told.kind == AdvisoryKind.ACK_METRIC else "advisory"
        self.publish(told.account, subject, f"{kind}.v1.{name}", event)

    @property
    def _domain(self) -> str:
        return self._shared.settings.domain


def _position(told: ConsumerAdvisory) -> dict[str, Any]:
    return {
        "stream": told.stream,
        "consumer": told.consumer,
        "consumer_seq": told.consumer_seq,
        "stream_seq": told.stream_seq,
        "deliveries": told.deliveries,
    }
