"""Kills while a start encrypts a store, or gives it other keys: the next start has everything."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.client.test_encryption import fill, in_clear, served, started
from tests.fault.faulty import Faults
from tests.servers import Server, Servers, command_under_test
from tests.waiting import wait_until

KILLS = 4
"""Of each operation, spread over all calls of a conversion."""
OPERATIONS = ("rename", "sync")

Options = dict[str, str]


def converting(folder: Path, store: Path, faults: Faults, options: Options) -> Server:
    """A server that is about to be launched on the store."""
    words = "".join(f'{name}: "{value}", ' for name, value in options.items())
    config = f'jetstream {{ store_dir: "{store}", {words} }}'
    return Server(command_under_test(), folder, config=config, env=faults.env)


def calls_of(folder: Path, store: Path, faults: Faults, options: Options) -> dict[str, int]:
    """How often a conversion calls each operation."""
    for op in OPERATIONS:
        faults.fail(op, 0, times=1 << 30)
    server = converting(folder, store, faults, options)
    server.start()
    counted = {op: faults.seen(op) for op in OPERATIONS}
    server.kill()
    faults.mend()
    return counted


def is_reached(faults: Faults, op: str) -> bool:
    return faults.seen(op) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("compression", ["none", "s2"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"key": "new", "cipher": "chacha"}),
        (
            {"key": "old", "cipher": "chacha"},
            {"key": "new", "prev_key": "old", "cipher": "aes"},
        ),
    ],
    ids=["first key", "other key"],
)
def test_a_kill_in_a_conversion_loses_nothing(
    servers: Servers, tmp_path: Path, before: Options, after: Options, compression: str
) -> None:
    """Whether the next start goes on with it, or goes back to the key before."""
    server = started(servers, "ours", tmp_path / "store", **before)
    fill(server.port, compression)
    expected = served(server.port)
    server.stop()
    faults = Faults(tmp_path, "/streams/S/")
    shutil.copytree(tmp_path / "store", tmp_path / "counted")
    counted = calls_of(tmp_path / "counting", tmp_path / "counted", faults, after)
    back = {"key": "old", "prev_key": "new", "cipher": "chacha"} if before else after
    for op, total in counted.items():
        assert total > KILLS, (op, total)
        for number in range(KILLS):
            name = f"{op}{number}"
            store = tmp_path / name
            shutil.copytree(tmp_path / "store", store)
            faults.fail(op, 0, after=total * number // KILLS, held=True)
            server = converting(tmp_path / f"server-{name}", store, faults, after)
            server.launch()
            wait_until(partial(is_reached, faults, op), f"{name} is reached")
            server.kill()
            faults.mend()
            server = started(servers, "ours", store, **(back if number % 2 else after))
            assert served(server.port) == expected, name
            assert in_clear(store) == []
            server.stop()
            shutil.rmtree(store)
