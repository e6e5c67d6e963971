"""What this process takes of the machine: processor share and resident memory."""

import os
import time


class ProcessUsage:
    """Reads /proc; keeps what it takes to tell the processor's share of late."""

    SAMPLE_NS = 1_000_000_000
    """The share is of a span at least this long, which ends at the question if it can."""

    def __init__(self) -> None:
        self._at = time.monotonic_ns()
        self._spent = time.process_time_ns()
        self._share = 0.0

    def cpu_percent(self) -> float:
        """Processor time of all threads since the last sample, in percent of one core."""
        now, spent = time.monotonic_ns(), time.process_time_ns()
        if now - self._at >= self.SAMPLE_NS:
            self._share = round(100 * (spent - self._spent) / (now - self._at), 1)
            self._at, self._spent = now, spent
        return self._share

    def memory(self) -> int:
        """Resident bytes; 0 where there is no /proc."""
        try:
            with open("/proc/self/statm", "rb") as statm:
                pages = int(statm.read().split()[1])
        except OSError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")
