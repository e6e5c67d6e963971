"""On one connection a client hears of its push consumer before the consumer's messages come."""

import json

from tests.client.raw import RawApp
from tests.servers import Server


def test_the_answer_goes_before_the_first_delivery(js_server: Server) -> None:
    """On one connection a client knows its consumer's name before the consumer's messages come."""
    with RawApp(js_server.port) as client:
        client.api("STREAM.CREATE.BEFORE", {"name": "BEFORE", "subjects": ["before"]})
        for n in range(50):
            client.request("before", b"%d" % n)
        inbox = client.inbox()
        answers = client.inbox()
        for n in range(20):
            if n % 2:
                client.publish("before", b"not durable yet")
            config = {"name": f"C{n}", "deliver_subject": inbox, "ack_policy": "none"}
            body = json.dumps({"stream_name": "BEFORE", "config": config}).encode()
            client.publish(f"$JS.API.CONSUMER.CREATE.BEFORE.C{n}", body, reply=answers)
            assert b"consumer_create_response" in client.message().payload[:80]
            want = {str(seq) for seq in range(1, 51 + (n + 1) // 2)}
            got = {client.message().reply.split(".")[5] for _ in want}
            assert got == want
            assert "error" not in client.api(f"CONSUMER.DELETE.BEFORE.C{n}")


def test_the_answer_goes_before_the_first_delivery_to_another_subject(js_server: Server) -> None:
    """An update that points a push consumer to where somebody listens is answered first."""
    with RawApp(js_server.port) as client:
        client.api("STREAM.CREATE.MOVED", {"name": "MOVED", "subjects": ["moved"]})
        for n in range(50):
            client.request("moved", b"%d" % n)
        inbox = client.inbox()
        answers = client.inbox()
        for n in range(20):
            name = f"C{n}"
            config = {"name": name, "deliver_subject": f"nobody.{n}", "ack_policy": "none"}
            if n % 2:
                config["durable_name"] = name
            assert "error" not in client.api(
                f"CONSUMER.CREATE.MOVED.{name}", {"stream_name": "MOVED", "config": config}
            )
            if n % 3:
                client.publish("moved", b"not durable yet")
            config["deliver_subject"] = inbox
            action = "update" if n % 4 < 2 else ""
            body = json.dumps({"stream_name": "MOVED", "config": config, "action": action}).encode()
            client.publish(f"$JS.API.CONSUMER.CREATE.MOVED.{name}", body, reply=answers)
            assert b"consumer_create_response" in client.message().payload[:80]
            want = {str(seq) for seq in range(1, 51 + n - n // 3)}
            got = {client.message().reply.split(".")[5] for _ in want}
            assert got == want
            assert "error" not in client.api(f"CONSUMER.DELETE.MOVED.{name}")
