"""Runs the server in this process and holds Python's lock for a while when it is told to.

Used by `test_gil.py` only. The command line is the server's; each line on standard input is a
number of seconds for which the lock is held by a C call that does not release it. A line on
standard output says when it was taken and another when it was given back.
"""

import ctypes
import os
import sys
import threading

from jsserver.cli import main


def hold_the_lock_as_told() -> None:
    """`PyDLL` functions keep the lock; nothing in Python runs until the call returns."""
    microsleep = ctypes.PyDLL(None).usleep
    for line in sys.stdin:
        os.write(1, b"held\n")
        microsleep(int(float(line) * 1_000_000))
        os.write(1, b"released\n")


if __name__ == "__main__":
    threading.Thread(target=hold_the_lock_as_told, daemon=True).start()
    sys.exit(main())
