"""What `-t` and `jsserver check` say of a configuration, and what a start with it says."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jsserver.cext.bytes import hh64
from jsserver.instances.metafiles import MetaFiles
from jsserver.instances.rounds import alone
from tests.client.raw import RawApp
from tests.servers import Servers, command_under_test

#: Files that a start refuses.
REFUSED = [
    "port: 99999",
    "http_port: 99999",
    "websocket { port: 8080 }",
    "websocket { port: 99999, no_tls: true }",
    "system_account: NOPE",
    "no_auth_user: nobody",
    "authorization { users: [{user: a, password: b}] }\nno_auth_user: nobody",
    "max_payload: 200MB",
    'jetstream { domain: "a.b" }',
    'jetstream { domain: "a b" }',
    'lame_duck_duration: "30s"\nlame_duck_grace_period: "31s"',
    'client_advertise: "a:99999"',
    "http_port: 8222\nhttps_port: 8223",
    "https_port: 8223",
    "accounts { A: {}, S: { jetstream: enabled } }\nsystem_account: S\njetstream: enabled",
    'proxies { trusted: [{key: "nope"}] }',
]
WARNED = """
listen: "127.0.0.1:-1"
disable_sublist_cache: true
max_payload: 10MB
authorization {
    users: [{user: a, password: b}, {user: c, password: "$2a$10$short"}]
}
jetstream { extension_hint: will_extend }
websocket { listen: "127.0.0.1:-1", no_tls: true }
"""


def run(*words: str, folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [*command_under_test(), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


def written(folder: Path, text: str) -> str:
    path = folder / "x.conf"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("text", REFUSED)
def test_a_file_that_the_start_refuses_is_not_valid(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, f"{text}\nstore_dir: store\n")
    code, _, said = run("-c", path, "-a", "127.0.0.1", folder=tmp_path)
    reason = said.strip().splitlines()[-1].partition("[FTL] ")[2] or said.strip()
    assert code == 1 and reason
    code, out, err = run("-t", "-c", path, folder=tmp_path)
    assert (code, out) == (1, "") and reason.removeprefix("nats-server: ") in err
    code, out, err = run("check", "-c", path, "--json", folder=tmp_path)
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert not found["starts"] and found["errors"][0] in reason


def test_flags_are_checked_with_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "max_payload: 1MB\n")
    assert run("-t", "-c", path, "-p", "70000", folder=tmp_path)[0] == 1
    assert run("check", "-c", path, "-p", "70000", folder=tmp_path)[0] == 1
    assert run("check", "-c", path, "--nope", folder=tmp_path)[0] == 2
    assert run("check", folder=tmp_path)[0] == 2


def test_what_a_start_warns_of_is_said_before(tmp_path: Path, servers: Servers) -> None:
    path = written(tmp_path, f"{WARNED}\nstore_dir: store\n")
    server = servers.under_test(args=["-c", path, "-sd", str(tmp_path / "store")])
    lines = [line for line in server.log().splitlines() if "[WRN] " in line]
    logged = {line.partition("[WRN] ")[2] for line in lines}
    server.stop()
    code, _, said = run("-t", "-c", path, folder=tmp_path)
    assert code == 0
    *warned, valid = said.splitlines()
    assert " is valid (" in valid and set(warned) == logged and len(warned) == 6
    code, out, _ = run("check", "-c", path, "--json", folder=tmp_path)
    assert code == 0 and set(json.loads(out)["warnings"]) == logged


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder with its size and the time of its last change."""
    found = [Path(base) / name for base, dirs, files in os.walk(folder) for name in dirs + files]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def damage(store: Path, change: dict[str, Any]) -> None:
    """Stream Q needs what there is not."""
    folder = store / "jetstream" / "$G" / "streams" / "Q"
    body = json.loads((folder / "meta.inf").read_bytes()) | change
    files = MetaFiles(hh64)
    alone(files.update(folder, "Q", json.dumps(body).encode()))


def test_streams_that_would_be_offline(tmp_path: Path, servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    config = written(
        tmp_path, f'jetstream {{ store_dir: "{server.store}" }}\nport: {server.port}\n'
    )
    with RawApp(server.port) as app:
        for name in ("P", "Q"):
            app.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()]})
        consumer = {"durable_name": "c", "ack_policy": "explicit"}
        app.api("CONSUMER.CREATE.P.c", {"stream_name": "P", "config": consumer})

    code, out, _ = run("check", "-c", config, "--json", folder=tmp_path)
    found = json.loads(out)
    assert (code, found["streams"], found["offline"]) == (0, 2, [])
    text = "\n".join(found["warnings"])
    assert f"in use by another server (pid {server.pid}) now" in text
    assert f"port {server.port} cannot be had now" in text

    server.stop()
    damage(server.store, {"metadata": {"_nats.req.level": "9"}})
    (server.store / "jetstream/$G/streams/P/obs/c/meta.sum").write_text("0" * 16)
    before = state_of(server.store)
    code, out, _ = run("check", "-c", config, "--json", folder=tmp_path)
    assert state_of(server.store) == before
    told = {each["asset"]: each["reason"] for each in json.loads(out)["offline"]}
    assert code == 3 and told.keys() == {"Q", "P > c"}
    server.start()
    for asset, reason in told.items():
        server.wait_log(f"'$G > {asset}' is offline: {reason}")
    code, out, _ = run("check", "-c", config, folder=tmp_path)
    assert code == 3 and "2 streams, 2 of them not served in full" in out


def test_streams_of_an_account_that_there_is_not(tmp_path: Path, servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as app:
        app.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
    server.stop()
    text = (
        f'jetstream {{ store_dir: "{server.store}" }}\naccounts {{ A: {{ jetstream: enabled }} }}\n'
    )
    code, out, _ = run("check", "-c", written(tmp_path, text), folder=tmp_path)
    assert code == 3
    assert "offline: '$G > P': the configuration has no such account with JetStream" in out


def test_a_store_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for text in (
        'jetstream { store_dir: "file/store" }',
        'log_file: "nope/x.log"',
        'pid_file: "nope/x.pid"',
        "jetstream { max_file_store: 1MB, store_dir: s }\n"
        "accounts { A: { jetstream: { max_file: 2MB } } }",
    ):
        code, out, err = run("check", "-c", written(tmp_path, text), folder=tmp_path)
        assert (code, err) == (1, "") and out.startswith("error: "), (text, out)
