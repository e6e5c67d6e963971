"""The first sessions of the README and of the guide, as printed: in a checkout without built
extensions, in an environment where both packages are installed, on a network of their own."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.tests.paths import ROOT, SOURCES

SECONDS = 500
ENTRY = """\
import sys
from {} import main
if __name__ == "__main__":
    sys.exit(main())
"""
NATS_TOOL = '''\
"""The few commands of the nats tool that the sessions use, where it is not installed."""
import json, sys
from jsserver_spark.jetstream import JetStream
from jsserver_spark.options import ConnectionOptions

js = JetStream(ConnectionOptions())
if sys.argv[1:3] == ["stream", "get"]:
    found = js.api(f"STREAM.MSG.GET.{sys.argv[3]}", {"seq": int(sys.argv[4])})["message"]
    print("Item:", found["subject"])
elif sys.argv[1:3] == ["stream", "add"]:
    given = dict(zip(sys.argv[4:-1:2], sys.argv[5:-1:2]))
    window = int(given.get("--dupe-window", "2m").rstrip("m")) * 60 * 10**9
    body = {"name": sys.argv[3], "subjects": [given["--subjects"]], "duplicate_window": window}
    js.api(f"STREAM.CREATE.{sys.argv[3]}", body | {"allow_direct": True})
else:
    sys.exit(f"unknown: {sys.argv}")
'''
ALONE = (
    "import fcntl,socket,struct,os,sys; s=socket.socket()\n"
    "fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 1)); s.close()\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Sets the loopback device of a new network up, and becomes what is to run there."""


def alone(*words: str) -> list[str]:
    """A command on a network of its own, where port 4222 is free."""
    return ["unshare", "--net", "--map-root-user", sys.executable, "-c", ALONE, *words]


@pytest.fixture(scope="module")
def network() -> None:
    try:
        done = subprocess.run(alone("true"), capture_output=True, timeout=20, check=False)
    except OSError:
        pytest.skip("there is no unshare")
    if done.returncode:
        pytest.skip("this machine allows no networks of their own")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources without anything that was built, and the environment `sparkling` beside it."""
    to = tmp_path_factory.mktemp("session") / "checkout"
    for folder in ("jsserver", "cext", "pipeline"):
        shutil.copytree(ROOT / folder, to / folder, symlinks=True, ignore=unbuilt)
    environment = to.parent / "sparkling"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    shutil.copytree(ROOT / "jsserver", packages / "jsserver")
    shutil.copytree(SOURCES, packages, dirs_exist_ok=True)
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    program(environment, "jsserver", ENTRY.format("jsserver.cli"))
    program(environment, "jsserver-spark", ENTRY.format("jsserver_spark.jobs.main"))
    program(environment, "nats", NATS_TOOL)
    return to


def unbuilt(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith((".so", ".c", "__pycache__"))]


def program(environment: Path, name: str, text: str) -> None:
    path = environment / "bin" / name
    path.write_text(f"#!{environment / 'bin' / 'python3'}\n{text}")
    path.chmod(0o755)


def blocks(text: str) -> list[tuple[str, str]]:
    """The blocks of code: what they are, and their text."""
    return re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)


def commands(block: str) -> list[str]:
    """What is typed at a prompt, without what installs packages."""
    lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r"python3 -m venv [\w./]+ && |pip install .*", "", line) for line in lines]


def ran(name: str, text: str) -> list[str]:
    """A program that is written down and started."""
    return [f"cat > {name} <<'END'\n{text}\nEND", f"python3 {name}"]


def run(checkout: Path, script: list[str]) -> str:
    """What a shell in the checkout says."""
    lines = ["set -eu", *script, "kill -TERM $server", "wait $server || true"]
    text = re.sub(r"(&)$", r"& server=$!", "\n".join(lines), count=1, flags=re.MULTILINE)
    environment = {
        key: os.environ[key] for key in ("PATH", "HOME", "JAVA_HOME") if key in os.environ
    }
    process = subprocess.Popen(
        alone("bash", "-c", text),
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def section(file: str, start: str, end: str) -> str:
    text = (ROOT / file).read_text()
    return text[text.index(start) : text.index(end)]


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.usefixtures("network")
def test_the_guides_first_session(checkout: Path) -> None:
    first = section("docs/spark.md", "## A first session", "## The table")
    jobs = section("docs/spark.md", "## Jobs", "**An archive**")
    python = [text for kind, text in blocks(first) if kind == "python"]
    start, *later = [text for kind, text in blocks(first) if kind == "console" and "$ " in text]
    session = "\n".join(python[1:])
    session = re.sub(r"^(spark\.read.*count\(\))", r"print(\1)", session, flags=re.MULTILINE)
    script = [*commands(start), *ran("fill.py", python[0]), *ran("session.py", session)]
    for text in later:
        script += commands(text)
    for _, text in blocks(jobs):
        script += commands(text)
    said = run(checkout, script)
    for expected in (
        "nothing is wrong",
        "|orders.north| 3334|",
        "|1  |orders.north|",
        "Item: large.north",
        "\n10000\n",
        "10,000 rows in 1 files",
        "\nequal\n",
        "10,000 messages published to COPY",
        "ORDERS: 0 messages published to COPY",
        "no gaps",
    ):
        assert expected in said, said


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.usefixtures("network")
def test_the_readmes_streams_as_tables(checkout: Path) -> None:
    """Where the README's first session left a server and the stream ORDERS."""
    text = section("README.md", "## Streams as Spark tables", "## Beside nats-server")
    before = [
        ". ../sparkling/bin/activate && mkdir -p ../readme && cd ../readme",
        "export SPARK_LOCAL_IP=127.0.0.1",
        "jsserver -js -sd data -a 127.0.0.1 > jsserver.log 2>&1 &",
        "until grep -q 'Server is ready' jsserver.log; do sleep 0.1; done",
        "nats stream add ORDERS --subjects 'orders.>' --defaults",
    ]
    publish = (
        "import asyncio, nats\nasync def main():\n    client = await nats.connect()\n"
        "    await client.jetstream().publish('orders.new', b'one table')\n"
        "    await client.close()\nasyncio.run(main())"
    )
    script = [*before, f'python3 -c "{publish}"']
    for kind, block in blocks(text):
        if kind == "python":
            script += ran("session.py", block)
        else:
            script += commands(block)
    said = run(checkout, [*script, "nats stream get COPY 1", "ls lake/stream=ORDERS"])
    for expected in ("|orders.new|    1|", "Item: copy.orders.new", "ORDERS: 1 rows", "date="):
        assert expected in said, said


@pytest.mark.parametrize(
    ("folder", "module", "package", "made_by"),
    [
        (".", "jsserver.cext.engine", "jsserver", "make build"),
        (".", "jsserver.cext", "jsserver", "make build"),
        ("pipeline/src", "jsserver_spark.cext.columns", "jsserver-spark", "make pipeline"),
    ],
)
def test_a_checkout_that_is_not_built_says_so(
    checkout: Path, folder: str, module: str, package: str, made_by: str
) -> None:
    done = subprocess.run(
        [checkout.parent / "sparkling" / "bin" / "python3", "-c", f"import {module}"],
        cwd=checkout / folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"ImportError: the extensions of {package} are not built in" in done.stderr
    assert f"`{made_by}`" in done.stderr
