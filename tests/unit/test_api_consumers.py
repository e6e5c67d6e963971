"""CONSUMER.*: creation in its three forms, updates, limits, information, pause, deletion."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jsserver.assets.limits import AccountLimits
from jsserver.instances.backend import StoreError

from .api_server import ApiServer

SECOND = 1_000_000_000
EXPLICIT = {"ack_policy": "explicit"}
FUTURE = "2101-01-01T00:00:00Z"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path) as server:
        server.stream("S", subjects=["s.>"])
        yield server


def refused(api: ApiServer, stream: str = "S", name: str = "c", **config: Any) -> tuple[int, str]:
    body = {"stream_name": stream, "config": config}
    return api.refused(f"CONSUMER.CREATE.{stream}.{name}", body)


def test_defaults_of_a_pull_consumer(api: ApiServer) -> None:
    api.engine.store("s.a")
    answer = api.consumer("S", "c", **EXPLICIT)
    assert answer["config"] == {
        "name": "c",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 30 * SECOND,
        "max_deliver": -1,
        "replay_policy": "instant",
        "max_waiting": 512,
        "max_ack_pending": 1000,
        "inactive_threshold": 5 * SECOND,
        "num_replicas": 0,
        "metadata": {"_nats.level": "4", "_nats.req.level": "0", "_nats.ver": "2.14.5"},
    }
    assert list(answer) == [
        "type",
        "stream_name",
        "name",
        "created",
        "config",
        "delivered",
        "ack_floor",
        "num_ack_pending",
        "num_redelivered",
        "num_waiting",
        "num_pending",
        "ts",
    ]
    assert answer["delivered"] == {"consumer_seq": 0, "stream_seq": 0}
    assert answer["num_pending"] == 1


def test_the_data_plane_gets_what_was_configured(api: ApiServer) -> None:
    api.consumer(
        "S",
        "c",
        durable_name="c",
        deliver_policy="by_start_time",
        opt_start_time="2024-01-01T01:00:00+01:00",
        ack_policy="all",
        backoff=[SECOND, 2 * SECOND],
        max_deliver=5,
        filter_subjects=["s.a", "s.b"],
        replay_policy="original",
        sample_freq="30%",
        deliver_subject="push",
        deliver_group="g",
        flow_control=True,
        idle_heartbeat=SECOND,
        headers_only=True,
        rate_limit_bps=8000,
        pause_until=FUTURE,
    )
    prepared = api.engine.streams["S"].consumers[0].prepared
    config = prepared.config
    assert (prepared.name, config.durable_name) == ("c", "c")
    assert config.deliver_policy == "by_start_time"
    assert prepared.opt_start_time == 1_704_067_200 * SECOND
    assert (config.ack_policy, config.replay_policy) == ("all", "original")
    assert (prepared.ack_wait, config.backoff) == (SECOND, [SECOND, 2 * SECOND])
    assert prepared.filters == ["s.a", "s.b"]
    assert (config.deliver_subject, config.deliver_group) == ("push", "g")
    assert (prepared.sample_percent, config.rate_limit_bps, config.max_waiting) == (30, 8000, 0)
    assert config.flow_control and config.headers_only and prepared.pause_until > 0


def test_names_come_from_the_subject(api: ApiServer) -> None:
    named = api.ok(
        "CONSUMER.CREATE.S.n.s.x",
        {"stream_name": "S", "config": {"name": "other", "filter_subject": "s.x"}},
    )
    assert named["config"]["name"] == "n"
    durable = {"stream_name": "S", "config": {"durable_name": "d"}}
    assert api.ok("CONSUMER.DURABLE.CREATE.S.d", durable)["config"]["name"] == "d"
    ephemeral = api.ok("CONSUMER.CREATE.S", {"stream_name": "S"})
    assert len(ephemeral["name"]) == 8 and "name" not in ephemeral["config"]
    assert api.ok("CONSUMER.NAMES.S")["total"] == 3


@pytest.mark.parametrize(
    ("subject", "config", "code"),
    [
        ("CREATE.S", {"durable_name": "d"}, 10020),
        ("CREATE.S", {"name": "a/b"}, 10127),
        ("CREATE.S.a/b", {}, 10127),
        ("CREATE.S.n", {"durable_name": "other"}, 10017),
        ("CREATE.S.n.s.x", {}, 10131),
        ("CREATE.S.n.s.x", {"filter_subject": "s.y"}, 10131),
        ("CREATE.S.n.s.x", {"filter_subjects": ["s.x"]}, 10137),
        ("CREATE.T.n", {}, 10056),
        ("DURABLE.CREATE.S.d", {}, 10018),
        ("DURABLE.CREATE.S.d", {"durable_name": "e"}, 10017),
    ],
)
def test_subject_and_body_must_agree(
    api: ApiServer, subject: str, config: dict[str, object], code: int
) -> None:
    got = api.refused(f"CONSUMER.{subject}", {"stream_name": "S", "config": config})
    assert got[0] == code


@pytest.mark.parametrize(
    ("config", "code", "text"),
    [
        ({"num_replicas": 3}, 10074, None),
        ({"ack_wait": -5}, 10183, None),
        ({"backoff": [-5]}, 10184, None),
        ({"backoff": [1, 1], "max_deliver": 1}, 10116, None),
        ({"deliver_subject": "a.*"}, 10079, None),
        ({"deliver_subject": "a..b"}, 10112, None),
        ({"deliver_subject": "s.x"}, 10081, None),
        ({"deliver_subject": "p", "max_waiting": 5}, 10080, None),
        ({"deliver_subject": "p", "max_ack_pending": 5}, 10082, None),
        ({"deliver_subject": "p", "idle_heartbeat": 5}, 10083, None),
        ({"deliver_subject": "p", "flow_control": True}, 10108, None),
        ({"rate_limit_bps": 5}, 10086, None),
        ({"idle_heartbeat": SECOND}, 10088, None),
        ({"flow_control": True}, 10089, None),
        ({"max_expires": 5}, 10115, None),
        ({"filter_subject": "a", "filter_subjects": ["b"]}, 10136, None),
        ({"filter_subjects": ["a", ""]}, 10139, None),
        ({"filter_subjects": ["a.b", "a.*"]}, 10138, None),
        ({"filter_subject": "a..b"}, 10052, "invalid subject"),
        (
            {"deliver_policy": "last", "opt_start_seq": 5},
            10094,
            "consumer delivery policy is deliver last, but optional start sequence is also set",
        ),
        (
            {"deliver_policy": "by_start_time"},
            10094,
            "consumer delivery policy is deliver by start time, but optional start time is not set",
        ),
        (
            {"deliver_policy": "last_per_subject"},
            10094,
            "consumer delivery policy is deliver last per subject, "
            "but optional filter subject is not set",
        ),
        (
            {"sample_freq": "abc"},
            10095,
            "failed to parse consumer sampling configuration: "
            'strconv.Atoi: parsing "abc": invalid syntax',
        ),
        ({"priority_groups": ["a"]}, 10196, None),
        ({"priority_policy": "overflow"}, 10159, None),
        ({"metadata": {"a": "x" * 131072}}, 10135, None),
    ],
)
def test_invalid_configurations(
    api: ApiServer, config: dict[str, Any], code: int, text: str | None
) -> None:
    got = refused(api, **config)
    assert got[0] == code and text in (None, got[1])
    assert api.ok("CONSUMER.NAMES.S")["consumers"] == []


def test_actions(api: ApiServer) -> None:
    def act(action: str, **config: object) -> dict[str, object]:
        body = {"stream_name": "S", "action": action, "config": {"durable_name": "c", **config}}
        return api.ask("CONSUMER.CREATE.S.c", body)

    def code(answer: dict[str, object]) -> int:
        error = answer.get("error")
        return error["err_code"] if isinstance(error, dict) else 0

    assert code(act("update")) == 10149
    created = act("create", max_deliver=3)
    assert act("create", max_deliver=3)["created"] == created["created"]
    assert code(act("create", max_deliver=4)) == 10148
    assert act("update", max_deliver=4)["config"]["max_deliver"] == 4  # type: ignore[index]
    assert api.engine.streams["S"].consumers[0].config.max_deliver == 4


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({}, {"deliver_policy": "new"}, "deliver policy can not be updated"),
        ({}, {"mem_storage": True}, "storage type can not be updated"),
        ({}, EXPLICIT, "ack policy can not be updated"),
        ({}, {"replay_policy": "original"}, "replay policy can not be updated"),
        ({}, {"deliver_subject": "p"}, "can not update pull consumer to push based"),
        ({"deliver_subject": "p"}, {}, "can not update push consumer to pull based"),
        ({}, {"max_waiting": 7}, "max waiting can not be updated"),
    ],
)
def test_what_an_update_may_not_change(
    api: ApiServer, old: dict[str, Any], new: dict[str, Any], text: str
) -> None:
    api.consumer("S", "c", durable_name="c", **old)
    assert refused(api, durable_name="c", **new) == (10012, text)


def test_a_start_time_in_another_zone_is_the_same(api: ApiServer) -> None:
    config = {"durable_name": "c", "deliver_policy": "by_start_time"}
    api.consumer("S", "c", opt_start_time="2024-01-01T00:00:00Z", **config)
    api.consumer("S", "c", opt_start_time="2024-01-01T02:00:00+02:00", **config)
    assert refused(api, opt_start_time="2024-01-01T02:00:00Z", **config)[0] == 10012


def test_a_bound_deliver_subject_cannot_be_taken_away(api: ApiServer) -> None:
    api.consumer("S", "c", durable_name="c", deliver_subject="p")
    api.engine.streams["S"].consumers[0].interest = True
    assert api.ok("CONSUMER.INFO.S.c")["push_bound"] is True
    api.engine.listened.append("p")
    assert refused(api, durable_name="c", deliver_subject="q")[0] == 10013
    api.engine.listened.clear()
    api.consumer("S", "c", durable_name="c", deliver_subject="q")


def test_workqueue_rules(api: ApiServer) -> None:
    api.stream("W", retention="workqueue", subjects=["w.>"])
    assert refused(api, "W")[0] == 10084
    assert refused(api, "W", deliver_subject="p")[0] == 10098
    assert refused(api, "W", deliver_policy="new", **EXPLICIT)[0] == 10101
    api.consumer("W", "a", filter_subject="w.1.*", **EXPLICIT)
    assert refused(api, "W", "b", filter_subject="w.*.2", **EXPLICIT)[0] == 10100
    assert refused(api, "W", "b", **EXPLICIT)[0] == 10099
    api.consumer("W", "b", filter_subject="w.2", **EXPLICIT)
    assert refused(api, "W", "b", filter_subject="w.1.>", **EXPLICIT)[0] == 10100
    api.ok("CONSUMER.DELETE.W.a")
    api.consumer("W", "b", filter_subject="w.1.>", **EXPLICIT)
    api.consumer("W", "c", filter_subject="w.2", **EXPLICIT)


def test_limits_of_the_stream_and_the_account(tmp_path: Path) -> None:
    with ApiServer(tmp_path, AccountLimits(max_consumers=2, max_ack_pending=50)) as api:
        api.stream("S", max_consumers=1, consumer_limits={"inactive_threshold": 60 * SECOND})
        config = api.consumer("S", "a", **EXPLICIT)["config"]
        assert (config["max_ack_pending"], config["inactive_threshold"]) == (50, 60 * SECOND)
        assert refused(api, "S", "b", **EXPLICIT)[0] == 10026
        assert refused(api, "S", "a", max_ack_pending=51, **EXPLICIT)[0] == 10121
        assert refused(api, "S", "a", inactive_threshold=61 * SECOND) == (
            10153,
            "consumer inactive threshold exceeds system limit of 1m0s",
        )
        update = {"name": "S", "consumer_limits": {"max_ack_pending": 5}}
        assert api.refused("STREAM.UPDATE.S", update) == (
            10069,
            "change to limits violates consumers: a",
        )


def test_a_pause_that_fails_is_not_remembered(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(until: int) -> None:
        raise StoreError("the disk failed")

    api.consumer("S", "c", durable_name="c")
    monkeypatch.setattr(api.engine.streams["S"].consumers[0], "pause", fails)
    directory = api.account.streams["S"].consumers["c"].directory
    assert directory is not None
    before = (directory / "meta.inf").read_bytes()
    api.refused("CONSUMER.PAUSE.S.c", {"pause_until": FUTURE})
    assert "paused" not in api.ok("CONSUMER.INFO.S.c")
    assert (directory / "meta.inf").read_bytes() == before


def test_pause_and_resume(api: ApiServer) -> None:
    api.consumer("S", "c", durable_name="c")
    consumer = api.engine.streams["S"].consumers[0]
    paused = api.ok("CONSUMER.PAUSE.S.c", {"pause_until": FUTURE})
    assert list(paused) == ["type", "paused", "pause_until", "pause_remaining"]
    assert paused["paused"] is True and consumer.paused_until > 0
    info = api.ok("CONSUMER.INFO.S.c")
    assert info["paused"] is True and info["config"]["pause_until"] == FUTURE
    assert info["config"]["metadata"]["_nats.req.level"] == "1"
    api.consumer("S", "c", durable_name="c", description="pause stays")
    assert api.ok("CONSUMER.INFO.S.c")["paused"] is True
    resumed = api.ok("CONSUMER.PAUSE.S.c")
    assert resumed["pause_until"] == "0001-01-01T00:00:00Z" and not resumed["paused"]
    assert consumer.paused_until == 0
    assert "pause_until" not in api.ok("CONSUMER.INFO.S.c")["config"]
    missing = api.ask("CONSUMER.PAUSE.S.x")
    assert list(missing) == ["type", "error", "paused", "pause_until"]


def test_deletion(api: ApiServer, tmp_path: Path) -> None:
    api.consumer("S", "c", durable_name="c")
    api.consumer("S", "m", mem_storage=True)
    obs = tmp_path / "streams" / "S" / "obs"
    assert [p.name for p in obs.iterdir()] == ["c"]
    assert api.ok("STREAM.INFO.S")["state"]["consumer_count"] == 2
    api.ok("CONSUMER.DELETE.S.c")
    assert list(obs.iterdir()) == []
    assert api.engine.streams["S"].consumers[0].closed is True
    assert api.refused("CONSUMER.INFO.S.c") == (10014, "consumer not found")
    assert api.refused("CONSUMER.DELETE.S.c", b"x")[0] == 10038
    assert api.ok("INFO")["consumers"] == 1


def test_lists(api: ApiServer) -> None:
    for n in range(5):
        api.consumer("S", f"c{n}", mem_storage=True)
    page = api.ok("CONSUMER.LIST.S", {"offset": 3})
    assert [c["name"] for c in page["consumers"]] == ["c3", "c4"]
    assert (page["total"], page["offset"], page["limit"]) == (5, 3, 256)
    assert page["consumers"][0]["config"]["metadata"] == {"_nats.req.level": "0"}
    assert api.ok("CONSUMER.NAMES.S")["limit"] == 1024
