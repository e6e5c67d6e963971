"""Whatever the control plane still asks of a data plane that is closed, it is told so."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jsserver.cext.engine import DataPlane
from jsserver.cext.stream import StreamClosed
from tests.unit.stream_world import FILE, stream_params
from tests.waiting import wait_until


def test_every_method_says_that_the_plane_is_closed() -> None:
    command = [sys.executable, "-m", "tests.unit.closed_plane"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = ended.stdout.splitlines()
    known = ("PlaneClosed", "StreamClosed", "life")
    wrong = [line for line in lines if line.split()[-1] not in known]
    assert not wrong, wrong
    assert ended.returncode == 0, (lines[-1:], ended.stderr)
    assert len(lines) > 90


def test_who_waits_for_the_disk_hears_that_the_plane_is_closed(tmp_path: Path) -> None:
    """No commit thread runs, so nothing becomes durable."""
    plane = DataPlane()
    plane.open_store(
        sync_interval=0, domain=b"", max_memory=-1, max_storage=-1, max_payload=1 << 20
    )
    account = plane.account("A", b"01234567")
    (tmp_path / "msgs").mkdir()
    stream = account.open_stream(str(tmp_path), stream_params(storage=FILE))
    stream.activate()
    account.publish(b"s.a", b"", b"", b"x")
    assert stream.changed_ticket()
    said = []

    def wait() -> None:
        with pytest.raises(StreamClosed) as error:
            stream.wait_durable()
        said.append(str(error.value))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    state = Path(f"/proc/self/task/{waiting.native_id}/stat")
    wait_until(lambda: state.read_text().split()[2] == "S", "the thread to wait")
    plane.close()
    waiting.join(10)
    assert said == ["the stream is closed"]
    stream.close(delete=False)
