"""What the control plane sees of the store: the lock on its directory."""

import os

def lock_directory(path: str | os.PathLike[str]) -> int:
    """Keeps a second server off a store directory while the returned descriptor is open.

    BlockingIOError: another process holds it. OSError: it cannot be made.
    """
