"""Sends a signal to a running server, as `--signal reload=1234` asks for."""

import errno
import os
import signal

from jsserver.text.goformat import quote

SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}
_COMM_LENGTH = 15
"""The kernel keeps so many characters of a program's name."""


class SignalError(Exception):
    """A signal that was not sent; the text says why."""


def running(program: str, proc: str = "/proc") -> list[int]:
    """The processes called `program` but this one, without those that only launched another."""
    parents: dict[int, int] = {}
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        try:
            with open(f"{proc}/{entry}/stat", encoding="utf-8", errors="replace") as file:
                stat = file.read()
        except OSError:
            continue  # It ended meanwhile.
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        if name == program[:_COMM_LENGTH]:
            parents[int(entry)] = int(stat[stat.rindex(")") + 1 :].split()[1])
    launchers = set(parents.values()) | {os.getpid(), os.getppid()}
    return sorted(pid for pid in parents if pid not in launchers)


def _resolve(target: str, program: str) -> list[int]:
    """The processes meant by a pid, a pid file, a pid's first digits and `*`, or nothing."""
    everywhere = target.endswith("*")
    if everywhere or not target:
        pids = running(program)
        if everywhere:
            pids = [pid for pid in pids if str(pid).startswith(target[:-1])]
        if not pids:
            raise SignalError(f"no {program} processes running")
        if len(pids) > 1 and not everywhere:
            lines = "".join(f"\n{pid}" for pid in pids)
            raise SignalError(f"multiple {program} processes running:{lines}")
        return pids
    wrong = f"invalid pid: {target}"
    try:
        with open(target, encoding="utf-8", errors="replace") as file:
            target = file.read().strip()
    except OSError as error:  # Then it is the number itself.
        wrong += f": no process id, nor a file with one ({(error.strerror or str(error)).lower()})"
    else:
        wrong += f": the file holds no process id, but {quote(target[:80])}"
    if not (target.isascii() and target.isdigit()) or int(target) == 0:
        raise SignalError(wrong)
    return [int(target)]


def send(command: str, program: str) -> None:
    """Does what `signal[=pid]` says; `program` is the name of the processes to look for."""
    name, equals, target = command.partition("=")
    number = SIGNALS.get(name)
    if number is None:
        raise SignalError(f'unknown signal "{name}"')
    if equals and not target:
        raise SignalError("invalid pid: ")
    failures = ""
    for pid in _resolve(target, program):
        try:
            os.kill(pid, number)
        except (OSError, OverflowError) as error:
            missing = isinstance(error, OverflowError) or error.errno == errno.ESRCH
            reason = "no such process" if missing else os.strerror(errno.EPERM).lower()
            failures += f'\nsignal "{name}" {pid}: {reason}'
    if failures:
        raise SignalError(failures)
