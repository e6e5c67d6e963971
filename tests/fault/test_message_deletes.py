"""MSG.DELETE of many messages on their way: answered when the disk has it, together, and kept."""

import json
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.fault.faulty import Faults
from tests.servers import Server, Servers
from tests.waiting import wait_until

COUNT = 200
SECONDS = 20
SUCCESS = b'{"type":"io.nats.jetstream.api.v1.stream_msg_delete_response","success":true}'


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path, "/msgs/")


def filled(servers: Servers, faults: Faults) -> Server:
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port) as app:
        app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        inbox = app.inbox()
        for n in range(COUNT):
            app.publish("s.a", b"%d" % n, reply=inbox)
        app.messages(COUNT)
    return server


def delete(app: RawApp, seqs: range, *, no_erase: bool) -> None:
    """Asks for all of them at once."""
    frames = []
    for seq in seqs:
        body = json.dumps({"seq": seq, "no_erase": no_erase}).encode()
        subject = b"$JS.API.STREAM.MSG.DELETE.S"
        frames.append(b"PUB %s answers.%d %d\r\n%s\r\n" % (subject, seq, len(body), body))
    app.send(b"".join(frames))


def gone(server: Server) -> list[int]:
    with RawApp(server.port, timeout=SECONDS) as app:
        state = app.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    assert isinstance(state, dict)
    first = int(state["first_seq"])
    return [*range(1, first), *state.get("deleted", [])]


@pytest.mark.parametrize("no_erase", [True, False])
def test_deletions_wait_for_the_disk_together(
    servers: Servers, faults: Faults, no_erase: bool
) -> None:
    server = filled(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        app.subscribe("answers.*")
        app.sync()
        faults.fail("sync", 0, times=COUNT, held=True)
        delete(app, range(1, COUNT + 1, 2), no_erase=no_erase)
        wait_until(lambda: faults.seen("sync") == 1, "a group that waits for its disk")
        assert app.sync() == []  # all are read, and none is answered
        assert faults.seen("sync") == 1
        faults.mend()
        answers = app.messages(COUNT // 2)
    assert [a.subject for a in answers] == [f"answers.{n}" for n in range(1, COUNT + 1, 2)]
    assert {a.payload for a in answers} == {SUCCESS}
    assert gone(server) == [*range(1, COUNT + 1, 2)]


@pytest.mark.parametrize("no_erase", [True, False])
def test_what_was_answered_stays_deleted_after_a_kill(
    servers: Servers, faults: Faults, no_erase: bool
) -> None:
    server = filled(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:
        app.subscribe("answers.*")
        delete(app, range(2, 51), no_erase=no_erase)
        answered = {int(a.subject.removeprefix("answers.")) for a in app.messages(49)}
        faults.fail("sync", 0, times=COUNT, held=True)
        delete(app, range(51, COUNT + 1), no_erase=no_erase)
        wait_until(lambda: faults.seen("sync") == 1, "a group that waits for its disk")
    server.kill()
    faults.mend()
    server.start()
    assert answered == {*range(2, 51)}
    found = gone(server)
    assert answered <= {*found}
    with RawApp(server.port, timeout=SECONDS) as app:
        for seq in (1, *range(2, COUNT + 1, 7), COUNT):
            answer = app.api("STREAM.MSG.GET.S", {"seq": seq})
            assert ("error" in answer) == (seq in found)
