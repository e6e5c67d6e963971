"""What an operator can do where the system does not let the server write."""

import errno
import os


def remedy(error: OSError, path: str) -> str:
    """In brackets, behind what the system said of writing to a path; "": nothing is known."""
    folder = _existing(path)
    if error.errno == errno.EROFS:
        return (
            f" ({_mount(folder)} is read-only for this server; under systemd name {folder}"
            " in ReadWritePaths=)"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        own, others = _user(os.geteuid()), _user(os.stat(folder).st_uid)
        return f" (the server runs as user {own}, {folder} belongs to {others})"
    return ""


def _existing(path: str) -> str:
    """The path, or the folder above it that is the first one to be there."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _mount(path: str) -> str:
    """Where the file system of a path is mounted; "/" where the system does not tell."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [_unescaped(line.split()[4]) for line in file]
    except OSError:
        mounts = []
    around = (mount for mount in mounts if os.path.commonpath((mount, path)) == mount)
    return max(around, key=len, default="/")


def _unescaped(text: str) -> str:
    for code in ("\\040", "\\011", "\\012", "\\134"):  # blank, tab, end of line, backslash
        text = text.replace(code, chr(int(code[1:], 8)))
    return text


def _user(number: int) -> str:
    import pwd  # few need it

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
