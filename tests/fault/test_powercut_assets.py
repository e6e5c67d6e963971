"""Power cuts while streams and consumers are made, changed and removed: each is whole or absent.

A server's calls are recorded, and every state in which a cut may leave the disk is looked at as a
start would; some of them are served. The seed comes from the environment: `POWERCUT_SEED` (1,
shown).
"""

import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from jsserver.cext.bytes import hh64
from jsserver.instances.metafiles import MetaFiles
from tests.client.raw import RawApp
from tests.fault.powercut.disk import JOURNAL, LOOSE, Disk, Event, read_log
from tests.seeds import seed_of
from tests.servers import Server, command_under_test

SEED = seed_of("POWERCUT_SEED")
STREAMS = 6
SERVED = 4
"""Images that a server is started on."""

FILES = MetaFiles(hh64)


Recorded = tuple[str, list[Event], "dict[str, Asset]"]


@dataclass
class Asset:
    """A stream (`S`) or a consumer (`S/C`): when it was asked for and there, and likewise gone;
    0: never."""

    name: str
    asked: int = 0
    made: int = 0
    doomed: int = 0
    gone: int = 0

    def must_be_there(self, cut: int) -> bool:
        return 0 < self.made < cut and not 0 < self.doomed < cut

    def may_be_there(self, cut: int) -> bool:
        return 0 < self.asked < cut and not 0 < self.gone < cut


def make(client: RawApp) -> dict[str, Asset]:
    """Streams with two consumers each, of which some change and some go again."""
    assets: dict[str, Asset] = {}

    def asked(name: str, subject: str, body: object) -> None:
        asset = assets[name] = Asset(name, asked=time.monotonic_ns())
        answer = client.api(subject, body)
        assert "error" not in answer, answer
        asset.made = time.monotonic_ns()

    def removed(name: str, subject: str) -> None:
        concerned = [a for n, a in assets.items() if n == name or n.startswith(f"{name}/")]
        for asset in concerned:
            asset.doomed = time.monotonic_ns()
        assert client.api(subject).get("success")
        for asset in concerned:
            asset.gone = time.monotonic_ns()

    for number in range(STREAMS):
        name = f"S{number}"
        config: dict[str, object] = {"name": name, "subjects": [f"{name}.>"]}
        asked(name, f"STREAM.CREATE.{name}", config)
        for consumer in ("a", "b"):
            given = {"durable_name": consumer, "ack_policy": "explicit"}
            body = {"stream_name": name, "config": given}
            asked(f"{name}/{consumer}", f"CONSUMER.DURABLE.CREATE.{name}.{consumer}", body)
        client.request(f"{name}.x", b"data")
        answer = client.api(f"STREAM.UPDATE.{name}", config | {"description": "changed"})
        assert "error" not in answer, answer
        if number % 3 == 1:
            removed(f"{name}/a", f"CONSUMER.DELETE.{name}.a")
        elif number % 3 == 2:
            removed(name, f"STREAM.DELETE.{name}")
    return assets


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, recorder: Path) -> Recorded:
    folder = tmp_path_factory.mktemp("assets")
    store = folder / "store"
    store.mkdir()
    log = folder / "record"
    env = {"LD_PRELOAD": str(recorder), "RECORD_ROOT": str(store), "RECORD_LOG": str(log)}
    args = ["-js", "-sd", str(store)]
    server = Server(command_under_test(), folder / "server", env=env, args=args)
    server.start()
    try:
        with RawApp(server.port) as client:
            assets = make(client)
    finally:
        server.kill()
    return str(store), read_log(log), assets


def whole(image: Path) -> set[str]:
    """The streams and consumers that a start would serve; AssertionError for half ones."""
    found = set()
    for stream in sorted(image.glob("jetstream/*/streams/[!.]*")):
        FILES.read(stream, stream.name, os.listdir(stream))
        found.add(stream.name)
        for consumer in sorted(stream.glob("obs/*")):
            asset = f"{stream.name}/{consumer.name}"
            FILES.read(consumer, asset, os.listdir(consumer))
            found.add(asset)
    return found


def check(found: set[str], assets: dict[str, Asset], cut: int) -> None:
    for name, asset in assets.items():
        if name in found:
            assert asset.may_be_there(cut), f"{name} was gone"
        else:
            assert not asset.must_be_there(cut), f"{name} was there"


def served(image: Path, folder: Path) -> set[str]:
    """What a server finds in an image, and can use."""
    server = Server(command_under_test(), folder, args=["-js", "-sd", str(image)])
    server.start()
    found = set()
    try:
        assert "offline" not in server.log()
        with RawApp(server.port) as client:
            streams = client.api("STREAM.NAMES")["streams"] or []
            assert isinstance(streams, list)
            for stream in streams:
                found.add(stream)
                consumers = client.api(f"CONSUMER.NAMES.{stream}")["consumers"]
                assert isinstance(consumers, list)
                found.update(f"{stream}/{consumer}" for consumer in consumers)
                assert b'"seq"' in client.request(f"{stream}.x", b"more").payload
        assert server.stop() == 0
    finally:
        server.kill()
    left = [p for p in image.rglob(".*") if p.name.startswith((".new-", ".del-"))]
    assert not left, left
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", [JOURNAL, LOOSE])
def test_a_cut_leaves_each_asset_whole_or_absent(
    tmp_path: Path, recorded: Recorded, model: str
) -> None:
    root, events, assets = recorded
    chance = random.Random(SEED)
    disk = Disk(root, model)
    picked = set(chance.sample(range(len(events)), SERVED))
    for number, event in enumerate(events):
        disk.follow(event)
        image = tmp_path / "image"
        disk.image(image, chance)
        try:
            check(whole(image), assets, event.time)
            if number in picked:
                check(served(image, tmp_path / f"server{number}"), assets, event.time)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, event {number}, {image}: {error}") from error
        shutil.rmtree(image)
