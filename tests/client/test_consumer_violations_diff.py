"""A consumer that is asked for with two things wrong: both servers name the same one of them."""

import itertools

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(300)]

SECOND = 10**9
PUSH = {"deliver_subject": "d"}
VIOLATIONS: dict[str, dict[str, object]] = {
    "another durable name": {"durable_name": "OTHER"},
    "another name": {"name": "OTHER"},
    "both kinds of filters": {"filter_subject": "s.a", "filter_subjects": ["s.b"]},
    "overlapping filters": {"filter_subjects": ["s.a", "s.>"]},
    "an empty filter": {"filter_subjects": ["s.a", ""]},
    "no subject as filter": {"filter_subject": "s..a"},
    "a filter that the stream has not": {"filter_subject": "other"},
    "many replicas": {"num_replicas": 3},
    "negative replicas": {"num_replicas": -1},
    "negative backoff": {"backoff": [-1]},
    "negative ack wait": {"ack_wait": -1},
    "more backoff than deliveries": {"backoff": [SECOND, SECOND, SECOND], "max_deliver": 2},
    "a long description": {"description": "x" * 5000},
    "wildcards to deliver to": {"deliver_subject": "d.*"},
    "no subject to deliver to": {"deliver_subject": "d..x"},
    "a cycle": {"deliver_subject": "s.x"},
    "push with waiting": PUSH | {"max_waiting": 5},
    "push of no acks with pending": PUSH | {"ack_policy": "none", "max_ack_pending": 5},
    "small heartbeat": PUSH | {"idle_heartbeat": 1000},
    "pull with a rate": {"rate_limit_bps": 10},
    "pull with heartbeat": {"idle_heartbeat": SECOND},
    "pull with flow control": {"flow_control": True},
    "short requests": {"max_expires": 1000},
    "large requests": {"max_batch": 1000},
    "much pending": {"max_ack_pending": 5000},
    "a long threshold": {"inactive_threshold": 3600 * SECOND},
    "a start sequence that lacks": {"deliver_policy": "by_start_sequence"},
    "a start time that lacks": {"deliver_policy": "by_start_time"},
    "a start sequence too much": {"deliver_policy": "new", "opt_start_seq": 5},
    "last of all subjects": {"deliver_policy": "last_per_subject"},
    "sampling": {"sample_freq": "x"},
    "flow control without heartbeat": PUSH | {"flow_control": True},
    "much metadata": {"metadata": {"k": "x" * 140_000}},
    "priority of push": PUSH | {"priority_policy": "overflow", "priority_groups": ["a"]},
    "priority without group": {"priority_policy": "overflow"},
    "no name of a group": {"priority_policy": "overflow", "priority_groups": ["a b"]},
    "groups without policy": {"priority_groups": ["a"]},
    "a pin without policy": {"priority_timeout": SECOND},
    "no acks": {"ack_policy": "none"},
    "flow control acks of pull": {"ack_policy": "flow_control"},
    "not all": {"deliver_policy": "last"},
}
LIMITED = """
jetstream: {max_mem: 64M, max_file: 64M, limits: {max_ack_pending: 2000, max_request_batch: 100}}
accounts {A: {users: [{user: a, password: a}], jetstream: {max_consumers: 3}}}
no_auth_user: a
"""
STREAMS: dict[str, dict[str, object]] = {
    "limits": {"consumer_limits": {"inactive_threshold": 60 * SECOND, "max_ack_pending": 1500}},
    "workqueue": {"retention": "workqueue"},
}
WAYS = {
    "create": ("CONSUMER.CREATE.S.C", {"name": "C"}),
    "create with a filter": ("CONSUMER.CREATE.S.C.s.a", {"name": "C", "filter_subject": "s.a"}),
    "create without a name": ("CONSUMER.CREATE.S", {}),
    "create of a bad name": ("CONSUMER.CREATE.S.a/b", {"name": "a/b"}),
    "durable": ("CONSUMER.DURABLE.CREATE.S.C", {"durable_name": "C"}),
}
REQUESTS: dict[str, dict[str, object]] = {
    "of another stream": {"stream_name": "OTHER"},
    "to update": {"action": "update"},
    "to create": {"action": "create"},
    "pedantic": {"pedantic": True},
}


def merged(parts: tuple[dict[str, object], ...]) -> dict[str, object] | None:
    """All of them together; None where two set the same option otherwise."""
    found: dict[str, object] = {}
    for part in parts:
        if any(found.get(key, value) != value for key, value in part.items()):
            return None
        found |= part
    return found


def refusals(server: Server, kind: str, way: str, state: str) -> dict[tuple[str, ...], object]:
    """What is said of each violation alone and of each pair, and of pairs with a request that is
    odd itself."""
    said: dict[tuple[str, ...], object] = {}
    subject, base = WAYS[way]

    def ask(key: tuple[str, ...], parts: tuple[dict[str, object], ...], **request: object) -> None:
        own = {k: v for part in parts for k, v in part.items()}
        config = {"ack_policy": "explicit", **base, **own}
        body = {"stream_name": "S", "config": config, **request}
        answer = client.api(subject, body)
        said[key] = answer.get("error", "made")
        if "error" not in answer and state != "there":
            client.api(f"CONSUMER.DELETE.S.{answer['name']}")

    with RawApp(server.port) as client:
        made = {"name": "S", "subjects": ["s.>"], **STREAMS[kind]}
        assert "error" not in client.api("STREAM.CREATE.S", made)
        if state == "there":
            there = {"durable_name": "C", "ack_policy": "explicit"}
            body = {"stream_name": "S", "config": there}
            assert "error" not in client.api("CONSUMER.DURABLE.CREATE.S.C", body)
        if state == "full":
            for number in range(3):
                taken = {"durable_name": f"T{number}", "ack_policy": "explicit"}
                taken["filter_subject"] = f"s.{number}"
                body = {"stream_name": "S", "config": taken}
                answer = client.api(f"CONSUMER.DURABLE.CREATE.S.T{number}", body)
                assert "error" not in answer, answer
        for names in (*((name,) for name in VIOLATIONS), *itertools.combinations(VIOLATIONS, 2)):
            parts = tuple(VIOLATIONS[name] for name in names)
            if merged(parts) is not None:
                ask(names, parts)
        for odd, request in REQUESTS.items():
            ask((odd,), (), **request)
            for name, part in VIOLATIONS.items():
                ask((odd, name), (part,), **request)
    return said


@pytest.mark.parametrize("state", ["new", "full", "there"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", STREAMS)
def test_which_violation_is_told(servers: Servers, kind: str, way: str, state: str) -> None:
    ours, theirs = (
        refusals(start(config=LIMITED, jetstream=True), kind, way, state)
        for start in (servers.under_test, servers.peer)
    )
    differ = {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}
    assert not differ, "\n".join(f"{key}: {a} / {b}" for key, (a, b) in differ.items())
    assert len([answer for answer in ours.values() if answer != "made"]) > 500
