"""Random histories of streams that are read and written by the formats, against a plain client.

A read gives what the stream holds, from any server that answers for it; what was lost before it
could be read is told; what is missing is counted; a write that is repeated is exact or refused.
Histories and seed come from the environment: `PIPELINE_HISTORIES` (4, of each kind and server) and
`PIPELINE_SEED` (1, shown).
"""

import contextlib
import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from jsserver_spark.cext.bytes import subject_matches
from jsserver_spark.client.connection import publish_frame
from jsserver_spark.errors import DataLossError
from jsserver_spark.jetstream import ApiError, JetStream, Stored
from jsserver_spark.options import ConnectionOptions
from jsserver_spark.text.goformat import MILLISECOND, SECOND
from jsserver_spark.write.fence import FenceError
from pipeline.tests.sink_world import Torn, create, payloads, rows_of, write_parts
from pipeline.tests.site import Site, batches_of
from pipeline.tests.test_stream_source import Query
from tests.seeds import seed_of
from tests.servers import Server, Servers
from tests.waiting import wait_until

HISTORIES = int(os.environ.get("PIPELINE_HISTORIES", "4"))
SEED = seed_of("PIPELINE_SEED")
STEPS = 25
SUBJECTS = ("hot", "hot", "hot", "hot", "warm.a", "warm.b", "cold.{}")
FILTERS = ("", "{}.hot", "{}.warm.>", "{}.warm.*,{}.hot", "{}.>", "*.warm.a,{}.hot", "{}.other.>")
OLD = "old"
"""Streams change their subjects: this token is before the others at first."""

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(180)]

CONFIG = """
jetstream { domain: hub }
accounts {
  OWNER: {
    users: [ { user: owner, password: o } ]
    jetstream: enabled
    exports: [ { service: "$JS.API.>", response: stream } ]
  }
  READER: {
    users: [ { user: reader, password: r } ]
    imports: [ { service: { account: OWNER, subject: "$JS.API.>" } } ]
  }
}
no_auth_user: owner
"""
WAYS: dict[str, list[dict[str, str]]] = {
    "jsserver": [{}, {"jsDomain": "hub"}],
    "peer": [{}, {"jsDomain": "hub"}, {"user": "reader", "password": "r"}],
}
"""How a reader reaches the stream: directly, by its domain, through an import."""


@pytest.fixture(scope="module", params=["jsserver", "peer"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, module_servers: Servers) -> Server:
    start = module_servers.under_test if kind == "jsserver" else module_servers.peer
    return start(jetstream=True, config=CONFIG)


class History:
    """One stream and its mirrors, and a query that reads it; a plain client knows what is there."""

    def __init__(self, site: Site, name: str, seed: int, ways: list[dict[str, str]]) -> None:
        self.site = site
        self.name = name
        self.random = random.Random(seed)
        self.ways = ways
        self.prefix = f"{name}.{OLD}"
        self.kept = self.random.choice([-1, -1, 1, 3, 10])
        self.config = {
            "name": name,
            "allow_direct": self.random.random() < 0.8,
            "subjects": [f"{self.prefix}.>"],
            "max_msgs_per_subject": self.kept,
            "max_msgs": self.random.choice([-1, -1, 60]),
            "max_age": self.random.choice([0, 0, 300 * MILLISECOND]),
        }
        self.mirrors = 0
        self.published = 0
        site.js.api(f"STREAM.CREATE.{name}", self.config)
        self.query = Query(site, stream=name, startingOffsets="1", minPartitions="2", **self.way())
        self.at = self.query.at
        self.read_to = 0
        self.missing = 0

    def way(self) -> dict[str, str]:
        return self.random.choice(self.ways)

    # ---- what a plain client sees ----------------------------------------------------------------

    def held(self) -> dict[int, Stored]:
        """Every message, by STREAM.MSG.GET."""
        state = self.site.info(self.name).state
        found: dict[int, Stored] = {}
        at = state.first_seq
        while (message := self.site.js.message_from(self.name, max(at, 1))) is not None:
            found[message.seq] = message
            at = message.seq + 1
        return found

    def still(self) -> bool:
        """Whether no age takes anything meanwhile; else waits until all of it is gone."""
        if self.config["max_age"]:
            state = self.site.info
            wait_until(lambda: state(self.name).state.messages == 0, "everything is expired")
        return True

    # ---- steps -----------------------------------------------------------------------------------

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 40)):
            subject = self.random.choice(SUBJECTS).format(self.published)
            self.published += 1
            data = b"%d" % self.published
            self.site.js.connection.send(publish_frame(f"{self.prefix}.{subject}", data))
        self.site.js.connection.flush()
        last = self.site.info
        wait_until(
            lambda: last(self.name).state.last_seq >= self.published, "what was published is stored"
        )

    def delete(self) -> None:
        for seq in self.random.sample(sorted(self.held()), k=min(5, len(self.held()))):
            with contextlib.suppress(ApiError):  # expired meanwhile
                self.site.delete(self.name, seq)

    def purge(self) -> None:
        state = self.site.info(self.name).state
        body: dict[str, Any] = self.random.choice(
            [
                {"seq": self.random.randint(1, state.last_seq + 1)},
                {"keep": self.random.randint(0, 20)},
                {"filter": f"{self.prefix}.warm.>"},
                {"filter": f"{self.prefix}.hot", "keep": 1},
            ]
        )
        self.site.js.api(f"STREAM.PURGE.{self.name}", body)

    def move(self) -> None:
        """Other subjects from now on."""
        token = self.random.choice([OLD, "new"])
        self.prefix = f"{self.name}.{token}"
        self.config["subjects"] = [f"{self.prefix}.>"]
        self.site.js.api(f"STREAM.UPDATE.{self.name}", self.config)

    def mirror(self) -> None:
        if self.mirrors >= 2 or not self.config["allow_direct"]:
            return
        self.mirrors += 1
        name = f"{self.name}m{self.mirrors}"
        source: dict[str, Any] = {"name": self.name}
        extra: dict[str, Any] = {}
        match self.random.randrange(4):
            case 0:
                source["filter_subject"] = f"{self.prefix}.hot"
            case 1:
                extra["max_msgs"] = 5
            case 2:
                source["subject_transforms"] = [{"src": f"{self.name}.>", "dest": "elsewhere.>"}]
        config = {"name": name, "mirror": source, "allow_direct": True, "mirror_direct": True}
        self.site.js.api(f"STREAM.CREATE.{name}", config | extra)

    def read(self) -> None:
        """A batch read of everything; filters are applied to subjects as they are stored."""
        self.still()
        filters = self.random.choice(FILTERS).replace("{}", self.prefix)
        reader = self.site.reader(
            stream=self.name,
            filterSubjects=filters,
            minPartitions=str(self.random.randint(1, 4)),
            batchRows=self.random.choice(["7", "10000"]),
            **self.way(),
        )
        rows = {
            row["seq"]: (row["subject"], row["data"])
            for batch in batches_of(reader, reader.partitions())
            for row in batch.to_pylist()
        }
        patterns = filters.split(",") if filters else [">"]
        assert rows == {
            seq: (message.subject, message.data)
            for seq, message in self.held().items()
            if any(subject_matches(pattern, message.subject) for pattern in patterns)
        }

    def batch(self) -> None:
        """What the query reads next: what is there, or an error where something was lost."""
        self.still()
        info, held = self.site.info(self.name), self.held()
        lost = self.kept != 1 and info.state.first_seq > self.read_to + 1
        try:
            rows = self.query.batch()
            assert not lost or info.state.last_seq == self.read_to, "a loss was not told"
        except DataLossError:
            assert lost
            again = {"stream": self.name, "failOnDataLoss": "false", "startingOffsets": "1"}
            tolerant = Query(self.site, self.at, **again, **self.way())
            rows = tolerant.batch()
            self.query.at = tolerant.at
        assert rows == [seq for seq in held if seq > self.read_to]
        self.missing += info.state.last_seq - self.read_to - len(rows)
        self.read_to = info.state.last_seq
        self.at = self.query.at
        assert self.query.place(self.name).get("missing", 0) == self.missing

    def run(self) -> None:
        steps = [self.publish] * 4 + [self.delete, self.purge, self.move, self.mirror]
        steps += [self.read] * 3 + [self.batch] * 2
        self.publish()
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.read()
        self.batch()


@pytest.mark.parametrize("number", range(HISTORIES))
def test_streams_are_read_as_a_plain_client_reads_them(
    server: Server, kind: str, number: int
) -> None:
    site = Site(server)
    name = f"H{number}"
    history = History(site, name, SEED + number, WAYS[kind])
    history.run()
    for mirror in range(history.mirrors):
        site.remove(f"{name}m{mirror + 1}")
    site.remove(name)


# ---- writes ------------------------------------------------------------------------------------


@pytest.fixture
def js(server: Server) -> Iterator[JetStream]:
    js = JetStream(ConnectionOptions(servers=(server.url,)))
    yield js
    js.close()


@pytest.mark.parametrize("number", range(HISTORIES))
@pytest.mark.parametrize("ids", ["places", "origins", "columns"])
def test_a_repeated_write_is_exact_or_refused(
    server: Server, js: JetStream, number: int, ids: str
) -> None:
    """Cut and torn anew each time, as with other cores; only ids of the rows' own allow that."""
    chance = random.Random(SEED + number)
    name, total = f"W{ids}{number}", chance.randint(5, 300)
    create(js, name, duplicate_window=3600 * SECOND)
    given = {"subject": f"{name}.x", "sinkId": name, "runId": "1"}
    if ids == "columns":
        given = {"subject": f"{name}.x", "idColumn": "stream,seq"}

    def part(first: int, stop: int) -> pa.RecordBatch:
        columns: dict[str, list[Any]] = {"data": [str(i) for i in range(first, stop)]}
        if ids != "places":
            columns |= {"stream": ["S"] * (stop - first), "seq": list(range(first, stop))}
        return rows_of(**columns)

    noted: list[range] = []
    """What the partitions hold that were begun."""
    for _ in range(6):
        inner = sorted(chance.randint(1, total - 1) for _ in range(chance.randint(0, 4)))
        edges = sorted({0, *inner, total})
        ranges = [range(a, b) for a, b in itertools.pairwise(edges)]
        if chance.random() < 0.5:  # cut as before, as far as that is known
            behind = noted[-1].stop if noted else 0
            ranges = [*noted, *([range(behind, total)] if behind < total else [])]
        begun = ranges[: chance.randint(1, len(ranges))]
        same = begun[: len(noted)] == noted[: len(begun)]
        parts = [part(each.start, each.stop) for each in begun]
        try:
            write_parts(server, parts, torn=chance.randint(0, len(parts[-1])), **given)
        except Torn:
            assert same or ids != "places"
            noted = [*begun, *noted[len(begun) :]]
        except FenceError:
            assert ids == "places" and not same
        stored = payloads(js, name)
        assert len(set(stored)) == len(stored)
    behind = noted[-1].stop
    ranges = [*noted, *([range(behind, total)] if behind < total else [])]
    write_parts(server, [part(each.start, each.stop) for each in ranges], **given)
    assert sorted(payloads(js, name), key=int) == [str(i) for i in range(total)]
