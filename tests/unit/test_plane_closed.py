"""Whatever the control plane still asks of a data plane that is closed, it is told so."""

import subprocess
import sys


def test_every_method_says_that_the_plane_is_closed() -> None:
    command = [sys.executable, "-m", "tests.unit.closed_plane"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = ended.stdout.splitlines()
    known = ("PlaneClosed", "StreamClosed", "life")
    wrong = [line for line in lines if line.split()[-1] not in known]
    assert not wrong, wrong
    assert ended.returncode == 0, (lines[-1:], ended.stderr)
    assert len(lines) > 90
