"""Entries of a consumer's Raft group, in nats-server's form, and what comes of them."""

import pytest

from tests.cext.consumer import Member, get_entry, put_entry
from tests.cext.stream import TestEnv
from tests.unit.consumer_states import read_state
from tests.unit.stream_world import (
    ACK_ALL,
    ACK_EXPLICIT,
    ACK_NONE,
    BY_SEQ,
    INTEREST,
    LIMITS,
    SECOND,
    WORKQUEUE,
    World,
)

DELIVERED, ACKED, SKIP, REQUEST, REQUEST_ENDS, RESET = 7, 8, 10, 12, 13, 18
THEN = 1_795_877_710 * SECOND
"""When the recorded servers were killed."""

# fmt: off
RECORDED = (
    # Of groups of three nats-servers 2.14.5: retention, ack policy and max_deliver of the consumer,
    # what the group agreed on, and the o.dat of a member that followed.
    (LIMITS, ACK_ALL, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424c3950
        07010101d0968dddc4d09eec31 07020201d4a9d4ddc4d09eec31 07030301ecd6a4dec4d09eec31
        07040401c8aad2dec4d09eec31 07050501dc8e81dfc4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424c3950 0706060182f8aadfc4d09eec31
        080404 0c5f494e424f582e7761697473 07070701d6c2d9dfc4d09eec31 07080801b2ff86e0c4d09eec31
        07090901888fbae0c4d09eec31 070a0a01a4a0e7e0c4d09eec31 070b0b01e88a8de1c4d09eec31
        070c0c01a4bcbee1c4d09eec31
    """, "160204040c0c089cadd7b00d05050a06060a01010a02020a07070a08080a03030a04040a00"),
    (LIMITS, ACK_EXPLICIT, 2, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424b4666
        07010101d0968dddc4d09eec31 07020201d4a9d4ddc4d09eec31 07030301ecd6a4dec4d09eec31
        07040401c8aad2dec4d09eec31 07050501dc8e81dfc4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424b4666 0706060182f8aadfc4d09eec31
        080101 080303 07040401b4c8fb91c1d09eec31 07050501d4f4e6eec4d09eec31 080606
        0c5f494e424f582e5246333831556b395356666d4b354d495875424d376e 07070701d6c2d9dfc4d09eec31
        07080801b2ff86e0c4d09eec31 07090901888fbae0c4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424d376e 070a0a01a4a0e7e0c4d09eec31
        0c5f494e424f582e5246333831556b395356666d4b354d495875424d4352 070b0402c8aad2dec4d09eec31
        070c0202d4a9d4ddc4d09eec31 070d0502dc8e81dfc4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424d4352 070e0702d6c2d9dfc4d09eec31
        080202
    """, "160203030e0a069cadd7b00d02020a06060a07070a04040a05050a01010a03010102010401"),
    (LIMITS, ACK_EXPLICIT, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424c6248
        07010201d4a9d4ddc4d09eec31 07020401c8aad2dec4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424c6248 0703060182f8aadfc4d09eec31
        080204 0c5f494e424f582e5246333831556b395356666d4b354d495875424c6b5a
        07040801b2ff86e0c4d09eec31 07050a01a4a0e7e0c4d09eec31 07060c01a4bcbee1c4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424c6b5a 080408 08050a 08060c
        1203000000000000005f494e424f582e5246333831556b395356666d4b354d4958754248546e2e5246333831556b395356666d4b354d495875424d483531366663
        0c5f494e424f582e5246333831556b395356666d4b354d495875424d4c6a 07010401c8aad2dec4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424d4c6a 0702060182f8aadfc4d09eec31
    """, "160200020206029cadd7b00d04020a02010a00"),
    (LIMITS, ACK_NONE, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424c527a
        07010101d0968dddc4d09eec31 07020201d4a9d4ddc4d09eec31 07030301ecd6a4dec4d09eec31
        07040401c8aad2dec4d09eec31 0d5f494e424f582e5246333831556b395356666d4b354d495875424c527a
        07050501dc8e81dfc4d09eec31
    """, "1602050505050000"),
    (LIMITS, ACK_EXPLICIT, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424d3339
        07010101d0968dddc4d09eec31 07020201d4a9d4ddc4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424d3339 07030301ecd6a4dec4d09eec31
        080101 080202
    """, "160202020303019cadd7b00d01010a00"),
    (INTEREST, ACK_ALL, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424c4968
        07010101eacdf0e1c4d09eec31 07020201b2edc5e3c4d09eec31 07030301f6e68ce4c4d09eec31
        07040401cadfbde4c4d09eec31 0705050180dcf0e4c4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424c4968 07060601da84a2e5c4d09eec31
        080404
    """, "1602040406060294add7b00d01010202020200"),
    (INTEREST, ACK_EXPLICIT, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424b5946
        07010101eacdf0e1c4d09eec31 07020201b2edc5e3c4d09eec31 07030301f6e68ce4c4d09eec31
        07040401cadfbde4c4d09eec31 0705050180dcf0e4c4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424b5946 07060601da84a2e5c4d09eec31
        080101 080303 07040401e2a8ffc5f0ce9eec31 07050501eadbdbf1c4d09eec31 080606
    """, "1602010106060394add7b00d01010203033a04040200"),
    (INTEREST, ACK_NONE, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424c5764
        07010101eacdf0e1c4d09eec31 080101 07020201b2edc5e3c4d09eec31 080202
        07030301f6e68ce4c4d09eec31 080303 07040401cadfbde4c4d09eec31 080404
        0d5f494e424f582e5246333831556b395356666d4b354d495875424c5764 0705050180dcf0e4c4d09eec31
        080505
    """, "1602050505050000"),
    (WORKQUEUE, ACK_EXPLICIT, -1, """
        0a0100000000000000 0c5f494e424f582e5246333831556b395356666d4b354d495875424b7170
        07010101aaa8a5e8c4d09eec31 07020201f4fce6e8c4d09eec31 07030301c2e387e9c4d09eec31
        07040401aacea2e9c4d09eec31 07050501beabdbe9c4d09eec31
        0d5f494e424f582e5246333831556b395356666d4b354d495875424b7170 07060601fc998deac4d09eec31
        080101 080303 070404018cbcccc8f0ce9eec31 0705050198c3a8f4c4d09eec31 080606
    """, "1602010106060394add7b00d04040201010203033a00"),
)
# fmt: on


def follower(policy=ACK_EXPLICIT, max_deliver=-1, retention=LIMITS, **params):
    world = World(TestEnv(now=THEN), retention=retention, active=False)
    handle = world.consumer(ack_policy=policy, max_deliver=max_deliver, **params)
    return world, handle, Member(handle)


def state(handle):
    return read_state(handle.encode_state())


def told(member, *said):
    for entry in said:
        names = ("op", "dseq", "sseq", "deliveries", "sent")
        assert member.apply(put_entry(dict(zip(names, entry, strict=False)))) == 0


@pytest.mark.parametrize("retention, policy, max_deliver, entries, left", RECORDED)
def test_recorded_entries_lead_to_the_state_of_a_nats_server(
    retention, policy, max_deliver, entries, left
):
    world, handle, member = follower(policy, max_deliver, retention)
    for text in entries.split():
        entry = bytes.fromhex(text)
        said = get_entry(entry)
        assert said is not None and put_entry(said) == entry
        assert member.apply(entry) == 0
    assert state(handle).near(read_state(bytes.fromhex(left)))
    assert world.env.take() == [] and world.env.timers == 0


def test_an_entry_says_what_nats_server_says():
    assert get_entry(bytes.fromhex("07010101ee9ba7a4ea83fceb31")) == dict(
        op=DELIVERED, dseq=1, sseq=1, deliveries=1, sent=1795801621125719799
    )
    assert get_entry(bytes.fromhex("08ac0205")) == dict(op=ACKED, dseq=300, sseq=5)
    assert get_entry(bytes.fromhex("0a0102000000000000")) == dict(op=SKIP, sseq=513)
    assert get_entry(b"\x0c_INBOX.a") == dict(op=REQUEST, reply=b"_INBOX.a")
    assert get_entry(b"\x0d_INBOX.a") == dict(op=REQUEST_ENDS, reply=b"_INBOX.a")
    reset = bytes.fromhex("120300000000000000")
    assert get_entry(reset) == dict(op=RESET, sseq=3)
    assert get_entry(reset + b"_INBOX.a") == dict(op=RESET, sseq=3, reply=b"_INBOX.a")


@pytest.mark.parametrize(
    "entry",
    (
        *(b"", b"\x07", b"\x07\x01\x01\x01", b"\x07\x01\x00\x01\x00", b"\x08\x01", b"\x08\x80"),
        *(b"\x08\x01\x00", b"\x0a" + bytes(8), b"\x0a\x01", b"\x12\x01", b"\x0a" + b"\xff" * 8),
        *(b"\x0c", b"\x0d", b"\x04abc", b"\x09", b"\xff", b"\x08" + b"\xff" * 11 + b"\x01"),
    ),
)
def test_what_is_no_entry_is_refused(entry):
    assert get_entry(entry) is None
    _, handle, member = follower()
    before = handle.encode_state()
    assert member.apply(entry) == -2
    assert handle.encode_state() == before


def test_a_new_member_stands_nowhere_until_the_group_says_where():
    _, handle, member = follower(deliver_policy=BY_SEQ, opt_start_seq=6)
    assert state(handle)[:2] == ((0, 0), (0, 0))
    told(member, (SKIP, 0, 6))
    assert state(handle)[:2] == ((0, 5), (0, 0))


def test_more_deliveries_than_allowed_give_a_message_up():
    _, handle, member = follower(max_deliver=2)
    told(member, (DELIVERED, 1, 1, 1, THEN), (DELIVERED, 2, 2, 1, THEN), (DELIVERED, 3, 1, 2, THEN))
    assert state(handle).redelivered == {1: 1}
    told(member, (DELIVERED, 1, 1, 3, THEN))
    assert state(handle) == ((3, 2), (0, 0), {2: (2, THEN // SECOND)}, {1: 2})
    told(member, (ACKED, 1, 1))
    assert state(handle).redelivered == {}


def test_a_later_time_of_a_delivery_moves_its_deadline_alone():
    _, handle, member = follower()
    told(member, (DELIVERED, 1, 1, 1, THEN), (DELIVERED, 2, 2, 1, THEN))
    told(member, (DELIVERED, 1, 1, 1, THEN + 5 * SECOND))
    now = THEN // SECOND
    assert state(handle) == ((2, 2), (0, 0), {1: (1, now + 5), 2: (2, now)}, {})


def test_a_snapshot_takes_the_place_of_an_older_state_only():
    _, handle, member = follower()
    told(member, (DELIVERED, 1, 1, 1, THEN), (DELIVERED, 2, 2, 1, THEN), (ACKED, 1, 1))
    newer = handle.encode_state()
    _, other, late = follower()
    assert late.restore(newer) == 0
    assert other.encode_state() == newer
    told(late, (ACKED, 2, 2), (DELIVERED, 3, 3, 1, THEN))
    newest = other.encode_state()
    assert late.restore(newer) == 0
    assert other.encode_state() == newest


@pytest.mark.parametrize(
    "bad",
    (
        *(b"", b"\x16", b"\x16\x02\x01", b"\x16\x03\x00\x00\x09\x09\x00\x00"),
        b"\x16\x02\x09\x01\x02\x09\x00\x00",  # the floor is above what was delivered
        b"\x16\x02\x00\x01\x09\x09\x01\x02\x09\x01\x00\x00",  # so is what is pending
    ),
)
def test_a_snapshot_that_is_none_changes_nothing(bad):
    _, handle, member = follower()
    told(member, (DELIVERED, 1, 1, 1, THEN))
    before = handle.encode_state()
    assert member.restore(bad) == -2
    assert handle.encode_state() == before


def test_requests_that_wait_with_a_leader_are_bounded():
    _, _, member = follower(max_waiting=3)
    for n in range(9):
        assert member.apply(put_entry(dict(op=REQUEST, reply=b"r%d" % n))) == 0
    assert member.asked() == 3
    assert member.apply(put_entry(dict(op=REQUEST_ENDS, reply=b"r0"))) == 0
    assert member.apply(put_entry(dict(op=REQUEST_ENDS, reply=b"r8"))) == 0
    assert member.asked() == 2
