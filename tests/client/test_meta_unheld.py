"""A server of ours that holds no streams, and assignments to it: it answers as a nats-server does
for unsupported assets."""

import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from jsserver.services.unheld import VOTES
from jsserver.text.identity import short_hash
from tests.client.aio import api, asynchronous, connected, until
from tests.client.test_meta_member import Members
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

ASSIGN_STREAM, ASSIGN_CONSUMER = 0, 1
UNKNOWN = {"x_unknown": 1}
"""A configuration that no version supports: a nats-server cannot run the stream."""


def assignment(kind: str, name: str, peer: str, config: dict[str, Any]) -> dict[str, Any]:
    """A stream, or its consumer `D`, assigned to one server."""
    group = {"name": f"{kind[0].upper()}-R1F-{name.ljust(8, 'x')}", "peers": [peer]}
    said: dict[str, Any] = {
        "client": {"acc": "ONE", "server": "A", "cluster": "C"},
        "created": "2026-11-28T10:00:00.5Z",
        kind: config,
        "group": group | {"store": "file", "cluster": "C", "preferred": peer},
    }
    if kind == "stream":
        return said | {"sync": f"$JSC.SYNC.{name.ljust(8, 'x')}"}
    return said | {"name": "D", "stream": name}


async def propose(system: Client, op: int, said: dict[str, Any]) -> None:
    """Proposes an entry as a member does that does not lead."""
    await system.publish("$NRG.P._meta_", bytes([op]) + json.dumps(said).encode())
    await system.flush()


async def asked(client: Client, subject: str) -> dict[str, Any]:
    """The first answer, without times and reasons."""
    answer: dict[str, Any] = json.loads((await client.request(subject, b"", timeout=10)).data)
    answer.pop("ts", None)
    assert answer.pop("offline_reason", "unsupported - ").startswith("unsupported - ")
    error = answer.get("error", {})
    if error:
        before, reason, _ = error["description"].partition("unsupported - ")
        error["description"] = before + reason
    return answer


def named(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """An answer with another stream's name in it."""
    text = json.dumps(answer).replace(name, "NAME").replace(name.lower(), "name")
    renamed: dict[str, Any] = json.loads(text)
    return renamed


@asynchronous
async def test_it_is_offline_as_on_a_nats_server_that_does_not_support_it(servers: Servers) -> None:
    members = Members(servers)
    leader = await members.led()
    ours, real = short_hash("C"), short_hash("AB"[members.members.index(leader)])
    async with (
        connected(leader) as client,
        connected(leader, user="sys", password="sys") as system,
    ):
        made = await api(client, "STREAM.CREATE.REAL", {"name": "REAL", "subjects": ["real"]})
        config = made["config"] | {"metadata": {"a": "b"}}
        consumer = {"durable_name": "D", "name": "D", "ack_policy": "explicit"}
        consumer |= {"deliver_policy": "all", "replay_policy": "instant"}
        for name, peer, more in (("OURS", ours, {}), ("THEIRS", real, UNKNOWN)):
            of = config | {"name": name, "subjects": [name.lower()]} | more
            await propose(system, ASSIGN_STREAM, assignment("stream", name, peer, of))
            said = assignment("consumer", name, peer, consumer | more)
            await propose(system, ASSIGN_CONSUMER, said)
        log = members.ours.log
        await until(lambda: f"Detected unsupported consumer 'ONE > OURS > D': {VOTES}" in log())
        for subject in ("$JSC.SI.ONE.{}", "$JSC.CI.ONE.{}.D"):
            mine = await asked(system, subject.format("OURS"))
            theirs = await asked(system, subject.format("THEIRS"))
            assert named(mine, "OURS") == named(theirs, "THEIRS")
        for request in ("STREAM.INFO.{}", "CONSUMER.INFO.{}.D"):
            mine = await asked(client, "$JS.API." + request.format("OURS"))
            theirs = await asked(client, "$JS.API." + request.format("THEIRS"))
            assert mine == theirs
            assert "offline" in mine["error"]["description"]
        listed = await api(client, "STREAM.LIST")
        assert sorted(listed["missing"]) == ["OURS", "THEIRS"]
        assert listed["offline"]["OURS"] == VOTES
        assert [one["config"]["name"] for one in listed["streams"]] == ["REAL"]
        assert log().count("Detected unsupported stream 'ONE > OURS'") == 1

        # Only members answer deletions, and ours is the only one.
        for request in ("CONSUMER.DELETE.OURS.D", "STREAM.DELETE.OURS"):
            assert (await api(client, request))["success"] is True
        gone = await api(client, "STREAM.INFO.OURS")
        assert gone["error"]["err_code"] == 10059
        async with connected(members.ours) as own:
            assert (await api(own, "STREAM.INFO.OURS"))["error"]["err_code"] == 10059


@asynchronous
async def test_who_holds_it_answers_where_there_is_another(servers: Servers) -> None:
    members = Members(servers)
    leader = await members.led()
    both = [short_hash(name) for name in "ABC"]
    async with (
        connected(leader) as client,
        connected(leader, user="sys", password="sys") as system,
    ):
        made = await api(client, "STREAM.CREATE.REAL", {"name": "REAL", "subjects": ["real"]})
        config = made["config"] | {"name": "THREE", "subjects": ["three"], "num_replicas": 3}
        said = assignment("stream", "THREE", both[0], config)
        said["group"] |= {"name": "S-R3F-THREExxx", "peers": both}
        await propose(system, ASSIGN_STREAM, said)
        alone = made["config"] | {"name": "OURS", "subjects": ["ours"]}
        await propose(system, ASSIGN_STREAM, assignment("stream", "OURS", both[2], alone))
        log = members.ours.log
        await until(lambda: "Detected unsupported stream 'ONE > OURS'" in log())
        assert "Detected unsupported stream 'ONE > THREE'" in log()

        async def stores() -> bool:
            try:
                return "seq" in json.loads((await client.request("three", b"x", timeout=2)).data)
            except (TimeoutError, NoRespondersError):
                return False

        await until(stores)
        inbox = system.new_inbox()
        answers = await system.subscribe(inbox)
        for name in ("THREE", "OURS"):
            await system.publish(f"$JSC.SI.ONE.{name}", b"", reply=inbox)
        # Ours answers requests one after another.
        found = [json.loads((await answers.next_msg(timeout=10)).data) for _ in range(2)]
        assert [one["config"]["name"] for one in found] == ["THREE", "OURS"]
        assert ["offline_reason" in one for one in found] == [False, True]
        assert answers.pending_msgs == 0
        assert (await api(client, "STREAM.LIST"))["offline"] == {"OURS": VOTES}
