"""The corpus of raw protocol conversations that two servers must hold in the same way."""

from tests.client.protocol import access, limits, messages, routing, wire
from tests.client.protocol.case import CASES

__all__ = ["CASES", "access", "limits", "messages", "routing", "wire"]

assert len({case.name for case in CASES}) == len(CASES), "two cases share a name"
