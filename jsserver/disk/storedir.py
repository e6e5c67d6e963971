"""The store directory: where JetStream's data lies, locked against a second server."""

import os

from jsserver.cext.store import lock_directory
from jsserver.disk.directories import make_directory
from jsserver.text.goformat import failure, reason

LOCK = ".jsserver.lock"
"""The file whose lock keeps other servers off."""


OTHER = "another server"


class StoreDirError(Exception):
    """The store directory cannot be used; the text says why."""


class InUse(StoreDirError):
    """Another server has locked the directory."""


class StoreDir:
    """`<store_dir>/jetstream`, made when it is missing, locked until close().

    Without a configured directory it lies among the temporary files, where several servers may
    want it: those that come later take a directory of their own beside it, named after their port,
    so that they find it again. `port` is what the server is to listen on; a server that asked for
    any free port (0 or below) could not find its own again, so close() removes it.
    """

    def __init__(self, configured: str, port: int = 0) -> None:
        self.temporary = not configured
        self._disposable = False
        if configured:
            self._take(store_path(configured))
            return
        from jsserver.text import nuid  # which few need

        shared = store_path("")
        own = f"{shared}-{port if port > 0 else nuid.new()}"
        if not os.path.exists(own):
            try:
                self._take(shared)
                return
            except InUse:
                pass
        self._take(own)
        self._disposable = port <= 0

    def _take(self, path: str) -> None:
        self.path = path
        if os.path.exists(path) and not os.path.isdir(path):
            raise StoreDirError("storage directory is not a directory")
        try:
            make_directory(path, 0o750)
        except (FileExistsError, NotADirectoryError) as e:
            raise StoreDirError("storage directory is not a directory") from e
        except OSError as e:
            said = f"mkdir {e.filename}: {reason(e).lower()}{_remedy(e, path)}"
            raise StoreDirError(f"could not create storage directory - {said}") from e
        try:
            self._lock = lock_directory(path)
        except BlockingIOError as e:
            raise InUse(f'store directory "{path}" is in use by {user_of(path) or OTHER}') from e
        except OSError as e:
            raise StoreDirError(
                f"cannot lock store directory: {failure(e)}{_remedy(e, path)}"
            ) from e

    def close(self) -> None:
        if self._disposable:
            import shutil  # costs a start some milliseconds, and few need it

            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remedy(error: OSError, path: str) -> str:
    from jsserver.text.denied import remedy  # few need it

    return remedy(error, path)


def user_of(path: str) -> str:
    """Who has locked a store directory, in words; "": nobody has."""
    try:
        inode = os.stat(os.path.join(path, LOCK)).st_ino
        with open("/proc/locks", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return ""
    for row in rows:  # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF
        match row:
            case [_, "FLOCK", _, _, pid, file_of, *_] if file_of.rpartition(":")[2] == str(inode):
                return f"another server (pid {pid})"
    return ""


def store_path(configured: str) -> str:
    """Where the data lies, of what `store_dir` says."""
    return os.path.join(configured or _temporary_root(), "jetstream")


WITHIN = (
    "store_dir {} holds streams itself, which are not served: the data lies in a folder jetstream"
    " below store_dir, so name the folder above"
)
"""The warning where `store_dir` names what lies in it."""


def is_within_store(configured: str) -> bool:
    """Whether `store_dir` is a folder of accounts, as its contents say: nothing in it is found, as
    it is looked for one folder below."""
    try:
        with os.scandir(configured) as entries:
            return any(os.path.isdir(os.path.join(e.path, "streams")) for e in entries)
    except OSError:
        return False


def _temporary_root() -> str:
    import tempfile  # costs a start some milliseconds, and few need it

    return os.path.join(tempfile.gettempdir(), "nats")


def free(directory: str | os.PathLike[str]) -> int:
    """Bytes that may still be written on its file system."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def memory_of_machine() -> int:
    """Bytes of RAM this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
