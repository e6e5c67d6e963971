"""Requests at the edges of what can be asked for: a plain answer, and nothing left behind.

Far dates, numbers at the ends of their types, names that no file can have.
"""

from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers, command_under_test

SECOND = 1_000_000_000
OUTSIDE = ("0001-01-01T00:00:00Z", "1600-01-01T00:00:00Z", "2300-01-01T00:00:00Z")
FOR_EVER = "9999-12-31T23:59:59Z"


@pytest.fixture(scope="module")
def server(module_servers: Servers) -> Server:
    return module_servers.under_test(jetstream=True)


def accepted(client: RawApp, subject: str, body: object = None) -> dict[str, Any]:
    answer = client.api(subject, body)
    assert "error" not in answer, answer
    return answer


def refusal(client: RawApp, subject: str, body: object = None) -> tuple[int, str]:
    """The code and text of an answer that must be an error, and one that the server knows."""
    error = client.api(subject, body)["error"]
    assert isinstance(error, dict)
    assert "internal error" not in error["description"], error
    return error["err_code"], error["description"]


@pytest.mark.parametrize("maker", ["jsserver", "nats-server"])
def test_dates_that_nanoseconds_cannot_tell(
    maker: str, servers: Servers, request: pytest.FixtureRequest
) -> None:
    if maker == "nats-server":
        request.getfixturevalue("peer_present")
        server = servers.peer(jetstream=True)
    else:
        server = servers.under_test(jetstream=True)
    names = [f"c{n}" for n in range(len(OUTSIDE))]
    with RawApp(server.port) as client:
        accepted(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        client.request("s", b"1")
        for name, date in zip(names, OUTSIDE, strict=True):
            starts = {"deliver_policy": "by_start_time", "opt_start_time": date}
            config = {"durable_name": name, "ack_policy": "explicit", **starts}
            body = {"stream_name": "S", "config": config}
            made = accepted(client, f"CONSUMER.CREATE.S.{name}", body)
            assert made["config"]["opt_start_time"] == date
            made = accepted(client, f"CONSUMER.PAUSE.S.{name}", {"pause_until": date})
            assert made["pause_until"] == date
        config = {"durable_name": "p", "ack_policy": "explicit", "pause_until": FOR_EVER}
        accepted(client, "CONSUMER.CREATE.S.p", {"stream_name": "S", "config": config})
    server.stop()
    server.command = command_under_test()
    server.start()
    with RawApp(server.port) as client:
        for name, date in zip(names, OUTSIDE, strict=True):
            info = accepted(client, f"CONSUMER.INFO.S.{name}")
            assert info["config"]["opt_start_time"] == date
            if maker == "jsserver":  # the peer's start wraps around
                assert info["num_pending"] == (date < "2000")
            assert info.get("paused", False) == (date > "2000")
        info = accepted(client, "CONSUMER.INFO.S.p")
        assert (info["paused"], info["config"]["pause_until"]) == (True, FOR_EVER)
        assert info["pause_remaining"] == (1 << 63) - 1
        pull = "$JS.API.CONSUMER.MSG.NEXT.S.{}"
        assert client.request(pull.format("c0"), b'{"expires":200000000}').payload == b"1"
        assert client.request(pull.format("p"), b'{"expires":200000000}').status[:3] == "408"
        for date in OUTSIDE:
            answer = client.api("STREAM.MSG.GET.S", {"start_time": date})
            assert ("message" in answer) == (date < "2000"), answer


def test_durations_of_292_years_are_never_over(servers: Servers) -> None:
    """Sums with such durations do not fit the clock: nothing ends at once, no timer stalls."""
    server = servers.under_test(jetstream=True)
    longest = (1 << 63) - 1
    with RawApp(server.port) as client:
        config = {"name": "S", "max_age": longest, "duplicate_window": longest}
        accepted(client, "STREAM.CREATE.S", config)
        header = b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n"
        for _ in range(2):
            client.request("S", b"1", header=header)
        idle = {"ack_policy": "explicit", "ack_wait": longest, "inactive_threshold": longest}
        for more in ({}, {"deliver_subject": "d"}):
            body = {"stream_name": "S", "config": {"name": f"c{len(more)}", **idle, **more}}
            accepted(client, f"CONSUMER.CREATE.S.c{len(more)}", body)
        client.request("$JS.API.CONSUMER.MSG.NEXT.S.c0", b"1")
        nothing = client.request(
            "$JS.API.CONSUMER.MSG.NEXT.S.c0", b'{"expires":300000000}', timeout=3
        )
        assert nothing.status == "408 Request Timeout"
        assert accepted(client, "STREAM.INFO.S")["state"]["messages"] == 1
        assert accepted(client, "CONSUMER.INFO.S.c0")["num_ack_pending"] == 1
        accepted(client, "CONSUMER.INFO.S.c1")


NUL = {"a NUL": "\0", "a NUL inside": "a\0b"}


@pytest.mark.parametrize("name", NUL.values(), ids=NUL.keys())
def test_a_name_that_no_file_can_have(server: Server, name: str) -> None:
    with RawApp(server.port) as client:
        for _ in range(2):
            config = {"name": name, "subjects": ["nul.>"]}
            refused = refusal(client, f"STREAM.CREATE.{name}", config)
            assert refused == (10049, "error creating store for stream")
        kept = server.store / "jetstream" / "$G" / "streams"
        assert not any(kept.glob(".new-*"))
        accepted(client, "STREAM.CREATE.N", {"name": "N", "subjects": ["nul.>"]})
        for kind in ("DURABLE.CREATE", "CREATE"):
            field = "durable_name" if kind == "DURABLE.CREATE" else "name"
            body = {"stream_name": "N", "config": {field: name}}
            refused = refusal(client, f"CONSUMER.{kind}.N.{name}", body)
            assert refused == (10012, "error creating store for consumer")
        assert not any(kept.rglob(".new-*"))
        accepted(client, "STREAM.DELETE.N")


def test_a_name_in_bytes_that_are_no_text_is_no_other_name(server: Server) -> None:
    with RawApp(server.port) as client:
        accepted(client, "STREAM.CREATE.T", {"name": "T"})
        inbox = client.inbox()
        for subject, body, code in (
            (b"STREAM.CREATE.\x80", '{"name":"\ufffd"}'.encode(), 10056),
            (b"STREAM.INFO.\xff", b"", 10059),
            (b"CONSUMER.CREATE.T.\x80", b'{"stream_name":"T"}', 10052),
        ):
            words = (subject, inbox.encode(), len(body), body)
            client.send(b"PUB $JS.API.%s %s %d\r\n%s\r\n" % words)
            assert b'"err_code":%d' % code in client.message().payload
        accepted(client, "STREAM.DELETE.T")
