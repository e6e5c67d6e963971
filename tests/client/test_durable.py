"""What a client sees of its own messages: first the ack, then the delivery; counts that hold."""

from tests.client.raw import Frame, RawApp
from tests.servers import Server, Servers

MESSAGES = 300


def pushed(server: Server, retention: str) -> list[str]:
    """Publishes on the connection that a push consumer delivers to; what came, in its order."""
    with RawApp(server.port) as app:
        app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "retention": retention})
        config = {"durable_name": "c", "deliver_subject": "deliver", "ack_policy": "explicit"}
        app.subscribe("deliver")
        app.api(
            "CONSUMER.DURABLE.CREATE.S.c",
            {"stream_name": "S", "config": {**config, "max_ack_pending": 0}},
        )
        app.subscribe("acks.*")
        came = []
        for n in range(1, MESSAGES + 1):
            app.publish("s.a", b"", reply=f"acks.{n}")
            if n % 7 == 0:
                came += app.sync()
        return [_name(f) for f in came + app.messages(2 * MESSAGES - len(came))]


def _name(frame: Frame) -> str:
    if frame.subject.startswith("acks."):
        return f"ack {frame.subject[5:]}"
    return f"msg {frame.reply.split('.')[5]}"


def test_a_client_gets_its_ack_before_the_message(servers: Servers) -> None:
    for retention in ("limits", "interest", "workqueue"):
        server = servers.under_test(jetstream=True)
        came = pushed(server, retention)
        where = {what: at for at, what in enumerate(came)}
        late = [n for n in range(1, MESSAGES + 1) if where[f"ack {n}"] > where[f"msg {n}"]]
        assert late == []
        assert [w for w in came if w.startswith("ack")] == [
            f"ack {n}" for n in range(1, MESSAGES + 1)
        ]
        server.stop()


def test_an_answer_about_a_stream_tells_what_was_published_before_it(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as app:
        app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
        app.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c"}})
        for n in range(1, 50):
            app.publish("s.a", b"%d" % n)
            assert app.api("STREAM.INFO.S")["state"]["messages"] == n
            assert app.api("STREAM.LIST")["streams"][0]["state"]["messages"] == n
            assert app.api("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})["message"]["seq"] == n
            got = app.request("$JS.API.DIRECT.GET.S.s.a")
            assert got.headers["Nats-Sequence"] == str(n) and got.payload == b"%d" % n
            assert app.api("CONSUMER.INFO.S.c")["num_pending"] == n
