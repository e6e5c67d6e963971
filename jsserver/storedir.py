"""The store directory: where JetStream's data lies, locked against a second server."""

import os
import shutil
import tempfile
from pathlib import Path

from jsserver.cext.store import lock_directory


class StoreDirError(Exception):
    """The store directory cannot be used; the text says why."""


class StoreDir:
    """`<store_dir>/jetstream`, made when it is missing, locked until close()."""

    def __init__(self, configured: str) -> None:
        root = configured or os.path.join(tempfile.gettempdir(), "nats")
        self.path = Path(root) / "jetstream"
        if self.path.exists() and not self.path.is_dir():
            raise StoreDirError("storage directory is not a directory")
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as e:
            raise StoreDirError("storage directory is not a directory") from e
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
            raise StoreDirError(
                f"could not create storage directory - mkdir {e.filename}: {reason}"
            ) from e
        try:
            self._lock = lock_directory(str(self.path))
        except BlockingIOError as e:
            raise StoreDirError(f'store directory "{self.path}" is in use by another server') from e
        except OSError as e:
            raise StoreDirError(f"cannot lock store directory: {e}") from e

    def free(self) -> int:
        """Bytes that may still be written on its file system."""
        return shutil.disk_usage(self.path).free

    def close(self) -> None:
        os.close(self._lock)


def memory_of_machine() -> int:
    """Bytes of RAM this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
