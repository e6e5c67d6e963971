"""With whose authority a message acts: what the server sends where a client says asks for nothing.

Replies and deliver subjects are the client's choice, and permissions do not cover them. So a
message of a stream, a consumer or the API must not be taken for a request, wherever it is sent.
"""

import base64
import json
from collections.abc import Callable, Iterator

import pytest

from tests.client.raw import Frame, RawApp
from tests.servers import Server, Servers
from tests.waiting import wait_until

CONFIG = """
jetstream { domain: hub }
authorization { users = [
  { user: admin, password: x }
  { user: pull, password: x, permissions: {
      publish: "$JS.API.CONSUMER.MSG.NEXT.A.c", subscribe: "_INBOX.>" } }
  { user: get, password: x, permissions: {
      publish: ["$JS.API.DIRECT.GET.A", "$JS.API.DIRECT.GET.A.>"], subscribe: "_INBOX.>" } }
  { user: info, password: x, permissions: { publish: "$JS.API.INFO", subscribe: "_INBOX.>" } }
  { user: sys, password: x, permissions: { publish: "$SYS.REQ.>", subscribe: "_INBOX.>" } }
  { user: put, password: x, permissions: { publish: "a.>", subscribe: "_INBOX.>" } }
  { user: ack, password: x, permissions: { publish: "$JS.ACK.A.c.>", subscribe: "_INBOX.>" } }
  { user: push, password: x, permissions: {
      publish: "$JS.API.CONSUMER.CREATE.A.>", subscribe: ">" } }
  { user: low, password: x, permissions: {
      publish: ["a.>", "$JS.API.CONSUMER.MSG.NEXT.A.c"], subscribe: ["dlq.>", "_INBOX.>"] } }
] }
"""
NEXT = "$JS.API.CONSUMER.MSG.NEXT.A.c"
GET = "$JS.API.DIRECT.GET.A"
#: What nobody below may ask for; each by its own name and by the domain's.
FORBIDDEN = (
    *("$JS.API.STREAM.DELETE.V", "$JS.API.STREAM.PURGE.V", "$JS.API.STREAM.CREATE.NEW"),
    *("$JS.API.CONSUMER.DELETE.V.v", "$JS.API.CONSUMER.MSG.NEXT.V.v", "$JS.API.DIRECT.GET.V"),
)
TARGETS = FORBIDDEN + tuple(t.replace("$JS.API.", "$JS.hub.API.") for t in FORBIDDEN)
CREATE = b'{"name":"NEW","subjects":["new"]}'
SECOND = 10**9


@pytest.fixture(scope="module")
def server(module_servers: Servers) -> Server:
    return module_servers.under_test(jetstream=True, config=CONFIG)


def connect(server: Server, name: str) -> RawApp:
    options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
    return RawApp(server.port, options=json.dumps({**options, "user": name, "pass": "x"}).encode())


class World:
    """A stream A with a consumer c that others may use; V with a consumer v that they may not."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = connect(server, "admin")
        self.clients = [self.admin]
        for name in ("A", "V", "NEW", "Q"):
            self.admin.api(f"STREAM.DELETE.{name}")
        self.stream("A", "a.>", allow_direct=True)
        self.stream("V", "v.>", allow_direct=True)
        self.consumer("A", "c")
        self.consumer("V", "v")
        for n in range(4):
            self.store("v.1", b"%d" % n)

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def api(self, subject: str, body: object = None) -> dict[str, object]:
        answer = self.admin.api(subject, body)
        assert "error" not in answer, answer
        return answer

    def stream(self, name: str, *subjects: str, **more: object) -> None:
        self.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, **more})

    def consumer(self, stream: str, name: str, **more: object) -> None:
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": SECOND // 5, **more}
        body = {"stream_name": stream, "config": config}
        self.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)

    def store(self, subject: str, payload: bytes = b"") -> None:
        assert b'"error"' not in self.admin.request(subject, payload).payload

    def user(self, name: str) -> RawApp:
        self.clients.append(connect(self.server, name))
        return self.clients[-1]

    def messages(self, stream: str) -> object:
        state = self.api(f"STREAM.INFO.{stream}")["state"]
        assert isinstance(state, dict)
        return state["messages"]

    def assert_untouched(self) -> None:
        """Nothing of V changed and nothing new came to be."""
        self.admin.sync()
        streams = self.api("STREAM.NAMES")["streams"]
        assert isinstance(streams, list)
        assert "V" in streams
        assert "NEW" not in streams
        assert self.messages("V") == 4
        info = self.api("CONSUMER.INFO.V.v")
        assert (info["num_pending"], info["num_waiting"], info["num_ack_pending"]) == (4, 0, 0)


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    w = World(server)
    yield w
    w.close()


Way = Callable[[World, str], None]
WAYS: dict[str, Way] = {}


def way(function: Way) -> Way:
    WAYS[function.__name__] = function
    return function


def pull(w: World, target: str, body: object) -> None:
    user = w.user("pull")
    user.publish(NEXT, json.dumps(body).encode(), reply=target)
    user.sync()


@way
def pulled_message(w: World, target: str) -> None:
    w.store("a.1")
    pull(w, target, 1)


@way
def pulled_message_that_is_a_request(w: World, target: str) -> None:
    w.store("a.1", CREATE)
    pull(w, target, 1)


@way
def pulled_message_that_comes_later(w: World, target: str) -> None:
    pull(w, target, {"batch": 2, "expires": 5 * SECOND})
    w.store("a.1")
    w.store("a.1", CREATE)


@way
def nothing_to_pull(w: World, target: str) -> None:
    pull(w, target, {"batch": 1, "no_wait": True})


@way
def republished_messages(w: World, target: str) -> None:
    config = {"name": "A", "subjects": ["a.>"], "allow_direct": True}
    user = w.user("put")
    for bare in (False, True):
        again = {"src": "a.*", "dest": target, "headers_only": bare}
        w.api("STREAM.UPDATE.A", {**config, "republish": again})
        assert b'"error"' not in user.request("a.1", CREATE).payload


@way
def bad_pull_request(w: World, target: str) -> None:
    pull(w, target, {"batch": 1, "id": "x"})


@way
def expired_pull_request(w: World, target: str) -> None:
    pull(w, target, {"batch": 1, "expires": SECOND // 50})
    user = w.user("pull")
    user.publish(NEXT, b'{"batch":1,"expires":60000000}', reply=user.inbox())
    assert user.message().status == "408 Request Timeout"


@way
def heartbeats_of_a_pull_request(w: World, target: str) -> None:
    body = {"batch": 1, "expires": SECOND // 10, "idle_heartbeat": SECOND // 100}
    pull(w, target, body)
    user = w.user("pull")
    user.publish(NEXT, json.dumps(body).encode(), reply=user.inbox())
    assert user.message().status == "100 Idle Heartbeat"
    assert user.until("HMSG")


@way
def pull_request_of_a_deleted_consumer(w: World, target: str) -> None:
    pull(w, target, {"batch": 1, "expires": 5 * SECOND})
    w.api("CONSUMER.DELETE.A.c")


@way
def redelivered_message(w: World, target: str) -> None:
    w.store("a.1")
    user = w.user("pull")
    inbox = user.inbox()
    user.publish(NEXT, b"1", reply=inbox)
    assert user.message().subject == "a.1"
    pull(w, target, {"batch": 1, "expires": 5 * SECOND})
    # The ack wait passes; the next pull gets the message, which the target must not have got.
    user.publish(NEXT, b'{"batch":1,"expires":5000000000}', reply=inbox)
    assert user.message().reply.startswith("$JS.ACK.A.c.2.")


@way
def next_asked_for_by_an_ack(w: World, target: str) -> None:
    w.store("a.1")
    w.store("a.1")
    user = w.user("pull")
    user.publish(NEXT, b"1", reply=user.inbox())
    first = user.message()
    acker = w.user("ack")
    acker.publish(first.reply, b"+NXT", reply=target)
    acker.sync()


@way
def answer_to_an_ack(w: World, target: str) -> None:
    w.store("a.1")
    user = w.user("pull")
    user.publish(NEXT, b"1", reply=user.inbox())
    first = user.message()
    acker = w.user("ack")
    acker.publish(first.reply, b"+ACK", reply=target)
    acker.sync()
    wait_until(lambda: w.api("CONSUMER.INFO.A.c")["num_ack_pending"] == 0, "the ack")


@way
def message_got(w: World, target: str) -> None:
    w.store("a.1")
    user = w.user("get")
    user.publish(GET, b'{"seq":1,"no_hdr":true}', reply=target)
    user.publish(GET + ".a.1", reply=target)
    user.sync()


@way
def request_got(w: World, target: str) -> None:
    w.store("a.1", CREATE)
    user = w.user("get")
    user.publish(GET, b'{"seq":1}', reply=target)
    user.publish(GET, b'{"seq":1,"batch":5}', reply=target)
    user.publish(GET, b'{"multi_last":["a.1"]}', reply=target)
    user.sync()


@way
def nothing_got(w: World, target: str) -> None:
    user = w.user("get")
    user.publish(GET, b'{"seq":7}', reply=target)
    user.publish(GET, b'{"seq":7,"batch":5}', reply=target)
    user.publish(GET, b"[]", reply=target)
    user.publish(GET + ".a.7", reply=target)
    user.sync()


@way
def pub_ack(w: World, target: str) -> None:
    user = w.user("put")
    for _ in range(4):  # The fourth ack would purge all but one message: {"seq":4}.
        user.publish("a.1", reply=target)
    user.sync()


@way
def pub_error(w: World, target: str) -> None:
    user = w.user("put")
    user.publish("a.1", reply=target, header=b"NATS/1.0\r\nNats-Expected-Stream: B\r\n\r\n")
    user.sync()


@way
def answer_of_the_api(w: World, target: str) -> None:
    user = w.user("info")
    user.publish("$JS.API.INFO", reply=target)
    user.publish(
        "$JS.API.INFO", reply=target, header=b"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n"
    )
    user.sync()


@way
def answer_of_the_system(w: World, target: str) -> None:
    user = w.user("sys")
    for subject in (
        "$SYS.REQ.USER.INFO",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.PING.STATZ",
    ):
        user.publish(subject, b"{}", reply=target)
        user.publish(subject, b"[]", reply=target)
    # They are answered one after another.
    assert json.loads(user.request("$SYS.REQ.USER.INFO").payload)["data"]["user"] == "sys"


def push(w: World, config: dict[str, object]) -> Frame:
    """A consumer that pushes to a subject, on which its user listens too, so that it does."""
    listener = w.user("push")
    listener.subscribe(str(config["deliver_subject"]), str(config.get("deliver_group", "")))
    listener.sync()
    body = {"stream_name": "A", "config": {"name": "p", "ack_policy": "explicit", **config}}
    answer = w.user("push").api("CONSUMER.CREATE.A.p", body)
    assert "error" not in answer, answer
    return listener.message()


@way
def pushed_message(w: World, target: str) -> None:
    w.store("a.1")
    w.store("a.1", CREATE)
    assert push(w, {"deliver_subject": target}).subject == "a.1"


@way
def message_pushed_to_a_group(w: World, target: str) -> None:
    w.store("a.1")
    w.store("a.1", CREATE)
    assert push(w, {"deliver_subject": target, "deliver_group": "g"}).subject == "a.1"


@way
def heartbeat_of_a_push_consumer(w: World, target: str) -> None:
    config = {"deliver_subject": target, "idle_heartbeat": SECOND // 10}
    assert push(w, config).status == "100 Idle Heartbeat"


@pytest.mark.parametrize("name", WAYS)
def test_nothing_the_server_sends_is_a_request(world: World, name: str) -> None:
    for target in TARGETS:
        WAYS[name](world, target)
        world.assert_untouched()
        for client in world.clients[1:]:
            client.close()
        del world.clients[1:]
        world.admin.api("CONSUMER.DELETE.A.p")
        world.api("STREAM.PURGE.A")
        world.admin.api("CONSUMER.DELETE.A.c")
        world.consumer("A", "c")


def test_a_stream_of_requests_repeats_none(world: World) -> None:
    """What a stream stored of the API, its consumers deliver, and nothing more happens."""
    world.stream("Q", "$JS.API.STREAM.DELETE.>", no_ack=True)
    world.store("a.1")
    pull(world, "$JS.API.STREAM.DELETE.V", 1)
    wait_until(lambda: world.messages("Q") == 1, "the delivered message is stored")
    user = world.user("admin")
    user.subscribe("$JS.hub.API.STREAM.DELETE.V")
    user.sync()
    world.consumer("Q", "q", deliver_subject="$JS.hub.API.STREAM.DELETE.V")
    assert user.message().reply.startswith("$JS.ACK.Q.q.")
    world.assert_untouched()


def test_nobody_acks_through_a_consumer(world: World) -> None:
    """An empty stored message that is delivered to an ack subject is not an ack."""
    inbox = world.admin.inbox()
    world.admin.publish("$JS.API.CONSUMER.MSG.NEXT.V.v", b"1", reply=inbox)
    ack = world.admin.message().reply
    world.store("a.1")
    push(world, {"deliver_subject": ack, "ack_policy": "none"})
    pull(world, ack, 1)
    user = world.user("get")
    user.publish(GET, b'{"seq":1,"no_hdr":true}', reply=ack)
    user.sync()
    world.admin.sync()
    assert world.api("CONSUMER.INFO.V.v")["num_ack_pending"] == 1
    world.admin.publish(ack)
    wait_until(lambda: world.api("CONSUMER.INFO.V.v")["num_ack_pending"] == 0, "a client's ack")


def test_a_consumer_delivers_into_another_stream(world: World) -> None:
    """Whose acks of what it stored confirm the flow control: more than the window comes."""
    world.stream("Q", "q.in")
    listener = world.user("admin")
    listener.subscribe("q.in")
    size, count = 256 * 1024, 24
    for _ in range(count):
        world.store("a.1", b"x" * size)
    flow = {"flow_control": True, "idle_heartbeat": SECOND, "ack_policy": "none"}
    world.consumer("A", "copy", deliver_subject="q.in", **flow)
    got = 0
    while got < count:
        got += len(listener.message().payload) == size
    wait_until(lambda: int(str(world.messages("Q"))) >= count, "all are stored again")


def test_domain_requests_of_clients_are_served(world: World) -> None:
    answer = json.loads(world.admin.request("$JS.hub.API.STREAM.INFO.V").payload)
    assert answer["config"]["name"] == "V"


def test_nobody_says_for_a_stream_that_a_dead_letter_is_stored(world: World) -> None:
    """A client that hears a letter knows where its ack goes, and has neither a stream nor a
    consumer send there."""
    world.stream("Q", "q.>", retention="workqueue")
    metadata = {"jsserver.dead_letter_subject": "dlq.q"}
    world.consumer("Q", "q", max_deliver=1, metadata=metadata)
    low = world.user("low")
    low.subscribe("dlq.>")
    low.sync()
    world.store("q.1", b"work")
    world.store("a.1", b'{"stream":"X","seq":1}')
    assert world.admin.request("$JS.API.CONSUMER.MSG.NEXT.Q.q", b"1").payload == b"work"
    letter = low.message()
    assert letter.subject == "dlq.q"
    for subject in ("a.1", NEXT):
        low.publish(subject, b"1", reply=letter.reply)
        violation = low.until("-ERR")[-1].line.decode()
        assert f'Publish with Reply of "{letter.reply}"' in violation
    for target in (letter.reply, f"$JS.FC.Q.q.{'x' * 4}", "$JS.OBJECT.ACK.x.1", "_R_.a.b"):
        config = {"name": "p", "deliver_subject": target, "ack_policy": "none"}
        body = {"stream_name": "A", "config": config}
        answer = world.admin.api("CONSUMER.CREATE.A.p", body)
        assert answer["error"]["err_code"] == 10112
        again = {"src": "a.*", "dest": target}
        update = {"name": "A", "subjects": ["a.>"], "allow_direct": True, "republish": again}
        assert "error" in world.admin.api("STREAM.UPDATE.A", update)
    world.admin.sync()
    assert world.messages("Q") == 1
    assert world.api("CONSUMER.INFO.Q.q")["num_ack_pending"] == 1


def test_a_mirror_takes_in_what_its_origin_delivers_alone(world: World) -> None:
    """Another stream's consumer of the same name, which delivers to the same subject, and a client
    that sends there, bring nothing in."""
    spy = world.user("admin")
    spy.subscribe("$JS.API.CONSUMER.CREATE.A")
    spy.sync()
    world.stream("O", "o.>")
    world.api("STREAM.CREATE.Q", {"name": "Q", "mirror": {"name": "A"}})
    asked = json.loads(spy.message().payload)["config"]
    own = {"name": asked["name"], "deliver_subject": asked["deliver_subject"], "ack_policy": "none"}
    world.store("o.1", b"of another stream")
    world.api(f"CONSUMER.CREATE.O.{asked['name']}", {"stream_name": "O", "config": own})
    world.admin.publish(asked["deliver_subject"], b"of a client")
    world.store("a.1", b"of the origin")
    wait_until(lambda: world.messages("Q") == 1, "the mirror has the message of its origin")
    stored = world.api("STREAM.MSG.GET.Q", {"last_by_subj": "a.1"})["message"]
    assert isinstance(stored, dict)
    assert base64.b64decode(stored["data"]) == b"of the origin"
    world.api("STREAM.DELETE.O")
