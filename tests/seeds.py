"""Where random tests take their seed from.

The suite's runs are the same every time, as its other tests are; `SEEDS=random` (`make soak`) looks
for something new.
"""

import os
import random


def seed_of(name: str) -> int:
    """The seed that the environment gives under `name`; else 1, or a random one if asked for."""
    if name in os.environ:
        return int(os.environ[name])
    return random.SystemRandom().randrange(1 << 32) if os.environ.get("SEEDS") == "random" else 1
