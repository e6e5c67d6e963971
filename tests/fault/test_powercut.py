"""Power cuts: a recorded load, and images of what the disk may hold at any instant of it.

The number of images and the seed come from the environment: `POWERCUT_IMAGES` (18), of which a
third is aimed at purges and a third encrypted, and `POWERCUT_SEED` (1, shown).
"""

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.fault.powercut import load
from tests.fault.powercut.disk import JOURNAL, LOOSE, RENAME, Disk, Event, read_log
from tests.seeds import seed_of
from tests.servers import Server, command_under_test

IMAGES = int(os.environ.get("POWERCUT_IMAGES", "18"))
SEED = seed_of("POWERCUT_SEED")
IMAGES_A_RUN = 50
SECONDS = 3.0


def server_on(store: Path, folder: Path, cipher: str, env: dict[str, str] | None = None) -> Server:
    """A server with a key, if there is a cipher."""
    words = f'key: "secret", cipher: {cipher}' if cipher else ""
    config = f'jetstream {{ store_dir: "{store}", {words} }}'
    return Server(command_under_test(), folder, env=env, config=config)


def record(
    folder: Path, recorder: Path, seed: int, cipher: str
) -> tuple[list[Event], list[load.Stream]]:
    """Loads a server for a while; what it did to its files, and what was asked and answered."""
    store = folder / "store"
    store.mkdir(parents=True)
    log = folder / "record"
    env = {"LD_PRELOAD": str(recorder), "RECORD_ROOT": str(store), "RECORD_LOG": str(log)}
    server = server_on(store, folder / "server", cipher, env)
    server.start()
    streams = load.streams()
    stop = threading.Event()
    try:
        with RawApp(server.port) as client:
            for stream in streams:
                stream.create(client)
        threads = [
            threading.Thread(target=stream.run, args=(server.port, stop, seed + number))
            for number, stream in enumerate(streams)
        ]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)  # how long the record is
        stop.set()
        for thread in threads:
            thread.join(30)
    finally:
        server.kill()
    for stream in streams:
        assert not stream.failure, stream.failure
        assert stream.messages, stream.name
    events = read_log(log)
    assert any(e.kind == RENAME and "/PACKED/" in e.path and ".blk.tmp" in e.path for e in events)
    return events, streams


def cuts(events: list[Event], number: int, chance: random.Random) -> list[int]:
    """Where to cut: a third of them around the renamings of purges."""
    purges = [
        i
        for i, e in enumerate(events)
        if e.kind == RENAME and ("__new_msgs__" in e.path or "__msgs__" in e.path2)
    ]
    assert purges
    aimed = [
        min(max(chance.choice(purges) + chance.randint(-6, 6), 1), len(events) - 1)
        for _ in range(number // 3)
    ]
    first = len(events) // 10
    return sorted(
        aimed + [chance.randrange(first, len(events)) for _ in range(number - len(aimed))]
    )


def images(
    events: list[Event], root: str, model: str, number: int, to: Path, chance: random.Random
) -> Iterator[tuple[int, Path]]:
    """(the time of the cut, a store directory) for each cut, one after the other."""
    disk = Disk(root, model)
    at = 0
    for count, cut in enumerate(cuts(events, number, chance)):
        while at < cut:
            disk.follow(events[at])
            at += 1
        image = to / f"image{count}"
        disk.image(image, chance)
        yield events[cut - 1].time, image
        shutil.rmtree(image)


def verify(image: Path, streams: list[load.Stream], cut: int, folder: Path, cipher: str) -> None:
    server = server_on(image, folder, cipher)
    server.start()
    try:
        with RawApp(server.port) as client:
            for stream in streams:
                load.check(stream, client, cut)
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.timeout(60 + IMAGES * 30)
@pytest.mark.parametrize(
    ("model", "cipher", "part"),
    [(JOURNAL, "", 3), (LOOSE, "", 3), (JOURNAL, "aes", 6), (LOOSE, "chacha", 6)],
)
def test_no_power_cut_takes_back_what_was_promised(
    tmp_path: Path, recorder: Path, model: str, cipher: str, part: int
) -> None:
    share = max(IMAGES // part, 1)
    for run in range(0, share, IMAGES_A_RUN):
        seed = SEED + run
        folder = tmp_path / f"run{run}"
        events, streams = record(folder, recorder, seed, cipher)
        chance = random.Random(seed)
        root = str(folder / "store")
        number = min(share - run, IMAGES_A_RUN)
        for count, (cut, image) in enumerate(images(events, root, model, number, folder, chance)):
            kept = folder / f"kept{count}"
            shutil.copytree(image, kept)
            try:
                verify(image, streams, cut, folder / f"server{count}", cipher)
            except BaseException as error:
                raise AssertionError(f"seed {seed}, image {kept}: {error}") from error
            shutil.rmtree(kept)
