"""Numbers in the subjects of acks and in answers, against Python's own."""

from hypothesis import given
from hypothesis import strategies as st

from tests.cext.stream import decimal

UINT64_MAX = 2**64 - 1


def test_numbers_around_each_power_of_ten_are_written_as_they_are() -> None:
    for power in range(20):
        for v in (10**power - 1, 10**power, 10**power + 1, 10**power * 9):
            assert decimal(min(v, UINT64_MAX)) == b"%d" % min(v, UINT64_MAX)


@given(st.integers(0, UINT64_MAX) | st.integers(0, 10**9))
def test_any_number_is_written_as_it_is(v: int) -> None:
    assert decimal(v) == b"%d" % v
