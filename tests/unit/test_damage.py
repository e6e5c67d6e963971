"""What is damaged, as the log tells it."""

import pytest

from jsserver.instances.backend import Lost
from jsserver.instances.damage import SHOWN, lines


@pytest.mark.parametrize(("count", "named"), [(1, 1), (SHOWN, SHOWN), (SHOWN + 1, SHOWN)])
def test_the_first_lost_messages_are_named(count: int, named: int) -> None:
    ((_, line),) = lines(Lost([*range(1, count + 1)], 0, 0, []))
    shown = ", ".join(map(str, range(1, named + 1)))
    more = ", ..." if count > named else ""
    assert line == f"lost messages: {count} ({shown}{more})"
