"""A publisher that traces may ask that nobody gets a message: who gets which, on both servers."""

import pytest

from tests.client.raw import RawApp, header_block
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

DEST = "Nats-Trace-Dest: trace.events"
ONLY = "Nats-Trace-Only: 1"
HEADERS: dict[str, tuple[str, ...]] = {
    "dest_alone": (DEST,),
    "only_alone": (ONLY,),
    "both": (DEST, ONLY),
    "true": (DEST, "Nats-Trace-Only: true"),
    "letters": ("Nats-Trace-Only: oN", DEST),
    "upper": (DEST, "Nats-Trace-Only: TRUE"),
    "zero": (DEST, "Nats-Trace-Only: 0"),
    "yes": (DEST, "Nats-Trace-Only: yes"),
    "off": (DEST, "Nats-Trace-Only: off"),
    "empty": (DEST, "Nats-Trace-Only: "),
    "lower_dest": ("nats-trace-dest: t", ONLY),
    "lower_only": (DEST, "nats-trace-only: 1"),
    "disabled": ("Nats-Trace-Dest: trace disabled", ONLY),
    "disabled_later": (DEST, "Nats-Trace-Dest: trace disabled", ONLY),
    "empty_dest": ("Nats-Trace-Dest: ", ONLY),
    "wildcard_dest": ("Nats-Trace-Dest: a.>", ONLY),
    "bad_dest": ("Nats-Trace-Dest: a..b", ONLY),
    "first_says_no": (DEST, "Nats-Trace-Only: 0", ONLY),
    "first_says_yes": (DEST, ONLY, "Nats-Trace-Only: 0"),
    "tabs": ("Nats-Trace-Dest:\tt", "Nats-Trace-Only:\t1 "),
    "no_blanks": ("Nats-Trace-Dest:t", "Nats-Trace-Only:1"),
    "blank_before_colon": ("Nats-Trace-Dest : t", "Nats-Trace-Only : 1"),
    "blank_before_name": (f" {DEST}", f" {ONLY}"),
}


# Seconds without a message after which nothing more is expected; longer when the two differ.
PATIENCE = (0.2, 0.6, 2.0)


def heard(client: RawApp, headers: tuple[str, ...], patience: float) -> list[tuple[str, str]]:
    """What a stream, a subscriber, a service, nobody and the API make of a message."""
    header = header_block(*headers)
    client.subscribe("orders.>")
    client.subscribe("service", "q")
    replies = {
        n: client.inbox() for n in ("orders.1", "service", "nobody", "$JS.API.STREAM.INFO.S")
    }
    for subject, reply in replies.items():
        client.publish(subject, b"x", header=header, reply=reply)
    client.publish("last")
    names = {reply: f"reply of {subject}" for subject, reply in replies.items()}
    frames = client.sync() + client.quiet(patience)
    messages = [f for f in frames if f.verb in ("MSG", "HMSG") and f.subject != "trace.events"]
    return sorted((names.get(f.subject, f.subject), f.status) for f in messages)


def played(server: Server, headers: tuple[str, ...], patience: float) -> tuple[object, object]:
    """What was heard, and how many messages the stream has."""
    with RawApp(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["orders.>"]})
        received = heard(client, headers, patience)
        state = client.api("STREAM.INFO.S")["state"]
        assert isinstance(state, dict)
        client.api("STREAM.DELETE.S")
        return received, state["messages"]


@pytest.mark.parametrize("name", HEADERS)
def test_same_receivers(module_servers: Servers, name: str) -> None:
    if not module_servers.started:
        module_servers.under_test(jetstream=True)
        module_servers.peer(jetstream=True)
    for patience in PATIENCE:
        ours, theirs = (
            played(server, HEADERS[name], patience) for server in module_servers.started
        )
        if ours == theirs:
            return
    assert ours == theirs


LIMITED = """
authorization { users = [
  { user: low, password: x, permissions: { publish: ["orders.>", "t.ok"], subscribe: ">" } }
] }
"""
REFUSED = {
    "forbidden": ("Nats-Trace-Dest: zz",),
    "forbidden_only": ("Nats-Trace-Dest: zz", ONLY),
    "allowed": ("Nats-Trace-Dest: t.ok",),
    "no_subject": ("Nats-Trace-Dest: a..b",),
    "wildcard": ("Nats-Trace-Dest: zz.>",),
    "disabled": ("Nats-Trace-Dest: trace disabled",),
    "raft": ("Nats-Trace-Dest: $NRG.x",),
    "gateway": ("Nats-Trace-Dest: _GR_.x.y",),
    "lower": ("nats-trace-dest: zz",),
    "empty": ("Nats-Trace-Dest: ",),
}


def test_who_may_not_publish_where_the_trace_goes_does_not_publish(servers: Servers) -> None:
    told: list[dict[str, list[bytes]]] = []
    for server in (servers.under_test(config=LIMITED), servers.peer(config=LIMITED)):
        options = b'{"verbose":false,"headers":true,"user":"low","pass":"x"}'
        with RawApp(server.port, options=options) as client:
            client.subscribe("orders.>")
            client.sync()
            told.append({})
            for name, lines in REFUSED.items():
                for subject in ("orders.1", "forbidden"):
                    client.publish(subject, b"x", header=header_block(*lines))
                wanted = [f for f in client.sync() if f.verb == "-ERR" or f.subject == "orders.1"]
                told[-1][name] = [f.line for f in wanted]
    assert told[0] == told[1]
    assert b'Publish to "zz"' in told[0]["forbidden"][0]
