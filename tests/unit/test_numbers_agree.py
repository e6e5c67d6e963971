"""What control plane and data plane both call by a number has the same number in both."""

import re
from pathlib import Path

from jsserver.api import consumer_admin
from jsserver.instances import backend

CEXT = Path(__file__).resolve().parents[2] / "cext"
CONSTANT = re.compile(r"^    ([A-Z]\w+) = (\d+)", re.MULTILINE)
REASONS = {
    "FAILED": "stream",
    "INTEREST": "no_interest",
    "REQUEST": "no_request",
    "START": "counting",
    "FLOW": "flow_control",
    "ACKS": "max_ack_pending",
    "RATE": "rate_limit",
    "PIN": "pinned",
    "MESSAGE": "no_message",
}


def constants(prefix: str) -> dict[str, int]:
    """Those of the data plane, without their prefix."""
    found = {}
    for path in [*CEXT.glob("*.pxd"), *CEXT.rglob("*.pxi")]:
        for name, number in CONSTANT.findall(path.read_text()):
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = int(number)
    return found


def test_kinds_of_advisories() -> None:
    there = constants("ADV_")
    for member in backend.AdvisoryKind:
        assert there[member.name] == member, member.name


def test_reasons_why_consumers_wait() -> None:
    there = constants("WAITS_")
    assert len(there) == 16
    shown = consumer_admin.REASONS
    assert len(shown) == len(there) + 1
    for name, number in there.items():
        assert shown[number] == REASONS.get(name, name.lower())
