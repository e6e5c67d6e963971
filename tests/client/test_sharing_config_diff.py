"""What both servers say of exports and imports in a configuration."""

from pathlib import Path

import pytest

from tests.client.test_config_diff import check, folder  # noqa: F401

pytestmark = pytest.mark.usefixtures("peer_present")

CASES = Path(__file__).with_name("sharing.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize("accounts", CASES)
def test_what_is_wrong_with_it(accounts: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(f"accounts {{ {accounts} }}\n", capsys)
