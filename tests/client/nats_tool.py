"""Runs commands of the `nats` tool on two servers and shows where it says something else.

`NATS_TOOL` names the tool, if it is not `nats` in the path; without one nothing is run.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from typing import NamedTuple

import pytest

from tests.servers import Server

TOOL = os.environ.get("NATS_TOOL") or shutil.which("nats")
needs_tool = [
    pytest.mark.usefixtures("peer_present"),
    pytest.mark.skipif(TOOL is None, reason="there is no nats tool"),
]
"""The marks of a module of such comparisons."""

VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)?( UTC)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d\b", "<time>"),
    (r"Git Commit:.*", "Git Commit:"),
    (r"\b[\d.]+(h|m|s|ms|us|µs|ns)([\d.]+(m|s|ms))*\b", "<span>"),
    (r"127\.0\.0\.1:\d+", "<server>"),
    (r"_INBOX\.[\w.]+", "<inbox>"),
    (r"[\d.]+ ([KMGT]i?)?B", "<size>"),
    (r"\"ts\": ?\"[^\"]*\"", '"ts":<time>'),
    (r"N[A-Z0-9]{55}", "<id>"),
    (r"max_(memory|storage|mem|file)\S*", "<limit>"),
    (r"\b\d{9,}\b", "<number>"),
    (r"jetstream_\S*=\S+", "<figure>"),
)
"""What two servers with the same history have each for themselves, and its name here."""
WATCH_SECONDS = 1.5


def _sorted_lines(found: re.Match[str]) -> str:
    """A message's headers are shown in any order."""
    return "".join(sorted(found[0].splitlines(keepends=True)))


class Said(NamedTuple):
    """What one command came to: its words, its exit code, the lines that it wrote."""

    words: str
    code: int
    lines: list[str]


def run(server: Server, words: str, varying: Iterable[tuple[str, str]] = ()) -> Said:
    """Runs one command; HOME in it is a folder of the server's. One that begins with `watch:` is
    ended after a while."""
    home = server.folder / "home"
    home.mkdir(exist_ok=True)
    watched = words.startswith("watch:")
    command = [str(TOOL), "-s", server.url]
    command += shlex.split(words.removeprefix("watch:").replace("HOME", str(home)))
    if watched:
        command = ["timeout", "-s", "INT", str(WATCH_SECONDS), *command]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        cwd=home,
        env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "TZ": "UTC"},
    )
    text = (done.stdout + done.stderr).replace("\xa0", " ")
    for pattern, name in (*varying, *VARYING):
        text = re.sub(pattern, name, text)
    text = re.sub(r"[ ─━]{2,}", " ", text.replace(str(home), "HOME"))
    text = re.sub(r"(?<=Headers:\n\n)(.+\n)+", _sorted_lines, text)
    code = 0 if watched else done.returncode
    return Said(words, code, [line.strip() for line in text.splitlines()])


def compare(
    both: Sequence[Server],
    commands: Iterable[str],
    varying: Iterable[tuple[str, str]] = (),
    says_otherwise: Iterable[str] = (),
) -> None:
    """Fails where a command says or does something else on one server than on the other.

    Of those in `says_otherwise` only the exit code is compared.
    """
    differing = []
    with ThreadPoolExecutor(2) as pool:
        for words in commands:
            runs = [pool.submit(run, server, words, varying) for server in both]
            ours, theirs = (run.result() for run in runs)
            if words in says_otherwise:
                ours, theirs = (said._replace(lines=[]) for said in (ours, theirs))
            if ours != theirs:
                differing.append((ours, theirs))
    for ours, theirs in differing:
        print(f"== {ours.words}: {theirs.code}, here {ours.code}")
        print("\n".join(unified_diff(theirs.lines, ours.lines, "nats-server", "here", lineterm="")))
    assert [ours.words for ours, _ in differing] == []
