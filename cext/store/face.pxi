# The Python face: what the control plane needs of a store directory.

import fcntl
import os


def lock_directory(path) -> int:
    """Takes the lock that keeps a second server off a store directory; its descriptor, to be kept open.

    BlockingIOError when another process holds it, OSError when it cannot be made.
    """
    name = os.path.join(os.fspath(path), ".jsserver.lock")
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise BlockingIOError(error.errno, f"{os.fspath(path)}: in use by another server") from None
    return fd
