"""What holds a one-file executable together: dying with the parent, clearing what was left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jsserver.process import procs

CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''
import os, sys, time
from jsserver.process import procs
procs.die_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
'''])
child.wait()
"""

LOCKER = """
import sys, time
from jsserver.process import procs
procs.mark_in_use(sys.argv[1])
print("locked", flush=True)
time.sleep(60)
"""


def test_a_child_dies_when_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        # A pidfd becomes readable when its process ends, with any parent.
        watch = os.pidfd_open(child)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(10)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                signal.pidfd_send_signal(watch, 0)
            except ProcessLookupError:
                break
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.01)
        else:
            os.kill(child, signal.SIGKILL)
            raise AssertionError("the child lives on")
        os.close(watch)


def folder(parent: Path, name: str, *, lock: bool) -> Path:
    made = parent / name
    made.mkdir()
    (made / "libpython.so").write_bytes(b"x")
    if lock:
        (made / procs.LOCK_NAME).touch()
    return made


def test_only_folders_of_dead_instances_of_ours_are_removed(tmp_path: Path) -> None:
    dead = folder(tmp_path, "_MEIdead", lock=True)
    foreign = folder(tmp_path, "_MEIforeign", lock=False)
    other = folder(tmp_path, "unrelated", lock=True)
    target = folder(tmp_path, "target", lock=True)
    (tmp_path / "_MEIlink").symlink_to(target)
    alive = folder(tmp_path, "_MEIalive", lock=False)
    command = [sys.executable, "-c", LOCKER, str(alive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert procs.remove_stale_folders(str(tmp_path)) == [str(dead)]
        assert alive.exists() and foreign.exists() and other.exists() and target.exists()
        holder.kill()
        holder.wait(10)
    assert procs.remove_stale_folders(str(tmp_path)) == [str(alive)]


@pytest.mark.parametrize(
    ("own", "parent", "expected"),
    [
        ("jsserver", "jsserver", True),
        ("jsserver", "systemd", False),
        ("jsserver", None, False),  # init of another user, hidden
        (None, None, True),  # no /proc
    ],
)
def test_an_orphan_knows_that_its_launcher_is_gone(
    tmp_path: Path, own: str | None, parent: str | None, expected: bool
) -> None:
    for pid, name in (("self", own), (str(os.getppid()), parent)):
        if name is not None:
            (tmp_path / pid).mkdir()
            (tmp_path / pid / "comm").write_text(name + "\n")
    assert procs.parent_is_launcher(str(tmp_path)) is expected


def test_nothing_happens_outside_a_one_file_executable() -> None:
    assert procs.extraction_folder() is None
    procs.join_launcher()
    assert procs.remove_stale_folders() == []
