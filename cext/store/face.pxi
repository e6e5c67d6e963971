# The Python face: what the control plane needs of a store directory.

import fcntl
import os


def journal_drain(path, bint look=False) -> tuple:
    """Brings what the journal in a store directory holds into the files, and removes the journal: how many rounds, files and
    bytes that were, whether some of it was damaged, and whether it was outdated: nats-server has started on the directory
    since, so nothing of it was brought into the files. OSError: it is left as it is. look: only says what there is."""
    cdef bytes root = os.fsencode(path)
    cdef const char* text = root
    cdef JournalReport report
    cdef int rc
    with nogil:
        rc = journal_empty(posix_files(), text, look, &report)
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), os.fspath(path))
    return report.frames, report.files, report.bytes, report.damaged, report.outdated


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
