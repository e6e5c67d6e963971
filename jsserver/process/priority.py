"""Which of the server's threads the processor goes to first when there are more than cores.

Messages come before decisions: the reactor and the commit thread ask for short turns, which lets
them run as soon as there is something to do, and the control plane steps back a little, so that
a flood of API requests does not delay messages. Where the system knows neither, all stay equal.
"""

import contextlib
import os
import struct

from jsserver.process import libc

SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# struct sched_attr of sched_setattr(2): size, policy, flags, nice, priority, then runtime,
# deadline and period in nanoseconds.
SCHED_ATTR = struct.Struct("=IIQiIQQQ")
SLICE_NS = 100_000
"""The shortest turn that Linux grants (6.12 and later; before, the call changes nothing)."""
STEP_BACK = 5
"""Nice levels: against a thread that stayed, about a quarter of a core is left."""


def ask_for_short_turns() -> None:
    """For the calling thread, unless it was given another scheduling policy from outside."""
    number = SCHED_SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = SCHED_ATTR.pack(SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    # A refusal is no harm: the thread runs as it did.
    libc.call("syscall", number, 0, attributes, 0)


def step_back() -> None:
    """For the calling thread and those that it starts from now on."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + STEP_BACK)
