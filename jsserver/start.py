"""The program's main part: what serves clients, and behind it the control plane."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from jsserver import StartError, program
from jsserver.config.options import Options
from jsserver.front import SIGNALS, Front, explained
from jsserver.process.logs import LogError, Logger


def run(options: Options, without_effect: Sequence[str] = ()) -> int:
    """One server until a signal ends it; the exit code.

    `without_effect` is what the configuration sets in vain, for the log.
    """
    # Who ends the server while it starts finds it ending in order, not dead with open clients.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        log = Logger(
            options.log_file,
            debug=options.debug,
            trace=options.trace,
            timestamps=options.logtime,
            utc=options.logtime_utc,
            size_limit=options.log_size_limit,
            max_files=options.log_max_num,
        )
    except LogError as e:
        sys.stderr.write(f"{program()}: {e}\n")
        return 1
    code = _serve(options, log, without_effect)
    log.close()
    return code


def _serve(options: Options, log: Logger, without_effect: Sequence[str]) -> int:
    try:
        front = Front(options, log)
    except StartError as e:
        log.fatal(str(e))
        return 1
    try:
        front.announce(without_effect)
        listening = front.open()
    except Exception as e:
        log.fatal(explained(e))
        front.listeners.close()
        front.stop()
        front.close()
        return 1
    # Not before clients are served: all this takes longer to load than what serves them.
    import asyncio

    from jsserver.server import serve

    return asyncio.run(serve(front, listening))
