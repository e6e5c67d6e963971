"""Which of the server's threads the processor goes to first when there are more than cores.

Messages come before decisions: the reactors and the commit thread ask for short turns, which lets
them run as soon as there is something to do. Threads that run Python keep the nice level that the
server was started with: beside busy processes a lower one makes logins and requests wait several
times as long, and short turns for them too gain nothing. Where the system knows no short turns,
all stay equal.
"""

import os
import sys

from jsserver.process import libc

SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# struct sched_attr of sched_setattr(2): size, policy, flags, nice, priority, then runtime,
# deadline and period in nanoseconds: so many bytes each.
SCHED_ATTR = (4, 4, 8, 4, 4, 8, 8, 8)
SLICE_NS = 100_000
"""The shortest turn that Linux grants (6.12 and later; before, the call changes nothing)."""


def ask_for_short_turns() -> None:
    """For the calling thread, unless it was given another scheduling policy from outside."""
    number = SCHED_SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    fields = (sum(SCHED_ATTR), os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    attributes = b"".join(
        field.to_bytes(size, sys.byteorder, signed=field < 0)
        for field, size in zip(fields, SCHED_ATTR, strict=True)
    )
    # A refusal is no harm: the thread runs as it did.
    libc.call("syscall", number, 0, attributes, 0)
