"""A disk that fails under load: what was acked is there, what was refused is not, now and after a
restart, and the server goes on by itself. `DISK_FAILURE_ROUNDS` (1) runs each case more often."""

import contextlib
import errno
import json
import os
import random
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.fault.faulty import Faults
from tests.servers import Server, Servers
from tests.waiting import wait_until

ROUNDS = int(os.environ.get("DISK_FAILURE_ROUNDS", "1"))
WINDOW = 50
SECONDS = 20
SUBJECTS = 5
Limits = dict[str, int | str]
LARGE: Limits = {"max_bytes": 1 << 22}
PACKED: Limits = {"max_bytes": 120_000, "compression": "s2"}
"""Blocks of 32 kB, which are compressed when they are closed."""
NEWEST = 1500
"""So many of the newest messages are within both limits."""


class Load:
    """Publishes into one stream and notes the fate of each message, by its payload."""

    def __init__(self, server: Server) -> None:
        self.app = RawApp(server.port, timeout=SECONDS)
        self.app.subscribe("ack.*")
        self.sent = 0
        self.acked: dict[int, bytes] = {}
        self.refused: set[bytes] = set()
        self.reasons: set[str] = set()

    def round(self) -> bool:
        """A window full of publishes; whether all were acked."""
        bodies = [b"%d" % n for n in range(self.sent, self.sent + WINDOW)]
        self.sent += WINDOW
        for n, body in enumerate(bodies):
            self.app.publish(f"s.{n % SUBJECTS}", body, reply=f"ack.{n}")
        good = 0
        for frame in self.app.messages(WINDOW):
            body = bodies[int(frame.subject.removeprefix("ack."))]
            answer = json.loads(frame.payload) if frame.payload else {}
            if "error" not in answer and "seq" in answer:
                self.acked[answer["seq"]] = body
                good += 1
            else:
                self.refused.add(body)
                self.reasons.add(answer.get("error", {}).get("description", frame.status))
        return good == WINDOW

    def until(self, good: bool) -> None:
        end = time.monotonic() + SECONDS
        while self.round() != good:
            assert time.monotonic() < end, f"waited for {good}: {self.reasons}"
            time.sleep(0.01)


def contents(server: Server) -> dict[int, bytes]:
    """Every message of the stream, by sequence."""
    found: dict[int, bytes] = {}
    with RawApp(server.port, timeout=SECONDS) as app:
        last = app.api("STREAM.INFO.S")["state"]["last_seq"]
        inbox = app.inbox()
        app.publish(
            "$JS.API.DIRECT.GET.S",
            json.dumps({"seq": 1, "batch": last + 1}).encode(),
            reply=inbox,
        )
        while True:
            frame = app.message()
            if frame.status:
                return found
            found[int(frame.headers["Nats-Sequence"])] = frame.payload


def check(server: Server, load: Load) -> None:
    found = contents(server)
    newest = sorted(load.acked)[-NEWEST:]
    lost = {seq: load.acked[seq] for seq in newest if found.get(seq) != load.acked[seq]}
    assert lost == {}
    assert load.refused.isdisjoint(found.values())
    with RawApp(server.port, timeout=SECONDS) as app:
        state = app.api("STREAM.INFO.S")["state"]
        assert isinstance(state, dict)
        assert state["messages"] == len(found)
        assert state.get("lost") is None
        for n in range(SUBJECTS):
            wanted = max(s for s, b in found.items() if int(b) % WINDOW % SUBJECTS == n)
            got = app.api("STREAM.MSG.GET.S", {"last_by_subj": f"s.{n}"})["message"]
            assert got["seq"] == wanted
        pending = app.api("CONSUMER.INFO.S.c")
        assert pending["num_pending"] == len(found)


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path, "/store/jetstream/$G/")


def start(
    servers: Servers,
    faults: Faults,
    limits: Limits = LARGE,
    **options: object,
) -> Server:
    server = servers.under_test(jetstream=True, monitor=True, env=faults.env, **options)
    with RawApp(server.port) as app:
        config = {"name": "S", "subjects": ["s.>"], "allow_direct": True, **limits}
        assert "error" not in app.api("STREAM.CREATE.S", config)
        consumer = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
        assert "error" not in app.api("CONSUMER.DURABLE.CREATE.S.c", consumer)
    return server


def health(server: Server) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{server.monitor_url}/healthz", timeout=5) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as page:
        return page.code, page.read().decode()


@pytest.mark.parametrize(
    "error, limits",
    [
        (errno.EIO, LARGE),
        (errno.EIO, PACKED),
        (errno.ENOSPC, LARGE),
        (errno.EMFILE, PACKED),
    ],
)
@pytest.mark.parametrize("op", ["pwrite", "sync", "open", "truncate", "unlink", "rename"])
def test_one_call_that_fails(
    servers: Servers, faults: Faults, op: str, error: int, limits: Limits
) -> None:
    server = start(servers, faults, limits)
    load = Load(server)
    for _ in range(ROUNDS):
        load.until(True)
        faults.fail(op, error, after=random.randrange(8))
        for _ in range(20):
            load.round()
        faults.mend()
        load.until(True)
        check(server, load)
    server.restart(kill=True)
    check(server, load)


def test_a_sync_of_the_lazy_mode_that_fails(servers: Servers, faults: Faults) -> None:
    """Every stream that was written since the one before says so, though it has acked."""
    config = f'jetstream {{ store_dir: "{servers.base}/store", sync_interval: "1s" }}'
    server = servers.under_test(config=config, env=faults.env)
    with RawApp(server.port, timeout=SECONDS) as app:
        app.api("STREAM.CREATE.FIRST", {"name": "FIRST"})
        names = [f"S{n}" for n in range(12)]
        for name in (*names, "QUIET"):
            app.api(f"STREAM.CREATE.{name}", {"name": name})
            app.request(name, b"before")
        app.api("STREAM.DELETE.FIRST")
        time.sleep(2.2)  # so long that the next group is synced at once
        app.request("QUIET", b"x")
        faults.fail("sync", errno.EIO)
        for name in names:
            assert "error" not in json.loads(app.request(name, b"x").payload)
        wait_until(lambda: faults.seen("sync") == 1, "the sync fails")
        for name in names:
            title = f"Stream '$G > {name}': writing to disk"
            server.wait_log(f"{title} failed: {os.strerror(errno.EIO)}; publishes are refused")
            server.wait_log(f"{title} works again")
            ack = json.loads(app.request(name, b"y").payload)
            assert ack == {"stream": name, "seq": 3}
    assert "QUIET': writing" not in server.log()


def test_a_disk_that_fails_for_a_while(servers: Servers, faults: Faults) -> None:
    server = start(servers, faults)
    load = Load(server)
    load.until(True)
    faults.fail("sync", errno.EIO, times=1 << 40)
    load.until(False)
    wait_until(lambda: health(server)[0] == 503, "the health page tells of it")
    told = json.loads(health(server)[1])["error"]
    assert told == "JetStream stream '$G > S' writing to disk failed: Input/output error"
    load.round()
    assert load.reasons == {"writing to disk failed: Input/output error"}
    faults.mend()
    load.until(True)
    wait_until(lambda: health(server)[0] == 200, "the health page is content again")
    check(server, load)
    log = server.log()
    begin = "Stream '$G > S': writing to disk failed: Input/output error"
    assert log.count(begin) == 1 and log.count("writing to disk works again") == 1
    server.restart()
    check(server, load)


def test_a_purge_that_fails_is_refused(servers: Servers, faults: Faults) -> None:
    server = start(servers, faults)
    load = Load(server)
    load.until(True)
    before = contents(server)
    for op in ("mkdir", "rename", "open", "sync", "pwrite"):
        faults.fail(op, errno.EIO)
        with RawApp(server.port, timeout=SECONDS) as app:
            answer = app.api("STREAM.PURGE.S")
        assert answer["error"]["description"].endswith("Input/output error")
        faults.mend()
        load.until(True)
        found = contents(server)
        assert before.items() <= found.items()
        check(server, load)
    with RawApp(server.port, timeout=SECONDS) as app:
        assert app.api("STREAM.PURGE.S")["success"] is True


def test_consumers_go_on_after_a_failure(servers: Servers, faults: Faults) -> None:
    server = start(servers, faults)
    load = Load(server)
    load.until(True)
    got: list[int] = []
    with RawApp(server.port, timeout=SECONDS) as app:
        inbox = app.inbox()
        end = time.monotonic() + SECONDS
        faults.fail("sync", errno.EIO, after=5)
        app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1000", reply=inbox)
        while len(set(got)) < len(load.acked) and time.monotonic() < end:
            if load.sent <= 40 * WINDOW:
                load.round()
            for frame in app.sync():
                if frame.status:
                    app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1000", reply=inbox)
                elif frame.reply.startswith("$JS.ACK."):
                    got.append(int(frame.reply.split(".")[5]))
                    app.publish(frame.reply, b"+ACK")
    assert set(got) == set(load.acked)


def test_what_cannot_be_removed_stays_as_it_was(servers: Servers, faults: Faults) -> None:
    """A stream's or consumer's directory leaves its name before anything of it goes."""
    server = start(servers, faults)
    load = Load(server)
    load.until(True)
    with RawApp(server.port, timeout=SECONDS) as app:
        for _ in range(3):
            frame = app.request("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1")
            app.request(frame.reply, b"+ACK")
        faults.fail("rename", errno.EIO, times=1000)
        assert "error" in app.api("CONSUMER.DELETE.S.c")
        assert "error" in app.api("STREAM.DELETE.S")
        faults.mend()
        assert app.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 3
    load.until(True)
    found = contents(server)
    assert found == load.acked
    load.app.close()
    server.restart(kill=True)
    assert contents(server) == found
    with RawApp(server.port, timeout=SECONDS) as app:
        assert app.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 3
        assert app.api("CONSUMER.DELETE.S.c")["success"] is True
        assert app.api("STREAM.DELETE.S")["success"] is True
        server.restart(kill=True)
    with RawApp(server.port, timeout=SECONDS) as app:
        assert app.api("STREAM.NAMES")["streams"] is None


def stored(app: RawApp) -> int:
    """Publishes until a message is acked; how many messages the stream has then."""
    end = time.monotonic() + SECONDS
    while "error" in json.loads(app.request("s.new", b"x").payload):
        assert time.monotonic() < end
        time.sleep(0.01)
    messages: int = app.api("STREAM.INFO.S")["state"]["messages"]
    return messages


def test_a_refused_update_leaves_the_old_limits_in_force(servers: Servers, faults: Faults) -> None:
    """Also where the stream failed meanwhile and came back: nothing is trimmed, now or later."""
    server = start(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        for _ in range(50):
            app.request("s.old", b"x")
        config = app.api("STREAM.INFO.S")["config"]
        assert isinstance(config, dict)
        messages = stored(app)
        for after in range(5):  # four replace the configuration file, the fifth is the stream's
            faults.fail("sync", errno.EIO, after=after)
            assert "error" in app.api("STREAM.UPDATE.S", config | {"max_msgs": 10})
            faults.mend()
            found, messages = stored(app), messages + 1
            assert found == messages
            assert app.api("STREAM.INFO.S")["config"] == config
    server.restart(kill=True)
    with RawApp(server.port, timeout=SECONDS) as app:
        assert app.api("STREAM.INFO.S")["config"] == config
        assert stored(app) == messages + 1
        assert "error" not in app.api("STREAM.UPDATE.S", config | {"max_msgs": 10})
        assert stored(app) == 10


def test_a_push_consumer_whose_creation_met_a_failure_delivers(
    servers: Servers, faults: Faults
) -> None:
    """Whether its creation was refused or not: what exists afterwards gets everything."""
    server = start(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        for after in range(12):
            name, inbox = f"P{after}", f"push.{after}"
            app.subscribe(inbox)
            config = {"durable_name": name, "deliver_subject": inbox, "ack_policy": "none"}
            body = {"stream_name": "S", "config": config}
            app.publish("s.old", b"x")
            faults.fail("sync", errno.EIO, after=after)
            app.api(f"CONSUMER.DURABLE.CREATE.S.{name}", body)
            faults.mend()
            messages = stored(app)
            again = app.api(f"CONSUMER.DURABLE.CREATE.S.{name}", body)
            assert "error" not in again

            def all_delivered(name: str = name, messages: int = messages) -> bool:
                info = app.api(f"CONSUMER.INFO.S.{name}")
                return bool(info["delivered"]["consumer_seq"] == messages)

            wait_until(all_delivered, f"{name} gets everything")


def test_a_refused_update_of_a_consumer_leaves_the_old_one_in_force(
    servers: Servers, faults: Faults
) -> None:
    """Its filter counts what it counted, and it goes on where it was; so after a kill."""
    server = start(servers, faults)

    def pending(app: RawApp) -> tuple[object, object]:
        info = app.api("CONSUMER.INFO.S.c")
        return info["config"], info["num_pending"]

    with RawApp(server.port, timeout=SECONDS) as app:
        for n in range(20):
            app.request(f"s.{n % 2}", b"x")
        narrow = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.1"}
        body = {"stream_name": "S", "config": narrow}
        config, messages = pending(app)[0], stored(app)
        for after in range(4):  # so many syncs replace the configuration file
            faults.fail("sync", errno.EIO, after=after)
            assert "error" in app.api("CONSUMER.DURABLE.CREATE.S.c", body), after
            faults.mend()
            found, messages = stored(app), messages + 1
            assert found == messages
            assert pending(app) == (config, messages)
    server.restart(kill=True)
    with RawApp(server.port, timeout=SECONDS) as app:
        assert pending(app) == (config, messages)
        assert "error" not in app.api("CONSUMER.DURABLE.CREATE.S.c", body)
        assert pending(app)[1] == 10


def test_a_push_consumer_whose_move_is_refused_delivers_where_it_did(
    servers: Servers, faults: Faults
) -> None:
    server = start(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        config = {"durable_name": "p", "deliver_subject": "first", "ack_policy": "explicit"}
        body = {"stream_name": "S", "config": config}
        assert "error" not in app.api("CONSUMER.DURABLE.CREATE.S.p", body)
        elsewhere = config | {"deliver_subject": "second", "filter_subject": "s.1"}
        moved = {"stream_name": "S", "config": elsewhere}
        for after in range(4):
            faults.fail("sync", errno.EIO, after=after)
            assert "error" in app.api("CONSUMER.DURABLE.CREATE.S.p", moved), after
            faults.mend()
            stored(app)
        app.subscribe("first")

        def all_delivered() -> bool:
            info = app.api("CONSUMER.INFO.S.p")
            held = app.api("STREAM.INFO.S")["state"]
            return bool(info["delivered"]["stream_seq"] == held["last_seq"])

        wait_until(all_delivered, "the old subject gets everything")


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_an_open_that_lacks_a_descriptor_is_tried_again(
    servers: Servers, faults: Faults, error: int
) -> None:
    """Whichever of the opens of a stream's first and later groups it is; its purge's, too."""
    server = start(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        for after in range(12):
            config = {"name": f"F{after}", "subjects": [f"f.{after}"]}
            assert "error" not in app.api(f"STREAM.CREATE.F{after}", config)
            for act in ("first", "second", "purge", "third"):
                faults.fail("open", error, after=after)
                if act == "purge":
                    answer = app.api(f"STREAM.PURGE.F{after}")
                else:
                    answer = json.loads(app.request(f"f.{after}", act.encode()).payload)
                faults.mend()
                assert "error" not in answer, (after, act)


def test_an_update_of_a_consumer_in_force_when_its_stream_fails(
    servers: Servers, faults: Faults
) -> None:
    """It is refused, and the stream comes back with the consumer as it was."""
    server = start(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        for n in range(20):
            app.request(f"s.{n % 2}", b"x")
        config = app.api("CONSUMER.INFO.S.c")["config"]

        def pending() -> object:
            page = f"{server.monitor_url}/jsz?consumers=true"
            with urllib.request.urlopen(page, timeout=5) as answer:
                account = json.load(answer)["account_details"][0]
            return account["stream_detail"][0]["consumer_detail"][0]["num_pending"]

        faults.aim("/msgs/")
        faults.fail("sync", errno.EIO, held=True)
        acks = app.inbox()
        app.publish("s.1", b"not acked", reply=acks)
        wait_until(lambda: faults.seen("sync") == 1, "a group that waits for its disk")
        with RawApp(server.port, timeout=SECONDS) as other:
            narrow = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.1"}
            body = json.dumps({"stream_name": "S", "config": narrow}).encode()
            answers = other.inbox()
            other.publish("$JS.API.CONSUMER.DURABLE.CREATE.S.c", body, reply=answers)
            wait_until(lambda: pending() in (10, 11), "the new filter is in force")
            faults.mend()
            assert "error" in json.loads(other.message().payload)
        assert "error" in json.loads(app.message().payload)
        messages = stored(app)
        info = app.api("CONSUMER.INFO.S.c")
        assert (info["config"], info["num_pending"]) == (config, messages)
        inbox = app.inbox()
        request = json.dumps({"batch": 2, "no_wait": True}).encode()
        app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", request, reply=inbox)
        assert [app.message().subject for _ in range(2)] == ["s.0", "s.1"]


@pytest.mark.parametrize(("asset", "after"), [("stream", 3), ("stream", 4), ("consumer", 3)])
def test_a_configuration_that_cannot_be_put_back_is_written_later(
    servers: Servers, faults: Faults, asset: str, after: int
) -> None:
    """An update is refused after its file was replaced, and the disk takes nothing any more: from
    the last sync of that file on (3), or from the sync of what the update changed (4)."""
    server = start(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        for _ in range(20):
            app.request("s.old", b"x")
        if asset == "stream":
            info, update = "STREAM.INFO.S", "STREAM.UPDATE.S"
            config = app.api(info)["config"]
            assert isinstance(config, dict)
            body: dict[str, object] = config | {"max_msgs": 10}
        else:
            info, update = "CONSUMER.INFO.S.c", "CONSUMER.DURABLE.CREATE.S.c"
            config = app.api(info)["config"]
            changed = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.1"}
            body = {"stream_name": "S", "config": changed}

        def unhealthy() -> bool:
            """Unless something else was synced meanwhile, so that the update failed before."""
            faults.fail("sync", errno.EIO, after=after, times=1 << 40)
            assert "error" in app.api(update, body)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: health(server)[0] == 503, "the health page tells of it", 1)
                return True
            faults.mend()
            return False

        wait_until(unhealthy, "an update that cannot be taken back")
        faults.mend()
        wait_until(lambda: health(server)[0] == 200, "the health page is content again")
        assert app.api(info)["config"] == config
    server.restart(kill=True)
    with RawApp(server.port, timeout=SECONDS) as app:
        assert app.api(info)["config"] == config
        assert stored(app) == 21
