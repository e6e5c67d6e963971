"""Requests of the API for single messages: what a stream answers itself, and what it leaves."""

import base64
import errno
import json

import pytest

from tests.unit.consumer_disk import until
from tests.unit.stream_world import MEMORY, World, headers
from tests.unit.test_consumer_state import disk
from tests.unit.test_stream_durable import release

__all__ = ["disk"]

LEFT, ANSWERED, LEFT_ALONE = range(3)
GET, DELETE = b"$JS.API.STREAM.MSG.GET.S", b"$JS.API.STREAM.MSG.DELETE.S"
TYPE_GET = "io.nats.jetstream.api.v1.stream_msg_get_response"
TYPE_DELETE = "io.nats.jetstream.api.v1.stream_msg_delete_response"
DELETED = b'{"type":"%s","success":true}' % TYPE_DELETE.encode()
NONE = b'{"type":"%s","error":{"code":404,"err_code":10037,"description":"no message found"}}' % (
    TYPE_GET.encode()
)


@pytest.fixture
def world():
    w = World(subjects=(b"s.>",), storage=MEMORY)
    for n, subject in enumerate([b"s.a", b"s.b", b"s.a", b"s.c", b"s.b"], 1):
        w.env.inject(subject, b"%d" % n, b"", headers(H=n) if n == 1 else b"")
        w.env.advance(1_000_000_000)
    w.env.take()
    return w


def ask(w, subject, body, header=b"", reply=b"inbox"):
    """What became of it, and what was answered."""
    w.env.take()
    how = w.env.inject(subject, body, reply, header)
    return how, [m[4] for m in w.env.take()]


def got(w, body):
    how, [answer] = ask(w, GET, body)
    assert how == ANSWERED
    return json.loads(answer)["message"]["seq"]


def test_a_message_is_shown_as_the_control_plane_shows_it(world):
    assert ask(world, GET, b'{"seq":1}') == (
        ANSWERED,
        [
            b'{"type":"%s","message":{"subject":"s.a","seq":1,"hdrs":"%s","data":"MQ==",'
            b'"time":"2023-11-14T22:13:20Z"}}' % (TYPE_GET.encode(), base64.b64encode(headers(H=1)))
        ],
    )
    [answer] = ask(world, GET, b'{"no_hdr":true,"seq":1}')[1]
    assert list(json.loads(answer)["message"]) == ["subject", "seq", "data", "time"]


@pytest.mark.parametrize(
    ("body", "seq"),
    [
        (b'{"seq":3}', 3),
        (b' {\t"seq" : 3 }\r\n', 3),
        (b'{"last_by_subj":"s.a"}', 3),
        (b'{"last_by_subj":"s.*"}', 5),
        (b'{"last_by_subj":"s.>","seq":0}', 5),
        (b'{"next_by_subj":"s.b"}', 2),
        (b'{"seq":3,"next_by_subj":"s.b"}', 5),
        (b'{"next_by_subj":"s.>","seq":4,"no_hdr":false}', 4),
        (b'{"start_time":"2023-11-14T22:13:22Z"}', 3),
        (b'{"start_time":"2023-11-14T22:13:22.5Z","next_by_subj":"s.b"}', 5),
        (b'{"start_time":"0001-01-01T00:00:00Z"}', 1),
    ],
)
def test_which_message_is_shown(world, body, seq):
    assert got(world, body) == seq


def test_what_is_not_there(world):
    later = b'{"start_time":"2101-01-01T00:00:00Z"}'
    for body in (
        *(b'{"seq":6}', b'{"last_by_subj":"s.x"}', b'{"next_by_subj":"s.a","seq":4}', later),
    ):
        assert ask(world, GET, body) == (ANSWERED, [NONE])


@pytest.mark.parametrize("size", [*range(9), 255, 4096, (1 << 20)])
def test_bytes_in_base64(world, size):
    data = bytes((n * 7 + n // 256) % 256 for n in range(size))
    world.env.inject(b"s.data", data)
    [answer] = ask(world, GET, b'{"last_by_subj":"s.data"}')[1]
    message = json.loads(answer)["message"]
    assert message.get("data", "") == base64.b64encode(data).decode()
    assert ("data" in message) == (size > 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b'{"seq":0}',
        b'{"seq":1',
        b'{"seq":1} x',
        b'{"seq":"1"}',
        b'{"seq":-1}',
        b'{"seq":1.0}',
        b'{"seq":1e0}',
        b'{"seq":18446744073709551616}',
        b'{"seq":null}',
        b'{"seq":1,"seq":2}',
        b'{"SEQ":1}',
        b'{"s\\u0065q":1}',
        b'{"seq":1,"other":1}',
        b'{"seq":1,"no_hdr":1}',
        b'{"seq":1,"no_erase":true}',
        b'{"seq":1,"last_by_subj":"s.a"}',
        b'{"last_by_subj":"s.a","next_by_subj":"s.a"}',
        b'{"last_by_subj":"s\\u002ea"}',
        b'{"last_by_subj":"s.\xe4"}',
        b'{"last_by_subj":"s..a"}',
        b'{"last_by_subj":""}',
        b'{"start_time":"2023-11-14T22:13:22+01:00"}',
        b'{"start_time":"2023-11-14T22:13:22"}',
        b'{"start_time":"2023-11-14T22:13:22Z","seq":1}',
        b'{"start_time":"2023-11-14T22:13:22Z","last_by_subj":"s.a"}',
        b'{"seq":1,"batch":1}',
        b'{"seq":1}' + b" " * 5000,
    ],
)
def test_what_else_is_asked_is_left(world, body):
    assert ask(world, GET, body) == (LEFT_ALONE, [])
    if b"no_erase" not in body:
        assert ask(world, DELETE, body)[1] == []
    assert world.stream.state().messages == 5


def test_what_is_left_whatever_is_asked(world):
    level = headers(Nats_Required_Api_Level="1")
    for subject in (GET, DELETE):
        assert ask(world, subject, b'{"seq":1}', header=level) == (LEFT_ALONE, [])
        assert ask(world, subject, b'{"seq":1}', reply=b"") == (LEFT_ALONE, [])
    subjects = [b"s.\xe4", b"s.\xe2\x80\xa8", b"s.\x01", b"s.\xed\xa0\x80"]
    for seq, subject in enumerate(subjects, 6):
        world.env.inject(subject, b"")
        assert ask(world, GET, b'{"seq":%d}' % seq) == (LEFT_ALONE, [])
    world.env.inject(b"s.big", bytes(1 << 21))
    assert ask(world, GET, b'{"last_by_subj":"s.big"}') == (LEFT_ALONE, [])


def test_subjects_as_json_shows_them(world):
    for subject, shown in (
        (b's."<&>\\', b's.\\"\\u003c\\u0026\\u003e\\\\'),
        ("s.\u00e4\u2027\U0001f600".encode(), "s.\u00e4\u2027\U0001f600".encode()),
        (b"s.\x7f", b"s.\x7f"),
    ):
        world.env.inject(subject, b"")
        [answer] = ask(world, GET, b'{"last_by_subj":"s.>"}')[1]
        assert b'{"subject":"%s","seq"' % shown in answer
    assert got(world, '{"last_by_subj":"s.\u00e4\u2027\U0001f600"}'.encode()) == 7


def test_deletions(world):
    assert ask(world, DELETE, b'{"seq":2}') == (ANSWERED, [DELETED])
    assert ask(world, DELETE, b'{"seq":2}') == (LEFT_ALONE, [])
    assert ask(world, DELETE, b'{"no_erase":true,"seq":3}') == (ANSWERED, [DELETED])
    assert ask(world, DELETE, b'{"seq":4,"no_erase":false}') == (ANSWERED, [DELETED])
    assert world.stream.deleted() == [2, 3, 4]
    assert ask(world, GET, b'{"seq":2}') == (ANSWERED, [NONE])


@pytest.mark.parametrize("refuses", ["sealed", "deny_delete"])
def test_a_stream_that_refuses_leaves_it(refuses):
    w = World(**{refuses: True})
    assert ask(w, DELETE, b'{"seq":1}') == (LEFT_ALONE, [])


def test_whoever_wants_to_be_told_of_requests_is(world):
    world.env.listen(b"$JS.EVENT.ADVISORY.>")
    assert ask(world, DELETE, b'{"seq":1}') == (LEFT, [])
    assert ask(world, GET, b'{"seq":6}') == (LEFT_ALONE, [])
    assert got(world, b'{"seq":1}') == 1  # of which nobody is told


def test_nothing_is_answered_before_it_is_durable(disk):
    w = disk.open(consumers=(), subjects=(b"s.>",))
    w.fill(5)
    w.env.stall_commits()
    for seq in (1, 3):
        w.env.inject(DELETE, b'{"seq":%d}' % seq, b"delete.%d" % seq)
    w.env.inject(GET, b'{"seq":1}', b"gone")
    w.env.inject(b"s.a", b"new", b"ack")
    w.env.inject(GET, b'{"seq":6}', b"new")
    w.env.inject(GET, b'{"seq":2}', b"old")
    w.env.run()
    w.env.poll()
    assert [m[0] for m in w.env.take()] == [b"old"]
    w.env.resume_commits()
    until(w, lambda: len(w.env.sent) == 5)
    answers = {m[0]: m[4] for m in w.env.take()}
    assert answers.pop(b"new").startswith(b'{"type":"%s","message"' % TYPE_GET.encode())
    assert answers == {
        b"delete.1": DELETED,
        b"delete.3": DELETED,
        b"gone": NONE,
        b"ack": b'{"stream":"S","seq":6}',
    }


def test_answers_of_deletions_go_in_their_order(disk):
    w = disk.open(held=True, consumers=())
    w.env.inject(b"s.a")
    w.env.inject(b"s.a")
    for seq in (2, 1):
        w.env.inject(DELETE, b'{"seq":%d,"no_erase":true}' % seq, b"%d" % seq)
    w.env.inject(GET, b'{"seq":1}', b"get")
    assert [(m[0], m[4]) for m in release(w, 3)] == [
        (b"2", DELETED),
        (b"1", DELETED),
        (b"get", NONE),
    ]


def test_a_disk_that_fails(disk):
    w = disk.open(consumers=())
    w.fill(3)
    w.env.fail(errno.EIO, "datasync")
    w.env.inject(DELETE, b'{"seq":2}', b"inbox")
    until(w, lambda: w.env.sent)
    assert [m[4] for m in w.env.take()] == [
        b'{"type":"%s","error":{"code":503,"err_code":10077,"description":'
        b'"writing to disk failed: Input/output error"}}' % TYPE_DELETE.encode()
    ]
    for subject in (GET, DELETE):
        assert ask(w, subject, b'{"seq":1}') == (LEFT_ALONE, [])
    w.stream.reopen()
    assert ask(w, GET, b'{"seq":2}')[0] == ANSWERED
    assert ask(w, DELETE, b'{"seq":2}') == (LEFT_ALONE, [])  # not before it is written again
    w.stream.resume()
    w.env.inject(DELETE, b'{"seq":2}', b"inbox")
    until(w, lambda: w.env.sent)
    assert [m[4] for m in w.env.take()] == [DELETED]
    assert w.stream.deleted() == [2]
