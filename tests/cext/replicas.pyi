"""Types of the states of streams in snapshots."""

from typing import Any

from jsserver.cext.consumer import StreamHandle

def state_of(face: StreamHandle) -> bytes: ...
def read_state(state: bytes, most: int = 1000) -> dict[str, Any] | None: ...
