"""What the data plane has allocated in this process: only a build with checks counts it."""

import ctypes
import gc
import sys
from collections.abc import Iterator

import pytest

COUNTED = (
    "test_bytes_",
    "test_consumer_",
    "test_link",
    "test_raft_",
    "test_store_batch",
    "test_store_heads",
    "test_store_slim",
    "test_stream_",
)
"""How the modules of tests/unit begin whose tests give back all that they take."""


def blocks() -> int:
    """Blocks of memory that all extensions together have taken and not given back."""
    found = 0
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if path.endswith(".so") and name.startswith(("jsserver.", "tests.", "jsserver_spark.")):
            found += ctypes.c_long.in_dll(ctypes.CDLL(path), "jsserver_blocks").value
    return found


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test gives back what it has taken."""
    if request.path.parent.name != "unit" or not request.path.name.startswith(COUNTED):
        yield
        return
    gc.collect()
    before = blocks()
    yield
    request.node.funcargs.clear()  # else they stay until the test is reported
    gc.collect()
    left = blocks() - before
    assert left <= 0, f"{left} blocks of memory are left"
