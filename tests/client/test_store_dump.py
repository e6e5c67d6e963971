"""`jsserver store dump` and `du` on directories of both servers."""

import base64
import json
import shutil
from pathlib import Path

import pytest

from tests.client import offline
from tests.client.offline import Made, run, stream_of
from tests.servers import Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=["ours-clean", "ours-killed", "peer-clean"])
def made(module_servers: Servers, request: pytest.FixtureRequest) -> Made:
    return offline.make(module_servers, request.param)


def test_every_message_is_dumped_as_a_server_serves_it(made: Made) -> None:
    for stream, served in made.served.items():
        code, out, error = run("dump", made.path, "--stream", stream, "--json")
        assert (code, error) == (0, "")
        told = [json.loads(line) for line in out.splitlines()]
        found = {m["seq"]: (m["subject"], base64.b64decode(m["data"])) for m in told}
        assert found == served


def test_ranges_filters_limits_headers_and_deleted_ones(made: Made) -> None:
    words = ["dump", made.path, "--stream", "S", "--json"]
    _, out, _ = run(*words, "--from", 15, "--to", 21, "--deleted")
    told = [json.loads(line) for line in out.splitlines()]
    assert [m.get("seq", m.get("deleted")) for m in told] == [15, 16, [17, 19], 20, 21]
    assert told[1]["headers"] == {"A": ["b15"]}
    _, out, _ = run(*words, "--subject", "k.3.*", "--limit", 2)
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [4, 11]
    _, out, _ = run("dump", made.path, "--stream", "KV_B", "--raw", "--limit", 1)
    assert out == "v180"


def test_lines_are_safe_to_show(made: Made) -> None:
    code, out, _ = run("dump", made.path, "--stream", "S", "--consumers")
    assert code == 0
    assert all(line.isprintable() for line in out.splitlines())
    assert len([line for line in out.splitlines() if " k." in line]) == len(made.served["S"])


def test_consumers_stand_where_a_clean_stop_left_them(module_servers: Servers) -> None:
    for way in ("ours-clean", "peer-clean"):
        store = offline.make(module_servers, way).path
        words = ["dump", store, "--stream", "S", "--limit", 0, "--consumers", "--json"]
        (told,) = (json.loads(line) for line in run(*words)[1].splitlines())
        assert told["consumer"] == "C"
        assert told["state"]["delivered"]["consumer_seq"] == 40
        assert told["state"]["ack_floor"]["consumer_seq"] == 20
        assert len(told["state"]["pending"]) == 18


def test_a_dump_tells_of_damage_and_goes_on(made: Made, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(made.path, store)
    block = stream_of(store) / "msgs" / "1.blk"
    offline.flip(block, 8 * block.read_bytes().index(offline.payload(30)))
    code, out, error = run("dump", store, "--stream", "S", "--json")
    assert code == 1
    assert "1.blk at " in error
    assert len(out.splitlines()) == len(made.served["S"]) - 1


def test_usage_adds_up(made: Made) -> None:
    code, out, _ = run("du", made.path, "--json")
    assert code == 0
    for told in json.loads(out)["streams"]:
        served = made.served[told["stream"]]
        assert told["messages"] == len(served)
        assert told["disk_bytes"] == sum(told["kinds"].values())
        files = [p for p in stream_of(made.path, told["stream"]).rglob("*") if p.is_file()]
        assert told["files"] == len(files)
        assert told["disk_bytes"] == sum(p.stat().st_blocks * 512 for p in files)
    gone = {s["stream"]: s["deleted_bytes"] for s in json.loads(out)["streams"]}
    assert gone["KV_B"] > 0
    code, out, _ = run("du", made.path)
    assert "$G: " in out.splitlines()[-1]


def test_wrong_arguments_are_answered(made: Made) -> None:
    assert run("dump", made.path)[0] == 2
    code, _, error = run("dump", made.path, "--stream", "S", "--from", "x")
    assert code == 2
    assert "'x' is no whole number" in error
