"""A server with a made-up data plane, as the monitoring pages see it, and requests to its pages."""

import json
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

from jsserver.access.clients import Connection
from jsserver.access.info import Urls
from jsserver.cext.bytes import subject_matches, subjects_overlap
from jsserver.cext.engine import CLIENT_KIND, ConnNumbers, Item, SubNumbers
from jsserver.config.options import Options
from jsserver.monitor.closed import ClosedConnections
from jsserver.monitor.http import Request, Response
from jsserver.monitor.pages import Pages


def words(text: str) -> list[str]:
    """The words of a text; for lists of keys."""
    return text.split()


SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
STATS = words(
    "connections total_connections in_msgs in_bytes out_msgs out_bytes link_in_msgs link_in_bytes "
    "link_out_msgs link_out_bytes slow_consumers slow_clients slow_routes slow_gateways slow_leafs "
    "stale_clients stale_routes stale_gateways stale_leafs stalls too_deep "
    "forgotten subscriptions active_accounts"
)


def connection(cid: int, **fields: Any) -> Connection:
    """A connection that began `cid` seconds ago."""
    plain: dict[str, Any] = dict.fromkeys(
        ("rtt", "in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions", "pending"), 0
    )
    plain.update(
        cid=cid,
        ip="127.0.0.1",
        port=50000 + cid,
        reason="",
        start=NOW - cid * SECOND,
        last_activity=NOW - SECOND // 2,
        now=NOW,
        stalls=0,
        account=0,
        name=f"c{cid}",
        lang="python3",
        version="2",
    )
    return Connection(**{**plain, **fields})


class FakePlane:
    """Answers from lists that a test fills."""

    def __init__(self) -> None:
        self.open: list[Connection] = []
        self.subs: list[Item] = []
        self.counters = dict.fromkeys(STATS, 0)

    def stats(self) -> dict[str, int]:
        return {**self.counters, "connections": len(self.open), "subscriptions": len(self.subs)}

    def connections(self, account: "FakeHandle | None" = None) -> list[Item]:
        return [self._item(c) for c in self.open if account is None or c.account == account.id]

    def routes(self) -> list[Item]:
        return []

    def leafs(self) -> list[Item]:
        return []

    def gateways(self) -> list[Item]:
        return []

    def connection(self, cid: int) -> Item | None:
        return next((self._item(c) for c in self.open if c.cid == cid), None)

    def subscriptions(
        self,
        account: "FakeHandle | None" = None,
        *,
        matching: bytes | None = None,
        overlapping: bytes | None = None,
        cids: Collection[int] | None = None,
        offset: int = 0,
        most: int | None = None,
    ) -> "FakeSearch":
        found = [
            sub
            for sub in self.subs
            if (account is None or SubNumbers(*sub.numbers).account == account.id)
            and (matching is None or subject_matches(sub.texts[0], matching))
            and (overlapping is None or subjects_overlap(sub.texts[0], overlapping))
            and (cids is None or sub.cid in cids)
        ]
        return FakeSearch(found, offset, most)

    def add_sub(
        self,
        cid: int,
        subject: str,
        queue: str = "",
        sid: str = "1",
        msgs: int = 0,
        most: int = 0,
        account: int = 0,
    ) -> None:
        texts = (subject.encode(), queue.encode(), sid.encode())
        numbers = SubNumbers(account=account, delivered=msgs, max=most, internal=int(cid == 0))
        self.subs.append(Item(201, cid, numbers, texts))

    def _item(self, c: Connection) -> Item:
        own = ("reason", "websocket", "compression", "kind")
        figures = {field: getattr(c, field) for field in ConnNumbers._fields if field not in own}
        is_websocket = c.type == "websocket"
        numbers = ConnNumbers(
            reason=0, websocket=is_websocket, compression=0, kind=CLIENT_KIND, **figures
        )
        options = {"name": c.name, "lang": c.lang, "version": c.version}
        return Item(200, c.cid, numbers, (c.ip.encode(), json.dumps(options).encode(), b""))


class FakeSearch:
    """Subscriptions, one at a time."""

    def __init__(self, found: list[Item], offset: int, most: int | None) -> None:
        self.total = len(found)
        self.page = found[offset:][:most]

    def __iter__(self) -> Iterator[list[Item]]:
        return iter([item] for item in self.page)


class FakeHandle:
    """An account whose counters a test fills."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.counters: dict[str, float] = {}

    def sublist(self) -> dict[str, float]:
        keys = words("subs cache inserts removes matches cache_hits max_fanout avg_fanout")
        return {**dict.fromkeys(keys, 0), **self.counters}


class FakeAccounts(dict[str, FakeHandle]):
    """Accounts of these names."""

    def __init__(self, *names: str) -> None:
        super().__init__((name, FakeHandle(n)) for n, name in enumerate(names))

    def name_of(self, account: int) -> str:
        return next(name for name, handle in self.items() if handle.id == account)

    def tag_of(self, name: str) -> str:
        return name


class FakeServer:
    """What `Pages` watches; `get` asks for a page."""

    def __init__(self, options: Options | None = None, dispatcher: Any = None) -> None:
        self.id = "NSERVER"
        self.name = "srv"
        self.options = options or Options()
        self.port = 4222
        self.auth_required = False
        self.certificate_ends = ""
        self.websocket_certificate_ends = ""
        self.peer_answers = None
        self.monitor_security = None
        self.started = NOW - 3600 * SECOND
        self.config_loaded = NOW - 3600 * SECOND
        self.accepting = True
        self.plane = FakePlane()
        self.accounts = FakeAccounts("$G", "$SYS")
        self.system_account = "$SYS"
        self.users: dict[int, str] = {}
        self.jetstream: Any = None
        self.meta = None
        if dispatcher is not None:
            self.options.jetstream.enabled = True
            self.jetstream = SimpleNamespace(
                dispatcher=dispatcher,
                store=SimpleNamespace(path="/data/jetstream"),
                max_memory=1000,
                max_store=2000,
            )
        self.closed = ClosedConnections(self.options.max_closed_clients)
        self.pages = Pages(self, self.closed)

    websocket_port = 0
    cluster = ""
    route_port = leaf_port = gateway_port = 0
    gateways = None
    connect_urls = Urls([], [])
    pinned_account_fails = 0

    def routes(self) -> list[Any]:
        return []

    @property
    def interest(self) -> tuple[None, None]:
        return None, None

    def leafs(self) -> list[Any]:
        return []

    def gateway_links(self) -> list[Any]:
        return []

    def shared(self, account: str) -> tuple[None, list[Any]]:
        return None, []

    def waiting(self) -> dict[str, int]:
        return {"requests": 2, "others": 0}

    def claims(self, account: str) -> None:
        return None

    def complete(self, connection: Connection) -> None:
        connection.user = self.users.get(connection.cid, "")

    def get(self, target: str) -> Response:
        path, _, query = target.partition("?")
        request = Request(
            method="GET", path=path, query=query, keep_alive=True, http10=False, body_bytes=0
        )
        return self.pages.answer(request)

    def page(self, target: str) -> Any:
        """The decoded body of an answer that must be 200."""
        answer = self.get(target)
        assert answer.status == 200, answer
        assert answer.content_type == "application/json"
        return json.loads(answer.body)

    def refused(self, target: str) -> str:
        """The text of an answer that must be 400."""
        answer = self.get(target)
        assert answer.status == 400, answer
        return answer.body.decode()
