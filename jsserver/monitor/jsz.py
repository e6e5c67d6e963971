"""`/jsz`: JetStream's usage, streams and consumers; and the part of `/varz` about JetStream."""

import msgspec

from jsserver import API_LEVEL
from jsserver.api.call import placed
from jsserver.api.consumer_admin import reason_of
from jsserver.api.consumer_api import consumer_info
from jsserver.api.dispatch import Dispatcher
from jsserver.api.responses import ApiStats, ConsumerInfo
from jsserver.api.stream_api import stream_state
from jsserver.assets.limits import OF_TIERS
from jsserver.cluster.groups import Replica
from jsserver.config.options import Options
from jsserver.instances.account import Account
from jsserver.instances.backend import StoreError
from jsserver.instances.running import Consumer, Stream
from jsserver.monitor.query import Paging, Query
from jsserver.monitor.sources import JetStream, Server
from jsserver.text.goformat import rfc3339_nano
from jsserver.text.identity import short_hash
from jsserver.wire.types import ClusterInfo, SourceInfo, StreamConfig, StreamStateInfo, Wire, always

UNSIGNED = (1 << 64) - 1
NEVER = "0001-01-01T00:00:00Z"
"""The time of an event that has not happened."""


class JetStreamConfig(Wire):
    """JetStream's configuration; sizes in bytes, durations in ns."""

    max_memory: int = always(0)
    max_storage: int = always(0)
    store_dir: str = ""
    sync_interval: int = 0
    sync_always: bool = False
    domain: str = ""
    unique_tag: str = ""
    strict: bool = False


class JetStreamLimits(Wire):
    """Limits of what clients may configure."""

    max_request_batch: int = 0
    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_duplicate_window: int = 0
    max_batch_inflight_per_stream: int = 0
    max_batch_inflight_total: int = 0
    max_batch_size: int = 0
    max_batch_timeout: int = 0


class JetStreamStats(Wire):
    """JetStream's usage: bytes, assets and requests."""

    memory: int = always(0)
    storage: int = always(0)
    reserved_memory: int = always(0)
    reserved_storage: int = always(0)
    accounts: int = always(0)
    ha_assets: int = always(0)
    api: ApiStats = always(ApiStats())


class MetaSnapshotStats(Wire):
    """The meta group's entries behind the last snapshot, and when that was made."""

    pending_entries: int = always(0)
    pending_size: int = always(0)
    last_time: str = always(NEVER)


class MetaClusterInfo(Wire):
    """The meta group as its member here sees it; only the leader knows the other members."""

    name: str = ""
    leader: str = ""
    peer: str = ""
    replicas: list[Replica] = msgspec.field(default_factory=list)
    cluster_size: int = always(0)
    pending: int = always(0)
    pending_requests: int = always(0)
    pending_infos: int = always(0)
    snapshot: MetaSnapshotStats = always(MetaSnapshotStats())


class JetStreamVarz(Wire):
    """JetStream on `/varz`; empty when it is off."""

    config: JetStreamConfig | None = None
    stats: JetStreamStats | None = None
    meta: MetaClusterInfo | None = None
    limits: JetStreamLimits | None = None


class ConsumerGroup(Wire):
    """A consumer's Raft group."""

    name: str
    raft_group: str = ""


class StreamDetail(Wire):
    """A stream. The names of its Raft group and its consumers' groups appear only on request."""

    name: str
    created: str
    cluster: ClusterInfo | None = None
    config: StreamConfig | None = None
    state: StreamStateInfo | None = None
    consumer_detail: list[ConsumerInfo] = msgspec.field(default_factory=list)
    direct_consumer_detail: list[ConsumerInfo] = msgspec.field(default_factory=list)
    mirror: SourceInfo | None = None
    sources: list[SourceInfo] = msgspec.field(default_factory=list)
    stream_raft_group: str = ""
    consumer_raft_groups: list[ConsumerGroup] = msgspec.field(default_factory=list)


class AccountDetail(Wire):
    """An account; in a cluster, with its usage on all members. Its limits are shown as reserved."""

    name: str
    id: str
    memory: int = always(0)
    storage: int = always(0)
    reserved_memory: int = always(0)
    reserved_storage: int = always(0)
    accounts: int = always(0)
    ha_assets: int = always(0)
    api: ApiStats = always(ApiStats())
    stream_detail: list[StreamDetail] = msgspec.field(default_factory=list)


class Jsz(JetStreamStats, kw_only=True):
    """The whole page."""

    server_id: str
    now: str
    disabled: bool = False
    config: JetStreamConfig = always(JetStreamConfig())
    limits: JetStreamLimits | None = None
    streams: int = always(0)
    streams_leader: int = 0
    consumers: int = always(0)
    consumers_leader: int = 0
    messages: int = always(0)
    bytes: int = always(0)
    meta_cluster: MetaClusterInfo | None = None
    account_details: list[AccountDetail] = msgspec.field(default_factory=list)
    total: int = always(0)


class Wanted(msgspec.Struct, kw_only=True):
    """The parameters of a request."""

    accounts: bool = False
    streams: bool = False
    consumers: bool = False
    direct: bool = False
    config: bool = False
    waits: bool = False
    paging: Paging = msgspec.field(default_factory=Paging)
    raft: bool = False
    account: str = ""
    leader_only: bool = False
    """Answer only as the meta leader."""
    led_only: bool = False
    """Show only streams that this server leads."""

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """From a query string; BadParameter."""
        accounts, streams = query.flag("accounts"), query.flag("streams")
        consumers = query.flag("consumers")
        direct = query.flag("direct-consumers")
        config, waits = query.flag("config"), query.flag("waits")
        paging = Paging.read(query)
        leader_only = query.flag("leader-only")
        raft = query.flag("raft")
        led_only = query.flag("stream-leader-only")
        return cls(
            accounts=accounts,
            streams=streams,
            consumers=consumers,
            direct=direct,
            config=config,
            waits=waits,
            paging=paging,
            raft=raft,
            account=query.text("acc"),
            leader_only=leader_only,
            led_only=led_only,
        )

    def __post_init__(self) -> None:
        self.streams |= self.consumers
        self.accounts |= self.streams


def config_of(jetstream: JetStream, options: Options) -> JetStreamConfig:
    """JetStream's configuration."""
    js = options.jetstream
    return JetStreamConfig(
        max_memory=jetstream.max_memory,
        max_storage=jetstream.max_store,
        store_dir=jetstream.store.path,
        sync_interval=js.sync_interval or 0,
        sync_always=not js.sync_interval,
        domain=js.domain,
        unique_tag=js.unique_tag,
        strict=js.strict,
    )


def limits_of(options: Options) -> JetStreamLimits:
    """The configured limits."""
    limits = options.jetstream.limits
    return JetStreamLimits(
        max_request_batch=limits.max_request_batch,
        max_ack_pending=limits.max_ack_pending,
        max_ha_assets=limits.max_ha_assets,
        max_duplicate_window=limits.duplicate_window,
        max_batch_inflight_per_stream=limits.max_batch_inflight_per_stream,
        max_batch_inflight_total=limits.max_batch_inflight_total,
        max_batch_size=limits.max_batch_size,
        max_batch_timeout=limits.batch_timeout,
    )


class NotLeader(Exception):
    """Only the meta leader is to answer, and this server is not."""


def add_stats(into: JetStreamStats, server: Server, dispatcher: Dispatcher) -> None:
    """Adds up all accounts."""
    shared = dispatcher.shared
    into.ha_assets = 0 if server.meta is None else server.meta.holdings.count()
    api = ApiStats(level=API_LEVEL)
    for account in list(dispatcher.accounts.values()):
        usage = account.handle.usage()
        into.memory += usage.memory
        into.storage += usage.storage
        into.accounts += 1
        requests = account.requests()
        api.total += requests.total
        api.errors += requests.errors
        api.inflight += requests.inflight
    into.reserved_memory = shared.reserved.memory
    into.reserved_storage = shared.reserved.storage
    into.api = api


def meta_of(server: Server, name: str) -> MetaClusterInfo | None:
    """The meta group under this name; None: the server is in none."""
    meta = server.meta
    if meta is None:
        return None
    kept = meta.last_snapshot
    entries, size = meta.pending
    return MetaClusterInfo(
        name=name,
        leader=meta.leader,
        peer=short_hash(meta.leader) if meta.leader else "",
        replicas=meta.replicas(),
        cluster_size=meta.size,
        snapshot=MetaSnapshotStats(
            pending_entries=entries,
            pending_size=size,
            last_time=rfc3339_nano(kept) if kept else NEVER,
        ),
    )


def jetstream_varz(server: Server) -> JetStreamVarz:
    """The part of `/varz` about JetStream."""
    if server.jetstream is None:
        return JetStreamVarz()
    stats = JetStreamStats()
    add_stats(stats, server, server.jetstream.dispatcher)
    return JetStreamVarz(
        config=config_of(server.jetstream, server.options),
        stats=stats,
        meta=meta_of(server, server.cluster),
        limits=limits_of(server.options),
    )


def jsz(server: Server, wanted: Wanted, now: int) -> Jsz:
    """The page for a request; `now` in ns since the epoch. NotLeader."""
    page = Jsz(server_id=server.id, now=rfc3339_nano(now))
    jetstream = server.jetstream
    if jetstream is None:
        page.disabled = True
        return page
    if wanted.leader_only and server.meta is not None and server.meta.leader != server.name:
        raise NotLeader("filtered response: not leader")
    page.config = config_of(jetstream, server.options)
    page.limits = limits_of(server.options)
    page.meta_cluster = meta_of(server, server.cluster)
    dispatcher = jetstream.dispatcher
    add_stats(page, server, dispatcher)
    accounts = sorted(list(dispatcher.accounts.values()), key=lambda a: a.name)
    page.total = len(accounts)
    for account in accounts:
        for stream in list(account.streams.values()):
            _count(page, stream, wanted.raft)
    if wanted.account:
        accounts = [a for a in accounts if a.name == wanted.account]
    elif wanted.accounts:
        accounts = wanted.paging.cut(accounts)
    else:
        accounts = []
    page.account_details = [_account(server, a, wanted) for a in accounts]
    return page


def _leads(asset: Stream | Consumer) -> bool:
    """Whether this server leads the asset; an asset with one replica is always led."""
    return asset.member is None or asset.member.leads()


def _count(page: Jsz, stream: Stream, led: bool) -> None:
    """`led`: whether to count the assets that this server leads."""
    try:
        state = stream.handle.state()
    except StoreError:
        return  # deleted just now
    page.streams += 1
    page.consumers += len(stream.listed)  # without those of mirrors and sources
    if led:
        page.streams_leader += _leads(stream)
        for consumer in list(stream.consumers.values()):
            page.consumers_leader += not consumer.config.direct and _leads(consumer)
    page.messages += state.messages
    page.bytes += state.bytes


def _account(server: Server, account: Account, wanted: Wanted) -> AccountDetail:
    usage, stats = account.handle.usage(), account.requests()
    memory, storage, requests, errors = usage.memory, usage.storage, stats.total, stats.errors
    if server.meta is not None:
        memory, storage, requests, errors = server.meta.holdings.usage(account.name)[:4]
    limits = OF_TIERS if account.limits.tiers else account.limits
    detail = AccountDetail(
        name=account.name,
        id=account.name,
        memory=memory,
        storage=storage,
        reserved_memory=limits.max_memory & UNSIGNED,
        reserved_storage=limits.max_storage & UNSIGNED,
        api=ApiStats(total=requests, errors=errors, inflight=stats.inflight),
    )
    if wanted.streams:
        for stream in list(account.streams.values()):
            if wanted.led_only and not _leads(stream):
                continue
            found = _stream(server, account, stream, wanted)
            if found is not None:
                detail.stream_detail.append(found)
    return detail


def _stream(
    server: Server, account: Account, stream: Stream, wanted: Wanted
) -> StreamDetail | None:
    try:
        state = stream_state(stream)
    except StoreError:
        return None  # deleted just now
    detail = StreamDetail(
        name=stream.name,
        created=rfc3339_nano(stream.created),
        cluster=placed(account.shared, stream) or ClusterInfo(leader=server.name),
        config=stream.config if wanted.config else None,
        state=state,
    )
    read = account.intakes.info(stream)
    if stream.config.mirror is None:
        detail.sources = read
    elif read:
        detail.mirror = read[0]
    if wanted.raft and server.meta is not None:
        detail.stream_raft_group = server.meta.holdings.group_of(account.name, stream.name)
    if wanted.consumers:
        for consumer in list(stream.consumers.values()):
            _consumer(server, account, stream, consumer, wanted, detail)
    return detail


def _consumer(
    server: Server,
    account: Account,
    stream: Stream,
    consumer: Consumer,
    wanted: Wanted,
    into: StreamDetail,
) -> None:
    if consumer.config.direct and not wanted.direct:
        return
    try:
        info = consumer_info(account.shared, stream, consumer, listed=True)
    except StoreError:
        return  # deleted just now
    if not wanted.config:
        info.config = None
    if wanted.waits:
        info.waits = reason_of(consumer.handle.waits())
    details = into.direct_consumer_detail if consumer.config.direct else into.consumer_detail
    details.append(info)
    if wanted.raft and server.meta is not None:
        group = server.meta.holdings.group_of(account.name, stream.name, consumer.name)
        into.consumer_raft_groups.append(ConsumerGroup(consumer.name, group))
