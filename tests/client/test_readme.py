"""What README.md shows of a first start is what the program prints."""

import re
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"^\[\d+\] \S+ \S+ (\[\w+\] .*)$", re.MULTILINE)
PROGRAM = Path(sys.executable).with_name("jsserver")


def test_a_first_start(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().split("## A first session")[1]
    shown = LINE.findall(section.split("```")[1])
    assert len(shown) >= 4
    log = tmp_path / "log"
    command = [str(PROGRAM), "-js", "-sd", str(tmp_path / "data"), "-a", "127.0.0.1", "-p", "-1"]
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_until(lambda: "Server is ready" in log.read_text(), "the server says that it is ready")
    finally:
        server.terminate()
        server.wait(20)
    printed = [
        re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:4222", text)
        for text in LINE.findall(log.read_text())
    ]
    assert [text for text in printed if text in shown] == shown
