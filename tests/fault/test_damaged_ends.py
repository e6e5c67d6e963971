"""Damage at the end of a stream: told in the log, in the stream's state and by `/healthz`.

What was there is known after a clean stop. After a kill it is known only that something was.
"""

import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers
from tests.waiting import wait_until

COUNT = 20
DELETED = (5, 6, 7)
#: Sequences that may be left out after a kill: what one block may hold, and the reserve.
RESERVE = 300_000
#: Bytes of messages, of which the first fill one block and the second several.
SIZES = {"one block": 100, "several": 4000}
State = dict[str, object]


def fill(server: Server, size: int, stream: str = "S") -> None:
    """Twenty messages, of which three are deleted; the deletes are what was written last."""
    with RawApp(server.port) as app:
        config: dict[str, object] = {"name": stream, "subjects": [f"{stream}.>"]}
        if size > 1000:
            config["max_bytes"] = 120_000
        assert "error" not in app.api(f"STREAM.CREATE.{stream}", config)
        for n in range(1, COUNT + 1):
            app.request(f"{stream}.{n % 3}", b"%d " % n + bytes(size))
        for seq in DELETED:
            app.api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True})


def folder(server: Server, stream: str = "S") -> Path:
    return server.store / "jetstream" / "$G" / "streams" / stream


def blocks(server: Server) -> list[Path]:
    return sorted((folder(server) / "msgs").glob("*.blk"), key=lambda path: int(path.stem))


def shorten(server: Server) -> None:
    path = blocks(server)[-1]
    os.truncate(path, path.stat().st_size - 300)


def remove(server: Server) -> None:
    blocks(server)[-1].unlink()


def empty(server: Server) -> None:
    os.truncate(blocks(server)[-1], 0)


def replace(server: Server) -> None:
    """By a block of another stream."""
    other = max((folder(server, "O") / "msgs").glob("*.blk"), key=lambda path: path.stat().st_size)
    blocks(server)[-1].write_bytes(other.read_bytes())


def state_of(server: Server) -> State:
    with RawApp(server.port) as app:
        state = app.api("STREAM.INFO.S")["state"]
        assert isinstance(state, dict)
        return state


def sequences(server: Server) -> list[int]:
    """Of the messages that are served."""
    with RawApp(server.port) as app:
        found = (app.api("STREAM.MSG.GET.S", {"seq": n}) for n in range(1, COUNT + 1))
        return [n for n, answer in enumerate(found, 1) if "error" not in answer]


def unwell(server: Server) -> list[str]:
    """What the health page says of stream S and its consumers; the server itself is well."""
    with urllib.request.urlopen(f"{server.monitor_url}/healthz", timeout=10) as answer:
        page = json.loads(answer.read())
    assert page["status"] == "ok"
    return [e["error"] for e in page.get("errors", ()) if e["stream"] == "S"]


def damaged(servers: Servers, size: int, hurt: Callable[[Server], None], *, kill: bool) -> Server:
    server = servers.under_test(jetstream=True, monitor=True)
    fill(server, size)
    fill(server, size, "O")
    if kill:
        server.kill()
    else:
        server.stop()
    hurt(server)
    return server.start()


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("hurt", [shorten, remove, empty, replace])
def test_after_a_clean_stop_what_is_gone_is_known(
    servers: Servers, hurt: Callable[[Server], None], size: int
) -> None:
    """What was deleted does not come back, though the end of the store said so."""
    server = damaged(servers, size, hurt, kill=False)
    state = state_of(server)
    lost = state.get("lost", {"msgs": []})
    assert isinstance(lost, dict)
    kept = sorted({*range(1, COUNT + 1)} - {*DELETED} - {*lost["msgs"]})
    assert sequences(server) == kept
    assert (state["last_seq"], state["messages"]) == (COUNT, len(kept))
    assert bool(lost["msgs"]) == (hurt is not shorten)
    assert "Stream '$G > S': block " in server.log()
    assert len(unwell(server)) == 1 and "damaged files" in unwell(server)[0]
    server.restart(kill=True)
    assert sequences(server) == kept
    with RawApp(server.port) as app:
        assert json.loads(app.request("S.1", b"x").payload)["seq"] == COUNT + 1


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("hurt", [remove, empty, replace])
def test_after_a_kill_it_is_told_that_the_end_is_gone(
    servers: Servers, hurt: Callable[[Server], None], size: int
) -> None:
    """How many messages were there nobody knows. Where the only block is gone there was one: the
    first is named."""
    server = damaged(servers, size, hurt, kill=True)
    state = state_of(server)
    first = int(str(state["messages"])) + 1  # what was deleted is back with the end that said so
    lost = {"msgs": [first], "bytes": 0} if size == SIZES["one block"] else None
    assert state.get("lost") == lost
    assert COUNT < int(str(state["last_seq"])) < RESERVE
    assert f"sequences {first} to {state['last_seq']} may have been used" in server.log()
    assert "block 0" not in server.log()
    (error,) = unwell(server)
    assert "has lost its end" in error
    server.restart()
    assert state_of(server).get("lost") == lost


# ---- consumers


def consume(server: Server) -> None:
    """A consumer that has taken and acked five messages."""
    with RawApp(server.port) as app:
        config = {"durable_name": "c", "ack_policy": "explicit"}
        app.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        for _ in range(5):
            message = app.request("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1}')
            app.request(message.reply, b"+ACK")


def floor(server: Server) -> int:
    with RawApp(server.port) as app:
        ack_floor = app.api("CONSUMER.INFO.S.c")["ack_floor"]
        assert isinstance(ack_floor, dict)
        return int(ack_floor["consumer_seq"])


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("gone", [False, True], ids=["empty", "gone"])
def test_a_log_of_consumers_that_is_gone_is_told(servers: Servers, gone: bool, kill: bool) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    fill(server, 100)
    consume(server)
    log = folder(server) / "consumers.log"
    if kill:
        server.kill()
    else:
        server.stop()
    if gone:
        log.unlink()
    else:
        os.truncate(log, 0)
    server.start()
    assert floor(server) == (0 if kill else 5)  # o.dat is written by a clean stop
    assert "the log of its consumers is missing or empty" in server.log()
    (error,) = unwell(server)
    assert "consumers" in error
    server.restart()
    assert unwell(server) == [] and "Stream '$G" not in server.log()


def test_a_consumer_without_a_log_is_as_it_should_be_where_there_was_none(servers: Servers) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    fill(server, 100)
    server.restart()
    consume(server)
    server.restart()
    assert unwell(server) == [] and "Stream '$G" not in server.log()


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def position(consumer_seq: int, stream_seq: int) -> bytes:
    """An o.dat whose acks reach as far as its deliveries, with nothing pending."""
    numbers = (consumer_seq, stream_seq, consumer_seq, stream_seq, 0, 0)
    return b"\x16\x02" + b"".join(map(uvarint, numbers))


@pytest.mark.parametrize(
    ("state", "stands", "told"),
    [
        (position(900, 900), 5, "o.dat is ahead of its stream and not used"),
        (position(1, 1), 1, "o.dat was written after the last stop and stands before the log"),
        (b"\x16\x02nonsense", 5, "o.dat is damaged and not used"),
        (position(8, 11), 8, ""),
    ],
    ids=["ahead", "before", "nonsense", "newer"],
)
def test_a_state_that_does_not_fit_the_log_is_told(
    servers: Servers, state: bytes, stands: int, told: str
) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    fill(server, 100)
    consume(server)
    server.stop()
    path = folder(server) / "obs" / "c" / "o.dat"
    before = path.stat().st_mtime_ns
    path.write_bytes(state)
    os.utime(path, ns=(before + 10**9, before + 10**9))
    server.start()
    assert floor(server) == stands
    wait_until(lambda: told in server.log(), told)
    used = stands != 5
    assert bool(unwell(server)) == (not used)
    server.restart()
    assert floor(server) == stands
    assert unwell(server) == []
