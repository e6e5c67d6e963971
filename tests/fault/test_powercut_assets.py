"""Power cuts while streams and consumers are made, changed, restored and removed: each is whole or
absent, and as it was when that was answered, or as what was asked for since.

A server's calls are recorded, and every state in which a cut may leave the disk is looked at as a
start would; some of them are served. The seed comes from the environment: `POWERCUT_SEED` (1,
shown).
"""

import json
import os
import random
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jsserver.cext.bytes import hh64
from jsserver.instances.metafiles import MetaFiles
from tests.client.backups import backup, restore, stored
from tests.client.raw import RawApp
from tests.fault.powercut.disk import JOURNAL, LOOSE, Disk, Event, read_log
from tests.seeds import seed_of
from tests.servers import Server, command_under_test

SEED = seed_of("POWERCUT_SEED")
STREAMS = 6
RESTORED = "R"
MESSAGES = 20
"""Of the stream that is backed up and restored."""
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
    descriptions: list[tuple[str, int, int]] = field(default_factory=list)
    """Each that it was given: the text, when it was asked for, and when answered (0: never)."""

    def may_be(self, description: str, cut: int) -> bool:
        """Whether a cut then may leave it with this description."""
        answered = [n for n, (_, _, made) in enumerate(self.descriptions) if 0 < made < cut]
        first = answered[-1] if answered else 0
        since = self.descriptions[first:]
        return any(text == description and asked < cut for text, asked, _ in since)

    def must_be_there(self, cut: int) -> bool:
        return 0 < self.made < cut and not 0 < self.doomed < cut

    def may_be_there(self, cut: int) -> bool:
        return 0 < self.asked < cut and not 0 < self.gone < cut


def make(client: RawApp) -> dict[str, Asset]:
    """Streams with two consumers each, of which some change and some go again."""
    assets: dict[str, Asset] = {}

    def describe(name: str, description: str, subject: str, body: object) -> None:
        begun = time.monotonic_ns()
        assets[name].descriptions.append((description, begun, 0))
        answer = client.api(subject, body)
        assert "error" not in answer, answer
        assets[name].descriptions[-1] = (description, begun, time.monotonic_ns())

    def asked(name: str, subject: str, body: object) -> None:
        asset = assets[name] = Asset(name, asked=time.monotonic_ns())
        describe(name, "", subject, body)
        asset.made = asset.descriptions[-1][2]

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
            create = f"CONSUMER.DURABLE.CREATE.{name}.{consumer}"
            asked(f"{name}/{consumer}", create, body)
            body = {"stream_name": name, "config": given | {"description": "changed"}}
            describe(f"{name}/{consumer}", "changed", create, body)
        client.request(f"{name}.x", b"data")
        for text in ("changed", "changed again"):
            update = config | {"description": text}
            describe(name, text, f"STREAM.UPDATE.{name}", update)
        if number % 3 == 1:
            removed(f"{name}/a", f"CONSUMER.DELETE.{name}.a")
        elif number % 3 == 2:
            removed(name, f"STREAM.DELETE.{name}")
    restored(client, assets)
    return assets


def restored(client: RawApp, assets: dict[str, Asset]) -> None:
    """A stream of another name is backed up, and comes back as the one to be looked at."""
    config = {"name": RESTORED, "subjects": [f"{RESTORED}.>"], "description": "restored"}
    assert "error" not in client.api(f"STREAM.CREATE.{RESTORED}", config)
    for number in range(MESSAGES):
        client.request(f"{RESTORED}.x", b"message %d" % number)
    answer, archive, _ = backup(client, RESTORED)
    assert client.api(f"STREAM.DELETE.{RESTORED}").get("success")
    asset = assets[RESTORED] = Asset(RESTORED, asked=time.monotonic_ns())
    asset.descriptions.append(("restored", asset.asked, 0))
    back = restore(client, answer["config"], archive)
    assert "error" not in back, back
    asset.made = time.monotonic_ns()


def note(asset: Asset, what: str) -> None:
    """The time, unless it is known."""
    if not getattr(asset, what):
        setattr(asset, what, time.monotonic_ns())
    asset.descriptions = [("", asset.asked, asset.made)]


def make_at_once(client: RawApp) -> dict[str, Asset]:
    """The same, but all of a kind is asked for before anything of it is answered."""
    assets: dict[str, Asset] = {}
    client.subscribe("done.>")

    def ask(requests: dict[str, tuple[str, object]], told: list[str]) -> None:
        """Requests by the asset that they are about; the times that they are the limits of."""
        concerned = {
            name: [a for n, a in assets.items() if f"{n}/".startswith(f"{name}/")]
            for name in requests
        }
        for name, (subject, body) in requests.items():
            for asset in concerned[name]:
                note(asset, told[0])
            data = json.dumps(body).encode() if body is not None else b""
            client.publish(f"$JS.API.{subject}", data, reply=f"done.{name}")
        for frame in client.messages(len(requests)):
            assert b'"error"' not in frame.payload, frame
            for asset in concerned[frame.subject.removeprefix("done.")]:
                note(asset, told[1])

    streams = {f"S{n}": {"name": f"S{n}", "subjects": [f"S{n}.>"]} for n in range(STREAMS)}
    pairs = [(stream, f"c{n}") for stream in streams for n in range(4)]
    assets.update({name: Asset(name) for name in streams})
    ask({n: (f"STREAM.CREATE.{n}", c) for n, c in streams.items()}, ["asked", "made"])
    assets.update({f"{stream}/{name}": Asset(f"{stream}/{name}") for stream, name in pairs})
    made: dict[str, tuple[str, object]] = {}
    for stream, name in pairs:
        given = {"durable_name": name, "ack_policy": "explicit"}
        body = {"stream_name": stream, "config": given}
        made[f"{stream}/{name}"] = (f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
    ask(made, ["asked", "made"])
    gone: dict[str, tuple[str, object]] = {
        f"{stream}/{name}": (f"CONSUMER.DELETE.{stream}.{name}", None)
        for stream, name in pairs
        if name in ("c1", "c2") and stream != "S0"
    }
    ask(gone, ["doomed", "gone"])
    ask({n: (f"STREAM.DELETE.{n}", None) for n in ("S2", "S5")}, ["doomed", "gone"])
    restored(client, assets)
    return assets


@pytest.fixture(scope="module", params=[make, make_at_once])
def recorded(
    tmp_path_factory: pytest.TempPathFactory, recorder: Path, request: pytest.FixtureRequest
) -> Recorded:
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
            assets = request.param(client)
    finally:
        server.kill()
    return str(store), read_log(log), assets


def whole(image: Path) -> dict[str, str]:
    """The streams and consumers that a start would serve, and how they are described;
    AssertionError for half ones."""
    found = {}
    for stream in sorted(image.glob("jetstream/*/streams/[!.]*")):
        body = FILES.read(stream, stream.name, os.listdir(stream))
        found[stream.name] = json.loads(body).get("description", "")
        for consumer in sorted(stream.glob("obs/*")):
            asset = f"{stream.name}/{consumer.name}"
            body = FILES.read(consumer, asset, os.listdir(consumer))
            found[asset] = json.loads(body).get("description", "")
    return found


def check(found: dict[str, str], assets: dict[str, Asset], cut: int) -> None:
    for name, asset in assets.items():
        if name in found:
            if name == RESTORED and cut < asset.asked:
                continue  # the one that was backed up
            assert asset.may_be_there(cut), f"{name} was gone"
            assert asset.may_be(found[name], cut), f"{name} was not {found[name]!r}"
        else:
            assert not asset.must_be_there(cut), f"{name} was there"


def served(image: Path, folder: Path) -> dict[str, str]:
    """What a server finds in an image, and can use."""
    server = Server(command_under_test(), folder, args=["-js", "-sd", str(image)])
    server.start()
    found = {}
    try:
        assert "offline" not in server.log()
        with RawApp(server.port) as client:
            streams = client.api("STREAM.NAMES")["streams"] or []
            assert isinstance(streams, list)
            for stream in streams:
                found[stream] = described(client, f"STREAM.INFO.{stream}")
                consumers = client.api(f"CONSUMER.NAMES.{stream}")["consumers"]
                assert isinstance(consumers, list)
                for consumer in consumers:
                    info = f"CONSUMER.INFO.{stream}.{consumer}"
                    found[f"{stream}/{consumer}"] = described(client, info)
                if stream == RESTORED and found[stream] == "restored":
                    messages = len(stored(client, stream)[1])
                    assert messages <= MESSAGES
                    found[f"{RESTORED}: messages"] = str(messages)
                assert b'"seq"' in client.request(f"{stream}.x", b"more").payload
        assert server.stop() == 0
    finally:
        server.kill()
    left = [p for p in image.rglob(".*") if p.name.startswith((".new-", ".del-"))]
    assert not left, left
    return found


def described(client: RawApp, info: str) -> str:
    config = client.api(info)["config"]
    assert isinstance(config, dict)
    return str(config.get("description", ""))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", [JOURNAL, LOOSE])
def test_a_cut_leaves_each_asset_whole_or_absent(
    tmp_path: Path, recorded: Recorded, model: str
) -> None:
    root, events, assets = recorded
    chance = random.Random(SEED)
    disk = Disk(root, model)
    picked = {*chance.sample(range(len(events)), SERVED), len(events) - 1}
    for number, event in enumerate(events):
        disk.follow(event)
        image = tmp_path / "image"
        disk.image(image, chance)
        try:
            check(whole(image), assets, event.time)
            if number in picked:
                found = served(image, tmp_path / f"server{number}")
                check(found, assets, event.time)
                if 0 < assets[RESTORED].made < event.time:
                    assert found[f"{RESTORED}: messages"] == str(MESSAGES)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, event {number}, {image}: {error}") from error
        shutil.rmtree(image)
