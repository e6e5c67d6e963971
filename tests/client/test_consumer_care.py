"""Looking after consumers of a real server: why they wait, what they wait for, what died; and what
of that a SIGKILL leaves."""

import json
import subprocess
import sys
import time
import urllib.request
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

MS = 1_000_000
SECOND = 1000 * MS
OWN = "JSSERVER.CONSUMER"
DEAD = "jsserver.dead_letter_subject"


def api(client: RawApp, subject: str, body: object = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads(client.request(f"$JS.API.{subject}", data).payload)
    return answer


def create(client: RawApp, name: str = "S", **config: object) -> None:
    body = {"name": name, "subjects": [f"{name}.>"]} | config
    assert "error" not in api(client, f"STREAM.CREATE.{name}", body)


def consumer(client: RawApp, **config: object) -> dict[str, Any]:
    body = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"} | config}
    return api(client, "CONSUMER.DURABLE.CREATE.S.C", body)


def fill(client: RawApp, count: int, subject: str = "S.a") -> None:
    for n in range(count):
        client.request(subject, b"%d" % n)


def pull(client: RawApp, count: int, **body: object) -> list[str]:
    """Asks for messages, and returns the reply subjects of those that came in time."""
    inbox = client.inbox()
    data = json.dumps({"batch": count, "expires": 5 * SECOND} | body).encode()
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", data, reply=inbox)
    return [client.message(5).reply for _ in range(count)]


def command(server: Server, *words: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "jsserver.cli", "consumer", *words, "-s", server.url]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def page(server: Server, query: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.monitor_url}/jsz?{query}", timeout=10) as answer:
        found = json.load(answer)
    [stream] = found["account_details"][0]["stream_detail"]
    details: list[dict[str, Any]] = stream["consumer_detail"]
    return details


def test_why_a_consumer_waits(servers: Servers) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    with RawApp(server.port) as client:
        create(client)
        consumer(client, max_ack_pending=2)
        assert api(client, f"{OWN}.WAITS.S.C")["waits"]["reason"] == "no_request"
        fill(client, 5)
        pull(client, 2)
        client.subscribe("_INBOX.waits")
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"3", reply="_INBOX.waits")
        told = api(client, f"{OWN}.WAITS.S.C")
        assert told["waits"]["reason"] == "max_ack_pending" and told["waits"]["count"] == 2
        lag = told["lag"]
        assert (lag["messages"], lag["seq"], lag["unacked"], lag["unacked_seq"]) == (3, 3, 2, 1)
        assert 0 < lag["age"] <= lag["unacked_age"] < 60 * SECOND
        [shown] = page(server, "consumers=1&waits=1")
        assert shown["waits"]["reason"] == "max_ack_pending"
        [shown] = page(server, "consumers=1")
        assert "waits" not in shown and "waits" not in api(client, "CONSUMER.INFO.S.C")
        done = command(server, "waits", "S", "C")
        assert done.stdout.startswith("2 messages are not acked, the most that may be"), done
        assert api(client, f"{OWN}.WAITS.S.X")["error"]["err_code"] == 10014
        end = time.monotonic() + 15
        line = "consumer C: delivers nothing though somebody waits: 2 messages are not acked"
        while line not in server.log():
            assert time.monotonic() < end, server.log()
            time.sleep(0.1)


def test_what_is_pending(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        create(client)
        consumer(client)
        fill(client, 300)
        pull(client, 300)
        listed = api(client, f"{OWN}.PENDING.S.C", {"limit": 2})
        assert [m["seq"] for m in listed["messages"]] == [1, 2] and listed["next"] == 3
        one = listed["messages"][0]
        assert (one["subject"], one["deliveries"]) == ("S.a", 1) and one["idle"] > 0
        assert one["since"] < one["due"]
        done = command(server, "pending", "S", "C")
        assert len(done.stdout.splitlines()) == 301, done
        released = api(client, f"{OWN}.RELEASE.S.C", {"seqs": [7, 400]})
        assert released["seqs"] == [7]
        assert pull(client, 1)[0].split(".")[4:6] == ["2", "7"]
        with RawApp(server.port) as other:
            mine = other.inbox()
            other.sync()
            body = {"seqs": [9, 8], "deliver": mine}
            assert api(client, f"{OWN}.CLAIM.S.C", body)["seqs"] == [9, 8]
            got = [other.message(5).reply.split(".")[4:6] for _ in range(2)]
            assert got == [["2", "9"], ["2", "8"]]
        body = {"seqs": [9], "deliver": "_INBOX.nobody"}
        assert "nobody listens" in api(client, f"{OWN}.CLAIM.S.C", body)["error"]["description"]
        done = command(server, "release", "S", "C", "10", "11")
        assert done.stdout == "2 messages are delivered again\n", done
        assert command(server, "release", "S", "X").returncode == 1


def dead_letters(client: RawApp) -> list[dict[str, str]]:
    """The headers of all that are stored."""
    state = api(client, "STREAM.INFO.D")["state"]
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        message = client.request("$JS.API.DIRECT.GET.D", json.dumps({"seq": seq}).encode())
        lines = message.header.decode().split("\r\n")[1:]
        if message.status:
            continue
        found.append(dict(line.split(": ", 1) for line in lines if line))
    return found


def died(client: RawApp, count: int, seconds: float = 30) -> list[dict[str, str]]:
    """Waits until so many dead letters are stored and nothing is pending."""
    end = time.monotonic() + seconds
    while True:
        info = api(client, "CONSUMER.INFO.S.C")
        messages = api(client, "STREAM.INFO.D")["state"]["messages"]
        if messages >= count and info["num_ack_pending"] == 0:
            return dead_letters(client)
        assert time.monotonic() < end, (messages, info)
        time.sleep(0.1)


def test_dead_letters_over_kills_and_redrive(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    count = 60
    with RawApp(server.port) as client:
        create(client, retention="workqueue")
        create(client, "D", allow_direct=True)
        made = consumer(client, max_deliver=2, ack_wait=300 * MS, metadata={DEAD: "D.letters"})
        assert made["config"]["metadata"][DEAD] == "D.letters"
        fill(client, count)
        pull(client, count)
    for moment in (0.02, 0.1, 0.25):
        time.sleep(moment)  # when it is killed
        server.restart(kill=True)
        with RawApp(server.port) as client:
            inbox = client.inbox()
            body = json.dumps({"batch": 200, "expires": 9 * SECOND}).encode()
            client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply=inbox)
            time.sleep(0.4)  # some are delivered again meanwhile
    with RawApp(server.port) as client:
        inbox = client.inbox()
        body = json.dumps({"batch": 200, "expires": 9 * SECOND}).encode()
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply=inbox)
        found = died(client, count)
        assert sorted(int(f["Dead-Letter-Sequence"]) for f in found) == [*range(1, count + 1)]
        assert {f["Dead-Letter-Reason"] for f in found} == {"max_deliver"}
        assert api(client, "STREAM.INFO.S")["state"]["messages"] == 0
    for limit, left in (("10", count - 10), ("-1", 0)):
        done = command(server, "redrive", "S", "C", "--limit", limit)
        assert done.returncode == 0, done
        with RawApp(server.port) as client:
            assert api(client, "STREAM.INFO.D")["state"]["messages"] == left
            assert api(client, "STREAM.INFO.S")["state"]["messages"] == count - left


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ("D.*", "is not a subject"),
        ("$JS.API.INFO", "may not begin with $"),
        ("S.dead", "forms a cycle: the consumer itself would be sent what is stored there"),
    ],
)
def test_subjects_that_take_no_dead_letters(js_server: Server, subject: str, text: str) -> None:
    with RawApp(js_server.port) as client:
        create(client)
        error = consumer(client, metadata={DEAD: subject})["error"]
        assert error["description"] == f"{DEAD} {text}"
        api(client, "STREAM.DELETE.S")


def test_dead_letters_need_acks(js_server: Server) -> None:
    with RawApp(js_server.port) as client:
        create(client)
        error = consumer(client, ack_policy="none", metadata={DEAD: "D.x"})["error"]
        assert error["description"] == f"{DEAD} requires explicit ack"
        api(client, "STREAM.DELETE.S")


def test_a_reset_survives_a_kill(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        create(client)
        consumer(client)
        fill(client, 10)
        acks = pull(client, 8)
        for reply in acks[:4]:
            client.request(reply, b"+ACK")
        assert api(client, "CONSUMER.RESET.S.C")["reset_seq"] == 5
        before = api(client, "CONSUMER.INFO.S.C")
    server.restart(kill=True)
    with RawApp(server.port) as client:
        after = api(client, "CONSUMER.INFO.S.C")
        for field in ("delivered", "ack_floor", "num_ack_pending", "num_pending"):
            assert after[field] == before[field]
        assert [reply.split(".")[4:7] for reply in pull(client, 2)] == [
            ["1", "5", "1"],
            ["1", "6", "2"],
        ]
        assert api(client, "CONSUMER.RESET.S.C", {"seq": 100})["num_pending"] == 0
    server.restart(kill=True)
    with RawApp(server.port) as client:
        assert api(client, "CONSUMER.INFO.S.C")["delivered"]["stream_seq"] == 99
        assert api(client, "CONSUMER.RESET.S.X")["error"]["err_code"] == 10014
        fill(client, 90)
        assert pull(client, 1)[0].split(".")[5] == "100"
