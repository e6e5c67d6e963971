"""Keeps the two processes of a one-file executable together and its extraction folders few.

A one-file executable's launcher extracts to a folder `_MEI…` and runs the server as its child. The
launcher forwards signals and the exit code, and removes the folder at the end; killed with SIGKILL
it does neither. So the child asks the kernel to die with it, and each start removes the folders
that killed ones left. In every other form of the program these calls do nothing.
"""

import fcntl
import os
import signal
import sys

from jsserver.process import libc

PR_SET_PDEATHSIG = 1  # prctl(2)
LOCK_NAME = "jsserver.lock"
FOLDER_PREFIX = "_MEI"


def extraction_folder() -> str | None:
    """The folder this process was extracted to; None unless it is a one-file executable."""
    folder: str = getattr(sys, "_MEIPASS", "")
    return folder if os.path.basename(folder).startswith(FOLDER_PREFIX) else None


def die_with_parent() -> None:
    """Has the kernel send this process SIGKILL once its parent is dead."""
    libc.call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def join_launcher() -> None:
    """First thing at the start of a one-file executable: from here on the launcher and this
    process live and die together, and the extraction folder is marked as in use."""
    folder = extraction_folder()
    if folder is None:
        return
    die_with_parent()
    if not parent_is_launcher():
        # Killed before the kernel was told.
        os.kill(os.getpid(), signal.SIGKILL)
    mark_in_use(folder)


def mark_in_use(folder: str) -> int:
    """Locks a file in `folder` for as long as this process lives; returns its descriptor.

    The file gets its name only once it is locked, so nobody ever finds it unlocked in a folder
    whose process lives.
    """
    name = os.path.join(folder, LOCK_NAME)
    draft = f"{name}.{os.getpid()}"
    descriptor = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(draft, name)
    return descriptor


def remove_stale_folders(parent: str = "") -> list[str]:
    """Removes the extraction folders in `parent` whose processes are dead; returns them.

    Only folders that are certainly ours: of this user, with our lock file, and nobody holding the
    lock. `parent` defaults to the folder that holds this process's own; without one, nothing.
    """
    if not parent:
        own = extraction_folder()
        if own is None:
            return []
        parent = os.path.dirname(own)
    removed = []
    with os.scandir(parent) as entries:
        for entry in entries:
            if _is_abandoned(entry):
                import shutil  # costs a start some milliseconds, and few need it

                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(entry.path)
    return removed


def _is_abandoned(entry: "os.DirEntry[str]") -> bool:
    if not entry.name.startswith(FOLDER_PREFIX):
        return False
    try:
        if not entry.is_dir(follow_symlinks=False):
            return False
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(entry.path, LOCK_NAME), flags)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def parent_is_launcher(proc: str = "/proc") -> bool:
    """Whether the launcher is still there: it has this process's name and its user, so that its
    name can be read; a process that adopts orphans has another name, or hides it."""
    try:
        with open(f"{proc}/self/comm", "rb") as file:
            name = file.read()
    except OSError:
        return True  # without /proc nobody can tell
    try:
        with open(f"{proc}/{os.getppid()}/comm", "rb") as file:
            return file.read() == name
    except OSError:
        return False


def environment_of_others() -> dict[str, str]:
    """The environment for other programs: the launcher of a one-file executable has this process
    look for libraries in its extraction folder first."""
    environment = dict(os.environ)
    if extraction_folder() is not None:
        before = environment.pop("LD_LIBRARY_PATH_ORIG", "")
        environment.pop("LD_LIBRARY_PATH", None)
        if before:
            environment["LD_LIBRARY_PATH"] = before
    return environment
