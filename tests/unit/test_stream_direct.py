"""Direct gets in all their forms, and reading through the stream's face."""

import json

import pytest

from tests.unit.stream_world import World, headers, stream_params


@pytest.fixture
def world():
    w = World()
    for i, subject in enumerate([b"s.a", b"s.b", b"s.a", b"s.c", b"s.b"]):
        w.env.inject(subject, b"%d" % (i + 1), b"", headers(H=i + 1) if i == 0 else b"")
        w.env.advance(1_000_000_000)
    w.env.take()
    return w


def value(header, name):
    for line in header.decode().split("\r\n"):
        if line.startswith(name + ": "):
            return line[len(name) + 2 :]
    return None


def ask(**request):
    return json.dumps(request).encode()


def test_a_single_message_has_its_place_in_headers(world):
    [(header, data)] = world.direct(ask(seq=1))
    assert data == b"1"
    assert header == (
        b"NATS/1.0\r\nH: 1\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\n\r\n"
    )


def test_by_subject_and_next(world):
    assert world.direct(ask(last_by_subj="s.a"))[0][1] == b"3"
    assert world.direct(ask(last_by_subj="s.*"))[0][1] == b"5"
    assert world.direct(ask(next_by_subj="s.b", seq=3))[0][1] == b"5"
    assert world.direct(ask(next_by_subj="s.>"))[0][1] == b"1"
    assert world.direct(b"", b"s.b")[0][1] == b"5"
    assert world.direct(b'{"no_hdr":true}', b"s.b") == [(b"", b"5")]
    assert world.direct(ask(seq=2, no_hdr=True)) == [(b"", b"2")]
    assert world.direct(ask(start_time="2023-11-14T22:13:22.5Z"))[0][1] == b"4"
    assert world.direct(b'{"last_by_subj":"s\\u002ea"}')[0][1] == b"3"


@pytest.mark.parametrize(
    ("body", "subject", "want"),
    [
        (b"", b"", "408 Empty Request"),
        (b"{}", b"", "408 Empty Request"),
        (b"nonsense", b"", "408 Malformed Request"),
        (b'{"seq":1', b"", "408 Malformed Request"),
        (b'{"seq":"1"}', b"", "408 Malformed Request"),
        (b'{"seq":1} x', b"", "408 Malformed Request"),
        (b'{"start_time":"yesterday"}', b"", "408 Malformed Request"),
        (b'{"seq":1,"last_by_subj":"s.a"}', b"", "408 Bad Request"),
        (b'{"last_by_subj":"s.a","batch":2}', b"", "408 Bad Request"),
        (
            b'{"multi_last":["s.a"],"up_to_seq":3,"up_to_time":"2023-11-14T22:13:22Z"}',
            b"",
            "408 Bad Request",
        ),
        (b'{"seq":1}', b"s.a", "408 Bad Request"),
        (b'{"seq":77}', b"", "404 Message Not Found"),
        (b"", b"s.zz", "404 Message Not Found"),
        (b'{"seq":77,"batch":2}', b"", "404 Message Not Found"),
        (b'{"multi_last":["x.*"]}', b"", "404 No Results"),
    ],
)
def test_statuses(world, body, subject, want):
    assert world.direct(body, subject) == [(b"NATS/1.0 " + want.encode() + b"\r\n\r\n", b"")]


def test_an_api_level_too_high(world):
    [(header, _)] = world.direct(ask(seq=1), header=headers(Nats_Required_Api_Level=5))
    assert header == b"NATS/1.0 412 Required Api Level\r\n\r\n"
    assert world.direct(ask(seq=1), header=headers(Nats_Required_Api_Level=4))[0][1] == b"1"


def test_a_batch_counts_down_and_ends(world):
    got = world.direct(ask(seq=2, batch=3))
    assert [data for _, data in got] == [b"2", b"3", b"4", b""]
    assert [value(h, "Nats-Num-Pending") for h, _ in got] == ["3", "2", "1", "1"]
    assert [value(h, "Nats-Last-Sequence") for h, _ in got] == ["0", "2", "3", "4"]
    assert got[-1][0].startswith(b"NATS/1.0 204 EOB\r\n")


def test_a_batch_by_subject_skips_deleted(world):
    world.stream.delete(3, False)
    got = world.direct(ask(next_by_subj="s.*", batch=10))
    assert [data for _, data in got] == [b"1", b"2", b"4", b"5", b""]
    assert value(got[-1][0], "Nats-Num-Pending") == "0"


def test_a_batch_stops_at_max_bytes(world):
    got = world.direct(ask(seq=1, batch=10, max_bytes=1))
    assert [data for _, data in got] == [b"1", b""]
    assert world.direct(ask(seq=1, batch=1, no_hdr=True))[0] == (b"", b"1")


def test_a_long_batch_takes_turns():
    w = World()
    w.fill(1000)
    got = w.direct(ask(seq=1, batch=1000))
    assert len(got) == 1001 and value(got[-2][0], "Nats-Sequence") == "1000"


def test_the_last_of_many_subjects(world):
    got = world.direct(ask(multi_last=["s.*"]))
    assert [data for _, data in got] == [b"3", b"4", b"5", b""]
    assert value(got[-1][0], "Nats-UpTo-Sequence") == "5"
    got = world.direct(ask(multi_last=["s.a", "s.b"], up_to_seq=3))
    assert [data for _, data in got] == [b"2", b"3", b""]
    got = world.direct(ask(multi_last=["s.>"], up_to_time="2023-11-14T22:13:22Z"))
    assert [data for _, data in got] == [b"1", b"2", b""]
    got = world.direct(ask(multi_last=["s.>"], batch=1))
    assert [data for _, data in got] == [b"3", b""]
    assert value(got[0][0], "Nats-Num-Pending") == "2"


def test_too_many_results():
    w = World()
    for i in range(1025):
        w.env.inject(b"s.%d" % i, b"")
    assert b"413 Too Many Results" in w.direct(ask(multi_last=["s.*"]))[0][0]


def test_direct_gets_need_to_be_allowed():
    w = World(allow_direct=False)
    assert w.env.inject(b"$JS.API.DIRECT.GET.S", b'{"seq":1}', b"inbox") == 0
    w.stream.update(stream_params())
    assert w.env.inject(b"$JS.API.DIRECT.GET.S", b'{"seq":1}', b"inbox") == 1
    assert w.env.inject(b"$JS.API.DIRECT.GET.S", b'{"seq":1}') == 1 and len(w.env.take()) == 1


def test_the_face_reads_and_removes(world):
    s = world.stream
    assert s.get(1) == (b"s.a", 1, 1_700_000_000_000_000_000, b"NATS/1.0\r\nH: 1\r\n\r\n", b"1")
    assert s.get(9) is None
    assert s.last_for(b"s.b").seq == 5 and s.last_for(b"zz") is None
    assert s.next_for(b"s.a", 2).seq == 3 and s.next_for(b"", 4).seq == 4
    assert s.at_time(1_700_000_002_000_000_000) == 3
    assert s.subjects(b"s.>")[1] == {b"s.a": 2, b"s.b": 2, b"s.c": 1}
    assert s.delete(3, True) and not s.delete(3, False)
    assert s.deleted() == s.deleted(1) == [3] and s.deleted(0) == []
    assert s.purge(b"s.b", 0, 0) == 2
    assert s.purge(None, 0, 0) == 2
    st = s.state()
    assert (st.messages, st.first_seq, st.last_seq) == (0, 6, 5)
    s.wait_durable()
