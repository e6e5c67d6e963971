"""The load generator against a real server: every scenario does its work and says so."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_connection import USER, Nkey
from tests.servers import Server, Servers

MESSAGES = 2000


def bench(server: Server, *words: str) -> dict[str, Any]:
    done = run_bench(server, *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run_bench(server: Server, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "jsserver.bench", *words, "-s", server.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize(
    "words",
    [
        ("pub", "x"),
        ("pub", "x", "--clients=2", "--subjects=7"),
        ("js", "pub", "sync", "--create", "--storage=memory", "--msgs=50"),
        ("js", "pub", "async", "--create", "--subjects=10", "--clients=2"),
        ("js", "pub", "atomic", "--create", "--batch=30", "--subjects=3", "--clients=2"),
        ("js", "pub", "fast", "--create", "--batch=30", "--clients=2"),
        ("kv", "put", "--create", "--msgs=50"),
    ],
    ids=" ".join,
)
def test_writing(js_server: Server, words: tuple[str, ...]) -> None:
    given = dict(word.split("=") for word in words if "=" in word)
    count = int(given.get("--msgs", MESSAGES))
    more = () if "--msgs" in given else (f"--msgs={MESSAGES}",)
    found = bench(js_server, *words, *more)
    assert found["messages"] == count
    assert found["messages_per_second"] > 0


def test_reading_back_what_was_published(js_server: Server) -> None:
    count = f"--msgs={MESSAGES}"
    bench(js_server, "js", "pub", "async", "--create", count)
    for how in ("ordered", "consume", "fetch"):
        assert bench(js_server, "js", how, count)["messages"] == MESSAGES
    assert bench(js_server, "js", "consume", count, "--clients=2")["messages"] == MESSAGES
    found = bench(js_server, "js", "get", "sync", "--msgs=50")
    assert set(found["latency_us"]) >= {"P50", "P99", "P99.9"}


def test_buckets_read_back(js_server: Server) -> None:
    bench(js_server, "kv", "put", "--create", "--msgs=50")
    assert bench(js_server, "kv", "get", "--msgs=50")["messages"] == 50


def test_who_loads_the_server_logs_in(servers: Servers, tmp_path: Path) -> None:
    nkey = Nkey(USER, 1)
    seed = tmp_path / "seed"
    seed.write_text(nkey.seed)
    users = f"[{{user: a, password: b}}, {{nkey: {nkey.public}}}]"
    server = servers.under_test(config=f"authorization {{ users: {users} }}\n")
    for words in (("--user=a", "--password=b"), (f"--nkey={seed}",)):
        assert bench(server, "pub", "x", "--msgs=50", *words)["messages"] == 50
    refused: list[tuple[tuple[str, ...], str]] = [
        ((), "Authorization Violation"),
        (("--user=a", "--password=c"), "Authorization Violation"),
        (("--nkey=none",), "none: cannot be read"),
        (("--creds=none",), "none: cannot be read"),
        (("--tlsca=none",), "does not offer TLS"),
    ]
    for login, said in refused:
        done = run_bench(server, "pub", "x", *login)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("listen", "speak"),
    [
        (("sub", "both", f"--msgs={MESSAGES}"), ("pub", "both")),
        (("service", "serve", "ask", "--msgs=50"), ("service", "request", "ask", "--msgs=50")),
    ],
    ids=["sub", "service"],
)
def test_both_ends(core_server: Server, listen: tuple[str, ...], speak: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "jsserver.bench", *listen, "-s", core_server.url, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        try:
            # Repeated until it listens: what is sent before that, nobody gets.
            for _ in range(200):
                done = run_bench(core_server, *speak)
                if listener.poll() is not None or (done.returncode == 0 and "serve" in listen):
                    break
            output, _ = listener.communicate(timeout=60)
        finally:
            listener.kill()
    assert json.loads(output)["messages"] >= 50


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nonsense",), "no scenario 'nonsense'"),
        (("pub", "--size=9MB"), "Maximum Payload Violation"),
        (("js", "ordered", "--stream=ABSENT"), "stream not found"),
        (("service", "request", "nobody"), "503"),
        (("pub", "--msgs=none"), "between 1 and"),
        (("pub", "--size=1XB"), "is no size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_goes_wrong_is_said_in_a_line(
    js_server: Server, words: tuple[str, ...], said: str
) -> None:
    done = run_bench(js_server, *words)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_server_is_said_too(servers: Servers, tmp_path: Path) -> None:
    server = servers.under_test()
    server.kill()
    done = run_bench(server, "pub")
    assert done.returncode == 1
    assert "cannot connect" in done.stderr
