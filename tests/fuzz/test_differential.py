"""Random sequences of JetStream operations: the server under test does as nats-server does.

`make soak` plays new ones for longer: `DIFFERENTIAL_SECONDS`, from `DIFFERENTIAL_SEED` on.
"""

import os
import time
from pprint import pformat

import pytest

from tests.fuzz.differential import Side, difference, shortest, steady
from tests.fuzz.flows import FlowMaker
from tests.fuzz.sequences import Maker
from tests.servers import Servers

SECONDS = float(os.environ.get("DIFFERENTIAL_SECONDS", "12"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))
STEPS = 50


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize(("maker", "part"), [(Maker, 1), (FlowMaker, 0.3)], ids=["all", "flow"])
def test_random_sequences(
    servers: Servers, peer_present: None, maker: type[Maker], part: float
) -> None:
    options = {"jetstream": True, "args": ["-n", "one"]}
    sides = [Side(servers.under_test(**options).port), Side(servers.peer(**options).port)]
    end = time.monotonic() + SECONDS * part
    seed = SEED
    while seed == SEED or time.monotonic() < end:
        steps = maker(seed).steps(STEPS)
        if found := steady(sides, steps):
            steps = shortest(sides, steps)
            pytest.fail(f"seed {seed}:\n{pformat(steps)}\n{difference(sides, steps) or found}")
        seed += 1
    for side in sides:
        side.close()
