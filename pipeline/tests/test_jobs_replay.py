"""Replaying an archive: equal to what was archived, resumed, and refused where it would not be."""

import json
import random
import signal
import time
from pathlib import Path

import pytest

from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jobs import replay as replay_job
from jsserver_spark.jobs import replaying
from jsserver_spark.jobs.replay import ReplayOptions, replay
from jsserver_spark.jobs.replaying import ReplayResult
from pipeline.tests.jobs_world import (
    NOON,
    Msg,
    Place,
    Row,
    add,
    api,
    create,
    done,
    everything,
    info,
    job,
    new_archive,
    publish,
    some_messages,
)
from pipeline.tests.test_jobs_archive import archived
from tests.servers import Server, Servers

WAIT_S = 20
SECOND = 1_000_000_000


def replayed(server: Server, stream: str, root: Path, **more: object) -> ReplayResult:
    names = {"replay_mode", "filter_subjects", "starting_timestamp", "ending_timestamp"}
    fields = {name: more.pop(name) for name in list(more) if name in names}
    options = ReplayOptions(servers=(server.url,), stream=stream, **fields)  # type: ignore[arg-type]
    return replay(options, str(root), **more)  # type: ignore[arg-type]


def by_hand(root: Path, rows: list[Row]) -> None:
    place = Place(str(root))
    add(place, new_archive(place), rows, rows[-1].seq)


def test_a_hundred_thousand_messages_come_back_equal(servers: Servers, tmp_path: Path) -> None:
    source = servers.under_test(jetstream=True)
    target = servers.under_test(jetstream=True)
    create(source, "ORDERS")
    messages = some_messages(100_000, "ORDERS")
    publish(source, "ORDERS", messages)
    assert archived(source, "ORDERS", tmp_path, flush_rows=30_000, processes=2).rows == 100_000
    result = replayed(target, "ORDERS", tmp_path, create=True)
    assert (result.rows, result.before, result.complete) == (100_000, 0, True)
    assert everything(target, "ORDERS") == messages
    again = replayed(target, "ORDERS", tmp_path)
    assert (again.rows, again.before) == (0, 100_000)
    assert info(target, "ORDERS").state.messages == 100_000


@pytest.mark.parametrize("kinds", ["peer to ours", "ours to peer", "peer to peer"])
def test_between_servers_of_both_kinds(
    servers: Servers, tmp_path: Path, peer_present: None, kinds: str
) -> None:
    made = [
        servers.peer(jetstream=True) if kind == "peer" else servers.under_test(jetstream=True)
        for kind in kinds.split(" to ")
    ]
    create(made[0], "BOTH")
    messages = some_messages(5000, "BOTH")
    publish(made[0], "BOTH", messages)
    archived(made[0], "BOTH", tmp_path, flush_rows=2000)
    assert replayed(made[1], "BOTH", tmp_path, create=True).rows == 5000
    assert everything(made[1], "BOTH") == messages
    assert replayed(made[1], "BOTH", tmp_path).before == 5000


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_replay_goes_on(js_server: Server, tmp_path: Path, seed: int) -> None:
    stream, to = f"SRC{seed}", f"DST{seed}"
    create(js_server, stream)
    messages = some_messages(40_000, stream, seed)
    publish(js_server, stream, messages)
    archived(js_server, stream, tmp_path, flush_rows=7000)
    api(js_server, f"STREAM.DELETE.{stream}")
    create(js_server, to, subjects=[f"{stream}.>"])
    words = (str(tmp_path), "--stream", stream, "--to", to, "--servers", js_server.url)
    rnd = random.Random(seed)
    for _ in range(2):
        before = info(js_server, to).state.last_seq
        process = job("replay", *words, "--max-inflight", "64")
        end = time.monotonic() + WAIT_S
        while info(js_server, to).state.last_seq < before + rnd.randrange(100, 8000):
            assert time.monotonic() < end
        process.kill()
        process.communicate()
    code, out, err = done(job("replay", *words, "--json"))
    assert (code, err) == (0, "")
    assert 0 < json.loads(out)["before"] < 40_000
    assert everything(js_server, to) == messages


@pytest.mark.parametrize("kill", [False, True])
def test_a_replay_bears_a_restart_of_the_server(
    servers: Servers, tmp_path: Path, kill: bool
) -> None:
    rows = [Row(i, NOON, f"S.{i % 9}", b"", b"%d" % i) for i in range(1, 60_001)]
    by_hand(tmp_path, rows)
    server = servers.under_test(jetstream=True)
    words = (str(tmp_path), "--stream", "S", "--create", "--servers", server.url, "--json")
    process = job("replay", *words, "--max-inflight", "16")
    end = time.monotonic() + WAIT_S
    while True:
        assert time.monotonic() < end
        try:
            if info(server, "S").state.last_seq > 2000:
                break
        except NatsError:
            time.sleep(0.01)  # there is no stream yet
    server.restart(kill=kill)
    code, out, err = done(process)
    assert (code, err) == (0, "")
    assert json.loads(out)["complete"]
    assert [m.data for m in everything(server, "S")] == [b"%d" % i for i in range(1, 60_001)]


def test_a_replay_goes_on_when_the_target_takes_messages_again(
    js_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server does not while it stops."""
    by_hand(tmp_path, [Row(i, NOON, "AWAY.a", b"", b"%d" % i) for i in range(1, 100)])
    create(js_server, "AWAY")
    why = []

    def takes(subject: str) -> None:
        api(js_server, "STREAM.UPDATE.AWAY", {"name": "AWAY", "subjects": [subject]})

    class Watched(replaying.Replay):
        def _attempt(self, position: replaying.Position) -> None:
            takes("AWAY.>" if why else "ELSEWHERE")
            super()._attempt(position)

        def _again(self, error: NatsError) -> replaying.Position:
            why.append(str(error))
            return super()._again(error)

    monkeypatch.setattr(replay_job, "Replay", Watched)
    assert replayed(js_server, "S", tmp_path, to="AWAY").rows == 99
    assert len(why) == 1 and "no stream takes the subject" in why[0]
    assert [m.data for m in everything(js_server, "AWAY")] == [b"%d" % i for i in range(1, 100)]


def test_sigterm_ends_a_replay_where_it_can_go_on(js_server: Server, tmp_path: Path) -> None:
    rows = [Row(i, NOON + i * SECOND, "TERM.a", b"", b"%d" % i) for i in range(1, 100)]
    by_hand(tmp_path, rows)
    create(js_server, "TERM")
    words = (str(tmp_path), "--stream", "S", "--to", "TERM", "--servers", js_server.url)
    process = job("replay", *words, "--replay-mode", "original", "--json")
    end = time.monotonic() + WAIT_S
    while not info(js_server, "TERM").state.messages:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    code, out, _ = done(process)
    assert (code, json.loads(out)["complete"]) == (130, False)
    assert replayed(js_server, "S", tmp_path, to="TERM").before >= 1
    assert [m.data for m in everything(js_server, "TERM")] == [b"%d" % i for i in range(1, 100)]


def test_the_original_pace(js_server: Server, tmp_path: Path) -> None:
    times = [0, 0, 300, 300, 250, 600]
    by_hand(tmp_path, [Row(i + 1, NOON + t * 1_000_000, "PACE.a") for i, t in enumerate(times)])
    create(js_server, "PACE")
    result = replayed(js_server, "S", tmp_path, to="PACE", replay_mode="original")
    assert result.rows == 6 and 0.55 <= result.seconds < 5


def test_bounds_subjects_and_a_prefix(js_server: Server, tmp_path: Path) -> None:
    rows = [Row(i, NOON + i * SECOND, f"S.{i % 4}", b"", b"%d" % i) for i in range(1, 101)]
    by_hand(tmp_path, rows)
    create(js_server, "PART", subjects=["copy.>"])
    result = replayed(
        js_server,
        "S",
        tmp_path,
        to="PART",
        subject_prefix="copy.",
        filter_subjects=("S.1", "S.2"),
        first=11,
        starting_timestamp="2024-10-04T12:00:21Z",
        ending_timestamp="2024-10-04T12:00:30Z",
    )
    wanted = [i for i in range(21, 31) if i % 4 in (1, 2)]
    assert result.rows == len(wanted)
    assert everything(js_server, "PART") == [Msg(f"copy.S.{i % 4}", b"", b"%d" % i) for i in wanted]


@pytest.mark.parametrize("prefix", ["dup", "dup.", "dup.of"])
def test_a_prefix_is_tokens_of_their_own(js_server: Server, tmp_path: Path, prefix: str) -> None:
    by_hand(tmp_path, [Row(1, NOON, "S.a", b"", b"x")])
    name = f"PREFIX{len(prefix)}"
    replayed(js_server, "S", tmp_path, to=name, subject_prefix=prefix, create=True)
    tokens = prefix.rstrip(".")
    assert everything(js_server, name) == [Msg(f"{tokens}.S.a", b"", b"x")]
    assert info(js_server, name).config.subjects == (f"{tokens}.S.>",)
    api(js_server, f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("prefix", ["a b", "a.>", "*", "a..b", "."])
def test_a_prefix_that_is_none_is_refused(js_server: Server, tmp_path: Path, prefix: str) -> None:
    by_hand(tmp_path, [Row(1, NOON, "S.a", b"", b"x")])
    with pytest.raises(OptionError, match="--subject-prefix"):
        replayed(js_server, "S", tmp_path, to="NONE", subject_prefix=prefix)


def test_a_target_with_other_messages_is_refused(js_server: Server, tmp_path: Path) -> None:
    by_hand(tmp_path, [Row(i, NOON, "OTHER.a", b"", b"%d" % i) for i in range(1, 11)])
    create(js_server, "OTHER")
    publish(js_server, "OTHER", [Msg("OTHER.a", b"", b"something else")])
    with pytest.raises(NatsError, match="holds other messages"):
        replayed(js_server, "S", tmp_path, to="OTHER")
    result = replayed(js_server, "S", tmp_path, to="OTHER", ids=True)
    assert (result.rows, result.duplicates) == (10, 0)
    result = replayed(js_server, "S", tmp_path, to="OTHER", ids=True)
    assert result.duplicates == 10
    assert [m.data for m in everything(js_server, "OTHER")][1:] == [b"%d" % i for i in range(1, 11)]
    assert info(js_server, "OTHER").state.messages == 11


def test_ids_replace_the_messages_own_and_nothing_else(js_server: Server, tmp_path: Path) -> None:
    own = b"NATS/1.0\r\nNats-Msg-Id: own\r\nNats-Expected-Stream: IDS\r\nA: 1\r\n\r\n"
    by_hand(tmp_path, [Row(1, NOON, "IDS.a", own), Row(2, NOON, "IDS.b")])
    create(js_server, "IDS")
    assert replayed(js_server, "S", tmp_path, to="IDS", ids=True).rows == 2
    first, second = (m.header for m in everything(js_server, "IDS"))
    assert sorted(first.split(b"\r\n")) == sorted(
        b"NATS/1.0\r\nNats-Msg-Id: S-1-1\r\nNats-Expected-Stream: IDS\r\nA: 1\r\n\r\n".split(
            b"\r\n"
        )
    )
    assert second == b"NATS/1.0\r\nNats-Msg-Id: S-1-2\r\n\r\n"


def test_a_longer_target_and_a_purged_one(js_server: Server, tmp_path: Path) -> None:
    rows = [Row(i, NOON, "LONG.a", b"", b"%d" % i) for i in range(1, 11)]
    by_hand(tmp_path, rows)
    create(js_server, "LONG")
    publish(
        js_server, "LONG", [Msg(r.subject, b"", r.data) for r in rows] + [Msg("LONG.a", b"", b"")]
    )
    with pytest.raises(NatsError, match="message 11 is not"):
        replayed(js_server, "S", tmp_path, to="LONG")
    api(js_server, "STREAM.PURGE.LONG")
    assert replayed(js_server, "S", tmp_path, to="LONG", last=4).rows == 4
    assert replayed(js_server, "S", tmp_path, to="LONG").before == 4
    assert [m.data for m in everything(js_server, "LONG")] == [r.data for r in rows]


def test_marks(js_server: Server, tmp_path: Path) -> None:
    header = b"NATS/1.0\r\nA: 1\r\n\r\n"
    by_hand(
        tmp_path, [Row(3, NOON, "MARK.a"), Row(5, NOON, "MARK.b", header), Row(9, NOON, "MARK.c")]
    )
    create(js_server, "MARK")
    assert replayed(js_server, "S", tmp_path, to="MARK", mark=True, last=5).rows == 2
    assert replayed(js_server, "S", tmp_path, to="MARK", mark=True).rows == 1
    assert [m.header for m in everything(js_server, "MARK")] == [
        b"NATS/1.0\r\nNats-Replay-Source: S/3\r\n\r\n",
        b"NATS/1.0\r\nA: 1\r\nNats-Replay-Source: S/5\r\n\r\n",
        b"NATS/1.0\r\nNats-Replay-Source: S/9\r\n\r\n",
    ]
    with pytest.raises(NatsError, match="no mark"):
        publish(js_server, "MARK", [Msg("MARK.d", b"", b"")])
        replayed(js_server, "S", tmp_path, to="MARK", mark=True)


def head(text: str) -> bytes:
    return f"NATS/1.0\r\nX: 1\r\n{text}\r\nY: 2\r\n\r\n".encode()


def test_headers_that_act_stay_and_act(js_server: Server, tmp_path: Path) -> None:
    ids = [head("Nats-Msg-Id: a"), head("Nats-Msg-Id: b")]
    by_hand(tmp_path, [Row(i + 1, NOON, "ACT.a", h) for i, h in enumerate(ids)])
    create(js_server, "ACT")
    replayed(js_server, "S", tmp_path, to="ACT")
    assert [m.header for m in everything(js_server, "ACT")] == ids


def test_what_the_target_would_drop_is_an_error(js_server: Server, tmp_path: Path) -> None:
    twice = head("Nats-Msg-Id: same")
    by_hand(tmp_path, [Row(i, NOON, "TWICE.a", twice) for i in (1, 2, 3)])
    create(js_server, "TWICE")
    with pytest.raises(NatsError, match="duplicate_window"):
        replayed(js_server, "S", tmp_path, to="TWICE")
    api(js_server, "STREAM.PURGE.TWICE")
    assert replayed(js_server, "S", tmp_path, to="TWICE", headers="plain").rows == 3
    plain = b"NATS/1.0\r\nX: 1\r\nY: 2\r\n\r\n"
    assert [m.header for m in everything(js_server, "TWICE")] == [plain] * 3
    assert replayed(js_server, "S", tmp_path, to="TWICE", headers="plain").rows == 0


@pytest.mark.parametrize(
    "line",
    ["Nats-Expected-Last-Sequence: 17", "Nats-TTL: 1h", "Nats-Expected-Stream: ELSE"],
)
def test_what_the_server_refuses_comes_with_a_hint(
    js_server: Server, tmp_path: Path, line: str
) -> None:
    to = line.partition(":")[0].replace("-", "")
    by_hand(tmp_path, [Row(1, NOON, f"{to}.a", head(line))])
    create(js_server, to)
    with pytest.raises(NatsError, match="--headers plain"):
        replayed(js_server, "S", tmp_path, to=to)
    assert replayed(js_server, "S", tmp_path, to=to, headers="plain").rows == 1


def test_targets_that_are_not_there_or_take_nothing(js_server: Server, tmp_path: Path) -> None:
    by_hand(tmp_path, [Row(1, NOON, "NOWHERE.a")])
    with pytest.raises(NatsError, match="no stream 'NOWHERE'"):
        replayed(js_server, "S", tmp_path, to="NOWHERE")
    create(js_server, "ELSEWHERE")
    with pytest.raises(NatsError, match=r"does not take subject .NOWHERE\.a."):
        replayed(js_server, "S", tmp_path, to="ELSEWHERE")
    code, out, err = done(job("replay", str(tmp_path), "--stream", "T", "--servers", js_server.url))
    assert (code, out) == (2, "") and "there are: S" in err
