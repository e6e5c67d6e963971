"""Messages that a member of a consumer's group needs are left in the stream."""

import pytest

from tests.cext.consumer import Member
from tests.unit.stream_replica import Replica
from tests.unit.stream_world import INTEREST, WORKQUEUE
from tests.unit.test_consumer_lead import DELIVERED

NEXT = b"$JS.API.CONSUMER.MSG.NEXT.S.C"


@pytest.mark.parametrize("retention", [INTEREST, WORKQUEUE])
@pytest.mark.parametrize("leads", [True, False], ids=["leads", "led"])
def test_a_delivery_that_is_not_agreed_on_is_none(retention: str, leads: bool) -> None:
    """The consumer's leader has proposed to deliver messages; the group says nothing of that, and
    the stream is looked through for what no consumer needs."""
    world = Replica(retention=retention)
    consumer = Member(world.joined())
    world.store(3)
    consumer.lead()
    world.env.inject(NEXT, b'{"batch":2}', b"inbox")
    assert len([e for e in consumer.proposed if e[0] == DELIVERED]) == 2
    if not leads:
        consumer.follow()
    world.member.recovered()
    world.member.lead()
    world.env.run()
    assert world.released() == []
    assert world.seqs() == [1, 2, 3]
