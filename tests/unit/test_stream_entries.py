"""Changes of a stream as its members send them to each other: entries of three nats-servers."""

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver.cext.bytes import s2_decode
from tests.cext.stream import get_change, put_change

MESSAGE, SKIP, DELETE, RELEASE, PURGE, TRUNCATE = range(1, 7)

INBOX = b"_INBOX.O6u2xdCop3qhiCVSuoiiua.O6u2xdCop3qhiCVSuoij"
BATCH = b"NATS/1.0\r\nNats-Batch-Id: uuid\r\nNats-Batch-Sequence: %d\r\n%s\r\n"
CLIENT = (
    b'{"start":"2026-11-28T11:47:15.021894126Z","host":"127.0.0.1","id":25,"acc":"ONE","user":"one"'
    b',"lang":"python3","ver":"2.16.0","rtt":562569,"server":"A","cluster":"C","kind":"Client"'
    b',"client_type":"nats"}'
)
OF_DELETE = {"client": CLIENT, "stream": b"R", "api": b"$JS.API.STREAM.MSG.DELETE.R"}
OF_PURGE = {"client": CLIENT, "stream": b"R", "api": b"$JS.API.STREAM.PURGE.R", "last": 7}

#: Of three nats-servers: the entry and what it says.
RECORDED: list[tuple[bytes, dict[str, Any]]] = [
    (
        bytes.fromhex(
            "040000000000000000f50bb0010233ec180300722e6138005f494e424f582e4f3675327864436f70"
            "33716869435653756f696975612e4f3675327864436f7033716869435653756f696a304f39306232"
            "12004e4154532f312e300d0a583a20310d0a0d0a0500000068656c6c6f00"
        ),
        {
            "kind": MESSAGE,
            "ts": 1795866435125251061,
            "subject": b"r.a",
            "reply": INBOX + b"0O90b2",
            "header": b"NATS/1.0\r\nX: 1\r\n\r\n",
            "data": b"hello",
        },
    ),
    (
        bytes.fromhex(
            "1004007575696401040400000000000000fd3c0b020233ec180700722e6261746368000039004e41"
            "54532f312e300d0a4e6174732d42617463682d49643a20757569640d0a4e6174732d42617463682d"
            "53657175656e63653a20310d0a0d0a010000003000"
        ),
        {
            "kind": MESSAGE,
            "lseq": 4,
            "ts": 1795866435131227389,
            "subject": b"r.batch",
            "header": BATCH % (1, b""),
            "data": b"0",
            "batch": b"uuid",
            "batch_seq": 1,
        },
    ),
    (
        bytes.fromhex(
            "1104007575696403040600000000000000fd3c0b020233ec180700722e626174636838005f494e42"
            "4f582e4f3675327864436f7033716869435653756f696975612e4f3675327864436f703371686943"
            "5653756f696a4b69636436374f004e4154532f312e300d0a4e6174732d42617463682d49643a2075"
            "7569640d0a4e6174732d42617463682d53657175656e63653a20330d0a4e6174732d42617463682d"
            "436f6d6d69743a20310d0a0d0a010000003200"
        ),
        {
            "kind": MESSAGE,
            "lseq": 6,
            "ts": 1795866435131227389,
            "subject": b"r.batch",
            "reply": INBOX + b"Kicd67",
            "header": BATCH % (3, b"Nats-Batch-Commit: 1\r\n"),
            "data": b"2",
            "batch": b"uuid",
            "batch_seq": 3,
            "batch_ends": True,
        },
    ),
    (
        b'\x06{"client":'
        + CLIENT
        + b',"stream":"R","seq":2,"subject":"$JS.API.STREAM.MSG.DELETE.R"'
        + b',"reply":"_R_.ZiJFZQ.4daH7A"}\n',
        OF_DELETE | {"kind": DELETE, "seq": 2, "erase": True, "reply": b"_R_.ZiJFZQ.4daH7A"},
    ),
    (
        b'\x06{"client":'
        + CLIENT
        + b',"stream":"R","seq":3,"no_erase":true,"subject":"$JS.API.STREAM.MSG.DELETE.R"'
        + b',"reply":"_R_.ZiJFZQ.pvP5Ei"}\n',
        OF_DELETE | {"kind": DELETE, "seq": 3, "reply": b"_R_.ZiJFZQ.pvP5Ei"},
    ),
    (
        b'\x05{"client":'
        + CLIENT
        + b',"stream":"R","last_seq":7,"subject":"$JS.API.STREAM.PURGE.R"'
        + b',"reply":"_R_.ZiJFZQ.GNhKYL"'
        + b',"request":{"filter":"r.a"}}\n',
        OF_PURGE | {"kind": PURGE, "subject": b"r.a", "seq": 8, "reply": b"_R_.ZiJFZQ.GNhKYL"},
    ),
    (
        b'\x05{"client":'
        + CLIENT
        + b',"stream":"R","last_seq":7,"subject":"$JS.API.STREAM.PURGE.R"'
        + b',"reply":"_R_.ZiJFZQ.ZcxuKx"'
        + b',"request":{"filter":"r.\\u003e","keep":3}}\n',
        OF_PURGE | {"kind": PURGE, "subject": b"r.>", "keep": 3, "reply": b"_R_.ZiJFZQ.ZcxuKx"},
    ),
    (
        b'\x05{"client":'
        + CLIENT
        + b',"stream":"R","last_seq":7,"subject":"$JS.API.STREAM.PURGE.R"'
        + b',"reply":"_R_.ZiJFZQ.nATjjM"'
        + b',"request":{"seq":5}}\n',
        OF_PURGE | {"kind": PURGE, "seq": 5, "reply": b"_R_.ZiJFZQ.nATjjM"},
    ),
    (
        b'\x05{"client":'
        + CLIENT
        + b',"stream":"R","last_seq":7,"subject":"$JS.API.STREAM.PURGE.R"'
        + b',"reply":"_R_.ZiJFZQ.JfDBgS"}\n',
        OF_PURGE | {"kind": PURGE, "seq": 8, "reply": b"_R_.ZiJFZQ.JfDBgS"},
    ),
    (
        b'\x0f{"First":20,"Num":4}\n',
        {"kind": SKIP, "seq": 20, "most": 4},
    ),
    (
        bytes.fromhex("041e0000000000000000000000000000000000000000000000000000"),
        {"kind": SKIP, "lseq": 30},
    ),
]
LARGE = bytes.fromhex(
    "0ef89c010403000901b434bec8010233ec180500722e62696738005f494e424f582e4f3675327864436f7033"
    "716869435653756f696975614e1700346a3936663134390000204e00007811011900134d0000"
)


@pytest.mark.parametrize(("entry", "said"), RECORDED)
def test_entries_are_those_of_nats_servers(entry: bytes, said: dict[str, Any]) -> None:
    assert get_change(entry) == said
    whole = entry if entry[0] != 4 or said["kind"] == MESSAGE else entry + b"\x00"
    assert put_change(said) in (entry, whole)


def test_a_large_message_is_compressed() -> None:
    said = get_change(LARGE)
    assert said is not None
    assert (said["subject"], said["data"], said["lseq"]) == (b"r.big", b"x" * 20000, 3)
    again = put_change(said)
    assert again[0] == 14
    assert s2_decode(again[1:]) == s2_decode(LARGE[1:])
    noise = random.Random(1).randbytes(20000)
    assert put_change(said | {"data": noise, "reply": b""})[0] == 4, "what does not get smaller"


def test_what_a_leader_removes_by_itself_names_nobody() -> None:
    said = {"kind": RELEASE, "seq": 9, "stream": b"R"}
    entry = put_change(said)
    assert entry == b'\x06{"stream":"R","seq":9,"no_erase":true,"subject":"","reply":""}\n'
    assert get_change(entry) == said


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x00{}",
        b"\x07\x01\x01\x01\x02",
        b"\x04" + bytes(25),
        b"\x05[]",
        b'\x05{"last_seq":-1}',
        b'\x06{"seq":1',
        b'\x06{"seq":1} x',
        b'\x0f{"First":18446744073709551615,"Num":2}',
        b"\x0e\x05abc",
        b"\x10\x00\x00\x01\x04" + bytes(28),
        b"\x10\x01\x00u\x01\x07" + bytes(28),
    ],
)
def test_what_is_no_entry_is_refused(entry: bytes) -> None:
    assert get_change(entry) is None


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(ValueError, match="-10"):
        put_change({"kind": TRUNCATE, "seq": 3})
    with pytest.raises(ValueError, match="-2"):
        put_change({"kind": MESSAGE, "subject": b"s", "header": bytes(65536)})


@given(st.sampled_from(RECORDED), st.data())
@settings(max_examples=200)
def test_nothing_damaged_harms(recorded: tuple[bytes, dict[str, Any]], data: st.DataObject) -> None:
    changed = bytearray(recorded[0][: data.draw(st.integers(0, len(recorded[0])))])
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(
                st.integers(0, 7)
            )
    with contextlib.suppress(ValueError):
        get_change(bytes(changed))
