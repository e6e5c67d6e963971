"""`/subsz`: subscriptions, the server's own included, and counters of the sublists."""

from collections.abc import Iterable
from itertools import chain

import msgspec

from jsserver.cext.bytes import subject_is_literal, subject_is_valid
from jsserver.cext.engine import SubNumbers
from jsserver.monitor.connz import SubDetail, sub_detail
from jsserver.monitor.query import BadParameter, Paging, Query
from jsserver.monitor.sources import AccountHandle, Server
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire.types import Wire, always


class SublistStats(Wire):
    """Counters of one sublist, or of several together."""

    num_subscriptions: int = always(0)
    num_cache: int = always(0)
    num_inserts: int = always(0)
    num_removes: int = always(0)
    num_matches: int = always(0)
    cache_hit_rate: float = always(0)
    max_fanout: int = always(0)
    avg_fanout: float = always(0)


class Subsz(Wire, kw_only=True):
    """The page."""

    server_id: str
    now: str
    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: float
    max_fanout: int
    avg_fanout: float
    total: int = always(0)
    offset: int
    limit: int
    subscriptions_list: list[SubDetail] = msgspec.field(default_factory=list)


class Wanted(msgspec.Struct, kw_only=True):
    """What a request asks for; BadParameter where that cannot be."""

    subs: bool = False
    paging: Paging = msgspec.field(default_factory=Paging)
    account: str = ""
    test: str = ""
    """Only subscriptions that would get a message on this subject."""

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """As a query string has it."""
        return cls(
            subs=query.flag("subs"),
            paging=Paging.read(query),
            account=query.text("acc"),
            test=query.text("test"),
        )

    def __post_init__(self) -> None:
        if self.test and not _publishable(_raw(self.test)):
            raise BadParameter(f"invalid test subject, must be valid publish subject: {self.test}")


def subsz(server: Server, wanted: Wanted, now: int) -> Subsz:
    """The page of one request; `now` in ns since the epoch."""
    paging = wanted.paging
    chosen = [a for name, a in server.accounts.items() if wanted.account in ("", name)]
    page = Subsz(
        server_id=server.id,
        now=rfc3339_nano(now),
        offset=paging.offset,
        limit=paging.limit,
        **msgspec.structs.asdict(sublist_stats(chosen)),
    )
    if wanted.subs and (not wanted.account or wanted.account in server.accounts):
        page.total, page.subscriptions_list = _list(server, wanted)
    return page


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _publishable(subject: bytes) -> bool:
    # A blank cannot occur in a subject, but asking whether somebody would get it does no harm.
    return subject_is_valid(subject.replace(b" ", b"_")) and subject_is_literal(subject)


def _list(server: Server, wanted: Wanted) -> tuple[int, list[SubDetail]]:
    """How many there are of those that are wanted, and those of the page."""
    paging, accounts = wanted.paging, server.accounts
    found = server.plane.subscriptions(
        accounts[wanted.account] if wanted.account else None,
        matching=_raw(wanted.test) if wanted.test else None,
        offset=paging.offset,
        most=paging.limit,
    )
    listed = []
    for _, cid, numbers, texts in chain.from_iterable(found):
        num = SubNumbers(*numbers)
        detail = sub_detail(cid, num, *texts)
        detail.account = accounts.name_of(num.account)
        detail.account_tag = accounts.tag_of(detail.account)
        listed.append(detail)
    return found.total, listed


def whole(value: float) -> float:
    """The number, as an integer if it is one: JSON of 1.0 is `1`."""
    return int(value) if value == int(value) else value


def sublist_stats(accounts: Iterable[AccountHandle]) -> SublistStats:
    """The sublists of accounts together."""
    into = SublistStats()
    hits = fanouts = 0.0
    for account in accounts:
        stats = account.sublist()
        into.num_subscriptions += int(stats["subs"])
        into.num_cache += int(stats["cache"])
        into.num_inserts += int(stats["inserts"])
        into.num_removes += int(stats["removes"])
        into.num_matches += int(stats["matches"])
        into.max_fanout = max(into.max_fanout, int(stats["max_fanout"]))
        hits += stats["cache_hits"]
        fanouts += stats["avg_fanout"] * stats["cache"]
    if into.num_matches:
        into.cache_hit_rate = whole(hits / into.num_matches)
    if into.num_cache:
        into.avg_fanout = whole(fanouts / into.num_cache)
    return into
