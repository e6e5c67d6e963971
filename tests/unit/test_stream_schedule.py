"""Schedules: what they publish and when, what ends them, and restarts."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.stream_world import (
    FILE,
    INTEREST,
    MS,
    SECOND,
    World,
    headers,
    refusal,
    stream_params,
)

START = 1_700_000_000


def planning(**params) -> World:
    return World(allow_msg_schedules=True, allow_rollup_hdrs=True, allow_msg_ttl=True, **params)


def params(**given: object) -> object:
    return stream_params(
        allow_msg_schedules=True, allow_rollup_hdrs=True, allow_msg_ttl=True, **given
    )


def plan(pattern: str, target: str = "s.out", **more) -> bytes:
    given = {f"Nats_Schedule_{name}": value for name, value in more.items()}
    return headers(Nats_Schedule=pattern, Nats_Schedule_Target=target, **given)


def at(seconds: int) -> str:
    return datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stored(world: World) -> list[tuple[bytes, bytes, bytes]]:
    state = world.stream.state()
    found = (world.stream.get(s) for s in range(state.first_seq, state.last_seq + 1))
    return [(m.subject, m.headers, m.data) for m in found if m is not None]


def products(world: World) -> list[bytes]:
    return [m[1] for m in stored(world) if m[0] == b"s.out"]


def product(next: str, *lines: str) -> bytes:
    own = "".join(f"{line}\r\n" for line in lines)
    return f"NATS/1.0\r\nNats-Scheduler: s.plan\r\nNats-Schedule-Next: {next}\r\n{own}\r\n".encode()


def test_at_a_time_and_once() -> None:
    w = planning()
    assert w.publish(b"s.plan", b"body", plan(f"@at {at(10)}")) == '{"stream":"S","seq":1}'
    assert b"Nats-Rollup: sub\r\n\r\n" in w.message(1).headers
    w.env.advance(10 * SECOND - MS)
    assert products(w) == []
    w.env.advance(300 * MS)
    assert stored(w) == [(b"s.out", product("purge"), b"body")]
    w.env.advance(100 * SECOND)
    assert len(stored(w)) == 1


def test_in_the_past_is_at_once() -> None:
    w = planning()
    w.publish(b"s.plan", b"", plan(f"@at {at(-10)}"))
    w.env.advance(300 * MS)
    assert products(w) == [product("purge")]


def test_every_so_often() -> None:
    w = planning()
    w.publish(b"s.plan", b"", plan("@every 5s"))
    w.env.advance(15 * SECOND + 300 * MS)
    assert products(w) == [product(at(n)) for n in (10, 15, 20)]
    assert stored(w)[0][0] == b"s.plan"


def test_as_cron_says_in_a_zone() -> None:
    w = planning()
    w.publish(b"s.plan", b"", plan("0 0 9 * * *", Time_Zone="America/New_York"))
    w.env.advance(2 * 86400 * SECOND)
    assert products(w) == [
        product("2023-11-16T09:00:00-05:00"),
        product("2023-11-17T09:00:00-05:00"),
    ]


def test_a_stop_of_the_clock_is_made_up_for_once() -> None:
    w = planning()
    w.publish(b"s.plan", b"", plan("@every 5s"))
    w.env.set_now(w.env.now + 3600 * SECOND)
    w.env.advance(6 * SECOND)
    assert len(products(w)) == 1
    w.env.advance(5 * SECOND)
    assert len(products(w)) == 2


def test_headers_are_passed_on_but_for_those_of_the_schedule() -> None:
    w = planning()
    header = headers(
        Nats_Schedule=f"@at {at(1)}",
        A="b",
        Nats_Schedule_Target="s.out",
        Nats_Msg_Id="x",
        Nats_Schedule_TTL="5m",
        Nats_Expected_Stream="S",
        Nats_TTL="1h",
        Nats_Schedule_Rollup="sub",
        C="d",
    )
    w.publish(b"s.plan", b"x", header)
    w.publish(b"s.out", b"old")
    w.env.advance(2 * SECOND)
    assert stored(w) == [
        (
            b"s.out",
            b"NATS/1.0\r\nA: b\r\nC: d\r\nNats-Scheduler: s.plan\r\nNats-Schedule-Next: purge\r\n"
            b"Nats-TTL: 5m\r\nNats-Rollup: sub\r\n\r\n",
            b"x",
        )
    ]


def test_the_last_message_of_another_subject() -> None:
    w = planning()
    w.publish(b"s.plan", b"own", plan("@every 5s", Source="s.in"))
    w.env.advance(5300 * MS)
    w.publish(b"s.in", b"first", headers(Nats_Msg_Id="m", A="b"))
    w.publish(b"s.in", b"second", headers(Nats_Msg_Id="n", A="c"))
    w.env.advance(5 * SECOND)
    assert [m[1:] for m in stored(w) if m[0] == b"s.out"] == [
        (product(at(10)), b"own"),
        (headers(A="c", Nats_Scheduler="s.plan", Nats_Schedule_Next=at(15)), b"second"),
    ]


@pytest.mark.parametrize("how", ["newer", "delete", "purge", "ttl", "another"])
def test_what_ends_one(how: str) -> None:
    w = planning()
    header = plan("@every 5s", "s.out")
    if how == "ttl":
        header = header[:-2] + b"Nats-TTL: 2\r\n\r\n"
    w.publish(b"s.plan", b"", header)
    if how == "newer":
        w.publish(b"s.plan", b"no schedule")
    elif how == "delete":
        w.stream.delete(1, False)
    elif how == "purge":
        w.stream.purge(b"s.plan", 0, 0)
    elif how == "another":
        w.publish(b"s.plan", b"", plan("@every 1h"))
    w.env.advance(60 * SECOND)
    assert products(w) == []


def test_a_client_may_end_one_with_a_message() -> None:
    w = planning()
    w.publish(b"s.plan", b"", plan("@every 5s"))
    ends = headers(Nats_Scheduler="s.plan", Nats_Schedule_Next="purge")
    assert "seq" in w.publish(b"s.done", b"x", ends)
    assert stored(w) == [(b"s.done", ends, b"x")]
    assert "seq" in w.publish(b"s.done", b"x", ends)
    w.publish(b"s.plan", b"no schedule")
    assert refusal(w.publish(b"s.done", b"x", ends)) == 10212


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (plan("nonsense"), 10189),
        (plan("@every 5s", Time_Zone="UTC"), 10189),
        (plan("0 0 0 * * *", Time_Zone="Mars/Base"), 10223),
        (plan("@every 5s", TTL="x"), 10191),
        (plan("@every 5s", Rollup="all"), 10192),
        (plan("@every 5s", "s.*"), 10190),
        (plan("@every 5s", "s.plan"), 10190),
        (plan("@every 5s", "x.out"), 10190),
        (headers(Nats_Schedule="@every 5s"), 10190),
        (plan("@every 5s", Source="s.>"), 10203),
        (plan("@every 5s", Source="s.out"), 10203),
        (plan("@every 5s", Source="s.plan"), 10203),
        (plan("@every 5s", Source="x"), 10203),
        (
            headers(Nats_Schedule="@every 5s", Nats_Schedule_Target="s.out", Nats_Rollup="all"),
            10192,
        ),
        (headers(Nats_Scheduler="s.a"), 10212),
        (headers(Nats_Schedule_Next="purge"), 10212),
        (headers(Nats_Schedule_Next="x", Nats_Scheduler="s.a"), 10212),
    ],
)
def test_what_is_refused(header: bytes, wanted: int) -> None:
    w = planning()
    assert refusal(w.publish(b"s.plan", b"", header)) == wanted
    assert w.stream.state().messages == 0


def test_a_life_is_refused_where_there_is_none() -> None:
    w = World(allow_msg_schedules=True, allow_rollup_hdrs=True)
    assert refusal(w.publish(b"s.plan", b"", plan("@every 5s", TTL="5s"))) == 10166
    assert refusal(World().publish(b"s.plan", b"", plan("nonsense"))) == 10188


def test_what_cannot_be_stored_is_tried_again() -> None:
    w = planning(max_msg_size=200)
    w.publish(b"s.plan", b"x" * 70, plan(f"@at {at(1)}"))
    w.stream.update(params(max_msg_size=100))
    w.env.advance(10 * SECOND)
    assert products(w) == []
    w.stream.update(params())
    w.env.advance(5 * SECOND)
    assert products(w) == [product("purge")]
    assert len(stored(w)) == 1


def test_without_interest_it_goes_on() -> None:
    w = planning(retention=INTEREST)
    w.consumer(filters=(b"s.plan",))
    w.publish(b"s.plan", b"", plan("@every 5s"))
    w.env.advance(11 * SECOND)
    assert w.stream.state().last_seq == 3
    w.consumer(name=b"D", filters=(b"s.out",))
    w.env.advance(5 * SECOND)
    assert len(products(w)) == 1


@pytest.mark.parametrize("pattern", ["@every 15s", "*/15 * * * * *"])
@pytest.mark.parametrize("served", [0, 35])
def test_a_run_that_falls_into_downtime_comes_once_at_the_start(
    tmp_path: Path, pattern: str, served: int
) -> None:
    """Also the first one, and where what was published before is gone."""
    w = World(active=False)
    w.stream.close(False)
    env = w.env
    env.start_commits()
    made = {"allow_msg_schedules": True, "allow_rollup_hdrs": True, "storage": FILE}
    w = World(env, bytes(tmp_path), **made)
    w.publish(b"s.plan", b"", plan(pattern))
    env.advance(served * SECOND)
    assert len(products(w)) == served // 15
    w.stream.purge(b"s.out", 0, 0)
    w.stream.wait_durable()
    w.stream.close(False)
    w = World(env, bytes(tmp_path), **made)
    env.advance(SECOND)
    assert products(w) == []  # nothing was due meanwhile
    w.stream.wait_durable()
    w.stream.close(False)
    env.set_now(env.now + 200 * SECOND)
    w = World(env, bytes(tmp_path), **made)
    env.advance(SECOND)
    assert len(products(w)) == 1
    w.stream.wait_durable()
    w.stream.close(False)


def test_after_a_restart_each_goes_on_where_it_was(tmp_path: Path) -> None:
    w = World(active=False)
    w.stream.close(False)
    env = w.env
    env.start_commits()
    made = {"allow_msg_schedules": True, "allow_rollup_hdrs": True, "storage": FILE}
    w = World(env, bytes(tmp_path), **made)
    w.publish(b"s.plan", b"", plan("@every 10s"))
    w.publish(b"s.late", b"", plan(f"@at {at(25)}"))
    env.advance(13 * SECOND)
    w.stream.wait_durable()
    w.stream.close(False)
    env.advance(2 * SECOND)
    w = World(env, bytes(tmp_path), **made)
    env.advance(6 * SECOND)
    assert products(w) == [product(at(20)), product(at(30))]
    w.stream.wait_durable()
    w.stream.close(False)
    env.advance(60 * SECOND)
    w = World(env, bytes(tmp_path), **made)
    env.advance(SECOND)
    assert len(products(w)) == 4  # one each
    w.stream.close(False)
    env.stop_commits()
