"""What control plane and data plane both call by a number has the same number in both."""

import re
from enum import IntEnum
from pathlib import Path

import pytest

from jsserver.api import consumer_admin
from jsserver.instances import backend

CEXT = Path(__file__).resolve().parents[2] / "cext"
CONSTANT = re.compile(r"^    ([A-Z]\w+) = (\d+)", re.MULTILINE)
ENUMS: dict[type[IntEnum], tuple[str, dict[str, str]]] = {
    backend.Retention: ("RETAIN_", {}),
    backend.Storage: ("STORE_", {}),
    backend.DeliverPolicy: (
        "DELIVER_",
        {"BY_START_SEQUENCE": "BY_SEQUENCE", "BY_START_TIME": "BY_TIME"},
    ),
    backend.AckPolicy: ("ACK_", {"FLOW_CONTROL": "FLOW"}),
    backend.PriorityPolicy: ("PRIORITY_", {"PRIORITIZED": "SORTED", "PINNED_CLIENT": "PINNED"}),
    backend.AdvisoryKind: ("ADV_", {}),
}
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


@pytest.mark.parametrize("kind", ENUMS)
def test_enums(kind: type[IntEnum]) -> None:
    prefix, others = ENUMS[kind]
    there = constants(prefix)
    for member in kind:
        name = others.get(member.name, member.name)
        assert there[name] == member, f"{prefix}{name}"


def test_reasons_why_consumers_wait() -> None:
    there = constants("WAITS_")
    assert len(there) == 16
    shown = consumer_admin.REASONS
    assert len(shown) == len(there) + 1
    for name, number in there.items():
        assert shown[number] == REASONS.get(name, name.lower())
