"""A file that only takes up room, given up when the disk is full for what must still be written."""

import os

SIZE = 1 << 20


class Ballast:
    """The file in a store directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, ".jsserver.ballast")

    def make(self) -> None:
        """Makes it, and is sure that it has its room; OSError if there is none."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, SIZE)
            os.fsync(fd)
        except OSError:
            self._remove()
            raise
        finally:
            os.close(fd)

    def _remove(self) -> None:
        try:
            os.unlink(self.path)
        except OSError:
            return  # then it takes up some room
