"""STREAM.*: creation, idempotence, updates, information, purge, deletion, lists and limits."""

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import structs, to_builtins

from jsserver.api import stream_api
from jsserver.api.responder import Request
from jsserver.assets.limits import OF_TIERS, AccountLimits

from .api_server import ACCOUNT, ApiServer

SECOND = 1_000_000_000


@pytest.fixture
def api(tmp_path: Path):
    with ApiServer(tmp_path) as server:
        yield server


def test_defaults_and_order_of_keys(api: ApiServer) -> None:
    answer = api.stream("S")
    assert list(answer) == ["type", "config", "created", "state", "ts", "did_create"]
    config = answer["config"]
    assert list(config) == [
        "name",
        "subjects",
        "retention",
        "max_consumers",
        "max_msgs",
        "max_bytes",
        "max_age",
        "max_msgs_per_subject",
        "max_msg_size",
        "discard",
        "storage",
        "num_replicas",
        "duplicate_window",
        "compression",
        "allow_direct",
        "mirror_direct",
        "sealed",
        "deny_delete",
        "deny_purge",
        "allow_rollup_hdrs",
        "consumer_limits",
        "allow_msg_ttl",
        "metadata",
    ]
    assert config["subjects"] == ["S"] and config["max_msgs"] == -1
    assert config["duplicate_window"] == 120 * SECOND
    assert config["metadata"] == {
        "_nats.level": "4",
        "_nats.req.level": "0",
        "_nats.ver": "2.14.5",
    }


def test_the_data_plane_gets_what_was_configured(api: ApiServer) -> None:
    api.stream(
        "S",
        subjects=["a.>"],
        retention="workqueue",
        storage="memory",
        discard="new",
        max_msgs=5,
        max_age=SECOND,
        no_ack=True,
        deny_purge=True,
        first_seq=9,
    )
    config = api.engine.streams["S"].config
    assert (config.name, config.subjects) == ("S", ["a.>"])
    assert (config.retention, config.storage) == ("workqueue", "memory")
    assert (config.discard, config.max_msgs, config.max_bytes) == ("new", 5, -1)
    assert (config.max_age, config.duplicate_window) == (SECOND, SECOND)
    assert config.no_ack and config.deny_purge and not config.deny_delete
    assert config.first_seq == 9
    assert api.engine.streams["S"].active


def test_the_same_again_is_success_and_anything_else_is_not(api: ApiServer) -> None:
    created = api.stream("S", metadata={"a": "b"})["created"]
    again = api.stream("S", metadata={"a": "b", "_nats.ver": "1"}, subjects=["S"], max_msgs=-1)
    assert again["created"] == created and again["did_create"] is True
    body = {"name": "S", "metadata": {"a": "c"}}
    assert api.refused("STREAM.CREATE.S", body)[0] == 10058


@pytest.mark.parametrize(
    ("config", "code", "text"),
    [
        ({"max_age": 5}, 10052, "max age needs to be >= 100ms"),
        ({"max_age": -5}, 10052, "max age can not be negative"),
        ({"duplicate_window": 5}, 10052, "duplicates window needs to be >= 100ms"),
        (
            {"duplicate_window": 2 * SECOND, "max_age": SECOND},
            10052,
            "duplicates window can not be larger then max age",
        ),
        ({"num_replicas": 6}, 10052, "maximum replicas is 5"),
        ({"num_replicas": -1}, 10133, "replicas count cannot be negative"),
        ({"num_replicas": 3}, 10074, "replicas > 1 not supported in non-clustered mode"),
        (
            {"num_replicas": 3, "subjects": ["a.>"], "republish": {"src": "a.>", "dest": "a.b.>"}},
            10052,
            "stream configuration for republish destination forms a cycle",
        ),
        (
            {"num_replicas": 3, "subject_transform": {"src": "a.>", "dest": "b"}},
            10156,
            "stream transform: invalid subject",
        ),
        ({"sealed": True}, 10052, "stream configuration for create can not be sealed"),
        (
            {"subjects": ["a.>", "a.b"]},
            10052,
            'subject "a.>" overlaps with "a.b"',
        ),
        ({"subjects": ["a..b"]}, 10052, "invalid subject"),
        (
            {"subjects": [">"]},
            10052,
            "capturing all subjects requires no-ack to be true",
        ),
        (
            {"subjects": ["$JS.API.x"]},
            10052,
            "subjects that overlap with jetstream api require no-ack to be true",
        ),
        ({"max_msgs": -5, "pedantic": True}, 10157, "pedantic mode: max_msgs must be set to -1"),
        (
            {"deny_purge": True, "allow_rollup_hdrs": True},
            10052,
            "roll-ups require the purge permission",
        ),
        ({"mirror": {"name": "X"}, "subjects": ["a"]}, 10034, None),
        ({"mirror": {"name": "X"}, "first_seq": 5}, 10143, None),
    ],
)
def test_invalid_configurations(
    api: ApiServer, config: dict[str, object], code: int, text: str | None
) -> None:
    got = api.refused("STREAM.CREATE.S", {"name": "S", **config})
    assert got[0] == code and text in (None, got[1])
    assert api.ask("STREAM.NAMES")["streams"] is None


def test_compression(api: ApiServer) -> None:
    created = api.ok("STREAM.CREATE.S", {"name": "S", "compression": "s2"})
    assert created["config"]["compression"] == "s2"
    api.ok("STREAM.UPDATE.S", {"name": "S"})
    assert api.ok("STREAM.INFO.S")["config"]["compression"] == "none"
    api.ok("STREAM.UPDATE.S", {"name": "S", "compression": "s2"})
    assert api.ok("STREAM.INFO.S")["config"]["compression"] == "s2"


def test_streams_of_an_account_share_no_subject(api: ApiServer) -> None:
    api.stream("A", subjects=["a.*", "b"])
    overlapping = {"name": "B", "subjects": ["x.*", "a.b"]}
    assert api.refused("STREAM.CREATE.B", overlapping)[0] == 10065
    api.stream("B", subjects=["a.b.c"])
    assert api.refused("STREAM.UPDATE.B", {"name": "B", "subjects": ["b"]})[0] == 10065
    api.ok("STREAM.UPDATE.B", {"name": "B", "subjects": ["c"]})
    api.stream("C", subjects=["a.b.c"])
    api.ok("STREAM.DELETE.A")
    api.ok("STREAM.UPDATE.C", {"name": "C", "subjects": ["a.b", "b"]})


def test_two_creations_at_once_cannot_both_take_a_subject(api: ApiServer) -> None:
    def request(name: str) -> Request:
        body = json.dumps({"name": name, "subjects": ["same"]}).encode()
        return Request(ACCOUNT, f"$JS.API.STREAM.CREATE.{name}".encode(), b"r", b"", body)

    async def both() -> list[bytes | None]:
        handle = api.dispatcher.handle
        return list(await asyncio.gather(*(handle(request(n)) for n in "ABCD")))

    answers = [json.loads(a or b"") for a in api.run(both())]
    assert sorted(a.get("error", {}).get("err_code", 0) for a in answers) == [0] + [10065] * 3


def test_the_same_creation_at_once_makes_one_stream(api: ApiServer) -> None:
    request = Request(ACCOUNT, b"$JS.API.STREAM.CREATE.S", b"r", b"", b'{"name":"S"}')

    async def many() -> list[bytes | None]:
        return list(await asyncio.gather(*(api.dispatcher.handle(request) for _ in range(5))))

    answers = [json.loads(a or b"") for a in api.run(many())]
    assert len({a["created"] for a in answers}) == 1


def test_update_replaces_everything(api: ApiServer) -> None:
    api.stream("S", description="d", max_msgs=5)
    config = api.ok("STREAM.UPDATE.S", {"name": "S", "max_bytes": 7})["config"]
    assert "description" not in config
    assert (config["max_msgs"], config["max_bytes"]) == (-1, 7)
    assert api.engine.streams["S"].config.max_bytes == 7
    assert api.engine.streams["S"].waits == 1


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({}, {"storage": "memory"}, "can not change storage type"),
        ({}, {"retention": "workqueue"}, "can not change retention policy to/from workqueue"),
        ({"deny_delete": True}, {}, "can not cancel deny message deletes"),
        ({"deny_purge": True}, {}, "can not cancel deny purge"),
    ],
)
def test_what_an_update_may_not_change(
    api: ApiServer, old: dict[str, object], new: dict[str, object], text: str
) -> None:
    before = api.stream("S", **old)["config"]
    code, got = api.refused("STREAM.UPDATE.S", {"name": "S", **new})
    assert code == 10052 and got == f"stream configuration update {text}"
    assert api.ok("STREAM.INFO.S")["config"] == before


def test_sealing(api: ApiServer) -> None:
    api.stream("S", max_age=SECOND)
    api.engine.store("S")
    sealed = api.ok("STREAM.UPDATE.S", {"name": "S", "sealed": True})["config"]
    assert (sealed["max_age"], sealed["discard"], sealed["deny_delete"]) == (0, "new", True)
    assert api.refused("STREAM.PURGE.S")[0] == 10109
    assert api.refused("STREAM.MSG.DELETE.S", {"seq": 1})[0] == 10109
    assert api.refused("STREAM.UPDATE.S", {"name": "S"})[0] == 10052


def test_purge_waits_until_it_is_durable(api: ApiServer) -> None:
    api.stream("S", subjects=["s.*"])
    for n in range(6):
        api.engine.store(f"s.{n % 2}")
    assert api.ok("STREAM.PURGE.S", {"filter": "s.1", "keep": 1})["purged"] == 2
    assert api.ok("STREAM.PURGE.S", {"seq": 4})["purged"] == 2
    assert api.ok("STREAM.PURGE.S", b"hello")["purged"] == 2
    assert api.engine.streams["S"].waits == 3
    assert api.refused("STREAM.PURGE.S", {"seq": 1, "keep": 1}) == (10003, "bad request")


def test_details_of_subjects_and_deletes(api: ApiServer) -> None:
    api.stream("S", subjects=["s.*"])
    for n in range(6):
        api.engine.store(f"s.{n % 3}")
    api.ok("STREAM.MSG.DELETE.S", {"seq": 3})
    got = api.ok("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": "s.*", "offset": 1})
    assert got["state"]["deleted"] == [3] and got["state"]["num_deleted"] == 1
    assert got["state"]["subjects"] == {"s.1": 2, "s.2": 1}
    assert (got["total"], got["offset"], got["limit"]) == (3, 1, 100_000)
    plain = api.ok("STREAM.INFO.S")
    assert "deleted" not in plain["state"] and "subjects" not in plain["state"]
    assert plain["cluster"] == {"leader": "srv"}


def test_not_more_deletes_are_listed_than_an_answer_holds(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap may be as long as the numbers are."""
    monkeypatch.setattr(stream_api, "DELETED_LIMIT", 2)
    api.stream("S", subjects=["s.*"])
    for n in range(6):
        api.engine.store(f"s.{n}")
    for seq in (2, 3):
        api.ok("STREAM.MSG.DELETE.S", {"seq": seq})
    state = api.ok("STREAM.INFO.S", {"deleted_details": True})["state"]
    assert state["deleted"] == [2, 3] and state["num_deleted"] == 2
    api.ok("STREAM.MSG.DELETE.S", {"seq": 5})
    state = api.ok("STREAM.INFO.S", {"deleted_details": True})["state"]
    assert state["deleted"] == [2, 3] and state["num_deleted"] == 3


def test_lists_are_pages_in_byte_order(api: ApiServer) -> None:
    for name in ("b", "a", "Z", "é"):
        api.stream(name, storage="memory")
    assert api.ok("STREAM.NAMES")["streams"] == ["Z", "a", "b", "é"]
    page = api.ok("STREAM.LIST", {"offset": 2})
    assert [s["config"]["name"] for s in page["streams"]] == ["b", "é"]
    assert (page["total"], page["offset"], page["limit"]) == (4, 2, 256)
    assert "_nats.ver" not in page["streams"][0]["config"]["metadata"]
    assert api.ok("STREAM.NAMES", {"offset": 9}) == {
        "type": "io.nats.jetstream.api.v1.stream_names_response",
        "total": 4,
        "offset": 4,
        "limit": 1024,
        "streams": None,
    }
    assert api.ok("STREAM.LIST", {"subject": "a"})["total"] == 1


def test_deletion_answers_when_the_files_are_out_of_the_way(api: ApiServer, tmp_path: Path) -> None:
    api.stream("S")
    handle = api.engine.streams["S"]
    assert (tmp_path / "streams" / "S").is_dir()
    api.ok("STREAM.DELETE.S")
    assert handle.closed is True and not (tmp_path / "streams" / "S").exists()
    assert api.refused("STREAM.INFO.S") == (10059, "stream not found")
    assert api.ok("INFO")["streams"] == 0


def test_a_store_that_does_not_open_leaves_nothing_behind(api: ApiServer, tmp_path: Path) -> None:
    api.engine.broken = "error creating store for stream"
    assert api.refused("STREAM.CREATE.S", {"name": "S"}) == (10049, api.engine.broken)
    assert list((tmp_path / "streams").iterdir()) == []
    api.engine.broken = ""
    api.stream("S")


def test_an_update_that_fails_leaves_the_configuration(api: ApiServer, tmp_path: Path) -> None:
    api.stream("S", max_msgs=5)
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 5}
    api.ok("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    files = {p: p.read_bytes() for p in tmp_path.rglob("meta.*")}
    assert len(files) == 4
    stream = api.engine.streams["S"]
    stream.fails = "writing to disk failed"
    code = api.refused("STREAM.UPDATE.S", {"name": "S", "max_msgs": 7})
    assert code == (10069, stream.fails)
    config["max_ack_pending"] = 7
    code = api.refused("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    assert code == (10012, stream.fails)
    stream.fails = ""
    assert {p: p.read_bytes() for p in tmp_path.rglob("meta.*")} == files
    assert api.ok("STREAM.INFO.S")["config"]["max_msgs"] == stream.config.max_msgs == 5
    assert api.ok("CONSUMER.INFO.S.c")["config"]["max_ack_pending"] == 5
    assert stream.consumers[0].config.max_ack_pending == 5


def test_account_limits(tmp_path: Path) -> None:
    limits = AccountLimits(max_streams=2, max_storage=1000, storage_max_stream_bytes=800)
    with ApiServer(tmp_path, limits) as api:
        assert api.engine.limits == (-1, 1000)
        assert api.refused("STREAM.CREATE.A", {"name": "A", "max_bytes": 900})[0] == 10122
        api.stream("A", max_bytes=600)
        assert api.refused("STREAM.CREATE.B", {"name": "B", "max_bytes": 401})[0] == 10047
        api.stream("B", max_bytes=400)
        assert api.refused("STREAM.CREATE.C", {"name": "C"})[0] == 10027
        assert api.refused("STREAM.UPDATE.A", {"name": "A", "max_bytes": 601})[0] == 10047
        api.ok("STREAM.UPDATE.A", {"name": "A", "max_bytes": 300})
        assert api.ok("INFO")["reserved_storage"] == 700
        api.ok("STREAM.DELETE.B")
        assert api.ok("INFO")["reserved_storage"] == 300


def test_server_limit_on_the_duplicate_window(tmp_path: Path) -> None:
    with ApiServer(tmp_path, duplicate_window=60 * SECOND) as api:
        assert api.stream("S")["config"]["duplicate_window"] == 60 * SECOND
        assert api.refused("STREAM.CREATE.T", {"name": "T", "duplicate_window": 90 * SECOND}) == (
            10052,
            "duplicates window can not be larger then server limit of 1m0s",
        )


def test_many_streams_cost_the_same(tmp_path: Path) -> None:
    """The overlap check looks only where subjects can meet, whatever else there is."""
    with ApiServer(tmp_path) as api:
        for n in range(2000):
            api.stream(f"S{n}", subjects=[f"many.{n}.*", f"other.{n}"], storage="memory")
        for subject in ("many.77.x", "many.*.x", "other.>"):
            overlaps = {"name": "T", "subjects": [subject]}
            assert api.refused("STREAM.CREATE.T", overlaps)[0] == 10065
        api.stream("T", subjects=["many.*.x.y"], storage="memory")
        page = api.ok("STREAM.NAMES", {"offset": 1024})
        assert len(page["streams"]) == 977


def test_names_stand_in_the_order_of_their_bytes(api: ApiServer) -> None:
    names = ["z", "\U00010000", "B", "\uffee", "é", "a"]
    for number, name in enumerate(names):
        api.stream(name, subjects=[f"s{number}"])
    assert api.ok("STREAM.NAMES")["streams"] == sorted(names, key=str.encode)


TIER = AccountLimits(max_memory=1000, max_storage=2000, max_streams=2, max_consumers=2)


def tiered(**tiers: AccountLimits) -> AccountLimits:
    """The limits of an account with tiers; facts: nats-server 2.14.5 in operator mode."""
    return structs.replace(tiers.get("R1", OF_TIERS), tiers=tiers)


def test_tiers_of_replicas(tmp_path: Path) -> None:
    larger = structs.replace(TIER, max_storage=9000)
    with ApiServer(tmp_path, tiered(R1=TIER, R3=larger)) as server:
        none = {"memory": 0, "storage": 0, "reserved_memory": 0, "reserved_storage": 0}
        none |= {"streams": 0, "consumers": 0}
        info = server.ok("INFO")
        assert not any(info["limits"].values())
        assert info["tiers"] == {
            "R1": {**none, "limits": to_builtins(TIER)},
            "R3": {**none, "limits": to_builtins(larger)},
        }
        server.ok("STREAM.CREATE.A", {"name": "A", "max_bytes": 1500})
        for body, code in (
            ({"max_bytes": 501}, 10047),
            ({"max_bytes": 400, "num_replicas": 3}, 10074),
            ({"num_replicas": 2}, 10120),
        ):
            assert server.refused("STREAM.CREATE.B", {"name": "B", **body})[0] == code
        server.ok("STREAM.CREATE.M", {"name": "M", "storage": "memory", "max_bytes": 999})
        assert server.refused("STREAM.CREATE.C", {"name": "C", "max_bytes": 1})[0] == 10027
        assert server.refused("STREAM.CREATE.C", {"name": "C", "num_replicas": 2})[0] == 10120
        asked = {"name": "C", "num_replicas": 3, "max_bytes": 1}
        assert server.refused("STREAM.CREATE.C", asked)[0] == 10074
        info = server.ok("INFO")
        used = {**none, "reserved_memory": 999, "reserved_storage": 1500, "streams": 2}
        assert info["tiers"]["R1"] == {**used, "limits": to_builtins(TIER)}
        assert {key: info[key] for key in used} == used


def test_without_a_tier_there_are_no_streams(tmp_path: Path) -> None:
    with ApiServer(tmp_path, tiered(R3=TIER)) as server:
        refused = server.refused("STREAM.CREATE.A", {"name": "A"})
        assert refused == (10120, "no JetStream default or applicable tiered limit present")
        asked = {"name": "A", "num_replicas": 3}
        assert server.refused("STREAM.CREATE.A", asked)[0] == 10074
