"""Every number of the API at the ends of every type, and what is no number: answers as the peer's.

What the two refuse in common need not be told by the same words; that one does and the other does
not is a difference. Numbers that no stream's files can hold are refused here and not there.
"""

import json
from collections.abc import Iterator

import pytest

from tests.client.raw import RawApp
from tests.client.recorder import plain
from tests.client.test_edges import refusal
from tests.servers import Server, Servers

EDGES = (
    *(-(1 << 63) - 1, -(1 << 63), -(1 << 31) - 1, -2, -1, 0, 1, 2, 255),
    *((1 << 31) - 1, 1 << 31, (1 << 53) + 1, 1 << 60),
    *((1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64),
)
VALUES = [
    *map(str, EDGES),
    *("1.5", "1.0", "1e2", "1e400", '"1"', "true", "null", "[]", "{}", "NaN", "01", "+1"),
    "9" * 10_000,
    "-" + "9" * 10_000,
    "[" * 5_000 + "]" * 5_000,
    '{"a":' * 20_000,
]
STREAM_FIELDS = (
    *("max_consumers", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject"),
    *("max_msg_size", "num_replicas", "duplicate_window", "first_seq"),
)
CONSUMER_FIELDS = (
    *("opt_start_seq", "ack_wait", "max_deliver", "rate_limit_bps", "max_waiting", "max_batch"),
    *("max_ack_pending", "max_expires", "max_bytes", "idle_heartbeat", "inactive_threshold"),
    *("num_replicas", "backoff"),
)
REQUESTS = {
    "STREAM.MSG.GET.S": ("seq", "up_to_seq", "batch", "max_bytes"),
    "STREAM.MSG.DELETE.S": ("seq",),
    "STREAM.INFO.S": ("offset",),
    "STREAM.NAMES": ("offset",),
    "STREAM.LIST": ("offset",),
    "CONSUMER.NAMES.S": ("offset",),
    "CONSUMER.LIST.S": ("offset",),
    "STREAM.PURGE.S": ("keep", "seq"),
}
HIGHEST = 1 << 61
SOON = ("1", "2", "255", str((1 << 31) - 1), str(1 << 31))
"""Nanoseconds after which a consumer may be gone before it is looked at."""


@pytest.fixture(scope="module")
def sides(module_servers: Servers, peer_present: None) -> Iterator[list[RawApp]]:
    servers = [module_servers.under_test(jetstream=True), module_servers.peer(jetstream=True)]
    clients = [RawApp(server.port) for server in servers]
    yield clients
    for client in clients:
        client.close()


def answers(sides: list[RawApp], subject: str, body: str = "") -> list[object]:
    """What both say, without times and the leader's name."""
    found = []
    for client in sides:
        answer = json.loads(client.request(f"$JS.API.{subject}", body.encode()).payload)
        answer.pop("cluster", None)
        assert answer.get("error", {}).get("err_code") != 10051, (subject, body[:200], answer)
        found.append(plain(answer))
    return found


def unlike(sides: list[RawApp], subject: str, body: str = "") -> list[str]:
    ours, theirs = answers(sides, subject, body)
    return [] if ours == theirs else [f"{subject} {body[:120]}\n  {ours}\n  {theirs}"]


@pytest.mark.parametrize("field", STREAM_FIELDS)
def test_of_streams(sides: list[RawApp], field: str) -> None:
    found = []
    for value in VALUES:
        if field == "first_seq" and value.isdigit() and HIGHEST < int(value[:40]) < 1 << 64:
            continue
        config = f'{{"name":"N","storage":"memory","{field}":{value}}}'
        for subject, body in (("CREATE", config), ("UPDATE", config), ("INFO", "")):
            found += unlike(sides, f"STREAM.{subject}.N", body)
            for client in sides:
                client.request("N", b"message")
        answers(sides, "STREAM.DELETE.N")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("target", ["", ',"deliver_subject":"d"'], ids=["pull", "push"])
@pytest.mark.parametrize("field", CONSUMER_FIELDS)
def test_of_consumers(sides: list[RawApp], field: str, target: str) -> None:
    found = []
    answers(sides, "STREAM.CREATE.C", '{"name":"C","storage":"memory"}')
    policy = ',"deliver_policy":"by_start_sequence"' if field == "opt_start_seq" else ""
    for value in VALUES:
        if field == "inactive_threshold" and value in SOON:
            continue
        given = f"[{value}]" if field == "backoff" else value
        config = f'{{"name":"c","ack_policy":"explicit","{field}":{given}{policy}{target}}}'
        found += unlike(sides, "CONSUMER.CREATE.C.c", f'{{"stream_name":"C","config":{config}}}')
        found += unlike(sides, "CONSUMER.INFO.C.c")
        answers(sides, "CONSUMER.DELETE.C.c")
    answers(sides, "STREAM.DELETE.C")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("subject", REQUESTS)
def test_of_requests(sides: list[RawApp], subject: str) -> None:
    found = []
    for value in VALUES:
        for field in REQUESTS[subject]:
            beyond = value.isdigit() and HIGHEST < int(value[:40]) < 1 << 64
            if (subject, field, beyond) == ("STREAM.PURGE.S", "seq", True):
                continue
            answers(sides, "STREAM.CREATE.S", '{"name":"S","storage":"memory"}')
            for client in sides:
                client.request("S", b"message")
            more = ',"seq":1' if field != "seq" and "MSG.GET" in subject else ""
            found += unlike(sides, subject, f'{{"{field}":{value}{more}}}')
            found += unlike(sides, "STREAM.INFO.S")
            answers(sides, "STREAM.DELETE.S")
    assert not found, "\n".join(found)


def test_sequences_that_no_file_can_hold(module_servers: Servers) -> None:
    """Two bits of a sequence on disk are flags: the peer takes such numbers and loses messages."""
    server: Server = module_servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        for seq in (HIGHEST + 1, 1 << 62, (1 << 64) - 1):
            config = {"name": "S", "first_seq": seq}
            text = f"can not be larger than {HIGHEST}"
            assert refusal(client, "STREAM.CREATE.S", config) == (10052, f"first sequence {text}")
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "first_seq": HIGHEST})
        for seq in (HIGHEST + 1, 1 << 62, (1 << 64) - 1):
            purge = {"seq": seq}
            assert refusal(client, "STREAM.PURGE.S", purge) == (10110, f"sequence {text}")
        for n in range(3):
            assert json.loads(client.request("S", b"m").payload)["seq"] == HIGHEST + n
    server.restart(kill=True)
    with RawApp(server.port) as client:
        state = client.api("STREAM.INFO.S")["state"]
        assert (state["messages"], state["last_seq"]) == (3, HIGHEST + 2)
